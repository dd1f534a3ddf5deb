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
        os.set_blocking(self._ours, False)
        self.port = os.ttyname(self._theirs)
        self.sent = bytearray()
        """All that it was sent."""
        self._answer, self._hums = answer, hums
        self._over = threading.Event()
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        """It closes what it reads itself: a number that another closed beneath it may be the next
        device's already."""
        try:
            while not self._over.is_set() and self._serve_once():
                pass
        finally:
            os.close(self._theirs)
            os.close(self._ours)

    def _serve_once(self) -> bool:
        """Whether it is still plugged in."""
        if not select.select([self._ours], [], [], HUMS_EVERY)[0]:
            self._say(self._hums)
            return True
        data = os.read(self._ours, 4096)
        self.sent += data
        back = self._answer(data)
        if back is None:
            return False
        self._say(back)
        return True

    def _say(self, data: bytes) -> None:
        """Where nobody reads it is lost, as on a wire."""
        with suppress(BlockingIOError):
            os.write(self._ours, data)

    def unplug(self) -> None:
        self._over.set()
        self._serving.join()


@contextmanager
def serial_device(answer: Answer = lambda data: b"", hums: bytes = b"") -> Iterator[SerialDevice]:
    """`hums`: what it says unasked, again and again."""
    device = SerialDevice(answer, hums)
    try:
        yield device
    finally:
        device.unplug()
