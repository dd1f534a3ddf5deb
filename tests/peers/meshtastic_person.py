"""A person with the official Meshtastic client, which the project had no hand in: it speaks to a
radio by TCP, obeys what is typed, and prints a JSON line of each thing that it learns.

Called with the radio's port. Prints `ready ID` first, with the node's own id. What may be typed:
    text !TO WORDS …    a direct message that wants an acknowledgement; also `text ^all WORDS …`
    channel N WORDS …   a text to channel N
    react !TO ID SIGN   a reaction on a message
    answer !TO ID WORDS a text that answers a message
    alert WORDS …       an alert to everybody
    position LAT LON ALT [BITS]    blurred to so many bits, if any
    waypoint LAT LON NAME
    nodes               whom the radio knows
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
    # In one piece: the client's own thread tells of what comes meanwhile.
    print(json.dumps(what, ensure_ascii=False) + "\n", end="", flush=True)


TEXT_EVERY = 2.1
"""Seconds between two texts of one who types: a radio takes no more of its host."""


class Person:
    def __init__(self, port: int) -> None:
        self.ready = threading.Event()
        # What the radio kept comes by the client's own thread, as soon as that is there.
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
