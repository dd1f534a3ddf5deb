"""Agents with the radio node that was written in C only from the description of the node link."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import TransmitResult
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.radios.node import open_node
from fieldagent.wire import cobs
from fieldagent.wire.node import encode_frame
from tests.agent.test_agent import HOOK
from tests.machine import tool
from tests.processes import PATIENCE, Agent, Running
from tests.wire.test_node import VECTORS
from tests.wire.test_node_sessions import unreadable

SOURCE = Path(__file__).parents[2] / "peers/node.c"
LINES = {vector["name"]: bytes.fromhex(vector["line"]) for vector in VECTORS["frames"]}


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the node. It stops at the first byte that it reads or writes outside its memory."""
    gcc = tool("gcc", "gcc libc6-dev")
    program = tmp_path_factory.mktemp("firmware") / "node"
    strict = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-D_GNU_SOURCE"]
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run([gcc, *strict, *checks, SOURCE, "-o", program], check=True)
    return program


def free_ports(count: int) -> list[str]:
    with ExitStack() as probes:
        ports = []
        for _ in range(count):
            probe = probes.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            probe.bind(("127.0.0.1", 0))
            ports.append(str(probe.getsockname()[1]))
        return ports


@contextmanager
def nodes(firmware: Path, home: Path, count: int = 2) -> Iterator[list[Running]]:
    """Yield nodes that hear each other. Their serial lines are `home`/node-1 and so on."""
    ports = free_ports(count)
    running = []
    with ExitStack() as stack:
        for number, own in enumerate(ports, 1):
            peers = [port for port in ports if port != own]
            command = [str(firmware), str(home / f"node-{number}"), f"c-{number}", own, *peers]
            running.append(stack.enter_context(Running(command, "ready")))
        yield running
        codes = [node.stop() for node in running]
    assert codes == [0] * count, [node.lines for node in running]


@contextmanager
def kit(home: Path, number: int) -> Iterator[Agent]:
    folder = home / f"kit-{number}"
    folder.mkdir()
    settings = {
        "satellite-port": None,
        "radio-port": str(home / f"node-{number}"),
        "radio-station": str(number),
        "radio-name": f"Kit {number}",
        "inbound-hook": HOOK,
    }
    with Agent(folder, settings) as agent:
        yield agent
        assert agent.stop() == 0


