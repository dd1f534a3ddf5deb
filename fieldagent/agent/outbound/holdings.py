"""What we have of other stations, so that one entry acknowledges several of their items."""

from __future__ import annotations

from collections.abc import Iterable

from fieldagent.wire.bitmap import SEVERAL_MAX
from fieldagent.wire.envelope import Ack, Entry, digest_of_slices

STATIONS_MAX = 1000
NEAR = SEVERAL_MAX // 2
"""How far a number may be from the newest to be told with it."""


class Holdings:
    """Of items that are no SOS: each of those is acknowledged by itself."""

    def __init__(self) -> None:
        self._readers: dict[int, None] = {}
        """Stations that read such an entry; one of an older kit skips it."""
        self._items: dict[int, dict[int, bytes]] = {}
        """By station and number, their digests; the newest is the last."""

    def note_reader(self, station: int) -> None:
        self._readers[station] = None
        while len(self._readers) > STATIONS_MAX:
            del self._readers[next(iter(self._readers))]

    def note(self, station: int, items: Iterable[tuple[int, bytes]]) -> None:
        """They are here: numbers with the digests of their items."""
        known = self._items.setdefault(station, {})
        for number, digest in items:
            known.pop(number, None)
            known[number] = digest
        while len(known) > SEVERAL_MAX:
            del known[next(iter(known))]
        while len(self._items) > STATIONS_MAX:
            del self._items[next(iter(self._items))]

    def several(self, station: int) -> Entry | None:
        """Acknowledges its newest, and again those near them: what was said before may be lost.
        None where it would not be read."""
        known = self._items.get(station)
        if not known or station not in self._readers:
            return None
        newest = next(reversed(known))
        told = sorted(number for number in known if abs(number - newest) < NEAR)
        arrived = frozenset(number - told[0] for number in told)
        digest = digest_of_slices(known[number] for number in told)
        return Entry(told[0], Ack(station, 0, arrived, digest=digest))


def numbers_of(several: Entry) -> list[int]:
    """Those that it acknowledges, in order."""
    assert isinstance(several.content, Ack)
    return [several.sequence + index for index in sorted(several.content.arrived)]
