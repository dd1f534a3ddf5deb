"""The hub's end of the IP link: `GET /link`, one WebSocket for each agent."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import field
from functools import partial

import trio

from fieldagent.http.link_session import GOODBYE, LinkEnd, LinkSession, NotNow
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.http.web_socket import WebSocket
from fieldagent.http.web_socket_server import accept
from fieldagent.hub.contract import Device, Mailbox, OutgoingMessage, Revoked, Unknown
from fieldagent.hub.not_now import not_now
from fieldagent.hub.records.lease import Lease
from fieldagent.store.group import NOT_STORED, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.link import BODY_BYTES, OVERHEAD, PATH, Close

log = logging.getLogger(__name__)

_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750 2.1."""

REPLACED = LinkEnd(Close.REPLACED, "a newer link of this device took over", by_peer=False)
BARRED = LinkEnd(Close.POLICY, "the device was disabled, or has another token", by_peer=False)
REVOKED = LinkEnd(Close.REVOKED, "this kit is revoked", by_peer=False)
STRANDED = LinkEnd(Close.TRY_AGAIN, "the hub cannot use its database now", by_peer=False)
"""It is told no more than that: what the database is called is nobody's business in the field."""

HELD = 20.0
"""Seconds that an agent which finds the database gone waits here: to call again costs it a TLS
handshake."""
HELD_LOOK = 0.5
VERSION_MAX = 40
"""Characters."""


@dataclass(frozen=True, slots=True)
class Links:
    """What the links need of the hub."""

    authenticate: Callable[[str], Awaitable[Device]]
    """Whose token this is. Raises Unknown, Revoked, or StoreUnavailable."""
    mailbox: Callable[[Device, str], Mailbox]
    """Of a device, whose agent is of that version; empty is one that does not tell."""
    connected: Callable[[Device], AbstractAsyncContextManager[Lease]]
    """Surrounds a link, and tells when it must end. Raises StoreUnavailable, StoreFull."""
    stopping: trio.Event = field(default_factory=trio.Event)
    """Set when no new link is to begin here."""
    wrong_token: Callable[[Request], Awaitable[Problem]] | None = None
    """Counts one, and says what its sender is told."""
    note_end: Callable[[str, float, str], None] = lambda device, seconds, why: None
    """Of a device's link, after so many seconds, and why."""
    note_bytes: Callable[[str, int], None] = lambda direction, size: None
    """Of envelopes: sent and stored by the kit, or received."""

    def route(self) -> Route:
        """Return the route at which kits open their links."""
        return Route("GET", PATH, self._open)

    async def _open(self, request: Request) -> Response:
        if self.stopping.is_set():
            raise not_now("the hub is stopping")
        token = _token(request)
        device = await self._device(request, token)
        if ("check", "") in request.query:
            return accept(request, _end_check, max_size=OVERHEAD)
        version = request.headers.get("user-agent", "").removeprefix("fieldagent/")
        serve = partial(self.serve, device, token, version[:VERSION_MAX])
        return accept(request, serve, max_size=BODY_BYTES + OVERHEAD)

    async def _device(self, request: Request, token: str) -> Device:
        """Whose link it is to be. One that comes while the database is away waits a while."""
        patience = trio.current_time() + HELD
        while True:
            try:
                return await self.authenticate(token)
            except Revoked:
                raise Problem(410, "the kit with this link token is revoked") from None
            except Unknown:
                if self.wrong_token is not None:
                    raise await self.wrong_token(request) from None
                raise _unauthorized("no device has this link token") from None
            except StoreUnavailable:
                if self.stopping.is_set() or trio.current_time() >= patience:
                    raise not_now() from None
            with trio.move_on_after(HELD_LOOK):
                await self.stopping.wait()

    async def serve(self, device: Device, token: str, version: str, socket: WebSocket) -> None:
        """Hold the link of a device, whose agent is of that version, until it ends."""
        post = _MailboxPost(self.mailbox(device, version), self.note_bytes)
        try:
            await self._serve_as_holder(device, token, post, socket)
        except* NOT_STORED:
            # It went in the moment between the answer and the lease.
            with trio.move_on_after(GOODBYE):
                await socket.close(STRANDED.code, STRANDED.reason)

    async def _serve_as_holder(
        self, device: Device, token: str, post: _MailboxPost, socket: WebSocket
    ) -> None:
        async with self.connected(device) as lease, trio.open_nursery() as nursery:
            exchange = LinkSession(socket, post)

            async def give_way() -> None:
                await lease.lost.wait()
                exchange.farewell = STRANDED if lease.stranded else await self._farewell(token)
                log.info("the link to %s must end: %s", device.name, exchange.farewell.reason)
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_way)
            log.info("%s is linked", device.name)
            began = trio.current_time()
            ended = None
            try:
                ended = await exchange.run()
                log.info("the link to %s ended: %s", device.name, ended.reason or ended.code)
            finally:
                why = ended or exchange.farewell
                self.note_end(device.name, trio.current_time() - began, why.reason or str(why.code))
            nursery.cancel_scope.cancel()

    async def _farewell(self, token: str) -> LinkEnd:
        """Return why a link must end: whoever may link no more would else come back for ever."""
        try:
            await self.authenticate(token)
        except Revoked:
            return REVOKED
        except Unknown:
            return BARRED
        except StoreUnavailable:
            return STRANDED
        return REPLACED


