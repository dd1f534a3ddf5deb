"""Today's program reads the files of earlier releases (`tests/kept`) and continues with them."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fieldagent.wire import envelope_form, link, node, sms_frame
from fieldagent.wire.envelope import decode
from tests.hub.conftest import postgres
from tests.kept.leave import POSTED, hub_says, kit_says
from tests.postgres import binaries, new_database
from tests.processes import administer, agent, hub
from tests.wire import test_envelope, test_link, test_node

__all__ = ["postgres"]

ROOT = Path(__file__).parents[1]
KEPT = sorted(each for each in (ROOT / "tests/kept").iterdir() if (each / "said.json").exists())
LONG = "36500"
"""Days to keep everything: a century."""


@pytest.fixture(params=KEPT, ids=lambda each: str(each.name))
def kept(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def put(kept: Path, name: str, where: Path) -> Path:
    where.write_bytes(gzip.decompress((kept / f"{name}.gz").read_bytes()))
    return where


def said(kept: Path, engine: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads((kept / "said.json").read_text())[engine]
    return answers


def test_agent_continues_from_an_earlier_releases_journal(kept: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    for name in ("journal.sqlite3", "journal.sqlite3-mark"):
        put(kept, name, state / name)
    before = said(kept, "sqlite")["kit"]
    with agent(tmp_path, {"satellite-port": None, "keep-ended-days": LONG}) as kit:
        assert kit_says(kit) == before
        answer = kit.call("POST", "/api/package/async", {"message": {"content": "on and on"}})
        assert answer.body["id"] == len(before["packages"]) + 1 > len(POSTED)
    assert not list(state.glob("*.bad"))


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_hub_continues_from_an_earlier_releases_database(
    kept: Path, tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "sqlite":
        database = str(put(kept, "hub.sqlite3", tmp_path / "hub.sqlite3"))
    else:
        database = new_database(request.getfixturevalue("postgres"))
        dumped = put(kept, "hub.postgresql.sql", tmp_path / "hub.sql")
        there = binaries()
        assert there is not None
        how = ("--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={database}", f"--file={dumped}")
        subprocess.run([there / "psql", *how], check=True, stdout=subprocess.DEVNULL)
        administer(database, "database", "migrate")
    before = said(kept, engine)
    with hub(tmp_path, {"database": database, "keep-days": LONG}) as running:
        now = hub_says(running, before["proof"])
        assert now == {name: rows for name, rows in before["hub"].items() if name in now}


def test_envelopes_of_earlier_releases_are_read(kept: Path) -> None:
    """If a member has a new name or none, this test must contain the reason."""
    examples = json.loads((kept / "bytes.json").read_text())
    for name, content in examples.items():
        where, _, what = name.partition(": ")
        if where == "on-air":
            known = max((each for each in test_envelope.CONTENTS if what.startswith(each)), key=len)
            entries, origin, key = test_envelope.CONTENTS[known]
            read = decode(bytes.fromhex(content), keys=[key] if key else [])
            as_today = decode(test_envelope.vectors()[known], keys=[key] if key else [])
            assert (read.entries, read.origin) == (as_today.entries, origin), name
            assert len(read.entries) >= len({each.sequence for each in entries}), name
        else:
            known = next(each for each in test_link.VECTORS if what.startswith(each))
            assert test_link.described()[known].hex() == content, name


def test_node_vectors_of_earlier_releases_are_unchanged(kept: Path) -> None:
    then = json.loads(gzip.decompress((kept / "node-link-vectors.json.gz").read_bytes()))
    now = json.loads((ROOT / "docs/reference/node-link-vectors.json").read_text())
    for kind, vectors in then.items():
        assert [each for each in vectors if each not in now[kind]] == [], kind
    assert now == test_node.VECTORS


def test_formats_have_their_first_version() -> None:
    assert (envelope_form.VERSION, link.VERSION, node.VERSION, sms_frame.VERSION) == (1, 1, 1, 1)
    assert KEPT[0].name == "0.1"
