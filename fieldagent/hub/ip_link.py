"""The hub's end of the IP link: `GET /link`, one WebSocket for each agent."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

import trio

from fieldagent.http.link_session import LinkEnd, LinkSession
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.http.web_socket import WebSocket, accept
from fieldagent.hub.contract import Device, Mailbox, OutgoingMessage, Unknown
from fieldagent.wire.link import BODY_BYTES, OVERHEAD, PATH, Close

log = logging.getLogger(__name__)

_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750 2.1."""

REPLACED = LinkEnd(Close.REPLACED, "a newer link of this device took over", by_peer=False)


@dataclass(frozen=True, slots=True)
class Links:
    """What the links need of the hub."""

    authenticate: Callable[[str], Awaitable[Device]]
    """Whose token this is. Raises Unknown, or Problem."""
    mailbox: Callable[[Device], Mailbox]
    connected: Callable[[Device], AbstractAsyncContextManager[trio.Event]]
    """Surrounds a link; the event is set when another link of the device takes over."""

    def route(self) -> Route:
        return Route("GET", PATH, self._open)

    async def _open(self, request: Request) -> Response:
        device = await self._device(request)
        serve = partial(self._serve, device)
        return accept(request, serve, max_size=BODY_BYTES + OVERHEAD)

    async def _device(self, request: Request) -> Device:
        bearer = _BEARER.fullmatch(request.headers.get("authorization", ""))
        if bearer is None:
            raise _unauthorized("the link token belongs here: Authorization: Bearer TOKEN")
        try:
            return await self.authenticate(bearer[1])
        except Unknown:
            raise _unauthorized("no device has this link token") from None

    async def _serve(self, device: Device, socket: WebSocket) -> None:
        async with self.connected(device) as replaced, trio.open_nursery() as nursery:
            exchange = LinkSession(socket, _MailboxPost(self.mailbox(device)))

            async def give_way() -> None:
                await replaced.wait()
                log.info("%s has linked anew: its older link ends", device.name)
                exchange.farewell = REPLACED
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_way)
            log.info("%s is linked", device.name)
            ended = await exchange.run()
            log.info("the link to %s ended: %s", device.name, ended.reason or ended.code)
            nursery.cancel_scope.cancel()


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers=(("WWW-Authenticate", "Bearer"),))


@dataclass(frozen=True, slots=True)
class _MailboxPost:
    """One device's mailbox, as an end of a link uses it."""

    mailbox: Mailbox

    async def next(self, *, urgent: bool) -> OutgoingMessage:
        if urgent:  # a mailbox does not tell; what is in flight to an agent is little
            await trio.sleep_forever()
        while True:
            news = self.mailbox.news()
            with trio.CancelScope(shield=True):
                parcel = await self.mailbox.load(BODY_BYTES)
            if parcel is not None:
                return parcel
            await news.wait()

    async def stored(self, item: OutgoingMessage) -> None:
        await self.mailbox.stored(item)

    async def returned(self, items: list[OutgoingMessage], reason: str) -> None:
        for parcel in items:
            await self.mailbox.returned(parcel, reason=reason or "the link ended")

    async def take_in(self, body: bytes) -> None:
        await self.mailbox.take_in(body)
