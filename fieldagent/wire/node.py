"""The node link between a gateway and the radio node on its serial line. This module contains both
ends, without I/O.

`docs/reference/node-link.md` describes the protocol byte by byte, with test vectors. The caller
supplies the time, in seconds, always from the same clock.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from math import inf
from typing import Any

import cbor2

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import cobs, strict_cbor
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

VERSION = 1
PACKET_BYTES = 200
"""Default packet size of a node. A gateway's Hello also contains a packet size, which has no
meaning."""
WINDOW = 4
"""Maximum number of unacknowledged numbered frames."""
FRAME_BYTES = 512
"""Maximum bytes of a coded frame."""
RETRY_S = 1.0
"""Seconds after which an unacknowledged frame is sent again."""
TRANSMISSIONS_MAX = 3
"""If a frame is unacknowledged after this number of transmissions, the link is down."""
URGENT, ANSWER_WANTED = 0x01, 0x02
_HEAD, _SUM = 4, 4


class NodeKind(IntEnum):
    HELLO = 0
    ACKNOWLEDGEMENT = 1
    SEND = 2
    RESULT = 3
    HEARD = 4
    STATUS = 5
    LOG = 6


@dataclass(frozen=True, slots=True)
class NodeHello:
    boot: int
    """Random 32-bit number of each start. A new number shows that all state was lost."""
    node: str = ""
    """Name of the node. Empty for a gateway."""
    firmware: str = ""
    packet_bytes: int = PACKET_BYTES
    window: int = WINDOW
    lowest: int = VERSION
    highest: int = VERSION
    features: int = 0
    """Feature bits. No bit is defined yet."""


@dataclass(frozen=True, slots=True)
class Send:
    """Message to the node to transmit this packet. The node's Result contains the same number."""

    number: int
    packet: bytes
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """Message from the node with the result of transmitting a packet."""

    number: int
    transmitted: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PacketHeard:
    """Message from the node with a packet from the air, with its strength in dBm and its
    signal-to-noise ratio in dB, if known.
    """

    packet: bytes
    rssi: int | None = None
    snr: int | None = None


class Neighbour(NamedTuple):
    node: str
    rssi: int | None
    age: int
    """Seconds since the neighbour was last heard."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """Message from the node with its condition. None means unknown."""

    signal: int | None = None
    """Signal bars, 0 to 5."""
    millivolts: int | None = None
    battery: int | None = None
    """Battery charge in per cent."""
    charging: bool | None = None
    neighbours: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class Log:
    """Message from the node with a line for the gateway's log. Level 0 is debug, and level 3 an
    error.
    """

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class NodeOpened:
    """The peer's hello has arrived. `is_new_session` is True if the peer has lost all earlier
    state.
    """

    hello: NodeHello
    is_new_session: bool


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes that are not a frame. If a frame was damaged, the peer sends it again."""

    reason: str


@dataclass(frozen=True, slots=True)
class PeerDown:
    """The peer does not answer. Nothing is sent until the next `open`."""


Numbered = Send | Result | PacketHeard
NodeEvent = NodeOpened | Numbered | NodeStatus | Log | Damaged | PeerDown


