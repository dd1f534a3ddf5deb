"""Encodes a Package as a JSON body that can be posted, in one canonical form."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from fieldagent.package.package import Item, Location, Package, ToHub, convert_to_date
from fieldagent.package.reading import ITEMS, KINDS, InvalidPackage, read_package

_KINDS: Mapping[type[Item | ToHub], str] = {build: kind for kind, (build, _, _) in KINDS.items()}


def get_kind(item: Item | ToHub) -> str:
    """Return the name that the item has in both APIs, such as `location`."""
    return _KINDS[type(item)]


def encode_package(package: Package) -> dict[str, Any]:
    """Return the JSON body of a Package, without the Package's id. `read_package` can read this
    body.
    """
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
    if package.wants_receipt:
        document["receipt"] = "read"
    if package.author is not None:
        document["from"] = package.author
    document[get_kind(package.item)] = encode_item(package.item)
    return document


def encode_item(item: Item | ToHub) -> dict[str, Any]:
    """Return the item's members that are not None, by their names in the interface document."""
    values = ((name, getattr(item, field.attribute)) for name, field in _MEMBERS[type(item)])
    return {name: _simplify(value) for name, value in values if value is not None}


_MEMBERS = {build: tuple(members.items()) for build, _, members in KINDS.values()}


def _simplify(value: str | float | bytes | datetime) -> str | float:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return format_timestamp(value)
    return value


def drop_invalid_members(location: Location) -> Location:
    """Return a position without its invalid members, such as an impossible altitude or year from a
    receiver without a fix. With such members, the stored Package would be considered damaged.
    """
    try:
        read_package(json.loads(make_canonical(Package(location))))
    except InvalidPackage as wrong:
        members = ITEMS["location"].members
        names = [each.pointer.rpartition("/")[2] for each in wrong.faults]
        without: dict[str, Any] = {members[name].attribute: None for name in names}
        return replace(location, **without)
    return location


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def make_canonical(package: Package) -> str:
    """Return the result of `encode_package` as text with sorted members. The text is the same for
    equal Packages, whatever the form of the posted body and the id.
    """
    return _canonical(encode_package(package))


def digest(text: str) -> bytes:
    """Return a 16-byte digest of a `make_canonical` text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def format_timestamp(moment: datetime) -> str:
    """Return a time as ISO 8601 in UTC, with a Z. The text has a fraction of a second only if the
    time has one.
    """
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def format_clock_time(unix: float) -> str:
    """Return a Unix time in the form of `format_timestamp`, rounded down to seconds."""
    return format_timestamp(convert_to_date(int(unix)))


def format_minutes(seconds: int) -> str:
    """Return a duration in its shortest form: `4 h`, `90 min`."""
    return f"{seconds // 3600} h" if seconds % 3600 == 0 else f"{seconds // 60} min"
