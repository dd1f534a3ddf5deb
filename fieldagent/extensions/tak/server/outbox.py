"""Events that wait for one phone, within a size limit. Only the newest event of each unit waits. A
slow phone loses further events and does not delay other phones.
"""

from __future__ import annotations

import trio

POSITION_BYTES_MAX = 131_072
"""Number of waiting bytes above which further positions are dropped."""
BYTES_MAX = 524_288
"""Number of waiting bytes above which all further events are dropped."""


class PhoneOutbox:
    def __init__(self) -> None:
        self._waiting: dict[str | int, bytes] = {}
        """Waiting events. The key is the uid of a unit, or a number for an event without a unit."""
        self._size = 0
        self._number = 0
        self._news = trio.Event()

    def add_event(self, data: bytes, unit: str = "") -> bool:
        """Add an event. A new event of a unit replaces its earlier event. Return False if there is
        no space.
        """
        before = len(self._waiting.get(unit, b"")) if unit else 0
        size = self._size + len(data) - before
        if len(data) > before and size > (POSITION_BYTES_MAX if unit else BYTES_MAX):
            return False
        self._number += 1
        self._waiting[unit or self._number] = data
        self._size = size
        self._news.set()
        return True

    async def wait_for_events(self) -> bytes:
        """Wait until there is at least one event. Return all waiting events."""
        while not self._waiting:
            self._news = trio.Event()
            await self._news.wait()
        taken_events = b"".join(self._waiting.values())
        self._waiting.clear()
        self._size = 0
        return taken_events
