"""A broker that dies at each step, forgets, or sends invalid data: our own independent broker, and
a real kit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.mqtt.brokers import Packet, StrangeBroker, Visit, strange_broker
from tests.processes import Agent, Running, agent, sky, until

BASE = "fieldagent/kit"


class Kit:
    """A kit under a sky with a faulty broker."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home, self.stack = home, stack
        self.sky: Running = stack.enter_context(sky(home))
        self.broker: StrangeBroker = stack.enter_context(strange_broker())
        self.agent: Agent
        self.begin()

    def begin(self) -> None:
        settings = {
            "mqtt-address": f"mqtt://127.0.0.1:{self.broker.port}",
            "mqtt-senders": "house",
            "mqtt-credits-per-day": "9",
        }
        self.agent = self.stack.enter_context(agent(self.home, settings))

    def mqtt(self) -> dict[str, Any]:
        status: dict[str, Any] = self.agent.call("GET", "/api/status").body["mqtt"]
        return status

    def texts(self) -> list[str]:
        listed = self.agent.call("GET", "/api/packages").body["packages"]
        return [each["text"] for each in listed]

    def hook(self) -> dict[str, Any]:
        """Return the broker state of the last incoming message."""
        (last, *_) = self.agent.call("GET", "/api/inbound").body["payloads"]
        standing: dict[str, Any] = last["hooks"]["MQTT"]
        return standing


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    with ExitStack() as stack:
        yield Kit(tmp_path, stack)


def is_subscribe(packet: Packet) -> bool:
    return packet.kind == 8


def is_inbound(packet: Packet) -> bool:
    return packet.kind == 3 and packet.topic == f"{BASE}/inbound"


def is_result(packet: Packet) -> bool:
    return packet.kind == 3 and packet.topic == f"{BASE}/result/house"


def is_ack(packet: Packet) -> bool:
    return packet.kind == 4


def ready(visit: Visit) -> None:
    """Let the kit subscribe."""
    visit.answer(visit.until(is_subscribe))


def text_in(packet: Packet) -> str:
    text: str = json.loads(packet.payload)["payloads"][0]["events"][0]["content"]
    return text


def test_connection_lost_before_connack_is_retried(kit: Kit) -> None:
    for _ in range(2):
        with kit.broker.visit() as visit:
            hello = visit.next()
            assert (hello.kind, hello.flags) == (1, 0)
    kit.agent.expect("MQTT: the broker closed the connection")
    kit.broker.serve()
    until(lambda: kit.mqtt()["state"] == "ready")


@pytest.mark.full
def test_inbound_item_is_done_only_after_the_brokers_puback(kit: Kit) -> None:
    with kit.broker.visit() as visit:
        ready(visit)
        kit.sky.type("mt come down")
        assert text_in(visit.until(is_inbound)) == "come down"
    # The broker had the bytes. It is unknown if it kept them.
    until(lambda: kit.hook()["attempts"] == 1)
    assert kit.hook()["state"] == "waiting"
    assert kit.hook()["reason"] == "the broker closed the connection"
    with kit.broker.visit() as visit:
        assert text_in(visit.until(is_inbound)) == "come down"
        kit.agent.kill()
    kit.begin()
    assert kit.hook()["state"] == "waiting"
    with kit.broker.visit() as visit:
        packet = visit.until(is_inbound)
        assert text_in(packet) == "come down"
        visit.answer(packet)
        until(lambda: kit.hook()["state"] == "handed")
    with kit.broker.visit() as visit:
        ready(visit)
        kit.sky.type("mt and bring rope")
        assert text_in(visit.until(is_inbound)) == "and bring rope"


@pytest.mark.full
def test_command_with_a_lost_puback_is_carried_out_once(kit: Kit) -> None:
    said = b'{"message":{"content":"once"}}'
    with kit.broker.visit() as visit:
        ready(visit)
        visit.command(f"{BASE}/send/house", said, 5)
        assert visit.until(is_ack).number == b"\0\5"
    for _ in range(2):
        with kit.broker.visit() as visit:
            ready(visit)
            visit.command(f"{BASE}/send/house", said, 5, again=True)
            assert visit.until(is_ack).number == b"\0\5"
    with kit.broker.visit() as visit:
        ready(visit)
        # The same text again as a separate message.
        visit.command(f"{BASE}/send/house", said, 6)
        visit.until(is_result)
    assert kit.texts() == ["once", "once"]
    assert kit.mqtt()["commands"]["taken"] == 2


