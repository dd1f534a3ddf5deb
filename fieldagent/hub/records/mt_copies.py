"""MT messages that an operator has accepted, kept until their kit has confirmed the content.

| sign that a message was lost | when its content is sent again |
|---|---|
| its kit reports an unreadable message of that size and guard | at once |
| its kit confirms a later message but not this one | after ten minutes: its receipt may be late |
| a modem without copies has it, its kit sends half an hour later, but no receipt | at once |

The operator reports when a modem that keeps no copy has a message. Receipts of such a kit always
have space, while receipts of other kits are sent only when they cost nothing. Fragments are not
included, because their kit asks for them itself. Repeated content is packed again together with all
other content that is due. The credits of that day pay for it. Each item and each incident update is
repeated at most three times.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from fieldagent.hub.records.modem_kinds import find_modem_kind
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Unreadable

RETENTION_S = 10 * 86_400.0
"""Seconds for which a copy is kept, twice as long as a gateway keeps the message."""
AGAIN_MAX = 3
"""Largest number of times that an item or an incident update is repeated."""
OPERATOR_DELAY_MAX_S = 600.0
"""Seconds by which an operator may deliver one MO message later than another MO message that the
modem sent after it."""
CROSSING_MAX_S = 1800.0
"""Seconds between the modem's reception of an MT message and a later MO message. An MO message that
arrives within this time may have been sent before the reception."""
GOES_AGAIN = "the kit has not confirmed the item: sending again"


class MtCopy(NamedTuple):
    """A message that the operator has accepted."""

    id: int
    size: int
    guard: int
    items: tuple[int, ...]
    receipts: tuple[int, ...]
    arrived: float | None


def store_copy(
    db: Db,
    device: int,
    body: bytes,
    fragments: Sequence[tuple[int, int, int]],
    receipts: Sequence[int],
    *,
    operator_id: str,
    now: float,
) -> None:
    """Store a message that an operator has accepted, unless it has only fragments of items. Also
    delete copies older than RETENTION_S. `fragments` contains an item, a position, and a number of
    fragments for each part of the message. The number is 1 for a complete item.
    """
    db.execute("DELETE FROM mt_copy WHERE at < ?", now - RETENTION_S)
    items = [item for item, _, count in fragments if count == 1]
    if not items and not receipts:
        return
    ((modem,),) = db.execute("SELECT modem FROM device WHERE id = ?", device) or (("",),)
    db.execute(
        "INSERT INTO mt_copy (device, at, size, guard, items, receipts, operator_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(device, now, len(body), find_modem_kind(modem).guard(body)),
        *(json.dumps(items), json.dumps(list(receipts)), operator_id),
    )


def record_arrival(db: Db, operator_id: str, now: float) -> None:
    """Record the operator's report that the modem has the message."""
    db.execute(
        "UPDATE mt_copy SET arrived = ? WHERE operator_id = ? AND arrived IS NULL",
        *(now, operator_id),
    )


def send_unreadable_again(db: Db, device: int, report: Unreadable, now: float) -> bool:
    """Send the content of a message again that the kit could not read. Return False if no stored
    message matches the kit's report.
    """
    unconfirmed = _list_unconfirmed(db, device)
    ranked = [
        [each for each in unconfirmed if (each.size, each.guard) == (report.size, report.guard)],
        [each for each in unconfirmed if each.size == report.size],
        [each for each in unconfirmed if each.guard == report.guard],
        unconfirmed if len(unconfirmed) == 1 else [],
    ]
    for matches in ranked:
        if matches:
            _repeat_content(db, device, matches[0], now, now)
            return True
    return False


