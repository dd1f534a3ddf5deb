"""Messages that a kit sends to the hub itself: receipts for items, reports of unreadable messages,
answers to commands, and check-in requests.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from fieldagent.hub.field import check_in, radio_key
from fieldagent.hub.field.arrival import KitMessage, mark_arrived
from fieldagent.hub.field.envelope_packing import record_journal
from fieldagent.hub.field.mobile_terminated import send_fragments_again
from fieldagent.hub.records import alarm, commands, mt_copies, numbering, sos
from fieldagent.hub.records.due_receipts import THE_HUB, answer_again, owe_receipt, repeat_result
from fieldagent.hub.records.ledger import confirm, record_stage
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import Db
from fieldagent.package.delivery import Stage
from fieldagent.package.package import CheckIn, CommandAnswer, IncidentUpdate
from fieldagent.wire.envelope import (
    Entry,
    JournalNumber,
    Receipt,
    Report,
    Unreadable,
    compute_item_digest,
)

log = logging.getLogger(__name__)


def raise_named_incident(db: Db, update: IncidentUpdate, message: KitMessage) -> None:
    """Raise an incident that a kit reports as open and that the hub does not have. The hub has lost
    this incident, so contacts are notified again.
    """
    if message.doubt_reason or message.relaying is not None:
        return
    device = message.device
    incident = sos.find_by_kit(db, device.id, update.incident, locked=True)
    if incident is None:
        incident_key = device.workspace, device.id, update.incident
        if (
            raised_incident := sos.raise_numbered(db, *incident_key, None, message.now)
        ) is not None:
            alarm.queue_first_messages(db, raised_incident, message.now)
    elif incident.state != sos.SosState.OPEN:
        repeat_result(db, incident, message.now)


def store_journal_number(db: Db, entry: Entry, number: JournalNumber, message: KitMessage) -> None:
    """Record the number of the kit's current journal, unless the message was relayed."""
    if message.relaying is None:
        record_journal(db, message.device.id, entry.sequence, asks_for_names=number.wants_names)


def resend_fragments(db: Db, entry: Entry, report: Report, message: KitMessage) -> None:
    """Send the fragments that a kit reports as missing again. Ignore a report that arrived before,
    because an attacker could replay it to cause costs.
    """
    if not mark_arrived(db, entry, message):
        message.duplicates += 1
    elif not send_fragments_again(db, message.device.id, entry.sequence, report, message.now):
        message.mismatches.append(f"a report on {entry.sequence}")


def record_check_in(db: Db, entry: Entry, checkin_request: CheckIn, message: KitMessage) -> None:
    """Record the kit's check-in request. Send a receipt, because people rely on the check-in."""
    device, digest = message.device.id, compute_item_digest(entry)
    if message.doubt_reason:
        message.troubles.append(message.doubt_reason)
    elif mark_arrived(db, entry, message):
        message.items += 1
        check_in.record_request(
            db, device, checkin_request.within_s, entry.sequence, now=message.now
        )
        owe_receipt(db, device, entry.sequence, digest, THE_HUB, message.now, urgent=True)
    else:
        message.duplicates += 1
        answer_again(db, device, entry.sequence, digest, message.now)


def record_answer(db: Db, entry: Entry, answer: CommandAnswer, message: KitMessage) -> None:
    """Record a kit's answer to a command. Ignore an answer that did not arrive over the kit's own
    link or modem.
    """
    if message.doubt_reason or message.relaying is not None:
        message.troubles.append("an answer to a command, relayed by another device")
    elif not mark_arrived(db, entry, message):
        message.duplicates += 1
    else:
        message.items += 1
        bearer_name = (
            message.bearer.value
            if message.is_authenticated
            else f"{message.bearer.value}, not authenticated"
        )
        store_command_answer(db, answer, message, bearer_name)


