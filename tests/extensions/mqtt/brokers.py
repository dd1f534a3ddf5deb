"""MQTT brokers and clients for tests: Debian's mosquitto, paho as another client, and a broker with
faults.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.machine import needs
from tests.processes import PATIENCE, Running, until

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/bin")
needs_mosquitto = needs(MOSQUITTO, "apt-get install mosquitto")


class Mosquitto(Running):
    def __init__(self, home: Path, port: int, *more: str) -> None:
        assert MOSQUITTO is not None, "apt-get install mosquitto"
        self.port = port
        config = home / f"mosquitto-{port}.conf"
        # Another user could not enter the folders of tests that run as root.
        lines = ["user root", f"listener {port} 127.0.0.1", *(more or ("allow_anonymous true",))]
        config.write_text("".join(f"{line}\n" for line in lines))
        super().__init__([MOSQUITTO, "-c", str(config), "-v"], " running")


def password_file(home: Path, user: str, password: str) -> Path:
    path = home / "passwords"
    command = ["mosquitto_passwd", "-c", "-b", str(path), user, password]
    subprocess.run(command, check=True, capture_output=True)
    path.chmod(0o644)
    return path


class Got(NamedTuple):
    topic: str
    retained: bool
    payload: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.payload)


class Neighbour:
    """An MQTT client that subscribes to all topics of a broker."""

    def __init__(self, port: int, user: str | None = None, password: str | None = None) -> None:
        self.got: list[Got] = []
        self._subscribed = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2)
        if user is not None:
            self.client.username_pw_set(user, password)
        self.client.on_connect = lambda client, *_: client.subscribe("#", 1)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_message = lambda client, data, message: self.got.append(
            Got(message.topic, message.retain, bytes(message.payload))
        )
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        assert self._subscribed.wait(PATIENCE)

    def say(self, topic: str, payload: str | bytes | dict[str, Any], retain: bool = False) -> None:
        """Publish a message, and return when the broker has it."""
        text = json.dumps(payload) if isinstance(payload, dict) else payload
        self.client.publish(topic, text, 1, retain).wait_for_publish(PATIENCE)

    def of(self, topic: str) -> list[Got]:
        return [each for each in self.got if each.topic == topic]

    def await_one(self, topic: str, wanted: Callable[[Any], object] = lambda body: True) -> Any:
        """Wait for the first matching body, and return it."""
        until(lambda: any(wanted(each.body) for each in self.of(topic)))
        return next(each.body for each in self.of(topic) if wanted(each.body))

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@contextmanager
def neighbour(port: int, *who: str) -> Iterator[Neighbour]:
    there = Neighbour(port, *who)
    try:
        yield there
    finally:
        there.close()


CONNACK, SUBACK, PINGRESP = b"\x20\x02\x00\x00", b"\x90\x05", b"\xd0\x00"


class Packet(NamedTuple):
    kind: int
    flags: int
    rest: bytes

    @property
    def topic(self) -> str:
        (size,) = struct.unpack(">H", self.rest[:2])
        return self.rest[2 : 2 + size].decode()

    @property
    def number(self) -> bytes:
        """Return the packet identifier of a PUBLISH with QoS 1, or of a packet that begins
        with it.
        """
        start = 2 + len(self.topic.encode()) if self.kind == 3 else 0
        return self.rest[start : start + 2]

    @property
    def payload(self) -> bytes:
        return self.rest[4 + len(self.topic.encode()) :]


class Visit:
    """One connection of the kit, at the broker's end. It reads packets without the product's
    code.
    """

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        peer.settimeout(PATIENCE)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.peer.recv(size - len(data))
            if not more:
                raise ConnectionError("the kit has gone")
            data += more
        return data

    def next(self) -> Packet:
        first, size, shift = self._take(1)[0], 0, 0
        while True:
            digit = self._take(1)[0]
            size |= (digit & 0x7F) << shift
            shift += 7
            if not digit & 0x80:
                break
        return Packet(first >> 4, first & 15, self._take(size))

    def say(self, data: bytes) -> None:
        self.peer.sendall(data)

    def command(
        self,
        topic: str,
        payload: bytes,
        number: int,
        *,
        again: bool = False,
        retained: bool = False,
    ) -> None:
        name = topic.encode()
        rest = struct.pack(">H", len(name)) + name + struct.pack(">H", number) + payload
        assert len(rest) < 128
        self.say(bytes((0x32 | again << 3, len(rest))) + rest)

    def answer(self, packet: Packet) -> None:
        """Answer like a correct broker."""
        if packet.kind == 1:
            self.say(CONNACK)
        elif packet.kind == 3 and packet.flags & 2:
            self.say(b"\x40\x02" + packet.number)
        elif packet.kind == 8:
            self.say(SUBACK + packet.number + b"\x01\x01\x01")
        elif packet.kind == 12:
            self.say(PINGRESP)

    def until(self, wanted: Callable[[Packet], object]) -> Packet:
        """Answer all packets before a matching one, which stays unanswered."""
        while True:
            packet = self.next()
            if wanted(packet):
                return packet
            self.answer(packet)


class StrangeBroker:
    """A broker that accepts each connection of the kit separately."""

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.settimeout(PATIENCE)
        self.port = self.listener.getsockname()[1]

    @contextmanager
    def visit(self) -> Iterator[Visit]:
        """Accept a connection, which breaks off at the end of the block."""
        peer, _ = self.listener.accept()
        with peer:
            yield Visit(peer)
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Act like a correct broker in a thread during the next connection."""

        def work() -> None:
            with suppress(OSError), self.visit() as visit:
                visit.until(lambda packet: False)

        threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self.listener.close()


@contextmanager
def strange_broker() -> Iterator[StrangeBroker]:
    broker = StrangeBroker()
    try:
        yield broker
    finally:
        broker.close()
