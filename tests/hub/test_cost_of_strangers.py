"""The total cost that one stranger can cause at a hub, with any requests at any rate."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.client import HTTPSConnection
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

from fieldagent.http.limits import KNOWN_CALLER
from fieldagent.http.routes import Route
from fieldagent.hub.hub import Hub as HubProgram
from fieldagent.hub.operator import rockblock
from fieldagent.hub.service import listening
from fieldagent.hub.settings import parse_settings
from fieldagent.hub.store.opening import open_store
from tests.flood import Measured, flooded, measure, settled
from tests.hub.test_tls import Site
from tests.postgres import new_database
from tests.processes import PATIENCE, Hub, administer, free_port, hub

CORES = 0.1
"""Maximum processor cores for one stranger in the long run."""
SHORT, LONG = 1.5, 30.0
"""Seconds."""


ADDRESS = "https://hub.example.org"


def list_routes() -> list[Route]:
    lines = "rockblock-username=x\nrockblock-password=x\ntrusted-proxies=127.0.0.1\n"
    settings = parse_settings(f"{lines}console-address={ADDRESS}", Path("hub.properties"))
    with TemporaryDirectory() as folder, closing(open_store(f"{folder}/hub.sqlite3")) as store:
        program = HubProgram(settings, store)
        lent, own = program.make_operator_host("HTTP", ""), settings.operator_own
        brought = [route for kind in program.kinds.values() for route in kind.routes(own, lent)]
        return [*program.routes, *program.health.make_routes(), *brought]


NAMES = {"/console/file/{name}": "leaflet.js"}
"""The most expensive names in a path."""
HEAD = "Host: hub\r\nSec-Fetch-Site: same-origin\r\nAccept-Encoding: gzip\r\n"
ROCKBLOCK = b"imei=300234010753370&momsn=1&data=00&JWT=" + b"eyJhbGciOiJSUzI1NiJ9.e30." + b"A" * 342
BODIES = {
    "/console/session": b'{"username": "ada", "password": "%s"}' % (b"x" * 4_000),
    rockblock.PATH: ROCKBLOCK,
}


def make_requests(route: Route) -> Iterator[bytes]:
    """Yield the most expensive requests of a stranger to the route."""
    path = route.pattern
    if "{" in path:
        path = f"{path.partition('{')[0]}{NAMES.get(path, 'x')}{path.rpartition('}')[2]}"
    if route.method == "GET":
        yield f"HEAD {path} HTTP/1.1\r\n{HEAD}\r\n".encode()
        plain = HEAD.replace("Accept-Encoding: gzip\r\n", "")
        upgrade = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer link_x\r\n"
        )
        yield f"GET {path} HTTP/1.1\r\n{plain}{upgrade if path == '/link' else ''}\r\n".encode()
        return
    body = BODIES.get(path, b'{"x": "%s"}' % (b"x" * 4_000))[: route.body or 4_096]
    kind = (*route.media_types, "application/json")[0]
    lines = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    yield f"{route.method} {path} HTTP/1.1\r\n{HEAD}{lines}\r\n".encode() + body


class Case(NamedTuple):
    name: str
    request: bytes


def make_cases() -> Iterator[Case]:
    routes = list_routes()
    judged = next(each for each in routes if each.judge is not None and each.method == "GET")
    for route in [*(each for each in routes if each.judge is None), judged]:
        for request in make_requests(route):
            method = request.partition(b" ")[0].decode()
            yield Case(f"{method} {route.pattern}", request)
    wrong = f"{HEAD}x-api-key: key_x\r\nAuthorization: Bearer token_x\r\n"
    yield Case("wrong key", f"GET /api/items HTTP/1.1\r\n{wrong}\r\n".encode())
    yield Case("nothing there", f"GET /nothing HTTP/1.1\r\n{HEAD}\r\n".encode())
    yield Case("no HTTP", b"\r\n\r\n\r\n")


CASES = [*make_cases()]


def test_every_anonymous_route_is_measured() -> None:
    paths = {case.name.partition(" ")[2] for case in CASES}
    assert paths >= {"/console/passkeys/sign-in", "/console/passkeys/session"}
    assert paths >= {"/healthz", "/metrics", "/console/session", "/link", rockblock.PATH}
    assert paths >= {route.pattern for route in list_routes() if route.judge is None}
    assert all(len(case.request) < 5_000 for case in CASES)


_others = cycle(f"127.1.0.{number}" for number in range(1, 21))


class Served(NamedTuple):
    site: Site
    hub: Hub
    directip: int

    def ask(self) -> None:
        """Send requests like balancers and browsers, from other addresses. With a single address at
        that rate, it would wait for itself.
        """
        for path in ("/healthz", "/console"):
            line = HTTPSConnection(
                "127.0.0.1",
                self.hub.port,
                timeout=PATIENCE,
                context=self.site.client_tls,
                source_address=(next(_others), 0),
            )
            with closing(line):
                line.request("GET", path)
                assert line.getresponse().status == 200

    def measure(self, seconds: float) -> Measured:
        return measure(self.hub.process.pid, seconds, self.ask)

    def settled(self, control: Measured, strangers: int = 1) -> Measured:
        bound = control.cores + strangers * CORES
        return settled(self.hub.process.pid, self.ask, bound, SHORT)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    site = Site(tmp_path_factory.mktemp("site"))
    port = free_port()
    settings = {
        **site.settings,
        "rockblock-username": "x",
        "rockblock-password": "x",
        "console-address": ADDRESS,
        "directip-listen": f"127.0.0.1:{port}",
        "directip-allow": "127.0.0.1",
    }
    with hub(site.home, settings) as running:
        yield Served(site, running, port)


@pytest.fixture(scope="module")
def control(served: Served) -> Measured:
    return served.measure(2.0)


_strangers = (f"127.0.{number // 200}.{number % 200 + 2}" for number in count(200))
"""Addresses that have not been used before."""


def assert_low_cost(result: Measured, control: Measured, strangers: int = 1) -> None:
    assert result.cores - control.cores < strangers * CORES, result
    assert result.soon, result


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_anonymous_callers_use_at_most_two_tenths_of_a_core(
    served: Served, control: Measured, case: Case
) -> None:
    """One caller pipelines, and the other opens a new connection each time."""
    flooding = partial(flooded, served.hub.port, case.request, secure=True)
    with (
        flooding(source=next(_strangers), pipelined=True),
        flooding(source=next(_strangers), pipelined=False),
    ):
        assert_low_cost(served.settled(control, 2), control, 2)


@pytest.mark.soak
@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "one by one"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_anonymous_caller_uses_at_most_a_tenth_of_a_core(
    served: Served, control: Measured, case: Case, pipelined: bool
) -> None:
    source, port = next(_strangers), served.hub.port
    with flooded(port, case.request, source=source, secure=True, pipelined=pipelined):
        # In the first second, the initial allowance is used.
        served.measure(1.0)
        assert_low_cost(served.measure(LONG), control)


def test_anonymous_caller_at_directip_uses_at_most_a_tenth_of_a_core(
    served: Served, control: Measured
) -> None:
    how = partial(flooded, source="127.0.0.2", secure=False, pipelined=False)
    with how(served.directip, b"\x01\x00\x00"):
        assert_low_cost(served.settled(control), control)


@pytest.mark.full
def test_valid_key_uses_at_most_its_share_of_postgresql(tmp_path: Path, postgres: str) -> None:
    """The share includes the database's threads. Another key gets its answers in the meantime."""
    database = new_database(postgres)
    token = administer(database, "init", "Alps")["token"]
    fast = ("--read", "--per-minute", "600000", "--burst", "100000")
    heads = [
        f"{HEAD}Authorization: Bearer {token}\r\n"
        f"x-api-key: {administer(database, 'key', 'add', name, *fast)['apiKey']}\r\n\r\n"
        for name in ("greedy", "honest")
    ]
    greedy, honest = (f"GET /api/items HTTP/1.1\r\n{each}".encode() for each in heads)
    with hub(tmp_path, {"database": database}) as running:

        def ask() -> None:
            with socket.create_connection(("127.0.0.1", running.port), PATIENCE) as line:
                line.sendall(honest)
                assert line.recv(100).startswith(b"HTTP/1.1 200")

        control = measure(running.process.pid, 2.0, ask)
        how = partial(flooded, source="127.0.0.2", secure=False, pipelined=True)
        with how(running.port, greedy), how(running.port, greedy):
            # Most of the initial allowance is used before.
            measure(running.process.pid, 2 * KNOWN_CALLER.burst, ask)
            result = measure(running.process.pid, LONG, ask)
    # The same amount is needed outside the charged steps, in the loop and in the kernel.
    assert result.cores - control.cores < 2 * KNOWN_CALLER.core, result
    assert result.soon, result


