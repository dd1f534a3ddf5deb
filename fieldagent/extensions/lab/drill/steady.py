"""Makes runs reproducible: stores commit immediately, there is a single thread, and functions in
modules are replaced.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio

from fieldagent.agent.journal.journal import Journal
from fieldagent.hub.store.sqlite import SqliteStore
from fieldagent.store.group import C, GroupCommit, Order, StoreFailed


def _wake(orders: Sequence[Order[C]]) -> None:
    for order in orders:
        if order.caller is not None:
            trio.lowlevel.reschedule(order.caller)


class _SteadyGroup(GroupCommit[C]):
    """Group commit that commits immediately instead of in a thread. So the order of events depends
    only on the seed.
    """

    async def _commit_all(self) -> None:
        orders, self._orders = self._orders, []
        self._carry_out(orders)
        _wake(orders)
        await trio.lowlevel.checkpoint()


class SteadyJournal(_SteadyGroup[sqlite3.Connection], Journal):
    """Journal of a simulated kit, which commits immediately."""


class SteadyStore(SqliteStore):
    """Store of the simulated hub, which commits immediately. No other process writes to its
    file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._group = _SteadyGroup(self._transact)

    async def run(self) -> StoreFailed | None:
        """Commit in this thread. The store does not check for other writers. Return the error if
        the disk has failed.
        """
        await self._group.run()
        return self._group.failed


async def run_at_once(function: Callable[..., Any], *arguments: Any, **how: Any) -> Any:
    """Call the function in this thread. The end of a separate thread would depend on the speed of
    the machine.
    """
    await trio.lowlevel.checkpoint()
    return function(*arguments)


@contextmanager
def replace_for_a_while(places: Sequence[tuple[object, str, object]]) -> Iterator[None]:
    """Replace the values of names in modules or classes within the context."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


def seed_trio(seed: int) -> None:
    """Seed trio too, because trio runs tasks that are ready at the same time in a random order."""
    trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio._core._run._r.seed(seed)
    random.seed(seed)
