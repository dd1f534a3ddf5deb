"""A journal or a store at work around what uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trio


class Runs(Protocol):
    @property
    def run(self) -> Callable[[], Awaitable[Any]]: ...


@asynccontextmanager
async def running(store: Runs) -> AsyncIterator[None]:
    """It ends after all that is within, as in both programs: who may finish commits once more."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        yield
        nursery.cancel_scope.cancel()
