"""A device on a pty that is not one of ours: it answers as a function says, and keeps what it was
sent."""

from __future__ import annotations

import os
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

Answer: TypeAlias = "Callable[[bytes], bytes | None]"
"""What comes back for what was sent; None: it is unplugged."""


class SerialDevice:
    def __init__(self, answer: Answer, says_first: bytes) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        self.port = os.ttyname(self._theirs)
        self.sent = bytearray()
        """All that it was sent."""
        self._answer = answer
        self._ends = threading.Lock()
        self._is_open = True
        if says_first:
            os.write(self._ours, says_first)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while data := os.read(self._ours, 4096):
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
def serial_device(
    answer: Answer = lambda data: b"", says_first: bytes = b""
) -> Iterator[SerialDevice]:
    device = SerialDevice(answer, says_first)
    try:
        yield device
    finally:
        device.unplug()
