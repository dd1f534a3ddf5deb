"""Which link a device has, of all links in all processes of the hub: a lease in the store.

A lease is a process's. It holds as long as that lives, which the process says for all of its links
at once: a link at rest costs the store nothing. Rules:

1. The newest link of a device takes the lease; who had it is told, and ends.
2. Who takes a device out of use, or gives it another token, takes its lease away.
3. A process that has said nothing for `LEASE` seconds has no links.
4. A store in a file is of one process. That says once that it lives, and what a process before it
   left is gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from itertools import count
from math import inf

import trio

from fieldagent.hub.contract import Bearer, Device
from fieldagent.hub.records import contact
from fieldagent.hub.store.contract import Db, Store, marks
from fieldagent.hub.store.persist import told_once
from fieldagent.store.group import NOT_STORED, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass

LEASE = 30.0
"""Seconds that a lease outlives the process that held it."""

BACK = 10.0
"""Seconds in which a console whose stream has ended comes back, as one that is loaded again."""

FORGET = 3600.0
"""Seconds after which a process that is dead is forgotten."""

IS_LINKED = (
    "EXISTS (SELECT 1 FROM lease JOIN process ON process.name = lease.process"
    " WHERE lease.device = device.id AND process.until > ?)"
)
"""Of a `device`, at that moment."""


@dataclass(slots=True)
class Lease:
    lost: trio.Event = field(default_factory=trio.Event)
    """Set when the link must end."""
    stranded: str = ""
    """Why nobody knows whose it is; empty where somebody else has it, or may have none."""


class Leases:
    """Those of one process, whose `name` is like no other's."""

    def __init__(self, store: Store, name: str, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._numbers = count(1)
        self.links = 0
        """That this process has."""
        self._consoles: set[int] = set()

    async def run(self) -> None:
        """Say again and again that this process lives, while it has links or consoles."""
        if not self._store.shared:
            await self._store.commit(lambda db: _forget_others(db, self._name))
            await trio.sleep_forever()
        while True:
            if self.links or self._consoles:
                with told_once():
                    await self._store.commit(self._live_on)
            await waits.sleep(LEASE / 3)

    def _live_on(self, db: Db) -> None:
        _live(db, self._name, self._until())
        self._note_closed(db)
        db.execute("DELETE FROM process WHERE until < ?", self._clock() - FORGET)

    def _until(self) -> float:
        return self._clock() + LEASE if self._store.shared else inf

    @asynccontextmanager
    async def held(self, device: Device) -> AsyncIterator[Lease]:
        """Take the lease from whoever has it. Raises StoreUnavailable, StoreFull,
        StoreFailed."""
        lease, link = Lease(), next(self._numbers)
        await self._store.commit(
            lambda db: _take(db, self._name, link, device.id, until=self._until())
        )
        self.links += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, device.id, link, lease)
                yield lease
                nursery.cancel_scope.cancel()
        finally:
            self.links -= 1
            with trio.CancelScope(shield=True), suppress(*NOT_STORED):
                await self._store.commit(partial(self._give_back, link=link, device=device.id))

    def _give_back(self, db: Db, link: int, device: int) -> None:
        """What was on its way over the link goes over satellite once its grace has passed."""
        db.execute(
            "DELETE FROM lease WHERE device = ? AND process = ? AND link = ?",
            device,
            self._name,
            link,
        )
        contact.note(db, device, Bearer.IP, self._clock())
        db.announce("satellite")

    @asynccontextmanager
    async def console(self, workspace: int, member: int) -> AsyncIterator[None]:
        """Have it known that a console of theirs is open here, and for `BACK` seconds after: one
        that is loaded again comes back. Raises StoreUnavailable, StoreFull, StoreFailed."""
        stream = next(self._numbers)

        def begin(db: Db) -> None:
            _live(db, self._name, self._until())
            db.execute("DELETE FROM console_stream WHERE until <= ?", self._clock())
            db.execute(
                "INSERT INTO console_stream (process, stream, workspace, member)"
                " VALUES (?, ?, ?, ?)",
                *(self._name, stream, workspace, member),
            )

        self._consoles.add(stream)
        try:
            await self._store.commit(begin)
            yield
        finally:
            self._consoles.discard(stream)
            with trio.CancelScope(shield=True), suppress(*NOT_STORED):
                await self._store.commit(self._note_closed)

    def _note_closed(self, db: Db) -> None:
        """Of all that are not open: what could not be written before is."""
        db.execute(
            "UPDATE console_stream SET until = ? WHERE process = ? AND until IS NULL"
            f" AND stream NOT IN ({marks(self._consoles) or '0'})",
            *(self._clock() + BACK, self._name, *self._consoles),
        )

    async def _watch(self, device: int, link: int, lease: Lease) -> None:
        held = True
        while held:
            taken = self._store.heard(topic(device))
            try:
                held = await self._store.read(lambda db: _holds(db, self._name, link, device))
            except StoreUnavailable as trouble:
                # The agent does better with another process.
                lease.stranded, held = str(trouble), False
            if held:
                await taken.wait()
        lease.lost.set()


def topic(device: int) -> str:
    """Return what is announced when a lease is taken."""
    return f"lease {device}"


def end(db: Db, device: int) -> None:
    """Take the lease away from whoever has it: the link ends, and proves itself anew."""
    db.execute("DELETE FROM lease WHERE device = ?", device)
    db.announce(topic(device))


def linked(db: Db, now: float) -> int:
    """Return how many devices are linked, over all processes."""
    ((devices,),) = db.execute(f"SELECT count(*) FROM device WHERE {IS_LINKED}", now)
    return int(devices)


def _live(db: Db, process: str, until: float) -> None:
    db.execute(
        "INSERT INTO process (name, until) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET until = excluded.until",
        process,
        until,
    )


def _forget_others(db: Db, process: str) -> None:
    db.execute("DELETE FROM process WHERE name <> ?", process)


def _take(db: Db, process: str, link: int, device: int, *, until: float) -> None:
    _live(db, process, until)
    db.execute(
        "INSERT INTO lease (device, process, link) VALUES (?, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET process = excluded.process, link = excluded.link",
        device,
        process,
        link,
    )
    db.announce(topic(device))


def _holds(db: Db, process: str, link: int, device: int) -> bool:
    return bool(
        db.execute(
            "SELECT 1 FROM lease WHERE device = ? AND process = ? AND link = ?",
            device,
            process,
            link,
        )
    )
