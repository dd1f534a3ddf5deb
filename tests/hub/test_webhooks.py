"""Items from agents at the workspace's webhooks: a real receiver, both databases, hostile names."""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import trio
from standardwebhooks import Webhook as Verifier

from fieldagent.http.address import Network
from fieldagent.http.client import RequestFailed
from fieldagent.http.listeners import get_port, open_listeners
from fieldagent.http.message import Request, Response
from fieldagent.http.server import serve
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import ledger
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.webhook import deliveries, flow, webhook_directory, webhooks
from fieldagent.hub.webhook.deliveries import PostResult
from fieldagent.hub.webhook.reach import MULTICAST, SPECIAL_NETWORKS, is_public, open_public
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.package.package import Message
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.webhook.post import post
from fieldagent.webhook.schedule import DELAY_MAX_S, SCHEDULE
from fieldagent.wire.envelope import Entry
from tests.http.serving import anybody
from tests.hub.claiming import claim, claim_runs, settle
from tests.hub.field import START, Field, field_of
from tests.processes import PATIENCE, until_async
from tests.running import running

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]
OPEN = open_public(LOOPBACK)


@dataclass
class Receiver:
    """Answers as the test wants, by default 200, and keeps the posts."""

    url: str = ""
    answers: list[Response] = field(default_factory=list)
    got: list[Request] = field(default_factory=list)
    before_answer: Callable[[Request], Awaitable[None]] | None = None

    async def handle(self, request: Request) -> Response:
        self.got.append(request)
        if self.before_answer is not None:
            await self.before_answer(request)
        return self.answers.pop(0) if self.answers else Response(204)

    def contents(self) -> list[str]:
        return [
            json.loads(request.body)["payloads"][0]["events"][0]["content"] for request in self.got
        ]


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    running = Receiver()
    listeners = open_listeners(0, ["127.0.0.1"])
    running.url = f"http://127.0.0.1:{get_port(listeners)}/hook"
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(serve, anybody(running.handle), listeners, stop_event=trio.Event())
        )
        yield running
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def posting(store: Store, **how: Any) -> AsyncIterator[tuple[Field, Receiver]]:
    """Yield a workspace with the receiver as its only webhook."""
    async with field_of(store) as alps, receiver() as there:
        webhook = Webhook(0, there.url, **{"secrets": (SECRET,), **how})
        await store.commit(lambda db: webhook_directory.add_webhook(db, 1, webhook, now=alps.now))
        yield alps, there


async def turn(alps: Field) -> None:
    """Post everything that is due, each to its end."""
    store, now = alps.store, alps.now
    while runs := await store.commit(lambda db: claim_runs(db, now)):
        for run in runs:
            for at, each in enumerate(run):
                result = await post(
                    each.webhook.url,
                    each.delivery,
                    secrets=each.webhook.secrets,
                    clock=alps.clock,
                    extra=each.webhook.get_extra_headers(),
                    open_stream=OPEN,
                    remedy=webhooks.REMEDY,
                )
                handed = result.outcome is HandoverOutcome.HANDED
                end = PostResult(each, result, now, () if handed else run[at + 1 :])
                await store.commit(partial(deliveries.record_results, ends=[end]))
                if not handed:
                    break


async def list_states(alps: Field) -> list[tuple[Any, ...]]:
    return await alps.rows("SELECT state, attempts FROM webhook_delivery ORDER BY item")


async def test_item_of_a_kit_is_posted_as_specified_json_with_signature(store: Store) -> None:
    async with posting(store, headers={"X-Team": "rescue"}, username="u", password="p") as (
        alps,
        there,
    ):
        await alps.sends(1, Entry(7, Message("Hut open"), int(START)))
        await alps.push(Message("from the cloud"), target=2)
        await turn(alps)
        (request,) = there.got
        document = json.loads(request.body)
        assert document["payloads"] == [
            {
                "identity": {
                    "id": "1",
                    "name": "Ada",
                    "type": "User",
                    "email": "ada@example.org",
                },
                "account": {"id": "1"},
                "events": [
                    {
                        "type": "Message",
                        "timestamp": "2026-09-21T14:13:20Z",
                        "content": "Hut open",
                    }
                ],
            }
        ]
        assert request.headers["webhook-id"] == document["requestId"]
        assert request.headers["x-team"] == "rescue"
        assert request.headers["authorization"] == "Basic " + base64.b64encode(b"u:p").decode()
        verifier = Verifier(SECRET)
        moment = request.headers["webhook-timestamp"]
        signed = verifier.sign(
            request.headers["webhook-id"],
            datetime.fromtimestamp(int(moment), UTC),
            request.body.decode(),
        )
        assert request.headers["webhook-signature"] == signed
        assert await list_states(alps) == [("handed", 1)]


