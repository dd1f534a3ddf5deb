"""The description of an extension, which contains everything that one folder of
`fieldagent/extensions/` adds.

A place is `package.module:NAME`. A place is imported only when something uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from fieldagent.system.lazy_dataclass import dataclass


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
