"""Connection of one phone to the hub's own TAK server, from TLS to its end.

1. The server reads nothing before it knows that the phone's certificate is valid. From then on, the
   phone gets events for everyone. Until the phone has identified itself, only its pings are
   accepted.
2. The phone gets events within the size limit. If it accepts no data for SEND_TIMEOUT_S seconds, it
   is disconnected.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import trio

from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak import map_events
from fieldagent.extensions.tak.cot import (
    EVENT_BYTES_MAX,
    CotEvent,
    EventSplitter,
    encode,
    find_type,
)
from fieldagent.extensions.tak.events import GeoChat, TakUnit
from fieldagent.extensions.tak.server import certificates, exchange
from fieldagent.extensions.tak.server.certificates import PhoneHolder
from fieldagent.extensions.tak.server.exchange import Exchange, TakGuest
from fieldagent.extensions.tak.server.outbox import PhoneOutbox
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.system.lazy_named_tuple import NamedTuple

log = logging.getLogger(__name__)

SEND_TIMEOUT_S = 15.0
"""Seconds within which a phone must accept sent data."""
RECEIVE_MAX = 65_536


PROTOBUF = b"\xbf"
"""First byte of a protobuf stream (TAK protocol 1, protocol.txt). An XML stream never begins with
this byte."""
SPEAKS_PROTOBUF = (
    "sends protobuf, and the hub reads only XML: set it to TAK protocol 0 (PyTAK: TAK_PROTO=0)"
)


class PhoneHost(NamedTuple):
    store: Store
    exchange: Exchange
    workspace: int
    clock: Callable[[], float]


class TooSlow(Exception):
    """Error: the phone accepts no data."""


async def serve(
    host: PhoneHost, stream: trio.SSLStream[trio.SocketStream], holder: PhoneHolder, serial: str
) -> str:
    """Serve a phone with a valid certificate until it disconnects. Return the reason for the
    log.
    """
    phone = _Phone(host, stream, holder, serial)
    host.exchange.listen(phone.guest, host.clock())
    end_reason = "it has closed the connection"
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(phone.send)
            await phone.process_events()
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        end_reason = "the connection broke off"
    except* TooSlow:
        end_reason = f"it accepted nothing within {SEND_TIMEOUT_S:g} s"
    finally:
        host.exchange.remove_phone(phone.guest)
    return end_reason


class _Phone:
    def __init__(
        self,
        host: PhoneHost,
        stream: trio.SSLStream[trio.SocketStream],
        holder: PhoneHolder,
        serial: str,
    ) -> None:
        self._host = host
        self._stream = stream
        self._holder = holder
        self._outbox = PhoneOutbox()
        self.guest = TakGuest(holder.member, self._send, serial)
        self._logged_reason = ""
        """Last logged reason for refusing an event of the phone."""
        self._is_new = True
        """True until the phone has sent its first bytes."""
        self._sent = 0
        """Number of the last message to everyone that was sent to the phone."""
        self._unit: TakUnit | None = None
        """Unit of the phone, until the unit is stored in the database, which private messages to
        and from the phone need."""

    def _send(self, kind: str, raw: bytes, unit: str) -> bool:
        return self._outbox.add_event(raw, unit)

    async def send(self) -> None:
        """Send waiting events until cancelled. Raises TooSlow if the phone accepts no data for
        `SEND_TIMEOUT_S`.
        """
        while True:
            data = await self._outbox.wait_for_events()
            last_number = self._host.exchange.last_number
            with trio.move_on_after(SEND_TIMEOUT_S) as patience:
                await self._stream.send_all(data)
            if patience.cancelled_caught:
                # A part of an event may have been sent, which would corrupt the next event. So end
                # the connection.
                raise TooSlow
            self._sent = last_number

    async def process_events(self) -> None:
        """Receive and process the phone's events until the phone disconnects."""
        splitter = EventSplitter()
        while data := await self._stream.receive_some(RECEIVE_MAX):
            if self._is_new and bytes(data[:1]) == PROTOBUF:
                self._note_protobuf()
            self._is_new = False
            # A phone that sends data is alive and has received what was sent to it.
            self.guest.received_number = max(self.guest.received_number, self._sent)
            too_long = splitter.too_long
            for raw in splitter.receive_data(bytes(data)):
                await self._process_event(raw)
            if splitter.too_long > too_long:
                refusal = f"it is longer than {EVENT_BYTES_MAX} bytes"
                self._host.exchange.drop(self.guest, refusal, self._host.clock())
            # Let other tasks run, because a loop that drops many events never waits.
            await trio.lowlevel.checkpoint()

    async def _process_event(self, raw: bytes) -> None:
        now = self._host.clock()
        if find_type(raw) == tak.PING:
            self._outbox.add_event(exchange.encode_pong(now), tak.PONG)
            return
        event = self._host.exchange.read(self.guest, raw, now)
        if event is None:
            return
        if not self.guest.uid:
            # If the database is unavailable, the next event of the phone causes another attempt.
            with skip_if_unavailable():
                await self._admit_phone(event, now)
        if self._unit is not None:
            with skip_if_unavailable():
                await self._note_phone(self._unit, now)
        if self.guest.uid:
            self._host.exchange.receive(self.guest, event, raw, now)

    async def _admit_phone(self, event: CotEvent, now: float) -> None:
        unit = tak.read_author(event)
        objection = "" if unit is None else self._host.exchange.find_objection(self.guest, unit)
        if unit is None or objection or not await self._is_theirs(unit, now):
            self._host.exchange.refuse()
            self._log_refusal(objection)
            return
        # Add the phone to the exchange first, so that other guests who see the phone can reach it.
        self._host.exchange.enter(self.guest, unit, now)
        self._unit = unit

    async def _note_phone(self, unit: TakUnit, now: float) -> None:
        key, member = self.guest.key, self.guest.member
        await self._host.store.commit(
            lambda db: certificates.record_phone(db, key, member, unit.uid, now)
        )
        self._unit = None

    async def _is_theirs(self, unit: TakUnit, now: float) -> bool:
        owner = await self._host.store.read(
            lambda db: certificates.find_phone_owner(db, self._host.workspace, unit.uid, now)
        )
        if owner is None or owner.member == self.guest.member:
            return True
        self._log_refusal(
            f"its uid {unit.uid!r} is of {owner.name}'s phone: if that is this one now,"
            f" `fieldagent hub user tak {owner.member} --revoke`"
        )
        return False

    def _note_protobuf(self) -> None:
        """Report to the client, by a chat message, and to the log that the server reads XML but not
        protobuf.
        """
        self._log_refusal(f"it {SPEAKS_PROTOBUF}")
        now = datetime.fromtimestamp(self._host.clock(), UTC)
        hub = TakUnit(f"{map_events.PREFIX}hub", "hub")
        chat = GeoChat(
            hub, tak.ALL_UNITS, str(uuid.uuid4()), f"[hub] This client {SPEAKS_PROTOBUF}"
        )
        self._outbox.add_event(encode(tak.make_chat(chat, now)))

    def _log_refusal(self, reason: str) -> None:
        if reason and reason != self._logged_reason:
            log.warning("the phone of %s is not accepted: %s", self._holder.name, reason)
            self._logged_reason = reason
