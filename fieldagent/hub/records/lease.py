"""Which link a device has, of all links in all processes of the hub: a lease in the store.

A lease is a process's. It holds as long as that lives, which the process says for all of its links
at once: a link at rest costs the store nothing. Rules:

1. The newest link of a device takes the lease; who had it is told, and ends.
2. Who takes a device out of use, or gives it another token, takes its lease away.
3. A process that has said nothing for `LEASE` seconds has no links.
4. A store in a file is of one process. That says once that it lives, and what a process before it
   left is gone.
5. A link that has ended while nothing could be written is given back once something can: its device
   would be linked for as long as the process lives, and be sent nothing over satellite.
6. A process whose clock was ahead and that has died is gone as well: what it said last stays as it
   is, and another has watched it for `LEASE` seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
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
from fieldagent.system.lazy_named_tuple import NamedTuple

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


class _Watched(NamedTuple):
    until: float
    """What it says: until when it lives."""
    since: float
    """Since when it says that (trio's clock)."""


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
        self._ended: dict[int, int] = {}
        """Links that have ended, and may still be written down as being there, with their devices.
        """
        self._owes = trio.Event()
        """Set where an end could not be written down."""

    async def run(self) -> None:
        """Say again and again that this process lives, while it has links or consoles, and write
        down what ended while that could not be."""
        if not self._store.shared:
            await self._store.commit(lambda db: _forget_others(db, self._name))
        watched: dict[str, _Watched] = {}
        while True:
            if not self._store.shared:
                await self._owes.wait()
            with told_once():
                if self.links or self._consoles or self._owes.is_set():
                    await self._say()
                if self._store.shared:
                    watched = await self._watch_others(watched)
            await waits.sleep(LEASE / 3)

    async def _say(self) -> None:
        self._owes, ended = trio.Event(), {**self._ended}
        try:
            await self._store.commit(partial(self._live_on, ended=ended))
        except NOT_STORED:
            self._owes.set()
            raise
        for link in ended:
            self._ended.pop(link, None)

    async def _watch_others(self, before: Mapping[str, _Watched]) -> dict[str, _Watched]:
        """Look at those who say that they live for longer than any does, and forget who says
        nothing more; return who is left, and since when each has said the same."""
        now = trio.current_time()
        rows = await self._store.read(lambda db: _far_ahead(db, self._clock() + LEASE))
        watched = {
            name: known
            if (known := before.get(name)) is not None and known.until == until
            else _Watched(until, now)
            for name, until in rows
        }
        for name, known in watched.items():
            if now - known.since > LEASE:
                await self._store.commit(partial(_forget, process=name, until=known.until))
        return watched

    def _live_on(self, db: Db, ended: Mapping[int, int]) -> None:
        _live(db, self._name, self._until())
        self._note_closed(db)
        for link, device in ended.items():
            _end_link(db, self._name, link, device)
        db.execute("DELETE FROM process WHERE until < ?", self._clock() - FORGET)

    def _until(self) -> float:
        return self._clock() + LEASE if self._store.shared else inf

    @asynccontextmanager
    async def held(self, device: Device) -> AsyncIterator[Lease]:
        """Take the lease from whoever has it. Raises StoreUnavailable, StoreFull,
        StoreFailed."""
        lease, link = Lease(), next(self._numbers)
        try:
            await self._store.commit(
                lambda db: _take(db, self._name, link, device.id, until=self._until())
            )
        except NOT_STORED:
            # Of a commit that broke nobody knows whether it was stored.
            self._note_owed(link, device.id)
            raise
        self.links += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, device.id, link, lease)
                yield lease
                nursery.cancel_scope.cancel()
        finally:
            self.links -= 1
            with trio.CancelScope(shield=True):
                try:
                    await self._store.commit(partial(self._give_back, link=link, device=device.id))
                except NOT_STORED:
                    self._note_owed(link, device.id)

    def _note_owed(self, link: int, device: int) -> None:
        self._ended[link] = device
        self._owes.set()

    def _give_back(self, db: Db, link: int, device: int) -> None:
        """What was on its way over the link goes over satellite once its grace has passed."""
        _end_link(db, self._name, link, device)
        contact.note(db, device, Bearer.IP, self._clock())

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
            with trio.CancelScope(shield=True):
                try:
                    await self._store.commit(self._note_closed)
                except NOT_STORED:
                    self._owes.set()

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


def _far_ahead(db: Db, moment: float) -> list[tuple[str, float]]:
    """Return the processes that say that they live beyond that moment, and until when."""
    rows = db.execute("SELECT name, until FROM process WHERE until > ?", moment)
    return [(name, float(until)) for name, until in rows]


def _forget(db: Db, process: str, until: float) -> None:
    """Forget a process with its links, unless it has said something else meanwhile."""
    db.execute("DELETE FROM process WHERE name = ? AND until = ?", process, until)
    db.announce("satellite")


def _end_link(db: Db, process: str, link: int, device: int) -> None:
    db.execute(
        "DELETE FROM lease WHERE device = ? AND process = ? AND link = ?", device, process, link
    )
    db.announce("satellite")


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
