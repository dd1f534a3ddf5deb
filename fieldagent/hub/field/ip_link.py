"""The hub's side of the IP link: `GET /link`, one WebSocket per agent."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import field
from functools import partial

import trio

from fieldagent.http.link_session import GOODBYE_TIMEOUT_S, CannotStore, LinkEnd, LinkSession
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.http.web_socket import WebSocket
from fieldagent.http.web_socket_server import accept
from fieldagent.hub.contract import Device, Mailbox, OutgoingMessage, Revoked, UnknownDevice
from fieldagent.hub.records.lease import Lease
from fieldagent.hub.unavailable import make_not_now
from fieldagent.store.group import NOT_STORED, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.link import BODY_BYTES, OVERHEAD_BYTES, PATH, Close, get_size

log = logging.getLogger(__name__)

_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""Authorization header with a bearer token (RFC 6750, section 2.1)."""

REPLACED_END = LinkEnd(Close.REPLACED, "a newer link of this device took over", by_peer=False)
BARRED = LinkEnd(Close.POLICY, "the device was disabled, or has another token", by_peer=False)
REVOKED = LinkEnd(Close.REVOKED, "this kit is revoked", by_peer=False)
STRANDED_END = LinkEnd(Close.TRY_AGAIN, "the hub cannot use its database now", by_peer=False)
"""End of a link while the hub cannot use its database. The agent connects again."""

DATABASE_WAIT_S = 20.0
"""Seconds that the connection attempt of an agent waits while the database is unavailable. A new
connection would cost the agent another TLS handshake."""
HELD_LOOK = 0.5
VERSION_MAX = 40
"""Largest number of characters of an agent's version."""


@dataclass(frozen=True, slots=True)
class Links:
    """Serves IP links with functions of the hub."""

    authenticate: Callable[[str], Awaitable[Device]]
    """Returns the device with this token. Raises UnknownDevice, Revoked, or StoreUnavailable."""
    mailbox: Callable[[Device, str], Mailbox]
    """Returns the mailbox of a device. The second argument is the version of the device's agent,
    empty if the agent does not report its version."""
    connected: Callable[[Device], AbstractAsyncContextManager[Lease]]
    """Returns the context in which a link is served. The lease in this context requests the end of
    the link. Raises StoreUnavailable, StoreFull."""
    stopping: trio.Event = field(default_factory=trio.Event)
    """Set when this process accepts no new links."""
    wrong_token: Callable[[Request], Awaitable[Problem]] | None = None
    """Counts a wrong token and returns the HTTP response for its sender."""
    note_end: Callable[[str, float, str], None] = lambda device, seconds, why: None
    """Called at the end of a link, with the name of the device, the duration in seconds, and the
    reason."""
    note_bytes: Callable[[str, int], None] = lambda direction, size: None
    """Called with the direction (`sent` or `received`) and the bytes of envelopes that the kit or
    the hub has stored."""

    def route(self) -> Route:
        """Return the route on which kits open their links."""
        return Route("GET", PATH, self._open)

    async def _open(self, request: Request) -> Response:
        if self.stopping.is_set():
            raise make_not_now("the hub is stopping")
        token = _read_token(request)
        device = await self._find_device(request, token)
        if ("check", "") in request.query:
            return accept(request, _end_check, max_size=OVERHEAD_BYTES)
        version = request.headers.get("user-agent", "").removeprefix("fieldagent/")
        serve = partial(self.serve, device, token, version[:VERSION_MAX])
        return accept(request, serve, max_size=BODY_BYTES + OVERHEAD_BYTES)

    async def _find_device(self, request: Request, token: str) -> Device:
        """Return the device of a new link. Wait up to `DATABASE_WAIT_S` if the database is
        unavailable, then raise Problem.
        """
        patience = trio.current_time() + DATABASE_WAIT_S
        while True:
            try:
                return await self.authenticate(token)
            except Revoked:
                raise Problem(410, "the kit with this link token is revoked") from None
            except UnknownDevice:
                if self.wrong_token is not None:
                    raise await self.wrong_token(request) from None
                raise _make_unauthorized("no device has this link token") from None
            except StoreUnavailable:
                if self.stopping.is_set() or trio.current_time() >= patience:
                    raise make_not_now() from None
            with trio.move_on_after(HELD_LOOK):
                await self.stopping.wait()

    async def serve(self, device: Device, token: str, version: str, socket: WebSocket) -> None:
        """Serve the link of a device until it ends. `version` is the version of the device's
        agent.
        """
        post = _MailboxPost(self.mailbox(device, version), self.note_bytes)
        try:
            await self._serve_as_holder(device, token, post, socket)
        except* NOT_STORED:
            # The database became unavailable between the HTTP response and the lease, so close the
            # link with this reason.
            with trio.move_on_after(GOODBYE_TIMEOUT_S):
                await socket.close(STRANDED_END.code, STRANDED_END.reason)

    async def _serve_as_holder(
        self, device: Device, token: str, post: _MailboxPost, socket: WebSocket
    ) -> None:
        async with self.connected(device) as lease, trio.open_nursery() as nursery:
            exchange = LinkSession(socket, post)

            async def end_on_lease_loss() -> None:
                await lease.lost.wait()
                exchange.farewell = STRANDED_END if lease.stranded else await self._find_end(token)
                log.info("the link to %s must end: %s", device.name, exchange.farewell.reason)
                nursery.cancel_scope.cancel()

            nursery.start_soon(end_on_lease_loss)
            log.info("%s is linked", device.name)
            started_at = trio.current_time()
            link_end = None
            try:
                link_end = await exchange.run()
                log.info("the link to %s ended: %s", device.name, link_end.reason or link_end.code)
            finally:
                reason = link_end or exchange.farewell
                self.note_end(
                    device.name, trio.current_time() - started_at, reason.reason or str(reason.code)
                )
            nursery.cancel_scope.cancel()

    async def _find_end(self, token: str) -> LinkEnd:
        """Return the close code and reason for a link whose lease has ended. A kit that may no
        longer connect gets a code after which it stops trying.
        """
        try:
            await self.authenticate(token)
        except Revoked:
            return REVOKED
        except UnknownDevice:
            return BARRED
        except StoreUnavailable:
            return STRANDED_END
        return REPLACED_END