def data(size: int) -> dict[str, object]:
    return {"data": {"payload": "QUJD" * (size // 3)}}


@pytest.mark.full
def test_two_agents_reach_each_other_through_c_nodes(firmware: Path, tmp_path: Path) -> None:
    with nodes(firmware, tmp_path), kit(tmp_path, 1) as ada, kit(tmp_path, 2) as ben:
        ada.expect("the node reports: ready")
        assert ada.post("Camp reached").body["status"] == "Delivered"
        assert "Camp reached" in ben.expect("hook: ")
        assert ben.call("POST", "/api/package", data(1500)).body["status"] == "Delivered"
        assert "QUJDQUJD" in ada.expect("hook: ")
        radio = ada.call("GET", "/api/status").body["channels"]["Radio"]
        facts = (radio["node"], radio["battery"], radio["millivolts"], radio["signal"])
        assert facts == ("c-1", 90, 3700, 4)


def test_reboots_of_c_nodes_lose_no_package(firmware: Path, tmp_path: Path) -> None:
    with nodes(firmware, tmp_path) as both, kit(tmp_path, 1) as ada, kit(tmp_path, 2) as ben:
        assert ada.post("before").body["status"] == "Delivered"
        posted = ada.call("POST", "/api/package/async", data(1500)).body["id"]
        for node in (*both, *both):
            ada.call("GET", "/api/status")
            node.process.send_signal(signal.SIGUSR1)
        assert ada.call("POST", "/api/package", {"id": posted, **data(1500)}).body["status"] == (
            "Delivered"
        )
        listed = ben.call("GET", "/api/inbound").body["payloads"]
        kinds = [each["body"]["payloads"][0]["events"][0]["type"] for each in listed]
        assert kinds == ["Data", "Message"]
        assert json.dumps(listed).count("QUJD" * 500) == 1


def converse(line: Path, *frames: bytes, until: bytes) -> bytes:
    """Return the node's bytes after these frames, up to the expected frame."""
    handle = os.open(line, os.O_RDWR | os.O_NOCTTY)
    try:
        os.write(handle, b"".join(frames))
        said = b""
        while until not in said:
            ready, _, _ = select.select([handle], [], [], PATIENCE)
            assert ready, (until, said)
            said += os.read(handle, 4096)
        return said
    finally:
        os.close(handle)


def test_c_node_answers_with_frames_of_test_vectors(firmware: Path, tmp_path: Path) -> None:
    hello, send = LINES["hello of a gateway, which wants an answer"], LINES["send packet 1"]
    with nodes(firmware, tmp_path, 1):
        line = tmp_path / "node-1"
        converse(line, b"\0\0", hello, send, until=LINES["packet 1 was transmitted"])


class Broken(Exception):
    """Error: the node stopped waiting for a slow gateway, which is not a fault."""


class Conversation:
    """A gateway that sends the lines of a session and waits for the node's lines. Other frames may
    come in between: Status, Log, and Hellos with a different boot id each time.
    """

    def __init__(self, node: Running, handle: int) -> None:
        self.node = node
        self.handle = handle
        self.said = b""
        self.is_open = False
        """True after the node has answered. Before that, it sends a hello each second."""

    def play(self, session: dict[str, Any]) -> None:
        for step in session["steps"]:
            if step.get("from") == "gateway" and not step.get("lost"):
                os.write(self.handle, bytes.fromhex(step["line"]))
            elif step.get("from") == "node":
                self.expect(bytes.fromhex(step["line"]), is_hello=step["frame"] == "hello")
            elif step.get("gateway") == "has sent":
                for sequence in range(1, step["count"] + 1):
                    os.write(self.handle, unreadable(sequence))
                    self.expect(acknowledgement(sequence))
            elif step.get("node") == "starts":
                self.is_open = False
                self.node.process.send_signal(signal.SIGUSR1)

    def expect(self, line: bytes, *, is_hello: bool = False) -> None:
        while True:
            frame, end, rest = self.said.partition(b"\0")
            if not end:
                ready, _, _ = select.select([self.handle], [], [], PATIENCE)
                assert ready, (line, self.said)
                self.said += os.read(self.handle, 4096)
                continue
            self.said = rest
            head = cobs.decode(frame)[:2] if frame else b""
            if head[:1] == b"\x10" and is_hello:
                return
            if head == b"\x10\x02" and self.is_open:
                raise Broken
            if frame + end == line:
                self.is_open = True
                return


def acknowledgement(sequence: int) -> bytes:
    return encode_frame(bytes([0x11, 0, 0, sequence]), [])


@pytest.mark.parametrize("session", VECTORS["sessions"], ids=lambda session: session["name"])
def test_c_node_follows_sessions_of_test_vectors(
    firmware: Path, tmp_path: Path, session: dict[str, Any]
) -> None:
    for attempt in range(3):
        home = tmp_path / str(attempt)
        home.mkdir()
        with nodes(firmware, home, 1) as (running,):
            handle = os.open(home / "node-1", os.O_RDWR | os.O_NOCTTY)
            try:
                Conversation(running, handle).play(session)
                return
            except Broken:
                continue
            finally:
                os.close(handle)
    raise AssertionError("the node stopped waiting three times")


@pytest.mark.parametrize("vector", VECTORS["dropped"], ids=lambda vector: vector["name"])
def test_c_node_drops_invalid_frames(
    firmware: Path, tmp_path: Path, vector: dict[str, str]
) -> None:
    hello, send = LINES["hello of a gateway, which wants an answer"], LINES["send packet 1"]
    dropped = bytes.fromhex(vector["line"])
    with nodes(firmware, tmp_path, 1):
        line = tmp_path / "node-1"
        frames = (b"\0\0", dropped, hello, send, dropped)
        converse(line, *frames, until=LINES["packet 1 was transmitted"])


async def test_c_node_works_after_noise(firmware: Path, tmp_path: Path) -> None:
    chance = Random(7)
    with nodes(firmware, tmp_path, 1):
        path = tmp_path / "node-1"
        for _ in range(20):
            frame = bytearray(chance.choice(list(LINES.values())))
            frame[chance.randrange(len(frame))] = chance.randrange(256)
            noise = bytes(frame[: chance.randrange(len(frame))]) + chance.randbytes(300)
            handle = os.open(path, os.O_RDWR | os.O_NOCTTY)
            os.write(handle, noise)
            os.close(handle)
        with trio.fail_after(PATIENCE):
            async with open_node(RadioPlace(str(path)), ChannelLink()) as air:
                assert (
                    await air.transmit(bytes(range(200)), urgent=False)
                    is TransmitResult.TRANSMITTED
                )
