"""Log of the items that kits send to everyone in their workspace. Each device has a place in the
log.

1. A new item gets the next place of its workspace (`item.place`). The row of the workspace is
   locked until the commit. So a process that reads a place sees all earlier places.
2. A device has received all items up to its own place (`device.place`). Later items are also for
   the device but have no row in `delivery` yet. They are waiting or have expired.
3. These rows are created together when the device's link asks for mail (`create_missing_rows`).
   Until then, an item costs the same for five kits as for a thousand kits.
4. A device gets its row at once if another bearer may deliver the item: satellite, if its member
   has asked for this, or SMS (`list_direct`).
5. The log does not contain positions (`newest`), urgent items, items with a named addressee, or
   pushed items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from fieldagent.hub.store.contract import ROWS_MAX, Db, make_membership, make_small_table
from fieldagent.system.lazy_named_tuple import NamedTuple

ROWS_PER_TRANSACTION = 4_000
"""Approximate number of rows that one transaction creates, for a few devices that are far behind or
for many devices."""
AT_LEAST = 50
"""Smallest number of rows that a transaction creates for each device."""


def get_topic(workspace: int) -> str:
    """Return the topic that is announced when an item enters a workspace's log."""
    return f"log of workspace {workspace}"


class Places(NamedTuple):
    """Places for new items, in the order of their workspaces."""

    of_items: Iterator[int]
    of_positions: Iterator[int]
    """Places for new positions (`newest`), in the order of their workspaces."""
    with_exceptions: set[int]
    """Workspaces in which some devices get their rows immediately (`list_direct`)."""


_HAS_EXCEPTIONS = (
    "EXISTS (SELECT 1 FROM membership AS asks WHERE asks.workspace = workspace.id"
    " AND over_satellite = 1) OR EXISTS (SELECT 1 FROM membership AS asks"
    " WHERE asks.workspace = workspace.id AND all_positions = 1)"
    " OR EXISTS (SELECT 1 FROM kit_sms AS asks WHERE asks.workspace = workspace.id)"
)


def reserve_places(db: Db, items: Sequence[int], positions: Sequence[int]) -> Places:
    """Reserve a place in the log of each workspace in `items`, and a place among the positions of
    each workspace in `positions`. Return the places.
    """
    in_log, in_track = Counter(items), Counter(positions)
    ends: dict[int, tuple[int, int]] = {}
    with_exceptions: set[int] = set()
    for workspace in sorted({*items, *positions}):
        next_places = in_log[workspace], in_track[workspace]
        ((posted, tracked, has_exceptions),) = db.execute(
            "UPDATE workspace SET posted = posted + ?, tracked = tracked + ? WHERE id = ?"
            f" RETURNING posted, tracked, {_HAS_EXCEPTIONS}",
            *(*next_places, workspace),
        )
        if has_exceptions:
            with_exceptions.add(workspace)
        ends[workspace] = posted - next_places[0], tracked - next_places[1]
        if next_places[0]:
            db.announce(get_topic(workspace))
    return Places(
        _count_up({workspace: end for workspace, (end, _) in ends.items()}, items),
        _count_up({workspace: end for workspace, (_, end) in ends.items()}, positions),
        with_exceptions,
    )


def _count_up(places: dict[int, int], workspaces: Sequence[int]) -> Iterator[int]:
    for workspace in workspaces:
        places[workspace] += 1
        yield places[workspace]


def list_direct(db: Db, workspaces: Collection[int], *, positions: bool) -> list[int]:
    """Return the devices in these workspaces that get a row of each item immediately, or a row of
    each position if `positions` is True. Most workspaces have no such device, so the query uses
    indexes that contain only these devices.
    """
    if not workspaces:
        return []
    membership, numbers = make_membership(db, workspaces)
    owned = "SELECT device.id FROM membership JOIN device ON device.member = membership.member"
    owned += f" AND device.workspace = membership.workspace WHERE membership.workspace {membership}"
    rules = [
        f"{owned} AND over_satellite = 1 AND imei IS NOT NULL AND operator IS NOT NULL",
        f"SELECT device FROM kit_sms WHERE workspace {membership}",
        *([f"{owned} AND all_positions = 1"] if positions else []),
    ]
    rows = db.execute(" UNION ".join(rules), *(list(numbers) * len(rules)))
    return [device for (device,) in rows]


