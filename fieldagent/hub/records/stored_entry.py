"""What stands in the body of an item, in the database."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import lru_cache

from fieldagent.package.package import Item, Message
from fieldagent.wire.envelope import Entry, decode
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

DAMAGED = "(What was said here is damaged in the hub's database.)"


def stored_entry(body: bytes) -> Entry:
    """Return the one entry of an item's envelope, under no number yet. Of one that is damaged it
    says so in its stead: whoever has many items to tell of stands still at none."""
    with suppress(RemoteProtocolError, ValueError):
        (stored,) = decode(bytes(body)).entries
        if isinstance(stored.content, Item):
            return stored
    _note_damaged(bytes(body))
    return Entry(0, Message(DAMAGED))


@lru_cache(maxsize=100)
def _note_damaged(body: bytes) -> None:
    """Once for each."""
    log.error(
        "an item is damaged in the database, and is told of without its content (%d bytes: %s):"
        " look at the disk, and restore it from a backup if there are many",
        *(len(body), body[:40].hex()),
    )
