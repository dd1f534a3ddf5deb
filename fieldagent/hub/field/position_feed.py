"""Newest positions of a workspace. They are read once for all kits of the workspace that have a
link to this process.

A kit gets all positions that it does not have in one message, at most once per pause. The pause is
longer if more kits are linked, so that a workspace has at most `MESSAGES_PER_S` such messages per
second. So the cost of a position does not grow with the number of kits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import field, replace
from math import inf
from weakref import WeakSet

import trio

from fieldagent.hub.field.envelope_packing import introduce_members
from fieldagent.hub.records import newest, workspace_log
from fieldagent.hub.records.newest import StoredPosition
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry, Source, encode

SEND_INTERVAL_MIN_S = 1.0
"""Shortest time in seconds between two messages with positions to a kit."""
MESSAGES_PER_S = 50.0
"""Largest number of messages with positions per second to the kits of one workspace."""
RETRY_S, PAUSE = 1.0, 0.05
"""Seconds until the next read if the database was unavailable, and shortest number of seconds
between two reads."""


@dataclass(slots=True)
class Position:
    place: int
    device: int
    sender: int
    item: int
    expires: float
    entries: list[Entry]
    """The item and its `Source`, from which a kit recognises an item that it has already. The item
    has number 0, so that it uses none of the kit's numbers."""
    body: bytes
    """Envelope with the position. It is the same for every kit."""
    with_name: tuple[Name, bytes] | None = None
    """Name of the sender, and the envelope with the introduction of this name. None until a kit
    needs the name."""

    def encode_introduction(self, name: Name) -> bytes:
        """Return the envelope with the sender's name and the position."""
        if self.with_name is None or self.with_name[0] is not name:
            body = encode([name.entry, *self.entries], origin=self.sender)
            self.with_name = name, body
        return self.with_name[1]


class Name(NamedTuple):
    """A sender's introduction and its bit in a set of names."""

    digest: bytes
    entry: Entry
    bit: int
    """A power of two that represents the name in a set of names, which is a bit mask."""


@dataclass(slots=True, eq=False)
class PositionFeed:
    """Newest positions of one workspace, by device and sender, in the order of their places."""

    store: Store
    workspace: int
    clock: Callable[[], float]
    pause_min_s: float
    waiting: WeakSet[trio.Event] = field(default_factory=WeakSet)
    """Events of the links that wait for later positions."""
    last_place: int = 0
    """Last place that was read."""
    generation: int = 0
    """Counter that increases when the workspace's people change, or when the database returns to an
    earlier state."""
    row_devices: frozenset[int] = frozenset()
    """Devices for which the hub creates a delivery row of each position immediately."""
    links: int = 0
    unused: trio.Event = field(default_factory=trio.Event)
    """Set when the last link has ended."""
    names: dict[int, Name] = field(default_factory=dict)
    _positions: dict[newest.PositionSender, Position] = field(default_factory=dict)
    _news_event: trio.Event | None = None
    """Set when there may be new positions to read; None before the first read."""
    _not_before: float = -inf
    """Earliest time of the next read, on trio's clock."""
    _turn: trio.Lock = field(default_factory=trio.Lock)
    _directory: int = -1
    """Version of the workspace's directory that was read last."""
    _bits: int = 1
    """Bit mark of the next new name."""

    async def refresh(self) -> None:
        """If there may be new positions and the pause is over, read them and wake the links. Raises
        the errors of `Store.read`.
        """
        if not self._is_due():
            return
        async with self._turn:
            if self._is_due():
                await self._read()

    def _is_due(self) -> bool:
        is_behind = self._news_event is None or self._news_event.is_set()
        return is_behind and trio.current_time() >= self._not_before

    async def _read(self) -> None:
        now, change = trio.current_time(), self.store.get_event(newest.get_topic(self.workspace))
        workspace, last_place = self.workspace, self.last_place
        self._not_before = now + RETRY_S  # Time of the next read if this one fails.
        found_positions = await self.store.read(lambda db: _read(db, workspace, last_place))
        if found_positions.directory != self._directory:
            self._directory, self.generation = found_positions.directory, self.generation + 1
        if found_positions.end < last_place:
            # The database was restored to an earlier state: read everything again.
            self._positions.clear()
            self.last_place, self.generation, self._not_before = 0, self.generation + 1, now
            return
        self._news_event = change
        self._not_before = now + max(self.pause_min_s, self.links / MESSAGES_PER_S)
        self.row_devices = found_positions.row_devices
        for digest, entry in found_positions.names:
            name = self.names.get(entry.sequence)
            if name is None or name.digest != digest:
                self.names[entry.sequence] = Name(digest, entry, self._bits)
                self._bits *= 2
        for each in found_positions.positions:
            if each.sender in self.names:  # Skip senders that were deleted meanwhile.
                track = newest.PositionSender(each.device, each.sender)
                # Move the sender to the end, because the positions must stay in the order of their
                # places.
                self._positions.pop(track, None)
                self._positions[track] = _make_position(each)
        self.last_place = found_positions.end
        if found_positions.positions:
            for event in self.waiting:
                event.set()
            self.waiting.clear()

    async def run(self) -> None:
        """Read new positions after each pause, until cancelled."""
        while True:
            with skip_if_unavailable():
                await self.refresh()
            announced = self._news_event
            if announced is None:
                await trio.sleep(RETRY_S)
            elif announced.is_set():
                await trio.sleep_until(max(self._not_before, trio.current_time() + PAUSE))
            else:
                await announced.wait()

    def list_after(self, after_place: int, device: int, member: int) -> list[Position]:
        """Return the unexpired positions after `after_place` that do not come from this device or
        member.
        """
        now, later_positions = self.clock(), []
        for each in reversed(self._positions.values()):
            if each.place <= after_place:
                break
            if each.sender != member and each.device != device and each.expires > now:
                later_positions.append(each)
        later_positions.reverse()
        return later_positions

    def get_known_marks(self, introduced: Iterable[tuple[int, bytes]]) -> int:
        """Return the bit marks of the names that a kit has. Each is given as a member and the
        digest of the introduction.
        """
        marks = 0
        for member, digest in introduced:
            name = self.names.get(member)
            if name is not None and name.digest == digest:
                marks |= name.bit
        return marks