def test_keyed_command_is_carried_out_once_despite_an_agent_kill(kit: Kit) -> None:
    said = b'{"key":"k1","message":{"content":"once"}}'
    with kit.broker.visit() as visit:
        ready(visit)
        visit.command(f"{BASE}/send/house", said, 5)
        visit.until(is_ack)
        kit.agent.kill()
    kit.begin()
    with kit.broker.visit() as visit:
        ready(visit)
        visit.command(f"{BASE}/send/house", said, 5, again=True)
        result = json.loads(visit.until(is_result).payload)
    assert (result["accepted"], result["key"]) == (True, "k1")
    assert kit.texts() == ["once"]
    assert kit.mqtt()["creditsToday"] == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "makes no sense"),
        (b"\xd0\x00", "the server there is not an MQTT broker"),
        (b"\x20\x02\x00\x05", "correct mqtt-user and mqtt-password"),
        (b"\x20\x02\x00\x02", "the client id fieldagent-kit: correct mqtt-name"),
        (b"\x20\x02\x00\x63", "the unknown code 99"),
    ],
)
def test_invalid_connack_is_reported_and_retried(kit: Kit, words: bytes, said: str) -> None:
    with kit.broker.visit() as visit:
        visit.next()
        visit.say(words)
        kit.agent.expect(said)
    assert said in kit.mqtt()["reason"]
    assert kit.mqtt()["state"] == "fault"
    kit.broker.serve()
    until(lambda: kit.mqtt()["state"] == "ready")


LONG = f"{BASE}/send/house".encode()


@pytest.mark.full
@pytest.mark.parametrize(
    "garbled",
    [
        b"\x30\xff\xff\xff\xff\x7f",
        b"\x20\x02\x00\x00",
        b"\x34\x05\x00\x01a\x00\x01",
        b"\x30\x04\x00\x02\xc3\x28",
        b"\x50\x02\x00\x01",
        b"\x40\xff\xff\xff\x7f",
    ],
)
def test_malformed_packet_ends_only_the_session(kit: Kit, garbled: bytes) -> None:
    with kit.broker.visit() as visit:
        ready(visit)
        visit.say(garbled)
        until(lambda: kit.mqtt()["state"] == "fault")
    kit.broker.serve()
    until(lambda: kit.mqtt()["state"] == "ready")
    assert kit.agent.call("GET", "/api/health").status == 200
    assert not kit.agent.call("GET", "/api/status").body["faults"]


def test_oversized_message_is_skipped_and_the_session_continues(kit: Kit) -> None:
    size = 5_000_000
    rest = len(LONG).to_bytes(2) + LONG + b"\0\7"
    length, left = bytearray(), size + len(rest)
    while left:
        length.append(left % 128 | (128 if left > 127 else 0))
        left //= 128
    with kit.broker.visit() as visit:
        ready(visit)
        visit.say(b"\x32" + bytes(length) + rest)
        for _ in range(size // 10_000):
            visit.say(b"x" * 10_000)
        assert visit.until(is_ack).number == b"\0\7"
        visit.command(f"{BASE}/send/house", b"hello", 8)
        assert json.loads(visit.until(is_result).payload)["accepted"]
    assert kit.mqtt()["commands"]["too long"] == 1


def test_refused_subscription_is_reported(kit: Kit) -> None:
    with kit.broker.visit() as visit:
        wanted = visit.until(is_subscribe)
        visit.say(b"\x90\x05" + wanted.number + b"\x80\x01\x01")
        kit.agent.expect("correct its access rules")


def test_agent_without_a_broker_imports_no_mqtt_code() -> None:
    code = (
        "import sys, fieldagent.agent.agent, fieldagent.agent.api.routes;"
        "mqtt = 'fieldagent.extensions.mqtt';"
        "loaded = {each for each in sys.modules if each.startswith(mqtt + '.')};"
        "assert loaded <= {f'{mqtt}.{name}' for name in"
        " ('agent', 'agent.settings', 'shared_settings')}, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
