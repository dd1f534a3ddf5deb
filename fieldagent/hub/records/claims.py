"""What hub processes have claimed ends with them.

A process claims what it posts, tells or calls in, so that several share the work. Its number
(`Db.worker`) stands in what it claims, and PostgreSQL knows which of them live. What a dead one had
claimed is free within seconds, and not when its claim runs out: it may be an SOS. Whether it had
left nobody knows, so it goes again, under the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from fieldagent.hub.records import alarm, contact, outward
from fieldagent.hub.store.contract import Db, Store, one_of
from fieldagent.hub.store.persist import persist, told_once
from fieldagent.store.group import StoreUnavailable
from fieldagent.system import waits

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK, LOOKS = 1.0, 3
"""Seconds between two looks for processes that have died, and how many in a row must find one gone:
one whose connection was cut, or whose database was away, is back within a second or two, and still
posts what it had begun."""

CLAIMED = {
    "webhook_delivery": "webhooks",
    "alarm_message": alarm.NEWS,
    "mobile_terminated": "satellite",
    "outward": outward.NEWS,
    "kit_sms": contact.SMS_NEWS,
}
"""Tables with what is claimed, and what is announced where something of it is free."""


async def run(store: Store) -> None:
    """Free what the dead have claimed until cancelled. In a file that is whoever was there before,
    and nobody comes to it later."""
    if not store.shared:
        await persist(store, lambda db: free(db, "<> ?", [db.worker]))
        await trio.sleep_forever()
    suspects: dict[int, int] = {}
    while True:
        gone: dict[int, int] = {}
        with told_once():
            gone = {each: 1 + suspects.get(each, 0) for each in await store.read(missing)}
            dead = [worker for worker, looks in gone.items() if looks >= LOOKS]
            if dead and (freed := await store.commit(partial(_bury, dead=dead))):
                log.warning("a hub has died: %d of its posts and calls go on elsewhere", freed)
        suspects = gone
        await waits.sleep(LOOK)


async def take(store: Store, claim: Callable[[Db], T], give_back: Callable[[Db, T], None]) -> T:
    """Commit what claims something for this process, and return it. Where the database goes away
    in the commit nobody knows whether that is stored: it is given back once the database answers,
    and waits for no claim to run out. Raises StoreUnavailable then, and StoreFull."""
    claims: list[T] = []

    def note(db: Db) -> T:
        claims[:] = [claim(db)]
        return claims[0]

    try:
        return await store.commit(note)
    except StoreUnavailable:
        if claims:
            await persist(store, lambda db: give_back(db, claims[0]))
        raise


def missing(db: Db) -> list[int]:
    """Return the numbers of processes that were there and do not live."""
    rows = db.execute(
        f"SELECT number FROM worker WHERE number <> 0 AND number NOT IN ({db.living_workers})"
    )
    return [number for (number,) in rows]


def _bury(db: Db, dead: Sequence[int]) -> int:
    """Return how many of their claims are free."""
    among, numbers = one_of(db, dead)
    db.execute(f"DELETE FROM worker WHERE number {among}", *numbers)
    return free(db, among, numbers)


def free(db: Db, among: str, workers: Sequence[Any]) -> int:
    """Free the claims of those workers; return how many. `among` stands behind a column."""
    freed = 0
    for table, topic in CLAIMED.items():
        # An index holds what waits; what was handed over before is much more.
        which = "" if table in ("mobile_terminated", "kit_sms") else "state = 'waiting' AND "
        rows = db.execute(
            f"UPDATE {table} SET claimed_until = 0 WHERE {which}claimed_until > 0"
            f" AND claimed_by {among} RETURNING claimed_by",
            *workers,
        )
        if rows:
            db.announce(topic)
        freed += len(rows)
    return freed
