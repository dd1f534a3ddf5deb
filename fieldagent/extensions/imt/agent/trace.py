"""Removes the payloads from a trace of a 9704's serial line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fieldagent.extensions.imt import jspr, messages
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.trace import CAME, SENT, TraceRecord


def mask(records: Sequence[TraceRecord]) -> list[TraceRecord]:
    """Replace the bytes of segments by zeros, which are `A` in base64 and have a CRC of zero. If a
    message to the host has a wrong CRC, its last byte becomes one, so that its CRC stays wrong.
    """
    copies = list(records)
    for direction in (SENT, CAME):
        places = [at for at, each in enumerate(records) if each.direction == direction]
        joined = b"".join(records[at].data for at in places)
        # The type of a line is unknown if its beginning is no longer in the trace.
        joined = re.sub(rb"\A(?!GET |PUT |[2-5][0-9]{2} )[^\r]*", _mask_text, joined)
        masked = bytearray(re.sub(rb'("data":\s*")([A-Za-z0-9+/]*)', _mask_base64, joined))
        for end in _find_ends_of_garbled(joined) if direction == CAME else ():
            padding = joined[end : end + 2].count(b"=")
            masked[end - 1] = b"BEQ"[padding]
        joined = bytes(masked)
        start = 0
        for at in places:
            ends = start + len(records[at].data)
            copies[at] = records[at]._replace(data=joined[start:ends])
            start = ends
    return copies


def _find_ends_of_garbled(whole: bytes) -> list[int]:
    """Return the position at which the base64 of each message with a wrong CRC ends, without its
    padding.
    """
    positions, assembly = [], messages.MtAssembly()
    ends: dict[messages.MessageKey, tuple[int, int]] = {}
    end = 0
    for raw in whole.split(b"\r")[:-1]:
        start, end = end, end + len(raw) + 1
        terminate_match = re.search(rb"299 messageTerminate(?:Segment|Status) \{", raw)
        if terminate_match is None or not raw.endswith(b"}"):
            continue
        text = raw[terminate_match.start() :]
        lines = jspr.LineReader()
        lines.receive_data(text + b"\r")
        line = lines.read_next_line()
        try:
            event = None if line is None else messages.parse_event(line)
        except RemoteProtocolError:
            continue
        if isinstance(event, messages.MtSegment):
            assembly.add(event)
            data = re.search(rb'"data":\s*"[A-Za-z0-9+/]*', text)
            if data is not None:
                span = (event.start, start + terminate_match.start() + data.end())
                ends[event.key] = max(ends.get(event.key, span), span)
        elif isinstance(event, messages.MtEnded):
            message = assembly.finish_message(event)
            if message is not None and message.damage and event.key in ends:
                positions.append(ends[event.key][1])
            ends.pop(event.key, None)
    return positions


def _mask_text(match: re.Match[bytes]) -> bytes:
    return b"." * len(match[0])


def _mask_base64(match: re.Match[bytes]) -> bytes:
    return match[1] + b"A" * len(match[2])
