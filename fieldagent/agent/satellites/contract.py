"""What a satellite modem says of itself, so that nothing else in the agent has to know it.

A modem is one module or folder with a `SatelliteModem`, named in `known.MODEMS`. Whatever it
speaks, it serves the channel Satellite: its driver keeps what `channels/contract.py` asks of each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

from fieldagent.agent.channels.contract import ChannelLink, Outbox, Reception
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.system.finding import Finding
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple


class SatelliteSeat(NamedTuple):
    """Where a modem is, and what its driver works with."""

    port: str
    baud: int | None
    """None: that of its kind."""
    mailbox_check: float | None
    """Seconds after which the mailbox is asked without a ring; None for never."""
    registers: bool
    """The modem registers by itself wherever it was carried."""
    topic: str
    """Of IMT: by which topic messages go."""
    minimum_bytes: int
    """Of IMT: bytes that are billed for each message at least."""
    outbox: Outbox
    reception: Reception
    link: ChannelLink
    heal: Callable[[], Awaitable[bool]]
    """Takes the step that is due to bring a silent modem back; called while its port is closed."""
    progress: Callable[[], None]
    """Called at least once a minute and a half."""


@dataclass(frozen=True, slots=True)
class SatelliteModem:
    """Describes one kind of satellite modem."""

    name: str
    """What `satellite-modem` calls it."""
    means: str
    """For people: which modems it is for."""
    driver: Callable[[SatelliteSeat], Callable[[], Awaitable[None]]]
    """Makes what serves the modem until it is cancelled: absent, unplugged, without an account."""
    check: Callable[[str, int | None], list[Finding]]
    """What `fieldagent check` asks the modem at this port and speed; nothing is sent, and nothing
    costs."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What it tells in `GET /api/status` beside what each channel does, by name: what it means."""
    recognition: Callable[[], Recognition] | None = None
    """Loads how it is recognised at a port; None: it tells nobody which it is."""
