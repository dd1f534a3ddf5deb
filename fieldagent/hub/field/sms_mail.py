"""SMS between kits and the hub, as stored in the database.

1. A frame is accepted if its tag was made with the key of the device that the frame names. The hub
   then sends its answers to the number from which the frame came. Nothing else authenticates this
   number, and a replayed frame cannot change it.
2. An acknowledged item is on disk at the hub. `owed` contains the tags that the hub must still
   acknowledge to the kit.
3. Only one message is under way to a kit. The hub repeats its text unchanged, at most `COPIES`
   times. After that, its content waits until the kit writes again.
4. If the hub last heard a kit by SMS, the kit gets messages without a request, until the hub hears
   it over another channel. All these messages together stay within `kit-sms-per-day`.
5. An item that needs more than two SMS is sent separately, after all shorter items. An item that
   needs more than `PARTS_DOWN` SMS, or more than the day has left, waits for another channel. Its
   delivery contains the reason.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from fieldagent.hub.access import directory, revocation
from fieldagent.hub.contract import Bearer, Device, UnknownDevice
from fieldagent.hub.field.envelope_packing import (
    LOOK_AT,
    EnvelopeSpace,
    Load,
    WaitingItem,
    fill_envelope_for,
    list_receipts,
    list_waiting,
    mark_introduced,
    mark_receipts_sent,
    read_journal_number,
)
from fieldagent.hub.records import contact, workspace_log
from fieldagent.hub.records.ledger import WAITING_STATES, confirm_all
from fieldagent.hub.store.contract import Db, find_earliest
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import sms_alphabet, sms_frame
from fieldagent.wire.sms_frame import PARTS_DOWN, SmsFrame, compute_envelope_bytes_down

log = logging.getLogger(__name__)

OWED_MAX = 4
"""Largest number of acknowledgements in one message. Further acknowledgements are sent in the next
message."""
SEEN_TAGS_MAX = 64
"""Number of each kit's last tags that the hub stores to recognise a replayed frame."""
COPIES = 3
CLAIM_S = 120.0
ANSWER_TIMEOUT_S = 600.0
"""Seconds that the hub waits for a kit's acknowledgement. The time doubles with each copy."""
RECHECK_AFTER_S = 600.0
"""Seconds until the hub checks again whether a waiting item fits into an SMS."""
REACHABLE_AFTER_SMS_S = 86_400.0
"""Seconds after a kit's last SMS. During this time, the hub sends messages to the kit without a
request."""
RETRY_S = 30.0
"""Seconds until the next attempt after a failed message. The time doubles with each failure, up to
an hour."""
RECEIPTS = 8
SMS_PER_MESSAGE_MAX = 2
"""Largest number of SMS that a message with several items may need."""
TOO_LONG = f"waits for another channel: too long for SMS (at most {PARTS_DOWN})"
SPENT_REASON = (
    "waits for another channel, or midnight UTC: it needs more SMS than kit-sms-per-day"
    " leaves today"
)


class SmsToKit(NamedTuple):
    """A message to a kit that this process may hand over to the SMS service."""

    device: int
    kind: str
    number: str
    text: str
    claimed_until: float
    attempts: int


def find_device(db: Db, frame: SmsFrame) -> Device:
    """Return the device that sent a frame, from the frame's name and tag. Raises UnknownDevice."""
    low = frame.name.hex()
    rows = db.execute(
        "SELECT id, link_token FROM device WHERE link_token >= ? AND link_token < ?"
        f" AND {directory.IS_ACCEPTED}",
        *(low, low + "g"),
    )
    for id_, token in rows:
        if frame.is_tagged_by(sms_frame.derive_key_up(bytes.fromhex(token))):
            return directory.find_accepted_device(db, int(id_))
    raise UnknownDevice


def process_frame_facts(
    db: Db, device: Device, frame: SmsFrame, kind: str, phone_number: str, now: float
) -> None:
    """Process the number, tag and acknowledgement of a frame. The envelope in the frame is on disk
    already. Ignore a revoked device, because it gets no SMS.
    """
    if revocation.find_revocation(db, device.id) is not None:
        return
    new = db.execute(
        "INSERT INTO kit_sms (device, workspace, number, kind, at, not_before)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (device) DO NOTHING RETURNING device",
        *(device.id, device.workspace, phone_number, kind, now, now),
    )
    if new:
        workspace_log.create_all_rows(db, device.id, now)
    ((owed, seen_tags, tag, load),) = db.execute(
        "SELECT owed, seen, tag, load FROM kit_sms WHERE device = ?", device.id
    )
    own = frame.tag.hex()
    if own not in seen_tags.split():
        db.execute(
            "UPDATE kit_sms SET number = ?, kind = ?, at = ?, seen = ? WHERE device = ?",
            *(
                phone_number,
                kind,
                now,
                " ".join([*seen_tags.split(), own][-SEEN_TAGS_MAX:]),
                device.id,
            ),
        )
    if load and tag in {each.hex() for each in frame.acknowledged}:
        _confirm(db, device, load, now)
    if frame.envelope and own not in owed.split():
        owed = " ".join([*owed.split(), own])
    db.execute("UPDATE kit_sms SET owed = ?, not_before = ? WHERE device = ?", owed, now, device.id)
    db.announce(contact.SMS_NEWS)


