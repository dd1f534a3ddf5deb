"""What a simulated Iridium 9602 holds, and what is to go wrong with it: data alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field

from fieldagent.system.lazy_dataclass import dataclass


@dataclass(slots=True)
class Volatile:
    """What a reset sets back: how the line is spoken, and the two buffers with their flags."""

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
    """The network's, in Unix time; without one it has not told the time yet."""
    momsn: int = 0
    mtmsn: int = 0
    ring_flag: bool = False
    signal: int = 4
    service: bool = True
    stored: Volatile = field(default_factory=Volatile)
    """The profile that a reset goes back to (&W, &Y)."""
    volatile: Volatile = field(default_factory=Volatile)


@dataclass(frozen=True, slots=True)
class NextStatus:
    """How a coming session shall end."""

    mo_status: int
    delivered: bool
    """Whether the gateway gets the message whatever the modem says."""
    counted: bool
    """Whether the modem counts the session as completed."""


@dataclass(slots=True)
class ModemFaults:
    """What is asked to go wrong; a number says how many times more."""

    statuses: deque[NextStatus] = field(default_factory=deque)
    """How the coming sessions end; after them coverage decides."""
    lose_replies: int = 0
    """Sessions whose result is lost on the line."""
    wrong_sums: int = 0
    """Messages that are read with a wrong checksum."""
    swallow: int = 0
    """Payloads that lose a byte on the line."""
    reset_before_session: int = 0
    """Sessions that begin with a reset, and so with an empty buffer."""
    stuck_mail: int | None = None
    """A message waits at the gateway and does not come: each session ends with this MO status, and
    an error while checking."""
    deaf: bool = False
    """It hangs: nothing is answered."""
    odd_spacing: bool = False
    stubborn_echo: bool = False
    clears_what_it_sent: bool = False
    traffic: int = 0
    """Seconds until the network takes a session, as the modem tells (+SBDLOE)."""
    unknown_commands: frozenset[str] = frozenset()
    """Optional commands that an older firmware answers with ERROR, such as `+CIER`."""