async def test_repeated_item_is_posted_once(store: Store) -> None:
    async with posting(store) as (alps, there):
        for _ in range(3):
            await alps.sends(1, Entry(7, Message("once"), int(START)))
        await turn(alps)
        assert there.contents() == ["once"]


async def test_post_is_signed_with_both_secrets_during_replacement(store: Store) -> None:
    async with posting(store, secrets=(SECRET, OTHER)) as (alps, there):
        await alps.sends(1, Entry(7, Message("x"), int(START)))
        await turn(alps)
        assert len(there.got[0].headers["webhook-signature"].split()) == 2


async def test_webhook_with_damaged_headers_does_not_block_others(store: Store) -> None:
    async with posting(store, headers={"x-desk": "1"}) as (alps, there):
        another = Webhook(0, there.url, headers={"x-desk": "2"})
        await store.commit(lambda db: webhook_directory.add_webhook(db, 1, another, now=alps.now))
        await store.commit(lambda db: db.execute("UPDATE webhook SET headers = '{' WHERE id = 1"))
        await alps.sends(1, Entry(1, Message("for both"), int(START)))
        await turn(alps)
        assert [each.headers.get("x-desk") for each in there.got] == [None, "2"]
        listed = await store.read(lambda db: webhook_directory.list_webhooks(db, 1))
        assert len(listed) == 2


@pytest.mark.parametrize("only", [False, True])
async def test_waiting_post_is_signed_with_a_newer_secret(store: Store, only: bool) -> None:
    """The previous secret signs too, so that the receiver may change its secret at any time."""
    async with posting(store) as (alps, there):
        there.answers = [Response(503)]
        await alps.sends(1, Entry(1, Message("waits"), int(START)))
        await turn(alps)
        sign = webhook_directory.sign_with
        await store.commit(lambda db: sign(db, 1, 1, (OTHER,), only=only, now=alps.now))
        alps.now += 3600
        await turn(alps)
        first, second = there.got
        assert is_signed_with(first, SECRET) and not is_signed_with(first, OTHER)
        assert is_signed_with(second, OTHER) and is_signed_with(second, SECRET) != only
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        for secret in (SECRET, OTHER, OTHER):
            await store.commit(lambda db: sign(db, 1, 1, (secret,), now=alps.now))  # noqa: B023
        assert await alps.rows("SELECT secrets FROM webhook") == [(OTHER,)]


def is_signed_with(request: Request, secret: str) -> bool:
    """Return True if the signature is valid with this secret."""
    id_, moment = (request.headers[f"webhook-{each}"] for each in ("id", "timestamp"))
    at = datetime.fromtimestamp(int(moment), UTC)
    signed = Verifier(secret).sign(id_, at, request.body.decode())
    return signed in request.headers["webhook-signature"].split()


async def test_each_webhook_gets_the_item(store: Store) -> None:
    async with posting(store) as (alps, there), receiver() as other:
        await store.commit(
            lambda db: webhook_directory.add_webhook(db, 1, Webhook(0, other.url), now=alps.now)
        )
        there.answers = [Response(500)]
        await alps.sends(1, Entry(7, Message("x"), int(START)))
        await turn(alps)
        assert (len(there.got), other.contents()) == (1, ["x"])
        assert "webhook-signature" not in other.got[0].headers


async def test_failed_post_is_retried_with_same_id_and_blocks_only_its_sender(
    store: Store,
) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(503, headers=(("Retry-After", "120"),))]
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        await alps.sends(1, Entry(2, Message("second"), int(START)))
        await alps.sends(2, Entry(1, Message("of Ben"), int(START)))
        await turn(alps)
        assert there.contents() == ["first", "of Ben"]
        alps.now += 119
        await turn(alps)
        assert len(there.got) == 2
        alps.now += 2
        await turn(alps)
        assert there.contents() == ["first", "of Ben", "first", "second"]
        assert there.got[0].headers["webhook-id"] == there.got[2].headers["webhook-id"]


async def test_sos_is_posted_before_failed_posts(store: Store) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(503), Response(204), Response(503)]
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        await alps.sends(2, Entry(1, Message("of Ben"), int(START)))
        await turn(alps)
        await alps.sends(1, Entry(2, Message("Leg broken"), int(START), sos=True))
        await turn(alps)
        await alps.sends(2, Entry(2, Message("of Ben, too"), int(START)))
        await alps.sends(1, Entry(3, Message("it bleeds"), int(START), sos=True))
        await turn(alps)
        assert there.contents() == ["first", "of Ben", "Leg broken", "it bleeds", "of Ben, too"]


