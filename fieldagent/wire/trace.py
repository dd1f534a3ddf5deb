r"""A trace, which contains the bytes on a serial line with their times, as text for people and for
replays in tests.

A line is `SECONDS > BYTES` from the host, `SECONDS < BYTES` from the device, or `SECONDS ! TEXT`
for an event of the port. Bytes that are not printable ASCII are `\xNN`, and a backslash is doubled.
Lines that begin with `#` are comments.

`mask` removes the payloads. The lengths do not change. A right checksum stays right, and a wrong
checksum stays wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import cbor2

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import strict_cbor
from fieldagent.wire.errors import RemoteProtocolError

SENT, CAME, HAPPENED = ">", "<", "!"
HEAD = "# fieldagent trace 1"
FRAME_SHOWN = 3
"""Number of bytes of a radio's frame that `mask` does not remove."""
LINK = "link"
"""Kind of a trace of the IP link, in which each record is one message."""
RADIO = "radio"
NO_REPLAY = (
    "# A radio's frames are shown by how they begin and how long they are. Addresses, numbers,\n"
    "# sums and tags stand in what is left out: nothing takes the rest for a frame. --payloads\n"
    "# shows all.\n"
)
"""Comment at the start of a masked trace of a radio, which cannot be replayed."""


class TraceRecord(NamedTuple):
    """Bytes on the line at one moment."""

    at: float
    """Seconds since the start of the recorder."""
    direction: str
    """One of `SENT`, `CAME`, `HAPPENED`."""
    data: bytes
    """The bytes. For `HAPPENED`, an ASCII text."""


def format_trace(records: Iterable[TraceRecord]) -> str:
    """Return the text of a trace with these records."""
    return "".join(f"{each.at:.3f} {each.direction} {_escape(each.data)}\n" for each in records)


def parse_trace(text: str) -> list[TraceRecord]:
    """Parse the text of a trace, and return its records. Raises RemoteProtocolError with the number
    of an invalid line.
    """
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(_LINE, line)
        if match is None:
            raise RemoteProtocolError(f"line {number} is not part of a trace: {line[:60]!r}")
        records.append(TraceRecord(float(match[1]), match[2], _unescape(match[3])))
    return records


_LINE = r"([0-9]{1,12}\.[0-9]{3}) ([<>!]) ((?:[ -\[\]-~]|\\\\|\\x[0-9a-f]{2})*)"


def _escape(data: bytes) -> str:
    escaped = (chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data)
    return "".join(escaped).replace("\\x5c", "\\\\")


def _unescape(text: str) -> bytes:
    def format_byte(match: re.Match[str]) -> str:
        return "\\" if match[0] == "\\\\" else chr(int(match[1], 16))

    return re.sub(r"\\\\|\\x([0-9a-f]{2})", format_byte, text).encode("latin-1")


def mask(records: Sequence[TraceRecord], kind: str) -> list[TraceRecord]:
    """Return the records without payloads. `kind` is `sbd`, `link` or `radio`. Records of an
    unknown kind are shown as a radio's frames.
    """
    return _MASKS.get(kind, _mask_frames)(records)


def _mask_sbd(records: Sequence[TraceRecord]) -> list[TraceRecord]:
    """Mask payloads of +SBDWB and +SBDRB. Bytes before the first command may belong to a
    payload.
    """
    copies: list[TraceRecord] = []
    bytes_left, known = 0, False
    for at, each in enumerate(records):
        if each.direction == HAPPENED:
            copies.append(each)
            known = True
        elif each.direction == SENT and bytes_left and not each.data.startswith(b"AT"):
            copies.append(each._replace(data=_zero_message(each.data)))
            bytes_left = 0
        elif each.direction == SENT:
            write_command = re.fullmatch(rb"AT\+SBDWB=([0-9]{1,4})\r", each.data)
            bytes_left = int(write_command[1]) + 2 if write_command else 0
            known = known or each.data.startswith(b"AT")
            copies.append(each)
        elif known:
            copies.append(each._replace(data=_mask_read(records, at)))
    return copies


def _mask_read(records: Sequence[TraceRecord], offset: int) -> bytes:
    """Return the received bytes of the record at the index `offset`. If they belong to the reply to
    +SBDRB, the bytes of the message are replaced by zeros.
    """
    first = offset
    while first and records[first - 1].direction == CAME:
        first -= 1
    asked_command = (
        records[first - 1].data if first and records[first - 1].direction == SENT else b""
    )
    if asked_command != b"AT+SBDRB\r":
        return records[offset].data
    last = offset
    while last + 1 < len(records) and records[last + 1].direction == CAME:
        last += 1
    joined = b"".join(each.data for each in records[first : last + 1])
    offset_in_read = sum(len(each.data) for each in records[first:offset])
    return _zero_reply(joined)[offset_in_read : offset_in_read + len(records[offset].data)]


def _zero_reply(answer: bytes) -> bytes:
    """Return the reply to +SBDRB with zeros in the place of its message. The echo, the line ends
    and the length are kept.
    """
    message_head = re.match(rb"(?:AT\+SBDRB)?[\r\n]*", answer)
    start = message_head.end() if message_head else 0
    if len(answer) < start + 2 or answer[start] >= 0x09:
        return answer
    size = int.from_bytes(answer[start : start + 2])
    message = answer[start + 2 : start + 2 + size + 2]
    rest = answer[start + 2 + len(message) :]
    return answer[: start + 2] + _zero_message(message) + rest


def _zero_message(message: bytes) -> bytes:
    """Return zeros in the place of the message, and a checksum that is correct if the original one
    was.
    """
    body, guard = message[:-2], message[-2:]
    right = (sum(body) & 0xFFFF).to_bytes(2) == guard
    return bytes(len(body)) + (b"\0\0" if right else b"\x55\0")[: len(guard)]


def _mask_link(records: Sequence[TraceRecord]) -> list[TraceRecord]:
    """Replace each byte string in the messages of an IP link by zeros. Numbers are kept. A message
    of another form is masked like a radio's frame.
    """
    return [each if each.direction == HAPPENED else _mask_message(each) for each in records]


def _mask_message(record: TraceRecord) -> TraceRecord:
    message = None
    with suppress(RemoteProtocolError):
        message = strict_cbor.decode_single(record.data)
    if isinstance(message, list) and all(isinstance(each, bytes | int) for each in message):
        masked = [bytes(len(each)) if isinstance(each, bytes) else each for each in message]
        return record._replace(data=cbor2.dumps(masked))
    return _mask_frames([record])[0]


def format_head(kind: str, *, is_masked: bool) -> str:
    """Return the first lines of a trace of `kind`."""
    remark = NO_REPLAY if is_masked and kind == RADIO else ""
    return f"{HEAD} {kind}\n{remark}"


def _mask_frames(records: Sequence[TraceRecord]) -> list[TraceRecord]:
    """Keep the first FRAME_SHOWN bytes of each frame, and replace the rest by a text with the
    frame's length.
    """
    return [
        each
        if each.direction == HAPPENED
        else each._replace(
            data=each.data[:FRAME_SHOWN] + f"...{len(each.data)} bytes".encode("ascii")
        )
        for each in records
    ]


_MASKS: Mapping[str, Callable[[Sequence[TraceRecord]], list[TraceRecord]]] = {
    "sbd": _mask_sbd,
    LINK: _mask_link,
}
