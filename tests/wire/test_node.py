"""The node link: the vectors of its description, both ends in conversation, and a bad line."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fieldagent.wire import node
from fieldagent.wire.errors import LocalProtocolError

REFERENCE = Path(__file__).parents[2] / "docs/reference"
VECTORS = json.loads((REFERENCE / "node-link-vectors.json").read_text())
READ: dict[str, node.NodeEvent] = {
    "send packet 1": node.Send(1, b"\x84\x00\x01"),
    "send 200 bytes": node.Send(3, bytes(range(200))),
    "packet 1 was transmitted": node.Result(1, True),
    "heard a packet": node.PacketHeard(b"\x00\xff", -97, -4),
    "heard one of unknown strength": node.PacketHeard(b"\x01"),
    "heard 254 bytes without a zero": node.PacketHeard(b"\x01" * 254),
    "status": node.NodeStatus(4, 3870, 81, False, (node.Neighbour("c3d4", -88, 12),)),
    "log": node.Log(2, "PLL unlocked"),
}


def body(described: list[Any]) -> list[Any]:
    return [bytes.fromhex(m["bytes"]) if isinstance(m, dict) else m for m in described]


@pytest.mark.parametrize("vector", VECTORS["frames"], ids=lambda vector: vector["name"])
def test_vectors_are_written(vector: dict[str, Any]) -> None:
    head = [node.VERSION << 4 | vector["type"], vector["flags"]]
    head += [vector["sequence"], vector["acknowledged"]]
    assert node.encode_frame(bytes(head), body(vector["body"])).hex() == vector["line"]


def opened(now: float = 0.0, **hello: Any) -> node.NodeLink:
    """Return an end whose peer has sent a hello."""
    link = node.NodeLink(node.NodeHello(boot=1))
    peer = node.NodeLink(node.NodeHello(boot=2, **hello))
    link.open(now)
    link.data_to_send()
    peer.receive_data(b"", now)
    peer.open(now)
    link.receive_data(peer.data_to_send(), now)
    assert isinstance(link.next_event(), node.NodeOpened)
    link.data_to_send()
    return link


@pytest.mark.parametrize("name", READ)
def test_vectors_are_read(name: str) -> None:
    (vector,) = [vector for vector in VECTORS["frames"] if vector["name"] == name]
    link = opened()
    if vector["sequence"] not in (0, 1):
        link._arrived = vector["sequence"] - 1
    if vector["type"] in (2, 3, 4) and vector["sequence"] == 0:
        link._arrived = 255
    link.receive_data(bytes.fromhex(vector["line"]), 0)
    assert link.next_event() == READ[name]
    answer = link.data_to_send()
    assert bool(answer) == (vector["type"] in (2, 3, 4))


@pytest.mark.parametrize("vector", VECTORS["dropped"], ids=lambda vector: vector["name"])
def test_damaged_frame_is_dropped_and_the_next_is_read(vector: dict[str, Any]) -> None:
    link = opened()
    good = next(v for v in VECTORS["frames"] if v["name"] == "log")
    link.receive_data(bytes.fromhex(vector["line"] + good["line"]), 0)
    events = list(iter(link.next_event, None))
    assert sorted(type(event).__name__ for event in events) == ["Damaged", "Log"]
    assert READ["log"] in events


def test_unreadable_numbered_frame_does_not_block_the_next() -> None:
    link = opened()
    head = [node.VERSION << 4 | node.NodeKind.HEARD, 0, 1, 0]
    unreadable = node.encode_frame(bytes(head), [b"packet", -97.5, "loud"])
    head[2] = 2
    link.receive_data(unreadable + node.encode_frame(bytes(head), [b"next", None, None]), 0)
    events = list(iter(link.next_event, None))
    assert isinstance(events[0], node.Damaged)
    assert events[1:] == [node.PacketHeard(b"next")]
    acknowledged = [node.encode_frame(bytes([0x11, 0, 0, last]), []) for last in (1, 2)]
    assert link.data_to_send() == b"".join(acknowledged)


def test_excessive_window_is_read_as_the_maximum() -> None:
    assert opened(window=9).free == node.WINDOW


def test_hello_without_a_common_version_keeps_the_link_down() -> None:
    link, newer = (
        node.NodeLink(node.NodeHello(boot=1)),
        node.NodeLink(node.NodeHello(boot=2, lowest=2, highest=3)),
    )
    newer.open(0)
    link.receive_data(newer.data_to_send(), 0)
    event = link.next_event()
    assert isinstance(event, node.Damaged)
    assert "update the older one" in event.reason
    assert link.peer is None


def test_peers_window_and_packet_size_limit_sending() -> None:
    link = opened(window=2, packet_bytes=200)
    with pytest.raises(LocalProtocolError):
        link.send(node.Send(1, bytes(201)), 0)
    link.send(node.Send(1, bytes(200)), 0)
    link.send(node.Send(2, b""), 0)
    assert link.free == 0
    with pytest.raises(LocalProtocolError):
        link.send(node.Send(3, b""), 0)


def test_unacknowledged_frame_is_sent_three_times_before_the_link_is_down() -> None:
    link = opened()
    link.send(node.Send(1, b"x"), 0)
    first = link.data_to_send()
    now = 0.0
    for _ in range(node.TRANSMISSIONS_MAX - 1):
        now = link.deadline
        link.tick(now)
        assert link.data_to_send() == first
    link.tick(link.deadline)
    assert (link.next_event(), link.data_to_send(), link.peer) == (node.PeerDown(), b"", None)


class Pair:
    """A gateway and a node with a line between them that can be cut."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends = [
            node.NodeLink(node.NodeHello(boot=1)),
            node.NodeLink(node.NodeHello(boot=2, node="n")),
        ]
        self.said: list[list[node.NodeEvent]] = [[], []]
        self.ends[0].open(0)
        self.run()

    def run(self, drop: Any = lambda: False) -> None:
        """Transfer bytes in both directions until there are none."""
        while True:
            data = [end.data_to_send() for end in self.ends]
            if not any(data):
                self.listen()
                return
            for place, end in enumerate(self.ends):
                if not drop():
                    end.receive_data(data[1 - place], self.now)
            self.listen()

    def listen(self) -> None:
        for said, end in zip(self.said, self.ends, strict=True):
            while (event := end.next_event()) is not None:
                said.append(event)

    def wait(self, drop: Any = lambda: False) -> None:
        self.now = min(end.deadline for end in self.ends)
        for end in self.ends:
            end.tick(self.now)
        self.run(drop)

    def restart(self) -> None:
        boot = self.ends[1].hello.boot + 1
        self.ends[1] = node.NodeLink(node.NodeHello(boot=boot, node="n"))
        self.ends[1].open(self.now)

    def numbers(self) -> list[int]:
        """Return the numbers of the node's packets."""
        return [event.number for event in self.said[1] if isinstance(event, node.Send)]


