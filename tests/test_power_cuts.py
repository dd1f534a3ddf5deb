"""After a power cut under load, agent and hub still have all acknowledged data.

The tests record the disk calls of real processes, and compute states that a power cut may leave.
They open each state as the programs do. `tests/shipping/test_ext4.py` tests a real ext4.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from fieldagent.agent.journal import losses
from fieldagent.agent.journal.journal import Journal
from fieldagent.hub.store.opening import open_store
from fieldagent.store.group import StoreFailed
from tests import crash, disk
from tests.hub.alps import Alps
from tests.hub.test_journey import folder
from tests.processes import MODULE, administer, agent, hub, sky

STATES = 80
"""Number of states of each program, which takes about ten seconds."""
STATES_FULL = 1000
STATES_SOAK = 10_000
POSTED = 300


@dataclass(frozen=True)
class Recorded:
    """The file operations of a program in its folder, and its answers."""

    before: dict[str, bytes]
    calls: list[disk.Call]
    answered: Callable[[bytes], set[str]]
    """Returns the ids in the answers."""
    kept: Callable[[Path], set[str]]
    """Returns the ids in a folder, after opening it as the program does."""


def call_in_parallel(call: Callable[[int], int]) -> None:
    with ThreadPoolExecutor(4) as callers:
        assert set(callers.map(call, range(POSTED))) <= {200, 202}


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory, disk_library: Path) -> Recorded:
    """Record an agent that accepts Packages, delivers some of them, and ends in order."""
    home = tmp_path_factory.mktemp("agent")
    record = home / "record"
    writing = disk.recorded(disk_library, home / "state", record)
    with sky(home, 0.02), agent(home, {}, MODULE, **writing) as kit:

        def post(number: int) -> int:
            body = {"message": {"content": f"text {number}"}}
            path = "/api/package" if number % 50 == 7 else "/api/package/async"
            return kit.call("POST", path, body).status

        call_in_parallel(post)
        assert kit.stop() == 0

    def answered(said: bytes) -> set[str]:
        matches = re.findall(rb'{"id":(\d+),"status":(?:null|"(\w+)"),', said)
        return {f"{id_.decode()} {status.decode()}".strip() for id_, status in matches}

    return Recorded({}, list(disk.calls(record)), answered, packages)


def packages(state: Path) -> set[str]:
    journal = Journal(state / "journal.sqlite3")
    try:
        if losses.list_newest(journal.read):
            return set()
        numbers = {str(id_) for (id_,) in journal.read("SELECT id FROM package")}
        delivered = journal.read(
            "SELECT package.id FROM package JOIN leg USING (sequence)"
            " WHERE leg.status = 'Delivered'"
        )
        return numbers | {f"{id_} Delivered" for (id_,) in delivered}
    finally:
        journal.close()


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory, disk_library: Path) -> Recorded:
    home = tmp_path_factory.mktemp("hub")
    record, store = home / "record", folder(home / "state")
    database = str(store / "hub.sqlite3")
    alps = Alps(database)
    key = administer(database, "key", "add", "all", "--per-minute", "60000", "--burst", "9999")
    alps.proof["x-api-key"] = key["apiKey"]
    before = {str(file): file.read_bytes() for file in store.iterdir()}
    writing = disk.recorded(disk_library, store, record)
    with hub(home, {"database": database}, MODULE, **writing) as running:

        def push(number: int) -> int:
            alps.push(running.port, f"text {number}")
            return 200

        call_in_parallel(push)
        assert running.stop() == 0

    def answered(said: bytes) -> set[str]:
        return {id_.decode() for id_ in re.findall(rb"(?i)location: /api/push/([\w-]+)", said)}

    return Recorded(before, list(disk.calls(record)), answered, pushes)


def pushes(store: Path) -> set[str]:
    opened = open_store(str(store / "hub.sqlite3"))
    try:
        return {
            id_ for (id_,) in opened.run_once(lambda db: db.execute("SELECT request_id FROM item"))
        }
    finally:
        opened.close()


def lost(home: Path, what: Recorded, states: int, seed: int, *, lies: bool = False) -> int:
    """Return the number of answered ids that are missing over that many power cuts. Each state is
    opened as the program does. A file that is set aside counts as one.
    """
    random = Random(seed)
    failing = crash.Disk(what.before, lies=lies)
    missing, known = 0, 0
    for number, said in enumerate(crash.failures(failing, what.calls, states, random)):
        left = folder(home / f"{number}")
        failing.fail(left, random)
        answered = what.answered(said)
        known += len(answered)
        there: set[str] = set()
        with suppress(*([StoreFailed] if lies else [])):
            there = what.kept(left)
        missing += len(answered - there)
        assert lies or not list(left.glob("*.bad")), number
        shutil.rmtree(left)
    assert known
    print(f"{states} cuts, {known} times something had been answered, {missing} are not there")
    return missing


@pytest.mark.parametrize("program", ["agents", "hubs"])
@pytest.mark.parametrize(
    "states",
    [
        STATES,
        pytest.param(STATES_FULL, marks=pytest.mark.full),
        pytest.param(STATES_SOAK, marks=pytest.mark.soak),
    ],
)
def test_acknowledged_data_survives_a_power_cut(
    tmp_path: Path, request: pytest.FixtureRequest, program: str, states: int
) -> None:
    assert lost(tmp_path, request.getfixturevalue(program), states, seed=1) == 0


@pytest.mark.parametrize("program", [pytest.param("agents", marks=pytest.mark.full), "hubs"])
def test_data_is_lost_on_a_disk_that_ignores_syncs(
    tmp_path: Path, request: pytest.FixtureRequest, program: str
) -> None:
    """Without working syncs, as with `synchronous=OFF`, data is lost. This proves that the test
    above can fail.
    """
    assert lost(tmp_path, request.getfixturevalue(program), 8, seed=2, lies=True)
