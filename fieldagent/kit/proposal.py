"""Proposes settings for the detected devices, in addition to a kit's existing settings.

The setting of a port is kept if a device of its kind is at the port, or if another program (usually
the agent) uses the port. Otherwise the port of the first detected device that has no setting
replaces the old port.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from fieldagent.agent.kit_part import DeviceKind, KitPart, get_device_parts, get_devices
from fieldagent.agent.satellites.registry import get_modems
from fieldagent.agent.settings import get_needs, list_all_keys, list_allowed_keys, parse
from fieldagent.kit.devices import FoundDevice
from fieldagent.kit.serial_ports import is_same_port
from fieldagent.system.java_properties import read_pairs as pairs_in
from fieldagent.system.java_properties import set_pairs
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import InvalidSettings

SECRETS = ("-token", "-key", "-pin")
"""Endings of settings whose values are never shown."""


class DeviceSeat(NamedTuple):
    """The settings of one port: the name of the port's setting, and the name of the setting for the
    kind of device.
    """

    port: str
    kind: str
    """Name of the setting for the kind of device. Empty if there is only one kind."""
    names: Collection[str]
    """Names of the device kinds that can have these settings."""
    load_kind: Callable[[str], DeviceKind] | None = None
    """Loads a kind that has additional settings. None if no kind has any."""


def _choose_seat(port: str, part: KitPart) -> DeviceSeat:
    names = part.kinds or [each.name for each in get_devices(part)]
    return DeviceSeat(port, part.kind_key, names, part.load_kind)


AUTO = "auto"
"""Kind that stands for any device that answers."""
SEAT_ORDER = (
    DeviceSeat("satellite-port", "satellite-modem", get_modems()),
    *(
        _choose_seat(port, part)
        for port, part in sorted(get_device_parts().items(), key=lambda each: bool(each[1].station))
    ),
)
"""Ports in the order in which they get detected devices. The port for radio between kits comes
last. A radio that could also serve another purpose is more useful there on a single kit."""
DEFAULT_BY_NAME = {key.name: key.default for key in list_all_keys()}


class Proposal(NamedTuple):
    by_port: Mapping[str, Mapping[str, str]]
    """Settings to make, by the setting of the device's port."""
    unchanged: Sequence[str]
    """Names of the port settings that stay unchanged."""
    needed: Mapping[str, Sequence[str]]
    """Missing settings, by the setting of the port."""

    @property
    def settings(self) -> dict[str, str]:
        """Return all settings that can be made. The settings of a device that needs a missing
        setting are left out.
        """
        complete_pairs = [pairs for port, pairs in self.by_port.items() if port not in self.needed]
        return {name: value for pairs in complete_pairs for name, value in pairs.items()}


def propose(
    devices: Sequence[FoundDevice], text: str, extra_settings: Mapping[str, str] = {}
) -> Proposal:
    """Return the settings to add or change in the settings file `text`. `extra_settings` contains
    settings from the user, from which missing settings are taken.
    """
    before = dict(pairs_in(text))
    by_port: dict[str, Mapping[str, str]] = {}
    needed: dict[str, Sequence[str]] = {}
    device_by_port = {seat.port: _find_at(before.get(seat.port), devices) for seat in SEAT_ORDER}
    kept_ports = [
        port
        for port, seat in zip(device_by_port, SEAT_ORDER, strict=True)
        if port in before and _can_stay(device_by_port[port], seat, before)
    ]
    free = [each for each in devices if each not in [device_by_port[port] for port in kept_ports]]
    for seat in SEAT_ORDER:
        if seat.port in kept_ports:
            by_port[seat.port] = _propose_kind(device_by_port[seat.port], seat, before)
            continue
        fits = [each for each in free if each.kind in seat.names]
        if not fits:
            continue
        free.remove(fits[0])
        pairs = {seat.port: fits[0].place, **_propose_kind(fits[0], seat, before)}
        pairs |= _list_reported_settings(fits[0], seat, before)
        needed_settings = _find_needed_settings(seat, {**before, **pairs})
        pairs |= {name: extra_settings[name] for name in needed_settings if name in extra_settings}
        by_port[seat.port] = pairs
        if missing := [
            name for name in needed_settings if name not in before and name not in pairs
        ]:
            needed[seat.port] = missing
    return Proposal(by_port, kept_ports, needed)


def _find_at(port: str | None, devices: Sequence[FoundDevice]) -> FoundDevice | None:
    matching = [each for each in devices if port is not None and is_same_port(each.place, port)]
    return matching[0] if matching else None


def _can_stay(
    device: FoundDevice | None, seat: DeviceSeat, old_settings: Mapping[str, str]
) -> bool:
    if device is None or device.in_use or device.kind in seat.names:
        # Keep the port if detection did not check it (for example a radio over UDP, or a port in
        # use), or if a suitable device answered there.
        return True
    # Keep the port of a device that cannot be recognised, unless another device answers at the
    # port.
    return device.is_answering and not device.kind and not _is_recognizable(seat, old_settings)


def _is_recognizable(seat: DeviceSeat, old_settings: Mapping[str, str]) -> bool:
    """Return True if detection can recognise the configured kind of device."""
    name = _describe_setting(seat, old_settings)
    if seat.kind and name not in seat.names:
        return False
    return seat.load_kind is None or seat.load_kind(name).recognition is not None


def _describe_setting(seat: DeviceSeat, old_settings: Mapping[str, str]) -> str:
    return str(old_settings.get(seat.kind, DEFAULT_BY_NAME.get(seat.kind, "")))


def _propose_kind(
    device: FoundDevice | None, seat: DeviceSeat, old_settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the setting for the kind of device, or an empty dict if it has this value already."""
    if device is None or not seat.kind or not device.kind:
        return {}
    return (
        {}
        if _describe_setting(seat, old_settings) in (device.kind, AUTO)
        else {seat.kind: device.kind}
    )


def _list_reported_settings(
    device: FoundDevice, seat: DeviceSeat, old_settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings that follow from the device's report."""
    if device.report is None or seat.load_kind is None:
        return {}
    return {
        name: value for name, value in device.report.settings.items() if name not in old_settings
    }


def _find_needed_settings(seat: DeviceSeat, known_settings: Mapping[str, str]) -> list[str]:
    """Return the settings that a port needs, and the settings that these settings need."""
    needed_names = (
        [*seat.load_kind(_describe_setting(seat, known_settings)).needs] if seat.load_kind else []
    )
    names = [seat.port, *needed_names]
    while names:
        name = get_needs().get(names.pop(0), "")
        if name and name not in (*needed_names, seat.port):
            needed_names.append(name)
            names.append(name)
    return needed_names


def describe_setting(name: str, settings: Mapping[str, str]) -> str:
    """Return the description of a setting, for people."""
    text = "".join(f"{each}={value}\n" for each, value in settings.items())
    return next((key.description for key in list_allowed_keys(text) if key.name == name), "")


def mask_value(name: str, value: str) -> str:
    """Return the value in a form for people, without secrets."""
    return "…" if name.endswith(SECRETS) else value


def change_text(text: str, settings: Mapping[str, str], path: Path) -> str:
    """Return the text of the settings file with these settings. All other lines are kept. Raises
    InvalidSettings if the agent would refuse the file.
    """
    changed = set_pairs(text, settings)
    if dict(pairs_in(changed)) != {**dict(pairs_in(text)), **settings}:
        raise InvalidSettings(path, ["its last line is continued: correct that first"])
    parse(changed, path)
    return changed
