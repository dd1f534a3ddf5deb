"""The hub's two ends of DirectIP, with a gateway at the other end of a socket."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from fieldagent.extensions.lab.simulator.hub_side import HubSide
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.operator.directip import (
    DEADLINE_S,
    DIRECTIP,
    DirectIp,
    receive_elements,
    serve_directip,
)
from fieldagent.hub.operator.failures import FULL_PAUSE_S, Scope
from fieldagent.hub.settings import parse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.wire.directip import DirectIpMo, MoLocation, encode_message, parse_mo_confirmation
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome

IMEI = "300234010000001"


class Gateway:
    """The simulator's gateway, with its output kept."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.rings = 0
        self.queue = MtQueue()
        self.side = HubSide("127.0.0.1", 1, IMEI, self.queue, self.said.append)
        self.port = 0

    def ring(self) -> None:
        self.rings += 1

    async def call(self, body: bytes = b"hello", imei: str = IMEI) -> Verdict:
        return await DirectIp("127.0.0.1", self.port).send(imei, body, number=9, priority=False)


@asynccontextmanager
async def gateway() -> AsyncIterator[Gateway]:
    running = Gateway()
    async with trio.open_nursery() as nursery:
        running.port = await nursery.start(running.side.serve, 0, running.ring)
        yield running
        nursery.cancel_scope.cancel()


async def test_accepted_mt_message_is_sent_and_rings_the_modem() -> None:
    async with gateway() as there:
        assert (await there.call()).outcome is Outcome.SENT
        assert there.queue.get_first() == b"hello"
        assert there.rings == 1


async def test_each_mt_status_has_an_outcome_and_a_reason() -> None:
    """The test covers the statuses of the interface description, and other values of two bytes."""
    async with gateway() as there:
        for status in (*range(-140, 60), -32_768, 32_767):
            there.side.faults.status = status
            verdict = await there.call()
            if 0 <= status <= 50:
                assert verdict == Verdict(Outcome.SENT, waiting=status)
                continue
            assert (verdict.outcome, verdict.waiting) == (Outcome.NOT_SENT, 0)
            assert verdict.failure is not None
            if status in DIRECTIP:
                assert (verdict.failure, verdict.failure.code) == (DIRECTIP[status], str(status))
            else:
                assert f"answered {status}," in verdict.reason
                assert verdict.failure.scope is Scope.GATEWAY


@pytest.mark.parametrize(
    ("body", "imei", "status"), [(b"x" * 271, IMEI, -3), (b"", IMEI, -4), (b"x", "1" * 15, -2)]
)
async def test_gateway_rejects_invalid_mt_messages(body: bytes, imei: str, status: int) -> None:
    async with gateway() as there:
        assert (await there.call(body, imei)).failure == DIRECTIP[status]
        assert len(there.queue) == 0


async def test_full_mt_queue_is_reported_with_a_pause() -> None:
    async with gateway() as there:
        for _ in range(50):
            there.queue.put(b"x")
        failure = (await there.call()).failure
        assert failure is not None
        assert failure.retry_after == FULL_PAUSE_S


async def test_mt_message_without_a_complete_answer_is_doubtful(
    clock: trio.testing.MockClock,
) -> None:
    async with gateway() as there:
        there.side.faults.silent = 1
        assert (await there.call()).outcome is Outcome.DOUBTFUL
        there.side.faults.cut = 1
        assert (await there.call()).outcome is Outcome.DOUBTFUL
        there.side.faults.late = DEADLINE_S - 1
        assert (await there.call()).outcome is Outcome.SENT


async def test_mt_message_to_unreachable_gateway_is_not_sent() -> None:
    (listener,) = open_listeners(0, ["127.0.0.1"])
    port = get_port([listener])
    listener.close()
    verdict = await DirectIp("127.0.0.1", port).send(IMEI, b"x", number=1, priority=True)
    assert verdict.outcome is Outcome.NOT_SENT
    assert str(port) in verdict.reason


