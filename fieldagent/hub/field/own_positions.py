"""Selects the positions of other kits that one linked kit gets, from the feed of its workspace."""

from __future__ import annotations

import trio

from fieldagent.hub.contract import Device
from fieldagent.hub.field.envelope_packing import Load, get_names_topic, list_introduced
from fieldagent.hub.field.position_feed import Position, PositionFeed, PositionFeeds
from fieldagent.hub.records import newest
from fieldagent.hub.store.contract import Store
from fieldagent.wire.link import BODIES_MAX, HEAD

NAMES_MAX = 10
"""Largest number of names in one message. The hub stores a row for each name. One commit must be
able to store the rows for simultaneous messages to a thousand kits."""


class OwnPositions:
    """Positions for one link. Only one message with positions is unconfirmed at a time."""

    def __init__(self, store: Store, device: Device, feeds: PositionFeeds) -> None:
        self.number = 0
        """Number of the message in flight; 0 if no message is in flight."""
        self._store = store
        self._device = device
        self._feeds = feeds
        self._place: int | None = None
        """Place in the feed up to which the kit has all positions; None before it is read from the
        database."""
        self._generation = 0
        """Value of the feed's `generation` when the place was read."""
        self._names = 0
        """Bit marks of the names that the kit has (`position_feed.Name`)."""
        self._names_lost: trio.Event | None = None
        """Set when the kit has lost the names; None before the names are read."""
        self._last_place = 0
        """Place in the feed up to which the kit has all positions after the message in flight."""
        self._load = Load()
        """Names in the message in flight."""
        self._marks = 0

    @property
    def _feed(self) -> PositionFeed:
        return self._feeds.get_feed(self._device.workspace)

    def wake(self, event: trio.Event) -> None:
        """Register an event that is set when there are later positions. The feed holds only a weak
        reference to the event.
        """
        self._feed.waiting.add(event)

    async def load(self, capacity: int) -> tuple[bytes, ...]:
        """Return the bodies of a message with the positions that the kit does not have. The result
        is empty if the kit has all positions.
        """
        feed = self._feed
        await feed.refresh()
        if self.number:
            return ()
        if self._place is None or self._generation != feed.generation:
            self._generation = feed.generation
            self._place = await self._store.read_together(
                newest.list_stored_places, self._device.id
            )
        if self._place is None or self._place >= feed.last_place:
            return ()
        last_place, positions = (
            feed.last_place,
            feed.list_after(self._place, self._device.id, self._device.member),
        )
        positions = await self._remove_stored(positions)
        if not positions:
            self._place = last_place
            return ()
        await self._read_names(feed)
        return self._pack(feed, positions, last_place, capacity)

    async def _remove_stored(self, positions: list[Position]) -> list[Position]:
        """Return the positions for which this device has no delivery row."""
        feed, device = self._feed, self._device.id
        if device not in feed.row_devices or not positions:
            return positions
        items = [each.item for each in positions]
        remaining = await self._store.read(lambda db: newest.find_without_row(db, device, items))
        return [each for each in positions if each.item in remaining]

    async def _read_names(self, feed: PositionFeed) -> None:
        if self._names_lost is not None and not self._names_lost.is_set():
            return
        device = self._device.id
        self._names_lost = self._store.get_event(get_names_topic(device))
        self._names = feed.get_known_marks(
            await self._store.read(lambda db: list_introduced(db, device))
        )

    def _pack(
        self, feed: PositionFeed, positions: list[Position], last_place: int, capacity: int
    ) -> tuple[bytes, ...]:
        """Return as many positions as fit, the earliest first, with the names that the kit does not
        have.
        """
        bodies: list[bytes] = []
        size, self._marks, self._load, self._last_place = 0, self._names, Load(), last_place
        for each in positions:
            name, body = feed.names[each.sender], each.body
            introduces = not name.bit & self._marks
            if introduces:
                body = each.encode_introduction(name)
            size += len(body) + HEAD
            introduced_count = len(self._load.introduced) + introduces
            if bodies and (
                size > capacity or len(bodies) == BODIES_MAX or introduced_count > NAMES_MAX
            ):
                return tuple(bodies)
            if introduces:
                self._marks |= name.bit
                self._load.introduced.append((each.sender, name.digest))
            bodies.append(body)
            self._last_place = each.place
        self._last_place = last_place
        return tuple(bodies)

    def get_sent(self) -> tuple[Load, int]:
        """Return the names in the message in flight, and the last place in it."""
        return self._load, self._last_place

    def mark_stored(self) -> None:
        """Record that the kit has stored the message in flight."""
        self.number, self._place, self._names = 0, self._last_place, self._marks
