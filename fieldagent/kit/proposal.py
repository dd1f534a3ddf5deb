"""Which settings follow from the devices that were found, beside those that a kit has.

A port that is set stays where a device of its kind is at it, or another program has it, which is
mostly the agent. Where something else is there, or nothing, the first device that was found and has
no place yet takes its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fieldagent.agent.people_settings import RADIOS as PEOPLES_RADIOS
from fieldagent.agent.radios.known import RADIOS, radio
from fieldagent.agent.satellites.known import MODEMS
from fieldagent.agent.settings import KEYS, NEEDS, keys_of, parse
from fieldagent.kit.devices import FoundDevice
from fieldagent.kit.serial_ports import is_same_port
from fieldagent.system.java_properties import pairs as pairs_in
from fieldagent.system.java_properties import with_pairs
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import InvalidSettings

SECRETS = ("-token", "-key", "-pin")
"""What the name of a setting ends with that nobody is shown."""


class DeviceSeat(NamedTuple):
    """What of the settings names one device."""

    port: str
    kind: str
    """The setting that says which it is; empty where there is one kind alone."""
    names: Collection[str]
    """Devices that may be there, as they are recognised."""


AUTO = "auto"
"""Of a kind: whichever answers."""
RADIO = DeviceSeat("radio-port", "radio-protocol", RADIOS)
SEATS = (
    DeviceSeat("satellite-port", "satellite-modem", MODEMS),
    DeviceSeat("sms-port", "", ("gsm",)),
    DeviceSeat("mesh-port", "mesh-protocol", PEOPLES_RADIOS),
    RADIO,
)
"""A radio that may be either is people's first: one kit alone has something of that."""
DEFAULTS = {key.name: key.default for key in KEYS}


class Proposal(NamedTuple):
    by_port: Mapping[str, Mapping[str, str]]
    """What is to be set, by the setting that names the device's port."""
    kept: Sequence[str]
    """Ports that stay as they are set, by the names of their settings."""
    needed: Mapping[str, Sequence[str]]
    """Settings that are missing, by that of the port."""

    @property
    def settings(self) -> dict[str, str]:
        """Return all settings that can be made: a device that lacks one is left out."""
        whole = [pairs for port, pairs in self.by_port.items() if port not in self.needed]
        return {name: value for pairs in whole for name, value in pairs.items()}


def propose(devices: Sequence[FoundDevice], text: str, more: Mapping[str, str] = {}) -> Proposal:
    """Return what to set in the settings file `text`; `more` is what somebody has said beside."""
    before = dict(pairs_in(text))
    by_port: dict[str, Mapping[str, str]] = {}
    needed: dict[str, Sequence[str]] = {}
    there = {seat.port: _at(before.get(seat.port), devices) for seat in SEATS}
    kept = [
        port
        for port, seat in zip(there, SEATS, strict=True)
        if port in before and _stays(there[port], seat, before)
    ]
    free = [each for each in devices if each not in [there[port] for port in kept]]
    for seat in SEATS:
        if seat.port in kept:
            by_port[seat.port] = _kind(there[seat.port], seat, before)
            continue
        fits = [each for each in free if each.kind in seat.names]
        if not fits:
            continue
        free.remove(fits[0])
        pairs = {seat.port: fits[0].place, **_kind(fits[0], seat, before)}
        pairs |= _of_device(fits[0], seat, before)
        wanted = _wanted(seat, {**before, **pairs})
        pairs |= {name: more[name] for name in wanted if name in more}
        by_port[seat.port] = pairs
        if missing := [name for name in wanted if name not in before and name not in pairs]:
            needed[seat.port] = missing
    return Proposal(by_port, kept, needed)


def _at(port: str | None, devices: Sequence[FoundDevice]) -> FoundDevice | None:
    there = [each for each in devices if port is not None and is_same_port(each.place, port)]
    return there[0] if there else None


def _stays(there: FoundDevice | None, seat: DeviceSeat, before: Mapping[str, str]) -> bool:
    if there is None or there.in_use or there.kind in seat.names:
        # What was not looked at is no device, as a radio by UDP.
        return True
    # What nobody can ask stays, as long as nothing else answers in its place.
    return there.answers and not there.kind and not _can_tell(seat, before)


def _can_tell(seat: DeviceSeat, before: Mapping[str, str]) -> bool:
    """Return whether the device that is set would say which it is."""
    named = _said(seat, before)
    if seat.kind and named not in seat.names:
        return False
    return seat is not RADIO or radio(named).recognition is not None


def _said(seat: DeviceSeat, before: Mapping[str, str]) -> str:
    return str(before.get(seat.kind, DEFAULTS.get(seat.kind, "")))


def _kind(there: FoundDevice | None, seat: DeviceSeat, before: Mapping[str, str]) -> dict[str, str]:
    """Return the setting that says which device it is, unless that is said."""
    if there is None or not seat.kind or not there.kind:
        return {}
    return {} if _said(seat, before) in (there.kind, AUTO) else {seat.kind: there.kind}


def _of_device(there: FoundDevice, seat: DeviceSeat, before: Mapping[str, str]) -> dict[str, str]:
    """Return what follows from what it tells of itself."""
    if there.report is None or seat is not RADIO:
        return {}
    return {name: value for name, value in there.report.settings.items() if name not in before}


def _wanted(seat: DeviceSeat, known: Mapping[str, str]) -> list[str]:
    """Return what a port needs beside itself, and what that needs."""
    wanted = [*radio(_said(seat, known)).needs] if seat is RADIO else []
    names = [seat.port, *wanted]
    while names:
        name = NEEDS.get(names.pop(0), "")
        if name and name not in (*wanted, seat.port):
            wanted.append(name)
            names.append(name)
    return wanted


def meaning(name: str, settings: Mapping[str, str]) -> str:
    """Return what a setting is, for people."""
    text = "".join(f"{each}={value}\n" for each, value in settings.items())
    return next((key.means for key in keys_of(text) if key.name == name), "")


def covered(name: str, value: str) -> str:
    """Return the value as people may see it."""
    return "…" if name.endswith(SECRETS) else value


def after(text: str, settings: Mapping[str, str], path: Path) -> str:
    """Return the settings file with these in it, all other lines as they were. Raises
    InvalidSettings where it would be none that the agent takes."""
    changed = with_pairs(text, settings)
    if dict(pairs_in(changed)) != {**dict(pairs_in(text)), **settings}:
        raise InvalidSettings(path, ["it ends in a line that goes on: correct that first"])
    parse(changed, path)
    return changed