async def test_failed_sos_post_is_retried_within_minutes(store: Store) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(503)] * 8
        await alps.sends(1, Entry(1, Message("Leg broken"), int(START), sos=True))
        for seconds in (0, 7, 73, *[361] * 5):
            alps.now += seconds
            await turn(alps)
        assert there.contents() == ["Leg broken"] * 8


async def test_post_becomes_a_replayable_dead_letter_after_the_last_try(store: Store) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(500)] * len(SCHEDULE)
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        for _ in SCHEDULE:
            await turn(alps)
            # Only this one fails: the test does not cover the days until it is disabled.
            await store.commit(lambda db: db.execute("UPDATE webhook SET failing_since = NULL"))
            alps.now += DELAY_MAX_S
        assert await list_states(alps) == [("dead", len(SCHEDULE))]
        (letter,), _ = await store.read(lambda db: webhook_directory.list_dead_letters(db, 1))
        assert letter["reason"] == "the receiver answered 500 Internal Server Error"
        assert (
            await store.commit(
                lambda db: webhook_directory.replay_dead_letters(
                    db, 1, letter["requestId"], now=alps.now
                )
            )
            == 1
        )
        await turn(alps)
        assert await list_states(alps) == [("handed", 1)]
        with pytest.raises(Refused, match="no such dead letter"):
            await store.commit(
                lambda db: webhook_directory.replay_dead_letters(db, 1, None, now=alps.now)
            )


async def test_failing_webhook_is_listed_with_the_reason_until_success(store: Store) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(503)]
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        for reason in ("the receiver answered 503 Service Unavailable", ""):
            await turn(alps)
            (listed,) = await store.read(lambda db: webhook_directory.list_webhooks(db, 1))
            assert listed["reason"] == reason
            assert (listed["failingSince"] is None) is (not reason)
            alps.now += DELAY_MAX_S
        assert listed["disabled"] is None


async def test_status_410_disables_the_webhook_and_waiting_posts_resume(store: Store) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(410)]
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        await turn(alps)
        (listed,) = await store.read(lambda db: webhook_directory.list_webhooks(db, 1))
        assert listed["disabled"] == alps.now
        assert "410 Gone" in listed["reason"]
        assert any(
            action == "webhook disable" for (action,) in await alps.rows("SELECT action FROM audit")
        )
        alps.now += 9_999
        await turn(alps)
        assert len(there.got) == 1
        await store.commit(
            lambda db: webhook_directory.enable_webhook(db, 1, listed["id"], now=alps.now)
        )
        await turn(alps)
        assert there.contents() == ["first", "first"]


async def test_days_without_success_disable_the_webhook(store: Store) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(500)] * deliveries.TRIES_MIN
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        await turn(alps)
        alps.now += deliveries.DISABLE_AFTER_S
        for tries in range(2, deliveries.TRIES_MIN + 1):
            (listed,) = await store.read(lambda db: webhook_directory.list_webhooks(db, 1))
            assert listed["disabled"] is None
            await turn(alps)
            assert len(there.got) == tries
            alps.now += 2 * SCHEDULE[tries]
        (listed,) = await store.read(lambda db: webhook_directory.list_webhooks(db, 1))
        assert listed["disabled"] is not None
        assert listed["waiting"] == 1


async def test_single_failure_after_idle_days_does_not_disable_the_webhook(store: Store) -> None:
    """The last earlier post failed. Then no item came, or the hub was off."""
    async with posting(store) as (alps, there):
        old = alps.now - 2 * deliveries.DISABLE_AFTER_S
        await store.commit(lambda db: db.execute("UPDATE webhook SET failing_since = ?", old))
        there.answers = [Response(502)]
        await alps.sends(1, Entry(1, Message("help"), int(START), sos=True))
        await turn(alps)
        alps.now += 60
        await turn(alps)
        assert there.contents() == ["help", "help"]
        assert [state for state, _ in await list_states(alps)] == ["handed"]


async def test_webhook_redirect_is_not_followed(store: Store) -> None:
    async with posting(store) as (alps, there):
        there.answers = [Response(302, headers=(("Location", "http://127.0.0.1:1/"),))]
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        await turn(alps)
        ((state, reason),) = await alps.rows("SELECT state, reason FROM webhook_delivery")
        assert state == "waiting"
        assert "a redirect to http://127.0.0.1:1/, which is not followed" in reason
        assert there.got[0].path == "/hook"


