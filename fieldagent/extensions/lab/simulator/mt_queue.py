"""Queue of MT messages that wait at the operator's gateway until the modem fetches them."""

from __future__ import annotations

from collections import deque


class MtQueue:
    def __init__(self) -> None:
        self._bodies: deque[bytes] = deque()
        self._ahead = 0
        """Number of messages with high priority, which are first in the queue."""

    def __len__(self) -> int:
        return len(self._bodies)

    def put(self, body: bytes, *, priority: bool = False) -> None:
        """Queue a message. If `priority` is True, the message goes before all messages of normal
        priority.
        """
        if priority:
            self._bodies.insert(self._ahead, body)
            self._ahead += 1
        else:
            self._bodies.append(body)

    def get_first(self) -> bytes | None:
        """Return the first message, or None if the queue is empty. The message remains until
        `remove_first` is called.
        """
        return self._bodies[0] if self._bodies else None

    def remove_first(self) -> None:
        """Remove the first message. Raises IndexError if the queue is empty."""
        self._bodies.popleft()
        self._ahead = max(0, self._ahead - 1)

    def repeat_last(self) -> bool:
        """Queue a copy of the last message, like an operator that has lost a response. Return False
        if the queue is empty.
        """
        if self._bodies:
            self._bodies.append(self._bodies[-1])
        return bool(self._bodies)

    def lose_first(self) -> bool:
        """Remove the first message, as if it were lost on its way to the kit. Return False if the
        queue is empty.
        """
        if self._bodies:
            self.remove_first()
            return True
        return False