def test_authenticated_caller_is_answered_beside_a_flood_from_the_same_address(
    served: Served,
) -> None:
    """A signed-in browser keeps its connection, and so does a program with a key."""
    first, source = served.site.first, next(_strangers)
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    line = HTTPSConnection(
        "127.0.0.1",
        served.hub.port,
        timeout=PATIENCE,
        context=served.site.client_tls,
        source_address=(source, 0),
    )

    def push_state() -> None:
        line.request("GET", "/api/push/1", headers=proof)
        answer = line.getresponse()
        assert (answer.read() != b"", answer.status) == (True, 404)

    push_state()
    request = CASES[0].request
    with flooded(served.hub.port, request, source=source, secure=True, pipelined=True):
        served.measure(SHORT)
        result = settled(served.hub.process.pid, push_state, math.inf, SHORT)
    assert result.soon, result
    line.close()


def test_probes_of_the_listener_are_routes_of_the_hub() -> None:
    patterns = {each.pattern for each in list_routes()}
    assert patterns >= set(listening.PROBES)


@pytest.mark.full
def test_console_file_is_compressed_and_revalidated_by_etag(served: Served) -> None:
    def get(tag: str) -> tuple[int, bytes, str]:
        line = HTTPSConnection(
            "127.0.0.1", served.hub.port, timeout=PATIENCE, context=served.site.client_tls
        )
        with closing(line):
            headers = {"Accept-Encoding": "gzip", "If-None-Match": tag}
            line.request("GET", "/console/file/leaflet.js", headers=headers)
            answer = line.getresponse()
            return answer.status, answer.read(), answer.headers["ETag"]

    status, body, tag = get('"none"')
    assert (status, body[:2]) == (200, b"\x1f\x8b")
    assert get(tag) == (304, b"", tag)
