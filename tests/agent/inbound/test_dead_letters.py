"""Unusable messages are kept, listed, counted, and passed to hooks if the settings ask for it. They
are read when that becomes possible. Real agents with a modem on a pty.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent.journal import dead_letters
from fieldagent.agent.journal.dead_letters import BYTES_MAX, LETTERS_MAX, DeadLetter
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, derive_key, encode
from tests.breaking import Break, Put, environment
from tests.processes import MODULE, PATIENCE, Agent, agent, sky, until

MASTER, OTHER = bytes(range(32)), bytes(range(1, 33))
ENTRY = Entry(7, Message("Storm at noon"), 1_790_000_000)
FOREIGN = [
    b"Hello from the web page",
    b"RB0001234Hello",
    bytes(range(256)),
    b"\x00",
    encode([ENTRY])[:-3],
    b"\x82\x09\x00",
]


def letters(kit: Agent) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = kit.call("GET", "/api/inbound").body["deadLetters"]
    return entries


def payloads(kit: Agent) -> list[Any]:
    listed = kit.call("GET", "/api/inbound").body["payloads"]
    return [row["body"]["payloads"][0] for row in reversed(listed)]


def command(kit: Agent, *words: str) -> str:
    done = subprocess.run(
        [*MODULE, *words, "--port", str(kit.port)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_unreadable_messages_are_listed_and_counted_after_restart(tmp_path: Path) -> None:
    with sky(tmp_path, latency=0) as above:
        with agent(tmp_path) as kit:
            for body in FOREIGN:
                above.type(f"mt-raw {body.hex()}")
            until(lambda: len(letters(kit)) == len(FOREIGN))
            kept = [base64.b64decode(each["payload"]) for each in reversed(letters(kit))]
            assert kept == FOREIGN
            assert payloads(kit) == []
            assert kit.post("still at work").body["status"] == "Delivered"
            assert kit.stop() == 0
        with agent(tmp_path) as kit:
            assert [each["channel"] for each in letters(kit)] == ["Satellite"] * len(FOREIGN)
            listed = command(kit, "inbound", "list")
            assert "Hello from the web page" in listed
            assert "RB0001234Hello" in listed
            assert "it cannot be read: " in listed
            assert f"{len(FOREIGN)} received messages could not be used" in command(kit, "status")
            metrics = kit.call("GET", "/metrics").body
            assert f"fieldagent_dead_letters_total {len(FOREIGN)}\n" in metrics


def test_message_with_unknown_entry_is_delivered_and_stored_as_dead_letter(tmp_path: Path) -> None:
    body = encode([ENTRY, Entry(8, Message("second"), ENTRY.time)])
    # The second entry has a kind of a later version.
    strange = body.replace(b"\x84\x01\x08", b"\x84\x18\x63\x08")
    assert strange != body
    with sky(tmp_path, latency=0) as above, agent(tmp_path) as kit:
        above.type(f"mt-raw {strange.hex()}")
        until(lambda: letters(kit))
        assert [each["events"][0]["content"] for each in payloads(kit)] == ["Storm at noon"]
        (letter,) = letters(kit)
        assert base64.b64decode(letter["payload"]) == strange
        assert "kind 99" in letter["reason"]


def test_hook_gets_dead_letters_as_data_if_configured(tmp_path: Path) -> None:
    hook = tmp_path / "got"
    settings = {"inbound-dead-letters": "hook", "inbound-hook": f"cat >> {hook}"}
    with sky(tmp_path, latency=0) as above, agent(tmp_path, settings) as kit:
        above.type(f"mt-raw {FOREIGN[1].hex()}")
        until(lambda: hook.exists() and hook.read_text().endswith("\n"))
        payload = json.loads(hook.read_text())["payloads"][0]
        (event,) = payload["events"]
        assert payload["identity"]["id"] == "Satellite"
        assert event["type"] == "Data"
        assert base64.b64decode(event["payload"]) == FOREIGN[1]
        assert event["source"] == "Satellite"
        assert len(letters(kit)) == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        (MASTER, None, "the hub does not tag its messages"),
        (MASTER, OTHER, "the hub tags with another key"),
    ],
    ids=["key of kit only", "different keys"],
)
def test_wrong_satellite_key_is_reported_and_letters_are_read_later(
    tmp_path: Path, ours: bytes, theirs: bytes | None, reason: str
) -> None:
    body = encode([ENTRY], key=None if theirs is None else derive_key(theirs, "MT"))
    with sky(tmp_path, latency=0) as above:
        with agent(tmp_path, {"satellite-key": ours.hex()}) as kit:
            above.type(f"mt-raw {body.hex()}")
            until(lambda: letters(kit))
            assert reason in letters(kit)[0]["reason"]
            assert reason in command(kit, "status")
            assert payloads(kit) == []
            kit.stop()
        mended = {} if theirs is None else {"satellite-key": theirs.hex()}
        with agent(tmp_path, mended) as kit:
            until(lambda: payloads(kit))
            assert letters(kit) == []
            kit.stop()
        with agent(tmp_path, mended) as kit:
            kit.post("time for it to be read again, were it still there")
            assert len(payloads(kit)) == 1


def test_missing_satellite_key_is_reported_in_status(tmp_path: Path) -> None:
    with sky(tmp_path, latency=0) as above, agent(tmp_path) as kit:
        above.type(f"mt-raw {encode([ENTRY], key=derive_key(MASTER, 'MT')).hex()}")
        until(lambda: payloads(kit))
        assert "satellite-key is not set here" in command(kit, "status")
        assert letters(kit) == []


MAIL = "fieldagent.agent.channels.satellite"


def test_message_with_wrong_checksum_is_stored_as_dead_letter(tmp_path: Path) -> None:
    soon = environment(
        tmp_path, Put(f"{MAIL}:PAUSES", [0.1, 0.2]), Put(f"{MAIL}:GARBLED_MAX_S", 0.0)
    )
    with sky(tmp_path, latency=0) as above, agent(tmp_path, {}, MODULE, **soon) as kit:
        for _ in range(9):
            above.type("wrong-sum")
        above.type(f"mt-raw {encode([ENTRY]).hex()}")
        until(lambda: letters(kit))
        assert "its checksum was wrong" in letters(kit)[0]["reason"]
        assert payloads(kit) == []


@pytest.mark.full
def test_message_that_cannot_be_processed_does_not_block_channel(tmp_path: Path) -> None:
    broken = Break("fieldagent.agent.inbound.reception:Inbox._spool", times=0)
    with (
        sky(tmp_path, latency=0) as above,
        agent(tmp_path, {}, MODULE, **environment(tmp_path, broken)) as kit,
    ):
        above.type(f"mt-raw {encode([ENTRY]).hex()}")
        until(lambda: letters(kit))
        assert "failed to process it, twice: AsATest" in letters(kit)[0]["reason"]
        assert kit.post("goes on").body["status"] == "Delivered"
        assert kit.call("GET", "/api/health").status == 200
        kit.stop()
    with sky(tmp_path, latency=0), agent(tmp_path) as kit:
        until(lambda: payloads(kit))
        assert letters(kit) == []


async def test_oldest_dead_letters_are_deleted_first(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite3")

    def keep(*letters: DeadLetter) -> None:
        def store(db: sqlite3.Connection) -> None:
            for letter in letters:
                dead_letters.store_letter(db, letter)

        journal.commit_at_start(store)

    keep(*(DeadLetter("Satellite", b"%d" % n, "foreign", 1.0) for n in range(LETTERS_MAX + 3)))
    assert dead_letters.list_newest(journal)[-1].body == b"3"
    assert dead_letters.count_letters(journal) == (LETTERS_MAX + 3, 3, LETTERS_MAX)
    large = DeadLetter("Cellular", bytes(BYTES_MAX - 8), "foreign", 2.0)
    keep(large)
    kept = dead_letters.list_newest(journal)
    assert kept[0].body == large.body
    assert sum(len(letter.body) for letter in kept) <= BYTES_MAX
    assert kept[1].body == b"%d" % (LETTERS_MAX + 2)
    journal.close()