def _confirm(db: Db, device: Device, load: str, now: float) -> None:
    """Record that the kit has stored the content of the last message: items, receipts and names.
    Then delete the message.
    """
    contents = json.loads(load)
    confirm_all(db, [(item, device.id) for item in contents["items"]], Bearer.SMS, now)
    mark_receipts_sent(db, contents["receipts"], now)
    if contents["journal"] == read_journal_number(db, device.id):
        introduced = [(member, bytes.fromhex(digest)) for member, digest in contents["introduced"]]
        mark_introduced(db, [(device.id, *mark) for mark in introduced])
    db.execute(
        "UPDATE kit_sms SET tag = '', load = '', text = '', copies = 0 WHERE device = ?", device.id
    )


_MAIL = (
    "(EXISTS (SELECT 1 FROM delivery WHERE delivery.device = kit_sms.device"
    f" AND delivery.state IN {WAITING_STATES} AND delivery.unpaid = 0) OR EXISTS (SELECT 1 FROM"
    " receipt"
    " WHERE receipt.device = kit_sms.device AND receipt.state = 'waiting'))"
    " AND EXISTS (SELECT 1 FROM contact WHERE contact.device = kit_sms.device"
    f" AND contact.way = '{Bearer.SMS}')"
    " AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.device = kit_sms.device)"
)
_IS_DUE = (
    "EXISTS (SELECT 1 FROM device WHERE device.id = kit_sms.device AND device.disabled IS NULL)"
    f" AND (owed <> '' OR load <> '' OR (at > ? AND {_MAIL}))"
)


def compute_next_due(db: Db, now: float) -> float:
    """Return the Unix time when the next message is due."""
    return find_earliest(
        db,
        "SELECT min(CASE WHEN claimed_until > not_before THEN claimed_until ELSE not_before END)"
        f" FROM kit_sms WHERE {_IS_DUE}",
        now - REACHABLE_AFTER_SMS_S,
    )


def claim_message(db: Db, now: float, per_day: int) -> SmsToKit | None:
    """Claim one due message for this process and return it. Return None if no message may be sent
    now.
    """
    rows = db.execute(
        "SELECT device, number, kind, owed, tag, load, text, copies, attempts, day, today, at"
        f" FROM kit_sms WHERE not_before <= ? AND claimed_until <= ? AND {_IS_DUE}"
        f" ORDER BY not_before LIMIT 1{db.skip_locked()}",
        *(now, now, now - REACHABLE_AFTER_SMS_S),
    )
    if not rows:
        return None
    id_, number, kind, owed, _, load, text, copies, attempts, day, today, at = rows[0]
    device = directory.find_device(db, int(id_))
    today = today if day == _format_day(now) else 0
    midnight = now + 86_400 - now % 86_400
    if today >= per_day:
        _pause_device(db, id_, midnight)
        if per_day:
            log.warning(
                "no more SMS are sent to %s today: the limit is %d (kit-sms-per-day)",
                *(device.name, per_day),
            )
        return None
    if load and not owed and copies >= COPIES:
        # The content of the message, like all other content, waits until the kit sends an SMS.
        db.execute(
            "UPDATE kit_sms SET load = '', tag = '', text = '', copies = 0, at = ?"
            " WHERE device = ?",
            *(min(at, now - REACHABLE_AFTER_SMS_S), id_),
        )
        return None
    if owed or not load:
        message = _store_message(db, device, owed, per_day - today, now)
        if message is None:
            _pause_device(db, id_, now + RECHECK_AFTER_S)
            return None
        text, copies = message, 0
    parts = sms_alphabet.count_parts(text)
    if parts > SMS_PER_MESSAGE_MAX and today + parts > per_day:
        _pause_device(db, id_, midnight)
        return None
    until = now + CLAIM_S
    db.execute(
        "UPDATE kit_sms SET claimed_until = ?, claimed_by = ?, copies = ?, day = ?, today = ?"
        " WHERE device = ?",
        *(until, db.worker, copies + 1, _format_day(now), today + parts, id_),
    )
    return SmsToKit(int(id_), kind, number, text, until, attempts)


def release_claim(db: Db, sms: SmsToKit | None) -> None:
    """Release the claim of a message that is not sent now."""
    if sms is not None:
        _count_back(db, sms)
        db.execute(
            "UPDATE kit_sms SET claimed_until = 0, copies = copies - 1"
            " WHERE device = ? AND claimed_until = ?",
            *(sms.device, sms.claimed_until),
        )


def _count_back(db: Db, sms: SmsToKit) -> None:
    """Subtract an unsent message from the count of its day."""
    db.execute(
        "UPDATE kit_sms SET today = today - ? WHERE device = ? AND claimed_until = ? AND day = ?",
        *(sms_alphabet.count_parts(sms.text), sms.device, sms.claimed_until),
        _format_day(sms.claimed_until - CLAIM_S),
    )


