"""Budget for the bytes of bodies that a server holds at the same time, from a request's head to its
answer.

A share is reserved before a body is read, so that many large bodies at once are refused instead of
stored.
"""

from __future__ import annotations

from typing import Self

from fieldagent.http.problem import Problem


class Share:
    """Reserved bytes for a body, until the end of the `with` block."""

    def __init__(self, budget: BodyBudget, size: int) -> None:
        self._budget = budget
        self._size = 0
        self.resize(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resize(0)

    def resize(self, size: int) -> None:
        """Change the reserved size, without a check of the budget."""
        self._budget.held += size - self._size
        self._size = size


class BodyBudget:
    def __init__(self, most: int) -> None:
        self.held = 0
        self._most = most

    def share(self, size: int) -> Share:
        """Reserve space for a body of `size` bytes. Raises Problem 503."""
        if size and self.held + size > self._most:
            again = (("Retry-After", "1"),)
            raise Problem(503, "too many large bodies are under way; try again", headers=again)
        return Share(self, size)
