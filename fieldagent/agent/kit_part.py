"""The contract of a part that an extension adds to the agent.

If the settings file has a setting of any extension, the descriptions of all parts are imported. A
description names its functions by import path (`module:NAME`). These modules are imported only if
the settings turn the part on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

from fieldagent.agent.channels.recognition import Recognition
from fieldagent.extensions import list_places
from fieldagent.system.extension import import_named_object, import_own
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.properties import Key, WrongProperty

if TYPE_CHECKING:
    from fieldagent.agent.channels.healing import Healing

SECRET = "it is a secret, and readers of the hub's database could read it"
"""Reason why a remote command cannot change a setting that contains a secret."""
RUNS_COMMAND_REASON = "the kit runs the value as a command"
SWITCHES_POWER_REASON = "it switches pins and ports, and only the kit knows the devices on them"
"""Reason why a remote command cannot change a setting for the recovery of a modem."""


class DeviceKind(Protocol):
    """A kind of device with its own settings."""

    @property
    def name(self) -> str:
        """Name of the kind in the setting `KitPart.kind_key`."""

    @property
    def description(self) -> str:
        """Names of the supported devices, as a text for people."""

    @property
    def keys(self) -> Sequence[Key]:
        """Settings of this kind; each name begins with the kind's name."""

    @property
    def needs(self) -> Sequence[str]:
        """Names of the settings that this kind requires."""

    @property
    def facts(self) -> Mapping[str, str]:
        """Meanings of the device's additional members in `GET /api/status`, by name."""

    @property
    def recognition(self) -> Callable[[], Recognition] | None:
        """Function that returns the Recognition of this kind. None if this kind cannot be
        recognised at a port.
        """


@dataclass(frozen=True, slots=True)
class KitPart:
    """Description of one part: its settings, its service, and its texts for people."""

    name: str
    """Key of the part in `Settings.parts` and, if the part has a status, in `GET /api/status`."""
    title: str
    """Name of the part in the log and in notices."""
    keys: tuple[Key, ...]
    own: Callable[..., Any]
    """Function that makes the part's settings from the values of `keys`, in the order of `keys`."""
    is_on: Callable[[Any], bool]
    """Function that returns True if these settings turn the part on."""
    plan: str = ""
    """Import path of a function that makes a `part_service.PartPlan` from these settings and a
    `part_service.PartBase`. The function is imported only if the part is on."""
    bearer: str = ""
    """Import path of a function that makes a `bearer.Bearer` from these settings. The function is
    imported only if the part is on."""
    station: str = ""
    """Import path of a function that makes a `station.StationPlan` from a `station.StationBase`.
    The function is imported only if the part is on. The part then serves the channel Radio."""
    station_number: Callable[[Any], int | None] = lambda own: None
    """Function that returns the kit's number among other kits, or None if these settings contain
    none."""
    healing: Callable[[Any], Healing] | None = None
    """Function that makes the recovery settings of the part's device. It is called only if the part
    is on. None if the part has no such settings, or if its bearer has them."""
    devices: str = ""
    """Import path of a function that returns a `channels.recognition.Recognition` for each kind of
    device that can be at the part's port."""
    kind_key: str = ""
    """Name of the setting for the kind of device. Empty if there is only one kind."""
    kinds: Collection[str] = ()
    """Values of `kind_key` for our own kinds. Another value names a third-party program."""
    load_kind: Callable[[str], DeviceKind] | None = None
    """Function that loads the kind with this name. Raises WrongProperty. None if the kinds have no
    settings of their own. Otherwise `own` gets these settings by name, as its last argument."""
    faults: Callable[[Mapping[str, str]], list[str]] = lambda pairs: []
    """Function that returns the errors in a combination of settings, as texts for people. Its
    argument contains the values of the settings file by name."""
    takes_inbound: bool = False
    """True if the part gets inbound payloads, as a hook does."""
    check: str = ""
    """Import path of a function that returns findings for `fieldagent check`. The function gets
    three arguments: these settings, the part's member of `GET /api/status` (None if no agent runs),
    and the agent's state directory. The function of a bearer gets the member of Cellular, and that
    of a station the member of Radio. The function is called only if the part is on."""
    metrics: str = ""
    """Import path of a function that makes families of metrics from the part's member of `GET
    /api/status`."""
    examples: Mapping[str, str] = field(default_factory=dict)
    """Example values for a first settings file, for keys that have no default and are not
    secret."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """Keys that have an effect only if another key is set, and that other key."""
    not_from_afar: Mapping[str, str] = field(default_factory=dict)
    """Keys that a remote command cannot change, and the reason for each."""


def list_part_names() -> list[str]:
    """Return the name of each part with a member in `GET /api/status`. Imports no part."""
    return [*list_places("kit_parts")]


def get_device_parts() -> dict[str, KitPart]:
    """Return the parts that have a device, by the name of the device port's setting."""
    return {
        port: import_named_object(part_name, KitPart)
        for port, part_name in list_places("devices").items()
    }


def get_devices(part: KitPart) -> list[Recognition]:
    """Return a Recognition for each kind of device that can be at the part's port."""
    recognitions: list[Recognition] = import_own(part.devices)()
    return recognitions


def get_device_ports(settings: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the configured port of each device, by the name of the port's setting. The port is
    None if the part is off. Imports no part if `settings` is empty.
    """
    if not settings:
        return dict.fromkeys(list_places("devices"))
    return {port: settings[part.name].port for port, part in get_device_parts().items()}


def get_kit_part(name: str) -> KitPart:
    """Return the part `name`. Raises KeyError if no extension has a part with this name."""
    return get_kit_parts()[name]


def get_kit_parts() -> Mapping[str, KitPart]:
    """Return the parts of all extensions, by name."""
    part_places = dict.fromkeys(
        (*list_places("kit_parts").values(), *list_places("devices").values())
    )
    parts = [import_named_object(part_name, KitPart) for part_name in part_places]
    return {part.name: part for part in parts}


def find_enabled_parts(settings: Mapping[str, Any]) -> dict[str, KitPart]:
    """Return the parts that their settings turn on, by name. A part that is not in `settings` is
    off.
    """
    parts = {name: get_kit_part(name) for name in settings}
    return {name: part for name, part in parts.items() if part.is_on(settings[name])}


def find_station_part(settings: Mapping[str, Any]) -> KitPart | None:
    """Return the part that serves the channel Radio, or None if the settings turn none on."""
    return next((part for part in find_enabled_parts(settings).values() if part.station), None)


def find_station_number(settings: Mapping[str, Any]) -> int | None:
    """Return the kit's number among other kits, or None if the settings contain none."""
    numbers = (get_kit_part(name).station_number(own) for name, own in settings.items())
    return next((number for number in numbers if number is not None), None)


def list_kind_keys(part: KitPart, pairs: Mapping[str, str]) -> Sequence[Key]:
    """Return the settings of the kind that a settings file configures. If the kind cannot be
    loaded, return none: the error of `kind_key` then shows the reason.
    """
    if part.load_kind is None or part.kind_key not in pairs:
        return ()
    try:
        return part.load_kind(pairs[part.kind_key]).keys
    except WrongProperty:
        return ()


def list_part_keys() -> list[Key]:
    """Return the keys with which settings files can configure the parts of all extensions."""
    return [key for part in get_kit_parts().values() for key in part.keys]
