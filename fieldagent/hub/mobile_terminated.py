"""Items on their way to devices as MT messages: packed, persisted, claimed, and settled.

A message is on disk before the operator is called. Whatever becomes of a call, the same bytes go
again until the operator has taken them: the numbers in them make a second delivery harmless.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from fieldagent.hub import ring_alerts
from fieldagent.hub.account import ACCOUNT, Account, account_of
from fieldagent.hub.envelope_packing import (
    LOOK_AT,
    Load,
    Space,
    Waiting,
    fill,
    introduction,
    mark_introduced,
    mark_receipts_sent,
    receipts_for,
    waiting,
)
from fieldagent.hub.lease import IS_LINKED
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.store.contract import Db, earliest
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import CREDIT_BYTES, credits_for
from fieldagent.wire.envelope import (
    Entry,
    Fragment,
    Report,
    derive_key,
    digest_of_slices,
    encode,
)
from fieldagent.wire.fragments import ASK_AFTER, ASK_LAST, ASK_RARER, split
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sbd import MT_BYTES
from fieldagent.wire.tag import TAG_BYTES

CALL_SECONDS = 120.0
"""How long a process may keep a message to itself; then another takes it as doubtful."""

BACKOFF = (10.0, 60.0, 300.0, 1800.0)
"""Seconds before a message is called in again, by how often it was; the last repeats."""

CALLS = 8
"""Messages called in at one moment."""


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One MT message that this process may hand to its operator now."""

    id: int
    device: int
    name: str
    imei: str
    operator: str
    body: bytes
    urgent: bool
    tries: int


# What is due becomes messages.


def pack(db: Db, now: float) -> int:
    """Turn what may be sent over satellite now into messages; how many those are."""
    return sum(_pack_for(db, device, now) for device in _due(db, now, lock=True))


def is_due(db: Db, now: float) -> bool:
    """Whether `pack` or `claim` would find something."""
    return bool(_due(db, now, lock=False) or _callable(db, now, lock=False))


_REACHED = "imei IS NOT NULL AND operator IS NOT NULL AND disabled IS NULL"
"""Of a device: by satellite."""


def next_due(db: Db) -> float:
    """When `is_due` may come to hold by itself, at the soonest; 0 for a moment that nobody knows:
    for what waits until its device is linked no more, or has credits."""
    return earliest(
        db,
        "SELECT min(at) FROM (SELECT (SELECT min(satellite_from) FROM delivery"
        " WHERE delivery.device = device.id AND state = 'waiting' AND satellite_from IS NOT NULL)"
        f" AS at FROM device WHERE {_REACHED} UNION ALL SELECT 0 FROM device WHERE {_REACHED}"
        " AND EXISTS (SELECT 1 FROM receipt WHERE receipt.device = device.id"
        " AND state = 'waiting' AND urgent = 1)"
        " UNION ALL SELECT CASE WHEN claimed_until > not_before THEN claimed_until"
        " ELSE not_before END FROM mobile_terminated JOIN device ON device.id = device"
        f" WHERE {_REACHED}) AS times",
    )


_DUE = "delivery.state = 'waiting' AND delivery.satellite_from <= ? AND delivery.not_before <= ?"


def _due(db: Db, now: float, *, lock: bool) -> list[Account]:
    """With `lock`, only those that no other process packs for at this moment."""
    rows = db.execute(
        f"SELECT {ACCOUNT} FROM device"
        f" WHERE {_REACHED}"
        " AND (EXISTS (SELECT 1 FROM delivery JOIN item ON item.id = delivery.item"
        f" WHERE delivery.device = device.id AND {_DUE}"
        " AND (delivery.expires IS NULL OR delivery.expires > ?)"
        f" AND (item.sos = 1 OR NOT {IS_LINKED}))"
        " OR (EXISTS (SELECT 1 FROM receipt WHERE receipt.device = device.id"
        f" AND receipt.state = 'waiting' AND receipt.urgent = 1) AND NOT {IS_LINKED}))"
        " ORDER BY id" + (db.skip_locked if lock else ""),
        now,
        now,
        now,
        now,
        now,
    )
    return [account_of(row) for row in rows]


