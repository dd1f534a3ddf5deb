"""Leases in the store. The lease of a device shows which link, of all hub processes, belongs to it.

A lease is valid as long as its process is alive. A process makes one report for all its links, so
an idle link causes no writes. Rules:

1. The newest link of a device takes the lease. The previous link is notified and ends.
2. If a device is disabled or gets another token, its lease is removed.
3. A process that has not reported for `LEASE_S` seconds has no links.
4. A database file belongs to one process. This process reports once, and deletes the leases of
   earlier processes.
5. If a link ends while the store cannot write, its lease is released as soon as the store can write
   again. Otherwise, the device would count as linked while the process lives, and would get nothing
   over satellite.
6. A dead process whose clock was fast is removed too, if its last report has not changed while
   another process watched it for `LEASE_S` seconds.
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
from fieldagent.hub.store.contract import Db, Store, make_marks
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.store.group import NOT_STORED, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

LEASE_S = 30.0
"""Seconds after a process's last report for which the process counts as alive, and its leases as
valid."""

CONSOLE_RETURN_S = 10.0
"""Seconds within which a console usually reconnects after its stream has ended, for example after
the user reloads the page."""

FORGET_AFTER_S = 3600.0
"""Seconds after which the record of a dead process is deleted."""

IS_LINKED = (
    "EXISTS (SELECT 1 FROM lease JOIN process ON process.name = lease.process"
    " WHERE lease.device = device.id AND process.until > ?)"
)
"""SQL condition: the `device` is linked. Parameter: the Unix time."""


@dataclass(slots=True)
class Lease:
    lost: trio.Event = field(default_factory=trio.Event)
    """Event that is set when the link must end."""
    stranded: str = ""
    """Reason why the owner of the lease is unknown. Empty if another link has the lease, or if the
    device must not have a lease."""


class _WatchedProcess(NamedTuple):
    until: float
    """Unix time until which the process is alive, according to its own report."""
    since: float
    """Time on trio's clock when this process first saw the current value of `until`."""


class Leases:
    """Leases of one process. The `name` of the process is unique."""

    def __init__(self, store: Store, name: str, *, clock: Callable[[], float]) -> None:
        self._store = store
        self._name = name
        self._clock = clock
        self._numbers = count(1)
        self.links = 0
        """Number of links that this process serves now."""
        self._consoles: set[int] = set()
        self._ended_links: dict[int, int] = {}
        """Links that have ended but may still be stored as open. Maps the number of a link to its
        device."""
        self._owes = trio.Event()
        """Set when the end of a link could not be stored."""

    async def run(self) -> None:
        """Renew this process's lease while the process has links or consoles. Also try again to
        store the ends of links and consoles that could not be stored before.
        """
        if not self._store.shared:
            await self._store.commit(lambda db: _forget_others(db, self._name))
        watched: dict[str, _WatchedProcess] = {}
        while True:
            if not self._store.shared:
                await self._owes.wait()
            with skip_if_unavailable():
                if self.links or self._consoles or self._owes.is_set():
                    await self._acquire_lease()
                if self._store.shared:
                    watched = await self._watch_others(watched)
            await waits.sleep(LEASE_S / 3)

    async def _acquire_lease(self) -> None:
        self._owes, ended_leases = trio.Event(), {**self._ended_links}
        try:
            await self._store.commit(partial(self._renew_leases, ended_links=ended_leases))
        except NOT_STORED:
            self._owes.set()
            raise
        for link in ended_leases:
            self._ended_links.pop(link, None)

    async def _watch_others(
        self, watched_before: Mapping[str, _WatchedProcess]
    ) -> dict[str, _WatchedProcess]:
        """Return the processes whose reported end is impossibly far in the future, because their
        clock was fast. Delete each of them whose report has not changed for `LEASE_S` seconds.
        """
        now = trio.current_time()
        rows = await self._store.read(lambda db: _list_far_ahead(db, self._clock() + LEASE_S))
        watched = {
            name: earlier_lease
            if (earlier_lease := watched_before.get(name)) is not None
            and earlier_lease.until == until
            else _WatchedProcess(until, now)
            for name, until in rows
        }
        for name, earlier_lease in watched.items():
            if now - earlier_lease.since > LEASE_S:
                await self._store.commit(partial(_forget, process=name, until=earlier_lease.until))
        return watched

    def _renew_leases(self, db: Db, ended_links: Mapping[int, int]) -> None:
        _store_alive(db, self._name, self._compute_end())
        self._store_closed_consoles(db)
        for link, device in ended_links.items():
            _end_link(db, self._name, link, device)
        db.execute("DELETE FROM process WHERE until < ?", self._clock() - FORGET_AFTER_S)

    def _compute_end(self) -> float:
        return self._clock() + LEASE_S if self._store.shared else inf

    @asynccontextmanager
    async def hold_lease(self, device: Device) -> AsyncIterator[Lease]:
        """Hold the lease of a device during a link. Raises StoreUnavailable, StoreFull or
        StoreFailed.
        """
        lease, link = Lease(), next(self._numbers)
        try:
            await self._store.commit(
                lambda db: _store_lease(db, self._name, link, device.id, until=self._compute_end())
            )
        except NOT_STORED:
            # The outcome of a failed commit is unknown, so the lease must be released later.
            self._store_owed_end(link, device.id)
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
                    await self._store.commit(
                        partial(self._release_link, link=link, device=device.id)
                    )
                except NOT_STORED:
                    self._store_owed_end(link, device.id)

    def _store_owed_end(self, link: int, device: int) -> None:
        self._ended_links[link] = device
        self._owes.set()

    def _release_link(self, db: Db, link: int, device: int) -> None:
        """End a link. After their grace period, deliveries that were under way over the link are
        sent over satellite.
        """
        _end_link(db, self._name, link, device)
        contact.record_contact(db, device, Bearer.IP, self._clock())

    @asynccontextmanager
    async def hold_console(self, workspace: int, member: int) -> AsyncIterator[None]:
        """Record that the member has a console open at this process. The record lasts until
        `CONSOLE_RETURN_S` seconds after the console's stream has ended, because a reloaded console
        connects again. Raises StoreUnavailable, StoreFull, StoreFailed.
        """
        stream = next(self._numbers)

        def begin(db: Db) -> None:
            _store_alive(db, self._name, self._compute_end())
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
                    await self._store.commit(self._store_closed_consoles)
                except NOT_STORED:
                    self._owes.set()

    def _store_closed_consoles(self, db: Db) -> None:
        """Store the end of all consoles that are not open. This includes consoles whose end could
        not be stored before.
        """
        db.execute(
            "UPDATE console_stream SET until = ? WHERE process = ? AND until IS NULL"
            f" AND stream NOT IN ({make_marks(self._consoles) or '0'})",
            *(self._clock() + CONSOLE_RETURN_S, self._name, *self._consoles),
        )

    async def _watch(self, device: int, link: int, lease: Lease) -> None:
        is_held = True
        while is_held:
            taken_event = self._store.get_event(get_topic(device))
            try:
                is_held = await self._store.read(lambda db: _is_held(db, self._name, link, device))
            except StoreUnavailable as trouble:
                # End the link. The agent can then connect to another process, which may be able to
                # reach the store.
                lease.stranded, is_held = str(trouble), False
            if is_held:
                await taken_event.wait()
        lease.lost.set()