async def test_post_claimed_by_a_dead_process_is_posted_again(store: Store) -> None:
    async with posting(store) as (alps, there):
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        assert await store.commit(lambda db: claim(db, alps.now))
        await turn(alps)
        assert there.got == []
        alps.now += deliveries.CLAIM_S
        await turn(alps)
        assert there.contents() == ["first"]


async def test_two_processes_share_the_posts_without_duplicates(database: str) -> None:
    from fieldagent.hub.store.opening import open_store

    one, other = open_store(database), open_store(database)
    try:
        async with (
            posting(one) as (alps, there),
            running(other),
            trio.open_nursery() as nursery,
        ):
            for store in (one, other):
                nursery.start_soon(partial(webhooks.run, store, clock=alps.clock, open_stream=OPEN))
            for number in range(20):
                for sender in (1, 2, 3):
                    entry = Entry(number, Message(f"{sender}.{number}"), int(START))
                    await alps.sends(sender, entry)
            await until_async(lambda: len(there.got) >= 60)
            for sender in (1, 2, 3):
                own = [c for c in there.contents() if c.startswith(f"{sender}.")]
                assert own == [f"{sender}.{number}" for number in range(20)]
            nursery.cancel_scope.cancel()
    finally:
        one.close()
        other.close()


async def test_webhook_test_call_is_marked_as_a_test(store: Store) -> None:
    async with posting(store) as (alps, there):
        webhook = Webhook(0, there.url, (SECRET,))
        result = await webhooks.test_call(webhook, clock=alps.clock, open_stream=OPEN)
        assert result.outcome is HandoverOutcome.HANDED
        assert there.contents() == ["A test of this webhook"]
        there.answers = [Response(500)]
        result = await webhooks.test_call(webhook, clock=alps.clock, open_stream=OPEN)
        assert result.outcome is HandoverOutcome.FAILED


PRIVATE = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "127.255.0.9", "169.254.169.254",
    "172.16.0.1", "192.0.0.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1", "fc00::1", "fd12::1",
    "fe80::1", "fe80::1%eth0", "fec0::1",
    "feff::1", "3fff::1", "192.88.99.1", "4000::1", "ff02::1", "2001:db8::1", "2001:0:7f00:1::",
]  # fmt: skip
PUBLIC = ["9.9.9.9", "193.0.6.139", "2620:fe::fe", "::ffff:9.9.9.9", "64:ff9b::909:909"]


@pytest.mark.parametrize("address", PRIVATE)
def test_special_address_is_not_public(address: str) -> None:
    assert not is_public(address)


REGISTERED = """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24
192.0.0.0/29 192.0.0.8/32 192.0.0.9/32 192.0.0.10/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24
192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.88.99.2/32 192.168.0.0/16 192.175.48.0/24
198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 255.255.255.255/32
::1/128 ::/128 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/23 2001::/32
2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:2::/48 2001:3::/32 2001:4:112::/48 2001:10::/28
2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7
fe80::/10
"""
"""Both registries of IANA, row by row, as last updated on 2025-10-09."""


@pytest.mark.parametrize("row", REGISTERED.split())
def test_every_row_of_the_iana_registries_is_covered(row: str) -> None:
    registered = ipaddress.ip_network(row)
    assert any(
        registered.version == each.version
        and int(each[0]) <= int(registered[0])
        and int(registered[-1]) <= int(each[-1])
        for each in SPECIAL_NETWORKS
    )


def test_special_networks_are_exactly_registered_networks() -> None:
    registered = {ipaddress.ip_network(row) for row in REGISTERED.split()}
    assert set(SPECIAL_NETWORKS) <= registered


LED_ON = [ipaddress.ip_network(each) for each in ("::ffff:0:0/96", "64:ff9b::/96")]
"""Networks that contain an IPv4 address, which is checked instead."""


