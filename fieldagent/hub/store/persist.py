"""Work with a database that may be away: the store tells that itself, once, and nobody else."""

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

AGAIN = 1.0
"""Seconds until a commit is tried again. Soon: once a claim has run out, others do it all again."""


@contextmanager
def told_once() -> Iterator[None]:
    """Let what is within be done another time, if it cannot be now."""
    try:
        yield
    except StoreUnavailable as trouble:
        log.debug("not done now: %s", trouble)
    except StoreFull as trouble:
        log.error("%s", trouble)


async def persist(store: Store, operation: Callable[[Db], T]) -> T:
    """Commit `operation`; there is nobody to be told that it failed, so it is tried until it is
    stored. What broke in its commit may have been stored: `operation` does no harm twice."""
    return await _until_stored(lambda: store.commit(operation))


async def persist_together(
    store: Store, operation: Callable[[Db, Sequence[A]], Sequence[T]], argument: A
) -> T:
    """Do as `persist` does, with what others have to be stored by the same operation at that
    moment."""
    return await _until_stored(lambda: store.commit_together(operation, argument))


async def _until_stored(commit: Callable[[], Awaitable[T]]) -> T:
    troubled = False
    while True:
        try:
            return await commit()
        except StoreUnavailable as trouble:
            log.debug("not written down yet: %s", trouble)
        except StoreFull as trouble:
            if not troubled:
                log.error("%s; what has happened is written down once it can be", trouble)
            troubled = True
        await trio.sleep(AGAIN)
