"""Sends items to devices as MT messages, which are packed and stored here.

A message is on disk before the hub calls the operator. Whatever the result of the call, the hub
sends the same bytes again until the operator has accepted them. Because the items have numbers, a
second delivery does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import inf

from fieldagent.hub.field.envelope_packing import (
    LOOK_AT,
    EnvelopeSpace,
    Load,
    WaitingItem,
    fill_envelope_for,
    list_receipts,
    list_waiting,
    make_introduction,
    mark_introduced,
    mark_receipts_sent,
)
from fieldagent.hub.operator.failures import Scope
from fieldagent.hub.records import commands
from fieldagent.hub.records.account import ACCOUNT, Account, read_account
from fieldagent.hub.records.fragments import UNAUTHENTICATED_COLUMN
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.records.usage import format_day
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Data
from fieldagent.package.picture import find_picture_type
from fieldagent.wire.credit import CREDIT_BYTES, compute_credits
from fieldagent.wire.envelope import (
    Entry,
    Fragment,
    Report,
    compute_fragments_digest,
    encode,
)
from fieldagent.wire.errors import LocalProtocolError
from fieldagent.wire.fragments import ASK_AFTER_S, ASK_UNTIL_S, SILENCE_GROWTH_FACTOR, split
from fieldagent.wire.seal import TAG_BYTES

PICTURE_PARTS = 8
"""Largest number of satellite messages for a picture, such as a thumbnail."""


NO_CREDITS = "no credits left today"


def compute_max_parts(item: object) -> float:
    """Return the largest number of messages for an item, or infinity if there is no limit."""
    is_picture = isinstance(item, Data) and find_picture_type(item.payload) is not None
    return PICTURE_PARTS if is_picture else inf


def wait_for_link(db: Db, item: int, device: int, wait_reason: str) -> None:
    """Let an item wait for another channel, because it is too large for the device's modem. People
    see `wait_reason`.
    """
    reason = f"too large for its satellite modem: {wait_reason}"
    db.execute(
        "UPDATE delivery SET satellite_from = NULL, reason = ? WHERE item = ? AND device = ?",
        *(reason, item, device),
    )


def pack_due_messages(db: Db, now: float) -> int:
    """Pack all items and commands that may go over satellite now, and store the messages. Return
    the number of messages.
    """
    return sum(
        _pack_commands(db, account, now) + _pack_for(db, account, now)
        for account in list_due(db, now, lock=True)
    )


IS_REACHABLE = "imei IS NOT NULL AND operator IS NOT NULL AND disabled IS NULL"
"""SQL condition on a device: the device is reachable by satellite."""


_IS_DUE = "delivery.state = 'waiting' AND delivery.satellite_from <= ? AND delivery.not_before <= ?"


def list_due(db: Db, now: float, *, lock: bool) -> list[Account]:
    """Return the devices for which something is due. If `lock` is True, leave out devices for which
    another process is packing.
    """
    rows = db.execute(
        f"SELECT {ACCOUNT} FROM device"
        f" WHERE {IS_REACHABLE}"
        " AND (EXISTS (SELECT 1 FROM delivery JOIN item ON item.id = delivery.item"
        f" WHERE delivery.device = device.id AND {_IS_DUE}"
        " AND (delivery.expires IS NULL OR delivery.expires > ?)"
        f" AND (item.sos = 1 OR NOT {IS_LINKED}))"
        " OR (EXISTS (SELECT 1 FROM receipt WHERE receipt.device = device.id"
        f" AND receipt.state = 'waiting' AND receipt.urgent = 1) AND NOT {IS_LINKED})"
        f" OR EXISTS (SELECT 1 FROM command WHERE command.device = device.id AND {commands.IS_DUE}"
        f" AND (command.bearer = 'satellite' OR NOT {IS_LINKED})))"
        " ORDER BY id" + (db.skip_locked() if lock else ""),
        *([now] * 9),
    )
    return [read_account(row) for row in rows]


def _pack_commands(db: Db, account: Account, now: float) -> int:
    """Pack each command as a separate message, because one credit pays for one command."""
    id_ = account.device.id
    ((linked,),) = db.execute(f"SELECT {IS_LINKED} FROM device WHERE id = ?", now, id_)
    packed = 0
    for entry in commands.list_due_commands(db, id_, now, linked=bool(linked)):
        body = encode([entry], key=account.key)
        if not _is_affordable(db, account, body, now):
            commands.postpone_command(db, id_, entry.sequence, _compute_midnight(now), NO_CREDITS)
            continue
        _persist(db, id_, body, [], False, now)
        commands.mark_command_packed(db, id_, entry.sequence)
        packed += 1
    return packed


def _pack_for(db: Db, account: Account, now: float) -> int:
    device = account.device
    items = list_waiting(
        db, device.id, now, due_condition=_IS_DUE, parameters=(now, now), limit=LOOK_AT
    )
    if unaffordable := _list_unaffordable(db, account, items, now):
        _wait_for_credits(db, device.id, unaffordable, now)
        return _pack_for(db, account, now)
    if items and _compute_size_alone(items[0]) > account.mt_bytes - TAG_BYTES - 1:
        return _pack_fragments(db, account, items[0], now)
    receipts = list_receipts(db, device.id, limit=LOOK_AT)
    answers = any(each.urgent for each in receipts)
    is_urgent = answers or (bool(items) and items[0].entry.sos)
    space = _compute_space(db, account, now, urgent=is_urgent)
    load = fill_envelope_for(db, device, items, receipts, space, packed=True)
    if items and not load.items and _compute_size_alone(items[0]) <= space.compute_first(items[0]):
        # The item fits, but not together with the introduction of its sender. Send the introduction
        # first.
        _store_introduction(db, account, items[0], now)
        space = _compute_space(db, account, now, urgent=is_urgent)
        load = fill_envelope_for(db, device, items, receipts, space, packed=True)
    if items and not load.items:
        _wait_for_credits(db, device.id, items, now)
    if not load.entries or not (load.items or answers):
        return 0
    body, pieces = load.encode(account.key), _list_segments(load)
    _persist(db, device.id, body, pieces, load.urgent, now, receipts=load.receipts)
    _mark_packed(db, device.id, load.items)
    mark_introduced(db, [(device.id, *mark) for mark in load.introduced])
    mark_receipts_sent(db, load.receipts, now)
    return 1


def _list_unaffordable(
    db: Db, account: Account, items: Sequence[WaitingItem], now: float
) -> list[WaitingItem]:
    """Return the unauthenticated SOS items that would use more than half of today's SOS reserve.
    Anyone can send such items, so the other half is kept for an SOS of a known sender.
    """
    doubtful = [each for each in items if each.unauthenticated and each.entry.sos]
    if not doubtful:
        return []
    left = compute_allowance(db, account, now, urgent=True, is_halved=True)
    if left is None:
        return []
    unaffordable = []
    for each in doubtful:
        price = compute_credits(_compute_size_alone(each) + _get_tag_size(account))
        if price > left:
            unaffordable.append(each)
        else:
            left -= price
    return unaffordable


def _compute_space(db: Db, account: Account, now: float, *, urgent: bool) -> EnvelopeSpace:
    """Return the space in bytes that today's remaining credits pay for."""
    ordinary = _compute_capacity(account, compute_allowance(db, account, now, urgent=False))
    capacity = (
        _compute_capacity(account, compute_allowance(db, account, now, urgent=True))
        if urgent
        else ordinary
    )
    return EnvelopeSpace(capacity, ordinary, _get_tag_size(account))


