"""IP link after its WebSocket is open: the common part of both ends.

Each end sends the messages of its `MessagePost`, a few at a time, and ends the link if
acknowledgements are late. After the end of the link, unacknowledged messages are returned to the
post.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Generic, NoReturn, Protocol, TypeVar

import trio

from fieldagent.http.web_socket import WebSocketClosed
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.keepalive import Keepalive
from fieldagent.wire.link import (
    NOTES,
    Acknowledged,
    Body,
    Close,
    IpLink,
    LinkHello,
    LinkOpened,
    MessageReceived,
    NoCommonVersion,
    NoteReceived,
    get_size,
)

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 30.0
"""Seconds within which the peer must acknowledge a message, and within which its hello must
arrive."""
LINK_BYTES_PER_S_MIN = 1_000.0
"""Lowest speed of a link in bytes per second. The deadline for an acknowledgement includes the time
that the unacknowledged bytes take at this speed."""
CROWD_BYTES = 16_384
"""Number of unacknowledged bytes from which only urgent messages are sent. If messages are
unacknowledged, the last free place in the window is also kept for urgent messages."""
GOODBYE_TIMEOUT_S = 2.0
"""Seconds for the exchange of close frames at the end."""
CHECK_INTERVAL_S = 60.0


class Sendable(Protocol):
    @property
    def body(self) -> Body:
        """Return the content of the message. The peer's `store_body` gets each body."""


Outgoing = TypeVar("Outgoing", bound=Sendable)


class MessagePost(Protocol[Outgoing]):
    """Source and destination of an end's messages."""

    async def accept_hello(self, journal_number: int) -> None:
        """Process the peer's hello. `journal_number` is the number of the peer's journal, or 0 if
        unknown. This method is called before the first message.
        """

    async def wait_for_next(self, *, urgent: bool) -> Outgoing:
        """Wait for the next message. If `urgent`, wait for the next SOS. A cancellation loses no
        message.
        """

    async def mark_stored(self, item: Outgoing) -> None:
        """Record that the peer has the message on disk."""

    async def return_unsent(self, items: list[Outgoing], reason: str) -> None:
        """Queue these messages again, in order, because the link ended before the peer acknowledged
        them.
        """

    async def store_body(self, body: bytes) -> None:
        """Store a body from the peer. The body is on disk when the method returns. Several bodies
        of one message come at the same time, so that they can share a commit. All methods that
        store may raise CannotStore.
        """

    async def wait_for_next_note(self) -> bytes:
        """Wait for the next note, if the peer accepts notes."""

    async def process_note(self, body: bytes) -> None:
        """Process a note from the peer, with any content. May raise CannotStore."""


class LinkEnd(NamedTuple):
    """Reason why a link ended."""

    code: int
    """Value of `wire.link.Close`, or another code of RFC 6455."""
    reason: str
    by_peer: bool


class CannotStore(Exception):
    """Error: the post cannot store anything now. The link ends, and the peer must connect again."""


class _SilentPeer(Exception):
    pass


class _InFlight(NamedTuple, Generic[Outgoing]):
    item: Outgoing | None
    """The message, or None for a ping."""
    due_at: float


class LinkSocket(Protocol):
    """Connection of a link, a `WebSocket`. All methods except `close` raise WebSocketClosed."""

    async def receive(self) -> bytes:
        """Wait for the next complete message."""

    async def send(self, message: bytes) -> None:
        """Send a message, and wait while the connection has no space."""

    async def close(self, code: int, reason: str) -> None:
        """Send the reason of the end (RFC 6455, 7.4), and wait for the peer's close frame, without
        a deadline.
        """


