"""A hub whose database is restored repeatedly to one moment."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from fieldagent.hub.store.opening import open_store
from tests.hub.field import Field
from tests.models.spin import Step
from tests.running import running


class TakesSteps(Protocol):
    async def receive_message(self, step: Step) -> None: ...


async def walk_through_restores(
    steps: Sequence[Step], before: Path, now: float, begin: Callable[[Field], TakesSteps]
) -> None:
    """Carry out the steps with a hub on a copy of `before`, and from each `restore` with a new
    copy. `begin` makes the object that carries out the steps. The clock continues from `now`.
    """
    waiting, lives = list(steps), 0
    while waiting:
        lives += 1
        database = before.with_name(f"hub-{lives}.sqlite3")
        shutil.copy(before, database)
        store = open_store(str(database))
        async with running(store):
            hub = Field(store, now=now)
            taken = begin(hub)
            while waiting:
                step = waiting.pop(0)
                await taken.receive_message(step)
                if step.call == "restore":
                    break
            now = hub.now
        store.close()
