"""`fieldagent hub database move`: a hub moves from SQLite to PostgreSQL and back."""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import sqlite3
import subprocess
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fieldagent.hub.store import moving
from fieldagent.hub.store.opening import open_store
from fieldagent.system.exit_codes import REFUSED
from tests.hub.test_cluster import push
from tests.hub.test_journey import folder, message_to, receiver
from tests.hub.test_rebuilt import look, posted, texts
from tests.kept.leave import hub_says, proof_of
from tests.postgres import new_database
from tests.processes import MODULE, PATIENCE, administer, agent, free_port, hub, until

KEPT = Path(__file__).parents[1] / "kept/0.1"
LONG = "3650"


def read_all_rows(database: str) -> dict[str, Any]:
    """Return all rows of an SQLite file, without those of hub processes, and the last ids."""
    with closing(sqlite3.connect(database)) as connection:
        names = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            if name not in moving.PROCESS_TABLES
        ]
        return {
            name: sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
            for name in names
        }


def run_move(origin: str, target: str) -> subprocess.CompletedProcess[str]:
    words = ("hub", "database", "move", target, "--database", origin, "--json")
    return subprocess.run([*MODULE, *words], capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture
def filled(tmp_path: Path) -> str:
    """Return a hub that a team used: users, devices, items, posts, a contact, an open SOS."""
    database = tmp_path / "hub.sqlite3"
    database.write_bytes(gzip.decompress((KEPT / "hub.sqlite3.gz").read_bytes()))
    store = open_store(str(database))
    # Ids of deleted rows, the numbers that a hub of many years has, and a text that PostgreSQL
    # does not accept as it is.
    store.run_once(lambda db: db.execute("UPDATE sqlite_sequence SET seq = 3000000000"))
    store.run_once(
        lambda db: db.execute("UPDATE contact SET latitude = ?, last_update = ?", -0.0, "a\0b")
    )
    store.close()
    return str(database)


@pytest.mark.full
def test_hub_answers_the_same_after_moves_to_postgresql_and_back(
    filled: str, postgres: str, tmp_path: Path
) -> None:
    proof = json.loads((KEPT / "said.json").read_text())["sqlite"]["proof"]
    there, back = new_database(postgres), str(tmp_path / "back.sqlite3")
    before, said = read_all_rows(filled), []
    for origin, target in ((filled, there), (there, back)):
        done = run_move(origin, target)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rows"] == sum(
            len(rows) for name, rows in before.items() if not name.startswith("sqlite")
        )
        assert "Set `database`" in done.stderr
        if origin == filled:
            assert read_all_rows(filled) == before
        else:
            before["contact"] = [
                tuple("a\N{REPLACEMENT CHARACTER}b" if value == "a\0b" else value for value in row)
                for row in before["contact"]
            ]
            after = read_all_rows(back)
            assert after.keys() == before.keys()
            for name in before:
                assert after[name] == before[name], name
    for number, database in enumerate((filled, there, back)):
        home = folder(tmp_path / str(number))
        with hub(home, {"database": database, "keep-days": LONG}) as running:
            said.append(hub_says(running, proof))
    assert said[0] == said[1] == said[2]
    assert said[0]["sos"] and said[0]["webhooks"] and said[0]["contacts"]
    for database in (there, back):
        assert administer(database, "user", "add", "Zoe")["id"] == 3_000_000_001


@pytest.mark.full
def test_move_to_a_filled_or_same_kind_database_is_rejected(
    filled: str, postgres: str, tmp_path: Path
) -> None:
    there = new_database(postgres)
    administer(there, "init", "Andes")
    refused = run_move(filled, there)
    assert refused.returncode == REFUSED and not refused.stdout
    assert "already has data in its table workspace: nothing was copied" in refused.stderr
    assert look(there, "SELECT name FROM workspace") == [("Andes",)]
    refused = run_move(filled, str(tmp_path / "other.sqlite3"))
    assert refused.returncode == REFUSED and "from SQLite to PostgreSQL" in refused.stderr
    assert not (tmp_path / "other.sqlite3").exists()


