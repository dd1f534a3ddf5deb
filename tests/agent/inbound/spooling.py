"""A spool on a separate journal, in virtual time, and a hook whose results the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import trio

from fieldagent.agent.inbound.hooks import JournalSpool, dispatch
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.inbound import Received
from fieldagent.agent.journal.journal import Journal
from fieldagent.package.payload import SOS_MARK
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from tests.kit import START
from tests.running import running

HANDED = HandoverResult(HandoverOutcome.HANDED)
FAILED = HandoverResult(HandoverOutcome.FAILED, "no route to host")


def now() -> float:
    return START + trio.current_time()


@dataclass
class Spooled:
    journal: Journal
    spool: JournalSpool
    nursery: trio.Nursery
    _news: list[trio.Event]

    async def arrive(self, *requests: tuple[str, str], sos: bool = False) -> None:
        """Add messages, each with a requestId and a sender."""
        mark = f",{SOS_MARK}" if sos else ""
        rows = [
            Received(name, sender, f'{{"requestId":"{name}"{mark}}}', now())
            for name, sender in requests
        ]

        def store(db: Any) -> None:
            for row in rows:
                inbound.store_payload(db, row, ["hook"])

        await self.journal.commit(store)
        self.wake()

    async def replay(self, name: str) -> None:
        assert await self.journal.commit(inbound.replay(name, ["hook"]))
        self.wake()

    def wake(self) -> None:
        self._news[0].set()
        self._news[0] = trio.Event()

    def start(self, hook: Hook, **how: Any) -> None:
        self.nursery.start_soon(partial(self.dispatch, hook, **how))

    async def dispatch(self, hook: Hook, **how: Any) -> str:
        options: dict[str, Any] = {"clock": now, "draw_random": lambda: 0.0, "name": "hook", **how}
        return await dispatch(self.spool, hook, **options)

    def states(self) -> dict[str, str]:
        return {row["requestId"]: row["hooks"]["hook"]["state"] for row in self.listing()}

    def reason(self, name: str) -> str:
        reasons = {row["requestId"]: row["hooks"]["hook"]["reason"] for row in self.listing()}
        return str(reasons[name])

    def listing(self) -> list[Any]:
        return list(inbound.list_payloads(self.journal, 20_000))


@asynccontextmanager
async def spooled(path: Path) -> AsyncIterator[Spooled]:
    journal = Journal(path / "journal.sqlite3")
    news = [trio.Event()]
    try:
        async with running(journal), trio.open_nursery() as nursery:
            yield Spooled(journal, JournalSpool("hook", journal, lambda: news[0]), nursery, news)
            nursery.cancel_scope.cancel()
    finally:
        journal.close()


@dataclass
class Hook:
    """A hook that answers each delivery with the next result for its requestId, and then repeats
    the last of these results.
    """

    results: dict[str, list[HandoverResult]] = field(default_factory=dict)
    lasts: Callable[[str], float] = lambda request_id: 0.0
    """Returns the seconds that a call takes."""
    calls: list[tuple[str, float]] = field(default_factory=list)
    """Calls so far: pairs of a requestId and the time of the test's clock."""
    running: set[str] = field(default_factory=set)
    most: int = 0
    _grown: trio.Event = field(default_factory=trio.Event)

    async def __call__(self, delivery: Delivery) -> HandoverResult:
        name = delivery.request_id
        assert delivery.lane not in self.running, "one lane's deliveries overlap"
        self.calls.append((name, trio.current_time()))
        self.running.add(delivery.lane)
        self.most = max(self.most, len(self.running))
        self._grown.set()
        self._grown = trio.Event()
        try:
            await trio.sleep(self.lasts(name))
        finally:
            self.running.remove(delivery.lane)
        results = self.results.get(name, [HANDED])
        return results.pop(0) if len(results) > 1 else results[0]

    @property
    def order(self) -> list[str]:
        return [name for name, _ in self.calls]

    def times(self, name: str) -> list[float]:
        return [at for called, at in self.calls if called == name]

    async def called(self, count: int) -> None:
        while len(self.calls) < count:
            await self._grown.wait()


def of(sender: str, names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, sender) for name in names]