@pytest.mark.parametrize("network", [*SPECIAL_NETWORKS, *MULTICAST], ids=str)
def test_no_address_of_a_special_network_is_public(network: Network) -> None:
    """The test covers the first, a middle and the last address. Addresses beside the network are
    public if no other network contains them.
    """
    first, last = int(network[0]), int(network[-1])
    kind = type(network[0])
    if network not in LED_ON:
        for number in (first, (first + last) // 2, last):
            assert not is_public(str(kind(number))), kind(number)
    everywhere = [*SPECIAL_NETWORKS, *MULTICAST]
    for number in (first - 1, last + 1):
        if 0 <= number < 2**network.max_prefixlen:
            beside = kind(number)
            unicast = beside.version == 4 or beside in ipaddress.ip_network("2000::/3")
            special = any(beside in each for each in everywhere)
            assert is_public(str(beside)) is (unicast and not special), beside


@pytest.mark.parametrize(
    "network", [each for each in SPECIAL_NETWORKS if each.version == 4], ids=str
)
def test_ipv6_address_of_a_special_ipv4_network_is_not_public(network: Network) -> None:
    inner = int(network[1] if network.num_addresses > 1 else network[0])
    for address in (
        f"::ffff:{inner >> 16:x}:{inner & 0xFFFF:x}",
        f"::{inner >> 16:x}:{inner & 0xFFFF:x}",
        f"64:ff9b::{inner >> 16:x}:{inner & 0xFFFF:x}",
        f"2002:{inner >> 16:x}:{inner & 0xFFFF:x}::1",
        f"2001:0:{inner >> 16:x}:{inner & 0xFFFF:x}::1",
    ):
        assert not is_public(address), address


@pytest.mark.parametrize("address", PUBLIC)
def test_global_address_is_public(address: str) -> None:
    assert is_public(address)


def test_allowed_network_counts_as_public_and_its_neighbour_does_not() -> None:
    allowed = [ipaddress.ip_network("10.1.0.0/16")]
    assert is_public("10.1.2.3", allowed)
    assert is_public("::ffff:10.1.2.3", allowed)
    assert not is_public("10.2.0.1", allowed)


Lookup = Callable[..., Awaitable[list[Any]]]


def make_resolver(*answers: list[str]) -> Lookup:
    """Return a resolver whose answer changes between questions."""
    left = list(answers)

    async def getaddrinfo(host: str, port: int, *args: Any, **how: Any) -> list[Any]:
        addresses = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]

    return getaddrinfo


@pytest.mark.parametrize("answer", [["127.0.0.1"], ["9.9.9.9", "10.0.0.1"]])
async def test_name_with_any_private_address_is_rejected(
    answer: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trio.socket, "getaddrinfo", make_resolver(answer))
    with pytest.raises(RequestFailed, match="not a public address: allow"):
        await open_public()("rebinding.example", 80)


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "017700000001", "127.1", "localhost"])
async def test_other_spellings_of_localhost_are_rejected(host: str) -> None:
    with pytest.raises(RequestFailed, match="not a public address"):
        await open_public()(host, 80)


async def test_checked_address_is_used_for_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer for the name would lead to the hub itself."""
    asked: list[str] = []

    async def open_tcp_stream(host: str, port: int) -> Any:
        asked.append(host)
        raise OSError("as a test")

    monkeypatch.setattr(trio.socket, "getaddrinfo", make_resolver(["9.9.9.9"], ["127.0.0.1"]))
    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    with pytest.raises(OSError, match="as a test"):
        await open_public()("rebinding.example", 80)
    assert asked == ["9.9.9.9"]


async def test_unresponsive_first_address_does_not_block_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The network's IPv6 leads nowhere, so the name's first address never answers."""
    ended: list[str] = []
    connect = trio.open_tcp_stream

    async def open_tcp_stream(host: str, port: int) -> Any:
        if host == "9.9.9.9":
            return await connect("127.0.0.1", port)
        try:
            await trio.sleep_forever()
        finally:
            ended.append(host)

    monkeypatch.setattr(
        trio.socket, "getaddrinfo", make_resolver(["2620:fe::fe", "9.9.9.9", "9.9.9.10"])
    )
    monkeypatch.setattr(trio, "open_tcp_stream", open_tcp_stream)
    async with receiver() as there:
        port = int(there.url.rpartition(":")[2].partition("/")[0])
        with trio.fail_after(PATIENCE):
            stream = await open_public()("two.example", port)
        await stream.aclose()
    assert ended == ["2620:fe::fe"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("X Y", "1"), ("", "1"), ("X", "a\r\nb"), ("X", "é"), ("Host", "a"), ("content-length", "1")],
)
async def test_unsendable_custom_header_is_rejected_with_the_reason(
    store: Store, name: str, value: str
) -> None:
    async with field_of(store) as alps:
        webhook = Webhook(0, "https://example.org/", headers={name: value})
        with pytest.raises(Refused, match="cannot be a custom header"):
            await store.commit(
                lambda db: webhook_directory.add_webhook(db, 1, webhook, now=alps.now)
            )


@pytest.mark.parametrize("secret", ["", " "])
def test_webhook_is_signed_unless_declared_unsigned(secret: str) -> None:
    assert len(webhook_directory.make_webhook("https://team.example/", secret).secrets) == 1
    assert not webhook_directory.make_webhook(
        "https://team.example/", secret, unsigned=True
    ).secrets


