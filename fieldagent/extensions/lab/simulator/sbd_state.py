"""State of a simulated Iridium 9602, and its planned failures. Only data."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field

from fieldagent.system.lazy_dataclass import dataclass


@dataclass(slots=True)
class VolatileState:
    """State that a reset changes: line settings, and the two buffers with their flags."""

    echo: bool = True
    verbose: bool = True
    quiet: bool = False
    flow_control: bool = True
    ring_indications: bool = True
    registration: bool = False
    session_timeout: int = 0
    indications: bool = False
    mo_buffer: bytes = b""
    mt_buffer: bytes = b""
    mo_flag: bool = False
    mt_flag: bool = False


@dataclass(slots=True)
class ModemState:
    imei: str
    clock: Callable[[], float] | None = None
    """Clock of the network in Unix time. None if the network has not sent the time yet."""
    momsn: int = 0
    mtmsn: int = 0
    ring_flag: bool = False
    signal: int = 4
    service: bool = True
    stored: VolatileState = field(default_factory=VolatileState)
    """Profile that a reset restores (&W, &Y)."""
    volatile: VolatileState = field(default_factory=VolatileState)


@dataclass(frozen=True, slots=True)
class PlannedStatus:
    """Planned end of a coming session."""

    mo_status: int
    delivered: bool
    """True if the gateway gets the message, whatever the modem reports."""
    counted: bool
    """True if the modem counts the session as completed."""


@dataclass(slots=True)
class ModemFaults:
    """Planned failures. A number shows how often the failure still happens."""

    statuses: deque[PlannedStatus] = field(default_factory=deque)
    """Ends of the coming sessions. After them, coverage decides."""
    lose_replies: int = 0
    """Number of sessions whose result is lost on the line."""
    wrong_sums: int = 0
    """Number of messages that are read with a wrong checksum."""
    swallow: int = 0
    """Number of payloads that lose a byte on the line."""
    reset_before_session: int = 0
    """Number of sessions that begin with a reset. The reset empties the buffer."""
    stuck_mail: int | None = None
    """MO status with which each session ends, together with an error of the mailbox check. A
    message then waits at the gateway but cannot be fetched."""
    deaf: bool = False
    """True if the modem hangs and answers nothing."""
    odd_spacing: bool = False
    stubborn_echo: bool = False
    clears_what_it_sent: bool = False
    traffic: int = 0
    """Seconds until the network accepts a session, as the modem reports them (+SBDLOE)."""
    unknown_commands: frozenset[str] = frozenset()
    """Optional commands that older firmware answers with ERROR, such as `+CIER`."""