_MAY_HAVE = (
    "device.disabled IS NULL AND device.link_token IS NOT NULL AND EXISTS (SELECT 1 FROM membership"
    " WHERE membership.member = device.member AND membership.workspace = device.workspace)"
)
"""SQL condition: the `device` can get items. A tracker cannot, because it has no link token."""
_IS_OF_ANOTHER = "item.sender <> device.member AND item.source_device <> device.id"
_HAS_NO_ROW = (
    "NOT EXISTS (SELECT 1 FROM delivery AS made WHERE made.item = item.id"
    " AND made.device = device.id)"
)
IS_AWAITED = (
    "item.workspace = device.workspace AND item.place > device.place"
    f" AND {_MAY_HAVE} AND {_IS_OF_ANOTHER} AND {_HAS_NO_ROW}"
)
"""SQL condition on an `item` and a `device`: the row is created when the device fetches the
item."""
_LIVE_PLACE = (
    "coalesce((SELECT live.place - 1 FROM item AS live WHERE live.workspace = {workspace}"
    " AND live.place IS NOT NULL AND live.expires > ? ORDER BY live.expires LIMIT 1), {posted})"
)
"""SQL: the place before the first item that has not expired at a moment. All later items expire
later."""
SELECT_AWAITED = (
    f"SELECT 1 FROM item WHERE {IS_AWAITED} AND item.place >"
    f" {_LIVE_PLACE.format(workspace='device.workspace', posted=2**62)} ORDER BY item.place"
)
"""SQL for the items that a `device` will get and that have not expired at a moment. `ORDER BY
place` makes PostgreSQL read the log in its order. Without it, PostgreSQL assumes that any order
soon finds enough rows for a LIMIT."""


STATE = (
    "CASE WHEN item.expires <= ? THEN 'expired' ELSE 'waiting' END AS state",
    "CASE WHEN item.expires <= ? THEN item.expires END AS ended",
    "CASE WHEN item.expires <= ? THEN 'expired' ELSE '' END AS reason",
)
"""SQL: the columns `state`, `ended` and `reason` that a missing row would have now. Each has the
current time as its parameter."""
NUMBER = "device.next_sequence - 1 + item.place - device.place"
"""SQL: the number of the item on air. It is greater than all numbers in use for the device and
follows the order of the log."""


class _ComingPlace(NamedTuple):
    device: int
    member: int
    workspace: int
    place: int
    upto: int
    sequence: int


def find_behind(db: Db, devices: Sequence[int]) -> list[bool]:
    """Return a list with True for each device that has not fetched all items of its workspace's
    log.
    """
    membership, numbers = make_membership(db, set(devices))
    behind_rows = db.execute(
        "SELECT device.id FROM device JOIN workspace ON workspace.id = device.workspace"
        f" WHERE device.id {membership} AND place < posted AND {_MAY_HAVE}",
        *numbers,
    )
    stragglers = {device for (device,) in behind_rows}
    return [device in stragglers for device in devices]