async def test_stored_unsendable_header_fails_the_post_with_the_reason(store: Store) -> None:
    async with posting(store) as (alps, there):
        await store.commit(lambda db: db.execute("UPDATE webhook SET headers = ?", '{"X Y": "1"}'))
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        await turn(alps)
        ((state, reason),) = await alps.rows("SELECT state, reason FROM webhook_delivery")
        assert (state, "a header cannot be sent" in reason) == ("waiting", True)
        assert there.got == []


async def test_silent_webhook_does_not_block_others(store: Store) -> None:
    async with posting(store) as (alps, _), receiver() as other:
        for number in range(60):
            for sender in (1, 2, 3):
                await alps.sends(sender, Entry(number, Message("x"), int(START)))
        silent = await store.commit(lambda db: claim_runs(db, alps.now))
        assert len(silent) <= flow.WIDTH
        await store.commit(
            lambda db: webhook_directory.add_webhook(db, 1, Webhook(0, other.url), now=alps.now)
        )
        await alps.sends(2, Entry(99, Message("of another"), int(START)))
        again = await store.commit(lambda db: claim_runs(db, alps.now))
        assert [each for each in again if each[0].webhook.url == other.url]
        assert len([e for e in again if e[0].webhook.url != other.url]) <= flow.WIDTH


async def test_late_failure_does_not_undo_a_later_success(store: Store) -> None:
    async with posting(store) as (alps, _):
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        (late,) = await store.commit(lambda db: claim(db, alps.now))
        alps.now += deliveries.CLAIM_S + 1
        (other,) = await store.commit(lambda db: claim(db, alps.now))
        handed, failed = (
            HandoverResult(HandoverOutcome.HANDED),
            HandoverResult(HandoverOutcome.FAILED, "too slow"),
        )
        await store.commit(lambda db: settle(db, other, handed, alps.now))
        warning = await store.commit(lambda db: settle(db, late, failed, alps.now))
        assert (await list_states(alps), warning) == ([("handed", 1)], "")


async def test_success_between_failures_prevents_disabling(store: Store) -> None:
    async with posting(store) as (alps, _):
        old = alps.now - 2 * deliveries.DISABLE_AFTER_S
        await store.commit(lambda db: db.execute("UPDATE webhook SET failing_since = ?", old))
        for sender in (1, 2):
            await alps.sends(sender, Entry(1, Message("x"), int(START)))
        one, other = await store.commit(lambda db: claim(db, alps.now))
        handed, failed = (
            HandoverResult(HandoverOutcome.HANDED),
            HandoverResult(HandoverOutcome.FAILED, "500"),
        )
        await store.commit(lambda db: settle(db, one, handed, alps.now))
        await store.commit(lambda db: settle(db, other, failed, alps.now))
        (listed,) = await store.read(lambda db: webhook_directory.list_webhooks(db, 1))
        assert (listed["disabled"], listed["failingSince"]) == (None, alps.now)


async def test_dead_letters_of_another_workspace_cannot_be_replayed(store: Store) -> None:
    async with posting(store) as (alps, _):
        await alps.sends(1, Entry(1, Message("x"), int(START)))
        await store.commit(lambda db: db.execute("UPDATE webhook_delivery SET state = 'dead'"))
        for request_id in (None, "%"):
            with pytest.raises(Refused):
                await store.commit(
                    partial(
                        webhook_directory.replay_dead_letters,
                        workspace=2,
                        request_id=request_id,
                        now=alps.now,
                    )
                )
        assert (
            await store.commit(
                lambda db: webhook_directory.replay_dead_letters(db, 1, None, now=alps.now)
            )
            == 1
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [("a:b", "c"), ("a", " b"), ("a", "b\t"), ("a b", "c"), ("a", "b\r\nc: d"), ("Host", "c")],
)
def test_malformed_custom_header_is_rejected(store: Store, name: str, value: str) -> None:
    webhook = webhook_directory.make_webhook("https://example.org/", headers={name: value})
    with pytest.raises(Refused):
        store.run_once(lambda db: webhook_directory.add_webhook(db, 1, webhook, now=1.0))


def of_batch(request: Request) -> list[str]:
    return [each["payloads"][0]["events"][0]["content"] for each in json.loads(request.body)]


async def send_messages(alps: Field, numbers: range) -> None:
    for number in numbers:
        await alps.sends(1, Entry(number, Message(f"a{number}"), int(START)))


