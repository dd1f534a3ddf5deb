"""What a channel and the agent promise each other.

A channel driver knows its modem and nothing of Packages: it asks its `Outbox` for the bytes of one
transmission, makes them leave, and says how that went. The outbox knows the queue, the journal and
the on-air format, and nothing of modems. Every driver passes the same tests of this contract.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import field
from enum import Enum
from math import inf
from typing import Protocol

import trio

from fieldagent.agent.channels.air_time import AirTime
from fieldagent.agent.channels.flight_recorder import FlightRecorder
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.credit import Tariff
from fieldagent.wire.envelope import Unreadable
from fieldagent.wire.outcome import Outcome


class LinkState(Enum):
    """What a channel is doing, in the words that `fieldagent status` shows."""

    STARTING = "starting"
    ABSENT = "absent"
    """The port cannot be opened, or nothing answers there."""
    READY = "ready"
    NO_SERVICE = "no service"
    """The modem works and sees no network."""
    BUSY = "busy"
    """A session is under way."""
    FAULT = "fault"
    """The modem or the account refuses to work; `reason` says why and what to do."""


SIGNALS_KEPT, SIGNAL_EVERY = 240, 60.0
"""How many changes of the signal are kept, and seconds between two: four hours at the least."""


@dataclass(slots=True)
class ChannelLink:
    """A channel's present condition: written by its driver alone, read by the local API."""

    _state: LinkState = LinkState.STARTING
    away_since: float | None = None
    """Since when the channel is ABSENT, by trio's clock; None while it is not."""
    reason: str = ""
    signal: int | None = None
    """Bars, 0 to 5; None while unknown."""
    last_success: float | None = None
    """When the last transmission was SENT, lived time."""
    next_look: float = -inf
    """When the driver tries again to reach the network, where it rests till then; trio's clock."""
    next_urgent: float = -inf
    """The same for an SOS, which rests for a shorter time."""
    tell_time: Callable[[float], None] = lambda unix: None
    """What the driver calls with the Unix time that its peer tells."""
    changed: Callable[[], None] = lambda: None
    """What is called when state or signal are others than before."""
    facts: dict[str, str | int] = field(default_factory=dict)
    """What else the modem told of itself, such as its IMEI and firmware."""
    signals: deque[tuple[float, int | None]] = field(
        default_factory=lambda: deque(maxlen=SIGNALS_KEPT)
    )
    """Each stands until the next; by trio's clock."""

    recorder: FlightRecorder = field(default_factory=FlightRecorder)
    """What went over its serial line."""
    air_time: AirTime = field(default_factory=AirTime)
    """Of a radio that counts it; it outlives the radio's line."""

    heal_now: bool = False
    """Somebody asks for the next step of healing, although it is not due."""

    _asked: trio.Event = field(default_factory=trio.Event)

    @property
    def state(self) -> LinkState:
        """Return what the channel is doing."""
        return self._state

    @state.setter
    def state(self, state: LinkState) -> None:
        """Set the state, call `changed` where it is another, and note since when the modem is
        absent (trio's clock)."""
        if state is not self._state:
            self.changed()
        self._state = state
        if state is not LinkState.ABSENT:
            self.away_since = None
        elif self.away_since is None:
            self.away_since = trio.current_time()

    def ask(self) -> None:
        """Ask for another try now, as a person does who sees the sky."""
        self._asked.set()
        self._asked = trio.Event()

    async def asked(self) -> None:
        """Wait until somebody does."""
        await self._asked.wait()

    def note_signal(self, bars: int | None) -> None:
        """Note the signal, in bars: of several within `SIGNAL_EVERY` the last is kept."""
        if bars != self.signal:
            self.changed()
        self.signal = bars
        now = trio.current_time()
        if self.signals and self.signals[-1][1] == bars:
            return
        if self.signals and now - self.signals[-1][0] < SIGNAL_EVERY:
            self.signals[-1] = (self.signals[-1][0], bars)
        else:
            self.signals.append((now, bars))


