"""Damage to the journal costs what is damaged, and is told. Real processes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes import agent, sky

JOURNAL = "state/journal.sqlite3"
SECOND = "sequence = (SELECT number + 2 FROM beginning)"


def accepted(home: Path, *contents: str) -> None:
    """They wait, and the agent has ended."""
    with agent(home, {"satellite-port": str(home / "nobody")}) as kit:
        for content in contents:
            body = {"message": {"content": content}}
            assert kit.call("POST", "/api/package/async", body).status == 202
        assert kit.stop() == 0


@pytest.mark.parametrize("column", ["body", "digest", "accepted", "id", "crc"])
def test_a_damaged_row_is_never_transmitted(tmp_path: Path, column: str) -> None:
    accepted(tmp_path, "first", "second", "third")
    other = {
        "body": "replace(body, 'second', 'secord')",
        "digest": "x'00'",
        "accepted": "accepted - 1",
        "id": "42",
        "crc": "crc + 1",
    }[column]
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as journal:
        journal.execute(f"UPDATE package SET {column} = {other} WHERE {SECOND}")
        journal.commit()
        ((second,),) = journal.execute("SELECT number + 2 FROM beginning")
    ids = [1, 42 if column == "id" else 2, 3]
    with sky(tmp_path) as satellite, agent(tmp_path) as kit:
        kit.post("last")
        found = [kit.call("GET", f"/api/package/{id_}").body for id_ in ids]
        assert [each["status"] for each in found] == ["Delivered", "Error", "Delivered"]
        assert found[1]["channels"]["Satellite"]["reason"] == "damaged"
        assert not [line for line in satellite.output() if "seco" in line]
        assert any(f"number {second} is damaged" in line for line in kit.output())
        kit.stop()
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as journal:
        assert journal.execute(f"SELECT count(*) FROM package WHERE {SECOND}").fetchone() == (1,)
        assert journal.execute("SELECT packages FROM loss").fetchall() == [(1,)]