def _compute_capacity(account: Account, allowed: int | None) -> int:
    """Return the largest size in bytes of a message without its tag. If `allowed` is not None, the
    message costs at most `allowed` credits.
    """
    bytes_max = account.mt_bytes
    paid_bytes = bytes_max if allowed is None else min(bytes_max, allowed * CREDIT_BYTES)
    return paid_bytes - _get_tag_size(account)


def _pack_fragments(db: Db, account: Account, large: WaitingItem, now: float) -> int:
    """Pack one message for each fragment, after a message that introduces the sender."""
    device, is_urgent = account.device, large.entry.sos
    allowed = compute_allowance(db, account, now, urgent=is_urgent)
    try:
        bodies = _make_fragments(large, account.key, account.mt_bytes)
        if len(bodies) > compute_max_parts(large.entry.content):
            raise LocalProtocolError(
                f"a picture may take {PICTURE_PARTS} messages, not {len(bodies)}"
            )
    except LocalProtocolError as error:
        # The device has got another modem since the push, or the item can go over a link.
        wait_for_link(db, large.item, device.id, str(error))
        return 0
    new = make_introduction(db, device, large.sender)
    ahead = [encode([entry], origin=large.sender, key=account.key) for _, entry in new]
    if allowed is not None and sum(map(compute_credits, map(len, (*ahead, *bodies)))) > allowed:
        _wait_for_credits(db, device.id, [large], now)
        return 0
    _store_introduction(db, account, large, now)
    for position, body in enumerate(bodies):
        _persist(db, device.id, body, [(large.item, position, len(bodies))], is_urgent, now)
    _mark_packed(db, device.id, [large.item])
    return len(bodies)


