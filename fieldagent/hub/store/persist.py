"""Writes down what has happened outside of the hub, however long the database is away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import trio

from fieldagent.hub.store.contract import Db, Store
from fieldagent.store.group import StoreFull, StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN = 1.0
"""Seconds until a commit is tried again. Soon: once a claim has run out, others do it all again."""


async def persist(store: Store, operation: Callable[[Db], T]) -> T:
    """Commit `operation`; there is nobody to be told that it failed, so it is tried until it is
    stored. What broke in its commit may have been stored: `operation` does no harm twice."""
    troubled = False
    while True:
        try:
            return await store.commit(operation)
        except (StoreFull, StoreUnavailable) as trouble:
            if not troubled:
                log.error("%s; what has happened is written down once it can be", trouble)
            troubled = True
            await trio.sleep(AGAIN)