def create_missing_rows(db: Db, coming: Sequence[tuple[int, float]]) -> list[bool]:
    """Create missing rows of devices. Each device is paired with its current time. Rows of expired
    items get the state `expired`. Return a list with True for each device that still misses rows,
    so that the function must be called again.
    """
    now = max(moment for _, moment in coming)
    rows = _lock(db, {device for device, _ in coming})
    share = max(AT_LEAST, ROWS_PER_TRANSACTION // max(len(rows), 1))
    missing_rows: set[int] = set()
    devices_behind = []
    for device, member, workspace, log_place, posted, sequence in rows:
        upto = min(posted, log_place + share)
        devices_behind.append(_ComingPlace(device, member, workspace, log_place, upto, sequence))
        if upto < posted:
            missing_rows.add(device)
    for first in range(0, len(devices_behind), ROWS_MAX // 2):
        _make(db, devices_behind[first : first + ROWS_MAX // 2], now)
    return [device in missing_rows for device, _ in coming]


def _lock(db: Db, devices: set[int]) -> list[tuple[int, ...]]:
    """Lock the devices whose rows are missing, in the order of their ids."""
    membership, numbers = make_membership(db, devices)
    return db.execute(
        "SELECT device.id, device.member, device.workspace, place, posted, next_sequence"
        " FROM device JOIN workspace ON workspace.id = device.workspace"
        f" WHERE device.id {membership} AND place < posted AND {_MAY_HAVE} ORDER BY device.id"
        + db.for_update("device"),
        *numbers,
    )


def _make(db: Db, behind: Sequence[_ComingPlace], now: float, until: float | None = None) -> None:
    """Create the rows of items up to each device's `upto`, and move the device's place there. If
    `until` is not None, create only rows of items that were accepted at or before this Unix time.
    """
    table, numbers = make_small_table(db, "coming", _ComingPlace._fields, behind)
    made_rows = db.execute(
        f"{table} INSERT INTO delivery (item, device, rank, expires, sequence, state, ended,"
        " reason, from_log) SELECT item.id, coming.device, -item.priority, item.expires,"
        " coming.sequence - 1 + row_number() OVER (PARTITION BY coming.device ORDER BY item.place),"
        f" {', '.join(STATE)}, 1"
        " FROM coming JOIN item ON item.workspace = coming.workspace"
        " AND item.place > coming.place AND item.place <= coming.upto"
        " WHERE item.sender <> coming.member AND item.source_device <> coming.device"
        + ("" if until is None else " AND item.accepted <= ?")
        # PostgreSQL turns NOT EXISTS into a join and may then scan all deliveries.
        + " AND (SELECT count(*) FROM delivery AS made WHERE made.item = item.id"
        " AND made.device = coming.device) = 0 RETURNING device",
        *(*numbers, now, now, now, *(() if until is None else (until,))),
    )
    counts = Counter(device for (device,) in made_rows)
    ends = [(each.device, each.upto, counts[each.device]) for each in behind]
    table, numbers = make_small_table(db, "coming", ("device", "upto", "items"), ends)
    db.execute(
        f"{table} UPDATE device SET"
        " place = (SELECT upto FROM coming WHERE coming.device = device.id),"
        " next_sequence = next_sequence"
        " + (SELECT items FROM coming WHERE coming.device = device.id)"
        " WHERE id IN (SELECT device FROM coming)",
        *numbers,
    )


def create_all_rows(db: Db, device: int, now: float) -> None:
    """Create all missing rows of a device in one call."""
    while create_missing_rows(db, [(device, now)])[0]:
        pass


def create_rows_until_disabled(db: Db, device: int, now: float) -> None:
    """Prepare a disabled device to be enabled, which the caller does. The device gets the items
    from before it was disabled and all later items. It does not get items that arrived while it was
    disabled.
    """
    db.execute(
        "UPDATE device SET tracked = (SELECT tracked FROM workspace WHERE workspace.id ="
        " device.workspace) WHERE id = ? AND disabled IS NOT NULL",
        device,
    )
    rows = db.execute(
        "SELECT device.id, device.member, device.workspace, place, posted, next_sequence, disabled"
        " FROM device JOIN workspace ON workspace.id = device.workspace WHERE device.id = ?"
        " AND disabled IS NOT NULL AND link_token IS NOT NULL AND place < posted"
        + db.for_update("device"),
        device,
    )
    for id_, member, workspace, log_place, posted, sequence, disabled in rows:
        coming = _ComingPlace(id_, member, workspace, log_place, posted, sequence)
        _make(db, [coming], now, until=disabled)


def read_ends(db: Db, workspace: int) -> dict[str, int]:
    """Return the last place of the log and of the positions, by the columns of `device`. A device
    with these places gets only later items.
    """
    rows = db.execute("SELECT posted, tracked FROM workspace WHERE id = ?", workspace)
    return dict(zip(("place", "tracked"), rows[0] if rows else (0, 0), strict=True))


def skip_to_end(db: Db, workspace: int, member: int) -> None:
    """Move the devices of a new member to the end of the log and of the positions, so that they
    get only later items.
    """
    db.execute(
        "UPDATE device SET place = ?, tracked = ? WHERE workspace = ? AND member = ?",
        *(*read_ends(db, workspace).values(), workspace, member),
    )


class AwaitingDevice(NamedTuple):
    """A device that has not fetched a certain item of the log."""

    device: int
    name: str
    member: int
    state: str
    ended: float | None
    reason: str


def list_awaiting(db: Db, item: int, now: float) -> list[AwaitingDevice]:
    """Return the devices that have not fetched an item of the log. Each device has the state of the
    item at `now`.
    """
    rows = db.execute(
        f"SELECT device.id, device.name, device.member, {', '.join(STATE)}"
        f" FROM item JOIN device ON {IS_AWAITED} WHERE item.id = ?",
        *(now, now, now, item),
    )
    return [AwaitingDevice(*row) for row in rows]


class AwaitedCount(NamedTuple):
    rows: int
    oldest: int | None
    """Id of the oldest item."""


def count_awaited(db: Db, now: float) -> AwaitedCount:
    """Count the unexpired items that devices have not fetched, and find the oldest of these items.
    The function subtracts places, so it also counts items that a device itself has sent since its
    last fetch.
    """
    live = _LIVE_PLACE.format(workspace="workspace.id", posted="posted")
    rows = db.execute(
        "SELECT workspace, sum(posted - since), min(since) FROM (SELECT device.workspace, posted,"
        " CASE WHEN place > live THEN place ELSE live END AS since FROM device"
        f" JOIN (SELECT id, posted, {live} AS live FROM workspace) AS ends"
        f" ON ends.id = device.workspace WHERE place < posted AND live < posted AND {_MAY_HAVE})"
        " AS behind GROUP BY workspace",
        now,
    )
    oldest = []
    for workspace, _, since in rows:
        oldest += db.execute(
            "SELECT id FROM item WHERE workspace = ? AND place > ? ORDER BY place LIMIT 1",
            *(workspace, since),
        )
    return AwaitedCount(
        sum(int(count) for _, count, _ in rows), min((id_ for (id_,) in oldest), default=None)
    )
