"""Notifies of writes to a file by any program, without polling (inotify(7))."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

import trio

_MODIFY = 0x2
"""IN_MODIFY of <sys/inotify.h>."""


class FileWrites:
    def __init__(self, path: Path) -> None:
        """Watch a file. Raises OSError if the kernel cannot watch it, or has reached a limit."""
        kernel = ctypes.CDLL(None, use_errno=True)
        self._descriptor = kernel.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _make_error("fs.inotify.max_user_instances")
        if kernel.inotify_add_watch(self._descriptor, os.fsencode(path), _MODIFY) < 0:
            error = _make_error("fs.inotify.max_user_watches")
            self.close()
            raise error

    async def wait(self) -> None:
        """Wait for a write. Return at once if there was a write since the last call."""
        await trio.lowlevel.wait_readable(self._descriptor)
        with suppress(BlockingIOError):
            # One read is enough, because the kernel merges equal consecutive events.
            os.read(self._descriptor, 65_536)

    def close(self) -> None:
        """Release the kernel's watch."""
        os.close(self._descriptor)


def _make_error(limit: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{os.strerror(number)}; its limit is {limit}")