def test_sequence_numbers_wrap_after_255() -> None:
    pair = Pair()
    for number in range(600):
        pair.ends[0].send(node.Send(number, b""), 0)
        pair.run()
    assert pair.numbers() == list(range(600))


def test_restarted_node_receives_unacknowledged_packets_again() -> None:
    pair = Pair()
    for number in range(3):
        pair.ends[0].send(node.Send(number, b""), 0)
    pair.ends[0].data_to_send()
    pair.restart()
    pair.run()
    assert pair.numbers() == [0, 1, 2]
    assert [e.is_new_session for e in pair.said[0] if isinstance(e, node.NodeOpened)] == [
        True,
        True,
    ]


def test_reconnected_node_resumes_its_session() -> None:
    pair = Pair()
    pair.ends[0].send(node.Send(0, b""), 0)
    pair.run()
    pair.ends[0].send(node.Send(1, b""), 0)
    pair.ends[0].data_to_send()
    for _ in range(node.TRANSMISSIONS_MAX):
        pair.wait(lambda: True)
    assert node.PeerDown() in pair.said[0]
    pair.ends[0].open(pair.now)
    pair.run()
    pair.ends[0].send(node.Send(2, b""), pair.now)
    pair.run()
    assert pair.numbers() == [0, 1, 2]
    assert [e.is_new_session for e in pair.said[0] if isinstance(e, node.NodeOpened)] == [
        True,
        False,
    ]


def test_unopened_node_requests_a_hello() -> None:
    pair = Pair()
    pair.ends[1] = node.NodeLink(node.NodeHello(boot=9))
    pair.ends[0].send(node.Send(5, b"x"), 0)
    pair.run()
    assert pair.numbers() == [5]


@settings(max_examples=200)
@given(st.data())
def test_every_packet_arrives_once_and_in_order_over_a_bad_line(data: st.DataObject) -> None:
    pair = Pair()
    sent = 0
    for _ in range(data.draw(st.integers(1, 30))):
        what = data.draw(st.sampled_from(["send", "lose", "restart"]))
        if what == "send" and pair.ends[0].free:
            pair.ends[0].send(node.Send(sent, b""), pair.now)
            sent += 1
        elif what == "lose":
            pair.ends[0].data_to_send()
        elif what == "restart" and not pair.ends[0]._unacknowledged:
            pair.restart()
        if data.draw(st.booleans()):
            pair.run()
    while pair.ends[0]._unacknowledged:
        if pair.ends[0].peer is None:
            pair.ends[0].open(pair.now)
            pair.run()
        else:
            pair.wait()
    assert pair.numbers() == list(range(sent))


@given(st.binary(max_size=400))
def test_random_bytes_do_not_raise(noise: bytes) -> None:
    for link in (opened(), node.NodeLink(node.NodeHello(boot=1))):
        link.receive_data(noise + b"\x00", 0)
        with suppress(IndexError):
            while link.next_event() is not None:
                pass