def list_sizes(item: WaitingItem, names: Sequence[Entry], account: Account) -> list[int]:
    """Return the size in bytes of each message that the item needs, without other items. `names`
    are the entries that introduce its sender.
    """
    key = account.key
    together = encode([*names, *item.entries], origin=item.sender, key=key, is_packed=True)
    if len(together) <= account.mt_bytes:
        return [len(together)]
    ahead = [encode(names, origin=item.sender, key=key)] if names else []
    if _compute_size_alone(item) > account.mt_bytes - TAG_BYTES - 1:
        return [len(each) for each in (*ahead, *_make_fragments(item, key, account.mt_bytes))]
    alone = encode(item.entries, origin=item.sender, key=key, is_packed=True)
    return [len(each) for each in (*ahead, alone)]


def _compute_size_alone(item: WaitingItem) -> int:
    """Return the size in bytes of a message that contains only this item, without a tag."""
    return len(encode(item.entries, origin=item.sender, is_packed=True))


def _get_tag_size(account: Account) -> int:
    return 0 if account.key is None else TAG_BYTES + 1


def _store_introduction(db: Db, account: Account, item: WaitingItem, now: float) -> None:
    """Store a message that introduces the sender, if the device does not know the sender."""
    device = account.device
    for mark, entry in make_introduction(db, device, item.sender):
        body = encode([entry], origin=item.sender, key=account.key)
        _persist(db, device.id, body, [], item.entry.sos, now)
        mark_introduced(db, [(device.id, *mark)])


def _cut_into_fragments(large: WaitingItem, key: bytes | None, limit: int) -> list[Fragment]:
    """Cut an item into fragments. Each call returns the same fragments, so that fragments that are
    sent later match earlier fragments.
    """
    envelope = encode(large.entries, origin=large.sender)
    return split(envelope, limit - (0 if key is None else TAG_BYTES + 1))


def _make_fragments(large: WaitingItem, key: bytes | None, limit: int) -> list[bytes]:
    """Return the encoded messages that contain the item's fragments, one message for each
    fragment.
    """
    return [
        _encode_fragment(large, fragment, key)
        for fragment in _cut_into_fragments(large, key, limit)
    ]


def _encode_fragment(large: WaitingItem, fragment: Fragment, key: bytes | None) -> bytes:
    return encode([Entry(large.entry.sequence, fragment)], origin=large.sender, key=key)


def send_fragments_again(db: Db, device: int, sequence: int, report: Report, now: float) -> bool:
    """Send the fragments that the device is missing again, until today's credits are spent. Do not
    send fragments that still wait. Return False if the report is about another item that had this
    number.
    """
    rows = db.execute(
        f"SELECT delivery.item, {ACCOUNT} FROM delivery JOIN device ON device.id = delivery.device"
        " WHERE delivery.device = ? AND delivery.sequence = ? AND delivery.state = 'sent'",
        device,
        sequence,
    )
    for item, *row in rows:
        (large,) = list_waiting(
            db, device, 0.0, due_condition="delivery.item = ?", parameters=(item,), limit=1
        ) or (None,)
        if large is None:
            continue
        account = read_account(row)
        fragments = _cut_into_fragments(large, account.key, account.mt_bytes)
        arrived_slices = [each.payload for each in fragments if each.index in report.arrived]
        if len(fragments) != report.count:
            return False
        if report.digest != compute_fragments_digest(arrived_slices):
            return False
        waits = _find_waiting_fragments(db, device)
        for each in fragments:
            if each.index not in report.arrived and (item, each.index) not in waits:
                pieces, is_urgent = [(item, each.index, report.count)], large.entry.sos
                body = _encode_fragment(large, each, account.key)
                # Skip a fragment that is too expensive now. The device asks for missing fragments
                # again.
                if _is_affordable(db, account, body, now, urgent=is_urgent):
                    _persist(db, device, body, pieces, is_urgent, now)
    return True


def _find_waiting_fragments(db: Db, device: int) -> set[tuple[int, int]]:
    """Return the fragments that no operator has accepted yet. Each is a pair of item and
    position.
    """
    rows = db.execute("SELECT pieces FROM mobile_terminated WHERE device = ?", device)
    return {
        (item, position)
        for (fragment_list,) in rows
        for item, position, _ in json.loads(fragment_list)
    }


