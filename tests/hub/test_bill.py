"""The work of the database's threads counts on the account of the caller who caused it."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from fieldagent.http.limits import CallerAccount, CpuPace
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.http.routes import make_router
from fieldagent.hub.access import credentials, directory, sessions
from fieldagent.hub.access.caller import Purpose
from fieldagent.hub.hub import Hub
from fieldagent.hub.settings import parse_settings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.system.price import charge_to
from tests.postgres import new_database
from tests.processes import until_async
from tests.running import running


def work(db: Db) -> float:
    """Return the seconds of this thread's processor time that it took."""
    begun = time.thread_time()
    sum(range(1_000_000))
    return time.thread_time() - begun


async def test_database_thread_time_is_charged_to_the_caller(store: Store) -> None:
    """The callers of one transaction share its cost. Reads on the loop use no thread."""
    async with running(store):
        # The store's own writes at its start would get a share too.
        await store.commit(lambda db: None)
        paid: dict[str, list[float]] = {"ada": [], "ben": []}
        took: list[float] = []

        async def write(who: str) -> None:
            charge_to(paid[who].append)
            took.append(await store.commit(work))

        async with trio.open_nursery() as nursery:
            for who in paid:
                nursery.start_soon(write, who)
        assert all(map(sum, paid.values()))
        assert sum(map(sum, paid.values())) >= sum(took)

        async def read() -> None:
            charge_to(paid["ada"].append)
            took[:] = [await store.read(work)]

        paid["ada"].clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
        assert not store.shared or sum(paid["ada"]) >= took[0]


async def test_cancelled_read_is_still_charged_to_its_caller(postgres: str) -> None:
    store = open_store(new_database(postgres))
    begun, may_end = threading.Event(), threading.Event()
    took: list[float] = []

    def read(db: Db) -> None:
        begun.set()
        may_end.wait()
        took.append(work(db))

    paid: list[float] = []

    async def ask() -> None:
        charge_to(paid.append)
        await store.read(read)

    async with running(store):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await until_async(begun.is_set)
            nursery.cancel_scope.cancel()
        assert paid == []
        may_end.set()
        await until_async(lambda: paid)
        assert sum(paid) >= took[0]
    store.close()


async def test_valid_key_is_charged_for_the_database_on_every_route(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test covers all routes of the hub, including new ones. Anonymous callers are not
    charged.
    """
    store = open_store(new_database(postgres))
    program = Hub(parse_settings("", Path("hub.properties")), store)
    judged = [route for route in program.routes if route.judge is not None]
    assert len(judged) > 50
    head = Request("GET", "/", (), store.run_once(_administrator), peer="192.0.2.1")
    pace, find = CpuPace(cookie=sessions.COOKIE), make_router(program.routes)
    strangers, known = pace.find_account(head), _remembered(pace, head)
    paid: list[float] = []
    monkeypatch.setattr(known, "spend", paid.append)
    unpaid = []
    async with running(store):
        for route in judged:
            visit = pace.visit("192.0.2.1")
            visit.begin()
            path = re.sub(r"\{.*?\}", "1", route.pattern)
            asked = head._replace(method=route.method, path=path, body=b"{}")
            visit.record_request(asked)
            paid.clear()
            admission = await find(asked)
            by_threads = sum(paid)
            visit.record_admission(asked, admission.caller)
            paid.clear()
            with suppress(Problem):
                await admission.handler(asked)
            visit.end()
            if not by_threads + sum(paid) or not strangers.is_idle:
                unpaid.append(f"{route.method} {route.pattern}")
    assert unpaid == []
    store.close()


def _administrator(db: Db) -> dict[str, str]:
    """Return the credentials of an administrator's program."""
    now = time.time()
    alps = directory.add_workspace(db, "Alps", now=now)
    ada = directory.add_user(db, alps, "Ada", now=now)
    directory.set_role(db, alps, ada, "administrator", now=now)
    how = partial(credentials.add_key, per_minute=60_000, burst=10_000, now=now)
    _, key = how(db, alps, "office", scopes=[*Purpose, "message"])
    _, token = credentials.add_token(db, ada, "program", now=now)
    return {"x-api-key": key, "authorization": f"Bearer {token}"}


def _remembered(pace: CpuPace, head: Request) -> CallerAccount:
    pace.remember(head)
    return pace.find_account(head)
