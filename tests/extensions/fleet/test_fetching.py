"""The download of an update over a failing line, from servers of each kind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fieldagent.extensions.fleet import fetching
from fieldagent.extensions.fleet.fetching import (
    FetchedFile,
    ServerUnreachable,
    UpdateRefused,
    fetch_file,
)
from tests.machine import tool
from tests.processes import free_port, until

WHOLE = bytes(range(256)) * 1200
"""Larger than a chunk."""
HALF = 200_000


class Server:
    """A server of one file. It breaks off after that many bytes of an answer, once for each listed
    number.
    """

    def __init__(self, content: bytes, marks: dict[str, str], *, ranges: bool = True) -> None:
        self.content, self.marks, self.ranges = content, marks, ranges
        self.breaks: list[int] = []
        self.asked: list[str] = []
        self.address = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        asked, only_if = request.headers["Range"], request.headers["If-Range"]
        self.asked.append(asked or "")
        begin = 0
        if self.ranges and asked and only_if in self.marks.values():
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
        if begin > len(self.content):
            request.send_error(416)
            return
        request.send_response(206 if begin else 200)
        for name, value in self.marks.items():
            request.send_header(name, value)
        if begin:
            whole = len(self.content)
            request.send_header("Content-Range", f"bytes {begin}-{whole - 1}/{whole}")
        body = self.content[begin:]
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body[: self.breaks.pop(0)] if self.breaks else body)


@contextmanager
def serving(made: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    made.address = f"http://127.0.0.1:{server.server_port}/program"
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


TAG = {"ETag": '"one"'}
DATE = {"Last-Modified": "Wed, 25 Nov 2026 08:00:00 GMT"}


@pytest.mark.parametrize("marks", [TAG, DATE, TAG | DATE], ids=["tag", "date", "both"])
def test_interrupted_download_resumes_with_a_range_request(
    tmp_path: Path, marks: dict[str, str]
) -> None:
    part, shown = tmp_path / "part", list[int]()

    def report(done: int, whole: int | None) -> None:
        assert whole == len(WHOLE)
        shown.append(done)

    with serving(Server(WHOLE, marks)) as server:
        server.breaks = [HALF, 50_000]
        for here in (HALF, HALF + 50_000):
            with pytest.raises(ServerUnreachable, match=f"interrupted after {here:,} of 307,200"):
                fetch_file(server.address, part, report)
        assert fetch_file(server.address, part, report) == FetchedFile(WHOLE, is_continued=True)
        assert server.asked == ["", f"bytes={HALF}-", f"bytes={HALF + 50_000}-"]
    assert not part.exists()
    assert shown[-1] == len(WHOLE) and shown == sorted(shown)


def change_file(server: Server) -> None:
    server.content, server.marks = WHOLE[::-1], {"ETag": '"two"'}


def shorten_file(server: Server) -> None:
    """Shorten the file but keep its entity tag, which is an error of the server."""
    server.content = WHOLE[:1000]


def forget_ranges(server: Server) -> None:
    server.ranges = False


@pytest.mark.parametrize(
    ("marks", "change"),
    [
        (TAG, change_file),
        (TAG, shorten_file),
        (TAG, forget_ranges),
        ({}, lambda server: None),
        ({"ETag": 'W/"one"'}, lambda server: None),
    ],
    ids=["changed", "shorter", "no ranges", "no mark", "weak tag"],
)
def test_download_restarts_if_the_file_changed_or_ranges_are_unsupported(
    tmp_path: Path, marks: dict[str, str], change: Callable[[Server], None]
) -> None:
    part = tmp_path / "part"
    with serving(Server(WHOLE, marks)) as server:
        server.breaks = [HALF]
        with pytest.raises(ServerUnreachable):
            fetch_file(server.address, part)
        change(server)
        assert fetch_file(server.address, part) == FetchedFile(server.content)
    assert not part.exists()


@pytest.mark.parametrize(
    "left", [b"", b"{", b"[]\n...", b'{"address": 1}\nxx', b'{"mark": "x"}\n'], ids=range(5)
)
def test_unreadable_or_mismatched_partial_file_is_ignored(tmp_path: Path, left: bytes) -> None:
    part = tmp_path / "part"
    part.write_bytes(left)
    with serving(Server(WHOLE, TAG)) as server:
        assert fetch_file(server.address, part) == FetchedFile(WHOLE)
        assert server.asked == [""]


def test_download_succeeds_without_a_place_for_the_partial_file(tmp_path: Path) -> None:
    part = tmp_path / "not there" / "part"
    with serving(Server(WHOLE, TAG)) as server:
        server.breaks = [HALF]
        with pytest.raises(ServerUnreachable, match="interrupted"):
            fetch_file(server.address, part)
        assert fetch_file(server.address, part) == FetchedFile(WHOLE)


def test_too_large_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FILE_MAX_BYTES", 1000)
    with (
        serving(Server(WHOLE, TAG)) as server,
        pytest.raises(UpdateRefused, match="larger than 1,000"),
    ):
        fetch_file(server.address, tmp_path / "part")


@pytest.fixture
def caddy(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a folder that a third-party server serves, and its address."""
    (folder := tmp_path / "served").mkdir()
    port = free_port()
    serve = [tool("caddy", "caddy"), "file-server", "--root", str(folder)]
    where: dict[str, Any] = {"cwd": tmp_path, "env": {"HOME": str(tmp_path)}}
    process = subprocess.Popen([*serve, "--listen", f"127.0.0.1:{port}"], **where)
    try:
        yield folder, f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def test_download_resumes_from_a_third_party_server(
    caddy: tuple[Path, str], tmp_path: Path
) -> None:
    folder, address = caddy
    (folder / "program").write_bytes(WHOLE)
    part = tmp_path / "part"

    def answers() -> bool:
        try:
            return fetch_file(f"{address}/program").content == WHOLE
        except ServerUnreachable:
            return False

    until(answers)
    with pytest.raises(UpdateRefused, match="404") as gone:
        fetch_file(f"{address}/other")
    assert not isinstance(gone.value, ServerUnreachable)
    head = subprocess.check_output(["curl", "-sI", f"{address}/program"], text=True)
    (mark,) = [line.split(": ")[1] for line in head.splitlines() if line.lower()[:5] == "etag:"]
    about = {"address": f"{address}/program", "mark": mark}
    part.write_bytes(json.dumps(about).encode() + b"\n" + WHOLE[:HALF])
    assert fetch_file(f"{address}/program", part) == FetchedFile(WHOLE, is_continued=True)
