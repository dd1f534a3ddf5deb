"""Newest position of each sender in a workspace. The linked kits of other users get these
positions.

1. When a kit sends a position to everyone, the position gets the next place among the positions of
   its workspace. It replaces the sender's earlier position in `newest`. It has no rows in
   `delivery`, and its sender gets no receipts. So a position costs the same for five kits as for a
   thousand kits.
2. A device has the newest positions up to `device.tracked`. A link sends the later positions. After
   the kit has stored them, `device.tracked` is increased. After a crash, the link sends these
   positions again, and the kit recognises the duplicates.
3. A device gets a row of each position at once if another bearer may deliver it, or if its member
   wants all positions (`workspace_log.list_direct`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fieldagent.hub.store.contract import Db, insert, make_membership, make_small_table
from fieldagent.system.lazy_named_tuple import NamedTuple


def get_topic(workspace: int) -> str:
    """Return the topic that is announced when a workspace has a new position."""
    return f"positions of workspace {workspace}"


class PositionSender(NamedTuple):
    """Sender of positions: a person who uses a kit, usually the kit's user."""

    device: int
    sender: int


class NewPosition(NamedTuple):
    workspace: int
    place: int
    item: int
    at: float
    """Unix time of the position."""


_COLUMNS = ("device", "sender", "workspace", "place", "item", "at")


def store_positions(db: Db, positions: Mapping[PositionSender, NewPosition]) -> None:
    """Store new positions. An older position that arrives late does not replace a newer
    position.
    """
    rows = [(*track, *position) for track, position in sorted(positions.items())]
    replaced = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[2:])
    replaces = f"(device, sender) DO UPDATE SET {replaced} WHERE newest.at <= excluded.at"
    insert(db, "newest", _COLUMNS, rows, conflict=replaces)
    for workspace in {position.workspace for position in positions.values()}:
        db.announce(get_topic(workspace))


class StoredPosition(NamedTuple):
    place: int
    device: int
    sender: int
    item: int
    body: bytes
    """Envelope with one entry."""
    sequence: int
    """Number that the kit gave the item."""
    expires: float


def list_after(db: Db, workspace: int, after_place: int) -> list[StoredPosition]:
    """Return the newest positions after a place, in the order of their places."""
    rows = db.execute(
        "SELECT newest.place, newest.device, newest.sender, item.id, item.body,"
        " item.source_sequence, item.expires FROM newest JOIN item ON item.id = newest.item"
        " WHERE newest.workspace = ? AND newest.place > ? ORDER BY newest.place",
        *(workspace, after_place),
    )
    return [StoredPosition._make(row) for row in rows]


def list_stored_places(db: Db, devices: Sequence[int]) -> list[int | None]:
    """Return for each device the last place whose position the device has, or None if the device
    may not get items.
    """
    membership, numbers = make_membership(db, set(devices))
    rows = db.execute(
        f"SELECT id, tracked FROM device WHERE id {membership} AND disabled IS NULL"
        " AND EXISTS (SELECT 1 FROM membership WHERE membership.member = device.member"
        " AND membership.workspace = device.workspace)",
        *numbers,
    )
    places = dict(rows)
    return [places.get(device) for device in devices]


def find_without_row(db: Db, device: int, items: Collection[int]) -> set[int]:
    """Return those of `items` that have no delivery to the device."""
    membership, numbers = make_membership(db, items)
    sql = f"SELECT item FROM delivery WHERE device = ? AND item {membership}"
    return set(items) - {item for (item,) in db.execute(sql, device, *numbers)}


def mark_positions_stored(db: Db, places: Mapping[int, int]) -> None:
    """Record that each device has the positions up to the given place on disk."""
    if not places:
        return
    table, values = make_small_table(db, "stored", ("device", "place"), sorted(places.items()))
    db.execute(
        f"{table} UPDATE device SET tracked = (SELECT place FROM stored WHERE stored.device ="
        " device.id) WHERE id IN (SELECT id FROM device WHERE id IN (SELECT device FROM stored)"
        f" ORDER BY id{db.for_update()})",
        *values,
    )
