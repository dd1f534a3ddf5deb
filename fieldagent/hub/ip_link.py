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
from fieldagent.store.group import StoreUnavailable
from fieldagent.wire.link import BODY_BYTES, OVERHEAD, PATH, Close

log = logging.getLogger(__name__)

_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750 2.1."""

REPLACED = LinkEnd(Close.REPLACED, "a newer link of this device took over", by_peer=False)
BARRED = LinkEnd(Close.POLICY, "the device was disabled, or has another token", by_peer=False)
STRANDED = LinkEnd(Close.GOING_AWAY, "the hub cannot reach its database", by_peer=False)


@dataclass(frozen=True, slots=True)
class Links:
    """What the links need of the hub."""

    authenticate: Callable[[str], Awaitable[Device]]
    """Whose token this is. Raises Unknown, or StoreUnavailable."""
    mailbox: Callable[[Device], Mailbox]
    connected: Callable[[Device], AbstractAsyncContextManager[trio.Event]]
    """Surrounds a link; the event is set when it must end: for a newer one, or for good."""

    def route(self) -> Route:
        return Route("GET", PATH, self._open)

    async def _open(self, request: Request) -> Response:
        token = _token(request)
        device = await self._device(token)
        serve = partial(self._serve, device, token)
        return accept(request, serve, max_size=BODY_BYTES + OVERHEAD)

    async def _device(self, token: str) -> Device:
        try:
            return await self.authenticate(token)
        except Unknown:
            raise _unauthorized("no device has this link token") from None

    async def _serve(self, device: Device, token: str, socket: WebSocket) -> None:
        async with self.connected(device) as lost, trio.open_nursery() as nursery:
            exchange = LinkSession(socket, _MailboxPost(self.mailbox(device)))

            async def give_way() -> None:
                await lost.wait()
                exchange.farewell = await self._farewell(token)
                log.info("the link to %s must end: %s", device.name, exchange.farewell.reason)
                nursery.cancel_scope.cancel()

            nursery.start_soon(give_way)
            log.info("%s is linked", device.name)
            ended = await exchange.run()
            log.info("the link to %s ended: %s", device.name, ended.reason or ended.code)
            nursery.cancel_scope.cancel()

    async def _farewell(self, token: str) -> LinkEnd:
        """Why a link must end: whoever may link no more would else come back for ever."""
        try:
            await self.authenticate(token)
        except Unknown:
            return BARRED
        except StoreUnavailable:
            return STRANDED
        return REPLACED


def _token(request: Request) -> str:
    bearer = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if bearer is None:
        raise _unauthorized("the link token belongs here: Authorization: Bearer TOKEN")
    return bearer[1]


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers=(("WWW-Authenticate", "Bearer"),))


@dataclass(frozen=True, slots=True)
class _MailboxPost:
    """One device's mailbox, as an end of a link uses it."""

    mailbox: Mailbox

    async def greeted(self, journal: int) -> None:
        await self.mailbox.greeted(journal)

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
