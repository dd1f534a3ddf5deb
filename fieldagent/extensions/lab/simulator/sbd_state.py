"""State of a simulated Iridium 9602, and its planned failures. The module contains only data."""

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
    """Result that the simulated modem will report for a future session."""

    mo_status: int
    delivered: bool
    """True if the gateway receives the message, whatever the modem reports."""
    counted: bool
    """True if the modem counts the session as completed."""


@dataclass(slots=True)
class ModemFaults:
    """Planned failures. A number is the number of times that the failure will still happen."""

    statuses: deque[PlannedStatus] = field(default_factory=deque)
    """Results of the next sessions. After these sessions, the result depends on the coverage."""
    lose_replies: int = 0
    """Number of sessions whose result is lost on the line."""
    wrong_sums: int = 0
    """Number of messages that are read with a wrong checksum."""
    swallow: int = 0
    """Number of payloads that lose a byte on the serial line."""
    reset_before_session: int = 0
    """Number of sessions that begin with a reset, which empties the buffer."""
    stuck_mail: int | None = None
    """MO status with which each session ends, together with an error in the mailbox check. A
    message then waits at the gateway and cannot be fetched."""
    deaf: bool = False
    """True if the modem hangs and does not answer."""
    odd_spacing: bool = False
    stubborn_echo: bool = False
    clears_what_it_sent: bool = False
    traffic: int = 0
    """Seconds until the network accepts a session, which the modem reports (+SBDLOE)."""
    unknown_commands: frozenset[str] = frozenset()
    """Optional commands that older firmware answers with ERROR, for example `+CIER`."""