async def test_batch_is_a_signed_ordered_array_and_keeps_its_id_on_retry(store: Store) -> None:
    async with posting(store, batch=3) as (alps, there):
        there.answers = [Response(500)]
        await send_messages(alps, range(2))
        await turn(alps)
        # Later items are not added to a batch that may have arrived already.
        await send_messages(alps, range(2, 6))
        alps.now += DELAY_MAX_S
        await turn(alps)
        assert [of_batch(each) for each in there.got] == [
            *(["a0", "a1"], ["a0", "a1"]),
            *(["a2", "a3", "a4"], ["a5"]),
        ]
        ids = [each.headers["webhook-id"] for each in there.got]
        assert ids[0] == ids[1] and len({*ids}) == 3
        assert await list_states(alps) == [("handed", 2)] * 2 + [("handed", 1)] * 4
        for request in there.got:
            moment = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
            signed = Verifier(SECRET).sign(
                request.headers["webhook-id"], moment, request.body.decode()
            )
            assert request.headers["webhook-signature"] == signed


@pytest.mark.parametrize(
    ("answer", "again"),
    [(Response(429, headers=(("Retry-After", "120"),)), 120), (Response(503), 7)],
)
async def test_postponed_batch_waits_as_a_whole(
    store: Store, answer: Response, again: float
) -> None:
    async with posting(store, batch=100) as (alps, there):
        there.answers = [answer]
        await send_messages(alps, range(5))
        await turn(alps)
        assert await list_states(alps) == [("waiting", 1)] * 5
        alps.now += again - 3
        await turn(alps)
        assert len(there.got) == 1
        alps.now += 3
        await turn(alps)
        assert len(there.got) == 2
        assert await list_states(alps) == [("handed", 2)] * 5


async def test_status_410_to_a_batch_disables_the_webhook_without_loss(store: Store) -> None:
    async with posting(store, batch=100) as (alps, there):
        there.answers = [Response(410)]
        await send_messages(alps, range(5))
        await turn(alps)
        assert await list_states(alps) == [("waiting", 1)] * 5
        (listed,) = await store.read(lambda db: webhook_directory.list_webhooks(db, 1))
        assert (listed["disabled"], listed["batch"]) == (alps.now, 100)
        await store.commit(
            lambda db: webhook_directory.enable_webhook(db, 1, listed["id"], now=alps.now)
        )
        await turn(alps)
        assert of_batch(there.got[1]) == ["a0", "a1", "a2", "a3", "a4"]


async def test_rejected_item_of_a_batch_does_not_reject_the_others(store: Store) -> None:
    tries = len(SCHEDULE)
    async with posting(store, batch=100) as (alps, there):
        there.answers = [Response(400)] * tries + [Response(200), Response(400), Response(200)]
        await send_messages(alps, range(3))
        for _ in range(tries + 3):
            await turn(alps)
            await store.commit(lambda db: db.execute("UPDATE webhook SET failing_since = NULL"))
            alps.now += DELAY_MAX_S
        got = [of_batch(each) for each in there.got]
        assert got == [["a0", "a1", "a2"]] * tries + [["a0"], ["a1"], ["a2"]]
        assert [state for state, _ in await list_states(alps)] == ["handed", "dead", "handed"]


async def test_sos_is_posted_first_in_its_own_batch(store: Store) -> None:
    async with posting(store, batch=100) as (alps, there):
        await alps.sends(1, Entry(1, Message("first"), int(START)))
        await alps.sends(1, Entry(2, Message("Leg broken"), int(START), sos=True))
        await turn(alps)
        assert [of_batch(each) for each in there.got] == [["Leg broken"], ["first"]]
        assert "fieldagent-sos" in there.got[0].headers


async def test_alarm_of_the_hub_is_not_posted_as_sos(store: Store) -> None:
    async with posting(store) as (alps, there):
        words = Posting(1, 1, Message("No word of Ada"), int(START), 100, alarm=True)
        raise_ = partial(ledger.raise_alarm, posting=words, device=1, now=START, kind="overdue")
        await store.commit(lambda db: raise_(db))
        await turn(alps)
        (post,) = there.got
        assert post.headers["fieldagent-alarm"] == "overdue"
        assert "fieldagent-sos" not in post.headers and b'"sos":true' not in post.body


async def until_posted(alps: Field, there: Receiver, posts: int) -> None:
    """Wait until that many posts have come and their results are stored."""
    await until_async(lambda: len(there.got) >= posts)
    with trio.fail_after(PATIENCE):
        while await alps.rows("SELECT 1 FROM webhook_delivery WHERE claimed_until > 0"):
            await trio.sleep(0.01)
    assert len(there.got) == posts


