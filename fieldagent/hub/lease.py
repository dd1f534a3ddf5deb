"""Which hub process holds a device's IP link: a lease in the store, renewed while it lives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import trio

from fieldagent.hub.contract import Device
from fieldagent.hub.store.contract import Db, Store
from fieldagent.store.group import StoreFull, StoreUnavailable

LEASE = 30.0
"""Seconds that a lease outlives the process that held it."""


@dataclass(slots=True)
class Lease:
    lost: trio.Event = field(default_factory=trio.Event)
    """Set when the link must end."""
    stranded: str = ""
    """Why nobody knows whose it is; empty where somebody else has it, or may have none."""


@asynccontextmanager
async def held(
    store: Store, holder: str, device: Device, *, clock: Callable[[], float]
) -> AsyncIterator[Lease]:
    """Take the lease from whoever has it. `holder` names this link among all of all processes.

    Raises StoreUnavailable, StoreFull.
    """
    lease = Lease()
    await store.commit(lambda db: _take(db, holder, device.id, clock()))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_renew, store, holder, device.id, lease, clock)
            yield lease
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True), suppress(StoreFull, StoreUnavailable):
            await store.commit(lambda db: _give_back(db, holder, device.id))


def topic(device: int) -> str:
    """What is announced when a lease is taken."""
    return f"lease {device}"


def end(db: Db, device: int) -> None:
    """Take the lease away from whoever has it: the link ends, and proves itself anew."""
    db.execute("DELETE FROM lease WHERE device = ?", device)
    db.announce(topic(device))


def linked(db: Db, now: float) -> int:
    """How many devices are linked, over all processes."""
    ((count,),) = db.execute("SELECT count(*) FROM lease WHERE until > ?", now)
    return int(count)


async def _renew(
    store: Store, holder: str, device: int, lease: Lease, clock: Callable[[], float]
) -> None:
    held = True
    while held:
        taken = store.heard(topic(device))
        try:
            held = await store.commit(lambda db: _extend(db, holder, device, clock()))
        except (StoreFull, StoreUnavailable) as trouble:
            # Nothing could be stored: the agent does better with another process.
            lease.stranded, held = str(trouble), False
        if held:
            with trio.move_on_after(LEASE / 3):
                await taken.wait()
    lease.lost.set()


def _take(db: Db, holder: str, device: int, now: float) -> None:
    db.execute(
        "INSERT INTO lease (device, hub, until) VALUES (?, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET hub = excluded.hub, until = excluded.until",
        device,
        holder,
        now + LEASE,
    )
    db.announce(topic(device))


def _extend(db: Db, holder: str, device: int, now: float) -> bool:
    return bool(
        db.execute(
            "UPDATE lease SET until = ? WHERE device = ? AND hub = ? RETURNING device",
            now + LEASE,
            device,
            holder,
        )
    )


def _give_back(db: Db, holder: str, device: int) -> None:
    """What was on its way over the link goes over satellite once its grace has passed."""
    db.execute("DELETE FROM lease WHERE device = ? AND hub = ?", device, holder)
    db.announce("satellite")