def _pack_for(db: Db, account: Account, now: float) -> int:
    device, packed = account.device, account.packs_text
    items = waiting(db, device.id, now, due=_DUE, parameters=(now, now), limit=LOOK_AT)
    if items and _alone(items[0], packed) > MT_BYTES - TAG_BYTES - 1:
        return _pack_fragments(db, account, items[0], now)
    receipts = receipts_for(db, device.id, limit=LOOK_AT)
    answers = any(each.urgent for each in receipts)
    urgent = answers or (bool(items) and items[0].entry.sos)
    space = _space(db, account, now, urgent=urgent)
    load = fill(db, device, items, receipts, space, packed=packed)
    if items and not load.items and _alone(items[0], packed) <= space.first(items[0]):
        # It fits, but not beside the name of its sender, which goes ahead.
        _introduce(db, account, items[0], now)
        space = _space(db, account, now, urgent=urgent)
        load = fill(db, device, items, receipts, space, packed=packed)
    if items and not load.items:
        _wait_for_credits(db, device.id, items, now)
    if not load.entries or not (load.items or answers):
        return 0
    _persist(db, device.id, load.encode(account.key), _pieces(load), load.urgent, now)
    _mark_packed(db, device.id, load.items)
    mark_introduced(db, device.id, load.introduced)
    mark_receipts_sent(db, load.receipts, now)
    return 1


def _space(db: Db, account: Account, now: float, *, urgent: bool) -> Space:
    """What the credits that are left today are enough for."""
    ordinary = _room(account, allowance(db, account, now, urgent=False))
    room = _room(account, allowance(db, account, now, urgent=True)) if urgent else ordinary
    return Space(room, ordinary, _tag_bytes(account))


def _room(account: Account, allowed: int | None) -> int:
    """Bytes of a message, without its tag, for so many credits."""
    paid = MT_BYTES if allowed is None else min(MT_BYTES, allowed * CREDIT_BYTES)
    return paid - _tag_bytes(account)


def _pack_fragments(db: Db, account: Account, large: Waiting, now: float) -> int:
    """One message for each fragment, and before them one that says who the sender is."""
    device, urgent = account.device, large.entry.sos
    allowed = allowance(db, account, now, urgent=urgent)
    bodies = _fragments(large, account.key)
    if allowed is not None and sum(map(credits_for, map(len, bodies))) > allowed:
        _wait_for_credits(db, device.id, [large], now)
        return 0
    _introduce(db, account, large, now)
    for position, body in enumerate(bodies):
        _persist(db, device.id, body, [(large.item, position, len(bodies))], urgent, now)
    _mark_packed(db, device.id, [large.item])
    return len(bodies)


def sizes(item: Waiting, names: Sequence[Entry], account: Account) -> list[int]:
    """Bytes of each message that it takes by itself; `names` say who its sender is."""
    key, packed = account.key, account.packs_text
    together = encode([*names, *item.entries], origin=item.sender, key=key, packed=packed)
    if len(together) <= MT_BYTES:
        return [len(together)]
    ahead = [encode(names, origin=item.sender, key=key)] if names else []
    if _alone(item, packed) > MT_BYTES - TAG_BYTES - 1:
        return [len(each) for each in (*ahead, *_fragments(item, key))]
    alone = encode(item.entries, origin=item.sender, key=key, packed=packed)
    return [len(each) for each in (*ahead, alone)]


def _alone(item: Waiting, packed: bool) -> int:
    """Bytes of a message that holds nothing else, without its tag."""
    return len(encode(item.entries, origin=item.sender, packed=packed))


def _tag_bytes(account: Account) -> int:
    return 0 if account.key is None else TAG_BYTES + 1


def _introduce(db: Db, account: Account, item: Waiting, now: float) -> None:
    """A message that says who the sender is, where the device does not know."""
    device = account.device
    for mark, entry in introduction(db, device, item.sender):
        body = encode([entry], origin=item.sender, key=account.key)
        _persist(db, device.id, body, [], item.entry.sos, now)
        mark_introduced(db, device.id, [mark])


def _cut(large: Waiting, key: bytes | None) -> list[Fragment]:
    """The same at every call, so that a fragment sent later fits those sent before."""
    whole = encode(large.entries, origin=large.sender)
    return split(whole, MT_BYTES - (0 if key is None else TAG_BYTES + 1))


def _fragments(large: Waiting, key: bytes | None) -> list[bytes]:
    """A message with each of them."""
    return [_fragment(large, fragment, key) for fragment in _cut(large, key)]


def _fragment(large: Waiting, fragment: Fragment, key: bytes | None) -> bytes:
    return encode([Entry(large.entry.sequence, fragment)], origin=large.sender, key=key)