class LinkSession(Generic[Outgoing]):
    """One link, from the hello to its end. `keepalive` decides when this end sends pings. By
    default, it sends none. `journal_number` is the number of this end's journal.
    """

    def __init__(
        self,
        socket: LinkSocket,
        post: MessagePost[Outgoing],
        *,
        keepalive: Keepalive | None = None,
        journal_number: int = 0,
        on_open: Callable[[], None] = lambda: None,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.acknowledged = 0
        """Number of messages and pings that the peer has acknowledged."""
        self.farewell = LinkEnd(Close.GOING_AWAY, "this end stops", by_peer=False)
        """Code and reason of the close frame that the peer gets when `run` is cancelled."""
        self._socket = socket
        self._post = post
        self._keepalive = keepalive or Keepalive()
        self._opened = on_open
        self._progress = progress
        self._link = IpLink(
            LinkHello(features=NOTES, silence=self._keepalive.promise, journal=journal_number)
        )
        self._in_flight: dict[int, _InFlight[Outgoing]] = {}
        self._peer_silence = inf
        self._pause = trio.CancelScope()
        """Scope in which the sending task waits. It is cancelled to make the task check again."""
        self._patience = trio.CancelScope()
        """Scope in which the task that detects a silent peer waits. Its deadline is the time of the
        next check."""

    async def run(self) -> LinkEnd:
        """Run the link until it ends for any reason, or until cancelled."""
        end = None
        try:
            end = await self._run_until_the_end()
            return end
        finally:
            with trio.CancelScope(shield=True):
                await self._finish(end or self.farewell)

    async def _finish(self, link_end: LinkEnd) -> None:
        if not link_end.by_peer:
            with trio.move_on_after(GOODBYE_TIMEOUT_S):
                await self._socket.close(link_end.code, link_end.reason)
        items = [sent.item for sent in self._in_flight.values() if sent.item is not None]
        await self._post.return_unsent(items, link_end.reason)

    async def _run_until_the_end(self) -> LinkEnd:
        causes: list[BaseException] = []
        try:
            features = await self._exchange_hellos()
            async with trio.open_nursery() as nursery:
                if features & NOTES:
                    nursery.start_soon(self._send_notes)
                nursery.start_soon(self._listen)
                nursery.start_soon(self._send_messages)
                # Run this part in the current task, because each further task costs the hub 4 KiB
                # per link.
                await self._judge()
        except* (WebSocketClosed, RemoteProtocolError, CannotStore, _SilentPeer) as trouble:
            causes.append(get_first_error(trouble))
        self._keepalive.end(trio.current_time(), is_explained=not _is_broken_off(causes[0]))
        return _make_link_end(causes[0])

    async def _exchange_hellos(self) -> int:
        """Exchange hellos, and return the features that both ends have."""
        with trio.move_on_after(ANSWER_TIMEOUT_S):
            await self._socket.send(self._link.make_hello())
            peer = self._link.receive(await self._socket.receive())
            assert isinstance(peer, LinkOpened)
            self._peer_silence = 2 * peer.silence + ANSWER_TIMEOUT_S if peer.silence else inf
            self._keepalive.begin(trio.current_time())
            await self._post.accept_hello(peer.journal)
            self._opened()
            return peer.features
        raise _SilentPeer(f"no hello within {ANSWER_TIMEOUT_S:g} s")

    # One task receives, one sends messages and pings, one sends notes, and one detects a silent
    # peer.

    async def _listen(self) -> NoReturn:
        while True:
            message = await self._socket.receive()
            self._keepalive.record_received(trio.current_time())
            event = self._link.receive(message)
            if isinstance(event, MessageReceived):
                await self._store_arrived(event)
            elif isinstance(event, Acknowledged):
                await self._settle(event.numbers)
            elif isinstance(event, NoteReceived):
                with trio.CancelScope(shield=True):
                    await self._post.process_note(event.body)

    async def _send_notes(self) -> NoReturn:
        while True:
            await self._send_message(self._link.make_note(await self._post.wait_for_next_note()))

    async def _store_arrived(self, message: MessageReceived) -> None:
        # Do not interrupt storing, because the message would be stored but not acknowledged.
        with trio.CancelScope(shield=True):
            if len(message.bodies) == 1:
                await self._post.store_body(message.bodies[0])
            elif message.bodies:
                async with trio.open_nursery() as nursery:
                    for body in message.bodies:
                        nursery.start_soon(self._post.store_body, body)
        await self._send_message(self._link.acknowledge(message.number))

    async def _settle(self, numbers: tuple[int, ...]) -> None:
        self.acknowledged += len(numbers)
        with trio.CancelScope(shield=True):
            for number in numbers:
                item = self._in_flight.pop(number).item
                if item is not None:
                    await self._post.mark_stored(item)
        if not self._in_flight:
            self._keepalive.record_acknowledged(trio.current_time())
        self._pause.cancel()

    async def _send_messages(self) -> NoReturn:
        while True:
            item = None
            with trio.CancelScope(deadline=self._compute_ping_time()) as self._pause:
                item = await self._wait_for_next()
            if item is not None:
                await self._send(item, *self._link.send(item.body))
            elif trio.current_time() >= self._compute_ping_time():
                await self._send(None, *self._link.make_ping())

    async def _wait_for_next(self) -> Outgoing:
        if self._link.free == 0:
            await trio.sleep_forever()
        crowded = bool(self._in_flight) and self._link.free == 1
        return await self._post.wait_for_next(
            urgent=crowded or self._count_bytes_in_flight() >= CROWD_BYTES
        )

    def _compute_ping_time(self) -> float:
        """Return the time of the next ping on trio's clock. While a message waits for its
        acknowledgement, no ping is needed.
        """
        return inf if self._in_flight else self._keepalive.compute_due_time()

    async def _send(self, item: Outgoing | None, number: int, message: bytes) -> None:
        byte_count = self._count_bytes_in_flight() + len(message)
        due = trio.current_time() + ANSWER_TIMEOUT_S + byte_count / LINK_BYTES_PER_S_MIN
        self._in_flight[number] = _InFlight(item, due)
        self._patience.deadline = min(self._patience.deadline, due)
        self._keepalive.record_sent(trio.current_time(), needs_answer=True)
        await self._send_message(message)

    async def _send_message(self, message: bytes) -> None:
        await self._socket.send(message)
        self._keepalive.record_sent(trio.current_time())

    def _count_bytes_in_flight(self) -> int:
        return sum(get_size(f.item.body) for f in self._in_flight.values() if f.item is not None)

    async def _judge(self) -> NoReturn:
        while True:
            self._progress()
            now = trio.current_time()
            if self._get_answer_deadline() <= now:
                raise _SilentPeer("nothing was acknowledged for too long")
            if self._compute_silence_deadline() <= now:
                raise _SilentPeer("the peer was silent for longer than it had promised")
            look = min(
                self._get_answer_deadline(),
                self._compute_silence_deadline(),
                now + CHECK_INTERVAL_S,
            )
            with trio.CancelScope(deadline=look) as self._patience:
                await trio.sleep_forever()

    def _get_answer_deadline(self) -> float:
        return next((f.due_at for f in self._in_flight.values()), inf)

    def _compute_silence_deadline(self) -> float:
        return self._keepalive.heard_at + self._peer_silence


def _is_broken_off(trouble: BaseException) -> bool:
    return isinstance(trouble, _SilentPeer) or (
        isinstance(trouble, WebSocketClosed) and trouble.is_broken
    )


def _make_link_end(trouble: BaseException) -> LinkEnd:
    match trouble:
        case WebSocketClosed():
            return LinkEnd(trouble.code, trouble.reason, by_peer=True)
        case NoCommonVersion():
            return LinkEnd(Close.NO_COMMON_VERSION, str(trouble), by_peer=False)
        case RemoteProtocolError():
            return LinkEnd(Close.PROTOCOL_ERROR, str(trouble), by_peer=False)
        case CannotStore():
            return LinkEnd(Close.TRY_AGAIN, str(trouble), by_peer=False)
    return LinkEnd(Close.SILENT, str(trouble), by_peer=False)
