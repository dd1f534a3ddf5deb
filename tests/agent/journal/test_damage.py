"""Damage to the journal costs only the damaged data and is reported. Real processes."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.journal import high_water
from fieldagent.agent.journal.files import open_journal
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.schema import JOURNAL as SCHEMA
from fieldagent.agent.outbound.intake import RESUME_BATCH
from tests.processes import MODULE, Agent, agent, sky, until

JOURNAL = "state/journal.sqlite3"
VERSION_AT = 60
"""Offset of `user_version`, 32 bits: https://sqlite.org/fileformat2.html#1.3.12."""
SECOND = "sequence = (SELECT number + 2 FROM beginning)"


def accepted(home: Path, *contents: str) -> None:
    """Make an agent accept Packages that wait, and stop it."""
    with agent(home, {"satellite-port": str(home / "nobody")}) as kit:
        for content in contents:
            body = {"message": {"content": content}}
            assert kit.call("POST", "/api/package/async", body).status == 202
        assert kit.stop() == 0


@pytest.mark.parametrize(
    "column",
    [
        "body",
        *(
            pytest.param(each, marks=pytest.mark.full)
            for each in ("digest", "accepted", "id", "crc")
        ),
    ],
)
def test_damaged_package_is_reported_and_never_sent(tmp_path: Path, column: str) -> None:
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
        packages = [kit.call("GET", f"/api/package/{id_}").body for id_ in ids]
        assert [each["status"] for each in packages] == ["Delivered", "Error", "Delivered"]
        assert packages[1]["channels"]["Satellite"]["reason"] == "damaged"
        listed = {each["id"]: each for each in kit.call("GET", "/api/packages").body["packages"]}
        assert [listed[id_]["kind"] == "damaged" for id_ in ids] == [False, True, False]
        assert "post it again" in listed[ids[1]]["text"]
        (shown,) = [line for line in command(kit, "sent").splitlines() if "post it again" in line]
        assert shown.split()[0] == str(ids[1])
        assert not [line for line in satellite.output() if "seco" in line]
        assert any(f"number {second} is damaged" in line for line in kit.output())
        kit.stop()
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as journal:
        assert journal.execute(f"SELECT count(*) FROM package WHERE {SECOND}").fetchone() == (1,)
        assert journal.execute("SELECT packages FROM loss").fetchall() == [(1,)]


COMMANDS = {
    "no CBOR": "arguments = x'9f'",
    "another size": "arguments = x'8101'",
    "a text": "arguments = x'61c3'",
    "an unknown verb": "verb = 99",
    "a wrong state": "state = 'owed'",
}


@pytest.mark.full
@pytest.mark.parametrize("what", COMMANDS)
def test_damaged_command_does_not_block_later_commands(tmp_path: Path, what: str) -> None:
    accepted(tmp_path, "first")
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as journal:
        for number in (3, 4):
            journal.execute(
                "INSERT INTO command (number, verb, arguments, channel, came, state)"
                " VALUES (?, 2, x'80', 'Satellite', 1.0, 'accepted')",
                [number],
            )
        journal.execute(f"UPDATE command SET {COMMANDS[what]} WHERE number = 3")
        journal.commit()
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        until(lambda: [each["state"] for each in commands_of(kit)] == ["answered"] * 2)
        assert [each["outcome"] for each in commands_of(kit)] == ["done", "failed"]
        for each in kit.output():
            assert "This is a mistake" not in each


def commands_of(kit: Agent) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = kit.call("GET", "/api/commands").body["commands"]
    return listed


