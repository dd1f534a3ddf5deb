"""A kit that lost its journal and keeps its token: confirmations of the old journal do not count
for the new one. Real processes, and the worst case: the new journal uses a number again.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.hub.test_cluster import contents
from tests.hub.test_journey import folder
from tests.processes import administer, agent, free_port, hub, until

JOURNAL = "state/journal.sqlite3"


def last_number(home: Path) -> int:
    with closing(sqlite3.connect(home / JOURNAL)) as look:
        ((number,),) = look.execute("SELECT max(sequence) FROM package").fetchall()
    return int(number)


def reuse_number(home: Path, number: int) -> None:
    """Set the number of the new journal's next Package."""
    with closing(sqlite3.connect(home / JOURNAL)) as journal:
        journal.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'package'", (number - 1,))
        journal.commit()
    # The mark would show that the number is too low, and the agent would start with another one.
    (home / f"{JOURNAL}-mark").unlink()


@pytest.mark.parametrize("sos", [False, True])
def test_late_receipt_for_an_old_journal_confirms_nothing(tmp_path: Path, sos: bool) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    kits = {}
    for name in ("ada", "ben"):
        member = administer(database, "user", "add", name)["id"]
        device = administer(database, "device", "add", name, "--user", str(member))
        kits[name] = {"satellite-port": None, "hub-token": device["hub-token"]}
    homes = {name: folder(tmp_path / name) for name in kits}
    priority = 100 if sos else 12
    with ExitStack() as stack:
        running = stack.enter_context(hub(folder(tmp_path / "hub"), {"database": database}))
        linked: dict[str, Any] = {
            name: {**settings, "hub-address": running.address} for name, settings in kits.items()
        }
        with agent(homes["ada"], linked["ada"]) as ada:
            ada.post("of the old journal", priority=priority)
            ada.kill()
        number = last_number(homes["ada"])
        with agent(homes["ben"], linked["ben"]) as ben:
            # Ada is away: the hub owes her the receipt.
            until(lambda: contents(ben) == ["of the old journal"])
            until(lambda: _count_owed_receipts(database) == 1)
            assert ben.stop() == 0
        shutil.rmtree(homes["ada"] / "state")
        with agent(homes["ada"], {"satellite-port": None}) as ada:
            assert ada.stop() == 0
        reuse_number(homes["ada"], number)
        away = linked["ada"] | {"hub-address": f"http://127.0.0.1:{free_port()}"}
        with agent(homes["ada"], away) as ada:
            # Before the receipt arrives: an item that no receiver has cannot be refused.
            said = {"message": {"content": "of the new journal"}, "priority": priority}
            new = ada.call("POST", "/api/package/async", said).body["id"]
            assert last_number(homes["ada"]) == number
            assert ada.stop() == 0
        with agent(homes["ada"], linked["ada"]) as ada:
            until(lambda: _count_owed_receipts(database) == 0)
            package = ada.call("GET", f"/api/package/{new}").body
            assert "receipts" not in package or package["receipts"] == []
            status = ada.call("GET", "/api/status").body
            assert status["confirmationsRefused"] == 1
            if sos:
                steps = [step["state"] for step in status["sos"]["incident"]["steps"]]
                assert "heard by" not in steps
            # Ben, who has the new item now, confirms it.
            with agent(homes["ben"], linked["ben"]) as ben:
                until(lambda: "of the new journal" in contents(ben))
                until(lambda: ada.call("GET", f"/api/package/{new}").body.get("receipts"))


def _count_owed_receipts(database: str) -> int:
    with closing(sqlite3.connect(database)) as look:
        ((count,),) = look.execute("SELECT count(*) FROM receipt WHERE state = 'waiting'")
    return int(count)
