"""The hub's end of the link, tested with a third-party WebSocket client.

Without TLS: that client reads and writes one connection in two threads, which OpenSSL does not
support. The driver's tests cover TLS.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import cbor2
import pytest
import trio
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from fieldagent.http.routes import make_router
from fieldagent.hub.contract import Device
from fieldagent.hub.field.ip_link import Links
from fieldagent.package.package import Message
from fieldagent.store.group import StoreFull, StoreUnavailable
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.link import BODY_BYTES, NOTES, WINDOW, Close
from tests.http.serving import HOST, header, serving
from tests.hub.memory_mailbox import DEVICE, TOKEN, MemoryHub, MemoryMailbox
from tests.hub.serving import hub_end
from tests.processes import PATIENCE, until_async

HELLO = [0, 1, 1, 0, BODY_BYTES, WINDOW, 0]
"""Hello of an agent that accepts no notes."""
OURS = [0, 1, 1, NOTES, BODY_BYTES, WINDOW, 0]


def encode_note(number: int) -> bytes:
    return encode([Entry(number, Message(f"note {number}"), 1_790_000_000)])


class Client:
    """A client with threads, whose waits all have a limit."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, *message: Any) -> None:
        await self.send_raw(cbor2.dumps(list(message)))

    async def send_raw(self, message: bytes | str | list[bytes]) -> None:
        await trio.to_thread.run_sync(self.socket.send, message)

    async def receive(self) -> Any:
        message = await trio.to_thread.run_sync(lambda: self.socket.recv(timeout=PATIENCE))
        assert isinstance(message, bytes)
        return cbor2.loads(message)

    async def closed(self) -> tuple[int, str]:
        try:
            while True:
                await self.receive()
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return closed.rcvd.code, closed.rcvd.reason


@asynccontextmanager
async def connected_client(port: int, token: str = TOKEN) -> AsyncIterator[Client]:
    """Yield a connected client that has got the hub's hello and has not sent its own."""
    with ExitStack() as stack:

        def dial() -> ClientConnection:
            where = f"ws://127.0.0.1:{port}/link"
            who = {"Authorization": f"Bearer {token}"}
            how = connect(where, additional_headers=who, close_timeout=5)
            return stack.enter_context(how)

        peer = Client(await trio.to_thread.run_sync(dial))
        try:
            assert await peer.receive() == OURS
            yield peer
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(stack.close)


async def test_messages_are_acknowledged_only_after_storage() -> None:
    hub = MemoryHub()
    disk = trio.Event()
    hub.mailbox.before_disk = disk.wait
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        for number in (1, 2, 3):
            await peer.send(1, number, encode_note(number))
        await peer.send(1, 4)
        assert hub.mailbox.copies == []
        disk.set()
        assert [await peer.receive() for _ in range(4)] == [[2, 1], [2, 2], [2, 3], [2, 4]]
        assert hub.mailbox.contents == ["note 1", "note 2", "note 3"]


async def test_mail_is_sent_within_the_window_and_ends_when_acknowledged() -> None:
    hub = MemoryHub()
    for number in range(1, 8):
        hub.mailbox.put(encode_note(number))
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        first = [await peer.receive() for _ in range(WINDOW - 1)]
        assert first == [[1, n, encode_note(n)] for n in range(1, WINDOW)]
        assert hub.mailbox.delivered == []
        await peer.send(2, 2)
        assert await peer.receive() == [1, 4, encode_note(4)]
        assert await peer.receive() == [1, 5, encode_note(5)]
        assert hub.mailbox.delivered == [encode_note(1), encode_note(2)]
    await until_async(lambda: len(hub.mailbox.reasons) == 3)
    assert [outgoing.body for outgoing in hub.mailbox.waiting] == [
        encode_note(n) for n in range(3, 8)
    ]
    assert hub.mailbox.loaded == []


async def test_new_mail_is_sent_over_an_idle_link() -> None:
    hub = MemoryHub()
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        for number in (1, 2):
            hub.mailbox.put(encode_note(number))
            assert await peer.receive() == [1, number, encode_note(number)]
            await peer.send(2, number)
        await until_async(lambda: len(hub.mailbox.delivered) == 2)


async def test_notes_are_exchanged_only_with_an_agent_that_supports_them() -> None:
    hub = MemoryHub()
    hub.mailbox.to_tell.append(b"an offer")
    async with hub_end(hub, tls=None) as port:
        async with connected_client(port) as older:
            await older.send(*HELLO)
            await older.send(3, b"skipped")
            await older.send(1, 1, encode_note(1))
            assert await older.receive() == [2, 1]
        assert (hub.mailbox.to_tell, hub.mailbox.notes) == ([b"an offer"], [])
        async with connected_client(port) as newer:
            await newer.send(*OURS)
            assert await newer.receive() == [3, b"an offer"]
            await newer.send(3, b"a report")
            await until_async(lambda: hub.mailbox.notes == [b"a report"])


