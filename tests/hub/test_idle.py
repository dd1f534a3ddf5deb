"""An idle hub does almost no work, and is not slower because of that."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from fieldagent.hub import hub as program
from fieldagent.hub import idle
from fieldagent.hub.field import kit_watch
from fieldagent.hub.part import list_hub_parts
from fieldagent.hub.settings import load_settings
from fieldagent.hub.store import sqlite
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db
from fieldagent.hub.store.opening import open_store
from fieldagent.hub.store.sqlite import SqliteStore
from tests.breaking import Put, environment
from tests.hub.alps import Alps
from tests.hub.test_cluster import push
from tests.hub.test_journey import IMEI, folder, receiver
from tests.processes import MODULE, PATIENCE, Hub, administer, administer_from_shell, hub, until
from tests.running import running

T = TypeVar("T")
NEVER = 1e6
"""Seconds."""
NO_NET = [
    Put("fieldagent.hub.idle:BUSY_INTERVAL_S", 0.2),
    Put("fieldagent.hub.idle:ROUND_INTERVAL_MAX_S", NEVER),
    Put("fieldagent.hub.store.sqlite:CHECK_INTERVAL_MAX_S", NEVER),
    Put("fieldagent.hub.webhook.deliveries:SCHEDULE", [0.0, 4.0]),
]
"""The hub checks nothing without a reason."""


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.01)


@pytest.mark.parametrize(
    ("seconds", "written", "news", "over"),
    [
        (17.0, None, None, 17.0),
        (
            2.0,
            None,
            None,
            idle.BUSY_INTERVAL_S,
        ),  # as it was when the hub checked every five seconds
        (-1.0, None, None, idle.BUSY_INTERVAL_S),
        (NEVER, None, None, idle.ROUND_INTERVAL_MAX_S),
        (NEVER, 1.0, None, idle.BUSY_INTERVAL_S),
        (NEVER, 30.0, None, 30.0),
        (NEVER, 1.0, 2.0, 2.0),
        (NEVER, 30.0, 30.0, 30.0),
    ],
)
async def test_wait_ends_at_the_due_time_or_after_news(
    seconds: float,
    written: float | None,
    news: float | None,
    over: float,
    clock: trio.testing.MockClock,
) -> None:
    events = {name: trio.Event() for name in ("written", "news")}

    async def set_after(name: str, after: float | None) -> None:
        if after is not None:
            await trio.sleep(after)
            events[name].set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(set_after, "written", written)
        nursery.start_soon(set_after, "news", news)
        began = trio.current_time()
        await idle.wait_until_due(events["written"], seconds, news=events["news"])
        assert trio.current_time() - began == pytest.approx(over)
        nursery.cancel_scope.cancel()


class Counted(SqliteStore):
    """Counts its requests."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.asked: Counter[str] = Counter()

    async def commit(self, operation: Callable[[Db], T]) -> T:
        self.asked["commits"] += 1
        return await super().commit(operation)

    async def read(self, operation: Callable[[Db], T]) -> T:
        self.asked["reads"] += 1
        return await super().read(operation)


async def test_idle_hub_reads_once_a_minute_and_writes_nothing(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    Alps(database)
    config = tmp_path / "hub.properties"
    config.write_text(f"database={database}\n")
    store = Counted(database)
    subject = program.Hub(load_settings(config), store)
    async with running(store), trio.open_nursery() as nursery:
        tasks = program.list_tasks(subject)
        for task in tasks.values():
            nursery.start_soon(task)
        await trio.sleep(600)
        store.asked.clear()
        began = _read_file_stats(database)
        await trio.sleep(5 * idle.ROUND_INTERVAL_MAX_S)
        # Expiry, calls to operators, webhooks, SMS to kits, the log of incidents, the tasks of
        # extensions, and the watched facts of the kits.
        of_extensions = sum(len(part.tasks) for part in list_hub_parts())
        assert store.asked == {"reads": 5 * (5 + of_extensions + len(kit_watch.list_checks()))}
        assert _read_file_stats(database) == began
        nursery.cancel_scope.cancel()
    store.close()


def _read_file_stats(database: str) -> list[tuple[int, int]]:
    files = [Path(database), Path(f"{database}-wal")]
    return [(each.stat().st_size, each.stat().st_mtime_ns) for each in files]


async def test_unannounced_write_wakes_all_hubs(database: str) -> None:
    """The write comes without an announcement."""

    def write(db: Db) -> None:
        db.execute("INSERT INTO workspace (name, created) VALUES ('w', 0)")

    one, other = open_store(database), open_store(database)
    async with running(one), running(other):
        here, there = one.get_event(ANY_WRITE_TOPIC), other.get_event(ANY_WRITE_TOPIC)
        await one.commit(write)
        with trio.fail_after(PATIENCE):
            await here.wait()
            await there.wait()
    one.close()
    other.close()


async def test_read_only_transaction_wakes_no_listener(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "hub.sqlite3"))
    async with running(store):
        written = store.get_event(ANY_WRITE_TOPIC)
        await store.commit(lambda db: db.execute("SELECT 1 FROM device"))
        assert not written.is_set()
    store.close()