async def test_starting_hub_probes_a_failing_webhook_at_once(store: Store) -> None:
    """Items that wait for their own time, hours ahead, go after a successful probe."""
    async with posting(store) as (alps, there):
        for sender in (1, 2):
            await alps.sends(sender, Entry(1, Message(f"a{sender}"), int(START)))

        def was_down(db: Db) -> None:
            db.execute("UPDATE webhook SET failing_since = ?", alps.now)
            later = alps.now + SCHEDULE[-1]
            db.execute("UPDATE webhook_delivery SET attempts = 5, not_before = ?", later)

        await store.commit(was_down)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(webhooks.run, store, clock=alps.clock, open_stream=OPEN))
            await until_posted(alps, there, 2)
            nursery.cancel_scope.cancel()
        assert [state for state, _ in await list_states(alps)] == ["handed", "handed"]


async def test_early_failed_probe_does_not_use_the_last_try(store: Store) -> None:
    """A failed receiver is probed twice a minute, and the last try is a day away."""
    tried = len(SCHEDULE) - 1
    async with posting(store) as (alps, there):
        await alps.sends(1, Entry(1, Message("x"), int(START)))

        def probe(db: Db) -> str:
            db.execute("UPDATE webhook SET failing_since = ?", alps.now)
            day = alps.now + SCHEDULE[-1]
            db.execute("UPDATE webhook_delivery SET attempts = ?, not_before = ?", tried, day)
            lanes, _ = flow.Flows().choose(
                deliveries.list_oldest(db), alps.now, deliveries.list_failing(db)
            )
            (run,) = deliveries.claim(db, lanes, alps.now)
            return settle(db, run[0], HandoverResult(HandoverOutcome.FAILED, "503"), alps.now)

        assert await store.commit(probe) == ""
        assert await list_states(alps) == [("waiting", tried)]
        alps.now += SCHEDULE[-1]
        await turn(alps)
        assert len(there.got) == 1 and await list_states(alps) == [("handed", tried + 1)]


async def test_all_waiting_posts_are_sent_after_a_successful_probe(store: Store) -> None:
    """Each sender's own time is minutes ahead, and the probe comes within half a minute."""
    async with posting(store) as (alps, there):
        there.answers = [Response(503)] * 9
        for number in range(2):
            for sender in (1, 2, 3):
                await alps.sends(sender, Entry(number, Message("x"), int(START)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(webhooks.run, store, clock=alps.clock, open_stream=OPEN))
            await until_posted(alps, there, 3)
            # The second failure has shown that the receiver is down. One due item goes at a time.
            for posts in range(4, 10):
                alps.now += 2 * flow.PROBE_PAUSE_MIN_S
                await store.commit(lambda db: db.announce("webhooks"))
                await until_posted(alps, there, posts)
            alps.now += 2 * flow.PROBE_PAUSE_MIN_S
            await store.commit(lambda db: db.announce("webhooks"))
            await until_posted(alps, there, 9 + 6)
            nursery.cancel_scope.cancel()
        assert await list_states(alps) and all(
            state == "handed" for state, _ in await list_states(alps)
        )


async def test_concurrent_sos_posts_are_limited_and_do_not_block_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The posts failed together and become due together, and each post uses a connection."""
    monkeypatch.setattr(flow, "SOS_RUNS_MAX", 3)
    async with posting(store) as (alps, there), trio.open_nursery() as nursery:
        release, inside, most = trio.Event(), 0, 0

        async def hold(request: Request) -> None:
            nonlocal inside, most
            if "fieldagent-sos" in request.headers:
                inside += 1
                most = max(most, inside)
                await release.wait()
                inside -= 1

        there.before_answer = hold
        for number in range(1, 9):
            await alps.sends(1, Entry(number, Message(f"SOS {number}"), int(START), sos=True))
        run = partial(webhooks.run, store, clock=alps.clock, open_stream=OPEN)
        nursery.start_soon(run)
        await until_async(lambda: inside >= 3)
        await alps.sends(2, Entry(1, Message("of Ben"), int(START)))
        await until_async(lambda: "of Ben" in there.contents())
        release.set()
        await until_async(lambda: len(there.got) == 9)
        assert most == 3
        nursery.cancel_scope.cancel()


def test_new_sos_is_posted_before_failed_sos() -> None:
    tried = [flow.Lane(1, item, -item, 0.0, 0.0, 4) for item in range(1, 500)]
    new = flow.Lane(1, 500, -500, 0.0, 0.0, 0)
    chosen, _ = flow.Flows().choose([*tried, new], 1.0, {})
    assert chosen == [new, *tried[: flow.SOS_RUNS_MAX - 1]]
