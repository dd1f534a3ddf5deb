"""A dispatcher signs in while other callers guess passwords, with and without a known browser."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fieldagent.http.message import Request
from fieldagent.hub.access.known_devices import COOKIE, COOKIE_LIFETIME_S, MARKS_MAX, KnownDevices
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from tests.postgres import new_database
from tests.processes import PATIENCE, Hub, administer, hub
from tests.running import running as at_work

SECRET = "correct horse\n"
NOW = 1_790_000_000.0


def add_dispatchers(database: str) -> None:
    administer(database, "init", "Alps")
    for name in ("Olga", "Mia"):
        mail = f"{name.lower()}@example.org"
        administer(database, "user", "add", name, "--email", mail, "--password", secret=SECRET)


def sign_in(
    running: Hub,
    password: str = SECRET.strip(),
    *,
    source: str,
    cookie: str = "",
    who: str = "olga",
) -> tuple[int, str]:
    """Return the status and the cookie of a known browser."""
    line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE, source_address=(source, 0))
    body = json.dumps({"username": f"{who}@example.org", "password": password})
    headers = {"Content-Type": "application/json", "Origin": running.address, "Cookie": cookie}
    with closing(line):
        line.request("POST", "/console/session", body, headers)
        answer = line.getresponse()
        answer.read()
        cookies = answer.headers.get_all("Set-Cookie") or []
        marks = [each.partition(";")[0] for each in cookies if each.startswith(COOKIE)]
        return answer.status, "".join(marks)


def exhaust_limits(database: str, who: str) -> None:
    """Set the limits as if an address or an account had been attacked for an hour."""
    with closing(open_store(database)) as store:
        store.run_once(
            lambda db: db.execute(
                "INSERT INTO attempt (who, tat) VALUES (?, ?)"
                " ON CONFLICT (who) DO UPDATE SET tat = excluded.tat",
                *(who, time.time() + 3600),
            )
        )


GUESSERS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


class Guessers:
    """Strangers who guess from three addresses until the block ends."""

    def __init__(self, running: Hub) -> None:
        self._over = threading.Event()
        self._running = running
        self._threads = [threading.Thread(target=self._guess, args=(each,)) for each in GUESSERS]

    def _guess(self, source: str) -> None:
        for n in range(10_000):
            if self._over.is_set():
                return
            sign_in(self._running, f"guess {n}", source=source)

    def __enter__(self) -> None:
        for each in self._threads:
            each.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for each in self._threads:
            each.join()


AT_ONCE = 12
"""Wrong passwords per address before it must wait."""


@pytest.mark.full
def test_failed_guesses_of_others_do_not_block_the_right_password(
    tmp_path: Path, database: str
) -> None:
    """Three addresses guess continuously at full speed. With a shared database, they also use a
    second process.
    """
    add_dispatchers(database)
    with hubs(tmp_path, database) as running:
        first, last = running[0], running[-1]

        def guess(source: str) -> tuple[int, int]:
            """Return the number of wrong passwords and the next answer."""
            for wrong in count():
                status, _ = sign_in(first, f"guess {wrong} of {source}", source=source)
                if status != 401:
                    return wrong, status
            raise AssertionError("counts for ever")

        # In parallel, because each failure delays the others by up to 5 s per try.
        with ThreadPoolExecutor() as threads:
            for wrong, status in threads.map(guess, GUESSERS):
                assert (status, wrong >= AT_ONCE) == (429, True)
        with Guessers(first), Guessers(last):
            for n in range(15):
                assert sign_in(running[n % len(running)], source="127.0.0.5")[0] == 204


@contextmanager
def hubs(home: Path, database: str) -> Iterator[list[Hub]]:
    """Yield one process, or two if they can share the database."""
    with ExitStack() as stack:
        made = []
        for name in ("a", "b") if database.startswith("postgresql") else ("a",):
            (home / name).mkdir()
            made.append(stack.enter_context(hub(home / name, {"database": database})))
        yield made


@pytest.mark.full
def test_known_browser_is_recognised_by_another_process(tmp_path: Path, postgres: str) -> None:
    database = new_database(postgres)
    add_dispatchers(database)
    with hubs(tmp_path, database) as (first, last):
        status, cookie = sign_in(first, source="127.0.0.2")
        assert status == 204
        exhaust_limits(database, "passwords 127.0.0.2")
        assert sign_in(last, source="127.0.0.2")[0] == 429
        assert sign_in(last, source="127.0.0.2", cookie=cookie)[0] == 204


def test_known_browser_signs_in_from_a_blocked_address(tmp_path: Path, database: str) -> None:
    """The cookie also works after a restart and at another process. A browser without the cookie is
    temporarily rejected.
    """
    add_dispatchers(database)
    with hub(tmp_path, {"database": database}) as running:
        status, cookie = sign_in(running, source="127.0.0.2")
        assert (status, cookie.count(".")) == (204, 3)
        _, shared = sign_in(running, source="127.0.0.2", cookie=cookie, who="mia")
        assert shared.count("~") == 1
    with hub(tmp_path, {"database": database}) as running:
        exhaust_limits(database, "passwords 127.0.0.2")
        assert sign_in(running, source="127.0.0.2")[0] == 429
        forged = cookie.replace(".", ".9", 1)
        assert sign_in(running, source="127.0.0.2", cookie=forged)[0] == 429
        for _ in range(3):
            assert sign_in(running, source="127.0.0.2", cookie=cookie)[0] == 204
            assert sign_in(running, source="127.0.0.2", cookie=shared, who="mia")[0] == 204


def test_stolen_browser_cookie_does_not_speed_up_guesses(tmp_path: Path) -> None:
    """The cookie is only for the account that signed in."""
    database = str(tmp_path / "hub.sqlite3")
    add_dispatchers(database)
    with hub(tmp_path, {"database": database}) as running:
        _, cookie = sign_in(running, source="127.0.0.2", who="mia")
        assert sign_in(running, "a guess", source="127.0.0.3", cookie=cookie)[0] == 401
        exhaust_limits(database, "passwords 127.0.0.3")
        assert sign_in(running, "another", source="127.0.0.3", cookie=cookie)[0] == 429


def make_head(cookie: str) -> Request:
    return Request("POST", "/console/session", (), {"cookie": cookie})


async def test_browser_cookie_is_signed_and_expires(store: Store) -> None:
    now = [NOW]
    devices, elsewhere = (KnownDevices(store, lambda: now[0]) for _ in range(2))
    async with at_work(store):
        assert devices.list_devices_by_member(make_head(f"{COOKIE}=x")) == {}
        await devices.load()
        await elsewhere.load()

        def cookie(member: int, before: str = "") -> str:
            _, value = devices.make_cookie(make_head(before), member, secure=True)
            assert "; Secure; HttpOnly; SameSite=Strict" in value
            return value.partition(";")[0]

        mine = cookie(7)
        members = elsewhere.list_devices_by_member(make_head(mine))
        assert [*members] == [7]
        assert devices.list_devices_by_member(make_head(cookie(7, mine))) == members
        text = mine.partition("=")[2]
        for at, character in enumerate(text):
            other = text[:at] + ("0" if character != "0" else "1") + text[at + 1 :]
            assert devices.list_devices_by_member(make_head(f"{COOKIE}={other}")) == {}, other
        for wrong in ("", "~~~", text[:-1], text + "0", "é" * 90, "." * 4_000):
            assert devices.list_devices_by_member(make_head(f"{COOKIE}={wrong}")) == {}
        many = mine
        for member in range(8, 20):
            many = cookie(member, many)
        assert [*devices.list_devices_by_member(make_head(many))] == [
            *range(19, 19 - MARKS_MAX, -1)
        ]
        now[0] += COOKIE_LIFETIME_S + 1
        assert devices.list_devices_by_member(make_head(mine)) == {}


@pytest.mark.full
def test_failed_guesses_behind_a_proxy_count_for_the_client_address(tmp_path: Path) -> None:
    """Behind a proxy, each client has the count of its own address."""
    database = str(tmp_path / "hub.sqlite3")
    add_dispatchers(database)
    settings = {"database": database, "trusted-proxies": "127.0.0.0/8"}

    def enter(running: Hub, password: str, address: str) -> int:
        line = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
        body: dict[str, Any] = {"username": "olga@example.org", "password": password}
        headers = {
            "Content-Type": "application/json",
            "Origin": running.address,
            "X-Forwarded-For": address,
        }
        with closing(line):
            line.request("POST", "/console/session", json.dumps(body), headers)
            return line.getresponse().status

    with hub(tmp_path, settings) as running:
        wrong = 0
        while (status := enter(running, f"guess {wrong}", "203.0.113.9")) == 401:
            wrong += 1
        assert (status, wrong >= AT_ONCE) == (429, True)
        assert enter(running, SECRET.strip(), "203.0.113.10") == 204


@pytest.mark.parametrize("mark", ["x" * 20, "~".join(["0" * 60] * 70)])
def test_invalid_browser_cookie_is_ignored(tmp_path: Path, mark: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    add_dispatchers(database)
    with hub(tmp_path, {"database": database}) as running:
        assert sign_in(running, source="127.0.0.2", cookie=f"{COOKIE}={mark}")[0] == 204