@pytest.mark.full
@pytest.mark.parametrize("runs", ["source", "target"])
@pytest.mark.parametrize("origin", ["sqlite", "postgresql"])
def test_move_is_rejected_while_a_hub_runs(
    origin: str, runs: str, postgres: str, tmp_path: Path
) -> None:
    ends = [str(tmp_path / "hub.sqlite3"), new_database(postgres)]
    source, target = ends if origin == "sqlite" else reversed(ends)
    administer(source, "init", "Alps")
    administer(target, "database", "migrate")
    used = {"source": source, "target": target}[runs]
    with hub(folder(tmp_path / "hub"), {"database": used}):
        refused = run_move(source, target)
        assert refused.returncode == REFUSED, refused.stderr
        assert "a hub or another command uses" in refused.stderr
        assert look(target, "SELECT * FROM workspace") == []
    if runs == "source":
        done = run_move(source, target)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("to", ["postgresql", pytest.param("sqlite", marks=pytest.mark.full)])
def test_killed_move_leaves_the_target_empty_and_can_be_repeated(
    filled: str, postgres: str, tmp_path: Path, to: str
) -> None:
    server, source = new_database(postgres), filled
    target = server
    if to == "sqlite":
        assert run_move(filled, server).returncode == 0
        source, target = server, str(tmp_path / "target.sqlite3")
    administer(target, "database", "migrate")
    reads, writes = os.pipe()
    # A full pipe stops the program at its first line of progress, which comes after a table.
    os.set_blocking(writes, False)
    os.write(writes, bytes(fcntl.fcntl(writes, fcntl.F_GETPIPE_SZ)))
    os.set_blocking(writes, True)
    command = [*MODULE, "hub", "database", "move", target, "--database", source]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=writes) as moving_now:
        copies = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state = 'idle in transaction'"
        )
        if to == "postgresql":
            copies += " AND backend_xid IS NOT NULL"
        try:
            until(lambda: look(server, copies) == [(1,)])
        finally:
            moving_now.kill()
    os.close(writes)
    os.close(reads)
    until(lambda: look(server, copies) == [(0,)])
    assert look(target, "SELECT * FROM workspace") == []
    done = run_move(source, target)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_move_with_a_differing_copy_is_undone(
    filled: str, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver or a trigger may change a value."""
    there = new_database(postgres)
    open_store(there).close()
    with psycopg.connect(there) as connection:
        connection.execute(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN NEW.words := NEW.words || '.'; RETURN NEW; END $$"
        )
        connection.execute(
            "CREATE TRIGGER spoil BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION spoil()"
        )
    refused = run_move(filled, there)
    assert refused.returncode == REFUSED
    assert "the copy of the table item differs" in refused.stderr
    assert look(there, "SELECT * FROM workspace") == []


@pytest.mark.full
def test_kits_and_webhook_get_each_item_once_across_two_moves(
    postgres: str, tmp_path: Path
) -> None:
    first_place = str(tmp_path / "hub.sqlite3")
    places = (first_place, new_database(postgres), str(tmp_path / "back.sqlite3"))
    port, home = free_port(), folder(tmp_path / "hub")
    first = administer(first_place, "init", "Alps")
    proof, of_ben = proof_of(first), {}
    linked = {"satellite-port": None, "hub-address": f"http://127.0.0.1:{port}"}
    posts, pushes = Counter[str](), Counter[str]()
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        administer(first_place, "webhook", "add", hooked.url, "--untried")
        for name in ("ada", "ben"):
            administer(first_place, "user", "add", name)
            device = administer(first_place, "device", "add", name, "--user", name)
            of_ben = {**linked, "hub-token": device["hub-token"]}
            if name == "ada":
                ada = stack.enter_context(agent(folder(tmp_path / name), of_ben))
        folder(tmp_path / "ben")

        def post(text: str) -> None:
            ada.call("POST", "/api/package/async", {"message": {"content": text}})
            posts[text] += 1

        for number, place in enumerate(places):
            settings = {"database": place, "port": str(port), "webhook-allow": "127.0.0.0/8"}
            with hub(home, settings) as running:
                with agent(tmp_path / "ben", of_ben) as ben:
                    post(f"linked {number}")
                    push(port, proof, message_to(2, first, f"pushed {number}"))
                    pushes[f"pushed {number}"] += 1
                    until(lambda: texts(ben) == posts and texts(ada) == pushes)
                    assert ben.stop() == 0
                # The hub has this for Ben when it moves.
                post(f"waits for ben {number}")
                until(lambda: posted(hooked) == posts)
                assert running.stop() == 0
            if place != places[-1]:
                post(f"before the move {number}")
                done = run_move(place, places[number + 1])
                assert done.returncode == 0, done.stderr
                post(f"after the move {number}")
        assert look(places[-1], "SELECT count(*) FROM item") == [(len(posts) + len(pushes),)]
