"""Keeps one IP link to the hub for as long as the agent runs.

Only the hub's acknowledgements show that the link works, never the state of a socket or interface.
Messages that were in flight when a link ended are sent first over the next link. The hub recognises
messages that it already has, because their bytes are identical.
"""

from __future__ import annotations

import logging
import random as randomness
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import field
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.connecting import Unreachable, open_stream
from fieldagent.agent.channels.contract import (
    IP_MESSAGE_LIMITS,
    ChannelLink,
    IpTurn,
    LinkState,
    Outbox,
    Reception,
    Transmission,
)
from fieldagent.agent.channels.flight_recorder import FlightRecorder
from fieldagent.agent.channels.hub_connection import REVOKED_WORDS, HubAddress, open_web_socket
from fieldagent.agent.channels.kit_notes import KitNotes
from fieldagent.http.headers import parse_date
from fieldagent.http.link_session import LinkEnd, LinkSession, LinkSocket
from fieldagent.http.web_socket import WebSocketClosed
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import trace
from fieldagent.wire.keepalive import Keepalive
from fieldagent.wire.link import BODY_BYTES, Close
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)


class RecordedSocket:
    """Records the IP link's messages in the flight recorder. Implements
    `http.link_session.LinkSocket` on top of another socket.
    """

    def __init__(self, socket: LinkSocket, recorder: FlightRecorder, address: str) -> None:
        self._socket = socket
        self._recorder = recorder
        recorder.kind = trace.LINK
        recorder.record_event(f"connected to {address}")

    async def receive(self) -> bytes:
        """Return the next message. Raises WebSocketClosed."""
        try:
            message = await self._socket.receive()
        except WebSocketClosed as closed:
            self._recorder.record_event(f"closed by the hub: {closed.code} {closed.reason}")
            raise
        self._recorder.record_received(message)
        return message

    async def send(self, message: bytes) -> None:
        """Send one message. Raises WebSocketClosed."""
        self._recorder.record_sent(message)
        await self._socket.send(message)

    async def close(self, code: int, reason: str) -> None:
        """Close the WebSocket with `code` and `reason`, and wait until the peer closes it too."""
        self._recorder.record_event(f"closed by the kit: {code} {reason}")
        await self._socket.close(code, reason)


ATTEMPT_TIMEOUT_S = 60.0
"""Longest time in seconds from the DNS lookup to the hub's response."""
PAUSE_FIRST, PAUSE_MAX = 4.0, 60.0
"""Longest pause in seconds between two attempts: the first value, which doubles, and the highest
value. The pause itself is random, so that a thousand agents do not return to a hub at the same
time."""
PAUSE_SHARE_RANGE = (0.05, 1.0)
"""Range of the random pause, as shares of the longest pause."""
ORDERLY_PAUSE_MAX_S = 4.0
"""Longest pause in seconds after the hub closed the link with a regular code. The hub does so if
another process takes over, or if the database is unavailable for a moment."""
SHORT_PAUSES_MAX = 5
"""Maximum number of consecutive attempts with pauses of ORDERLY_PAUSE_MAX_S. A hub that closes
every link has a fault."""
URGENT_PAUSE_S = 3.0
"""Seconds after which an SOS is tried again, even if the pause is longer."""

_REGULAR_CLOSES = {Close.GOING_AWAY, Close.TRY_AGAIN}
_FAULTS = {
    Close.REPLACED: "another agent uses this token: give each kit its own",
    Close.NO_COMMON_VERSION: "the hub and this agent are too far apart: update the older one",
    Close.POLICY: "the hub ended the link for good: is the device disabled, its token revoked?",
    Close.REVOKED: REVOKED_WORDS,
}


