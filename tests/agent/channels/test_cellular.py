"""The driver and a real hub's end over real TLS sockets with a faulty wire, in virtual time.

The tests count on the hub's disk and in the answers to the caller.
"""

from __future__ import annotations

import json
import random
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels import cellular
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.healing import Healing, HealingStep
from fieldagent.agent.channels.healing_steps import Healer, run_command
from fieldagent.agent.channels.hub_connection import HubAddress
from fieldagent.agent.channels.kit_notes import KitNotes
from fieldagent.http.link_session import ANSWER_TIMEOUT_S
from fieldagent.http.message import Request, Response
from fieldagent.hub.records.lease import Lease
from fieldagent.package.package import Channel, Data, Message, Status
from fieldagent.package.reading import ITEM_BYTES_MAX
from fieldagent.wire import link as link_protocol
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.link import BODY_BYTES
from tests.agent.channels.contract import Checked
from tests.http.serving import serving
from tests.hub.memory_mailbox import TOKEN, MemoryHub
from tests.hub.serving import CA, STRANGER, Wire, hub_end, server_tls, wired
from tests.kit import RATES, Kit, fail_after, kit
from tests.processes import until_async

START = 1_790_000_000

BLOB = bytes(ITEM_BYTES_MAX)
"""Maximum size of a Package, a little more than a message contains."""


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """All ends run in this process, so real waits are short."""
    return trio.testing.MockClock(request.param, autojump_threshold=0)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    CA.cert_pem.write_to_path(str(path))
    return path


@asynccontextmanager
async def agent(
    path: Path,
    hub: HubAddress,
    *,
    ping: float | None = 300,
    recovery: Healing | None = None,
    **how: Any,
) -> AsyncIterator[Kit]:
    """Run the agent's core with the real driver. At the end of the block its power fails."""
    async with kit(path, Channel.CELLULAR, **how) as k, trio.open_nursery() as nursery:
        heal: Callable[[float | None], Awaitable[bool]] = cellular.forbid_healing_since
        if recovery is not None:
            heal = Healer(recovery, k.outbox.link, path, k.journal.clock.now).run_due_step_since
        nursery.start_soon(
            partial(
                cellular.run,
                hub,
                Checked(k.outbox, in_flight=link_protocol.WINDOW),
                k.reception,
                k.outbox.link,
                KitNotes(path, {}),
                random=random.Random(1),
                ping=ping,
                heal=heal,
            )
        )
        yield k
        nursery.cancel_scope.cancel()


def over(wire: Wire, ca: Path, **how: Any) -> HubAddress:
    return replace(HubAddress(f"https://127.0.0.1:{wire.port}", TOKEN, ca), **how)


async def outcome(k: Kit, id_: int, within: float = 900) -> Status | None:
    with fail_after(within):
        return (await k.endings.wait_for_outcome(k.standing(id_).sequence)).status


async def until(condition: Any, within: float = 900) -> None:
    with fail_after(within):
        while not condition():
            await trio.sleep(2)


async def ready(k: Kit) -> None:
    await until(lambda: k.outbox.link.state is LinkState.READY)


def messages(k: Kit) -> list[str]:
    """Return the texts that were spooled for the hooks."""
    rows = k.journal.read("SELECT body FROM inbound ORDER BY rowid")
    return [json.loads(body)["payloads"][0]["events"][0]["content"] for (body,) in rows]


def mail(sequence: int, content: str) -> bytes:
    return encode([Entry(sequence, Message(content), START)])


# Normal operation.


