"""What stands in the body of an item, and beside it, in the database."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from fieldagent.package.package import Item, Message
from fieldagent.wire.envelope import Entry, decode
from fieldagent.wire.errors import RemoteProtocolError

T = TypeVar("T")

log = logging.getLogger(__name__)

DAMAGED_ROW = "damaged in the hub's database"
"""What is said of something whose row is."""
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


def stored_beside(text: str | None, make: Callable[..., T]) -> T | None:
    """Return what `make` makes of the members of a JSON object; None where `text` is empty or is
    damaged: the item is told of without that."""
    if not text:
        return None
    with suppress(ValueError, TypeError):
        return make(**json.loads(text))
    _note_damaged(text.encode())
    return None


@lru_cache(maxsize=100)
def stored_members(text: str, what: str) -> Mapping[str, Any]:
    """Return a JSON object as the database has it. Of one that is damaged there it has no member,
    and is logged once as `what`: others of its kind are not to stand still for it."""
    with suppress(ValueError):
        if isinstance(members := json.loads(text), dict):
            return members
    log.error(
        "%s: damaged in the database, and gone on without (%d characters: %s); remove and add it"
        " anew",
        *(what, len(text), ascii(text[:40])),
    )
    return {}


@lru_cache(maxsize=100)
def stored_objects(text: str, what: str) -> Sequence[Mapping[str, Any]]:
    """Return a JSON array of objects from the database. A damaged one is empty, and logged once
    under the name `what`."""
    with suppress(ValueError):
        objects = json.loads(text or "[]")
        if isinstance(objects, list) and all(isinstance(each, dict) for each in objects):
            return objects
    log.error(
        "%s: damaged in the database, lists leave it out (%d characters: %s)",
        *(what, len(text), ascii(text[:40])),
    )
    return []


@lru_cache(maxsize=100)
def _note_damaged(body: bytes) -> None:
    """Once for each."""
    log.error(
        "an item is damaged in the database, and is told of without that (%d bytes: %s): look"
        " at the disk, and restore it from a backup if there are many",
        *(len(body), body[:40].hex()),
    )
