"""An envelope to which entries are added until it is full. Each new entry is encoded once."""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.seal import seal


class Draft:
    """Unfinished envelope of one transmission. `origin` is the sender's number, 0 if the link
    identifies the sender. The envelope is tagged with `key`, or encrypted with it if `is_sealed`.
    If `is_packed`, texts are compressed.
    """

    def __init__(
        self, origin: int, key: bytes | None, *, is_sealed: bool = False, is_packed: bool = False
    ) -> None:
        self.entries: list[Entry] = []
        self.body = b""
        """Encoded content, without the tag."""
        self.origin = origin
        self._key = key
        self._sealed = is_sealed
        self._packed = is_packed

    def __len__(self) -> int:
        """Return the size of the encoded envelope in bytes."""
        return len(self.body)

    def begin(self, entry: Entry, body: bytes) -> None:
        """Start the envelope with its first entry. `body` is the encoded envelope with this
        entry.
        """
        self.entries, self.body = [entry], body

    def encode_with(self, *more: Entry) -> bytes:
        """Return the encoded envelope with the entries `more` added at its end."""
        entries = [*self.entries, *more]
        if self._sealed and self._key is not None:
            return seal(encode(entries, origin=self.origin, is_packed=self._packed), self._key)
        return encode(entries, origin=self.origin, key=self._key, is_packed=self._packed)

    def add(self, entry: Entry, capacity: int) -> bool:
        """Add the entry if the envelope then fits into `capacity` bytes. Return True if the entry
        was added.
        """
        return self.add_all([entry], capacity)

    def add_all(self, entries: Sequence[Entry], capacity: int) -> bool:
        """Add all entries if the envelope then fits into `capacity` bytes. Return True if they were
        added.
        """
        body = self.encode_with(*entries)
        if len(body) > capacity:
            return False
        self.entries += entries
        self.body = body
        return True