def ask_for_fragments(db: Db, now: float) -> int:
    """Ask devices for the missing fragments of items if no fragment has arrived for some time.
    Return the number of devices asked.

    Each question costs credits, and a withdrawn item never arrives. So the questions become less
    and less frequent, and end. A question waits if today's credits are not sufficient.
    """
    rows = db.execute(
        f"SELECT slice.sequence, slice.count, {ACCOUNT} FROM slice"
        f" JOIN device ON device.id = slice.device WHERE {UNAUTHENTICATED_COLUMN} = 0 AND"
        f" {IS_REACHABLE}"
        " GROUP BY slice.sequence, slice.count, device.id"
        " HAVING max(slice.at) < ? AND max(slice.at) > ?"
        " AND ? - max(slice.at) >= ? * (max(slice.asked) - max(slice.at))",
        now - ASK_AFTER_S,
        now - ASK_UNTIL_S,
        now,
        SILENCE_GROWTH_FACTOR,
    )
    request_count = 0
    for sequence, count, *row in rows:
        account = read_account(row)
        fragment_condition = (
            f"{UNAUTHENTICATED_COLUMN} = 0 AND device = ? AND sequence = ? AND count = ?"
        )
        device_sequence = account.device.id, sequence, count
        waiting_rows = db.execute(
            f"SELECT position, slice FROM slice WHERE {fragment_condition} ORDER BY position",
            *device_sequence,
        )
        slices = {position: bytes(piece) for position, piece in waiting_rows}
        report = Report(count, frozenset(slices), compute_fragments_digest(slices.values()))
        body = encode([Entry(sequence, report, int(now))], key=account.key)
        if _is_affordable(db, account, body, now):
            db.execute(
                f"UPDATE slice SET asked = ? WHERE {fragment_condition}", now, *device_sequence
            )
            _persist(db, account.device.id, body, [], False, now)
            request_count += 1
    return request_count


def _list_segments(load: Load) -> list[tuple[int, int, int]]:
    return [(item, 0, 1) for item in load.items]


def _persist(
    db: Db,
    device: int,
    body: bytes,
    pieces: Sequence[tuple[int, int, int]],
    urgent: bool,
    now: float,
    *,
    receipts: Sequence[int] = (),
) -> None:
    """Store a message. `pieces` contains one tuple for each item in the message: item, position of
    its fragment, number of its fragments.
    """
    db.execute(
        "INSERT INTO mobile_terminated (device, body, pieces, urgent, state, created, receipts)"
        " VALUES (?, ?, ?, ?, 'ready', ?, ?)",
        device,
        body,
        json.dumps(pieces),
        int(urgent),
        now,
        json.dumps(list(receipts)),
    )
    db.announce("satellite")


def _mark_packed(db: Db, device: int, items: Iterable[int]) -> None:
    for item in items:
        db.execute(
            "UPDATE delivery SET state = 'packed', reason = '' WHERE item = ? AND device = ?"
            " AND state = 'waiting'",
            item,
            device,
        )


def compute_allowance(
    db: Db, account: Account, now: float, *, urgent: bool, is_halved: bool = False
) -> int | None:
    """Return today's remaining credits, minus those of messages that wait for the operator. Return
    None if there is no budget. The result includes the SOS reserve if `urgent` is True, but only
    half of the reserve if `is_halved` is True, too.
    """
    if account.budget is None:
        return None
    id_ = account.device.id
    spent = db.execute(
        "SELECT credits FROM spent WHERE device = ? AND day = ?", id_, format_day(now)
    )
    held_messages = db.execute(
        "SELECT length(body) FROM mobile_terminated WHERE device = ? AND trouble <> ?",
        *(id_, Scope.MESSAGE.value),
    )
    used_credits: int = sum(credit for (credit,) in spent) + sum(
        compute_credits(size) for (size,) in held_messages
    )
    kept = -(-account.reserve // 2) if is_halved else 0 if urgent else account.reserve
    return max(0, account.budget - kept - used_credits)


def _is_affordable(
    db: Db, account: Account, body: bytes, now: float, *, urgent: bool = False
) -> bool:
    """Return True if today's credits are sufficient for this message."""
    allowed = compute_allowance(db, account, now, urgent=urgent)
    return allowed is None or compute_credits(len(body)) <= allowed


def _wait_for_credits(db: Db, device: int, items: Sequence[WaitingItem], now: float) -> None:
    """Let due items wait until the next day begins."""
    for each in items:
        db.execute(
            "UPDATE delivery SET not_before = ?, reason = ? WHERE item = ? AND device = ?",
            _compute_midnight(now),
            NO_CREDITS,
            each.item,
            device,
        )


def _compute_midnight(now: float) -> float:
    """Return the Unix time when the next UTC day begins, which has new credits."""
    return now - now % 86_400 + 86_400