@pytest.mark.parametrize("bit", range(32))
def test_flipped_bit_in_journal_version_loses_nothing(tmp_path: Path, bit: int) -> None:
    """The agent recognises a later version also by files beside the journal."""
    path = tmp_path / "journal.sqlite3"
    open_journal(path).connection.close()
    with path.open("r+b") as file:
        file.seek(VERSION_AT + bit // 8)
        (was,) = file.read(1)
        file.seek(VERSION_AT + bit // 8)
        file.write(bytes([was ^ 0x80 >> bit % 8]))
    connection = open_journal(path).connection
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA.version,)
    assert [each[0] for each in connection.execute("SELECT packages FROM loss")] in ([], [0])
    connection.close()


def test_damaged_package_deep_in_queue_is_listed_and_counted(tmp_path: Path) -> None:
    """The damaged Package is behind the first slice that is restored, and calls come before its
    turn.
    """
    count = 2 * RESUME_BATCH
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        for number in range(count):
            body = {"message": {"content": f"number {number}"}}
            assert kit.call("POST", "/api/package/async", body).status == 202
        kit.kill()
    with closing(sqlite3.connect(tmp_path / JOURNAL)) as journal:
        journal.execute(
            "UPDATE package SET crc = crc + 1 WHERE sequence = (SELECT max(sequence) FROM package)"
        )
        journal.commit()
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        waiting = kit.call("GET", "/api/queue").body["packages"]
        loss_report = kit.call("GET", "/api/status").body["journal"]["losses"]
        kinds = [each["kind"] for each in waiting]
        assert kinds.count("message") == count - 1
        assert kinds.count("damaged") == 1 or loss_report
        # The call waits until all Packages are queued again, and by then the loss is reported.
        assert kit.call("DELETE", "/api/queue").body == {"deleted": count - 1}
        (loss,) = kit.call("GET", "/api/status").body["journal"]["losses"]
        assert loss["packages"] == 1


def test_package_damaged_while_waiting_is_listed_as_damaged(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        for content in ("first", "second"):
            body = {"message": {"content": content}}
            assert kit.call("POST", "/api/package/async", body).status == 202
        with closing(sqlite3.connect(tmp_path / JOURNAL)) as journal:
            journal.execute(f"UPDATE package SET body = 'nonsense' WHERE {SECOND}")
            journal.commit()
        for path in ("/api/queue", "/api/packages"):
            listed = {each["id"]: each for each in kit.call("GET", path).body["packages"]}
            assert [listed[id_]["kind"] for id_ in (1, 2)] == ["message", "damaged"]
        for each in ("queue", "sent"):
            shown = command(kit, each).splitlines()
            (line,) = [line for line in shown if line.endswith("on the disk: post it again")]
            assert line.split()[0] == "2"
        assert kit.call("GET", "/api/packages?kind=message").body["packages"][0]["id"] == 1


def killed(home: Path, count: int) -> None:
    """Kill an agent with `count` waiting Packages. All data is in the log."""
    with agent(home, {"satellite-port": str(home / "nobody")}) as kit:
        for number in range(count):
            body = {"message": {"content": f"number {number}"}}
            assert kit.call("POST", "/api/package/async", body).status == 202
        kit.kill()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """The log has its maximum length, so the newest data is at its beginning."""
    path.write_bytes(path.read_bytes()[: 10 * FRAME])


FRAME = 4096 + 24
"""Bytes of a page in the log."""
LOSSES: list[tuple[str, Callable[[Path], None], str]] = [
    ("-wal", empty, "the last entries are lost"),
    ("-wal", Path.unlink, "the last entries are lost"),
    ("-wal", cut, "the last entries are lost"),
    ("*", empty, "it is empty"),
    ("*", Path.unlink, "the file is gone"),
]


@pytest.mark.parametrize(
    ("what", "harm", "words"),
    [
        pytest.param(*each, marks=() if each[1] is Path.unlink else pytest.mark.full)
        for each in LOSSES
    ],
)
def test_journal_loss_is_reported_and_ids_are_not_reused(
    tmp_path: Path, what: str, harm: Callable[[Path], None], words: str
) -> None:
    killed(tmp_path, 20)
    for suffix in ["", "-wal", "-shm"] if what == "*" else [what]:
        harm(tmp_path / f"{JOURNAL}{suffix}")
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        (loss,) = kit.call("GET", "/api/status").body["journal"]["losses"]
        queued = kit.call("GET", "/api/queue").body["queued"]
        assert words in loss["text"]
        assert loss["packages"] == 20 - queued > 0
        assert f"unknown: the last {20 - queued} accepted" in loss["text"]
        assert "post those again" in loss["text"].lower()
        assert any(words in line for line in kit.output())
        body = {"message": {"content": "the next"}}
        assert kit.call("POST", "/api/package/async", body).body["id"] == 21
        shown = command(kit, "status")
        assert words in shown


def test_journal_without_rescue_extension_continues_with_next_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fieldagent.agent.journal.repair.list_places", lambda kind: {})
    path = tmp_path / JOURNAL
    accepted(tmp_path, "first", "second")
    with closing(open_journal(path).connection) as journal:
        before = high_water.read_highest_numbers(journal)
    path.write_bytes(b"\xff" * 8192)
    with closing(open_journal(path).connection) as journal:
        assert high_water.read_highest_numbers(journal) == before
        assert journal.execute("SELECT packages, payloads FROM loss").fetchall() == [(2, 0)]
    assert path.with_name("journal.sqlite3.1.bad").read_bytes() == b"\xff" * 8192


def test_clean_stop_and_kill_report_no_loss(tmp_path: Path) -> None:
    killed(tmp_path, 20)
    for _ in range(2):
        with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
            assert kit.call("GET", "/api/queue").body["queued"] == 20
            assert kit.call("GET", "/api/status").body["journal"]["losses"] == []
            assert kit.stop() == 0


def test_unchanged_journal_is_opened_without_integrity_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / JOURNAL
    killed(tmp_path, 3)
    looks: list[object] = []
    monkeypatch.setattr("fieldagent.agent.journal.files._run_integrity_check", looks.append)
    for expected in (1, 1, 1):
        Journal(path).close()
        assert len(looks) == expected
    kept = Journal(path)
    # As after a kill, the journal was opened and never closed in order.
    Journal(path).close()
    assert len(looks) == 2
    kept.close()


def command(kit: Agent, *arguments: str) -> str:
    done = subprocess.run(
        [*MODULE, *arguments, "--port", str(kit.port)], capture_output=True, text=True, check=True
    )
    return done.stdout