@dataclass(frozen=True, slots=True)
class Transmission:
    """The bytes of one MO message, with what the driver must know to schedule it."""

    number: int
    """Names it between driver and outbox; never leaves the agent."""
    body: bytes
    urgent: bool
    """It carries an SOS."""
    tries: int
    """How often the foremost Package in it was tried on this channel since something of it left."""
    answerable: bool = True
    """It holds Packages, not only words about what the peer sent."""
    more: bool = False
    """Another fragment of the same may follow at once, before this one is settled."""
    part: bool = False
    """It holds a fragment."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A transmission that was begun and never settled: power failed, or a reply was lost."""

    transmission: Transmission
    modem: str
    """Identity of the modem it was given to (the IMEI)."""
    at_modem: int
    """What names the transmission at the modem, as its driver has it: of SBD its MOMSN; of IMT
    topic and message id."""


class Carriage(NamedTuple):
    """What a modem takes in one message."""

    size: int
    """Most bytes."""
    fill: int
    """Bytes up to which a message is filled with what waits: an SOS in it goes no slower."""
    tariff: Tariff


class Outbox(Protocol):
    """One channel's side of the queue. Whatever is awaited here returns once it is on disk."""

    def fit(self, carriage: Carriage) -> None:
        """Pack for this modem from now on. Told once the modem is known, before `load`."""

    async def ready(self, *, urgent: bool = False) -> None:
        """Wait until a Package (with `urgent`, an SOS) is due and the budget lets it go."""

    async def fix_dates(self) -> None:
        """Fix the dates of what leaves next, which were open until here where the clock is not
        trusted; called just before `load`."""

    def load(self, capacity: int) -> Transmission | None:
        """Return what is due, packed into at most `capacity` bytes; None when nothing is.

        Its Packages are in flight from here until `settle`.
        """

    def unsettled(self) -> Intent | None:
        """Return the intent that no `settle` has ended yet, if there is one."""

    async def intend(self, transmission: Transmission, *, modem: str, at_modem: int) -> None:
        """Record that the modem is about to send this, or sends it by now, under this number."""

    async def note_copy(self, transmission: Transmission) -> None:
        """Write down that it goes a second time, as nobody knows whether it has left."""

    async def settle(
        self,
        transmission: Transmission,
        outcome: Outcome,
        *,
        reason: str = "",
        retry_after: float = 0.0,
    ) -> None:
        """Say how it ended. DOUBTFUL keeps the intent; the others end it.

        `reason` is for people (`no signal`), `retry_after` is in seconds and counts for NOT_SENT.
        """

    async def release(
        self, transmission: Transmission, *, reason: str, retry_after: float = 0.0
    ) -> None:
        """Give up waiting for word of one that may have left: what is in it waits again, for this
        bearer or another of the channel, and whoever has it already drops the second."""

    def allowance(self, *, urgent: bool = False, mailbox: bool = False) -> int | None:
        """Return what is left of today's budget, in the tariff's units, None without one; `urgent`
        may use the reserve, and a check of the `mailbox` nothing that is kept for what the kit
        itself has to say, unless it is for the answer to an SOS."""

    def held_back(self) -> str:
        """Return why nothing leaves although something waits, for people; empty where nothing
        does."""

    async def spend(self, credit: int) -> None:
        """Book a cost that belongs to no transmission, such as an empty mailbox check."""


class Reception(Protocol):
    """One channel's way in."""

    async def receive(
        self, body: bytes, *, damage: str = "", unreadable: Unreadable | None = None
    ) -> object:
        """Take in one message of any content, with what it cost; what cannot be used of it is kept
        and reported, never raised. Returns once it is on disk.

        With `damage`, which is for people, the driver does not trust the bytes: they are not read.
        The peer is told of `unreadable`, and sends it again.
        """
