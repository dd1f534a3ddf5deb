"""What kits send to everybody in their workspace: a log, along which each device has a place.

1. An item of the log gets the next place of its workspace as it is entered (`item.place`). The row
   of the workspace is locked for that until the commit: who sees a place sees all before it.
2. A device has been given all up to its own place (`device.place`). What is behind it is for the
   device as well, and has no row of `delivery` yet: it waits, or has expired.
3. Its rows are made together when its link asks for mail (`catch_up`). Until then an item costs
   the same for five kits and for a thousand.
4. Where something else than a link may bring an item to a device, that has its row at once: over
   satellite, because its member asks for that, and by SMS.
5. What is urgent, is for somebody by name, or was pushed is in no log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fieldagent.hub.store.contract import ROWS, Db, few_rows, one_of
from fieldagent.system.lazy_named_tuple import NamedTuple

AT_ONCE = 4_000
"""Rows that are made in one transaction, nearly: of few devices that are far behind, or of many."""
AT_LEAST = 50
"""For each device."""


def topic(workspace: int) -> str:
    """Return what is announced when something came to a workspace's log."""
    return f"log of workspace {workspace}"


def next_places(db: Db, workspaces: Sequence[int]) -> list[int]:
    """Return a place for an item of each of these workspaces, in their order."""
    places: dict[int, int] = {}
    for workspace, items in sorted(Counter(workspaces).items()):
        sql = "UPDATE workspace SET posted = posted + ? WHERE id = ? RETURNING posted"
        ((end,),) = db.execute(sql, items, workspace)
        places[workspace] = end - items
        db.announce(topic(workspace))
    numbers = []
    for workspace in workspaces:
        places[workspace] += 1
        numbers.append(places[workspace])
    return numbers


AT_ONCE_TO = (
    "(imei IS NOT NULL AND operator IS NOT NULL AND EXISTS (SELECT 1 FROM membership"
    " WHERE membership.member = device.member AND membership.workspace = device.workspace"
    " AND over_satellite = 1) OR EXISTS (SELECT 1 FROM kit_sms WHERE kit_sms.device = device.id))"
)
"""Of a `device`: whether it has a row of each item at once."""

_MAY_HAVE = (
    "device.disabled IS NULL AND device.link_token IS NOT NULL AND EXISTS (SELECT 1 FROM membership"
    " WHERE membership.member = device.member AND membership.workspace = device.workspace)"
)
"""Of a `device`. A tracker has no token, and nothing reaches it."""
_IS_OF_ANOTHER = "item.sender <> device.member AND item.source_device <> device.id"
_HAS_NO_ROW = (
    "NOT EXISTS (SELECT 1 FROM delivery AS made WHERE made.item = item.id"
    " AND made.device = device.id)"
)
AWAITS = (
    "item.workspace = device.workspace AND item.place > device.place"
    f" AND {_MAY_HAVE} AND {_IS_OF_ANOTHER} AND {_HAS_NO_ROW}"
)
"""Of an `item` and a `device`: whether its row is made once the device comes for it."""
_LIVE = (
    "coalesce((SELECT live.place - 1 FROM item AS live WHERE live.workspace = {workspace}"
    " AND live.place IS NOT NULL AND live.expires > ? ORDER BY live.expires LIMIT 1), {posted})"
)
"""The last place of those that expire before a moment: the later one came, the later it expires."""
AWAITED = (
    f"SELECT 1 FROM item WHERE {AWAITS} AND item.place >"
    f" {_LIVE.format(workspace='device.workspace', posted=2**62)} ORDER BY item.place"
)
"""SELECT of what a `device` will be given and has not expired at that moment; in the order of the
log, along which PostgreSQL goes for it: of a LIMIT it thinks that any order soon has so many."""


STATE = (
    "CASE WHEN item.expires <= ? THEN 'expired' ELSE 'waiting' END AS state",
    "CASE WHEN item.expires <= ? THEN item.expires END AS ended",
    "CASE WHEN item.expires <= ? THEN 'expired' ELSE '' END AS reason",
)
"""Of what has no row yet, at a moment: the columns that its row would have."""
NUMBER = "device.next_sequence - 1 + item.place - device.place"
"""Above all that the device's items have on air, in the order of the log."""


class _Coming(NamedTuple):
    device: int
    member: int
    workspace: int
    place: int
    upto: int
    sequence: int


def are_behind(db: Db, devices: Sequence[int]) -> list[bool]:
    """Return of each of these devices whether something came that it was not given."""
    among, numbers = one_of(db, set(devices))
    behind = db.execute(
        "SELECT device.id FROM device JOIN workspace ON workspace.id = device.workspace"
        f" WHERE device.id {among} AND place < posted AND {_MAY_HAVE}",
        *numbers,
    )
    stragglers = {device for (device,) in behind}
    return [device in stragglers for device in devices]


