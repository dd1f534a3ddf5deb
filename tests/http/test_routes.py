"""The router, its targets, and the sockets of the server."""

from __future__ import annotations

import json
import socket

import pytest

from fieldagent.http.listeners import ListenFailed, get_port, open_listeners
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import query_pairs
from fieldagent.http.routes import Route, make_router


async def _package(request: Request, id: str) -> Response:  # noqa: A002 - named by the pattern
    return make_json_response(["package", id])


async def _cancel(request: Request, id: str, channel: str = "") -> Response:  # noqa: A002
    return make_json_response(["cancel", id, channel])


async def _submit(request: Request) -> Response:
    return make_json_response(["submit"])


ROUTE = make_router(
    [
        Route("GET", "/api/package/{id}", _package),
        Route("DELETE", "/api/package/{id}", _cancel),
        Route("POST", "/api/package/async", _submit),
        Route("POST", "/api/package/{id}/cancel", _cancel),
        Route("POST", "/api/{id}/{channel}", _cancel),
    ]
)


async def ask(method: str, path: str) -> Response:
    request = Request(method, path, (), {})
    return await (await ROUTE(request)).handler(request)


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/api/package/7", ["package", "7"]),
        ("HEAD", "/api/package/7", ["package", "7"]),
        ("DELETE", "/api/package/7", ["cancel", "7", ""]),
        ("POST", "/api/package/async", ["submit"]),
        ("POST", "/api/package/7/cancel", ["cancel", "7", ""]),
        ("POST", "/api/a/b", ["cancel", "a", "b"]),
        ("GET", "/api/package/a%2Fb", ["package", "a/b"]),
        ("GET", "/api/package/%E2%82%AC", ["package", "€"]),
        ("GET", "/%61pi/package/7", ["package", "7"]),
        ("GET", "/api/package/+", ["package", "+"]),
    ],
)
async def test_request_is_routed_to_its_handler(method: str, path: str, wanted: list[str]) -> None:
    assert json.loads((await ask(method, path)).body) == wanted


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/", 404, None),
        ("GET", "/api/package", 404, None),
        ("GET", "/api/package/", 404, None),
        ("GET", "/api/package/7/", 404, None),
        ("GET", "//api/package/7", 404, None),
        ("GET", "/api/package/%", 400, None),
        ("GET", "/api/package/%0a", 400, None),
        ("GET", "/api/package/%ed%a0%80", 400, None),
        ("PUT", "/api/package/7", 405, "DELETE, GET, HEAD, OPTIONS"),
        ("GET", "/api/package/7/cancel", 405, "OPTIONS, POST"),
        ("GET", "/api/package/async", 405, "OPTIONS, POST"),
    ],
)
async def test_unknown_path_or_method_is_refused(
    method: str, path: str, status: int, allow: str | None
) -> None:
    with pytest.raises(Problem) as refused:
        await ask(method, path)
    assert refused.value.status == status
    assert dict(refused.value.headers).get("Allow") == allow


async def test_options_lists_the_allowed_methods() -> None:
    response = await ask("OPTIONS", "/api/package/7")
    assert (response.status, response.headers) == (204, (("Allow", "DELETE, GET, HEAD, OPTIONS"),))


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("", ()),
        ("a", (("a", ""),)),
        ("a=1&b=2&a=3", (("a", "1"), ("b", "2"), ("a", "3"))),
        ("&&a==b&", (("a", "=b"),)),
        ("a+b=%2B+%26", (("a b", "+ &"),)),
    ],
)
def test_query_is_split_into_pairs(query: str, pairs: tuple[tuple[str, str], ...]) -> None:
    assert query_pairs(query) == pairs


def test_all_addresses_get_the_same_free_port() -> None:
    listeners = open_listeners(0)
    assert {listener.getsockname()[1] for listener in listeners} == {get_port(listeners)}
    assert {listener.getsockname()[0] for listener in listeners} <= {"127.0.0.1", "::1"}
    for listener in listeners:
        listener.close()


def test_occupied_port_is_reported_with_a_remedy() -> None:
    (taken,) = open_listeners(0, ("127.0.0.1",))
    with taken, pytest.raises(ListenFailed, match=r"port \d+ on 127.0.0.1 is in use .*ss -ltnp"):
        open_listeners(get_port([taken]), ("127.0.0.1",))


def test_listeners_are_closed_if_one_address_is_occupied() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ListenFailed, match=r"on 127\.0\.0\.2"):
            open_listeners(port, ("127.0.0.1", "127.0.0.2"))
        open_listeners(port, ("127.0.0.1",))[0].close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1"])
def test_non_loopback_address_is_refused(host: str) -> None:
    with pytest.raises(ListenFailed, match="no authentication"):
        open_listeners(0, (host,))


def test_any_address_is_accepted_if_allowed() -> None:
    (listener,) = open_listeners(0, ("0.0.0.0",), allow_remote=True)
    listener.close()


@pytest.mark.parametrize(
    ("host", "says"),
    [("localhost", "IP address"), ("192.0.2.1", "does not have any of the addresses")],
)
def test_address_of_another_machine_is_reported(host: str, says: str) -> None:
    with pytest.raises(ListenFailed, match=says):
        open_listeners(0, (host,), allow_remote=True)
