"""Damage to the journal costs only the damaged data. Real processes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
import trio

from fieldagent.agent.journal import commands, losses
from fieldagent.agent.journal.files import record_closed_state
from fieldagent.agent.journal.journal import Journal
from tests.agent.journal.test_damage import JOURNAL, VERSION_AT, accepted, killed
from tests.agent.journal.test_journal import remember, remembered
from tests.agent.test_remote_commands import NOW, at_work
from tests.processes import agent, sky

FIRST = "sequence = (SELECT number + 1 FROM beginning)"
OF_NOBODY = {
    "how it ended": f"UPDATE package SET status = 'Deliveref' WHERE {FIRST}",
    "how it ended on a channel": f"UPDATE leg SET status = 'Deliveref' WHERE {FIRST}",
    "the channel": f"UPDATE leg SET channel = 'Satellitg' WHERE {FIRST}",
    "the channel in its history": "UPDATE story SET channel = 'Satellitg'",
    "what is under way": "INSERT INTO intent VALUES ('Satellite', x'00', 0, 0, '[[1,0}]', 'm', 1)",
    "how far it came": "INSERT INTO reached SELECT sequence, 0, 77, '', 1.0 FROM package",
    "what is owed": "INSERT INTO rung_owed VALUES (0, 5, 77, '', 1, x'00000000')",
    "what was said of an SOS": "INSERT INTO incident_word VALUES (1, 0, 5, 'ceen', '', '', 1.0, 1)",
    "whose it is": "INSERT INTO incident_item VALUES (7, 5)",
    "how long it took": "INSERT INTO tally VALUES ('latency', 'Satellite', 'q', 1, 1.0)",
    "a dead letter": "INSERT INTO dead_letter (channel, body, reason, received)"
    " VALUES ('Satellitg', x'00', '', 1.0)",
    "a person": "INSERT INTO person VALUES ('user', 9, 'Anna', '[', '[]')",
    "a command": "INSERT INTO command (number, verb, arguments, channel, came, state)"
    " VALUES (3, 1, x'80', 'Satellite', 1.0, 'ansvered')",
    "what came": "INSERT INTO inbound (request_id, sender, body, received)"
    " VALUES ('r', '1', '{\"requestId\":\"r\"]', 1.0)",
}
"""A flipped bit in a text, which SQLite's own check does not find."""


@pytest.mark.full
@pytest.mark.parametrize("what", OF_NOBODY)
def test_unknown_enum_value_stops_neither_start_nor_lists(tmp_path: Path, what: str) -> None:
    accepted(tmp_path, "first", "second", "third")
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as journal:
        when = f"(SELECT accepted FROM package WHERE {FIRST})"
        for table in ("leg", "package"):
            ends = f"UPDATE {table} SET status = 'Delivered', ended = {when} WHERE {FIRST}"
            journal.execute(ends)
        journal.execute(
            "INSERT INTO story (sequence, channel, event, detail, at)"
            f" SELECT sequence, channel, 'sent', '', 1.0 FROM leg WHERE {FIRST}"
        )
        journal.execute(OF_NOBODY[what])
        journal.commit()
    for _ in range(2):
        with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
            listed = {
                each["id"]: each for each in kit.call("GET", "/api/packages").body["packages"]
            }
            assert [listed[id_]["status"] for id_ in (1, 2, 3)] == ["Delivered", None, None]
            for path in ("/api/package/1", "/api/sos", "/api/people", "/api/inbound", "/metrics"):
                assert kit.call("GET", path).status == 200
            assert kit.call("GET", "/api/commands").status == 200
            (loss,) = kit.call("GET", "/api/status").body["journal"]["losses"]
            fault = "orphaned entries" if what == "whose it is" else "entries that the agent"
            assert f"has {fault}" in loss["text"] and loss["packages"] == 0
            kit.kill()


def test_waiting_packages_are_sent_despite_an_unknown_schema_version(tmp_path: Path) -> None:
    accepted(tmp_path, "first", "second")
    with (tmp_path / JOURNAL).open("r+b") as file:
        file.seek(VERSION_AT + 2)
        file.write(b"\x04")
    with sky(tmp_path), agent(tmp_path) as kit:
        kit.post("last")
        statuses = [kit.call("GET", f"/api/package/{id_}").body["status"] for id_ in (1, 2)]
        assert statuses == ["Delivered", "Delivered"]
        assert any("no program has given it the version 10" in line for line in kit.output())
        kit.stop()


@pytest.mark.parametrize("name", [b"handover_waiting", b"package_ended", b"identity"])
def test_undecodable_schema_name_does_not_stop_the_start(tmp_path: Path, name: bytes) -> None:
    accepted(tmp_path, "first", "second", "third")
    journal = tmp_path / JOURNAL
    journal.write_bytes(journal.read_bytes().replace(name, b"\xf3" + name[1:], 1))
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        assert kit.call("GET", "/api/queue").body["queued"] == 3


def spoil_events(path: Path) -> None:
    """Damage a page that no start reads."""
    content = bytearray(path.read_bytes())
    places = [at for at in range(0, len(content), 4096) if content[at] == 13]
    at = max(places, key=lambda at: content[at : at + 4096].count(b"package"))
    content[at + 8 : at + 400] = bytes(392)
    path.write_bytes(content)