def _store_message(db: Db, device: Device, owed_tags: str, sms_left: int, now: float) -> str | None:
    """Store the next message and return its text. The message contains the waiting
    acknowledgements, and waiting items that fit. Return None if there is nothing to send.
    `sms_left` is the number of SMS left today.
    """
    rows = db.execute("SELECT link_token FROM device WHERE id = ?", device.id)
    if not rows or not rows[0][0]:
        return None
    digest = bytes.fromhex(rows[0][0])
    tags = owed_tags.split()[:OWED_MAX]
    load = _load(db, device, sms_left, now)
    if not tags and not load.entries:
        return None
    envelope = load.encode() if load.entries else b""
    acknowledged = tuple(bytes.fromhex(each) for each in tags)
    frame = SmsFrame(sms_frame.derive_name(digest), envelope, acknowledged)
    key = sms_frame.derive_key_down(digest)
    text = frame.encode_text(key)
    held_messages = {
        "items": load.items,
        "receipts": load.receipts,
        "introduced": [[member, mark.hex()] for member, mark in load.introduced],
        "journal": read_journal_number(db, device.id),
    }
    db.execute(
        "UPDATE kit_sms SET tag = ?, load = ?, text = ? WHERE device = ?",
        *(frame.tag_by(key).hex(), json.dumps(held_messages) if envelope else "", text, device.id),
    )
    return text


def _load(db: Db, device: Device, sms_left: int, now: float) -> Load:
    """Return the waiting entries that fit into a few SMS. If there are none, return one longer
    incident update or one longer item, which then does not delay anything else.
    """
    few = EnvelopeSpace(compute_envelope_bytes_down(SMS_PER_MESSAGE_MAX))
    space = EnvelopeSpace(
        compute_envelope_bytes_down(max(SMS_PER_MESSAGE_MAX, min(PARTS_DOWN, sms_left)))
    )
    short: list[WaitingItem] = []
    long: list[WaitingItem] = []
    for each in list_waiting(
        db, device.id, now, due_condition="delivery.unpaid = 0", limit=LOOK_AT
    ):
        (short if _load_alone(db, device, each, few).items else long).append(each)
    receipts = list_receipts(db, device.id, limit=RECEIPTS)
    load = fill_envelope_for(db, device, short, receipts, few)
    load = load if load.entries else fill_envelope_for(db, device, [], receipts[:1], space)
    for each in long:
        alone = _load_alone(db, device, each, space)
        _store_wait_reason(db, device, each, "" if alone.items else SPENT_REASON)
        load = load if load.entries else alone
    return load


def _load_alone(db: Db, device: Device, item: WaitingItem, space: EnvelopeSpace) -> Load:
    """Return a load with one item, or an empty load if the item does not fit."""
    load = fill_envelope_for(db, device, [item], [], space)
    return load if load.items else Load()


def _store_wait_reason(db: Db, device: Device, item: WaitingItem, reason: str) -> None:
    """Store the reason why an item waits, which its sender sees. An empty `reason` removes the
    reason.
    """
    if (
        reason
        and not _load_alone(
            db, device, item, EnvelopeSpace(compute_envelope_bytes_down(PARTS_DOWN))
        ).items
    ):
        reason = TOO_LONG
    db.execute(
        "UPDATE delivery SET reason = ? WHERE item = ? AND device = ? AND state = 'waiting'"
        " AND reason <> ?",
        *(reason, item.item, device.id, reason),
    )


def record_result(db: Db, sms: SmsToKit, reason: str, now: float, *, untaken: bool = False) -> None:
    """Record the result of a message. `reason` is the reason why it failed, or empty if the service
    accepted it. The message counts for the day unless `untaken` is True, which means that the
    service certainly did not accept it.
    """
    rows = db.execute(
        "SELECT owed, load, copies FROM kit_sms WHERE device = ? AND claimed_until = ?",
        *(sms.device, sms.claimed_until),
    )
    if not rows:
        return
    owed, load, copies = rows[0]
    if reason:
        if untaken:
            _count_back(db, sms)
        wait = min(3_600.0, RETRY_S * 2.0 ** min(sms.attempts, 10))
        db.execute(
            "UPDATE kit_sms SET claimed_until = 0, attempts = attempts + 1, not_before = ?,"
            " copies = ? WHERE device = ?",
            *(now + wait, max(0, copies - 1), sms.device),
        )
        log.warning("an SMS to device %d waits %.0f s: %s", sms.device, wait, reason)
        return
    tags = {each.hex() for each in sms_frame.parse_frame(sms.text).acknowledged}
    remaining_tags = " ".join(each for each in owed.split() if each not in tags)
    wait = ANSWER_TIMEOUT_S * 2.0 ** max(0, copies - 1) if load else 0.0
    db.execute(
        "UPDATE kit_sms SET claimed_until = 0, attempts = 0, owed = ?, not_before = ?"
        " WHERE device = ?",
        *(remaining_tags, now if remaining_tags else now + wait, sms.device),
    )


def _pause_device(db: Db, device: int, until: float) -> None:
    db.execute("UPDATE kit_sms SET not_before = ? WHERE device = ?", until, device)


def _format_day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).date().isoformat()
