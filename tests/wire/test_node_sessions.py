"""The node link: complete sessions of its description, with our code at each end."""

from __future__ import annotations

from typing import Any

import pytest

from fieldagent.wire import node
from tests.wire.test_node import VECTORS

SESSIONS = VECTORS["sessions"]
HELLOS = {
    "gateway": node.NodeHello(boot=11),
    "node": node.NodeHello(boot=22, node="c-1", firmware="1.0.0", packet_bytes=255),
}


class End:
    """One end, and its output at each step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.link = node.NodeLink(HELLOS[name])
        self.said = b""

    def receive_message(self, line: str, at: float) -> None:
        self.link.receive_data(bytes.fromhex(line), at)
        self.settle()

    def act(self, step: dict[str, Any]) -> None:
        at = step["at"]
        match step[self.name]:
            case "opens":
                self.link.open(at)
            case "sends":
                self.link.send(node.Send(step["number"], bytes.fromhex(step["packet"])), at)
            case "transmitted":
                self.link.send(node.Result(step["number"], True), at)
            case "waited":
                self.link.tick(at)
            case "starts":
                hello = HELLOS["node"]
                self.link = node.NodeLink(
                    node.NodeHello(step["boot"], hello.node, hello.firmware, hello.packet_bytes)
                )
                self.link.open(at)
        self.settle()

    def pass_over(self, count: int, at: float) -> None:
        """Pass over that many frames of the gateway."""
        for sequence in range(1, count + 1):
            if self.name == "gateway":
                self.link.send(node.Send(0, b""), at)
                self.link.receive_data(node.encode_frame(bytes([0x11, 0, 0, sequence]), []), at)
            else:
                self.link.receive_data(unreadable(sequence), at)
            self.link.data_to_send()
        self.settle()
        self.said = b""

    def settle(self) -> None:
        while self.link.next_event() is not None:
            pass
        self.said += self.link.data_to_send()


def unreadable(sequence: int) -> bytes:
    """Return a Send with unreadable members: it is accepted, and nothing is transmitted."""
    return node.encode_frame(bytes([0x12, 0, sequence, 0]), [])


@pytest.mark.parametrize("name", HELLOS)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session["name"])
def test_link_end_sends_the_documented_bytes_of_each_session(
    session: dict[str, Any], name: str
) -> None:
    end = End(name)
    for step in session["steps"]:
        if step.get("from") == name:
            line = bytes.fromhex(step["line"])
            if not step.get("later"):
                assert end.said[: len(line)].hex() == step["line"], step
                end.said = end.said[len(line) :]
            else:
                # It sends the Hello of this version instead.
                end.said = b""
        elif "from" in step:
            assert end.said == b"", step
            if not step.get("lost"):
                end.receive_message(step["line"], step["at"])
        elif step.get("gateway") == "has sent":
            end.pass_over(step["count"], step["at"])
        elif name in step:
            end.act(step)
    assert end.said == b""
    assert end.link.peer is not None
