"""`fieldagent push` for its user while the hub is down temporarily or permanently."""

from __future__ import annotations

import argparse
import json
import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from fieldagent.cli.hub import push as hub_push
from fieldagent.kit.local_http import CallFailed
from tests.processes import MODULE, PATIENCE, free_port

ROUTING = ("--workspace", "1", "--source", "1", "--target", "2")
KNOWN = {"FIELDAGENT_API_KEY": "key", "FIELDAGENT_TOKEN": "token"}


def arguments(hub: str, *more: str) -> list[str]:
    return [*MODULE, "push", "message", "Storm at noon", "--hub", hub, *ROUTING, *more]


def push(hub: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments(hub, *more),
        env={**os.environ, **KNOWN},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@contextmanager
def overloaded_hub(times: int, location: str | None = "/api/push/6d9d") -> Iterator[str]:
    """Yield a hub that refuses that many calls because of load, and then accepts one."""
    keys: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            self.send_response(503 if len(keys) <= times else 200)
            self.send_header("Retry-After", "0")
            if location is not None and len(keys) > times:
                self.send_header("Location", location)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert len(set(keys)) == 1


def test_repeated_error_is_printed_once() -> None:
    with overloaded_hub(4) as hub:
        done = push(hub)
    assert (done.returncode, done.stdout) == (0, "accepted\n")
    assert done.stderr == "fieldagent: HTTP 503; trying again in 0 s\n"


def test_json_output_contains_result_and_attempts() -> None:
    with overloaded_hub(2) as hub:
        done = push(hub, "--json")
    report = json.loads(done.stdout)
    assert (report["accepted"], report["attempts"]) == (True, 3)
    assert report["idempotencyKey"]


def test_server_that_is_no_hub_is_reported() -> None:
    """The sign-in page of a guest network, for example, replaces all other pages."""
    with overloaded_hub(0, location=None) as inn:
        done = push(inn, "--patience", "1")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith(f"fieldagent: the server at {inn} is not a hub: ")


@pytest.mark.full
def test_push_to_an_unreachable_hub_gives_up_with_a_remedy() -> None:
    hub = f"http://127.0.0.1:{free_port()}"
    done = push(hub, "--patience", "11")
    assert (done.returncode, done.stdout) == (69, "")
    first, last = done.stderr.splitlines()
    assert first.startswith(f"fieldagent: no hub answers at {hub} (")
    assert first.endswith(": check that it runs, and check --hub; trying again in 5 s")
    assert last.endswith(
        "stopped after 3 attempts: push again later, or wait longer with --patience"
    )


def test_attempts_are_counted_on_one_line_of_a_terminal() -> None:
    ours, theirs = pty.openpty()
    with overloaded_hub(3) as hub, os.fdopen(ours, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            arguments(hub), env={**os.environ, **KNOWN}, stdout=subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.read() == b"accepted\n"
        assert process.wait(PATIENCE) == 0
        shown = screen.read(65536).decode()
    said, _, counts = shown.partition("\r\n")
    assert said.endswith("fieldagent: HTTP 503; trying again in 0 s")
    assert "\n" not in counts
    assert [line for line in counts.split("\r\x1b[K") if line] == [
        "2 attempts failed; the next in 0 s",
        "3 attempts failed; the next in 0 s",
    ]


@pytest.mark.parametrize("words", [("send",), ("push", "--hub", "http://127.0.0.1:9", *ROUTING)])
@pytest.mark.parametrize("typed", [None, ""])
def test_empty_message_is_refused(words: tuple[str, ...], typed: str | None) -> None:
    """The text is an argument, or comes from a program that prints nothing."""
    command, *options = words
    done = subprocess.run(
        [*MODULE, command, "message", *options, "" if typed is None else "-"],
        input=typed,
        capture_output=True,
        text=True,
        env={**os.environ, **KNOWN},
    )
    assert done.returncode == 2
    assert "the message is empty: enter a text" in done.stderr


@pytest.mark.parametrize(
    "hub",
    [
        "http://127.0.0.1:99999",
        "http://127.0.0.1:port",
        "http://[::1",
        "http://hub example",
        f"https://{'a' * 70}.example.org",
        "ftp://hub.example.org",
    ],
)
def test_invalid_hub_address_is_refused_at_once(hub: str) -> None:
    done = push(hub)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fieldagent: --hub ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", [*KNOWN])
@pytest.mark.parametrize("value", ["key\r", "key\nx-other: 1", "ключ"])
def test_secret_with_characters_not_allowed_in_a_header_is_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KNOWN, name, value)
    done = push("http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"fieldagent: {name} has a character that is not allowed in a header"
    )


def test_password_may_contain_any_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN, "FIELDAGENT_TOKEN", "Gänse füßchen")
    with overloaded_hub(0) as hub:
        done = push(hub, "--username", "ada@example.org")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("patience", "unreached", "seconds"),
    [(None, True, 30), (None, False, 300), (60.0, True, 60), (60.0, False, 60)],
)
def test_push_gives_up_after_its_patience(
    monkeypatch: pytest.MonkeyPatch, patience: float | None, unreached: bool, seconds: int
) -> None:
    moments = [0.0]
    monkeypatch.setattr(
        hub_push,
        "time",
        SimpleNamespace(
            monotonic=lambda: moments[-1], sleep=lambda wait: moments.append(moments[-1] + wait)
        ),
    )

    def fail(*_: object) -> str:
        raise hub_push._AttemptFailed("it fails", unreached=unreached)

    monkeypatch.setattr(hub_push, "_attempt", fail)
    with pytest.raises(CallFailed, match="it fails; stopped after"):
        hub_push._send_until_accepted(argparse.Namespace(patience=patience), b"", {})
    assert moments[-1] == seconds
