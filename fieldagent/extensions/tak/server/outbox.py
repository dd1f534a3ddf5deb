"""What waits to go to one phone: of each unit the newest alone, and no more than there is room for.
Who is slow loses what is old first, and holds nobody up."""

from __future__ import annotations

import trio

OF_UNITS_MAX = 131_072
"""Bytes that wait, above which a further position is dropped."""
BYTES_MAX = 524_288
"""Above which anything is."""


class PhoneOutbox:
    def __init__(self) -> None:
        self._waiting: dict[str | int, bytes] = {}
        """By the uid of a unit, or a number."""
        self._size = 0
        self._number = 0
        self._news = trio.Event()

    def put(self, data: bytes, unit: str = "") -> bool:
        """Have it sent, a unit's in the place of what was to be told of that; return False where
        there is no room."""
        before = len(self._waiting.get(unit, b"")) if unit else 0
        size = self._size + len(data) - before
        if len(data) > before and size > (OF_UNITS_MAX if unit else BYTES_MAX):
            return False
        self._number += 1
        self._waiting[unit or self._number] = data
        self._size = size
        self._news.set()
        return True

    async def take(self) -> bytes:
        """Return all that waits, once something does."""
        while not self._waiting:
            self._news = trio.Event()
            await self._news.wait()
        taken = b"".join(self._waiting.values())
        self._waiting.clear()
        self._size = 0
        return taken
