"""Simulated dispatchers at the hub's desk. The dispatchers work in shifts, answer open incidents,
and write to kits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NoReturn

import trio

from fieldagent.extensions.lab.drill.outage import DAY_S
from fieldagent.extensions.lab.drill.plan import HOUR_S, DispatcherPlan
from fieldagent.hub.access import directory
from fieldagent.hub.api import sos_desk
from fieldagent.hub.records import ledger, sos
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message

CHECK_INTERVAL_S = 60.0
"""Seconds between two looks of the dispatchers at the desk."""
CLOSED_AFTER_S = 3 * HOUR_S
"""Seconds after which the dispatcher closes an SOS that was acknowledged."""
GRACE_S = 60.0


class DrillDesk:
    def __init__(
        self, plans: Sequence[DispatcherPlan], clock: Callable[[], float], random: Random
    ) -> None:
        self._plans = plans
        self._clock = clock
        self._random = random
        self._workspace = 0
        self._members: list[int] = []
        self._looks_at: dict[int, float] = {}
        """Unix time when a dispatcher will acknowledge an incident, by the id of the incident."""
        self._store: Store | None = None
        self.written: dict[int, dict[str, float]] = defaultdict(dict)
        """Time on trio's clock when each text was written, by kit and text."""

    def add_dispatchers(self, db: Db, workspace: int, now: float) -> None:
        """Add the dispatchers to the hub as users with the role `dispatcher`. `now` is the Unix
        time.
        """
        self._workspace = workspace
        for plan in self._plans:
            member = directory.add_user(db, workspace, plan.name, over_satellite=True, now=now)
            directory.set_role(db, workspace, member, "dispatcher", now=now)
            self._members.append(member)

    def _list_awake(self) -> list[int]:
        """Return the dispatchers who are at the desk now, as indexes in the plan."""
        hour = self._clock() % DAY_S / HOUR_S
        return [
            index
            for index, plan in enumerate(self._plans)
            if not plan.shift or any(each.has(hour) for each in plan.shift)
        ]

    async def answer_until_cancelled(self, store: Store) -> NoReturn:
        """Answer open incidents every `CHECK_INTERVAL_S` seconds while a dispatcher is on shift."""
        self._store = store
        try:
            while True:
                await trio.sleep(CHECK_INTERVAL_S)
                if awake := self._list_awake():
                    await store.commit(partial(self._answer_incidents, awake[0]))
        finally:
            self._store = None

    def _answer_incidents(self, place: int, db: Db) -> None:
        now, member = self._clock(), self._members[place]
        rows = db.execute(
            "SELECT id, state, seen FROM sos WHERE workspace = ? AND state <> 'closed' ORDER BY id",
            self._workspace,
        )
        for id_, state, is_seen in rows:
            incident = sos.find_incident(db, self._workspace, id_)
            assert incident is not None
            if state == "open":
                mean = self._plans[place].answers_in
                wait = self._random.expovariate(1 / mean)
                if self._looks_at.setdefault(id_, now + wait) <= now:
                    sos_desk.acknowledge(db, incident, member, "", now)
            elif is_seen is not None and now - is_seen > CLOSED_AFTER_S:
                sos_desk.close_incident(db, incident, member, "", now)
                self._looks_at.pop(id_, None)

    async def write(self, until: float, kits: int) -> None:
        """Write to the kits at random times, until the time `until` on trio's clock."""
        async with trio.open_nursery() as nursery:
            for index, plan in enumerate(self._plans):
                if plan.messages_per_day:
                    nursery.start_soon(self._write, index, until, kits)

    async def _write(self, place: int, until: float, kits: int) -> None:
        mean_interval = DAY_S / self._plans[place].messages_per_day / kits
        while (at := trio.current_time() + self._random.expovariate(1 / mean_interval)) < until:
            await trio.sleep_until(at)
            kit_number = self._random.randrange(kits) + 1
            if self._store is not None and place in self._list_awake():
                now, message_counts = self._clock(), self.written[kit_number]
                text = f"from the desk to {kit_number}: {len(message_counts) + 1}"
                message_counts[text] = trio.current_time()
                posting = Posting(
                    *(self._workspace, self._members[place], Message(text), int(now), 50),
                    target=kit_number,
                    over_satellite=True,
                )
                await self._store.commit(partial(_add_item, posting, now))


def _add_item(posting: Posting, now: float, db: Db) -> None:
    ledger.add_item(db, posting, now=now, grace=GRACE_S)
