"""MT messages that wait at the operator's gateway for the modem to fetch them."""

from __future__ import annotations

from collections import deque


class MtQueue:
    def __init__(self) -> None:
        self._bodies: deque[bytes] = deque()
        self._ahead = 0
        """How many of the first are of high priority."""

    def __len__(self) -> int:
        return len(self._bodies)

    def put(self, body: bytes, *, priority: bool = False) -> None:
        """Queue a message; one of high `priority` before those that are not."""
        if priority:
            self._bodies.insert(self._ahead, body)
            self._ahead += 1
        else:
            self._bodies.append(body)

    def first(self) -> bytes | None:
        """Return the first, which stays until `take`; None where there is none."""
        return self._bodies[0] if self._bodies else None

    def take(self) -> None:
        """Drop what waits first. Raises IndexError where nothing does."""
        self._bodies.popleft()
        self._ahead = max(0, self._ahead - 1)

    def repeat_last(self) -> bool:
        """Queue a copy of what waits last, as an operator does that lost an answer."""
        if self._bodies:
            self._bodies.append(self._bodies[-1])
        return bool(self._bodies)

    def lose_first(self) -> bool:
        """Drop what waits first, as if it had been lost on its way to the kit."""
        if self._bodies:
            self.take()
            return True
        return False
