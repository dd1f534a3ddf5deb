"""Releases the claims of hub processes that have died.

A process claims each webhook request, notification and call before making it, so that several
processes can share the work. Each claim contains the process's number (`Db.worker`), and PostgreSQL
knows which processes are alive. The claims of a dead process are released within seconds, before
they expire, because a claimed message may be an SOS. A claimed message may have been sent already,
so it is sent again with the same id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from fieldagent.hub.records import alarm, contact
from fieldagent.hub.store.contract import Db, Store, make_membership
from fieldagent.hub.store.persist import persist, skip_if_unavailable
from fieldagent.store.group import StoreUnavailable
from fieldagent.system import waits

log = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_S, CHECKS_MAX = 1.0, 3
"""Seconds between two checks for dead processes, and the number of consecutive checks that must
find a process missing. A process that lost its connection or its database reconnects within a
second or two and then finishes its work."""

CLAIMED_TABLES = {
    "webhook_delivery": "webhooks",
    "alarm_message": alarm.ALARM_TOPIC,
    "mobile_terminated": "satellite",
    "outward": "outward",
    "kit_sms": contact.SMS_NEWS,
}
"""Tables with claims. The value is the topic that is announced when a claim in the table is
released."""


async def run(store: Store) -> None:
    """Release the claims of dead processes until cancelled. If the database is an SQLite file,
    release all earlier claims once, because only one hub process uses such a file.
    """
    if not store.shared:
        await persist(store, lambda db: release_claims(db, "<> ?", [db.worker]))
        await trio.sleep_forever()
    suspects: dict[int, int] = {}
    while True:
        gone_owners: dict[int, int] = {}
        with skip_if_unavailable():
            gone_owners = {
                each: 1 + suspects.get(each, 0) for each in await store.read(list_missing)
            }
            dead = [worker for worker, looks in gone_owners.items() if looks >= CHECKS_MAX]
            if dead and (freed := await store.commit(partial(_remove_dead, dead=dead))):
                log.warning(
                    "a hub stopped without notice: this hub continues %d of its posts and calls",
                    freed,
                )
        suspects = gone_owners
        await waits.sleep(CHECK_S)


async def commit_claim(
    store: Store, claim: Callable[[Db], T], release: Callable[[Db, T], None]
) -> T:
    """Commit `claim`, which claims work for this process, and return its result.

    If the database becomes unavailable during the commit, the result of the commit is unknown. The
    function then raises StoreUnavailable. When the database responds again, `release` releases the
    claim, so that the work does not wait until the claim expires. Also raises StoreFull.
    """
    claims: list[T] = []

    def store_claim(db: Db) -> T:
        claims[:] = [claim(db)]
        return claims[0]

    try:
        return await store.commit(store_claim)
    except StoreUnavailable:
        if claims:
            await persist(store, lambda db: release(db, claims[0]))
        raise


def list_missing(db: Db) -> list[int]:
    """Return the numbers of registered processes that are not alive."""
    rows = db.execute(
        f"SELECT number FROM worker WHERE number <> 0 AND number NOT IN ({db.living_workers})"
    )
    return [number for (number,) in rows]


def _remove_dead(db: Db, dead: Sequence[int]) -> int:
    """Remove dead processes and return the number of their claims, which are released."""
    membership, numbers = make_membership(db, dead)
    db.execute(f"DELETE FROM worker WHERE number {membership}", *numbers)
    return release_claims(db, membership, numbers)


def release_claims(db: Db, membership: str, workers: Sequence[Any]) -> int:
    """Release the claims of processes and return the number of claims. `membership` is the SQL
    condition after the column with the process's number, for example `IN (?, ?)`. `workers` are the
    parameters of this condition.
    """
    freed = 0
    for table, topic in CLAIMED_TABLES.items():
        # Select the waiting rows by an index, because most rows of the table are finished.
        condition = "" if table in ("mobile_terminated", "kit_sms") else "state = 'waiting' AND "
        rows = db.execute(
            f"UPDATE {table} SET claimed_until = 0 WHERE {condition}claimed_until > 0"
            f" AND claimed_by {membership} RETURNING claimed_by",
            *workers,
        )
        if rows:
            db.announce(topic)
        freed += len(rows)
    return freed
