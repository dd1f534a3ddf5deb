"""The decoder of TAK, for the fuzzer."""

from __future__ import annotations

from contextlib import suppress

from fieldagent.extensions.tak import cot
from fieldagent.wire.errors import RemoteProtocolError


def read_cot(data: bytes) -> None:
    """Read events. A decoded event that is encoded again gives the same event."""
    splitter, events = cot.EventSplitter(), list[bytes]()
    for byte in data:
        events += splitter.receive_data(bytes([byte]))
    assert cot.EventSplitter().receive_data(data) == events
    for raw in events:
        with suppress(RemoteProtocolError):
            event = cot.decode(raw)
            again = cot.decode(cot.encode(event))
            assert (again.uid, again.type, again.detail) == (event.uid, event.type, event.detail)


DECODERS = {"cot": read_cot}
