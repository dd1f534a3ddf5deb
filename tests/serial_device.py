"""A simulated third-party device on a pty. A function makes its answers, and the device records all
received bytes.
"""

from __future__ import annotations

import os
import select
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

Answer: TypeAlias = "Callable[[bytes], bytes | None]"
"""Returns the answer to received bytes, or None to unplug the device."""


HUMS_EVERY = 0.1
"""Seconds between two repetitions of `hums`."""


class SerialDevice:
    def __init__(self, answer: Answer, hums: bytes) -> None:
        self._ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        os.set_blocking(self._ours, False)
        self.port = os.ttyname(self._theirs)
        self.sent = bytearray()
        """All received bytes."""
        self._answer, self._hums = answer, hums
        self._over = threading.Event()
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def _serve(self) -> None:
        """Serve the device and close its files. If another thread closed a file, its number might
        already belong to the next device.
        """
        try:
            while not self._over.is_set() and self._serve_once():
                pass
        finally:
            os.close(self._theirs)
            os.close(self._ours)

    def _serve_once(self) -> bool:
        """Answer the next received bytes. Return False when the device is unplugged."""
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
        """Send bytes. They are lost if no program reads them, as on a wire."""
        with suppress(BlockingIOError):
            os.write(self._ours, data)

    def unplug(self) -> None:
        self._over.set()
        self._serving.join()


@contextmanager
def serial_device(answer: Answer = lambda data: b"", hums: bytes = b"") -> Iterator[SerialDevice]:
    """Yield a device. `hums` are bytes that it repeats without a request."""
    device = SerialDevice(answer, hums)
    try:
        yield device
    finally:
        device.unplug()
