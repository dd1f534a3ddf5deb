"""The operator's gateway over DirectIP: it brings MO messages, and takes MT messages."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence

import trio

from fieldagent.http.address import LOOPBACK_NETWORKS, Network, is_in
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import NoteSession, TakeIn, Verdict
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.supervisor import Note, log_fault
from fieldagent.wire.directip import (
    DirectIpMo,
    DirectIpMt,
    Flags,
    read_confirmation,
    read_mobile_originated,
    take_message,
    write,
    write_mo_confirmation,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

DEADLINE = 30.0
"""Seconds for one message, each way."""
CONNECTIONS = 64
"""From gateways, at one moment."""
STRANGERS_NAMED = 100
"""Addresses that may not bring anything, each told once."""
FULL_PAUSE = 600.0
"""Seconds until a full queue is tried again: the modem has to come and empty it."""

STATUSES: dict[int, tuple[Outcome, str]] = {
    -1: (Outcome.REFUSED, "the gateway says that the IMEI is malformed"),
    -2: (Outcome.REFUSED, "the gateway does not know the IMEI: provision it with the operator"),
    -3: (Outcome.REFUSED, "the message is too large for the gateway"),
    -4: (Outcome.REFUSED, "the gateway expected a payload"),
    -5: (Outcome.NOT_SENT, "the modem's queue at the gateway is full"),
    -6: (Outcome.NOT_SENT, "the gateway has no resources left"),
    -7: (Outcome.REFUSED, "the gateway found the request malformed"),
    -8: (Outcome.NOT_SENT, "ring alerts are switched off for the modem"),
    -9: (Outcome.NOT_SENT, "the modem is not attached"),
    -10: (Outcome.NOT_SENT, "the gateway refuses the hub's address: have the operator add it"),
    -11: (Outcome.REFUSED, "the gateway found the MTMSN out of range"),
    -12: (Outcome.NOT_SENT, "the gateway refuses the hub's certificate"),
}
"""Of a confirmation below 0: how the call ended, and why."""
QUEUE_FULL = -5


def judge(status: int) -> tuple[Outcome, str]:
    """0 to 50 is a place in the modem's queue."""
    if 0 <= status <= 50:
        return Outcome.SENT, ""
    return STATUSES.get(status, (Outcome.NOT_SENT, f"the gateway answered {status}"))


MT_TOO_LARGE, POOR_POSITION = 1, 2
SESSIONS = {
    0: "",
    MT_TOO_LARGE: "",  # the MO message came through; an MT message was too large
    POOR_POSITION: "",  # it came through; nobody knows from where
    10: "the session timed out",
    12: "the MO message is too large for the gateway",
    13: "the link was lost during the session",
    14: "the modem broke the protocol (IMEI anomaly)",
    15: "the IMEI is barred from the gateway",
}
"""Of a session, by its status: why there is no message, where there is none."""


