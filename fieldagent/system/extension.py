"""The description of an extension, which contains everything that one folder of
`fieldagent/extensions/` adds, and the import of objects that extensions and settings name.

A place is `package.module:NAME`. A place is imported only when something uses it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeVar

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.properties import WrongProperty


@dataclass(frozen=True, slots=True)
class Extension:
    """Description of one extension. Each mapping contains places of objects. Its keys are the names
    that settings or commands use.
    """

    title: str
    """A noun phrase for people, such as "MQTT and Home Assistant"."""
    kit_parts: Mapping[str, str] = field(default_factory=dict)
    """`agent.kit_part.KitPart` by member of `GET /api/status`."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """`agent.kit_part.KitPart` with a modem or a radio, by the setting of its port."""
    satellite_modems: Mapping[str, str] = field(default_factory=dict)
    """`agent.satellites.contract.SatelliteModem` by the value of the setting `satellite-modem`."""
    traces: Mapping[str, str] = field(default_factory=dict)
    """Functions that remove the payloads from a trace of a serial line, by the line's protocol, as
    `wire.trace.mask` does."""
    salvage: Mapping[str, str] = field(default_factory=dict)
    """`agent.journal.repair.Salvage` functions by name, which save the content of a damaged
    journal. The agent uses the first one."""
    modem_kinds: Mapping[str, str] = field(default_factory=dict)
    """`wire.modem_kind.ModemKind` by the name that operators report to the hub."""
    operators: Mapping[str, str] = field(default_factory=dict)
    """`hub.operator.contract.OperatorKind` by name."""
    contact_kinds: Mapping[str, str] = field(default_factory=dict)
    """`hub.contact.contract.ContactKind` by its name in the database."""
    hub_parts: Mapping[str, str] = field(default_factory=dict)
    """`hub.part.HubPart` by name."""
    hub_api: str = ""
    """Place of `http.openapi.Call`s that are added to the description of the hub's API."""
    bridges: Mapping[str, str] = field(default_factory=dict)
    """`hub.bridge.contract.BridgeKind` by name."""
    commands: Mapping[str, str] = field(default_factory=dict)
    """`cli.table.Command` rows of `fieldagent`, by the first word of the command."""
    hub_commands: Mapping[str, str] = field(default_factory=dict)
    """`cli.table.Command` rows of `fieldagent hub`, by the noun of the command."""


T = TypeVar("T")


def import_known_object(name: str, places: Mapping[str, str], kind: type[T]) -> T:
    """Import the object of this `kind` whose place is in `places` under `name`. If there is none,
    `name` is itself the place of a third-party object.

    Raises WrongProperty if there is no such object. The error's text follows the setting's name.
    """
    if name not in places and ":" not in name:
        raise WrongProperty(
            f"must be {', '.join(places)} or package.module:NAME of one of your own, not {name!r}"
        )
    return import_named_object(places.get(name, name), kind)


def import_own(place: str) -> Any:
    """Import the object at one of our own places, `package.module:NAME`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def import_named_object(place: str, kind: type[T]) -> T:
    """Import the object of this `kind` from a place. Raises WrongProperty if there is no such
    object. The error's text follows the setting's name.
    """
    module, colon, name = place.partition(":")
    if not colon:
        raise WrongProperty(f"must be package.module:NAME, not {place!r}")
    try:
        target = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]
        remedy = "; add the folder of this module to PYTHONPATH" if is_absent else ""
        raise WrongProperty(f"names {place}, which cannot be loaded: {error}{remedy}") from None
    if not isinstance(target, kind):
        qualified_name = f"{kind.__module__}.{kind.__qualname__}"
        raise WrongProperty(f"names {place}, which is not a {qualified_name}")
    return target
