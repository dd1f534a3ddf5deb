"""An envelope that is being filled: each entry that is tried is encoded once, beside the others."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.seal import seal


class Draft:
    """`origin` is the number of who sends, 0 where the link says who that is; `key` tags it, or
    hides it where it is `sealed`; with `packed` its texts take fewer bytes."""

    def __init__(
        self, origin: int, key: bytes | None, *, sealed: bool = False, packed: bool = False
    ) -> None:
        self.entries: list[Entry] = []
        self.body = b""
        """What is in it, encoded."""
        self.origin = origin
        self._key = key
        self._sealed = sealed
        self._packed = packed

    def __len__(self) -> int:
        """Bytes."""
        return len(self.body)

    def begin(self, entry: Entry, body: bytes) -> None:
        """Begin with the first entry, which was encoded before."""
        self.entries, self.body = [entry], body

    def encoded(self, *more: Entry) -> bytes:
        """Return what it would be with these as well."""
        entries = [*self.entries, *more]
        if self._sealed and self._key is not None:
            return seal(encode(entries, origin=self.origin, packed=self._packed), self._key)
        return encode(entries, origin=self.origin, key=self._key, packed=self._packed)

    def add(self, entry: Entry, capacity: int) -> bool:
        """Return whether it still fits into `capacity` bytes; then it is in."""
        return self.add_all([entry], capacity)

    def add_all(self, entries: Sequence[Entry], capacity: int) -> bool:
        """Return whether all of them still fit into `capacity` bytes; then they are in."""
        body = self.encoded(*entries)
        if len(body) > capacity:
            return False
        self.entries += entries
        self.body = body
        return True
