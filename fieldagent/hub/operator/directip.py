"""An operator's gateway that uses DirectIP. The gateway delivers MO messages and accepts MT
messages.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence

import trio

from fieldagent.http.address import LOOPBACK_NETWORKS, Network, is_in
from fieldagent.http.limits import UnauthenticatedLimit
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.problem import Problem
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import (
    NO_MODEM,
    CountSession,
    FarModem,
    MessageReceiver,
    MoListener,
    OperatorHost,
    OperatorKind,
    Own,
    RecordModemSession,
    Verdict,
    count_nothing,
)
from fieldagent.hub.operator.failures import (
    FULL_PAUSE_S,
    NEEDS_PERSON_RETRY_S,
    Failure,
    Scope,
    make_no_answer,
    make_unknown,
    make_unreachable,
)
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.properties import Key, read_endpoint, read_networks
from fieldagent.system.supervisor import Note, log_fault
from fieldagent.system.wording import describe_reason
from fieldagent.wire.directip import (
    DirectIpMo,
    DirectIpMt,
    Flags,
    encode_message,
    encode_mo_confirmation,
    extract_message,
    parse_confirmation,
    parse_mobile_originated,
    salvage_payload,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

DEADLINE_S = 30.0
"""Seconds within which one message must be received or sent."""
CONNECTIONS = 64
"""Largest number of simultaneous connections from gateways."""
REFUSAL_DELAY_S = 0.5
"""Seconds before the hub closes the connection of an unknown caller."""
LOGGED_ADDRESSES_MAX = 100
"""Largest number of different forbidden addresses that the hub logs, each once."""


_M, _D, _A, _G = Scope.MESSAGE, Scope.DEVICE, Scope.ACCOUNT, Scope.GATEWAY
DIRECTIP = {
    -1: Failure("-1", _D, "the gateway reports a malformed IMEI: correct it", NEEDS_PERSON_RETRY_S),
    -2: Failure(
        "-2",
        _D,
        "the gateway does not know the IMEI: provision it with the operator",
        NEEDS_PERSON_RETRY_S,
    ),
    -3: Failure("-3", _M, "the message is too large for the gateway", NEEDS_PERSON_RETRY_S),
    -4: Failure("-4", _M, "the gateway expected a payload", NEEDS_PERSON_RETRY_S),
    -5: Failure("-5", _D, "the modem's queue at the gateway is full", FULL_PAUSE_S),
    -6: Failure("-6", _G, "the gateway has no resources left"),
    -7: Failure("-7", _M, "the gateway found the request malformed", NEEDS_PERSON_RETRY_S),
    -8: Failure(
        "-8",
        _D,
        "ring alerts are off for the modem: have the operator switch them on",
        NEEDS_PERSON_RETRY_S,
    ),
    -9: Failure(
        "-9", _D, "the modem is not attached: it must be switched on once", NEEDS_PERSON_RETRY_S
    ),
    -10: Failure(
        "-10",
        _A,
        "the gateway refuses the hub's address: have the operator add it",
        NEEDS_PERSON_RETRY_S,
    ),
    -11: Failure("-11", _M, "the gateway found the MTMSN out of range", NEEDS_PERSON_RETRY_S),
    -12: Failure(
        "-12",
        _A,
        "the gateway refuses the hub's certificate: agree on a certificate with the operator",
        NEEDS_PERSON_RETRY_S,
    ),
}
"""Failures by the status of a negative confirmation (Iridium, SBD DirectIP interface description,
MT confirmation)."""


def find_verdict(status: int) -> Verdict:
    """Return the result of a call from the status in the confirmation. A status of 0 to 50 is the
    place of the message in the modem's queue.
    """
    if 0 <= status <= 50:
        return Verdict(Outcome.SENT, waiting=status)
    return Verdict(Outcome.NOT_SENT, DIRECTIP.get(status) or make_unknown(str(status)))


SUCCESS_CODES, MT_TOO_LARGE, POOR_POSITION = 0, 1, 2
GOOD_SESSIONS = (SUCCESS_CODES, MT_TOO_LARGE, POOR_POSITION)
"""Session states with a complete MO message: success; 1, an MT message was too large; 2, the
position is poor."""
SESSIONS = {
    10: "the session timed out",
    12: "the MO message is too large for the gateway",
    13: "the link was lost during the session",
    14: "the modem broke the protocol (IMEI anomaly)",
    15: "the IMEI is barred from the gateway",
}
"""Failures by the status of a session. The status is about the session, so the payload may still be
good."""


async def serve_directip(
    listeners: Sequence[socket.socket],
    take_in: MessageReceiver,
    record_modem_session: RecordModemSession,
    *,
    count_session: CountSession = count_nothing,
    allowed_networks: Sequence[Network] = LOOPBACK_NETWORKS,
    note_fault: Note = log_fault,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept MO messages from gateways in `allowed_networks`, until cancelled. When the hub
    confirms a message, the message is on disk. If the gateway gets no confirmation, it repeats the
    message. Closes `listeners`.
    """
    connections = _ConnectionLimit(
        take_in, record_modem_session, count_session, allowed_networks, note_fault
    )
    served = [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in listeners]
    with connections.unproved.pace.measure_work():
        await trio.serve_listeners(connections.enter, served, task_status=task_status)  # type: ignore[arg-type]