class Store:
    """Receives MO messages, and refuses them if the test wants it."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.kept: list[tuple[str, bytes]] = []
        self.seen_at: list[Estimate | None] = []
        self.sessions: list[bool] = []
        self.fail: Exception | None = None

    async def record_modem_session(self, imei: str, *, fetched: bool) -> None:
        assert imei == IMEI
        self.sessions.append(fetched)

    async def take_in(
        self, imei: str, body: bytes, estimate: Estimate | None, *, unusable: str = ""
    ) -> None:
        if self.fail is not None:
            raise self.fail
        (self.kept if unusable else self.taken).append((imei, body))
        self.seen_at.append(estimate)


@dataclass
class Hub:
    port: int

    async def connect(self, address: str = "127.0.0.1") -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port, local_address=address)

    async def __call__(self, raw: bytes, address: str = "127.0.0.1") -> bool:
        """Bring the message from that address. Return True if it was confirmed."""
        async with await self.connect(address) as stream:
            await stream.send_all(raw)
            await stream.send_eof()
            return parse_mo_confirmation(await receive_elements(stream))


@asynccontextmanager
async def listening(store: Store, *allowed: str) -> AsyncIterator[Hub]:
    listeners = open_listeners(0, ["127.0.0.1"])
    networks = [ipaddress.ip_network(each) for each in allowed or ("127.0.0.0/8",)]
    async with trio.open_nursery() as nursery:
        serving = partial(serve_directip, listeners, store.take_in, store.record_modem_session)
        await nursery.start(partial(serving, allowed_networks=networks))
        yield Hub(get_port(listeners))
        nursery.cancel_scope.cancel()


def mo(
    payload: bytes | None = b"body",
    status: int = 0,
    location: MoLocation | None = None,
    mtmsn: int = 0,
) -> bytes:
    return encode_message(DirectIpMo(1, IMEI, status, 7, mtmsn, 1_790_000_000, payload, location))


async def test_ring_alert_alone_sends_no_message() -> None:
    async with gateway() as there:
        assert await DirectIp("127.0.0.1", there.port).ring(IMEI) == Verdict(Outcome.SENT)
        assert (there.rings, len(there.queue)) == (1, 0)


async def test_session_is_reported_only_after_storage_of_its_mo_message() -> None:
    """A failed session, or a session that left a too large message, proves nothing about the
    queue.
    """
    store = Store()
    async with listening(store) as bring:
        for payload, status, mtmsn in (
            (b"body", 0, 5),
            (None, 0, 6),
            (None, 2, 0),
            (b"body", 1, 0),
            (None, 13, 7),
        ):
            assert await bring(mo(payload, status, mtmsn=mtmsn))
        assert store.sessions == [True, True, False]
        store.fail = RuntimeError("as a test")
        assert not await bring(mo(mtmsn=8))
        assert len(store.sessions) == 3


async def test_operator_position_is_passed_on_unless_of_poor_quality() -> None:
    store = Store()
    where = MoLocation(-33.85, 151.2, 3)
    async with listening(store) as bring:
        for status, location in ((0, where), (2, where), (0, None)):
            assert await bring(mo(status=status, location=location)) is True
    assert store.seen_at == [Estimate(-33.85, 151.2, 3), None, None]


async def test_mo_message_is_confirmed_only_after_storage() -> None:
    store = Store()
    async with listening(store) as bring:
        assert await bring(mo()) is True
        assert store.taken == [(IMEI, b"body")]
        assert await bring(mo(None)) is True
        assert len(store.taken) == 1
        store.fail = OSError("the disk is full")
        assert await bring(mo()) is False


@pytest.mark.parametrize("raw", [b"", b"\x01\x00\x50half", b"GET / HTTP/1.1\r\n\r\n", mo()[:-1]])
async def test_invalid_mo_message_is_not_confirmed_and_does_not_block_the_next(raw: bytes) -> None:
    store = Store()
    async with listening(store) as bring:
        with pytest.raises(RemoteProtocolError, match="the connection ended"):
            await bring(raw)
        assert await bring(mo()) is True
        assert store.taken == [(IMEI, b"body")]


async def test_mo_message_is_stored_for_any_session_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The status is only logged. A successful session shows the waiting MT messages."""
    store = Store()
    async with listening(store) as bring:
        for status in range(256):
            assert await bring(mo(b"of %d" % status, status)) is True
            assert await bring(mo(None, status)) is True
            assert await bring(mo(b"", status)) is True
    assert store.taken == [(IMEI, b"of %d" % status) for status in range(256)]
    assert store.sessions == [False] * 6
    for status in range(256):
        line = f"a session of {IMEI} (MOMSN 7) ended with status {status}, "
        assert caplog.text.count(line) == (0 if status <= 2 else 3)


