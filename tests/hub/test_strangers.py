"""The hub against callers without a key, and against malicious callers with one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest
import trio

from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from tests.hostile_bodies import BODIES
from tests.http.loop_lag import FREEZE, LongestStep
from tests.http.test_steps import HOSTILE
from tests.hub.test_push_api import LOCATION, Cloud, basic, cloud
from tests.processes import PATIENCE, Agent, Hub, Running, administer, agent, hub

STRANGERS = 300
WHOLE = b"GET / \r\n\r\n"
"""Beginning and end of heads that get an answer without a body."""


async def send_head(hub: Cloud, *lines: str) -> bytes:
    """Return the hub's answer to the head of a push, whose announced body never comes."""
    headers = ["Host: hub", "Content-Type: application/json", "Content-Length: 1000000", *lines]
    text = "\r\n".join(["POST /api/package HTTP/1.1", *headers, "Expect: 100-continue", "", ""])
    async with await trio.open_tcp_stream("127.0.0.1", hub.port) as stream:
        await stream.send_all(text.encode())
        with trio.fail_after(PATIENCE):
            return bytes(await stream.receive_some())


async def test_push_is_authenticated_by_its_head_before_the_body(store: Store) -> None:
    async with cloud(store) as hub:
        bearer = f"Authorization: Bearer {hub.token}"
        key = f"x-api-key: {hub.key}"
        few = f"x-api-key: {hub.others['few']}"
        answers = {
            (): 401,
            (key,): 401,
            (bearer,): 401,
            (key, "Authorization: Bearer nobody"): 401,
            (key, f"Authorization: {basic('ben@example.org:wrong')['Authorization']}"): 401,
            (f"x-api-key: {hub.others['elsewhere']}", bearer): 403,
            (key, bearer): 100,
            (few, bearer): 100,
        }
        for lines, status in answers.items():
            answer = await send_head(hub, *lines)
            assert answer.startswith(b"HTTP/1.1 %d " % status), (lines, answer)
        for _ in range(2):
            reply = await hub.push(LOCATION, headers={"x-api-key": hub.others["few"]})
            assert reply.status == 200
        assert (await send_head(hub, few, bearer)).startswith(b"HTTP/1.1 429 ")
        assert await hub.rows("SELECT count(*) FROM item") == [(2,)]


@pytest.mark.parametrize("path", ["/api/package", "/healthz"])
async def test_hostile_bodies_do_not_block_other_requests(tmp_path: Path, path: str) -> None:
    """The callers include callers with a key."""
    with closing(open_store(str(tmp_path / "hub.sqlite3"))) as store:
        async with cloud(store) as hub:
            for name, body in BODIES.items():
                steps = LongestStep()
                trio.lowlevel.add_instrument(steps)
                reply = await hub.push(body, path=path)
                trio.lowlevel.remove_instrument(steps)
                assert reply.status in (400, 404, 405, 413, 422), name
                assert len(reply.body) < 10_000, name
                assert steps.seconds < FREEZE, (name, steps.task)


async def test_hostile_heads_do_not_block_other_requests(tmp_path: Path) -> None:
    """The test covers each part of the head that identifies the caller."""
    whole = {name: said for name, said in HOSTILE.items() if said[:6] + said[-4:] == WHOLE}
    with closing(open_store(str(tmp_path / "hub.sqlite3"))) as store:
        async with cloud(store) as hub:
            for name, said in whole.items():
                steps = LongestStep()
                trio.lowlevel.add_instrument(steps)
                async with await trio.open_tcp_stream("127.0.0.1", hub.port) as stream:
                    with suppress(trio.BrokenResourceError), trio.fail_after(PATIENCE):
                        await stream.send_all(said.replace(b"GET / ", b"GET /api/push/1 "))
                        assert (await stream.receive_some())[9:12] == b"401", name
                trio.lowlevel.remove_instrument(steps)
                assert steps.seconds < FREEZE, (name, steps.task)


def longest_wait(server: Hub | Agent, path: str, call: Callable[[], int]) -> tuple[float, int]:
    """Return another caller's longest wait for `path` during a call, and the call's status."""
    done, waits = threading.Event(), [0.0]

    def poll() -> None:
        while not done.is_set():
            begun = time.monotonic()
            assert get(server.port, path) == 200
            waits.append(time.monotonic() - begun)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        status = call()
    finally:
        done.set()
        poller.join()
    return max(waits), status


def get(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def post(port: int, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        headers = {"Content-Type": "application/json", **headers}
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_hub_process_answers_others_during_a_hostile_body(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    body = BODIES["40 000 members, the last one twice"]
    with hub(tmp_path, {"database": database}) as running:
        for headers, status in (({}, 401), (proof, 400)):
            waited, answered = longest_wait(
                running, "/healthz", partial(post, running.port, "/api/package", body, headers)
            )
            assert (answered, waited < PATIENCE / 10) == (status, True), waited


def test_large_bodies_of_anonymous_callers_use_no_memory(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    head = b"POST /api/package HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
    with hub(tmp_path, {"database": database}) as running, ExitStack() as stack:
        assert get(running.port, "/healthz") == 200
        before = read_peak_memory(running)
        for _ in range(STRANGERS):
            peer = socket.create_connection(("127.0.0.1", running.port), PATIENCE)
            stack.enter_context(peer)
            peer.setblocking(False)
            with suppress(OSError):  # refused, and the rest is dropped
                peer.send(head + b"Content-Length: 1048576\r\n\r\n" + b" " * 1_000_000)
        assert get(running.port, "/healthz") == 200
        assert read_peak_memory(running) - before < STRANGERS * 100_000


def read_peak_memory(running: Running) -> int:
    """Return the peak memory of the process in bytes."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_agent_process_answers_others_during_a_hostile_body(tmp_path: Path) -> None:
    body = BODIES["80 000 members, the last one twice"]
    with agent(tmp_path) as running:
        for path in ("/api/package/cost", "/api/package", "/api/package/async"):
            waited, answered = longest_wait(
                running, "/api/health", partial(post, running.port, path, body, {})
            )
            assert (answered, waited < PATIENCE / 10) == (400, True), (path, waited)


def test_disabled_device_loses_its_link_at_once_with_the_reason(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    user = administer(database, "user", "add", "Ada")["id"]
    device = administer(database, "device", "add", "kit", "--user", str(user))
    with hub(tmp_path, {"database": database}) as running:
        settings = {"hub-address": running.address, "hub-token": device["hub-token"]}
        with agent(tmp_path, settings) as kit:
            kit.expect("linked to the hub")
            administer(database, "device", "disable", "kit")
            running.expect("must end: the device was disabled")
            kit.expect("the hub ended the link for good: is the device disabled")


def test_agent_and_hub_reject_control_characters_in_headers(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    with hub(tmp_path, {"database": database}) as above, agent(tmp_path) as kit:
        for port, path in ((above.port, "/healthz"), (kit.port, "/api/health")):
            for value, status in (("a", b" 200 "), ("a\ab", b" 400 "), ("a\x7f", b" 400 ")):
                head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX: {value}\r\n\r\n"
                with socket.create_connection(("127.0.0.1", port), PATIENCE) as line:
                    line.sendall(head.encode())
                    assert line.recv(100)[8:13] == status, (path, value)