def catch_up(db: Db, coming: Sequence[tuple[int, float]]) -> list[bool]:
    """Make what rows these devices lack, each with the time that it is now; of what has expired
    they tell that. Return for each whether there are more: then it is to be asked for again."""
    now = max(moment for _, moment in coming)
    rows = _lock(db, {device for device, _ in coming})
    share = max(AT_LEAST, AT_ONCE // max(len(rows), 1))
    more: set[int] = set()
    behind = []
    for device, member, workspace, place, posted, sequence in rows:
        upto = min(posted, place + share)
        behind.append(_Coming(device, member, workspace, place, upto, sequence))
        if upto < posted:
            more.add(device)
    for first in range(0, len(behind), ROWS // 2):
        _make(db, behind[first : first + ROWS // 2], now)
    return [device in more for device, _ in coming]


def _lock(db: Db, devices: set[int]) -> list[tuple[int, ...]]:
    """Lock those of the devices that are behind, in the order of their numbers."""
    among, numbers = one_of(db, devices)
    return db.execute(
        "SELECT device.id, device.member, device.workspace, place, posted, next_sequence"
        f" FROM device JOIN workspace ON workspace.id = device.workspace WHERE device.id {among}"
        f" AND place < posted AND {_MAY_HAVE} ORDER BY device.id" + db.for_update("device"),
        *numbers,
    )


def _make(db: Db, behind: Sequence[_Coming], now: float, until: float | None = None) -> None:
    """Make the rows of items that came before `until`."""
    table, numbers = few_rows(db, "coming", _Coming._fields, behind)
    made = db.execute(
        f"{table} INSERT INTO delivery (item, device, rank, expires, sequence, state, ended,"
        " reason, from_log) SELECT item.id, coming.device, -item.priority, item.expires,"
        " coming.sequence - 1 + row_number() OVER (PARTITION BY coming.device ORDER BY item.place),"
        f" {', '.join(STATE)}, 1"
        " FROM coming JOIN item ON item.workspace = coming.workspace"
        " AND item.place > coming.place AND item.place <= coming.upto"
        " WHERE item.sender <> coming.member AND item.source_device <> coming.device"
        + ("" if until is None else " AND item.accepted <= ?")
        + " AND NOT EXISTS (SELECT 1 FROM delivery AS made WHERE made.item = item.id"
        " AND made.device = coming.device) RETURNING device",
        *(*numbers, now, now, now, *(() if until is None else (until,))),
    )
    counts = Counter(device for (device,) in made)
    ends = [(each.device, each.upto, counts[each.device]) for each in behind]
    table, numbers = few_rows(db, "coming", ("device", "upto", "items"), ends)
    db.execute(
        f"{table} UPDATE device SET"
        " place = (SELECT upto FROM coming WHERE coming.device = device.id),"
        " next_sequence = next_sequence"
        " + (SELECT items FROM coming WHERE coming.device = device.id)"
        " WHERE id IN (SELECT device FROM coming)",
        *numbers,
    )


def catch_up_wholly(db: Db, device: int, now: float) -> None:
    """Give a device all that the workspace's log has for it, however much that is."""
    while catch_up(db, [(device, now)])[0]:
        pass


def come_back(db: Db, device: int, now: float) -> None:
    """Bring a device back that was out of use: it is given what came before, and nothing that came
    meanwhile."""
    rows = db.execute(
        "SELECT device.id, device.member, device.workspace, place, posted, next_sequence, disabled"
        " FROM device JOIN workspace ON workspace.id = device.workspace WHERE device.id = ?"
        " AND disabled IS NOT NULL AND link_token IS NOT NULL AND place < posted"
        + db.for_update("device"),
        device,
    )
    for id_, member, workspace, place, posted, sequence, disabled in rows:
        coming = _Coming(id_, member, workspace, place, posted, sequence)
        _make(db, [coming], now, until=disabled)


def end_of(db: Db, workspace: int) -> int:
    """Return the place of a device that is to have nothing of what came by now."""
    rows = db.execute("SELECT posted FROM workspace WHERE id = ?", workspace)
    return int(rows[0][0]) if rows else 0


def skip(db: Db, workspace: int, member: int) -> None:
    """Let the devices of a member that joins have nothing of what came by now."""
    db.execute(
        "UPDATE device SET place = ? WHERE workspace = ? AND member = ?",
        *(end_of(db, workspace), workspace, member),
    )


class Awaiting(NamedTuple):
    """A device that has not come for an item of the log."""

    device: int
    name: str
    member: int
    state: str
    ended: float | None
    reason: str


def awaiting(db: Db, item: int, now: float) -> list[Awaiting]:
    """Return the devices that have not come for an item of the log, and how it stands for each
    `now`."""
    rows = db.execute(
        f"SELECT device.id, device.name, device.member, {', '.join(STATE)}"
        f" FROM item JOIN device ON {AWAITS} WHERE item.id = ?",
        *(now, now, now, item),
    )
    return [Awaiting(*row) for row in rows]


class Awaited(NamedTuple):
    rows: int
    oldest: int | None
    """Item."""


def awaited(db: Db, now: float) -> Awaited:
    """Return how many rows devices will be given of what has not expired, and the oldest item of
    those. They are counted by places: what a device itself sent since it came last is among them.
    """
    live = _LIVE.format(workspace="workspace.id", posted="posted")
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
    return Awaited(
        sum(int(count) for _, count, _ in rows), min((id_ for (id_,) in oldest), default=None)
    )
