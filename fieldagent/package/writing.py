"""JSON out: a Package as the body that it came in, in one spelling."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fieldagent.package.package import Item, Location, Package, ToHub, date_of
from fieldagent.package.reading import ITEMS, KINDS, InvalidPackage, read_package

_KINDS: Mapping[type[Item | ToHub], str] = {build: kind for kind, (build, _, _) in KINDS.items()}


def kind_of(item: Item | ToHub) -> str:
    """Return the name that the item has in both APIs, such as `location`."""
    return _KINDS[type(item)]


def package_json(package: Package) -> dict[str, Any]:
    """Return the Package as a body, without its id: `read_package` reads it back."""
    document: dict[str, Any] = {"priority": package.priority}
    if package.channels is not None:
        document["channels"] = sorted(package.channels)
    if package.collapse_key is not None:
        document["collapseKey"] = package.collapse_key
    if package.time_to_live is not None:
        document["timeToLive"] = package.time_to_live
    if package.gather is not None:
        document["gather"] = package.gather
    if package.by is not None:
        document["by"] = package.by
    if package.to is not None:
        document["to"] = package.to
    if package.asks:
        document["receipt"] = "read"
    if package.author is not None:
        document["from"] = package.author
    document[kind_of(package.item)] = item_json(package.item)
    return document


def item_json(item: Item | ToHub) -> dict[str, Any]:
    """Return the item's members under their names in the interface document; absent ones left
    out."""
    values = ((name, getattr(item, field.attribute)) for name, field in _MEMBERS[type(item)])
    return {name: _plain(value) for name, value in values if value is not None}


_MEMBERS = {build: tuple(members.items()) for build, _, members in KINDS.values()}


def _plain(value: str | float | bytes | datetime) -> str | float:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return write_timestamp(value)
    return value


def sound(where: Location) -> Location:
    """Return a position without what no Package may hold, as the heights and years that a receiver
    without a fix tells: what is read from the disk would be taken for damaged by them."""
    try:
        read_package(json.loads(canonical(Package(where))))
    except InvalidPackage as wrong:
        members = ITEMS["location"].members
        names = [each.pointer.rpartition("/")[2] for each in wrong.faults]
        without: dict[str, Any] = {members[name].attribute: None for name in names}
        return replace(where, **without)
    return where


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def canonical(package: Package) -> str:
    """Return one text for equal bodies, whatever their spelling and their id: `package_json`
    sorted."""
    return _canonical(package_json(package))


def digest(text: str) -> bytes:
    """Return the 16 bytes that tell a `canonical` text from others."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def write_timestamp(moment: datetime) -> str:
    """Write a time as ISO 8601 in UTC with a Z; the fraction only where there is one."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def clock_time(unix: float) -> str:
    """Write a Unix time as `write_timestamp` does, to the second."""
    return write_timestamp(date_of(int(unix)))


def minutes_in_words(seconds: int) -> str:
    """Return it as short as it can be told: `4 h`, `90 min`."""
    return f"{seconds // 3600} h" if seconds % 3600 == 0 else f"{seconds // 60} min"
