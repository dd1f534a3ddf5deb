"""Real processes on a pty escape control sequences in third-party text, colour states, and print
tables that fit.
"""

from __future__ import annotations

import logging
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fieldagent.package.package import Message
from fieldagent.system.log_lines import EscapingFormatter
from fieldagent.system.terminal import escape_line, escape_lines, format_local_time
from fieldagent.wire.envelope import Entry, encode
from tests.processes import MODULE, PATIENCE, administer, agent, free_port, sky

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\rconfirmed: base has it\nSOS\u202etxt.exe\x7f\x00"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b31m\rconfirmed: base has it\nSOS\u202etxt.exe\x7f\x00"
MT = encode([Entry(1, Message(EVIL), 1_790_000_000)]).hex()
RAW = re.compile("[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]|\r(?!\r*\n)")
"""Characters that must not reach a terminal. A pty writes each line end as CR LF."""
COLOUR = re.compile(r"\x1b\[3[123]m(.*?)\x1b\[0m")
"""A word of state in green, yellow or red."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("Storm at noon", "Storm at noon"),
        ("Grüße, 世界, שלום, نص", "Grüße, 世界, שלום, نص"),
        ("\U0001f468\u200d\U0001f692 \u2764\ufe0f", "\U0001f468\u200d\U0001f692 \u2764\ufe0f"),
        ("can\u2019t\u00a0say", "can\u2019t\u00a0say"),
        (r"C:\x1b", r"C:\x1b"),
        (EVIL, SHOWN),
        ("a\tb\x85c\u2028d", r"a\tb\x85c\u2028d"),
        ("half \ud83d", r"half \ud83d"),
    ],
)
def test_control_characters_are_escaped_and_text_is_unchanged(text: str, shown: str) -> None:
    assert escape_line(text) == shown


def test_line_breaks_are_kept_and_other_controls_escaped() -> None:
    assert escape_lines("one\ntwo\x1b[K\n") == "one\ntwo\\x1b[K\n"


def test_characters_unknown_to_the_terminal_are_escaped(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        kit.post("Grüße, 世界")
        listing = [*MODULE, "sent", "--port", str(kit.port)]
        latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        done = subprocess.run(listing, capture_output=True, env=latin, timeout=PATIENCE)
    assert r"Grüße, \u4e16\u754c" in done.stdout.decode("latin-1")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
def test_full_disk_under_the_output_is_reported(tmp_path: Path, unbuffered: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    listing = [*MODULE, "hub", "user", "list", "--database", database]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            listing, stdout=full, stderr=subprocess.PIPE, env=environment, timeout=PATIENCE
        )
    message = b"fieldagent: the disk is full: the output cannot be written\n"
    assert (done.returncode, done.stderr) == (74, message)


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_closed_input_or_output_causes_no_traceback(tmp_path: Path, closed: str) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    for words, code in (
        (["send", "message", "-", "--port", "1"], 2 if closed == "<&-" else 69),
        (["hub", "user", "list", "--database", database], 0),
    ):
        command = ["sh", "-c", f'exec "$@" {closed}', "sh", *MODULE, *words]
        done = subprocess.run(command, input=b"hut", capture_output=True, timeout=PATIENCE)
        assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr


def test_absurdly_long_recipient_number_is_refused(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        words = ["send", "message", "hi", "--to", "9" * 5000, "--port", str(kit.port)]
        done = subprocess.run([*MODULE, *words], capture_output=True, timeout=PATIENCE)
        assert kit.call("GET", "/api/packages").body["packages"] == []
    assert b"Traceback" not in done.stderr and done.stderr.startswith(b"fieldagent: nothing was")


def test_log_record_is_one_line_with_a_readable_traceback() -> None:
    try:
        raise ValueError("as a test")
    except ValueError:
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, "f", 1, "from %s", (EVIL,), sys.exc_info()
        )
    first, *rest = EscapingFormatter("%(levelname)s %(message)s").format(record).split("\n")
    assert first == f"ERROR from {SHOWN}"
    assert rest[0].startswith("Traceback")


class Terminal:
    def __init__(self, ours: int) -> None:
        self._ours = ours
        self._read = b""

    def until(self, text: str) -> str:
        """Return the output after it contains `text`."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self._read:
            ready, _, _ = select.select([self._ours], [], [], deadline - time.monotonic())
            assert ready, self._read.decode()
            self._read += os.read(self._ours, 4096)
        return self._read.decode()


@contextmanager
def running_on_terminal(
    *command: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MODULE, *command],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, **environment},
    )
    os.close(theirs)
    try:
        yield process, Terminal(ours)
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