def send_fragments_again(db: Db, device: int, sequence: int, report: Report, now: float) -> bool:
    """The device lacks fragments of an item: each becomes a message once more. False where the
    report is of another item that had this number."""
    rows = db.execute(
        "SELECT item.id, item.sender, device.air_key FROM delivery"
        " JOIN item ON item.id = delivery.item JOIN device ON device.id = delivery.device"
        " WHERE delivery.device = ? AND delivery.sequence = ? AND delivery.state = 'sent'",
        device,
        sequence,
    )
    for item, _, key in rows:
        (large,) = waiting(
            db, device, 0.0, due="delivery.item = ?", parameters=(item,), limit=1
        ) or (None,)
        if large is None:
            continue
        secret = None if key is None else derive_key(bytes(key), "MT")
        fragments = _cut(large, secret)
        arrived = [each.slice for each in fragments if each.index in report.arrived]
        if len(fragments) != report.count:
            return False
        if report.digest and report.digest != digest_of_slices(arrived):
            return False
        for each in fragments:
            if each.index not in report.arrived:
                pieces = [(item, each.index, report.count)]
                body = _fragment(large, each, secret)
                _persist(db, device, body, pieces, large.entry.sos, now)
    return True


def ask_for_fragments(db: Db, now: float) -> int:
    """Ask devices for what is missing of items whose fragments have stopped to come.

    Each question costs, and what a device withdrew never comes: they become ever rarer, and end.
    """
    rows = db.execute(
        "SELECT slice.device, slice.sequence, slice.count, device.air_key FROM slice"
        " JOIN device ON device.id = slice.device WHERE origin = 0 AND device.imei IS NOT NULL"
        " AND device.operator IS NOT NULL GROUP BY slice.device, slice.sequence, slice.count,"
        " device.air_key HAVING max(slice.at) < ? AND max(slice.at) > ?"
        " AND ? - max(slice.at) >= ? * (max(slice.asked) - max(slice.at))",
        now - ASK_AFTER,
        now - ASK_LAST,
        now,
        ASK_RARER,
    )
    for device, sequence, count, key in rows:
        there = db.execute(
            "UPDATE slice SET asked = ?"
            " WHERE origin = 0 AND device = ? AND sequence = ? AND count = ?"
            " RETURNING position, slice",
            now,
            device,
            sequence,
            count,
        )
        slices = {position: bytes(piece) for position, piece in sorted(there)}
        report = Report(count, frozenset(slices), digest_of_slices(slices.values()))
        secret = None if key is None else derive_key(bytes(key), "MT")
        body = encode([Entry(sequence, report, int(now))], key=secret)
        _persist(db, device, body, [], False, now)
    return len(rows)


def _pieces(load: Load) -> list[tuple[int, int, int]]:
    return [(item, 0, 1) for item in load.items]


def _persist(
    db: Db,
    device: int,
    body: bytes,
    pieces: Sequence[tuple[int, int, int]],
    urgent: bool,
    now: float,
) -> None:
    """`pieces` are item, position and count of fragments for each item in the message."""
    db.execute(
        "INSERT INTO mobile_terminated (device, body, pieces, urgent, state, created)"
        " VALUES (?, ?, ?, ?, 'ready', ?)",
        device,
        body,
        json.dumps(pieces),
        int(urgent),
        now,
    )
    db.announce("satellite")


def _mark_packed(db: Db, device: int, items: Iterable[int]) -> None:
    for item in items:
        db.execute(
            "UPDATE delivery SET state = 'packed' WHERE item = ? AND device = ?"
            " AND state = 'waiting'",
            item,
            device,
        )


def allowance(db: Db, account: Account, now: float, *, urgent: bool) -> int | None:
    """Credits left today, less what waits to be called in; None without a budget."""
    if account.budget is None:
        return None
    id_ = account.device.id
    spent = db.execute("SELECT credits FROM spent WHERE device = ? AND day = ?", id_, day_of(now))
    held = db.execute("SELECT length(body) FROM mobile_terminated WHERE device = ?", id_)
    used: int = sum(credit for (credit,) in spent) + sum(credits_for(size) for (size,) in held)
    return max(0, account.budget - (0 if urgent else account.reserve) - used)


def _wait_for_credits(db: Db, device: int, items: Sequence[Waiting], now: float) -> None:
    """What is due is looked at again when the next day begins."""
    midnight = now - now % 86_400 + 86_400
    for each in items:
        db.execute(
            "UPDATE delivery SET not_before = ?, reason = 'no credits left today'"
            " WHERE item = ? AND device = ?",
            midnight,
            each.item,
            device,
        )


