"""Many people guess passwords at once: few of their tries are checked, and no caller waits long."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import trio

from fieldagent.http.address import find_source
from fieldagent.hub.access import attempts, passwords
from fieldagent.hub.access.attempts import BY_ACCOUNT, BY_ADDRESS, DELAY_MAX_S
from fieldagent.hub.store.contract import Store
from fieldagent.system.scrypt import check_password, hash_password
from tests.hub.test_push_api import LOCATION, Cloud, basic, cloud
from tests.processes import PATIENCE, until_async

BEN = "ben@example.org:of Ben: a long one"
BY_BEN = {**LOCATION, "sourceUserId": 3}
PROXY = [ipaddress.ip_network("127.0.0.0/8")]


@dataclass
class Scrypt:
    """Records the passwords that are checked."""

    tried: list[str] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def matches(self, password: str, stored: str | None) -> bool:
        self.tried.append(password)
        self.go_on.wait(PATIENCE)
        return check_password(password, stored)


@pytest.fixture
def scrypt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scrypt]:
    watched = Scrypt()
    watched.go_on.set()
    monkeypatch.setattr(passwords, "check_password", watched.matches)
    yield watched
    watched.go_on.set()


async def push(hub: Cloud, pair: str, address: str = "") -> int:
    headers = {**basic(pair), "X-Forwarded-For": address}
    return (await hub.push(BY_BEN, headers=headers)).status


async def push_all(hub: Cloud, calls: list[tuple[str, str]]) -> list[int]:
    """Push all at once and return the statuses."""
    statuses: list[int] = []

    async def one(pair: str, address: str) -> None:
        statuses.append(await push(hub, pair, address))

    async with trio.open_nursery() as nursery:
        for pair, address in calls:
            nursery.start_soon(one, pair, address)
    return statuses


@pytest.mark.full
@pytest.mark.parametrize("name", ["ben@example.org", "3", "nobody@example.org"])
async def test_concurrent_guesses_are_checked_only_up_to_the_limit(
    store: Store, scrypt: Scrypt, name: str
) -> None:
    async with cloud(store) as hub:
        statuses = await push_all(hub, [(f"{name}:guess {n}", "") for n in range(40)])
        assert statuses.count(401) == len(scrypt.tried) <= BY_ADDRESS.burst
        assert statuses.count(429) == 40 - len(scrypt.tried)


@pytest.mark.full
async def test_distributed_guesses_do_not_lock_out_the_owner(
    store: Store, scrypt: Scrypt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures of others delay a try by at most DELAY_MAX_S."""
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr("fieldagent.hub.access.passwords.waits.sleep", sleep)
    async with cloud(store, trusted_proxies=PROXY) as hub:
        for batch in range(5):
            calls = [(f"ben@example.org:{batch} {n}", f"198.51.{batch}.{n}") for n in range(12)]
            assert await push_all(hub, calls) == [401] * 12
        assert delays.count(0.0) == BY_ACCOUNT.burst
        assert max(delays) == DELAY_MAX_S
        assert await push(hub, "3:of Ben: a long one", "203.0.113.1") == 200


async def test_ipv6_network_counts_as_one_address(store: Store, scrypt: Scrypt) -> None:
    async with cloud(store, trusted_proxies=PROXY) as hub:
        for n in range(20):
            await push(hub, f"user {n}@example.org:guess", f"2001:db8:1:2::{n}")
        assert len(scrypt.tried) == BY_ADDRESS.burst
        assert await push(hub, "x:guess", "2001:db8:1:3::1") == 401


async def test_password_is_not_checked_without_a_valid_key(store: Store, scrypt: Scrypt) -> None:
    async with cloud(store) as hub:
        headers = {**basic(BEN), "x-api-key": "key_of_nobody"}
        statuses = [(await hub.push(BY_BEN, headers=headers)).status for _ in range(14)]
        assert statuses == [401] * BY_ADDRESS.burst + [429] * 2
        assert scrypt.tried == []


@pytest.mark.full
async def test_known_password_passes_during_guesses_of_others(store: Store, scrypt: Scrypt) -> None:
    async with cloud(store, trusted_proxies=PROXY) as hub:
        assert await push(hub, BEN, "203.0.113.1") == 200
        guesses = [(f"ben@example.org:guess {n}", f"198.51.100.{n}") for n in range(40)]
        assert await push_all(hub, guesses) == [401] * 40
        tried = len(scrypt.tried)
        assert await push(hub, BEN, "203.0.113.1") == 200
        assert await push(hub, BEN, "203.0.113.2") == 200
        assert len(scrypt.tried) == tried


async def test_changed_password_is_invalid_at_once(store: Store, scrypt: Scrypt) -> None:
    async with cloud(store) as hub:
        assert await push(hub, BEN) == 200
        changed = hash_password("a new one")
        await store.commit(
            lambda db: db.execute("UPDATE member SET password = ? WHERE id = 3", changed)
        )
        assert await push(hub, BEN) == 401
        assert await push(hub, "3:a new one") == 200
        await store.commit(lambda db: db.execute("UPDATE member SET disabled = 1 WHERE id = 3"))
        assert await push(hub, "3:a new one") == 401


async def test_right_password_does_not_count_as_a_failure(store: Store, scrypt: Scrypt) -> None:
    async with cloud(store) as hub:
        for name in ("ben@example.org", "3"):
            assert await push(hub, f"{name}:of Ben: a long one") == 200
        assert await hub.rows("SELECT count(*) FROM attempt WHERE tat > 1790000000") == [(0,)]


async def test_concurrent_equal_tries_are_checked_once(store: Store, scrypt: Scrypt) -> None:
    async with cloud(store) as hub:
        assert await push_all(hub, [(BEN, "")] * 40) == [200] * 40
        assert await push_all(hub, [("3:wrong", "")] * 40) == [401] * 40
        assert scrypt.tried[0] == "of Ben: a long one"
        assert len(scrypt.tried) < 1 + BY_ADDRESS.burst


@pytest.mark.full
async def test_waiting_password_checks_are_limited(store: Store, scrypt: Scrypt) -> None:
    room = passwords.CHECKS_MAX + passwords.WAITING_CHECKS_MAX
    async with cloud(store, trusted_proxies=PROXY) as hub:
        scrypt.go_on.clear()
        statuses: list[int] = []
        async with trio.open_nursery() as nursery:

            async def guess(n: int) -> None:
                statuses.append(await push(hub, f"user {n}:guess", f"198.51.100.{n}"))

            for n in range(room + 30):
                nursery.start_soon(guess, n)
            await until_async(lambda: len(statuses) >= 30)
            scrypt.go_on.set()
        assert statuses == [429] * 30 + [401] * room


async def test_old_attempts_are_forgotten(store: Store) -> None:
    async with cloud(store) as hub:
        for n in range(3):
            await push(hub, f"user {n}:guess")
        assert (await hub.rows("SELECT count(*) FROM attempt")) == [(4,)]
        await store.commit(lambda db: attempts.delete_old_attempts(db, hub.now + 9))
        assert (await hub.rows("SELECT count(*) FROM attempt")) == [(4,)]
        await store.commit(lambda db: attempts.delete_old_attempts(db, hub.now + 31))
        assert (await hub.rows("SELECT count(*) FROM attempt")) == [(0,)]


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("", ""),
        ("unknown", "unknown"),
        ("x" * 1000, "x" * 64),
    ],
)
def test_address_is_counted_by_ipv4_address_or_ipv6_network(address: str, source: str) -> None:
    assert find_source(address) == source