@dataclass(slots=True)
class _OutboxPost:
    """Adapts the outbox to the interface that a link session needs."""

    outbox: Outbox
    reception: Reception
    notes: KitNotes
    _to_send_again: deque[Transmission] = field(default_factory=deque)
    """Transmissions that were not acknowledged over the last link. SOS transmissions come first."""

    async def accept_hello(self, journal_number: int) -> None:
        self.notes.begin()

    async def wait_for_next(self, *, urgent: bool) -> Transmission:
        if self._to_send_again and (
            self._to_send_again[0].urgent or not (urgent or await self._is_urgent_waiting())
        ):
            return self._to_send_again.popleft()
        while True:
            await self.outbox.wait_until_ready(urgent=urgent)
            await self.outbox.fix_dates()
            transmission = self.outbox.load(BODY_BYTES)
            if transmission is not None:
                return transmission
            await trio.sleep(1)

    async def _is_urgent_waiting(self) -> bool:
        with trio.CancelScope(deadline=-inf) as at_once:
            await self.outbox.wait_until_ready(urgent=True)
        return not at_once.cancelled_caught

    async def mark_stored(self, item: Transmission) -> None:
        await self.outbox.settle(item, Outcome.SENT)

    async def return_unsent(self, items: list[Transmission], reason: str) -> None:
        waiting = sorted([*items, *self._to_send_again], key=lambda item: not item.urgent)
        self._to_send_again.clear()
        self._to_send_again.extend(waiting)

    async def store_body(self, body: bytes) -> None:
        await self.reception.receive(body)

    async def wait_for_next_note(self) -> bytes:
        return await self.notes.wait_for_next()

    async def process_note(self, body: bytes) -> None:
        await self.notes.process_note(body)


async def forbid_healing_since(dead_since: float | None) -> bool:
    """Take no recovery step, and return False."""
    return False


async def run(
    hub: HubAddress,
    outbox: Outbox,
    reception: Reception,
    link: ChannelLink,
    notes: KitNotes,
    *,
    random: randomness.Random,
    ping: float | None = None,
    heal: Callable[[float | None], Awaitable[bool]] = forbid_healing_since,
    journal_number: int = 0,
    progress: Callable[[], None] = lambda: None,
    turn: IpTurn | None = None,
) -> NoReturn:
    """Keep a link to the hub, forever. `ping` is the keepalive interval in seconds, 0 for none. If
    it is None, the longest interval that the network path allows is measured. `journal_number` is
    the number of our journal. `progress` is called at least every two minutes. `turn` shows another
    bearer whether there is a link. `heal` is called with the time when the hub was last reached,
    and takes the recovery step that is due.
    """
    turn = IpTurn() if turn is None else turn
    # Drop the transmissions of a run that failed: the outbox has already put them back into the
    # queue.
    turn.unacknowledged.clear()
    post = _OutboxPost(outbox, reception, notes, turn.unacknowledged)
    await CellularDriver(
        hub, post, link, random, Keepalive(ping), heal, journal_number, progress, turn
    ).work()


@dataclass(slots=True)
class LinkPace:
    """Computes the longest pause before the next attempt."""

    attempts: int = 0
    """Number of consecutive attempts that did not lead to a stable link."""
    requested_wait: float | None = None
    """Seconds after which the hub asks for the next attempt. None if the hub does not ask."""

    def count_try(self) -> float:
        """Count an attempt, and return the longest pause in seconds before the next attempt."""
        self.attempts += 1
        if self.requested_wait is not None:
            return min(PAUSE_MAX, max(1.0, self.requested_wait))
        return float(min(PAUSE_MAX, PAUSE_FIRST * 2 ** min(self.attempts - 1, 10)))

    def is_back_soon(self, link_end: LinkEnd) -> bool:
        """Return True if the hub closed the link with a regular code, so that the pause should be
        at most `ORDERLY_PAUSE_MAX_S`.
        """
        return (
            link_end.by_peer
            and link_end.code in _REGULAR_CLOSES
            and self.attempts < SHORT_PAUSES_MAX
        )


