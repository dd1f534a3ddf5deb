"""Commits that survive an unavailable database. The store logs the outage once, so the callers do
not log it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import trio

from fieldagent.hub.store.contract import Db, Store
from fieldagent.store.group import StoreFull, StoreUnavailable

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")

RETRY_AFTER_S = 1.0
"""Seconds until a failed commit is tried again. The time is short, because other processes repeat
the work once a claim has expired."""


@contextmanager
def log_once() -> Iterator[None]:
    """Skip the rest of the block if the store becomes unavailable or is full. The caller tries
    again later.
    """
    try:
        yield
    except StoreUnavailable as trouble:
        log.debug("not done now: %s", trouble)
    except StoreFull as trouble:
        log.error("%s", trouble)


async def persist(store: Store, operation: Callable[[Db], T]) -> T:
    """Commit `operation`, and repeat until it is stored, because its callers cannot handle a
    failure.

    A commit that failed may still have been stored, so `operation` must be harmless if it runs
    twice.
    """
    return await _retry_until_stored(lambda: store.commit(operation))


async def persist_together(
    store: Store, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
) -> T:
    """Like `persist`, but run the operation once for all callers that store the same operation at
    that moment.
    """
    return await _retry_until_stored(lambda: store.commit_together(operation, argument))


async def _retry_until_stored(commit: Callable[[], Awaitable[T]]) -> T:
    troubled = False
    while True:
        try:
            return await commit()
        except StoreUnavailable as trouble:
            log.debug("not written down yet: %s", trouble)
        except StoreFull as trouble:
            if not troubled:
                log.error("%s; the events are stored as soon as possible", trouble)
            troubled = True
        await trio.sleep(RETRY_AFTER_S)
