"""A device on a pty that is not one of ours: it answers as a function says, and keeps what it was
sent."""

from __future__ import annotations

import os
import select
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

Answer: TypeAlias = "Callable[[bytes], bytes | None]"
"""What comes back for what was sent; None: it is unplugged."""


HUMS_EVERY = 0.1
"""Seconds."""


class SerialDevice:
    def __init__(self, answer: Answer, hums: bytes) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        self.port = os.ttyname(self._theirs)
        self.sent = bytearray()
        """All that it was sent."""
        self._answer, self._hums = answer, hums
        self._ends = threading.Lock()
        self._is_open = True
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError, ValueError):
            while True:
                if not select.select([self._ours], [], [], HUMS_EVERY)[0]:
                    os.write(self._ours, self._hums)
                    continue
                data = os.read(self._ours, 4096)
                self.sent += data
                back = self._answer(data)
                if back is None:
                    self.unplug()
                    return
                os.write(self._ours, back)

    def unplug(self) -> None:
        with self._ends:
            if self._is_open:
                self._is_open = False
                os.close(self._theirs)
                os.close(self._ours)


@contextmanager
def serial_device(answer: Answer = lambda data: b"", hums: bytes = b"") -> Iterator[SerialDevice]:
    """`hums`: what it says unasked, again and again."""
    device = SerialDevice(answer, hums)
    try:
        yield device
    finally:
        device.unplug()