@dataclass(slots=True)
class CellularDriver:
    hub: HubAddress
    post: _OutboxPost
    link: ChannelLink
    random: randomness.Random
    keepalive: Keepalive
    heal: Callable[[float | None], Awaitable[bool]]
    journal_number: int
    progress: Callable[[], None]
    turn: IpTurn
    pace: LinkPace = field(default_factory=LinkPace)
    dead_since: float = field(default_factory=trio.current_time)
    """Time on trio's clock when the hub was last reached, or when the agent started."""

    def __post_init__(self) -> None:
        self.link.facts["hub"] = self.hub.address

    async def work(self) -> NoReturn:
        """Connect, serve the link until it ends, pause, and start again. A failure to connect is
        shown on the channel's link, but not raised.
        """
        while True:
            self.progress()
            self.pace.requested_wait = None
            try:
                link_end = await self._run_link()
                self._judge_attempt(link_end)
                if link_end.code not in _REGULAR_CLOSES:
                    await self.link.recorder.record_fault(self.link.reason)
            except Unreachable as trouble:
                self.keepalive.record_missed()
                self._show(trouble.state, trouble.reason)
                self._store_requested_wait(trouble.again)
            self.progress()
            await self._wait_for_next_attempt()
            await self._recover()

    async def _run_link(self) -> LinkEnd:
        """Connect to the hub, serve the link until it ends, and return the reason of its end.
        Raises Unreachable if the attempt to connect fails.
        """
        opening = trio.CancelScope(deadline=trio.current_time() + ATTEMPT_TIMEOUT_S)
        with opening:
            stream = await open_stream(self.hub.server)
            try:
                socket = await open_web_socket(self.hub, stream)
                opening.deadline = inf
                if (unix := parse_date(socket.date)) is not None:
                    self.link.report_time(unix)
                return await self._exchange(
                    LinkSession(
                        RecordedSocket(socket, self.link.recorder, self.hub.address),
                        self.post,
                        keepalive=self.keepalive,
                        journal_number=self.journal_number,
                        on_open=self._open_link,
                        progress=self._update_link_reason,
                    )
                )
            finally:
                await trio.aclose_forcefully(stream)
        text = f"{self.hub.server.host} does not answer within {ATTEMPT_TIMEOUT_S:g} s"
        raise Unreachable(LinkState.NO_SERVICE, text)

    async def _exchange(self, exchange: LinkSession[Transmission]) -> LinkEnd:
        started_at = trio.current_time()
        try:
            return await exchange.run()
        finally:
            self.turn.record_link_state(is_linked=False)
            self.dead_since = trio.current_time()
            if exchange.acknowledged or self.dead_since - started_at > PAUSE_MAX:
                self.pace.attempts = 0

    def _open_link(self) -> None:
        self.post.outbox.set_limits(IP_MESSAGE_LIMITS)
        self.turn.record_link_state(is_linked=True)
        before = self.keepalive.cut
        self.keepalive.record_reached(trio.current_time())
        if self.keepalive.cut not in (None, before):
            log.warning("%s", self.keepalive.describe_path())
        self._show(LinkState.READY, self.keepalive.describe_path())

    def _update_link_reason(self) -> None:
        self.progress()
        if self.link.state is LinkState.READY:
            self.link.reason = self.keepalive.describe_path()

    def _judge_attempt(self, link_end: LinkEnd) -> None:
        if self.pace.is_back_soon(link_end):
            self._store_requested_wait(ORDERLY_PAUSE_MAX_S)
        fault = _FAULTS.get(Close(link_end.code)) if link_end.code in set(Close) else None
        if fault is not None:
            self._show(LinkState.FAULT, fault)
        else:
            reason = link_end.reason or f"the hub ended the link ({link_end.code})"
            self._show(LinkState.NO_SERVICE, f"the link ended: {reason}")

    def _store_requested_wait(self, retry_s: float | None) -> None:
        """Record after how many seconds the hub wants the next attempt. If `retry_s` is not None,
        the hub has responded, so the modem works and no recovery step is due.
        """
        self.pace.requested_wait = retry_s
        if retry_s is not None:
            self.dead_since = trio.current_time()

    def _show(self, state: LinkState, reason: str) -> None:
        if (self.link.state, self.link.reason) == (state, reason):
            return
        self.link.state, self.link.reason = state, reason
        if state is LinkState.READY:
            log.info("linked to the hub at %s", self.hub.address)
        else:
            log.warning("no link to the hub: %s; trying again", reason)

    async def _wait_for_next_attempt(self) -> None:
        """Wait until the next attempt. An SOS ends the pause after URGENT_PAUSE_S."""
        longest = self.pace.count_try()
        if self.link.state is LinkState.FAULT:
            longest = PAUSE_MAX
        pause = self.random.uniform(*PAUSE_SHARE_RANGE) * longest
        self.link.next_look = trio.current_time() + pause
        self.link.next_urgent = trio.current_time() + min(pause, URGENT_PAUSE_S)
        with waits.move_on_after(pause):
            await self.post.outbox.wait_until_ready(urgent=True)
            await trio.sleep(URGENT_PAUSE_S)

    async def _recover(self) -> None:
        """Take the recovery step that is due. A link in the state FAULT needs a fix at the hub or
        by the user, so the modem is not reset.
        """
        self.progress()
        await self.heal(None if self.link.state is LinkState.FAULT else self.dead_since)