class _ConnectionLimit:
    """Limit on the number of connections. If there is no space left, the source with the most
    connections loses its oldest connection that is still receiving. The processor time of a source
    is limited until the source has delivered a message from an allowed address.
    """

    def __init__(
        self,
        take_in: MessageReceiver,
        record_modem_session: RecordModemSession,
        count_session: CountSession,
        allowed_networks: Sequence[Network],
        note_fault: Note,
    ) -> None:
        self._take_in = take_in
        self._record_modem_session = record_modem_session
        self._count_session = count_session
        self._note_fault = note_fault
        self._allowed = allowed_networks
        self._logged_sources: set[str] = set()
        self.unproved = UnauthenticatedLimit(CONNECTIONS, DEADLINE_S)
        self._storing = trio.CapacityLimiter(CONNECTIONS)

    async def enter(self, stream: trio.SocketStream) -> None:
        try:
            address = str(stream.socket.getpeername()[0])
        except OSError:  # The connection has ended.
            return
        try:
            await self._serve_connection(stream, address)
        except Problem:  # The source has used too much processor time.
            return
        except (RemoteProtocolError, trio.BrokenResourceError) as error:
            log.error("an MO message from %s was not accepted: %s", address, error)
        except Exception as error:
            self._note_fault(error, f"an MO message from {address}")

    async def _serve_connection(self, stream: trio.SocketStream, address: str) -> None:
        is_allowed, elements = is_in(address, self._allowed), None
        async with self.unproved.admit(address) as visit:
            if is_allowed:
                elements = await receive_elements(stream)
                visit.record_authentication(f"gateway {address}")
            else:
                await self._refuse(address)
        if not is_allowed:
            return
        if elements is None:
            raise RemoteProtocolError("the message did not arrive in time, but others did")
        async with self._storing:
            confirmed = await self._store(elements)
        with trio.move_on_after(DEADLINE_S):
            await stream.send_all(encode_mo_confirmation(confirmed))

    async def _refuse(self, address: str) -> None:
        if len(self._logged_sources) < LOGGED_ADDRESSES_MAX and address not in self._logged_sources:
            self._logged_sources.add(address)
            log.error("%s may not deliver MO messages: directip-allow does not name it", address)
        # The delay limits the cost of repeated connections from one caller.
        await trio.sleep(REFUSAL_DELAY_S)

    async def _store(self, elements: bytes) -> bool:
        """Store the payload, if there is one. Return True if the hub must confirm the message.

        Raises RemoteProtocolError if the message cannot be read and has no payload.
        """
        imei = ""
        try:
            try:
                message = parse_mobile_originated(elements)
            except RemoteProtocolError as error:
                imei, payload = salvage_payload(elements)
                if not payload:
                    raise
                await self._take_in(imei, payload, None, unusable=f"DirectIP: {error}")
            else:
                imei = message.imei
                await self._process_session(message)
        except RemoteProtocolError:
            raise
        except StoreUnavailable:
            return False  # The store logs the outage; the gateway sends again.
        except Exception as error:
            self._note_fault(error, f"an MO message from {imei or 'a gateway'}")
            return False
        return True

    async def _process_session(self, message: DirectIpMo) -> None:
        """Process the payload of a session, whatever the status of the session is, because the
        modem may treat the payload as delivered. The hub recognises repeated items by their
        numbers. A truncated message becomes a dead letter.
        """
        if message.status not in GOOD_SESSIONS:
            log.warning(
                "a session of %s (MOMSN %d) ended with status %d, %s: %s",
                message.imei,
                message.momsn,
                message.status,
                SESSIONS.get(message.status, "which this hub does not know"),
                f"its {len(message.payload)} bytes are accepted"
                if message.payload
                else "it was empty",
            )
        if message.payload:
            await self._take_in(message.imei, message.payload, _make_estimate(message))
        await self._count_session(message.imei, str(message.reference), len(message.payload or b""))
        if message.status in (SUCCESS_CODES, POOR_POSITION):
            await self._record_modem_session(message.imei, fetched=message.mtmsn != 0)


