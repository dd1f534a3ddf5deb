"""The decoder of APRS, for the fuzzer."""

from __future__ import annotations

from contextlib import suppress

from fieldagent.extensions.people import aprs_wire
from fieldagent.wire import ax25, kiss
from fieldagent.wire.errors import RemoteProtocolError


def read_aprs(data: bytes) -> None:
    """Read the frames of a TNC."""
    for _, content in kiss.KissDeframer().receive_data(data):
        with suppress(RemoteProtocolError):
            frame = ax25.decode(content)
            if frame is not None:
                aprs_wire.parse_frame(frame)


DECODERS = {"aprs": read_aprs}