async def _end_check(socket: WebSocket) -> None:
    """Answer a link check of a kit (`fieldagent check`) by closing the WebSocket. The close
    handshake shows the kit that a WebSocket works in both directions. The kit's link continues.
    """
    with trio.move_on_after(GOODBYE_TIMEOUT_S):
        await socket.close(Close.CHECKED, "a link would be taken")


def _read_token(request: Request) -> str:
    bearer = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if bearer is None:
        raise _make_unauthorized("the link token belongs here: Authorization: Bearer TOKEN")
    return bearer[1]


def _make_unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers=(("WWW-Authenticate", "Bearer"),))


@contextmanager
def _end_if_unstorable() -> Iterator[None]:
    """End the link if something cannot be stored now. The agent then sends the message again over a
    new link.
    """
    try:
        yield
    except NOT_STORED:
        raise CannotStore(STRANDED_END.reason) from None


@dataclass(frozen=True, slots=True)
class _MailboxPost:
    """Adapter from a device's mailbox to the interface that the hub's side of a link uses."""

    mailbox: Mailbox
    note_bytes: Callable[[str, int], None]

    async def accept_hello(self, journal_number: int) -> None:
        with _end_if_unstorable():
            await self.mailbox.record_hello(journal_number)

    async def wait_for_next(self, *, urgent: bool) -> OutgoingMessage:
        # A mailbox has only a few messages in flight to the agent, so an urgent message needs no
        # separate queue.
        if urgent:
            await trio.sleep_forever()
        while True:
            news = self.mailbox.get_news()
            with trio.CancelScope(shield=True), _end_if_unstorable():
                outgoing = await self.mailbox.load(BODY_BYTES)
            if outgoing is not None:
                return outgoing
            with waits.move_on_after(self.mailbox.compute_recheck_delay()):
                await news.wait()

    async def mark_stored(self, item: OutgoingMessage) -> None:
        with _end_if_unstorable():
            await self.mailbox.mark_stored(item)
        self.note_bytes("sent", get_size(item.body))

    async def return_unsent(self, items: list[OutgoingMessage], reason: str) -> None:
        for outgoing in items:
            await self.mailbox.return_message(outgoing, reason=reason or "the link ended")

    async def store_body(self, body: bytes) -> None:
        with _end_if_unstorable():
            await self.mailbox.store_body(body)
        self.note_bytes("received", len(body))

    async def wait_for_next_note(self) -> bytes:
        with _end_if_unstorable():
            return await self.mailbox.next_note()

    async def process_note(self, body: bytes) -> None:
        with _end_if_unstorable():
            await self.mailbox.process_note(body)
