"""Readers for an item's body in the database, and for JSON columns."""

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
"""Text for a damaged row."""
DAMAGED_TEXT = "(This text is damaged in the hub's database.)"


def decode_stored_entry(body: bytes) -> Entry:
    """Return the entry in an item's envelope, without a number. If the body is damaged, return a
    message about the damage, so that one damaged item does not block a list.
    """
    entry = _read_entry(bytes(body))
    if entry is None:
        _log_damage_once(bytes(body))
        return Entry(0, Message(DAMAGED_TEXT))
    return entry


@lru_cache(maxsize=100)
def _read_entry(body: bytes) -> Entry | None:
    """Return the entry, or None if it is damaged. Results are cached, because the hub reads the
    same item for many kits in succession.
    """
    with suppress(RemoteProtocolError, ValueError):
        (stored,) = decode(body).entries
        if isinstance(stored.content, Item):
            return stored
    return None


def parse_stored_object(text: str | None, make: Callable[..., T]) -> T | None:
    """Call `make` with the members of a JSON object, and return the result. Return None if `text`
    is empty or damaged, so that the item can be shown without this part.
    """
    if not text:
        return None
    with suppress(ValueError, TypeError):
        return make(**json.loads(text))
    _log_damage_once(text.encode())
    return None


@lru_cache(maxsize=100)
def load_stored_object(text: str, content_name: str) -> Mapping[str, Any]:
    """Return a JSON object from the database. If the object is damaged, return an empty object, so
    that one damaged object does not block others. The damage is logged once under the name
    `content_name`.
    """
    with suppress(ValueError):
        if isinstance(members := json.loads(text), dict):
            return members
    log.error(
        "%s: damaged in the database, and ignored (%d characters: %s); remove it, and add it again",
        *(content_name, len(text), ascii(text[:40])),
    )
    return {}


@lru_cache(maxsize=100)
def load_stored_objects(text: str, content_name: str) -> Sequence[Mapping[str, Any]]:
    """Return a JSON array of objects from the database. If the array is damaged, return an empty
    array and log the damage once under the name `content_name`.
    """
    with suppress(ValueError):
        objects = json.loads(text or "[]")
        if isinstance(objects, list) and all(isinstance(each, dict) for each in objects):
            return objects
    log.error(
        "%s: damaged in the database, lists leave it out (%d characters: %s)",
        *(content_name, len(text), ascii(text[:40])),
    )
    return []


@lru_cache(maxsize=100)
def _log_damage_once(body: bytes) -> None:
    """Log a damaged item once."""
    log.error(
        "an item is damaged in the database, and shown without its damaged part (%d bytes:"
        " %s): check the disk, and restore a backup if there are many",
        *(len(body), body[:40].hex()),
    )
