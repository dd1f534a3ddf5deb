"""Shares one database transaction between callers that make the same query at the same moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Any

import trio

from fieldagent.hub.store.contract import Db
from fieldagent.store.group import StoreUnavailable
from fieldagent.system.lazy_dataclass import dataclass

Operation = Callable[[Db, Sequence[Any]], Sequence[Any]]


@dataclass(slots=True, eq=False)
class _ReadRound:
    """Callers whose queries are answered together."""

    arguments: list[Any] = field(default_factory=list)
    is_over: trio.Event = field(default_factory=trio.Event)
    results: Sequence[Any] = ()
    error: Exception | None = field(
        default_factory=lambda: StoreUnavailable("the read for all callers was cancelled")
    )


class SharedReads:
    """Shares the `read` of a store between callers. A caller that arrives while a round is running
    joins the next round.
    """

    def __init__(
        self, read: Callable[[Callable[[Db], Sequence[Any]]], Awaitable[Sequence[Any]]]
    ) -> None:
        self._read = read
        self._next: dict[Operation, _ReadRound] = {}
        self._running: dict[Operation, _ReadRound] = {}

    async def read_shared(self, operation: Operation, argument: Any) -> Any:
        """Return the result of `operation` for `argument`. Raises the errors of `read`."""
        leads = operation not in self._next
        own_round = self._next.setdefault(operation, _ReadRound())
        index = len(own_round.arguments)
        own_round.arguments.append(argument)
        if leads:
            await self._run(operation, own_round)
        else:
            await own_round.is_over.wait()
        if own_round.error is not None:
            raise own_round.error
        return own_round.results[index]

    async def _run(self, operation: Operation, read_round: _ReadRound) -> None:
        try:
            if (before := self._running.get(operation)) is not None:
                await before.is_over.wait()
            self._running[operation] = self._next.pop(operation)
            read_round.results = await self._read(lambda db: operation(db, read_round.arguments))
            read_round.error = None
        except Exception as error:
            read_round.error = error
        finally:
            for rounds in (self._next, self._running):
                if rounds.get(operation) is read_round:
                    del rounds[operation]
            read_round.is_over.set()
