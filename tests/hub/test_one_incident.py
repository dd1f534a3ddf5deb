"""Two hubs on one PostgreSQL get an SOS at the same moment, over the link and over satellite: they
make one incident.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio

from fieldagent.hub.records import sos
from fieldagent.hub.records.sos import JoinedIncident
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry
from tests.hub.field import START, field_of
from tests.postgres import new_database
from tests.processes import PATIENCE
from tests.running import running

NUMBER = 5
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


async def test_concurrent_sos_at_two_hubs_makes_one_incident(postgres: str) -> None:
    database = new_database(postgres)
    one, other = open_store(database), open_store(database)
    raised, goes_on = threading.Event(), threading.Event()
    joined: dict[int, JoinedIncident] = {}

    def first(db: Db) -> JoinedIncident:
        incident = sos.join_incident(db, 1, 1, NUMBER, 1, START, START)
        raised.set()
        goes_on.wait(PATIENCE)
        return incident

    def second(db: Db) -> JoinedIncident:
        return sos.join_incident(db, 1, 1, NUMBER, 2, START, START)

    async def enter(store: Store, operation: Callable[[Db], JoinedIncident], item: int) -> None:
        joined[item] = await store.commit(operation)

    try:
        async with field_of(one) as alps, running(other):
            for number in (1, 2):
                await alps.sends(1, Entry(number, Message("x"), int(START)))
            with trio.fail_after(PATIENCE):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(enter, one, first, 1)
                    await trio.to_thread.run_sync(raised.wait, PATIENCE)
                    nursery.start_soon(enter, other, second, 2)
                    while await alps.rows(WAITS) == [(0,)]:
                        await trio.sleep(0.01)
                    goes_on.set()
            assert joined[1] == JoinedIncident(1, rings=True, escalates=True)
            assert joined[2] == JoinedIncident(1, rings=False, escalates=False)
            assert await alps.rows("SELECT DISTINCT incident FROM item") == [(1,)]
    finally:
        goes_on.set()
        one.close()
        other.close()
