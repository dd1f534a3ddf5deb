"""Group commit: all concurrent writers share one transaction, and therefore one sync to disk.

When `commit` returns, the data is on disk. If a transaction fails, its operations are repeated one
by one, so that one failing operation does not make the others fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from math import inf
from typing import Any, Generic, TypeVar

import trio

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.price import Pay, get_payer

C = TypeVar("C")
"""Argument of an operation: a connection with an open transaction."""
T = TypeVar("T")

GATHER_S = 0.002
"""Seconds for which a transaction waits for further orders, because the callers of the previous
transaction often write again immediately."""


class StoreFull(Exception):
    """Error: the disk is full. The data was not stored. Earlier data is not affected."""


class NotOnDisk(StoreFull):
    """Error: the disk cannot be used, so only urgent data is accepted, in memory. The message
    contains the reason.
    """


class StoreFailed(Exception):
    """Error: the disk refused a commit, or the file cannot be used at all. The store accepts no
    orders until the program restarts.
    """


class StoreUnavailable(Exception):
    """Error: the database cannot be reached now. The data may or may not have been stored."""


FINAL_ERRORS = StoreFailed, StoreUnavailable, NotOnDisk
"""Errors after which the orders of a transaction are not repeated one by one."""
NOT_STORED = StoreFull, StoreFailed, StoreUnavailable
"""Errors of a commit that are not bugs."""


@dataclass(slots=True, eq=False)
class Order(Generic[C]):
    operation: Callable[..., Any]
    """Function that is called with a connection."""
    caller: trio.lowlevel.Task | None = None
    """Task that waits for the order. None if there is none to wake."""
    result: Any = None
    error: BaseException | None = None
    is_combined: bool = False
    """If True, `operation` gets the arguments of all such concurrent orders, and returns one result
    for each order."""
    argument: Any = None
    pay: Pay = field(default_factory=get_payer)
    """Charges the caller with CPU seconds. The orders of one transaction share its CPU time
    equally."""


def carry_out(orders: Sequence[Order[C]], connection: C) -> None:
    """Run each separate order. Then run the combined orders: all orders of the same operation in
    one call.
    """
    shared: dict[Callable[..., Any], list[Order[C]]] = {}
    for order in orders:
        if order.is_combined:
            shared.setdefault(order.operation, []).append(order)
        else:
            order.result = order.operation(connection)
    for operation, alike in shared.items():
        results = operation(connection, [order.argument for order in alike])
        for order, result in zip(alike, results, strict=True):
            order.result = result


class GroupCommit(Generic[C]):
    """Queue of orders for group commits. `transact` runs in a thread: it runs all orders in one
    transaction, or raises an error.

    `transact` raises StoreFailed when nothing may be written any more.
    """

    def __init__(self, transact: Callable[[Sequence[Order[C]]], None]) -> None:
        self._transact = transact
        self._orders: list[Order[C]] = []
        self._enough = 1
        self._operation_added = trio.Event()
        self._news = trio.Event()
        self._has_ended = False
        self.failed: StoreFailed | None = None
        """First final error of the disk, or None if there was none. It stays set until the program
        restarts."""
        self.writing_since = inf
        """Time on trio's clock when the current transaction began; `inf` if there is none."""

    async def commit(self, operation: Callable[[C], T]) -> T:
        """Run `operation` in a transaction. Its changes are on disk when the method returns.

        Raises StoreFailed, StoreUnavailable, or an error of `operation` or of the commit.
        """
        result: T = await self._carry_out_orders(Order(operation))
        return result

    async def commit_together(
        self, operation: Callable[[C, Sequence[Any]], Sequence[T]], argument: Any
    ) -> T:
        """Commit as `commit` does. All concurrent orders of the same operation share one call of
        the operation.
        """
        order: Order[C] = Order(operation, is_combined=True, argument=argument)
        result: T = await self._carry_out_orders(order)
        return result

    async def _carry_out_orders(self, order: Order[C]) -> Any:
        if self.failed is not None:
            raise self.failed
        if self._has_ended:
            # The store may end first if it and the caller are cancelled together. Then raise
            # Cancelled, not StoreFailed.
            await trio.lowlevel.checkpoint_if_cancelled()
            raise StoreFailed("the journal has been closed, as the program stops")
        order.caller = trio.lowlevel.current_task()
        self._orders.append(order)
        if len(self._orders) == 1 or len(self._orders) >= self._enough:
            self._operation_added.set()
        await trio.lowlevel.wait_task_rescheduled(_refuse_abort)
        if order.error is not None:
            raise order.error
        return order.result

    @property
    def is_busy(self) -> bool:
        """Return True if an order is not committed yet."""
        return bool(self._orders) or self.writing_since < inf

    async def wait_for_commit(self) -> None:
        """Wait until the next commit of any orders."""
        await self._news.wait()

    def fail(self, reason: str) -> StoreFailed:
        """Refuse all later orders, and let `run` end. Return the error to raise: the first
        failure.
        """
        if self.failed is None:
            self.failed = StoreFailed(reason)
            self._operation_added.set()
        return self.failed

    async def run(self) -> None:
        """Run the orders until cancelled. Orders that wait at the cancellation are still run.

        Returns when the store has failed, after all waiting callers have got the error.
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
                # Refuse later orders, which would wait forever.
                self._has_ended = True

    async def _gather(self) -> None:
        if not self._orders:
            self._operation_added = trio.Event()
            await self._operation_added.wait()
        if 1 <= len(self._orders) < self._enough:
            self._operation_added = trio.Event()
            with trio.move_on_after(GATHER_S):
                await self._operation_added.wait()

    async def _commit_all(self) -> None:
        orders, self._orders = self._orders, []
        self._enough = len(orders)
        self.writing_since = trio.current_time()
        try:
            seconds = await trio.to_thread.run_sync(self._run_timed, orders)
        except Exception as error:
            # If the system cannot start a thread now, fail the orders, so that no caller waits
            # forever.
            seconds = 0.0
            for order in orders:
                order.error = error
        self.writing_since = inf
        for order in orders:
            order.pay(seconds / len(orders))
            if isinstance(order.error, StoreFailed):
                self.failed = order.error
            if order.caller is not None:
                trio.lowlevel.reschedule(order.caller)
        self._news.set()
        self._news = trio.Event()

    def _run_timed(self, orders: Sequence[Order[C]]) -> float:
        """Run the orders, in a thread, and return the CPU seconds that they used."""
        started_at = time.thread_time()
        self._carry_out(orders)
        return time.thread_time() - started_at

    def _carry_out(self, orders: Sequence[Order[C]]) -> None:
        """Run all orders in one transaction, in a thread. If an order raises an error, run the
        orders again one by one.
        """
        try:
            self._transact(orders)
        except Exception as error:
            if len(orders) == 1 or isinstance(error, FINAL_ERRORS):
                for order in orders:
                    order.error = error
                return
            for order in orders:
                # After an error of the disk, stop, because a later success of the same disk is not
                # reliable.
                failed = next((o.error for o in orders if isinstance(o.error, StoreFailed)), None)
                if failed is None:
                    self._carry_out([order])
                else:
                    order.error = failed


def _refuse_abort(_: object) -> trio.lowlevel.Abort:
    """Refuse to abort: an order is always run, and its caller must get the result."""
    return trio.lowlevel.Abort.FAILED