def get_topic(device: int) -> str:
    """Return the topic that is announced when another link takes the lease of a device."""
    return f"lease {device}"


def remove_lease(db: Db, device: int) -> None:
    """Remove the lease of a device. Its link ends, and the device must authenticate again."""
    db.execute("DELETE FROM lease WHERE device = ?", device)
    db.announce(get_topic(device))


def count_linked(db: Db, now: float) -> int:
    """Return the number of linked devices of all processes."""
    ((devices,),) = db.execute(f"SELECT count(*) FROM device WHERE {IS_LINKED}", now)
    return int(devices)


def _store_alive(db: Db, process: str, until: float) -> None:
    db.execute(
        "INSERT INTO process (name, until) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET until = excluded.until",
        process,
        until,
    )


def _forget_others(db: Db, process: str) -> None:
    db.execute("DELETE FROM process WHERE name <> ?", process)


def _list_far_ahead(db: Db, moment: float) -> list[tuple[str, float]]:
    """Return the name and the reported end of each process that reports an end after `moment`."""
    rows = db.execute("SELECT name, until FROM process WHERE until > ?", moment)
    return [(name, float(until)) for name, until in rows]


def _forget(db: Db, process: str, until: float) -> None:
    """Delete a process with its links, unless the process has reported another end than `until`
    meanwhile.
    """
    db.execute("DELETE FROM process WHERE name = ? AND until = ?", process, until)
    db.announce("satellite")


def _end_link(db: Db, process: str, link: int, device: int) -> None:
    db.execute(
        "DELETE FROM lease WHERE device = ? AND process = ? AND link = ?", device, process, link
    )
    db.announce("satellite")


def _store_lease(db: Db, process: str, link: int, device: int, *, until: float) -> None:
    _store_alive(db, process, until)
    db.execute(
        "INSERT INTO lease (device, process, link) VALUES (?, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET process = excluded.process, link = excluded.link",
        device,
        process,
        link,
    )
    db.announce(get_topic(device))


def _is_held(db: Db, process: str, link: int, device: int) -> bool:
    return bool(
        db.execute(
            "SELECT 1 FROM lease WHERE device = ? AND process = ? AND link = ?",
            device,
            process,
            link,
        )
    )
