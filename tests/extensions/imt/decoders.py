"""The decoders of JSPR and Cloudloop, for the fuzzer."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fieldagent.extensions.imt import jspr, messages
from fieldagent.extensions.imt.hub import lingo
from fieldagent.wire.errors import RemoteProtocolError
from tests.fuzz.decoders import in_pieces, try_each

OF_A_9704: tuple[Callable[[jspr.JsprLine], Any], ...] = (
    messages.parse_event,
    messages.find_newest_version,
    messages.list_provisioned,
)


def read_imt(data: bytes) -> None:
    """Decode a modem's lines and assemble its messages."""
    whole, cut = jspr.LineReader(), jspr.LineReader()
    whole.receive_data(data)
    lines = _lines(whole)
    again = []
    for piece in in_pieces(data):
        cut.receive_data(piece)
        again += _lines(cut)
    # A line that is too long counts as noise, which depends on the part of it that has arrived.
    assert lines == again or len(data) > jspr.LINE_BYTES
    assembly, ours = messages.MtAssembly(), messages.MoMessage(b"hello")
    for line in lines:
        assert line.describe_refusal()
        try_each(OF_A_9704, line)
        with suppress(RemoteProtocolError):
            event = messages.parse_event(line)
            if isinstance(event, messages.MtSegment):
                assembly.add(event)
            elif isinstance(event, messages.MtEnded):
                assembly.finish_message(event)
            elif isinstance(event, messages.MoEnded):
                assert messages.find_mo_status(event.status) and messages.find_refusal_status(
                    event.status
                )
            elif isinstance(event, messages.SegmentWanted):
                ours.make_segment(event)


def _lines(reader: jspr.LineReader) -> list[jspr.JsprLine]:
    return list(iter(reader.read_next_line, None))


def read_lingo(data: bytes) -> None:
    with suppress(ValueError, RecursionError):
        document = json.loads(data)
        with suppress(RemoteProtocolError):
            assert len(lingo.parse_lingo(document).imei) == 15
        with suppress(RemoteProtocolError):
            lingo.parse_records(document)


DECODERS = {"imt": read_imt, "lingo": read_lingo}