class NodeLink:
    """One end of a node link. The owner must call `data_to_send` after every call of another
    method, and `tick` at the time `deadline`.

    If no valid frame arrives for `silence_s` seconds, the link asks the peer for an answer.
    """

    def __init__(self, hello: NodeHello, silence_s: float = inf) -> None:
        self.hello = hello
        self._quiet = silence_s
        self.peer: NodeHello | None = None
        self.deadline = inf
        self._deframer = cobs.CobsDeframer(FRAME_BYTES)
        self._events: deque[NodeEvent] = deque()
        self._output = bytearray()
        self._sent = 0
        """Sequence number of the last numbered frame, modulo 256."""
        self._unacknowledged: deque[tuple[int, Numbered]] = deque()
        self._arrived = 0
        self._tries = 0
        self._boot: int | None = None
        """Boot number of the peer, which is kept while the peer does not answer."""

    def open(self, now: float) -> None:
        """Send a hello, and start to wait for the peer's hello. Unacknowledged frames are kept."""
        self._output += bytes(2)
        self._tries = 1
        self._greet_peer(ANSWER_WANTED)
        self.deadline = now + RETRY_S

    @property
    def free(self) -> int:
        """Return the number of numbered frames that can be sent before an acknowledgement is
        needed.
        """
        return 0 if self.peer is None else self.peer.window - len(self._unacknowledged)

    def is_waiting_for(self, content: Numbered) -> bool:
        """Return True if the frame still waits for its acknowledgement. Until then it is sent again
        if necessary.
        """
        return any(each is content for _, each in self._unacknowledged)

    def send(self, content: Numbered, now: float) -> None:
        """Send a numbered frame. Raises LocalProtocolError if the window is full or the packet is
        too large.
        """
        if self.peer is None or self.free < 1:
            raise LocalProtocolError("the peer accepts nothing now")
        if isinstance(content, Send) and len(content.packet) > self.peer.packet_bytes:
            raise LocalProtocolError(
                f"{len(content.packet)} bytes, but the maximum is {self.peer.packet_bytes}"
            )
        self._sent = (self._sent + 1) % 256
        self._unacknowledged.append((self._sent, content))
        self._write_numbered(self._sent, content)
        if len(self._unacknowledged) == 1:
            self._start_timer(now)

    def send_unnumbered(self, content: NodeStatus | Log) -> None:
        """Send an unnumbered frame, which is not repeated if it is lost."""
        kind, members = _list_members(content)
        self._write(kind, 0, 0, members)

    def tick(self, now: float) -> None:
        """Send unacknowledged frames again. If there are none, ask the peer for an answer with a
        hello. After `TRANSMISSIONS_MAX` transmissions without an answer, report PeerDown. A call
        before `deadline` does nothing.
        """
        if now < self.deadline:
            return
        if self._tries >= TRANSMISSIONS_MAX:
            self.peer, self.deadline = None, inf
            self._events.append(PeerDown())
            return
        self._tries += 1
        self.deadline = now + RETRY_S
        if self.peer is None or not self._unacknowledged:
            self._greet_peer(ANSWER_WANTED)
        for sequence, content in self._unacknowledged if self.peer else ():
            self._write_numbered(sequence, content)

    def _start_timer(self, now: float) -> None:
        """Restart the timer of `tick`: for the acknowledgement of the oldest unacknowledged frame
        or, if there is none, for any frame of the peer.
        """
        self._tries, self.deadline = 0, now + self._quiet
        if self._unacknowledged:
            self._tries, self.deadline = 1, now + RETRY_S

    def receive_data(self, data: bytes, now: float) -> None:
        """Process bytes of the line, and queue the events for `next_event`. Damage is also an
        event, never an exception.
        """
        before = self._deframer.overlong
        for coded in self._deframer.receive_data(data):
            try:
                self._receive(cobs.decode(coded), now)
            except RemoteProtocolError as error:
                self._events.append(Damaged(str(error)))
        if self._deframer.overlong > before:
            self._events.append(Damaged(f"a frame of more than {FRAME_BYTES} bytes"))

    def next_event(self) -> NodeEvent | None:
        """Remove the oldest waiting event and return it, or return None if no event waits."""
        return self._events.popleft() if self._events else None

    def data_to_send(self) -> bytes:
        """Return the bytes that must be written to the line, and remove them from the link."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def _receive(self, frame: bytes, now: float) -> None:
        head, body, guard = frame[:_HEAD], frame[_HEAD:-_SUM], frame[-_SUM:]
        if len(frame) < _HEAD + _SUM or zlib.crc32(frame[:-_SUM]).to_bytes(_SUM) != guard:
            raise RemoteProtocolError("a frame with a wrong CRC-32")
        version, kind = divmod(head[0], 16)
        members = _parse_members(body)
        if kind == NodeKind.HELLO:
            self._receive_hello(_read_hello(members), head[1], now)
            return
        if version != VERSION:
            raise RemoteProtocolError(f"version {version} is unknown")
        if self.peer is None:
            # The peer considers the link open, but this end has not received the peer's hello: ask
            # for it again.
            self._greet_peer(ANSWER_WANTED)
            return
        self._acknowledge(head[3], now)
        if not self._unacknowledged:
            self._start_timer(now)
        if kind in _NUMBERED_KINDS:
            self._receive_numbered(kind, head[1], head[2], members)
        elif kind in _UNNUMBERED_KINDS:
            self._events.append(_read(_UNNUMBERED_KINDS[kind], members))
        elif kind != NodeKind.ACKNOWLEDGEMENT:
            raise RemoteProtocolError(f"kind {kind} is unknown")

    def _receive_hello(self, hello: NodeHello, flags: int, now: float) -> None:
        if not hello.lowest <= VERSION <= hello.highest:
            raise RemoteProtocolError(
                f"versions {hello.lowest} to {hello.highest}, where {VERSION} is known: update"
                " the older one"
            )
        anew, resumed = self._boot != hello.boot, self.peer is None
        self.peer, self._boot = hello, hello.boot
        if flags & ANSWER_WANTED:
            self._greet_peer(0)
        if anew:
            # Both sides start at 1, so renumber the frames that the peer has not acknowledged.
            self._arrived = 0
            contents = [content for _, content in self._unacknowledged]
            self._unacknowledged = deque(enumerate(contents, 1))
            self._sent = len(contents)
        if anew or resumed:
            for sequence, content in self._unacknowledged:
                self._write_numbered(sequence, content)
        if anew or resumed or not self._unacknowledged:
            self._start_timer(now)
        self._events.append(NodeOpened(hello, anew))

    def _acknowledge(self, last: int, now: float) -> None:
        if last not in [sequence for sequence, _ in self._unacknowledged]:
            return
        while self._unacknowledged.popleft()[0] != last:
            pass
        self._start_timer(now)

    def _receive_numbered(self, kind: int, flags: int, sequence: int, members: Any) -> None:
        """Process a numbered frame if it is the next frame in order. The peer repeats frames that
        are not acknowledged.
        """
        expected = sequence == (self._arrived + 1) % 256
        if expected:
            self._arrived = sequence
        # Acknowledge a frame even if it cannot be read, because a repeat would fail again, and
        # block all later frames.
        self._write(NodeKind.ACKNOWLEDGEMENT, 0, 0, [])
        if expected:
            content = _read(_NUMBERED_KINDS[kind], members)
            if isinstance(content, Send) and flags & URGENT:
                content = Send(content.number, content.packet, urgent=True)
            self._events.append(content)

    def _greet_peer(self, flags: int) -> None:
        own_hello = self.hello
        self._write(
            NodeKind.HELLO,
            flags,
            0,
            [
                own_hello.lowest,
                own_hello.highest,
                own_hello.boot,
                own_hello.window,
                own_hello.packet_bytes,
                own_hello.features,
                own_hello.node,
                own_hello.firmware,
            ],
        )

    def _write_numbered(self, sequence: int, content: Numbered) -> None:
        kind, members = _list_members(content)
        flags = URGENT if isinstance(content, Send) and content.urgent else 0
        self._write(kind, flags, sequence, members)

    def _write(self, kind: NodeKind, flags: int, sequence: int, members: list[Any]) -> None:
        head = bytes([VERSION << 4 | kind, flags, sequence, self._arrived])
        self._output += encode_frame(head, members)


def encode_frame(head: bytes, members: list[Any]) -> bytes:
    """Encode one frame with its delimiter. `head` contains version and type, flags, sequence and
    acknowledged sequence.
    """
    plain = head + cbor2.dumps(members)
    return cobs.encode(plain + zlib.crc32(plain).to_bytes(_SUM)) + cobs.DELIMITER


def _parse_members(body: bytes) -> list[Any]:
    members = strict_cbor.decode_single(body)
    if not isinstance(members, list):
        raise RemoteProtocolError("an array is missing")
    return members


def _list_members(content: Numbered | NodeStatus | Log) -> tuple[NodeKind, list[Any]]:
    match content:
        case Send():
            return NodeKind.SEND, [content.number, content.packet]
        case Result():
            return NodeKind.RESULT, [content.number, content.transmitted, content.reason]
        case PacketHeard():
            return NodeKind.HEARD, [content.packet, content.rssi, content.snr]
        case Log():
            return NodeKind.LOG, [content.level, content.text]
    neighbour_rows = [list(neighbour) for neighbour in content.neighbours]
    battery = [content.millivolts, content.battery, content.charging]
    return NodeKind.STATUS, [content.signal, *battery, neighbour_rows]


def _read(read: Callable[..., Any], members: list[Any]) -> Any:
    try:
        return read(*members)
    except (TypeError, ValueError) as error:
        raise RemoteProtocolError(f"a damaged frame: {error}") from None


def _is_int(value: Any, minimum: int, maximum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _expect(*conditions: bool) -> None:
    if not all(conditions):
        raise ValueError("a member of the wrong type or out of range")


def _is_optional(value: Any, minimum: int, maximum: int) -> bool:
    return value is None or _is_int(value, minimum, maximum)


def _read_hello(members: list[Any]) -> NodeHello:
    return NodeHello(*_read(_read_hello_members, members[:8]))


def _read_hello_members(
    lowest: Any,
    highest: Any,
    boot: Any,
    window: Any,
    packet_bytes: Any,
    features: Any,
    node: Any,
    firmware: Any,
) -> tuple[Any, ...]:
    _expect(_is_int(lowest, 0, 255), _is_int(highest, 0, 255), _is_int(boot, 0, 2**32 - 1))
    _expect(_is_int(window, 1, 255), _is_int(packet_bytes, 1, 2**16 - 1))
    _expect(_is_int(features, 0, 2**32 - 1), isinstance(node, str), isinstance(firmware, str))
    return boot, node, firmware, packet_bytes, min(window, WINDOW), lowest, highest, features


def _read_send(number: Any, packet: Any) -> Send:
    _expect(_is_int(number, 0, 2**32 - 1), isinstance(packet, bytes))
    return Send(number, packet)


def _read_result(number: Any, is_transmitted: Any, reason: Any) -> Result:
    _expect(
        _is_int(number, 0, 2**32 - 1), isinstance(is_transmitted, bool), isinstance(reason, str)
    )
    return Result(number, is_transmitted, reason)


def _read_heard(packet: Any, rssi: Any, snr: Any) -> PacketHeard:
    _expect(isinstance(packet, bytes), _is_optional(rssi, -300, 100), _is_optional(snr, -100, 100))
    return PacketHeard(packet, rssi, snr)


def _read_status(
    signal: Any, millivolts: Any, battery: Any, charging: Any, neighbours: Any
) -> NodeStatus:
    _expect(
        _is_optional(signal, 0, 5),
        _is_optional(millivolts, 0, 10**6),
        _is_optional(battery, 0, 100),
    )
    _expect(charging is None or isinstance(charging, bool), isinstance(neighbours, list))
    return NodeStatus(
        signal, millivolts, battery, charging, tuple(_read_neighbour(*each) for each in neighbours)
    )


def _read_neighbour(node: Any, rssi: Any, age: Any) -> Neighbour:
    _expect(isinstance(node, str), _is_optional(rssi, -300, 100), _is_int(age, 0, 2**32 - 1))
    return Neighbour(node, rssi, age)


def _read_log(level: Any, text: Any) -> Log:
    _expect(_is_int(level, 0, 3), isinstance(text, str))
    return Log(level, text)


_NUMBERED_KINDS: dict[int, Callable[..., Numbered]] = {
    NodeKind.SEND: _read_send,
    NodeKind.RESULT: _read_result,
    NodeKind.HEARD: _read_heard,
}
_UNNUMBERED_KINDS: dict[int, Callable[..., NodeStatus | Log]] = {
    NodeKind.STATUS: _read_status,
    NodeKind.LOG: _read_log,
}
