"""The contract of a satellite modem, so that the rest of the agent does not depend on the kind of
modem.

A modem is a module or folder with a `SatelliteModem`, which `registry.MODEMS` or an extension
lists. Every modem serves the channel Satellite, and its driver follows `channels/contract.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any

from fieldagent.agent.channels.contract import ChannelLink, Outbox, Reception
from fieldagent.agent.channels.line_speed import Probe
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.system.finding import Finding
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.properties import Key


class SatelliteSeat(NamedTuple):
    """Port of a modem, and the objects that its driver needs."""

    port: str
    baud: int | None
    """Baud rate. None for the default of the modem's kind."""
    mailbox_check: float | None
    """Seconds after which the mailbox is checked even without a ring alert. None means never."""
    registers: bool
    """True if the modem registers with the network by itself after it was moved."""
    own_settings: Mapping[str, Any]
    """Settings of this kind of modem, by name. The values are in the form that their `Key`
    returns."""
    outbox: Outbox
    reception: Reception
    link: ChannelLink
    heal: Callable[[], Awaitable[bool]]
    """Takes the recovery step that is due for a silent modem. It is called while the modem's port
    is closed."""
    progress: Callable[[], None]
    """Called at least every 90 seconds."""


@dataclass(frozen=True, slots=True)
class SatelliteModem:
    """One kind of satellite modem: its settings, its driver, and how a port is checked for it."""

    name: str
    """Name in `satellite-modem`."""
    description: str
    """Text for people that names the supported modems."""
    driver: Callable[[SatelliteSeat], Callable[[], Awaitable[None]]]
    """Returns the task that serves the modem forever, even while the modem is absent, unplugged or
    without an account."""
    check: Callable[[str, int | None, Mapping[str, Any]], list[Finding]]
    """Queries the modem at this port and baud rate, with its own settings, for `fieldagent check`.
    The check sends no message and costs nothing."""
    keys: tuple[Key, ...] = ()
    """Settings of this kind; each name begins with the modem's name."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Meanings of the modem's additional members in `GET /api/status`, by name."""
    probe: Callable[[], Probe] | None = None
    """Returns the query that shows whether this kind is at a port. None if `auto` must not find
    this kind."""
    recognition: Callable[[], Recognition] | None = None
    """Returns the Recognition of this kind. None if this kind cannot be recognised at a port."""
