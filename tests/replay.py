"""A modem that plays a trace: to make a test of a recording from the field, copy the recording.

It answers each command of the host as the recorded device did the next time this command occurred,
at the same speed. It repeats the events at the port. It notes commands that are not in the trace
and leaves them unanswered.
"""

from __future__ import annotations

import os
import re
import tty
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from fieldagent.extensions import list_places
from fieldagent.http.web_socket import WebSocketClosed
from fieldagent.system.extension import import_own
from fieldagent.wire import trace
from fieldagent.wire.trace import CAME, HAPPENED, SENT, TraceRecord


class Replay:
    """Plays `records` on a pty with the name `link`. `run` serves it until it is cancelled."""

    def __init__(self, records: list[TraceRecord], link: Path) -> None:
        self.link = link
        self.place = 0
        """Index of the next record."""
        self.unknown: list[bytes] = []
        """Commands of the host that are not in the trace."""
        self._records = records

    @property
    def is_over(self) -> bool:
        """Return True if the device has sent all its records."""
        return not any(each.direction == CAME for each in self._records[self.place :])

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Open and close the port in the same sequence as in the trace."""
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
        """Serve until the host has closed the port and the trace opens it again."""
        said = b""
        while True:
            said += bytes(await line.receive_some(4096))
            while (answered := self._find(said)) is not None:
                said = b""
                await self._answer(line, answered)

    def _find(self, said: bytes) -> int | None:
        """Return the index after the next record of the host's command `said`. If there is no such
        record, return None, and add a complete command to `unknown`.
        """
        for place in range(self.place, len(self._records)):
            each = self._records[place]
            if each.direction == SENT and _is_same(each.data, said):
                return place + 1
        if said and (said.endswith((b"\r", b"\n")) or len(said) > 1000):
            self.unknown.append(said)
        return None

    async def _answer(self, line: trio.lowlevel.FdStream, place: int) -> None:
        at = self._records[place - 1].at
        self.place = place
        while self.place < len(self._records):
            each = self._records[self.place]
            if each.direction == SENT:
                return
            self.place += 1
            if each.direction == HAPPENED:
                continue
            await trio.sleep(max(0.0, each.at - at))
            at = each.at
            await line.send_all(each.data)


def _is_same(record: bytes, said: bytes) -> bool:
    """Compare two commands. A payload that was left out of the trace matches any payload."""
    if record == said:
        return True
    if record.startswith((b"GET ", b"PUT ", b"\rGET ")):
        return any(
            import_own(mask)([TraceRecord(0.0, SENT, said)])[0].data == record
            for mask in list_places("traces").values()
        )
    masked = (
        len(record) == len(said) and not record.startswith(b"AT") and not said.startswith(b"AT")
    )
    return masked and not any(record[:-2])


class ReplayedLink:
    """The hub's end of recorded IP links: `http.link_session.LinkSocket` for each new connection.
    It notes messages of the host that are not in the trace.
    """

    date = ""

    def __init__(self, records: list[TraceRecord]) -> None:
        self._records = records
        self.place = 0
        self.unknown: list[bytes] = []
        self._said = trio.Event()

    @property
    def is_over(self) -> bool:
        """Return True if the hub has sent all its records."""
        return not any(each.direction == CAME for each in self._records[self.place :])

    def open(self) -> ReplayedLink:
        """Continue after the end of the previous link."""
        while self.place < len(self._records):
            each = self._records[self.place]
            self.place += 1
            if each.direction == HAPPENED and each.data.startswith(b"connected"):
                return self
        raise OSError("the trace has no more links")

    async def send(self, message: bytes) -> None:
        """Accept a message from the host. The tasks of the host may send in any order."""
        await trio.lowlevel.checkpoint()
        shown = trace.mask([TraceRecord(0.0, SENT, message)], trace.LINK)[0].data
        if not self._is_known(shown):
            self.unknown.append(message)
        self._said.set()
        self._said = trio.Event()

    def _is_known(self, shown: bytes) -> bool:
        for place in range(self.place, len(self._records)):
            each = self._records[place]
            if each.direction == HAPPENED and each.data.startswith(b"connected"):
                return False
            # Hellos differ only in the number of the journal: array and kind are the same.
            if each.direction == SENT and (
                shown == each.data or shown[:2] == each.data[:2] == HELLO
            ):
                self._records[place] = each._replace(direction=HAPPENED, data=b"said")
                return True
        return False

    async def receive(self) -> bytes:
        """Return the hub's next message, after the host has sent the messages before it. Raises
        Closed.
        """
        while self.place < len(self._records):
            each = self._records[self.place]
            if each.direction == SENT:
                await self._said.wait()
                continue
            if each.data.startswith(b"connected") and each.direction == HAPPENED:
                break
            self.place += 1
            if each.direction == CAME:
                return each.data
            if ended := re.fullmatch(rb"closed by the hub: ([0-9]{4}) (.*)", each.data):
                raise WebSocketClosed(int(ended[1]), ended[2].decode())
        await trio.sleep_forever()
        raise AssertionError

    async def close(self, code: int, reason: str) -> None:
        await trio.lowlevel.checkpoint()


HELLO = b"\x87\x00"
"""First bytes of each hello: an array of seven, and its kind."""


def records_of(file: Path) -> list[TraceRecord]:
    """Return the records of a trace file."""
    return trace.parse_trace(file.read_text("ascii"))


def kind_of(file: Path) -> str:
    """Return the kind of device in a trace file."""
    return file.read_text("ascii").split("\n", 1)[0].rpartition(" ")[2]
