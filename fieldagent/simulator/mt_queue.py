"""MT messages that wait at the operator's gateway for the modem to fetch them."""

from __future__ import annotations

from collections import deque


class MtQueue:
    def __init__(self) -> None:
        self._bodies: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._bodies)

    def put(self, body: bytes) -> None:
        self._bodies.append(body)

    def first(self) -> bytes | None:
        """It stays until `take`."""
        return self._bodies[0] if self._bodies else None

    def take(self) -> None:
        self._bodies.popleft()

    def repeat_last(self) -> bool:
        """Queue a copy of what waits last, as an operator does that lost an answer."""
        if self._bodies:
            self._bodies.append(self._bodies[-1])
        return bool(self._bodies)

    def lose_first(self) -> bool:
        """Drop what waits first, as if it had been lost on its way to the kit."""
        if self._bodies:
            self._bodies.popleft()
            return True
        return False