def store_command_answer(
    db: Db, answer: CommandAnswer, message: KitMessage, bearer_name: str
) -> None:
    """Store the answer with its command. `bearer_name` is the bearer as people see it."""
    device = message.device.id
    if commands.record_answer(db, device, answer, bearer_name, message.now):
        radio_key.record_step_answer(db, device, answer, message.now)
    elif not commands.is_answered(db, device, answer.number):
        text = f"an answer to command {answer.number}, for which the hub does not wait"
        message.troubles.append(text)


def record_receipt(db: Db, entry: Entry, receipt: Receipt, message: KitMessage) -> None:
    """Record a receipt: the device has stored the item with this number, or the item has reached a
    stage at the device.
    """
    if receipt.stage is not Stage.STORED:
        _record_stage(db, entry, receipt, message)
        return
    rows = db.execute(
        "SELECT item.id, item.body, item.sos FROM delivery JOIN item ON item.id = delivery.item"
        " WHERE delivery.device = ? AND delivery.sequence = ?",
        message.device.id,
        entry.sequence,
    )
    if not rows and _renumber_if_restored(db, entry, message):
        message.mismatches.append(f"a receipt of {entry.sequence}")
    for item, body, is_urgent in rows:
        digest = compute_item_digest(replace(decode_stored_entry(body), sequence=entry.sequence))
        if receipt.digest == digest:
            confirm(db, item, message.device.id, message.bearer, message.now)
            if not is_urgent:
                message.confirmed.append(item)
        else:
            message.mismatches.append(f"a receipt of {entry.sequence}")
            if message.is_authenticated:
                numbering.skip_numbers(db, message.device.id, entry.sequence, message.now)


def resend_unreadable(db: Db, entry: Entry, report: Unreadable, message: KitMessage) -> None:
    """Send a message again that the device could not decode because of noise. Ignore a report that
    arrived before, because an attacker could replay it to cause costs.
    """
    name = message.device.name
    if not mark_arrived(db, entry, message):
        message.duplicates += 1
    elif mt_copies.send_unreadable_again(db, message.device.id, report, message.now):
        log.warning("%s could not read a message of %d bytes: sent again", name, report.size)
    else:
        log.error(
            "%s could not read a message of %d bytes, and the hub has sent no such message",
            name,
            report.size,
        )


def _record_stage(db: Db, entry: Entry, receipt: Receipt, message: KitMessage) -> None:
    """Record the stage that an item has reached at a kit. The kit got the item from the hub, or
    heard it by radio from the station `receipt.by`.
    """
    if receipt.by:
        rows = db.execute(
            "SELECT id, body FROM item WHERE workspace = ? AND source_device = ?"
            " AND source_sequence = ? ORDER BY id DESC LIMIT 1",
            *(message.device.workspace, receipt.by, entry.sequence),
        )
    else:
        rows = db.execute(
            "SELECT item.id, item.body FROM delivery JOIN item ON item.id = delivery.item"
            " WHERE delivery.device = ? AND delivery.sequence = ?",
            *(message.device.id, entry.sequence),
        )
    if receipt.by and not rows:
        # No kit has relayed this radio item to the hub. Its sender receives the stage by radio.
        return
    for item, body in rows:
        if receipt.digest == compute_item_digest(
            replace(decode_stored_entry(body), sequence=entry.sequence)
        ):
            at = min(float(entry.time), message.now)
            record_stage(db, item, message.device.member, receipt.stage, receipt.text, at)
            return
    message.mismatches.append(f"a progress note on {entry.sequence}")


def _renumber_if_restored(db: Db, entry: Entry, message: KitMessage) -> bool:
    """Return True if the hub has not used this number yet. If the sender is authenticated, this
    shows that the database was restored from a backup, and the function skips numbers
    (`records.numbering`).
    """
    device = message.device.id
    higher = "SELECT 1 FROM device WHERE id = ? AND next_sequence <= ?"
    if not db.execute(higher, device, entry.sequence):
        return False
    if message.is_authenticated:
        numbering.skip_numbers(db, device, entry.sequence, message.now)
    return True