async def _end_check(socket: WebSocket) -> None:
    """Whoever asks has seen that a WebSocket passes, both ways; the kit's link goes on."""
    with trio.move_on_after(GOODBYE):
        await socket.close(Close.CHECKED, "a link would be taken")


def _token(request: Request) -> str:
    bearer = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if bearer is None:
        raise _unauthorized("the link token belongs here: Authorization: Bearer TOKEN")
    return bearer[1]


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers=(("WWW-Authenticate", "Bearer"),))


async def _first_of(events: list[trio.Event], longest: float) -> None:
    """Wait for one of them, or so many seconds."""

    async def wait_for(event: trio.Event) -> None:
        await event.wait()
        nursery.cancel_scope.cancel()

    own, *others = events
    with waits.move_on_after(longest):
        async with trio.open_nursery() as nursery:
            for each in others:
                nursery.start_soon(wait_for, each)
            await wait_for(own)


@contextmanager
def _or_later() -> Iterator[None]:
    """What cannot be stored now ends the link, and the agent brings it again."""
    try:
        yield
    except NOT_STORED:
        raise NotNow(STRANDED.reason) from None


@dataclass(frozen=True, slots=True)
class _MailboxPost:
    """One device's mailbox, as an end of a link uses it."""

    mailbox: Mailbox
    note_bytes: Callable[[str, int], None]

    async def greeted(self, journal: int) -> None:
        with _or_later():
            await self.mailbox.greeted(journal)

    async def next(self, *, urgent: bool) -> OutgoingMessage:
        if urgent:  # a mailbox does not tell; what is in flight to an agent is little
            await trio.sleep_forever()
        while True:
            news = self.mailbox.news()
            with trio.CancelScope(shield=True), _or_later():
                outgoing = await self.mailbox.load(BODY_BYTES)
            if outgoing is not None:
                return outgoing
            await _first_of(news, self.mailbox.look_again())

    async def stored(self, item: OutgoingMessage) -> None:
        with _or_later():
            await self.mailbox.stored(item)
        self.note_bytes("sent", len(item.body))

    async def returned(self, items: list[OutgoingMessage], reason: str) -> None:
        for outgoing in items:
            await self.mailbox.returned(outgoing, reason=reason or "the link ended")

    async def take_in(self, body: bytes) -> None:
        with _or_later():
            await self.mailbox.take_in(body)
        self.note_bytes("received", len(body))

    async def next_note(self) -> bytes:
        with _or_later():
            return await self.mailbox.next_note()

    async def take_note(self, body: bytes) -> None:
        with _or_later():
            await self.mailbox.take_note(body)
