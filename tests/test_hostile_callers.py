"""Sends each raw request of `tests/http` to a real agent and a real hub.

The rules of framing apply to each route of both. A request that is valid elsewhere may be refused
here for its content. Neither server ever fails, hangs, or stops serving others.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from tests.http.serving import HOST
from tests.http.test_probes import CASES, HOSTS
from tests.http.test_steps import HOSTILE
from tests.processes import PATIENCE, Running, administer, agent, hub, sky

FRAMING = frozenset({400, 405, 411, 413, 414, 415, 417, 431, 501, 505})
"""Status codes of requests with wrong framing, independent of sender and route."""
ELSEWHERE = frozenset({"a handler fails", "9110-15.5.6 method", "9110-9.3.8 trace"})
"""Cases that need a route of `tests/http`."""


@dataclass(frozen=True)
class Server:
    running: Running
    port: int
    posts: bytes
    """Line for a post to a route that accepts JSON."""
    proof: bytes
    """Header lines that authorize the caller to post."""
    health: str
    refuses: frozenset[int]
    """Status codes of refusals here for requests that `tests/http` refuses too."""

    def said(self, raw: bytes) -> bytes:
        raw = raw.replace(b" /echo ", b" " + self.posts + b" ").replace(HOST, HOST + self.proof)
        return raw.replace(b"PORT", str(self.port).encode())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def is_well(self) -> bool:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.request("GET", self.health)
            return connection.getresponse().status == 200


@contextmanager
def _agent(home: Path) -> Iterator[Server]:
    with sky(home), agent(home) as running:
        refuses = FRAMING | {403, 404, 421}
        yield Server(running, running.port, b"/api/package/cost", b"", "/api/health", refuses)


@contextmanager
def _hub(home: Path) -> Iterator[Server]:
    database = str(home / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    key = administer(database, "key", "add", "much", "--per-minute", "60000", "--burst", "9999")
    proof = f"x-api-key: {key['apiKey']}\r\nAuthorization: Bearer {first['token']}\r\n"
    with hub(home, {"database": database}) as running:
        yield Server(
            running, running.port, b"/api/package", proof.encode(), "/healthz", FRAMING | {404}
        )


@contextmanager
def _administration(home: Path) -> Iterator[Server]:
    database = str(home / "hub.sqlite3")
    administer(database, "init", "Alps")
    much = ("--administer", "--per-minute", "60000", "--burst", "9999")
    key = administer(database, "key", "add", "office", *much)
    administer(database, "user", "add", "Ben")
    administer(database, "user", "role", "Ben", "administrator")
    token = administer(database, "user", "token", "add", "office", "--user", "Ben")
    proof = f"x-api-key: {key['apiKey']}\r\nAuthorization: Bearer {token['token']}\r\n"
    with hub(home, {"database": database}) as running:
        refuses = FRAMING | {404}
        yield Server(running, running.port, b"/api/devices", proof.encode(), "/healthz", refuses)


@pytest.fixture(
    scope="module",
    params=[_agent, _hub, pytest.param(_administration, marks=pytest.mark.full)],
    ids=["agent", "hub", "administration"],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with request.param(tmp_path_factory.mktemp("home")) as server:
        yield server
        log = "".join(server.running.output())
        assert "Traceback" not in log


@pytest.mark.parametrize(
    ("name", "raw", "status", "closes"), [pytest.param(*case, id=case[0]) for case in CASES]
)
def test_raw_request_gets_the_specified_status_from_agent_and_hub(
    server: Server, name: str, raw: bytes, status: int, closes: bool
) -> None:
    said = server.said(raw)
    with server.connect() as connection:
        connection.sendall(said)
        response = _read_answer(connection, said.split(b" ", 1)[0].decode("latin-1"))
        if status in server.refuses and name not in ELSEWHERE:
            assert response.status == status
            assert response.will_close is closes
        else:
            assert response.status < 500
        if response.will_close:
            assert connection.recv(1) == b""
        else:
            connection.sendall(f"GET {server.health} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert _read_answer(connection).status == 200


@pytest.mark.parametrize(("host", "status"), HOSTS)
def test_ambiguous_host_is_refused_by_agent_and_hub(server: Server, host: str, status: int) -> None:
    with server.connect() as connection:
        connection.sendall(f"GET {server.health} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        expected = {status} if server.health == "/healthz" else {400, 421, 403}
        assert _read_answer(connection).status in expected


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_request_does_not_delay_other_callers(server: Server, name: str) -> None:
    with server.connect() as connection:
        connection.setblocking(False)
        with suppress(BlockingIOError):
            connection.send(server.said(HOSTILE[name]))
        assert server.is_well()


def _read_answer(connection: socket.socket, method: str = "GET") -> HTTPResponse:
    response = HTTPResponse(connection, method=method)
    response.begin()
    response.read()
    return response