def test_inbound_list_escapes_control_characters(tmp_path: Path) -> None:
    with sky(tmp_path) as above, agent(tmp_path, {"inbound-hook": "cat"}) as kit:
        above.type(f"mt-raw {MT}")
        kit.expect("requestId")
        for command in (["inbound", "list"], ["inbound", "list", "--json"]):
            with running_on_terminal(*command, "--port", str(kit.port)) as (_, terminal):
                shown = COLOUR.sub(r"\1", terminal.until("txt.exe"))
                assert not RAW.search(shown), shown
                assert r"\x1b[2J" in shown or r"\u001b[2J" in shown


def test_demo_escapes_the_output_of_its_hook() -> None:
    port = free_port()
    with running_on_terminal("demo", "--port", str(port)) as (process, terminal):
        terminal.until("Ctrl-C ends the demo")
        assert process.stdin is not None
        process.stdin.write(f"mt-raw {MT}\n".encode())
        process.stdin.flush()
        shown = terminal.until("txt.exe")
        assert "[kit] hook: " in shown
        assert not RAW.search(shown), shown


def test_hub_list_escapes_control_characters_in_names(tmp_path: Path) -> None:
    database = ["--database", str(tmp_path / "hub.sqlite3")]
    for command in (["init", "Alps"], ["user", "add", "Eve\u202e"]):
        subprocess.run([*MODULE, "hub", *command, *database], check=True, capture_output=True)
    with running_on_terminal("hub", "user", "list", *database) as (_, terminal):
        shown = terminal.until("Eve")
        assert r"Eve\u202e" in shown
        assert not RAW.search(shown), shown


def test_table_fits_the_terminal_and_names_omitted_columns(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "device", "add", "--user", "push", "a kit with a long name")
    listing = ["hub", "device", "list", "--database", database]
    with running_on_terminal(*listing, COLUMNS="60") as (_, terminal):
        *table, note = terminal.until("--wide shows them.").splitlines()
    assert all(len(line) <= 60 for line in table)
    assert "a kit with a long name" in table[1] and "linked" in table[0]
    assert note.startswith("Columns that do not fit: ") and "sosReserve" in note
    with running_on_terminal(*listing, "--wide", COLUMNS="60") as (_, terminal):
        head = terminal.until("a kit with a long name").splitlines()[0]
    piped = subprocess.run([*MODULE, *listing], capture_output=True, text=True, timeout=PATIENCE)
    assert piped.stdout.splitlines()[0] == head and head.endswith("radioKey")
    assert piped.stderr == ""


def test_status_is_coloured_unless_no_color_is_set(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        kit.post("Hut \x1b[31mred\x1b[0m")
        sent = ["sent", "--port", str(kit.port)]
        with running_on_terminal(*sent, NO_COLOR="") as (_, terminal):
            assert "\x1b[31mError\x1b[0m" in (shown := terminal.until("Hut \\x1b[31mred"))
        with running_on_terminal(*sent, NO_COLOR="1") as (_, terminal):
            plain = terminal.until("Hut \\x1b[31mred")
        assert COLOUR.sub(r"\1", shown).splitlines()[0] == plain.splitlines()[0]


def test_environment_variable_sets_the_default_workspace(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "workspace", "add", "Jura")
    listing = [*MODULE, "hub", "user", "list", "--database", database, "--json"]
    shown = {
        words: subprocess.run(
            [*listing, *words],
            capture_output=True,
            env={**os.environ, "FIELDAGENT_WORKSPACE": "Jura"},
            timeout=PATIENCE,
        ).stdout
        for words in ((), ("--workspace", "Alps"))
    }
    assert shown[()].strip() == b"[]" and b"push" in shown["--workspace", "Alps"]


@pytest.mark.parametrize(
    ("zone", "at", "shown"),
    [
        ("UTC", 1_800_000_000, "08:00:00"),
        ("Europe/Zurich", 1_800_000_000, "09:00:00"),
        # It is still yesterday there.
        ("UTC-13", 1_800_000_000, "21:00:00"),
        ("UTC+9", 1_799_990_000, "2027-01-14 20:13:20"),
        ("UTC", 1_799_900_000.9, "2027-01-14 04:13:20"),
    ],
)
def test_time_is_local_and_has_a_date_unless_today(
    monkeypatch: pytest.MonkeyPatch, zone: str, at: float, shown: str
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_010_000.0)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert format_local_time(at) == shown
    finally:
        monkeypatch.undo()
        time.tzset()
