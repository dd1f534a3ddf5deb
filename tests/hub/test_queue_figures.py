"""Waiting items are counted before an answer if they are few, and after it if they are many."""

from __future__ import annotations

import pytest
import trio

from fieldagent.http.message import Request
from fieldagent.hub.service import health
from fieldagent.hub.service.figures import Figures
from fieldagent.hub.service.health import Health
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.system.supervisor import Supervisor
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, field_of
from tests.processes import PATIENCE


class Told:
    """Reads `/metrics` at a moment."""

    def __init__(self, store: Store) -> None:
        self.now = START
        self.health = Health(
            store,
            clock=lambda: self.now,
            supervisor=Supervisor(fatal=(), outside_errors=(), clock=lambda: self.now),
            counters=dict,
            figures=Figures(),
            stopping=trio.Event(),
        )

    async def waiting(self) -> tuple[float, float]:
        """Return the number of deliveries, and the age of that number."""
        answer = await self.health.answer_metrics(Request("GET", "/metrics", (), {}))
        lines = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines()[:-1])
        names = ("deliveries_waiting", "queues_counted_seconds")
        rows, age = (float(lines[f"fieldagent_hub_{name}"]) for name in names)
        return rows, age


async def test_long_queues_are_counted_after_the_metrics_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CALL_ROWS_MAX", 2)
    async with field_of(store) as alps, trio.open_nursery() as nursery:
        figures = Told(store)
        assert await figures.waiting() == (0, 0)
        for number in (1, 2, 3):
            await alps.sends(1, Entry(number, Message("Camp reached"), int(START)))
        # The last count was small, so the hub counts before the answer.
        rows, age = await figures.waiting()
        assert rows > 2
        assert age == 0
        await alps.sends(1, Entry(4, Message("All well"), int(START)))
        figures.now += 15
        assert await figures.waiting() == (rows, 15)
        nursery.start_soon(figures.health.run)
        with trio.fail_after(PATIENCE):
            while await figures.waiting() <= (rows, 15):
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
