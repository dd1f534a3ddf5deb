"""MT messages that an operator has taken, kept until their kit has confirmed what is in them.

| what shows that one was lost | when it goes again |
|---|---|
| its kit says that it could not read a message of that size and guard | at once |
| its kit confirms a later one and not this | after ten minutes: its receipt may be late |
| an imt modem has it, its kit says something half an hour later, and not this | at once |

What an imt modem has the operator tells; its kit's receipts always find room, where those of others
ride when they cost nothing. Fragments are not in it: their kit asks for those itself. What goes
again is packed anew, with what else is due, for the credits of its day; each item and each word
three times at the most.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Collection, Sequence

from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Unreadable

KEPT = 10 * 86_400.0
"""Seconds for which a copy is kept: twice as long as a gateway keeps the message."""
AGAIN_MAX = 3
"""How often an item, or a word to a kit, goes again."""
LATE = 600.0
"""Seconds by which an operator may bring one MO message later than one that was sent after it."""
CROSSING = 1800.0
"""Seconds before which an MO message may have been made that came after the modem had the MT."""
GOES_AGAIN = "its kit has not confirmed it: it goes again"


class MtCopy(NamedTuple):
    """One that was taken by the operator."""

    id: int
    size: int
    guard: int
    items: tuple[int, ...]
    receipts: tuple[int, ...]
    arrived: float | None


def keep(
    db: Db,
    device: int,
    body: bytes,
    pieces: Sequence[tuple[int, int, int]],
    receipts: Sequence[int],
    *,
    operator_id: str,
    now: float,
) -> None:
    """Keep what an operator has taken. `pieces` are item, position and count of fragments."""
    db.execute("DELETE FROM mt_copy WHERE at < ?", now - KEPT)
    items = [item for item, _, count in pieces if count == 1]
    if not items and not receipts:
        return
    ((modem,),) = db.execute("SELECT modem FROM device WHERE id = ?", device) or (("",),)
    db.execute(
        "INSERT INTO mt_copy (device, at, size, guard, items, receipts, operator_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        *(device, now, len(body), guard_of(body, modem)),
        *(json.dumps(items), json.dumps(list(receipts)), operator_id),
    )


def guard_of(body: bytes, modem: str) -> int:
    """Return the 16 bits by which a modem of this kind checks a message that it hands over."""
    return binascii.crc_hqx(body, 0) if modem == "imt" else sum(body) & 0xFFFF


def note_arrived(db: Db, operator_id: str, now: float) -> None:
    """Note that the operator says that the modem has it."""
    db.execute(
        "UPDATE mt_copy SET arrived = ? WHERE operator_id = ? AND arrived IS NULL",
        *(now, operator_id),
    )


def send_unreadable_again(db: Db, device: int, said: Unreadable, now: float) -> bool:
    """Send again what a kit could not read; False where nothing is known that it can be."""
    there = _unconfirmed(db, device)
    ranked = [
        [each for each in there if (each.size, each.guard) == (said.size, said.guard)],
        [each for each in there if each.size == said.size],
        [each for each in there if each.guard == said.guard],
        there if len(there) == 1 else [],
    ]
    for matches in ranked:
        if matches:
            _again(db, device, matches[0], now, now)
            return True
    return False


def note_heard(db: Db, device: int, confirmed: Collection[int], now: float) -> int:
    """Note that a message came from the kit over satellite, in which it confirmed these items, none
    of them an SOS, which overtakes others. Return how many messages go again."""
    copies = _of(db, device)
    passed = [at for at, each in enumerate(copies) if not set(confirmed).isdisjoint(each.items)]
    before = copies[: max(passed, default=0)]
    # Words to a kit are confirmed by nothing: those that a later message passed have arrived.
    over = {each.id for each in before if not each.items}
    waiting = {each.id for each in _unconfirmed(db, device)} - over
    again = [each for each in before if each.id in waiting]
    for each in again:
        _again(db, device, each, now + LATE, now)
    lost = _lost_by_a_modem_without_a_copy(db, device, now, waiting - {each.id for each in again})
    for each in lost:
        _again(db, device, each, now, now)
    for each in copies:
        if each.id not in waiting:
            db.execute("DELETE FROM mt_copy WHERE id = ?", each.id)
    return len(again) + len(lost)


def send_words_by_link(db: Db, device: int) -> None:
    """Let what people said to a device, and its modem may not have yet, under a roof or behind a
    ridge, go by the link as well that it has. A kit knows what it was told before."""
    copies = [each for each in _of(db, device) if each.receipts]
    for each in copies:
        for receipt in each.receipts:
            db.execute(
                "UPDATE receipt SET state = 'waiting', again = again + 1 WHERE id = ?"
                " AND state = 'sent' AND says <> '' AND again < ?",
                *(receipt, AGAIN_MAX),
            )
        if not each.items:
            db.execute("DELETE FROM mt_copy WHERE id = ?", each.id)


def _lost_by_a_modem_without_a_copy(
    db: Db, device: int, now: float, waiting: Collection[int]
) -> list[MtCopy]:
    rows = db.execute("SELECT modem FROM device WHERE id = ?", device)
    if not rows or rows[0][0] != "imt":
        return []
    return [
        each
        for each in _of(db, device)
        if each.id in waiting
        and each.items
        and each.arrived is not None
        and now - each.arrived >= CROSSING
    ]


def _of(db: Db, device: int) -> list[MtCopy]:
    """Return those of a device, in the order in which the operator took them."""
    rows = db.execute(
        "SELECT id, size, guard, items, receipts, arrived FROM mt_copy WHERE device = ?"
        " ORDER BY at, id",
        device,
    )
    return [
        MtCopy(id_, size, guard, tuple(json.loads(items)), tuple(json.loads(receipts)), arrived)
        for id_, size, guard, items, receipts, arrived in rows
    ]


def _unconfirmed(db: Db, device: int) -> list[MtCopy]:
    """Return those of which something has not been confirmed; words to a kit never are."""
    sent = {
        item
        for (item,) in db.execute(
            "SELECT item FROM delivery WHERE device = ? AND state = 'sent'", device
        )
    }
    return [
        each
        for each in _of(db, device)
        if not sent.isdisjoint(each.items) or (each.receipts and not each.items)
    ]


def _again(db: Db, device: int, copy: MtCopy, at: float, now: float) -> None:
    """What is in it waits once more, until that time at the least."""
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
