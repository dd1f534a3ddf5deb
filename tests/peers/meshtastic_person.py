"""A person with the official Meshtastic client, which is independent of the project. It connects to
a radio on TCP, obeys commands, and prints a JSON line for each news.

Argument: the radio's port. Prints `ready ID` first, with the node's own id. Commands on the input:
    text !TO WORDS …    send a direct message with an acknowledgement; also `text ^all WORDS …`
    channel N WORDS …   send a text to channel N
    react !TO ID SIGN   send a reaction to a message
    answer !TO ID WORDS send a text that answers a message
    alert WORDS …       send an alert to all
    position LAT LON ALT [BITS]    send a position, blurred to that many bits if given
    waypoint LAT LON NAME
    nodes               print the radio's known nodes
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from meshtastic.mesh_interface import MeshInterface
from meshtastic.protobuf import mesh_pb2, portnums_pb2
from meshtastic.tcp_interface import TCPInterface
from pubsub import pub

TEXT, ALERT = portnums_pb2.TEXT_MESSAGE_APP, portnums_pb2.ALERT_APP
POSITION = portnums_pb2.POSITION_APP


def tell(**what: Any) -> None:
    # In one piece, because the client's own thread prints other news at the same time.
    print(json.dumps(what, ensure_ascii=False) + "\n", end="", flush=True)


TEXT_EVERY = 2.1
"""Seconds between two texts of a typing person: a radio accepts no more from its host."""


class Person:
    def __init__(self, port: int) -> None:
        self.ready = threading.Event()
        # The client's own thread delivers the radio's stored texts when it starts.
        pub.subscribe(self.heard, "meshtastic.receive")
        self.radio = TCPInterface("127.0.0.1", portNumber=port)
        self.next_text = 0.0

    def heard(self, packet: dict[str, Any], interface: MeshInterface) -> None:
        decoded = packet.get("decoded", {})
        text = decoded.get("payload", b"").decode("utf-8", "replace")
        report = {"heard": decoded.get("portnum"), "from": packet.get("fromId"), "text": text}
        if "replyId" in decoded:
            report["on"] = decoded["replyId"]
        if "emoji" in decoded:
            report["emoji"] = decoded["emoji"]
        if decoded.get("portnum") != "ROUTING_APP":
            self.ready.wait()
            tell(**report, id=packet["id"], byKey=packet.get("pkiEncrypted", False))

    def give(self, data: bytes, to: str, port: int, *, channel: int = 0, **how: Any) -> None:
        said = mesh_pb2.Data(payload=data, portnum=port, **how)
        packet = mesh_pb2.MeshPacket(decoded=said, want_ack=True, channel=channel)
        packet.id = self.radio._generatePacketId()
        number = packet.id
        while time.monotonic() < self.next_text:
            time.sleep(0.05)
        self.next_text = time.monotonic() + TEXT_EVERY

        def onAckNak(answer: dict[str, Any]) -> None:  # noqa: N802 - the client goes by its name
            tell(ack=number, by=answer["fromId"], error=answer["decoded"]["routing"]["errorReason"])

        self.radio._addResponseHandler(number, onAckNak, ackPermitted=True)
        tell(sent=number, status=bool(self.radio._sendPacket(packet, to, wantAck=True)))

    def obey(self, line: str) -> None:
        word, *rest = line.split()
        if word == "text":
            self.give(" ".join(rest[1:]).encode(), rest[0], TEXT)
        elif word == "channel":
            self.give(" ".join(rest[1:]).encode(), "^all", TEXT, channel=int(rest[0]))
        elif word == "react":
            self.give(rest[2].encode(), rest[0], TEXT, reply_id=int(rest[1]), emoji=1)
        elif word == "answer":
            self.give(" ".join(rest[2:]).encode(), rest[0], TEXT, reply_id=int(rest[1]))
        elif word == "alert":
            self.radio.sendAlert(" ".join(rest))
        elif word == "position":
            self.position(*rest)
        elif word == "waypoint":
            self.radio.sendWaypoint(
                rest[2], "", 0, int(time.time()) + 3600, 77, float(rest[0]), float(rest[1])
            )
        elif word == "nodes":
            nodes = self.radio.nodes or {}
            tell(nodes={key: each["user"]["longName"] for key, each in nodes.items()})

    def position(self, latitude: str, longitude: str, altitude: str, bits: str = "32") -> None:
        said = mesh_pb2.Position(
            latitude_i=round(float(latitude) * 1e7),
            longitude_i=round(float(longitude) * 1e7),
            altitude=int(altitude),
            time=int(time.time()),
            precision_bits=int(bits),
        )
        self.radio.sendData(said.SerializeToString(), portNum=POSITION)


def main() -> None:
    person = Person(int(sys.argv[1]))
    gone = threading.Event()

    def lost(interface: MeshInterface) -> None:
        tell(lost=True)
        gone.set()

    pub.subscribe(lost, "meshtastic.connection.lost")
    info = person.radio.myInfo
    assert info is not None
    print(f"ready !{info.my_node_num:08x}", flush=True)
    person.ready.set()
    for line in sys.stdin:
        person.obey(line)
    person.radio.close()


if __name__ == "__main__":
    main()
