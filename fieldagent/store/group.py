"""Group commit: whoever writes at one moment shares one transaction, and so one sync.

What `commit` has returned from is on disk. Where a transaction fails, those in it are carried out
one by one, so that one of them cannot fail the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from math import inf
from typing import Any, Generic, TypeVar

import trio

from fieldagent.system.bill import Pay, payer
from fieldagent.system.lazy_dataclass import dataclass

C = TypeVar("C")
"""What an operation gets: a connection with a transaction open."""
T = TypeVar("T")

GATHER = 0.002
"""Seconds that a commit waits for those who took part in the one before."""


class StoreFull(Exception):
    """The disk is full. Nothing was stored; what was stored before is unharmed."""


class NotOnDisk(StoreFull):
    """The disk cannot be used; only what is urgent is taken, in memory. The text says why."""


class StoreFailed(Exception):
    """The disk refused a commit, or the file cannot be used at all. Nothing is accepted until the
    program starts again."""


class StoreUnavailable(Exception):
    """The database cannot be reached now; nothing is known to have been stored."""


NOT_AGAIN = StoreFailed, StoreUnavailable, NotOnDisk
"""After which no order of the same transaction is carried out by itself."""
NOT_STORED = StoreFull, StoreFailed, StoreUnavailable
"""What a commit raises that is no mistake of ours."""


@dataclass(slots=True, eq=False)
class Order(Generic[C]):
    operation: Callable[..., Any]
    """Of a connection."""
    caller: trio.lowlevel.Task | None = None
    """Who waits for it; None where nobody has to be woken."""
    result: Any = None
    error: BaseException | None = None
    together: bool = False
    """`operation` gets the arguments of all who order it at one moment, and has as many results."""
    argument: Any = None
    pay: Pay = field(default_factory=payer)
    """Of whoever ordered it: those of one transaction share what it took."""


def carry_out(orders: Sequence[Order[C]], connection: C) -> None:
    """Carry out each by itself, then those that are carried out together."""
    shared: dict[Callable[..., Any], list[Order[C]]] = {}
    for order in orders:
        if order.together:
            shared.setdefault(order.operation, []).append(order)
        else:
            order.result = order.operation(connection)
    for operation, alike in shared.items():
        results = operation(connection, [order.argument for order in alike])
        for order, result in zip(alike, results, strict=True):
            order.result = result


class GroupCommit(Generic[C]):
    """`transact` runs in a thread: it carries out all orders in one transaction, or raises.

    It raises StoreFailed when nothing may be written any more.
    """

    def __init__(self, transact: Callable[[Sequence[Order[C]]], None]) -> None:
        self._transact = transact
        self._orders: list[Order[C]] = []
        self._enough = 1
        self._came = trio.Event()
        self._news = trio.Event()
        self._ended = False
        self.failed: StoreFailed | None = None
        """Set once and for all when the disk refused a commit."""
        self.writing_since = inf
        """When the commit under way began (trio's clock); `inf` while there is none."""

    async def commit(self, operation: Callable[[C], T]) -> T:
        """Run `operation` in a transaction and return once it is on disk.

        Raises StoreFailed, StoreUnavailable, or what `operation` or the commit raise.
        """
        result: T = await self._carried_out(Order(operation))
        return result

    async def commit_together(
        self, operation: Callable[[C, Sequence[Any]], Sequence[T]], argument: Any
    ) -> T:
        """Commit as `commit` does; all who order the same operation at one moment share one run of
        it."""
        order: Order[C] = Order(operation, together=True, argument=argument)
        result: T = await self._carried_out(order)
        return result

    async def _carried_out(self, order: Order[C]) -> Any:
        if self.failed is not None:
            raise self.failed
        if self._ended:
            # Of two that are cancelled together, the store may be the first to go.
            await trio.lowlevel.checkpoint_if_cancelled()
            raise StoreFailed("the journal has been closed, as the program stops")
        order.caller = trio.lowlevel.current_task()
        self._orders.append(order)
        if len(self._orders) == 1 or len(self._orders) >= self._enough:
            self._came.set()
        await trio.lowlevel.wait_task_rescheduled(_stay)
        if order.error is not None:
            raise order.error
        return order.result

    @property
    def is_busy(self) -> bool:
        """Return whether something is ordered that is not committed yet."""
        return bool(self._orders) or self.writing_since < inf

    async def news(self) -> None:
        """Wait until something is committed."""
        await self._news.wait()

    def fail(self, why: str) -> StoreFailed:
        """Accept nothing more, and let `run` end. It returns what to raise: the first failure."""
        if self.failed is None:
            self.failed = StoreFailed(why)
            self._came.set()
        return self.failed

    async def run(self) -> None:
        """Carry out what is ordered until cancelled; what is ordered by then is carried out still.

        Returns when the store has failed, after everyone who waits has been told.
        """
        try:
            while self.failed is None:
                await self._gather()
                with trio.CancelScope(shield=True):
                    await self._commit_all()
        finally:
            with trio.CancelScope(shield=True):
                while self._orders:
                    await self._commit_all()
                # Whoever orders from here on would wait for nobody.
                self._ended = True

    async def _gather(self) -> None:
        if not self._orders:
            self._came = trio.Event()
            await self._came.wait()
        if 1 <= len(self._orders) < self._enough:
            self._came = trio.Event()
            with trio.move_on_after(GATHER):
                await self._came.wait()

    async def _commit_all(self) -> None:
        orders, self._orders = self._orders, []
        self._enough = len(orders)
        self.writing_since = trio.current_time()
        try:
            took = await trio.to_thread.run_sync(self._timed, orders)
        except Exception as error:
            # The system gives no thread now: nobody who waits may wait for ever.
            took = 0.0
            for order in orders:
                order.error = error
        self.writing_since = inf
        for order in orders:
            order.pay(took / len(orders))
            if isinstance(order.error, StoreFailed):
                self.failed = order.error
            if order.caller is not None:
                trio.lowlevel.reschedule(order.caller)
        self._news.set()
        self._news = trio.Event()

    def _timed(self, orders: Sequence[Order[C]]) -> float:
        """In a thread. Return the seconds of a processor that it took."""
        begun = time.thread_time()
        self._carry_out(orders)
        return time.thread_time() - begun

    def _carry_out(self, orders: Sequence[Order[C]]) -> None:
        """In a thread: all in one transaction, or one by one if one of them raises."""
        try:
            self._transact(orders)
        except Exception as error:
            if len(orders) == 1 or isinstance(error, NOT_AGAIN):
                for order in orders:
                    order.error = error
                return
            for order in orders:
                # A disk that failed meanwhile is not asked again and believed.
                failed = next((o.error for o in orders if isinstance(o.error, StoreFailed)), None)
                if failed is None:
                    self._carry_out([order])
                else:
                    order.error = failed


def _stay(_: object) -> trio.lowlevel.Abort:
    """An order once given is carried out: whoever gave it must learn how it ended."""
    return trio.lowlevel.Abort.FAILED