@pytest.mark.parametrize(
    ("damage", "imei"),
    [(lambda raw: raw.replace(IMEI.encode(), b"x" * 15), ""), (lambda raw: raw[:3] + raw[34:], "")],
)
async def test_payload_beside_a_damaged_header_is_stored(
    damage: Callable[[bytes], bytes], imei: str
) -> None:
    store = Store()
    raw = damage(mo())
    async with listening(store) as bring:
        whole = raw[:1] + (len(raw) - 3).to_bytes(2, "big") + raw[3:]
        assert await bring(whole) is True
        assert (store.kept, store.taken) == ([(imei, b"body")], [])
        with pytest.raises(RemoteProtocolError, match="the connection ended"):
            await bring(mo(None).replace(IMEI.encode(), b"x" * 15))


async def test_caller_outside_directip_allow_is_rejected_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    async with listening(store, "127.0.0.8/30") as bring:
        for _ in range(3):
            with pytest.raises((RemoteProtocolError, trio.BrokenResourceError)):
                await bring(mo(), "127.0.0.2")
        assert await bring(mo(), "127.0.0.9") is True
    assert caplog.text.count("127.0.0.2 may not deliver MO messages: directip-allow") == 1
    assert len(store.taken) == 1


async def test_idle_connections_do_not_block_an_mo_message() -> None:
    store = Store()
    async with listening(store) as bring, AsyncExitStack() as stack:
        for _ in range(500):
            await stack.enter_async_context(await bring.connect())
        with trio.fail_after(DEADLINE_S / 3):
            assert await bring(mo()) is True


async def test_many_anonymous_connections_do_not_block_the_gateway() -> None:
    store = Store()
    async with listening(store, "127.0.0.8/30") as bring, AsyncExitStack() as stack:
        for _ in range(500):
            await stack.enter_async_context(await bring.connect("127.0.0.2"))
        with trio.fail_after(DEADLINE_S / 3):
            assert await bring(mo(), "127.0.0.9") is True


async def test_silent_connection_is_closed_after_the_deadline(
    clock: trio.testing.MockClock,
) -> None:
    async with listening(Store()) as bring, await bring.connect() as stream:
        await stream.send_all(mo()[:-1])
        assert await stream.receive_some() == b""
        assert trio.current_time() <= DEADLINE_S + 1


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("directip-listen=127.0.0.1:10800", ""),
        ("directip-listen=[::1]:10800", ""),
        ("directip-listen=0.0.0.0:10800", "set directip-allow to the addresses"),
        ("directip-listen=0.0.0.0:10800\ndirectip-allow=192.0.2.7 2001:db8::/32", ""),
        ("directip-listen=0.0.0.0:10800\ndirectip-allow=somewhere", "must be networks"),
    ],
)
def test_public_directip_listener_needs_directip_allow(lines: str, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) if message else nullcontext():
        parse_settings(lines, Path("hub.properties"))
