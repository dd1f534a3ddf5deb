"""An Iridium 9704 on a pty, independent of the project's code: `jspr.py LINK`.

It was written from the description of JSPR, the maker's FAQ and logs of real modems. As those, it
refuses JSON without spaces (407), answers its first request with 405, sends other bytes before its
lines, splits them, and drops a message whose segment does not arrive within 0.3 s. It prints each
MO message in hexadecimal. Each input line is an MT message in hexadecimal.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import sys
import time
import tty
from binascii import crc_hqx
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEGMENT, SEGMENT_MAX_S = 1446, 0.3
RAW = {"topic_id": 244, "topic_name": "RAW", "priority": "High", "discard_time_seconds": 604800}
VERSIONS = [{"major": 1, "minor": minor, "patch": patch} for minor, patch in ((7, 0), (6, 1))]
FACTS: dict[str, Any] = {
    "apiVersion": {"supported_versions": VERSIONS},
    "hwInfo": {"hw_version": "0x0601", "serial_number": "1a07ty", "imei": "300258060000001"},
    "simConfig": {"interface": "none"},
    "simStatus": {"card_present": True, "sim_connected": True, "iccid": "8988169771000000009"},
    "operationalState": {"state": "inactive", "reason": 0},
    "constellationState": {
        "constellation_visible": True,
        "signal_bars": 3,
        "signal_level": -112,
    },
    "messageProvisioning": {"provisioning": [RAW | {"max_queue_depth": 99}]},
    "messageActivityStatus": {"enabled": False, "active": False},
}
REQUEST = re.compile(r"(GET|PUT) (\w{1,29}) (\{.*\})")


def find_fault(words: re.Match[str] | None, *, first: bool) -> int:
    """Return the code with which a modem refuses the form of a request, or 0."""
    if words is None or first:
        return 405
    try:
        body = json.loads(words[3])
    except ValueError:
        return 407
    # The maker's library omits the spaces after some colons.
    forms = [json.dumps(body, separators=(", ", colon)) for colon in (": ", ":")]
    return 0 if words[3] in forms else 407


class Modem:
    def __init__(self, line: int) -> None:
        self.line = line
        self.requests, self.ids = 0, 4
        self.message: dict[str, Any] | None = None
        self.content, self.due = b"", 0.0
        # The modem's TXD is low while it boots, and DC1 comes before the first line.
        os.write(line, b"\0" * 170 + b"\x11")
        self.say(299, "bootInfo", {"image_type": "production", "version": VERSIONS[0]})

    def say(self, code: int, target: str, body: dict[str, Any]) -> None:
        text = f"{code} {target} {json.dumps(body, separators=(',', ':'))}\r".encode()
        for at in range(0, len(text), 700):
            os.write(self.line, text[at : at + 700])
            time.sleep(0.001)

    def answer(self, request: str) -> None:
        words = REQUEST.fullmatch(request)
        self.requests += 1
        if fault := find_fault(words, first=self.requests == 1):
            self.say(fault, "MALFORMED", {})
            return
        assert words is not None
        verb, target, body = words[1], words[2], json.loads(words[3])
        if target in FACTS and verb == "GET":
            self.say(200, target, FACTS[target])
        elif target in FACTS:
            FACTS[target].update(body)
            self.say(200, target, FACTS[target])
            report = {"simConfig": "simStatus"}.get(target, target)
            if report in ("simStatus", "operationalState"):
                self.say(299, report, FACTS[report])
        elif target == "messageOriginate":
            self.accept(body)
        elif target == "messageOriginateSegment":
            self.add(body)
        else:
            self.say(404, target, {})

    def accept(self, body: dict[str, Any]) -> None:
        known = {"topic_id": body["topic_id"], "request_reference": body["request_reference"]}
        if FACTS["operationalState"]["state"] != "active" or body["topic_id"] != RAW["topic_id"]:
            self.say(418, "messageOriginate", {})
            return
        self.ids += 1
        self.message = {"topic_id": body["topic_id"], "message_id": self.ids}
        self.size, self.content = body["message_length"], b""
        accepted = {"message_id": self.ids, "message_response": "message_accepted"}
        self.say(200, "messageOriginate", known | accepted)
        self.ask()

    def ask(self) -> None:
        assert self.message is not None
        start = len(self.content)
        piece = {"segment_length": min(SEGMENT, self.size - start), "segment_start": start}
        self.due = time.monotonic() + SEGMENT_MAX_S
        self.say(299, "messageOriginateSegment", self.message | piece)

    def add(self, body: dict[str, Any]) -> None:
        data = base64.b64decode(body["data"], validate=True)
        if self.message is None or body["segment_start"] != len(self.content):
            self.say(406, "messageOriginateSegment", {})
            return
        self.say(200, "messageOriginateSegment", self.message)
        self.content += data
        if len(data) != body["segment_length"]:
            self.end("segment_incorrect")
        elif len(self.content) < self.size:
            self.ask()
        elif crc_hqx(self.content, 0):
            self.end("message_dropped_local_crc_error")
        else:
            print(f"MO {self.content[:-2].hex()}", flush=True)
            self.end("mo_ack_received")

    def end(self, status: str) -> None:
        assert self.message is not None
        self.say(299, "messageOriginateStatus", self.message | {"final_mo_status": status})
        self.message = None

    def push(self, content: bytes) -> None:
        """Bring an MT message. Its announced length may be too large."""
        self.ids += 1
        head = {"topic_id": RAW["topic_id"], "message_id": self.ids}
        content += crc_hqx(content, 0).to_bytes(2, "big")
        self.say(299, "messageTerminate", head | {"message_length_max": len(content) + 9})
        for start in range(0, len(content), SEGMENT):
            data = content[start : start + SEGMENT]
            piece = {"segment_length": len(data), "segment_start": start}
            text = base64.b64encode(data).decode()
            self.say(299, "messageTerminateSegment", head | piece | {"data": text})
        self.say(299, "messageTerminateStatus", head | {"final_mt_status": "complete"})


def read_lines(line: int, modem: Modem) -> Iterator[tuple[int, str]]:
    """Yield each line of the host, and of the standard input, with the descriptor."""
    parts = {line: b"", 0: b""}
    while True:
        for each in select.select([*parts], [], [], 0.05)[0]:
            if not (data := os.read(each, 4096)):
                return
            *whole, parts[each] = re.split(b"[\r\n]", parts[each] + data)
            yield from ((each, text.decode()) for text in whole if text)
        if modem.message is not None and time.monotonic() > modem.due:
            modem.end("segment_not_supplied")


def main() -> None:
    line, host = os.openpty()
    tty.setraw(host)
    Path(sys.argv[1]).symlink_to(os.ttyname(host))
    modem = Modem(line)
    print("ready", flush=True)
    for source, text in read_lines(line, modem):
        if source == line:
            modem.answer(text)
        else:
            modem.push(bytes.fromhex(text))


if __name__ == "__main__":
    main()