async def test_fragmented_websocket_message_is_joined() -> None:
    hub = MemoryHub()
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        whole = cbor2.dumps([1, 1, encode_note(1)])
        await peer.send_raw([whole[:1], b"", whole[1:9], whole[9:]])
        assert await peer.receive() == [2, 1]
        assert hub.mailbox.contents == ["note 1"]


async def test_websocket_pings_are_answered() -> None:
    hub = MemoryHub()
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        answered = peer.socket.ping()
        assert await trio.to_thread.run_sync(answered.wait, 20)


FAULTS: dict[str, tuple[list[bytes | str], int]] = {
    "text": (["hello"], 1003),
    "no CBOR": ([b"\xff"], Close.PROTOCOL_ERROR),
    "no hello": ([cbor2.dumps([1, 1])], Close.PROTOCOL_ERROR),
    "another version": ([cbor2.dumps([0, 2, 3, *HELLO[3:]])], Close.NO_COMMON_VERSION),
    "a gap": ([cbor2.dumps(HELLO), cbor2.dumps([1, 2])], Close.PROTOCOL_ERROR),
    "too large": ([cbor2.dumps(HELLO), bytes(BODY_BYTES + 17)], 1009),
    "acknowledged what was not sent": (
        [cbor2.dumps(HELLO), cbor2.dumps([2, 1])],
        Close.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_protocol_fault_closes_the_link_with_a_reason(name: str) -> None:
    messages, code = FAULTS[name]
    hub = MemoryHub()
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        for message in messages:
            await peer.send_raw(message)
        said, reason = await peer.closed()
        assert said == code
        assert reason
        assert hub.mailbox.copies == []
    await until_async(lambda: not hub.linked)


async def test_damaged_body_is_acknowledged_and_passed_to_the_mailbox() -> None:
    """The link only carries bytes: a bad message must not come again forever."""
    taken: list[bytes] = []

    class Tolerant(MemoryMailbox):
        async def store_body(self, body: bytes) -> None:
            taken.append(body)

    hub = MemoryHub(Tolerant())
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        await peer.send(1, 1, b"\xffgarbage")
        assert await peer.receive() == [2, 1]
        assert taken == [b"\xffgarbage"]


async def test_newer_link_replaces_the_older_and_gets_its_mail() -> None:
    hub = MemoryHub()
    hub.mailbox.put(encode_note(1))
    async with hub_end(hub, tls=None) as port, connected_client(port) as older:
        await older.send(*HELLO)
        assert await older.receive() == [1, 1, encode_note(1)]
        async with connected_client(port) as newer:
            await newer.send(*HELLO)
            assert (await older.closed())[0] == Close.REPLACED
            assert await newer.receive() == [1, 1, encode_note(1)]
            await newer.send(2, 1)
            await until_async(lambda: hub.mailbox.delivered == [encode_note(1)])


async def test_link_of_a_device_without_permission_is_closed_at_once() -> None:
    hub = MemoryHub()
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        await until_async(lambda: hub.linked)
        del hub.tokens[TOKEN]
        hub.linked[0].lost.set()
        assert (await peer.closed())[0] == Close.POLICY


async def test_link_is_closed_for_retry_when_the_database_is_lost() -> None:
    class Stranded(MemoryHub):
        async def authenticate(self, token: str) -> Device:
            if self.linked:
                raise StoreUnavailable("as a test")
            return await super().authenticate(token)

    hub = Stranded()
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        await until_async(lambda: hub.linked)
        hub.linked[0].lost.set()
        assert (await peer.closed())[0] == Close.TRY_AGAIN


async def test_lease_that_cannot_be_renewed_closes_the_link_for_retry() -> None:
    """The database has returned by the time of the next check of the lease."""
    hub = MemoryHub()
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        await until_async(lambda: hub.linked)
        hub.linked[0].stranded = "as a test"
        hub.linked[0].lost.set()
        assert (await peer.closed())[0] == Close.TRY_AGAIN


@pytest.mark.parametrize("trouble", [StoreUnavailable, StoreFull])
async def test_failed_storage_closes_the_link_for_retry(trouble: type[Exception]) -> None:
    hub = MemoryHub()

    async def no_disk() -> None:
        raise trouble("as a test")

    hub.mailbox.before_disk = no_disk
    async with hub_end(hub, tls=None) as port, connected_client(port) as peer:
        await peer.send(*HELLO)
        await peer.send(1, 1, encode_note(1))
        code, reason = await peer.closed()
        assert (code, reason) == (Close.TRY_AGAIN, "the hub cannot use its database now")


async def test_stopping_hub_closes_its_links_with_going_away() -> None:
    hub = MemoryHub()
    ended: list[tuple[int, str]] = []

    async def link(port: int, linked: trio.Event) -> None:
        async with connected_client(port) as peer:
            await peer.send(*HELLO)
            linked.set()
            ended.append(await peer.closed())

    async with trio.open_nursery() as nursery, hub_end(hub, tls=None) as port:
        linked = trio.Event()
        nursery.start_soon(link, port, linked)
        await linked.wait()
    assert ended == [(Close.GOING_AWAY, "this end stops")]
    assert hub.linked == []


async def test_unknown_token_is_rejected_with_401() -> None:
    hub = MemoryHub()
    async with hub_end(hub, tls=None) as port:
        with pytest.raises(InvalidStatus) as refused:
            async with connected_client(port, "unknown"):
                pass
    response = refused.value.response
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert hub.links == 0


UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
GOOD = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
REQUESTS: dict[str, tuple[bytes, int]] = {
    "no token": (UPGRADE + KEY, 401),
    "an empty token": (b"Authorization: Bearer \r\n" + UPGRADE + KEY, 401),
    "Basic": (b"Authorization: Basic dTpw\r\n" + UPGRADE + KEY, 401),
    "two tokens": (GOOD + GOOD + UPGRADE + KEY, 401),
    "another token": (b"Authorization: Bearer other\r\n" + UPGRADE + KEY, 401),
    "no upgrade": (GOOD, 426),
    "another protocol": (GOOD + UPGRADE.replace(b"websocket", b"h2c") + KEY, 426),
    "no key": (GOOD + UPGRADE, 400),
    "two keys": (GOOD + UPGRADE + KEY + KEY, 400),
    "an old version": (GOOD + UPGRADE + KEY.replace(b"13", b"8"), 400),
    "no header of ASCII": (GOOD + UPGRADE.replace(b"Upgrade:", b"Upgrade: \xe9,") + KEY, 400),
} | {
    f"a long {line.partition(b':')[0].decode()}": (GOOD + UPGRADE + KEY[:-2] + long, 431)
    for line in (UPGRADE + KEY).splitlines()
    for long in [b"\r\n" + line + b"," + b"a" * 9_000 + b"\r\n"]
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_invalid_handshake_returns_a_problem_document(name: str) -> None:
    lines, status = REQUESTS[name]
    hub = MemoryHub()
    links = Links(hub.authenticate, lambda device, version: hub.mailbox, hub.connected)
    async with (
        serving(judge=make_router([links.route()]), guarded=False) as server,
        server.client() as client,
    ):
        await client.send(b"GET /link HTTP/1.1\r\n" + HOST + lines + b"\r\n")
        response, body = await client.answer()
        assert response.status_code == status
        assert b'"detail"' in body
        assert header(response, "content-type") == "application/problem+json"
        if status == 426:
            assert header(response, "upgrade") == "websocket"
        assert hub.links == 0


async def test_head_request_opens_no_link() -> None:
    hub = MemoryHub()
    links = Links(hub.authenticate, lambda device, version: hub.mailbox, hub.connected)
    async with (
        serving(judge=make_router([links.route()]), guarded=False) as server,
        server.client() as client,
    ):
        await client.send(b"HEAD /link HTTP/1.1\r\n" + HOST + GOOD + UPGRADE + KEY + b"\r\n")
        response, _ = await client.answer("HEAD")
        assert response.status_code == 405
        assert hub.links == 0


async def test_each_device_has_its_own_mailbox() -> None:
    boxes: dict[int, MemoryMailbox] = {}

    def mailbox(device: Device, version: str) -> MemoryMailbox:
        return boxes.setdefault(device.id, MemoryMailbox(device))

    hub = MemoryHub()
    hub.tokens["other"] = Device(id=8, workspace=1, member=43, name="kit 8")
    links = Links(hub.authenticate, mailbox, hub.connected)
    async with serving(judge=make_router([links.route()]), guarded=False) as server:
        for token in (TOKEN, "other"):
            async with server.client() as client:
                lines = GOOD.replace(TOKEN.encode(), token.encode()) + UPGRADE + KEY
                await client.send(b"GET /link HTTP/1.1\r\n" + HOST + lines + b"\r\n")
                head = await client.stream.receive_some()
                # RFC 6455 1.3 has this key and its answer as an example.
                assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
        await until_async(lambda: boxes.keys() == {DEVICE.id, 8})