def record_confirmations(db: Db, device: int, confirmed: Collection[int], now: float) -> int:
    """Process a message from the kit over satellite that confirms the items `confirmed`. Return the
    number of messages to repeat. `confirmed` must not contain an SOS, because an SOS overtakes
    other items.
    """
    copies = _list_copies(db, device)
    confirmed_places = [
        at for at, each in enumerate(copies) if not set(confirmed).isdisjoint(each.items)
    ]
    before = copies[: max(confirmed_places, default=0)]
    # Kits do not confirm incident updates. The hub considers an update received if a later message
    # was confirmed.
    finished_ids = {each.id for each in before if not each.items}
    waiting = {each.id for each in _list_unconfirmed(db, device)} - finished_ids
    repeated_copies = [each for each in before if each.id in waiting]
    for each in repeated_copies:
        _repeat_content(db, device, each, now + OPERATOR_DELAY_MAX_S, now)
    lost_copies = _list_lost_without_copy(
        db, device, now, waiting - {each.id for each in repeated_copies}
    )
    for each in lost_copies:
        _repeat_content(db, device, each, now, now)
    for each in copies:
        if each.id not in waiting:
            db.execute("DELETE FROM mt_copy WHERE id = ?", each.id)
    return len(repeated_copies) + len(lost_copies)


def send_updates_by_link(db: Db, device: int) -> None:
    """Send incident updates also over the device's link, because its modem may not see the sky. The
    kit ignores updates that it has already.
    """
    copies = [each for each in _list_copies(db, device) if each.receipts]
    for each in copies:
        for receipt in each.receipts:
            db.execute(
                "UPDATE receipt SET state = 'waiting', again = again + 1 WHERE id = ?"
                " AND state = 'sent' AND says <> '' AND again < ?",
                *(receipt, AGAIN_MAX),
            )
        if not each.items:
            db.execute("DELETE FROM mt_copy WHERE id = ?", each.id)


def _list_lost_without_copy(
    db: Db, device: int, now: float, waiting: Collection[int]
) -> list[MtCopy]:
    rows = db.execute("SELECT modem FROM device WHERE id = ?", device)
    if not rows or find_modem_kind(rows[0][0]).keeps_copies:
        return []
    return [
        each
        for each in _list_copies(db, device)
        if each.id in waiting
        and each.items
        and each.arrived is not None
        and now - each.arrived >= CROSSING_MAX_S
    ]


def _list_copies(db: Db, device: int) -> list[MtCopy]:
    """Return the stored messages of a device, in the order in which the operator accepted them."""
    rows = db.execute(
        "SELECT id, size, guard, items, receipts, arrived FROM mt_copy WHERE device = ?"
        " ORDER BY at, id",
        device,
    )
    return [
        MtCopy(
            id_, size, guard, tuple(json.loads(items)), tuple(json.loads(receipts)), arrived_indices
        )
        for id_, size, guard, items, receipts, arrived_indices in rows
    ]


def _list_unconfirmed(db: Db, device: int) -> list[MtCopy]:
    """Return the stored messages whose content the kit has not confirmed. Messages with only
    incident updates are left out, because kits never confirm them.
    """
    sent = {
        item
        for (item,) in db.execute(
            "SELECT item FROM delivery WHERE device = ? AND state = 'sent'", device
        )
    }
    return [
        each
        for each in _list_copies(db, device)
        if not sent.isdisjoint(each.items) or (each.receipts and not each.items)
    ]


def _repeat_content(db: Db, device: int, copy: MtCopy, at: float, now: float) -> None:
    """Queue the content of a stored message again. The content waits at least until the Unix time
    `at`.
    """
    for item in copy.items:
        db.execute(
            "UPDATE delivery SET state = 'waiting', satellite_from = ?, not_before = 0,"
            " reason = ?, again = again + 1 WHERE item = ? AND device = ? AND state = 'sent'"
            " AND again < ? AND (expires IS NULL OR expires > ?)",
            *(at, GOES_AGAIN, item, device, AGAIN_MAX, now),
        )
    for receipt in copy.receipts:
        db.execute(
            "UPDATE receipt SET state = 'waiting', again = again + 1 WHERE id = ?"
            " AND state = 'sent' AND again < ?",
            *(receipt, AGAIN_MAX),
        )
    db.execute("DELETE FROM mt_copy WHERE id = ?", copy.id)
    db.announce("satellite")