def day_of(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()


# Messages are called in and settled.


def claim(db: Db, now: float) -> list[OperatorCall]:
    """Take the next message of some devices for this process: one of each, the urgent ones first.

    One that another process took and never settled may have left: it is called in again.
    """
    calls = [OperatorCall(*row) for row in _callable(db, now, lock=True)]
    for call in calls:
        db.execute(
            "UPDATE mobile_terminated SET state = 'calling', claimed_until = ?, tries = tries + 1"
            " WHERE id = ?",
            now + CALL_SECONDS,
            call.id,
        )
    return calls


def _callable(db: Db, now: float, *, lock: bool) -> list[tuple[Any, ...]]:
    suffix = db.skip_locked.replace("UPDATE", "UPDATE OF m") if lock else ""
    return db.execute(
        "SELECT m.id, m.device, device.name, device.imei, device.operator, m.body, m.urgent,"
        " m.tries FROM mobile_terminated m JOIN device ON device.id = m.device"
        " WHERE m.claimed_until <= ? AND m.not_before <= ? AND device.imei IS NOT NULL"
        " AND device.operator IS NOT NULL AND device.disabled IS NULL AND NOT EXISTS"
        " (SELECT 1 FROM mobile_terminated other WHERE other.device = m.device"
        " AND other.claimed_until > ?) AND m.id = (SELECT head.id FROM mobile_terminated head"
        " WHERE head.device = m.device ORDER BY head.urgent DESC, head.id LIMIT 1)"
        f" ORDER BY m.urgent DESC, m.id LIMIT {CALLS}" + suffix,
        now,
        now,
        now,
    )


def settle(db: Db, call: OperatorCall, verdict: Verdict, now: float) -> None:
    """Record how a call ended; once, however often it is told."""
    if verdict.outcome is Outcome.SENT:
        if (dropped := drop(db, call)) is not None:
            _book(db, call, now)
        if dropped is not None and verdict.waiting:
            items = [item for item, _, _ in dropped]
            ring_alerts.note_taken(db, call.device, verdict.waiting, items, now)
        for item, position, count in dropped or ():
            _mark_sent(db, call.device, item, position, count)
    elif verdict.outcome is Outcome.REFUSED:
        for item, _, _ in drop(db, call) or ():
            db.execute(
                "UPDATE delivery SET state = 'waiting', satellite_from = NULL, reason = ?"
                " WHERE item = ? AND device = ? AND state = 'packed'",
                verdict.reason,
                item,
                call.device,
            )
    else:
        doubtful = verdict.outcome is Outcome.DOUBTFUL
        wait = BACKOFF[min(call.tries, len(BACKOFF) - 1)] * random.uniform(1.0, 1.3)
        ended = db.execute(
            "UPDATE mobile_terminated SET state = ?, claimed_until = 0, not_before = ?"
            " WHERE id = ? AND claimed_until > 0 RETURNING id",
            "doubtful" if doubtful else "ready",
            now + max(wait, verdict.retry_after),
            call.id,
        )
        if doubtful and ended:
            _book(db, call, now)


def drop(db: Db, call: OperatorCall) -> list[tuple[int, int, int]] | None:
    """Its pieces, which are none where it holds receipts alone; None: it was dropped before."""
    rows = db.execute("DELETE FROM mobile_terminated WHERE id = ? RETURNING pieces", call.id)
    return [tuple(piece) for piece in json.loads(rows[0][0])] if rows else None


def _mark_sent(db: Db, device: int, item: int, position: int, count: int) -> None:
    if count > 1:
        db.execute(
            "INSERT INTO fragment_sent (item, device, count, position) SELECT id, ?, ?, ? FROM item"
            " WHERE id = ? ON CONFLICT DO NOTHING",
            device,
            count,
            position,
            item,
        )
        ((gone,),) = db.execute(
            "SELECT count(*) FROM fragment_sent WHERE item = ? AND device = ? AND count = ?",
            item,
            device,
            count,
        )
        if gone < count:
            return
    db.execute(
        "UPDATE delivery SET state = 'sent', way = 'satellite', reason = ''"
        " WHERE item = ? AND device = ? AND state = 'packed'",
        item,
        device,
    )


def _book(db: Db, call: OperatorCall, now: float) -> None:
    db.execute(
        "INSERT INTO spent (day, device, bytes, credits) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (day, device) DO UPDATE SET bytes = spent.bytes + excluded.bytes,"
        " credits = spent.credits + excluded.credits",
        day_of(now),
        call.device,
        len(call.body),
        credits_for(len(call.body)),
    )


def needed(db: Db, call: OperatorCall) -> bool:
    """Whether something in the message still waits: the IP link may have been quicker."""
    rows = db.execute("SELECT pieces FROM mobile_terminated WHERE id = ?", call.id)
    pieces = [piece for (listed,) in rows for piece in json.loads(listed)]
    return not pieces or any(
        db.execute(
            "SELECT 1 FROM delivery WHERE item = ? AND device = ? AND state IN ('packed', 'sent')",
            item,
            call.device,
        )
        for item, _, _ in pieces
    )
