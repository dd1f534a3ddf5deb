"""The contract between a channel driver and the agent.

A driver knows its modem, but not Packages. It takes the bytes of one transmission from its
`Outbox`, sends them, and reports the result. The outbox knows the queue, the journal and the on-air
format, but not modems. All drivers pass the same tests of this contract.
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
from fieldagent.wire.credit import FREE_TARIFF, Tariff
from fieldagent.wire.envelope import Unreadable
from fieldagent.wire.link import BODY_BYTES
from fieldagent.wire.outcome import Outcome


class LinkState(Enum):
    """Activity of a channel, as `fieldagent status` shows it."""

    STARTING = "starting"
    ABSENT = "absent"
    """The port cannot be opened, or no device answers at the port."""
    READY = "ready"
    NO_SERVICE = "no service"
    """The modem works but has no network."""
    BUSY = "busy"
    """A session is running."""
    FAULT = "fault"
    """The modem or the operator's account refuses to work. `reason` contains the cause and the
    remedy."""


SIGNALS_KEPT, SIGNAL_EVERY = 240, 60.0
"""Number of signal changes that are kept, and the minimum seconds between two of them. Together the
changes cover at least four hours."""


@dataclass(slots=True)
class ChannelLink:
    """Current condition of a channel. Only the channel's driver changes it, and the local API reads
    it.
    """

    _state: LinkState = LinkState.STARTING
    away_since: float | None = None
    """Time on trio's clock when the channel became ABSENT. None if it is not ABSENT."""
    reason: str = ""
    signal: int | None = None
    """Signal in bars, 0 to 5. None if unknown."""
    last_success: float | None = None
    """Time when the last transmission was SENT, in elapsed time."""
    next_look: float = -inf
    """Time on trio's clock when the driver next tries to reach the network, if the driver
    pauses."""
    next_urgent: float = -inf
    """Time on trio's clock of the next attempt for an SOS. It is not later than `next_look`."""
    report_time: Callable[[float], None] = lambda unix: None
    """The driver calls this function with the Unix time that its peer reports."""
    changed: Callable[[], None] = lambda: None
    """This function is called when the state or the signal has changed."""
    facts: dict[str, str | int] = field(default_factory=dict)
    """Other facts about the modem, such as its IMEI and firmware."""
    signals: deque[tuple[float, int | None]] = field(
        default_factory=lambda: deque(maxlen=SIGNALS_KEPT)
    )
    """Pairs of time (trio's clock) and bars. Each pair is valid until the time of the next pair."""

    recorder: FlightRecorder = field(default_factory=FlightRecorder)
    """Record of the traffic on the serial line."""
    air_time: AirTime = field(default_factory=AirTime)
    """Counter of a radio's air-time. It continues when the radio's port is opened again."""

    heal_now: bool = False
    """True if a person has requested the next recovery step before it is due."""

    _requested: trio.Event = field(default_factory=trio.Event)

    @property
    def state(self) -> LinkState:
        return self._state

    @state.setter
    def state(self, state: LinkState) -> None:
        """Set the state, and call `changed` if the state is new. Record when the modem becomes
        absent.
        """
        if state is not self._state:
            self.changed()
        self._state = state
        if state is not LinkState.ABSENT:
            self.away_since = None
        elif self.away_since is None:
            self.away_since = trio.current_time()

    def request_attempt(self) -> None:
        """Request an attempt now, for example because the antenna now has a view of the sky."""
        self._requested.set()
        self._requested = trio.Event()

    async def wait_until_requested(self) -> None:
        """Wait until a person requests an attempt."""
        await self._requested.wait()

    def record_signal(self, bars: int | None) -> None:
        """Record the signal, in bars. If there are several changes within `SIGNAL_EVERY`, only the
        last one is kept.
        """
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
    """Bytes of one outgoing message, and the facts that the driver needs to schedule it."""

    number: int
    """Number that identifies the transmission between driver and outbox. The number never leaves
    the agent."""
    body: bytes
    urgent: bool
    """True if the transmission contains an SOS."""
    attempts: int
    """Number of attempts for the first Package on this channel since a part of it was last sent."""
    answerable: bool = True
    """True if the transmission contains Packages; False if it contains only receipts and other
    replies to the peer."""
    more: bool = False
    """True if another fragment of the same Package may follow at once, before this transmission is
    settled."""
    part: bool = False
    """True if the transmission contains a fragment."""
    is_sos_of_others: bool = False
    """True if the kit's own people did not raise the SOS in the transmission."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A transmission that was begun but is not settled, for example because power failed or a reply
    was lost.
    """

    transmission: Transmission
    modem: str
    """Identity (the IMEI) of the modem to which the driver passed the transmission."""
    at_modem: int
    """Number that identifies the transmission at the modem, such as the MOMSN of SBD."""


