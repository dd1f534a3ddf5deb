"""A modem that plays a trace: what the recorder wrote in the field becomes a test by copying it.

It answers each thing the host says as the device of the trace did the next time the host said it
there, at the same pace, and does what happened to the port. What the trace does not know is left
without an answer, and noted.
"""

from __future__ import annotations

import os
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from fieldagent.wire import trace
from fieldagent.wire.trace import CAME, HAPPENED, SENT, TraceRecord


class Replay:
    """Plays `records` on a pty under the name `link`; `run` serves it until it is cancelled."""

    def __init__(self, records: list[TraceRecord], link: Path) -> None:
        self.link = link
        self.place = 0
        """The next record."""
        self.unknown: list[bytes] = []
        """What the host said and no host had said in the trace."""
        self._records = records

    @property
    def is_over(self) -> bool:
        """Whether all that the device said was said."""
        return not any(each.way == CAME for each in self._records[self.place :])

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open the port anew as often as the trace does."""
        while True:
            async with self._line() as line:
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await self._serve(line)

    @asynccontextmanager
    async def _line(self) -> AsyncIterator[trio.lowlevel.FdStream]:
        ours, theirs = os.openpty()
        try:
            tty.setraw(theirs)
            self.link.unlink(missing_ok=True)
            self.link.symlink_to(os.ttyname(theirs))
            async with trio.lowlevel.FdStream(ours) as line:
                yield line
        finally:
            self.link.unlink(missing_ok=True)
            os.close(theirs)

    async def _serve(self, line: trio.lowlevel.FdStream) -> None:
        """Until the host has closed the port and the trace tells that it was opened again."""
        said = b""
        while True:
            said += bytes(await line.receive_some(4096))
            while (answered := self._find(said)) is not None:
                said = b""
                await self._answer(line, answered)

    def _find(self, said: bytes) -> int | None:
        """Return the place behind what the host has said now, once it is whole."""
        for place in range(self.place, len(self._records)):
            each = self._records[place]
            if each.way == SENT and _is_same(each.data, said):
                return place + 1
        if said and (said.endswith((b"\r", b"\n")) or len(said) > 1000):
            self.unknown.append(said)
        return None

    async def _answer(self, line: trio.lowlevel.FdStream, place: int) -> None:
        at = self._records[place - 1].at
        self.place = place
        while self.place < len(self._records):
            each = self._records[self.place]
            if each.way == SENT:
                return
            self.place += 1
            if each.way == HAPPENED:
                continue
            await trio.sleep(max(0.0, each.at - at))
            at = each.at
            await line.send_all(each.data)


def _is_same(told: bytes, said: bytes) -> bool:
    """A payload that was left out is as long as the one that is said."""
    if told == said:
        return True
    masked = len(told) == len(said) and not told.startswith(b"AT") and not said.startswith(b"AT")
    return masked and not any(told[:-2])


def records_of(file: Path) -> list[TraceRecord]:
    """Return what a trace file holds."""
    return trace.read(file.read_text("ascii"))
