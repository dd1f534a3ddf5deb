"""A modem that plays a trace: what the recorder wrote in the field becomes a test by copying it.

It answers each thing the host says as the device of the trace did the next time the host said it
there, at the same pace, and does what happened to the port. What the trace does not know is left
without an answer, and noted.
"""

from __future__ import annotations

import os
import re
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from fieldagent.http.web_socket import Closed
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


def _is_same(record: bytes, said: bytes) -> bool:
    """A payload that was left out is as long as the one that is said."""
    if record == said:
        return True
    if record.startswith((b"GET ", b"PUT ", b"\rGET ")):
        (shown,) = trace.mask([TraceRecord(0.0, SENT, said)], "imt")
        return shown.data == record
    masked = (
        len(record) == len(said) and not record.startswith(b"AT") and not said.startswith(b"AT")
    )
    return masked and not any(record[:-2])


class ReplayedLink:
    """The hub's end of IP links as a trace has it: `http.link_session.LinkSocket`, each time that
    it is opened anew. What a host says that no host said there is noted."""

    date = ""

    def __init__(self, records: list[TraceRecord]) -> None:
        self._records = records
        self.place = 0
        self.unknown: list[bytes] = []
        self._said = trio.Event()

    @property
    def is_over(self) -> bool:
        """Whether all that the hub said was said."""
        return not any(each.way == CAME for each in self._records[self.place :])

    def open(self) -> ReplayedLink:
        """Go on behind the end of the link before."""
        while self.place < len(self._records):
            each = self._records[self.place]
            self.place += 1
            if each.way == HAPPENED and each.data.startswith(b"connected"):
                return self
        raise OSError("the trace has no more links")

    async def send(self, message: bytes) -> None:
        """Take what the host says; its tasks speak in any order."""
        await trio.lowlevel.checkpoint()
        shown = trace.mask([TraceRecord(0.0, SENT, message)], trace.LINK)[0].data
        if not self._is_known(shown):
            self.unknown.append(message)
        self._said.set()
        self._said = trio.Event()

    def _is_known(self, shown: bytes) -> bool:
        for place in range(self.place, len(self._records)):
            each = self._records[place]
            if each.way == HAPPENED and each.data.startswith(b"connected"):
                return False
            # Hellos differ by the number of the journal alone: array and kind are the same.
            if each.way == SENT and (shown == each.data or shown[:2] == each.data[:2] == HELLO):
                self._records[place] = each._replace(way=HAPPENED, data=b"said")
                return True
        return False

    async def receive(self) -> bytes:
        """Return what the hub said next, once the host has said what stood before. Raises
        Closed."""
        while self.place < len(self._records):
            each = self._records[self.place]
            if each.way == SENT:
                await self._said.wait()
                continue
            if each.data.startswith(b"connected") and each.way == HAPPENED:
                break
            self.place += 1
            if each.way == CAME:
                return each.data
            if ended := re.fullmatch(rb"closed by the hub: ([0-9]{4}) (.*)", each.data):
                raise Closed(int(ended[1]), ended[2].decode())
        await trio.sleep_forever()
        raise AssertionError

    async def close(self, code: int, reason: str) -> None:
        await trio.lowlevel.checkpoint()


HELLO = b"\x87\x00"
"""How each begins: an array of seven, and its kind."""


def records_of(file: Path) -> list[TraceRecord]:
    """Return what a trace file holds."""
    return trace.read(file.read_text("ascii"))


def kind_of(file: Path) -> str:
    """Return what spoke over the line of a trace file."""
    return file.read_text("ascii").split("\n", 1)[0].rpartition(" ")[2]
