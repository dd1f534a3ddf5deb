"""How many bytes of bodies a server holds at one moment: from the head of a request to its answer.

A share is taken before a body is asked for, so that many large ones at once are refused, not kept.
"""

from __future__ import annotations

from typing import Self

from fieldagent.http.problem import Problem


class Share:
    """Room for a body, until the end of the block."""

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self._budget = budget
        self._size = 0
        self.resize(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resize(0)

    def resize(self, size: int) -> None:
        """Hold so many bytes from here on; whether the budget has them is not asked."""
        self._budget.held += size - self._size
        self._size = size


class BodyBudget:
    def __init__(self, most: int) -> None:
        self.held = 0
        self._most = most

    def share(self, size: int) -> Share:
        """Return room for a body of that many bytes. Raises Problem 503."""
        if size and self.held + size > self._most:
            again = (("Retry-After", "1"),)
            raise Problem(503, "too many large bodies are under way; try again", headers=again)
        return Share(self, size)