@pytest.mark.full
@pytest.mark.parametrize("by_the_disk", [True, False])
def test_cleanly_closed_journal_is_checked_after_the_start(
    tmp_path: Path, by_the_disk: bool
) -> None:
    path = tmp_path / JOURNAL
    killed(tmp_path, 400)
    Journal(path).close()
    spoil_events(path)
    if by_the_disk:
        # The file is unchanged.
        record_closed_state(path)
        journal = Journal(path)
        assert losses.list_newest(journal.read) == []
        trio.run(journal.check_skipped_integrity)
        assert "the journal is damaged" in str(journal.failed)
        journal.close()
    journal = Journal(path)
    (loss,) = losses.list_newest(journal.read)
    assert loss.packages == 0
    journal.close()
    journal = Journal(path)
    trio.run(journal.check_skipped_integrity)
    assert journal.failed is None
    journal.close()


JOURNAL_FILES = [JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm"]
WAITING = 120
FLIPS, SOME_FLIPS, MANY_FLIPS = 24, 100, 1000


def flip_random_bit(files: Sequence[Path], random: Random) -> str:
    """Flip one random bit in one of the files, and return its place."""
    file = random.choice([file for file in files if file.exists() and file.stat().st_size])
    content = bytearray(file.read_bytes())
    place, bit = random.randrange(len(content)), random.randrange(8)
    content[place] ^= 1 << bit
    file.write_bytes(content)
    return f"{file.name} byte {place} bit {bit}"


def check_survives_flips(home: Path, flips: int, seed: int) -> None:
    """Check that each start succeeds and at least 99 % of the undamaged Packages wait as before.

    A flip damages at most one row.
    """
    kept = {}
    for how in ("stopped", "killed"):
        (home / how).mkdir()
        if how == "killed":
            killed(home / how, WAITING)
        else:
            accepted(home / how, *(f"number {number}" for number in range(WAITING)))
        kept[how] = home / how / "state"
    random = Random(seed)
    there, losses = 0, []
    for number in range(flips):
        work = home / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        shutil.copytree(kept[random.choice(["stopped", "killed"])], work / "state")
        where = flip_random_bit([work / file for file in JOURNAL_FILES], random)
        with agent(work, {"satellite-port": str(work / "nobody")}) as kit:
            waiting = kit.call("GET", "/api/queue").body["packages"]
            loss_report = kit.call("GET", "/api/status").body["journal"]["losses"]
        # A damaged Package is listed as damaged until it ends.
        ids = {each["id"] for each in waiting if each["kind"] != "damaged"}
        assert ids <= set(range(1, WAITING + 1)), where
        if len(ids) < WAITING:
            losses.append(f"{where}: {WAITING - len(ids)}")
            assert loss_report or len(waiting) == WAITING, f"in silence: {where}"
        there += min(len(ids), WAITING - 1)
        print(f"{number + 1} {where}: {len(ids)} of {WAITING}", flush=True)
    print(f"{there} of {flips * (WAITING - 1)} undamaged are there; {losses}")
    assert there >= 0.99 * flips * (WAITING - 1), losses


@pytest.mark.full
def test_flipped_bits_lose_only_the_affected_packages(tmp_path: Path) -> None:
    check_survives_flips(tmp_path, FLIPS, seed=11)


@pytest.mark.full
def test_hundred_flipped_bits_lose_only_the_affected_packages(tmp_path: Path) -> None:
    check_survives_flips(tmp_path, SOME_FLIPS, seed=5)


@pytest.mark.soak
def test_thousand_flipped_bits_lose_only_the_affected_packages(tmp_path: Path) -> None:
    check_survives_flips(tmp_path, MANY_FLIPS, seed=3)


@pytest.mark.parametrize("damage", ["not a database", "wrong page"])
async def test_damaged_journal_is_set_aside_and_its_rows_are_copied(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "journal.sqlite3"
    journal = Journal(path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.run)
        for number in range(200):
            await journal.commit(remember(f"{number:0200}"))
        nursery.cancel_scope.cancel()
    journal.close()
    content = bytearray(path.read_bytes())
    at = 0 if damage == "not a database" else 8192
    content[at : at + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    again = Journal(path)
    assert len(remembered(again)) == 200, "none of them is on that page"
    again.close()
    assert (tmp_path / "journal.sqlite3.1.bad").exists()


async def test_repaired_journal_keeps_the_numbers_of_its_commands(tmp_path: Path) -> None:
    async with at_work(tmp_path) as kit:
        for number in range(NOW, NOW + 4):
            await kit.hears(number, "status")
        await kit.answered(4)
    with (tmp_path / "journal.sqlite3").open("r+b") as file:
        file.seek(20)
        file.write(b"\xff" * 40)
    async with at_work(tmp_path) as kit:
        assert kit.journal.read("SELECT text FROM loss")
        await kit.hears(NOW + 2, "status")
        await kit.hears(NOW + 4, "log")
        await kit.answered(1)
        assert [each.number for each in commands.list_newest(kit.journal, 9)][:2] == [
            NOW + 4,
            NOW + 3,
        ]
        assert len(commands.list_newest(kit.journal, 9)) == 5