async def serve_directip(
    listeners: Sequence[socket.socket],
    take_in: TakeIn,
    note_session: NoteSession,
    *,
    allowed: Sequence[Network] = LOOPBACK_NETWORKS,
    note_fault: Note = log_fault,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Take MO messages from gateways in these networks, until cancelled. What is confirmed is on
    disk; the rest comes again. Closes `listeners`."""
    door = _Door(take_in, note_session, allowed, note_fault)
    served = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in listeners]
    await trio.serve_listeners(door.enter, served, task_status=task_status)  # type: ignore[arg-type]


class _Door:
    """Who may come in. Room for one more is made by who has been longest in telling theirs."""

    def __init__(
        self,
        take_in: TakeIn,
        note_session: NoteSession,
        allowed: Sequence[Network],
        note_fault: Note,
    ) -> None:
        self._take_in = take_in
        self._note_session = note_session
        self._note_fault = note_fault
        self._allowed = allowed
        self._told: set[str] = set()
        self._inside = 0
        self._receiving: dict[trio.CancelScope, None] = {}

    async def enter(self, stream: trio.SocketStream) -> None:
        try:
            address = str(stream.socket.getpeername()[0])
        except OSError:  # it has left
            return
        if not is_in(address, self._allowed):
            self._refuse(address)
        elif self._inside < CONNECTIONS or self._make_room():
            self._inside += 1
            try:
                await self._take_one(stream)
            except (RemoteProtocolError, trio.BrokenResourceError) as error:
                log.error("an MO message from %s was not taken: %s", address, error)
            except Exception as error:
                self._note_fault(error, f"an MO message from {address}")
            finally:
                self._inside -= 1

    def _refuse(self, address: str) -> None:
        if len(self._told) < STRANGERS_NAMED and address not in self._told:
            self._told.add(address)
            log.error("%s may not bring MO messages: directip-allow does not name it", address)

    def _make_room(self) -> bool:
        if not self._receiving:
            return False
        (oldest := next(iter(self._receiving))).cancel()
        del self._receiving[oldest]
        return True

    async def _take_one(self, stream: trio.SocketStream) -> None:
        elements = None
        with trio.move_on_after(DEADLINE) as scope:
            self._receiving[scope] = None
            try:
                elements = await receive(stream)
            finally:
                self._receiving.pop(scope, None)
        if elements is None:
            raise RemoteProtocolError("it did not come in time, and others did")
        message = read_mobile_originated(elements)
        with trio.move_on_after(DEADLINE):
            await stream.send_all(write_mo_confirmation(await self._store(message)))

    async def _store(self, message: DirectIpMo) -> bool:
        """Whether to confirm it."""
        taken = True
        why = SESSIONS.get(message.status, f"the gateway calls it {message.status}")
        if why:
            # The modem knows that it failed, and sends it again.
            log.error("a session of %s (MOMSN %d) failed: %s", message.imei, message.momsn, why)
            return taken
        try:
            if message.payload is not None:
                await self._take_in(message.imei, message.payload, _estimate(message))
            if message.status != MT_TOO_LARGE:
                await self._note_session(message.imei, fetched=message.mtmsn != 0)
        except StoreUnavailable:
            taken = False  # the store tells that itself; the gateway brings it again
        except Exception as error:
            self._note_fault(error, f"an MO message from {message.imei}")
            taken = False
        return taken


def _estimate(message: DirectIpMo) -> Estimate | None:
    where = message.location
    if where is None or message.status == POOR_POSITION:
        return None
    return Estimate(where.latitude, where.longitude, where.radius)


async def receive(stream: trio.SocketStream) -> bytes:
    """The elements of one message. Raises RemoteProtocolError."""
    buffer = bytearray()
    while (elements := take_message(buffer)) is None:
        data = await stream.receive_some()
        if not data:
            raise RemoteProtocolError("the connection ended before the message did")
        buffer += data
    return elements


class DirectIp:
    """`Operator` at `host` and `port`."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def send(self, imei: str, body: bytes, *, number: int, priority: bool) -> Verdict:
        flags = Flags.PRIORITY if priority else 0
        return await self._call(DirectIpMt(number & 0xFFFFFFFF, imei, body, flags))

    async def ring(self, imei: str) -> Verdict:
        return await self._call(DirectIpMt(0, imei, None, Flags.RING_ONLY))

    async def _call(self, request: DirectIpMt) -> Verdict:
        left = False
        try:
            with trio.fail_after(DEADLINE):
                async with await trio.open_tcp_stream(self._host, self._port) as stream:
                    left = True
                    await stream.send_all(write(request))
                    answer = read_confirmation(await receive(stream))
        except trio.TooSlowError:
            reason = f"no answer from {self._host}:{self._port} within {DEADLINE:g} s"
            return Verdict(Outcome.DOUBTFUL if left else Outcome.NOT_SENT, reason)
        except (OSError, trio.BrokenResourceError, RemoteProtocolError) as error:
            reason = f"{self._host}:{self._port}: {error}"
            return Verdict(Outcome.DOUBTFUL if left else Outcome.NOT_SENT, reason)
        if answer.client_id != request.client_id:
            return Verdict(Outcome.DOUBTFUL, "the gateway confirmed another message")
        outcome, reason = judge(answer.status)
        pause = FULL_PAUSE if answer.status == QUEUE_FULL else 0.0
        return Verdict(outcome, reason, pause, max(0, answer.status))