def _make_estimate(message: DirectIpMo) -> Estimate | None:
    location = message.location
    if location is None or message.status == POOR_POSITION:
        return None
    return Estimate(location.latitude, location.longitude, location.radius)


async def receive_elements(stream: trio.SocketStream) -> bytes:
    """Return the elements of one message. Raises RemoteProtocolError if the gateway sends malformed
    data or closes the connection early.
    """
    buffer = bytearray()
    while (elements := extract_message(buffer)) is None:
        data = await stream.receive_some()
        if not data:
            raise RemoteProtocolError("the connection ended before the message did")
        buffer += data
    return elements


class DirectIp:
    """An `Operator` that calls the gateway at `host` and `port`."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port

    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        flags = Flags.PRIORITY if priority else 0
        return await self._call(DirectIpMt(number & 0xFFFFFFFF, imei, body, flags))

    async def ring(self, imei: str) -> Verdict:
        return await self._call(DirectIpMt(0, imei, None, Flags.RING_ONLY))

    async def _call(self, request: DirectIpMt) -> Verdict:
        is_sent, server_name = False, f"{self._host}:{self._port}"
        try:
            with trio.fail_after(DEADLINE_S):
                async with await trio.open_tcp_stream(self._host, self._port) as stream:
                    is_sent = True
                    await stream.send_all(encode_message(request))
                    answer = parse_confirmation(await receive_elements(stream))
        except trio.TooSlowError:
            return _judge_unanswered(
                f"no answer from {server_name} within {DEADLINE_S:g} s", is_sent=is_sent
            )
        except (OSError, trio.BrokenResourceError, RemoteProtocolError) as error:
            return _judge_unanswered(f"{server_name}: {describe_reason(error)}", is_sent=is_sent)
        if answer.client_id != request.client_id:
            return _judge_unanswered(f"{server_name} confirmed another message", is_sent=True)
        return find_verdict(answer.status)


def _judge_unanswered(reason: str, *, is_sent: bool) -> Verdict:
    if is_sent:
        return Verdict(Outcome.DOUBTFUL, make_no_answer(reason))
    return Verdict(Outcome.NOT_SENT, make_unreachable(reason))


def _make_caller(settings: Own) -> DirectIp | None:
    gateway = settings["directip-gateway"]
    return None if gateway is None else DirectIp(*gateway)


def _listen(settings: Own) -> MoListener | None:
    if settings["directip-listen"] is None:
        return None
    host, port = settings["directip-listen"]
    listeners = open_listeners(port, [host], allow_remote=True)
    log.info("the operator's gateway can deliver MO messages to %s:%d", host, get_port(listeners))

    async def serve(sockets: Sequence[socket.socket], host: OperatorHost) -> None:
        await serve_directip(
            sockets,
            host.take_in,
            host.record_modem_session,
            count_session=host.count_session,
            allowed_networks=settings["directip-allow"] or LOOPBACK_NETWORKS,
            note_fault=host.note_fault,
        )

    return MoListener(listeners, serve)


def _find_faults(settings: Own) -> list[str]:
    if settings["directip-listen"] is None or settings["directip-allow"]:
        return []
    host, _ = settings["directip-listen"]
    if is_in(host, LOOPBACK_NETWORKS):
        return []
    return [
        f"directip-listen is {host}, where anyone can send MO messages in the name of any"
        " device: set directip-allow to the addresses of the operator's gateways"
    ]


KIND = OperatorKind(
    "directip",
    "DirectIP",
    "Iridium's own gateway, by SBD DirectIP",
    keys=(
        Key(
            "directip-listen",
            read_endpoint,
            None,
            "HOST:PORT to which the operator's gateway sends MO messages",
        ),
        Key(
            "directip-allow",
            read_networks,
            (),
            "networks of the operator's gateways, such as 192.0.2.0/28 (this machine)",
        ),
        Key(
            "directip-gateway",
            read_endpoint,
            None,
            "HOST:PORT of the operator's gateway for MT messages",
        ),
    ),
    caller=_make_caller,
    failures=DIRECTIP,
    examples={
        "directip-listen": "127.0.0.1:10800",
        "directip-allow": "192.0.2.0/28",
        "directip-gateway": "gateway.example.org:10800",
    },
    faults=_find_faults,
    listen=_listen,
)
