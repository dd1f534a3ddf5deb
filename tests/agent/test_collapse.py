"""A Package that replaces another one, with a power cut at each of its commits."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.breaking import Break, Put, environment
from tests.processes import MODULE, Agent, agent, sky

TRANSACT = "fieldagent.agent.journal.journal:Journal._transact"
NO_BACKGROUND_TASKS = Put("fieldagent.agent.agent:BACKGROUND_TASKS", {})
"""Without background tasks, all commits are those of the Packages."""
AT_START = 2
"""Commits that reserve disk space for the journal."""
COMMITS = 3
"""One for each Package, and one that must not be necessary."""


def pending(state: Path) -> list[str]:
    """Return the waiting Packages in the journal of a killed agent, without changing it."""
    copy = state.with_name("copy")
    shutil.copytree(state, copy)
    journal = sqlite3.connect(copy / "journal.sqlite3")
    rows = journal.execute(
        "SELECT body FROM package JOIN leg USING (sequence) WHERE leg.status IS NULL"
    ).fetchall()
    journal.close()
    return [body for (body,) in rows]


def replace(kit: Agent) -> int:
    """Return the number of accepted Packages, 0 to 2."""
    for accepted, content in enumerate(["older", "newer"]):
        body = {"message": {"content": content}, "collapseKey": 5}
        try:
            kit.call("POST", "/api/package/async", body)
        except OSError:
            return accepted
    return 2


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("commit", range(COMMITS))
def test_kill_at_any_commit_leaves_either_older_or_newer_package(
    tmp_path: Path, commit: int, late: bool
) -> None:
    nobody = {"satellite-port": str(tmp_path / "nobody")}
    kill = Break(TRANSACT, after=AT_START + commit, late=late, kills=True)
    with agent(tmp_path, nobody, MODULE, **environment(tmp_path, kill, NO_BACKGROUND_TASKS)) as kit:
        accepted = replace(kit)
    waiting = pending(tmp_path / "state")
    assert len(waiting) <= 1, "the older Package would leave after the newer Package"
    assert len(waiting) == 1 or not accepted
    with sky(tmp_path) as satellite, agent(tmp_path) as kit:
        last = kit.post("last").body["id"]
        statuses = [kit.call("GET", f"/api/package/{i}").body["status"] for i in range(1, last)]
        assert statuses == ["Collapsed"] * (len(statuses) - 1) + ["Delivered"] * bool(statuses)
        both = any("newer" in body for body in waiting)
        assert not (both and any("older" in line for line in satellite.output()))
