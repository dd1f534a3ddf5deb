"""A damaged journal continues with a new number, so that the hub sends all names again, and no
sequence number is used twice.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.processes import agent

pytestmark = pytest.mark.full

PAGE = 4096


def numbers(home: Path) -> tuple[int, int]:
    """Return the number of the journal, and that of the last accepted Package."""
    with closing(sqlite3.connect(home / "state/journal.sqlite3")) as look:
        ((journal,),) = look.execute("SELECT number FROM beginning").fetchall()
        ((last,),) = look.execute("SELECT max(sequence) FROM package").fetchall()
    return journal, last


@pytest.mark.parametrize("pages", [range(6, 7), range(1000)], ids=["salvaged", "set aside"])
def test_damaged_journal_gets_new_number_and_continues_sequence(
    tmp_path: Path, pages: range
) -> None:
    body = {"message": {"content": "x" * 300}}
    with agent(tmp_path, {"satellite-port": None}) as kit:
        for _ in range(50):
            assert kit.call("POST", "/api/package/async", body).status == 202
        assert kit.stop() == 0
    journal, last = numbers(tmp_path)
    path = tmp_path / "state/journal.sqlite3"
    held = bytearray(path.read_bytes())
    begin, end = PAGE * pages.start, min(PAGE * pages.stop, len(held))
    held[begin:end] = b"\xa5" * (end - begin)
    path.write_bytes(held)
    with agent(tmp_path, {"satellite-port": None}) as kit:
        assert kit.call("POST", "/api/package/async", body).status == 202
        assert kit.stop() == 0
    assert (tmp_path / "state/journal.sqlite3.1.bad").exists()
    named_now, given_now = numbers(tmp_path)
    assert named_now != journal
    assert given_now == last + 1