async def test_package_is_delivered_to_hub_over_ip(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert hub.mailbox.contents == ["hello"]
        assert k.outbox.link.state is LinkState.READY
        assert k.outbox.link.facts["hub"] == f"https://127.0.0.1:{wire.port}"
        assert k.outbox.link.last_success is not None
        assert k.outbox.budget.get_spent().credits == 0
        assert k.outbox.budget.get_spent().bytes == len(hub.mailbox.copies[0])


async def test_messages_of_hub_are_stored_and_acknowledged(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        hub.mailbox.put(mail(1, "early"))
        await until(lambda: len(hub.mailbox.delivered) == 1)
        for number in range(2, 20):
            hub.mailbox.put(mail(number, f"note {number}"))
        await until(lambda: len(hub.mailbox.delivered) == 19)
        assert messages(k) == ["early", *(f"note {n}" for n in range(2, 20))]
        assert hub.mailbox.loaded == []


@pytest.mark.full
async def test_many_messages_are_delivered_in_both_directions(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        ids = [await k.post(message={"content": str(n)}, priority=n % 7) for n in range(200)]
        for number in range(200):
            hub.mailbox.put(mail(number, str(number)))
        for id_ in ids:
            assert await outcome(k, id_) is Status.DELIVERED
        await until(lambda: len(hub.mailbox.delivered) == 200)
        assert sorted(map(int, hub.mailbox.contents)) == list(range(200))
        assert messages(k) == [str(n) for n in range(200)]
        assert hub.links == 1


async def test_largest_package_fits_in_one_link_message(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        id_ = await k.post(data={"payload": b64encode(BLOB).decode()})
        assert await outcome(k, id_) is Status.DELIVERED
        assert hub.mailbox.contents == [Data(BLOB)]
        assert [len(copy) <= BODY_BYTES for copy in hub.mailbox.copies] == [True]


async def test_envelopes_over_tls_need_no_tag(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), keys=[bytes(32)]) as k:
        assert await outcome(k, await k.post()) is Status.DELIVERED
        assert hub.mailbox.copies == [encode([Entry(k.sequence(), Message("hello"), START)])]
        hub.mailbox.put(mail(1, "untagged"))
        await until(lambda: messages(k) == ["untagged"])


async def test_hub_on_same_machine_is_used_without_tls(tmp_path: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub, tls=None) as wire:
        here = HubAddress(f"http://127.0.0.1:{wire.port}", TOKEN)
        async with agent(tmp_path, here) as k:
            assert await outcome(k, await k.post()) is Status.DELIVERED


# Faults on the way.

CUTS = [0, 1, 300, 600, 900, 1200, 1500, 1700, 1750, 1800, 1850, 1900, 2000, 2500, 9000, 70_000]


@pytest.mark.parametrize(
    "after",
    [pytest.param(each, marks=() if each in CUTS[::4] else pytest.mark.full) for each in CUTS],
)
@pytest.mark.parametrize("side", ["cut_up", "cut_down"])
async def test_link_cut_at_any_byte_loses_and_repeats_nothing(
    tmp_path: Path, ca: Path, clock: Any, side: str, after: int
) -> None:
    """Cut the link after that many bytes, in a handshake, hello, message or acknowledgement. Each
    message still arrives once.
    """
    hub = MemoryHub()
    for number in range(5):
        hub.mailbox.put(mail(number, f"down {number}"))
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        setattr(wire, side, after)
        texts = [f"up {n} " + "x" * 5000 for n in range(20)]
        ids = [await k.post(message={"content": text}) for text in texts]
        for id_ in ids:
            assert await outcome(k, id_) is Status.DELIVERED
        await until(lambda: len(hub.mailbox.delivered) == 5)
        assert sorted(hub.mailbox.contents) == sorted(texts)
        assert messages(k) == [f"down {n}" for n in range(5)]
        assert hub.mailbox.loaded == []


@pytest.mark.full
async def test_repeated_link_drops_lose_and_repeat_nothing(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    dice = random.Random(4)
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        wire.next_cuts = lambda: (dice.randrange(1500, 30_000), dice.randrange(2000, 9000))
        wire.cut_up, wire.cut_down = wire.next_cuts()
        ids = [await k.post(message={"content": str(n) + "x" * 900}) for n in range(300)]
        for number in range(100):
            hub.mailbox.put(mail(number, str(number)))
        for id_ in ids:
            assert await outcome(k, id_, within=7200) is Status.DELIVERED
        await until(lambda: len(hub.mailbox.delivered) == 100)
        assert wire.connections > 10
        assert sorted(int(c.rstrip("x")) for c in hub.mailbox.contents) == list(range(300))
        assert sorted(map(int, messages(k))) == list(range(100))


async def test_unacknowledged_messages_are_repeated_unchanged_after_reconnect(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        await ready(k)
        wire.deaf = True
        id_ = await k.post()
        await until(lambda: len(hub.mailbox.copies) == 1)
        later = await k.post(message={"content": "later"})
        await until(lambda: len(hub.mailbox.copies) == 2)
        wire.cut()
        wire.deaf = False
        await outcome(k, later)
        assert k.status(id_) is Status.DELIVERED
        first, second = hub.mailbox.copies[:2]
        assert hub.mailbox.copies == [first, second, first, second]
        assert hub.mailbox.contents == ["hello", "later"]


async def test_message_of_hub_is_stored_once_after_lost_acknowledgement(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        await ready(k)
        wire.cut_up = 1  # the first byte of the acknowledgement
        hub.mailbox.put(mail(1, "once"))
        await until(lambda: len(hub.mailbox.delivered) == 1)
        assert len(hub.mailbox.reasons) == 1
        assert messages(k) == ["once"]


async def test_power_cut_with_messages_in_flight_loses_and_repeats_nothing(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire:
        async with agent(tmp_path, over(wire, ca)) as k:
            await ready(k)
            wire.deaf = True
            ids = [await k.post(message={"content": str(n)}) for n in range(10)]
            await until(lambda: hub.mailbox.copies)
        wire.deaf = False
        async with agent(tmp_path, over(wire, ca)) as k:
            for id_ in ids:
                assert await outcome(k, id_) is Status.DELIVERED
        assert sorted(map(int, hub.mailbox.contents)) == list(range(10))


async def test_agent_reconnects_after_hub_restart(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    stuck = trio.Event()

    async def never() -> None:
        stuck.set()
        await trio.sleep_forever()

    async with hub_end(hub) as port, trio.open_nursery() as nursery:
        wire = Wire(port)
        await nursery.start(wire.run)
        async with agent(tmp_path, over(wire, ca)) as k:
            await ready(k)
            async with hub_end(hub) as other:
                wire.to = other
                wire.cut()
                await until(lambda: hub.links == 2)
                id_ = await k.post()
                await outcome(k, id_)
                hub.mailbox.put(mail(1, "down"))
                await until(lambda: len(hub.mailbox.delivered) == 1)
            await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
            assert "1001" in k.outbox.link.reason or "stops" in k.outbox.link.reason
            wire.to = port
            again = await k.post(message={"content": "again"})
            assert await outcome(k, again) is Status.DELIVERED
        nursery.cancel_scope.cancel()
    assert hub.mailbox.contents == ["hello", "again"]


async def test_package_is_delivered_only_after_commit_of_hub(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    """The acknowledgement comes after the commit, or never."""
    hub = MemoryHub()
    taken, disk = trio.Event(), trio.Event()

    async def slow_disk() -> None:
        taken.set()
        await disk.wait()

    hub.mailbox.before_disk = slow_disk
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        id_ = await k.post()
        await taken.wait()
        await trio.sleep(5)
        assert k.status(id_) is None
        disk.set()
        assert await outcome(k, id_) is Status.DELIVERED
        assert hub.mailbox.contents == ["hello"]


@pytest.mark.parametrize("how", ["held", "deaf"])
@pytest.mark.parametrize("busy", [True, False])
async def test_half_open_link_is_closed_and_reopened(
    tmp_path: Path, ca: Path, clock: Any, how: str, busy: bool
) -> None:
    """Half-open: the connection does not end, but no data arrives."""
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), ping=60) as k:
        await ready(k)
        await trio.sleep(1)
        setattr(wire, how, True)
        began = trio.current_time()
        id_ = await k.post() if busy else None
        await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
        waited = trio.current_time() - began
        assert "acknowledged" in k.outbox.link.reason
        assert waited < (0 if busy else 60) + ANSWER_TIMEOUT_S + 5
        setattr(wire, how, False)
        await ready(k)
        assert await outcome(k, id_ or await k.post()) is Status.DELIVERED
        assert hub.mailbox.contents == ["hello"]


async def test_hub_closes_link_of_agent_without_pings(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), ping=60) as k:
        await ready(k)
        wire.held = True
        await until(lambda: not hub.linked, within=2 * 60 + ANSWER_TIMEOUT_S + 30)


async def test_idle_link_stays_open_with_few_bytes(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), ping=600) as k:
        await ready(k)
        await trio.sleep(10)
        up, down = wire.up, wire.down
        await trio.sleep(2 * 3600)
        pings = 2 * 6
        assert wire.connections == 1
        assert k.outbox.link.state is LinkState.READY
        # 2 + 4 + 5 bytes and a record of TLS 1.3 (22) up, without the mask down.
        assert 0 < wire.up - up <= pings * (22 + 11)
        assert 0 < wire.down - down <= pings * (22 + 7)


async def test_ping_interval_of_zero_sends_no_pings(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), ping=0) as k:
        await ready(k)
        await trio.sleep(10)
        up = wire.up
        await trio.sleep(3600)
        assert wire.up == up
        assert wire.connections == 1


@pytest.mark.full
async def test_ping_interval_adapts_to_proxy_that_cuts_idle_links(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), ping=None) as k:
        wire.idle_max = 60
        await ready(k)
        await trio.sleep(1800)
        said = "something in the network cuts idle links after 60 s: tested every 45 s"
        assert (k.outbox.link.state, k.outbox.link.reason) == (LinkState.READY, said)
        links = wire.connections
        assert links == 3
        await trio.sleep(6 * 3600)
        assert wire.connections == links
        wire.idle_max = inf
        await trio.sleep(25 * 3600)
        assert (k.outbox.link.state, k.outbox.link.reason) == (LinkState.READY, "")
        assert await outcome(k, await k.post()) is Status.DELIVERED
        up = wire.up
        await trio.sleep(3600)
        assert wire.up - up <= 13 * (22 + 11)


async def test_configured_ping_interval_stays_and_cuts_are_reported(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        wire.idle_max = 60
        await until(lambda: wire.connections >= 5)
        await ready(k)
        assert "after 60 s: remove cellular-ping, or set it to 45" in k.outbox.link.reason


# Order.


async def test_sos_overtakes_bulk_data(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        await ready(k)
        wire.deaf = True
        for number in range(40):
            await k.post(data={"payload": b64encode(bytes([number]) * 20_000).decode()})
        await trio.sleep(5)
        assert len(hub.mailbox.copies) == 1
        sos = await k.post(message={"content": "help"}, priority=100)
        await until(lambda: len(hub.mailbox.copies) == 2, within=5)
        assert "help" in hub.mailbox.contents
        wire.cut()
        wire.deaf = False
        await outcome(k, sos)
        assert len(k.outbox) > 20


async def test_small_messages_leave_window_slot_for_sos(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        await ready(k)
        wire.deaf = True
        for number in range(10):
            await k.post(message={"content": str(number)})
            await trio.sleep(1)
        assert hub.mailbox.contents == ["0", "1", "2"]
        await k.post(message={"content": "help"}, priority=100)
        await until(lambda: "help" in hub.mailbox.contents, within=5)


async def test_sos_is_sent_before_unacknowledged_messages_after_reconnect(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        await ready(k)
        wire.deaf = True
        await k.post(message={"content": "bulk" * 9000})
        await until(lambda: len(hub.mailbox.copies) == 1)
        wire.to, real = 1, wire.to
        wire.cut()
        await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
        sos = await k.post(message={"content": "help"}, priority=100)
        wire.to, wire.deaf = real, False
        await outcome(k, sos, within=cellular.URGENT_PAUSE_S * 3)
        await until(lambda: len(hub.mailbox.copies) == 3)
        assert len(hub.mailbox.copies[1]) < 100
        assert hub.mailbox.copies[2] == hub.mailbox.copies[0]


# The identity of the other end, and messages to the user.


async def test_wrong_token_is_reported_and_retried_slowly(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca, token="wrong")) as k:
        id_ = await k.post()
        await until(lambda: k.outbox.link.state is LinkState.FAULT)
        assert k.outbox.link.reason == "the hub refuses the token: correct hub-token"
        assert hub.asked[0] == "wrong"
        await trio.sleep(600)
        assert len(hub.asked) < 40
        assert k.status(id_) is None
        hub.tokens["wrong"] = hub.tokens[TOKEN]
        assert await outcome(k, id_) is Status.DELIVERED


DISTRUST = {
    "another authority": (server_tls(STRANGER), "is not trusted.*set hub-ca-file"),
    "another name": (server_tls(CA, "hub.example.org"), "is not trusted.*mismatch"),
}


@pytest.mark.parametrize("case", DISTRUST)
async def test_untrusted_certificate_is_reported_and_token_is_not_sent(
    tmp_path: Path, ca: Path, clock: Any, case: str
) -> None:
    tls, said = DISTRUST[case]
    hub = MemoryHub()
    async with wired(hub, tls) as wire, agent(tmp_path, over(wire, ca)) as k:
        await k.post()
        await until(lambda: k.outbox.link.state is LinkState.FAULT)
        assert re.search(said, k.outbox.link.reason)
        await trio.sleep(300)
        assert hub.asked == []


async def test_fault_of_expired_certificate_mentions_clock(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1", not_after=datetime(2020, 1, 1, tzinfo=UTC)).configure_cert(tls)
    hub = MemoryHub()
    async with wired(hub, tls) as wire, agent(tmp_path, over(wire, ca)) as k:
        await until(lambda: k.outbox.link.state is LinkState.FAULT)
        assert "clock" in k.outbox.link.reason


async def test_hub_of_private_authority_is_not_trusted_without_ca_file(
    tmp_path: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire:
        there = HubAddress(f"https://127.0.0.1:{wire.port}", TOKEN)
        async with agent(tmp_path, there) as k:
            await until(lambda: k.outbox.link.state is LinkState.FAULT)
            assert "set hub-ca-file" in k.outbox.link.reason
            assert hub.asked == []


@pytest.mark.parametrize(("content", "said"), [(None, "No such file"), ("x", "no certificate")])
async def test_unusable_ca_file_is_reported_with_path(
    tmp_path: Path, clock: Any, content: str | None, said: str
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    async with agent(tmp_path, HubAddress("https://127.0.0.1:1", TOKEN, path)) as k:
        await until(lambda: k.outbox.link.state is LinkState.FAULT)
        assert said in k.outbox.link.reason
        assert str(path) in k.outbox.link.reason


@pytest.mark.parametrize(
    ("status", "state", "said"),
    [
        (200, LinkState.FAULT, "no hub answers at hub-address"),
        (302, LinkState.FAULT, "no hub answers at hub-address"),
        (403, LinkState.FAULT, "HTTP 403"),
        (404, LinkState.FAULT, "HTTP 404"),
        (426, LinkState.FAULT, "proxy must pass WebSockets at /link"),
        (429, LinkState.NO_SERVICE, "cannot take the link now"),
        (503, LinkState.NO_SERVICE, "cannot take the link now"),
    ],
)
async def test_http_status_of_other_server_sets_link_state(
    tmp_path: Path, clock: Any, status: int, state: LinkState, said: str
) -> None:
    async def portal(request: Request) -> Response:
        return Response(status, b"<html>", content_type="text/html")

    async with (
        serving(portal, guarded=False) as server,
        agent(tmp_path, HubAddress(f"http://127.0.0.1:{server.port}", TOKEN)) as k,
    ):
        await until(lambda: k.outbox.link.state is state)
        assert said in k.outbox.link.reason


@pytest.mark.parametrize("speech", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 400 Bad\r\n\r\n", b""])
@pytest.mark.parametrize("secure", [True, False])
async def test_peer_with_other_protocol_is_reported(
    tmp_path: Path, ca: Path, clock: Any, speech: bytes, secure: bool
) -> None:
    async def speak(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(speech)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, speak, listeners)
        port = listeners[0].socket.getsockname()[1]
        there = HubAddress(f"http{'s' * secure}://127.0.0.1:{port}", TOKEN, ca)
        async with agent(tmp_path, there) as k:
            await until(lambda: k.outbox.link.reason)
            broken = LinkState.NO_SERVICE if not speech else LinkState.FAULT
            assert k.outbox.link.state is broken, k.outbox.link.reason
        nursery.cancel_scope.cancel()


async def test_refused_connection_is_reported(tmp_path: Path, clock: Any) -> None:
    async with agent(tmp_path, HubAddress("https://127.0.0.1:1", TOKEN)) as k:
        await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
        assert k.outbox.link.reason == "127.0.0.1: connection refused"


async def test_unknown_host_name_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    async def nowhere(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(trio.socket, "getaddrinfo", nowhere)
    async with agent(tmp_path, HubAddress("https://hub.example.org", TOKEN)) as k:
        await until(lambda: k.outbox.link.state is LinkState.NO_SERVICE)
        assert "hub.example.org is not found" in k.outbox.link.reason


async def test_second_agent_with_same_token_is_reported(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    (tmp_path / "other").mkdir()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)) as k:
        await ready(k)
        async with agent(tmp_path / "other", over(wire, ca)) as other:
            await ready(other)
            await until(lambda: k.outbox.link.state is LinkState.FAULT)
            assert "another agent uses this token" in k.outbox.link.reason
            before = hub.links
            await trio.sleep(3600)
            assert hub.links - before < 200
        await ready(k)


async def test_link_without_common_version_is_reported(
    tmp_path: Path, ca: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = link_protocol.LinkHello
    monkeypatch.setattr(
        "fieldagent.http.link_session.LinkHello",
        lambda features, silence, journal: hello(3 - silence, 3 - silence),
    )
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), ping=1) as k:
        await until(lambda: k.outbox.link.state is LinkState.FAULT)
        assert "update the older one" in k.outbox.link.reason


# Interfaces.


async def test_link_is_bound_to_interface(tmp_path: Path, ca: Path, clock: Any) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca, interface="lo")) as k:
        assert await outcome(k, await k.post()) is Status.DELIVERED


async def test_missing_interface_is_not_replaced_by_another(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca, interface="nosuch0")) as k:
        await k.post()
        await until(lambda: k.outbox.link.state is LinkState.ABSENT)
        assert "interface nosuch0 not found" in k.outbox.link.reason
        await trio.sleep(600)
        assert wire.connections == 0


async def test_failed_binding_to_interface_is_reported(
    tmp_path: Path, ca: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "SO_BINDTODEVICE", 10_000)  # ENOPROTOOPT
    hub = MemoryHub()
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca, interface="lo")) as k:
        await until(lambda: k.outbox.link.state is LinkState.FAULT)
        assert "cannot bind to lo" in k.outbox.link.reason
        assert wire.connections == 0


# Patience.


async def test_hub_that_drops_links_is_retried_with_random_pauses(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub = MemoryHub()
    times: list[float] = []

    @asynccontextmanager
    async def drop(device: Any) -> AsyncIterator[Lease]:
        times.append(trio.current_time())
        raise RuntimeError("as a test")
        yield Lease()

    hub.connected = drop  # type: ignore[method-assign]
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca)):
        await trio.sleep(3600)
    pauses = [after - before for before, after in pairwise(times)]
    assert 60 < len(pauses) < 240
    assert max(pauses) <= cellular.PAUSE_MAX + 1
    assert len({round(pause, 2) for pause in pauses}) > 50


async def test_reconnects_of_thousand_agents_are_spread_over_time(tmp_path: Path) -> None:
    first = [random.Random(n).uniform(0.05, 1) * cellular.PAUSE_FIRST for n in range(1000)]
    busiest = max(sum(at <= pause < at + 0.1 for pause in first) for at in first)
    assert busiest < 60


def command(text: str, after: float) -> Healing:
    return Healing("cellular", "", (HealingStep("command"),), text, after, after)


async def test_recovery_command_runs_while_hub_is_unreachable(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub, ran = MemoryHub(), tmp_path / "ran"
    recovery = command(f"echo once >>{ran}", after=300)
    async with wired(hub) as wire, agent(tmp_path, over(wire, ca), recovery=recovery) as k:
        await ready(k)
        await trio.sleep(900)
        assert not ran.exists()
        wire.to, real = 1, wire.to
        wire.cut()
        await trio.sleep(250)
        assert not ran.exists()
        await until(ran.exists, within=150)
        await trio.sleep(900)
        assert 2 <= len(ran.read_text().splitlines()) <= 4
        wire.to = real
        await ready(k)


async def test_recovery_command_does_not_run_for_wrong_token(
    tmp_path: Path, ca: Path, clock: Any
) -> None:
    hub, ran = MemoryHub(), tmp_path / "ran"
    recovery = command(f"touch {ran}", after=60)
    wrong = partial(over, token="wrong")
    async with wired(hub) as wire, agent(tmp_path, wrong(wire, ca), recovery=recovery):
        await trio.sleep(3600)
        assert len(hub.asked) > 10
        assert not ran.exists()


def runs(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and ") Z " not in stat.read_text()


async def test_hanging_recovery_command_is_killed_with_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldagent.agent.channels.healing_steps.DEADLINE_S", 0.5)
    monkeypatch.setattr("fieldagent.system.signals.GRACE_S", 0.5)
    mark = tmp_path / "child"
    await run_command(
        "cellular-recovery-command",
        f"trap '' TERM; sh -c 'echo $$ >{mark}; exec sleep 600' & sleep 600",
    )
    await until_async(lambda: not runs(int(mark.read_text())))  # SIGKILL takes a moment


@pytest.mark.parametrize(
    ("command", "said"),
    [("exit 3", "exit 3"), ("no-such-command-here", "exit 127"), ("a\0", "not")],
)
async def test_failed_recovery_command_is_logged(
    command: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    await run_command("cellular-recovery-command", command)
    assert said in caplog.text
