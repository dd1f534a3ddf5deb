"""Runs a journal or a store while a block uses it."""

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
    """Run the store until the block has ended, as both programs do: the block may wait for a last
    commit.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run)
        yield
        nursery.cancel_scope.cancel()
