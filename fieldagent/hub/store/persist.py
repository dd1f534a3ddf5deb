"""Commits that are repeated if the database is unavailable. The store logs the outage once, so
callers do not log it.
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
the work when a claim expires."""


@contextmanager
def skip_if_unavailable() -> Iterator[None]:
    """If the store becomes unavailable or is full, skip the rest of the block. The caller tries
    again later.
    """
    try:
        yield
    except StoreUnavailable as trouble:
        log.debug("not done now: %s", trouble)
    except StoreFull as trouble:
        log.error("%s", trouble)


async def persist(store: Store, operation: Callable[[Db], T]) -> T:
    """Commit `operation`, and repeat this until it is stored. Used by callers that cannot handle a
    failure.

    A commit may have been stored although it failed, so `operation` must do no harm if it runs
    twice.
    """
    return await _retry_until_stored(lambda: store.commit(operation))


async def persist_together(
    store: Store, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
) -> T:
    """Do the same as `persist`, but run `operation` once for all concurrent callers."""
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
