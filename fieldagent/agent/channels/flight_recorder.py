"""Keeps the last traffic of a serial line, so that a fault in the field can be analysed.

The record is bounded, and is kept in memory without writes to disk. When a channel's device is
lost, or on request, the record is appended without payloads to a ring file of limited size,
`trace-CHANNEL.log` in the state directory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from math import inf
from pathlib import Path

import trio

from fieldagent.extensions import list_places
from fieldagent.system.extension import import_own
from fieldagent.system.folder import replace_file
from fieldagent.wire import trace
from fieldagent.wire.trace import CAME, HAPPENED, SENT, TraceRecord

log = logging.getLogger(__name__)

MEMORY_BYTES = 65_536
RECORDS_MAX = 2_000
RING_BYTES = 262_144
SAVE_INTERVAL_S = 600.0
"""Minimum seconds between two writes, so that a modem that is lost every few seconds does not wear
out the memory card."""


class FlightRecorder:
    """Record of the traffic on one channel's line. If `ring` is None, the record stays in
    memory.
    """

    def __init__(self, ring: Path | None = None, kind: str = "") -> None:
        self.ring = ring
        self.kind = kind
        """Name of the line's protocol, for `mask`."""
        self.baud = 0
        """Baud rate at which the port was last opened. 0: the port was not opened yet."""
        self._records: deque[TraceRecord] = deque()
        self._size = 0
        self._newest_on_disk = -inf
        """Time of the newest record on disk, by the records' clock."""
        self._written = -inf
        self._begun_at: float | None = None

    def begin(self, path: str, baud: int) -> None:
        """Record that the port was opened, with its path and its baud rate."""
        self.baud = baud
        self.record_event(f"opened {path} at {baud}")

    def record_sent(self, data: bytes) -> None:
        """Add bytes from the host to the device to the trace, with the present time."""
        self._record(SENT, data)

    def record_received(self, data: bytes) -> None:
        """Record bytes that the device has sent."""
        self._record(CAME, data)

    def record_event(self, text: str) -> None:
        """Record an event at the port or in the exchange with the device."""
        self._record(HAPPENED, text.encode("ascii", "replace"))

    def _read_clock(self) -> float:
        now = trio.current_time()
        self._begun_at = now if self._begun_at is None else self._begun_at
        return now - self._begun_at

    def _record(self, direction: str, data: bytes) -> None:
        self._records.append(TraceRecord(self._read_clock(), direction, data))
        self._size += len(data)
        while self._size > MEMORY_BYTES or len(self._records) > RECORDS_MAX:
            self._size -= len(self._records.popleft().data)

    def format_trace(self, *, payloads: bool = False) -> str:
        """Return the records in memory as the text of a trace. If `payloads` is False, the text
        contains no payloads.
        """
        records = list(self._records)
        records_shown = records if payloads else mask(records, self.kind)
        return trace.format_head(self.kind, is_masked=not payloads) + trace.format_trace(
            records_shown
        )

    async def record_fault(self, text: str) -> None:
        """Record a fault, and append the new records to the ring file, at most every
        SAVE_INTERVAL_S.
        """
        self.record_event(text)
        now = self._read_clock()
        if self.ring is None or now - self._written < SAVE_INTERVAL_S:
            return
        masked_records = mask(list(self._records), self.kind)
        new = [each for each in masked_records if each.at > self._newest_on_disk]
        self._newest_on_disk = self._written = now
        try:
            await trio.to_thread.run_sync(_append, self.ring, trace.format_trace(new), self.kind)
        except OSError as error:
            log.warning("cannot record the serial line: %s", error)

    async def read_stored(self) -> str:
        """Return the text of the ring file, or '' if there is none."""
        try:
            return await trio.to_thread.run_sync(_read, self.ring) if self.ring else ""
        except OSError:
            return ""


def mask(records: Sequence[TraceRecord], kind: str) -> list[TraceRecord]:
    """Return the records without payloads. `kind` is a protocol of `trace.mask` or of an
    extension.
    """
    mask_name = list_places("traces").get(kind)
    if mask_name is None:
        return trace.mask(records, kind)
    shown_records: list[TraceRecord] = import_own(mask_name)(records)
    return shown_records


def _read(ring: Path) -> str:
    return ring.read_text("ascii", "replace")


def _append(ring: Path, text: str, kind: str) -> None:
    """Append the text to the ring file, and drop the oldest lines. After a power cut, the file has
    either the old or the new content, never a mixture.
    """
    before = _read(ring) if ring.exists() else ""
    trace_text = before + trace.format_head(kind, is_masked=True) + text
    if len(trace_text) > RING_BYTES:
        trace_text = trace_text[-RING_BYTES:]
        trace_text = trace_text[trace_text.index("\n") + 1 :]
    # A damaged disk may return bytes that are not ASCII.
    replace_file(ring, trace_text.encode("ascii", "replace"))
