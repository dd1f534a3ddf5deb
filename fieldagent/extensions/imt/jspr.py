"""JSPR, the line protocol between a host and an Iridium Certus 9704: one JSON object per line. No
I/O.

The host sends `GET target {…}` or `PUT target {…}`, and the modem `NNN target {…}`. Each line ends
with CR. A 299 is unsolicited and can arrive at any time, even between a request and its answer.
Names follow the vendor's library (rock7/RockBLOCK-9704, src/jspr.c).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from fieldagent.package.strict_json import NotJson, check_depth
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

LINE_BYTES = 8192
"""Largest number of bytes of a line. A longer line is noise. The longest valid line contains a
segment of 1446 bytes and has about 2 050 bytes."""
DONE, UNASKED, NO_VERSION, ALREADY = 200, 299, 400, 402
NOT_ALLOWED, NOT_DONE, NO_SIM, NOT_PROVISIONED = 406, 408, 410, 418
SERIAL_ERROR = 500
GARBLED_CODES = frozenset({403, 405, 407})
"""Codes of answers to a request that noise on the line has changed: too long, malformed, no
JSON."""
REFUSAL_TEXTS: Mapping[int, str] = {
    401: "it does not know this kind of request",
    403: "the request is too long for it",
    404: "it does not know this target",
    405: "it could not read the request",
    406: "it does not allow that now",
    407: "it could not read the request's JSON",
    408: "it failed with the request",
    409: "it does not authorise that",
    410: "its SIM is not configured",
    417: "its hardware does not have that",
    418: "the topic is not provisioned, or its service is not ready yet",
}
_HEAD = re.compile(rb"(?:^|[^0-9])([2-5][0-9]{2}) ([A-Za-z]{1,29}) (?=\{)")


class JsprLine(NamedTuple):
    """A line from the modem: the code of its answer (299 if it is unsolicited), its target, and a
    JSON object.
    """

    code: int
    target: str
    body: Mapping[str, Any]

    def describe_refusal(self) -> str:
        """Return the reason for a refusal, for people."""
        return f"{self.code}, {REFUSAL_TEXTS.get(self.code, 'for a reason that is not documented')}"


def encode_get(target: str, **members: object) -> bytes:
    """Return a request that reads a target."""
    return _request("GET", target, members)


def encode_put(target: str, **members: object) -> bytes:
    """Return a request that sets a target."""
    return _request("PUT", target, members)


def _request(verb: str, target: str, members: Mapping[str, object]) -> bytes:
    # Real modems answer 407 to JSON without a space after each comma and colon.
    return f"{verb} {target} {json.dumps(members, separators=(', ', ': '))}\r".encode("ascii")


class LineReader:
    """Splits bytes into lines. `receive_data` accepts bytes, and `read_next_line` returns the lines
    in them.

    A line may arrive in parts, with pauses between them. All other bytes are dropped: zeros while
    the modem boots, a DC1 before its first line, and the rest of an incomplete line.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._drops = False
        """True while the rest of a line that is too long is dropped."""
        self.noise = 0
        """Number of bytes that were not part of a line."""

    def receive_data(self, data: bytes) -> None:
        """Add bytes from the serial line."""
        self._buffer += data

    def read_next_line(self) -> JsprLine | None:
        """Remove the oldest complete line from the received bytes and return it, or return None if
        there is none.
        """
        while (end := self._buffer.find(b"\r")) >= 0:
            raw = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            dropped, self._drops = self._drops, False
            line = None if dropped else _read(raw)
            if line is not None:
                return line
            self.noise += len(raw)
        if len(self._buffer) > LINE_BYTES:
            self.noise += len(self._buffer)
            self._buffer.clear()
            self._drops = True
        return None


def _read(raw: bytes) -> JsprLine | None:
    """Return the line at the end of `raw`, or None if there is none. Noise before the line may
    itself look like the start of a line, so the last match counts.
    """
    line = raw.rstrip()
    head = _HEAD.search(line) if line.endswith(b"}") else None
    if head is None:
        return None
    try:
        text = line[head.end() :].decode()
        check_depth(text)
        body = json.loads(text)
    except (ValueError, NotJson):
        return None
    code = int(head[1])
    if not isinstance(body, dict) or code > SERIAL_ERROR:
        return None
    return JsprLine(code, head[2].decode("ascii"), body)


def read_integer(line: JsprLine, name: str, low: int, high: int) -> int:
    """Return an integer member from `low` to `high`. Raises RemoteProtocolError for malformed
    data.
    """
    value = line.body.get(name)
    if type(value) is not int or not low <= value <= high:
        raise RemoteProtocolError(f"{line.target} has {name}={value!r}, not {low} to {high}")
    return value


def read_text(line: JsprLine, name: str) -> str:
    """Return a text member. Raises RemoteProtocolError for malformed data."""
    value = line.body.get(name)
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{line.target} has {name}={value!r}, which is not a text")
    return value