class _FeedUpdate(NamedTuple):
    end: int
    directory: int
    row_devices: frozenset[int]
    positions: list[StoredPosition]
    names: list[tuple[bytes, Entry]]


def _read(db: Db, workspace: int, last_place: int) -> _FeedUpdate:
    # Read the last place first. A position that is stored between the two reads is then read again.
    sql = "SELECT tracked, directory FROM workspace WHERE id = ?"
    end, directory = (db.execute(sql, workspace) or [(0, 0)])[0]
    positions = [each for each in newest.list_after(db, workspace, last_place) if each.place <= end]
    names = introduce_members(db, {each.sender for each in positions}, workspace)
    row_devices = frozenset(workspace_log.list_direct(db, [workspace], positions=True))
    return _FeedUpdate(end, directory, row_devices, positions, names)


def _make_position(row: StoredPosition) -> Position:
    entry = replace(decode_stored_entry(bytes(row.body)), sequence=0)
    entries = [entry, Entry(0, Source(row.device, row.sequence))]
    body = encode(entries, origin=row.sender)
    log_place, device, sender, item = row[:4]
    return Position(log_place, device, sender, item, row.expires, entries, body)


class PositionFeeds:
    """Feeds of the workspaces that have links to this process."""

    def __init__(
        self, store: Store, *, clock: Callable[[], float], pause_min_s: float = SEND_INTERVAL_MIN_S
    ) -> None:
        self._store = store
        self._clock = clock
        self._pause_min_s = pause_min_s
        self._feeds: dict[int, PositionFeed] = {}
        self._nursery: trio.Nursery | None = None

    def get_feed(self, workspace: int) -> PositionFeed:
        """Return the feed of a workspace. The first call for a workspace creates its feed."""
        if workspace not in self._feeds:
            feed = PositionFeed(self._store, workspace, self._clock, self._pause_min_s)
            self._feeds[workspace] = feed
        return self._feeds[workspace]

    async def run(self) -> None:
        """Run the feeds of all workspaces that have links, until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                for feed in self._feeds.values():
                    self._nursery.start_soon(self._refresh_feed, feed)
                await trio.sleep_forever()
        finally:
            self._nursery = None

    async def _refresh_feed(self, feed: PositionFeed) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed.run)
            await feed.unused.wait()
            nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def join_feed(self, workspace: int) -> AsyncIterator[None]:
        """Run the feed of a workspace while a link uses it."""
        feed = self.get_feed(workspace)
        feed.links += 1
        if feed.links == 1 and self._nursery is not None:
            self._nursery.start_soon(self._refresh_feed, feed)
        try:
            yield
        finally:
            feed.links -= 1
            if feed.links == 0:
                del self._feeds[workspace]
                feed.unused.set()