class MessageLimits(NamedTuple):
    """Limits and tariff of a modem's messages."""

    size: int
    """Largest message, in bytes."""
    fill: int
    """Size in bytes up to which a message is filled with waiting entries. The size is small, so
    that the message does not delay an SOS in it."""
    tariff: Tariff


class Outbox(Protocol):
    """Interface of one channel's queue for the driver. Asynchronous methods that change the queue
    return when the change is on disk.
    """

    def set_limits(self, message_limits: MessageLimits) -> None:
        """Use these limits from now on. The driver calls this method before `load`, as soon as it
        knows the modem.
        """

    async def wait_until_ready(self, *, urgent: bool = False) -> None:
        """Wait until a Package is due and the budget allows it. If `urgent`, wait for an SOS."""

    async def fix_dates(self) -> None:
        """Fix the dates of the items that may leave next. The driver calls this method just before
        `load`, because dates from an untrusted clock may change until then.
        """

    def load(self, capacity: int) -> Transmission | None:
        """Return a transmission of at most `capacity` bytes with the entries that are due, or None
        if no entry is due.

        The Packages in the transmission are in flight until `settle`.
        """

    def get_unsettled(self) -> Intent | None:
        """Return the intent that is not settled yet, or None if there is none."""

    async def record_intent(self, transmission: Transmission, *, modem: str, at_modem: int) -> None:
        """Record that the modem is about to send this transmission under this number, or is already
        sending it.
        """

    async def book_doubtful_cost(self, transmission: Transmission) -> None:
        """Book the credits that a session may have cost. The gateway may have the session's
        message.
        """

    async def record_copy(self, transmission: Transmission) -> None:
        """Record that the transmission is sent a second time, because it is unknown whether the
        first copy left.
        """

    async def settle(
        self,
        transmission: Transmission,
        outcome: Outcome,
        *,
        reason: str = "",
        retry_after: float = 0.0,
    ) -> None:
        """Report the result of a transmission. If the outcome is DOUBTFUL, the intent is kept,
        otherwise deleted.

        `reason` is for people (`no signal`). `retry_after` is the wait in seconds for the outcome
        NOT_SENT.
        """

    async def release(
        self, transmission: Transmission, *, reason: str, retry_after: float = 0.0
    ) -> None:
        """Stop waiting for the result of a transmission that may have left. Its Packages wait
        again, for the same or another bearer of the channel. A receiver that already has the
        Packages drops the second copy.
        """

    def compute_allowance(self, *, urgent: bool = False, mailbox: bool = False) -> int | None:
        """Return the remaining budget of today in the tariff's units, or None if there is no
        budget. If `urgent`, the result includes the reserve. If `mailbox` (a mailbox check), the
        part that is kept for the kit's own messages is excluded, unless the kit waits for the
        answer to an SOS.
        """

    def describe_hold(self) -> str:
        """Return the reason, for people, why waiting Packages are held back, or '' if there is
        none.
        """

    async def spend(self, credit: int) -> None:
        """Book a cost in credits that belongs to no transmission, for example of an empty mailbox
        check.
        """


class Reception(Protocol):
    """Receiving side of a channel."""

    async def receive(
        self, body: bytes, *, damage: str = "", unreadable_message: Unreadable | None = None
    ) -> object:
        """Store one message of any content, and book its cost. Unusable parts are kept and
        reported, and no error is raised. Return when the message is on disk.

        If `damage` (a text for people) is not empty, the driver does not trust the bytes, so they
        are not decoded. `unreadable_message` is sent to the peer, which then sends the message
        again.
        """


IP_MESSAGE_LIMITS = MessageLimits(BODY_BYTES, 4_096, FREE_TARIFF)
"""Message limits of the IP link, whose messages are free."""


@dataclass(slots=True)
class IpTurn:
    """State of the IP link. The link's driver writes it, and the bearer that replaces the link
    reads it.
    """

    linked: bool = False
    since: float = field(default_factory=trio.current_time)
    """Time of the last change, on trio's clock."""
    unacknowledged: deque[Transmission] = field(default_factory=deque)
    """Transmissions that were not acknowledged over the last link, with an SOS first. The bearer
    that replaces the link returns them to the outbox."""
    _changed: trio.Event = field(default_factory=trio.Event)

    def record_link_state(self, *, is_linked: bool) -> None:
        if is_linked == self.linked:
            return
        self.linked, self.since = is_linked, trio.current_time()
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_change(self) -> None:
        """Wait until the link opens or closes."""
        await self._changed.wait()