def _raise_os_error(path: Path) -> Any:
    raise OSError(24, "as a test")


async def test_missing_kernel_notification_is_logged_once_and_replaced_by_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite, "FileWrites", _raise_os_error)
    monkeypatch.setattr(sqlite, "POLL_INTERVAL_S", 0.01)
    store = open_store(str(tmp_path / "hub.sqlite3"))
    with caplog.at_level(logging.WARNING):
        async with running(store):
            for name in ("one", "two"):
                news = store.get_event("news")
                other = open_store(str(tmp_path / "hub.sqlite3"))
                other.run_once(partial(_add_workspace, name))
                other.close()
                with trio.fail_after(PATIENCE):
                    await news.wait()
    store.close()
    assert len(caplog.messages) == 1
    assert "the kernel does not report writes of other programs" in caplog.text


def _add_workspace(name: str, db: Db) -> None:
    db.execute("INSERT INTO workspace (name, created) VALUES (?, 0)", name)


@contextmanager
def idle_hub(home: Path, database: str, **settings: str) -> Iterator[Hub]:
    """Run a hub that checks nothing without a reason."""
    settings |= {"database": database, "webhook-allow": "127.0.0.0/8"}
    with hub(folder(home / "hub"), settings, MODULE, **environment(home, *NO_NET)) as running:
        yield running


def test_push_expires_on_an_idle_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    with idle_hub(tmp_path, database) as running:
        push(running.port, alps.proof, {**alps.body, "data": {"payload": "AA=="}, "timeToLive": 3})
        until(lambda: list_states(database) == ["expired"])


def list_states(database: str) -> list[str]:
    """Return the states of deliveries, without a write."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as look:
        return [state for (state,) in look.execute("SELECT state FROM delivery")]


def test_satellite_message_is_sent_after_the_grace_on_an_idle_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    member = administer(database, "user", "add", "Ada")["id"]
    imei = ("--imei", IMEI, "--operator", "directip")
    administer(database, "device", "add", "far", "--user", str(member), *imei)
    alps.body["targetUserId"] = member
    with idle_hub(tmp_path, database, **{"satellite-grace": "3"}) as running:
        alps.push(running.port, "over satellite")
        running.expect("the hub has no settings for the operator 'directip'")


@pytest.mark.full
def test_failed_post_is_retried_on_an_idle_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    fails = iter([True])

    def fail_once() -> None:
        if next(fails, False):
            raise ConnectionAbortedError("as a test")

    with receiver(before_answer=fail_once) as hooked, idle_hub(tmp_path, database) as running:
        administer(database, "webhook", "add", hooked.url, "--untried")
        with alps.kit(tmp_path, running.address) as kit:
            kit.call("POST", "/api/package", {"message": {"content": "to the webhook"}})
        until(lambda: len(hooked.got) == 2)


def test_change_from_the_command_line_reaches_an_idle_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    with idle_hub(tmp_path, database) as running, alps.kit(tmp_path, running.address):
        running.expect("kit is linked")
        administer_from_shell(database, "device", "disable", "1")
        running.expect("the link to kit must end: the device was disabled")
