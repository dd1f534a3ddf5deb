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


def raise_named_incident(db: Db, word: IncidentUpdate, brought: KitMessage) -> None:
    """Raise an open incident that a kit names and the hub does not know. Contacts are notified
    again, because the hub has lost the incident.
    """
    if brought.doubt_reason or brought.relaying is not None:
        return
    device = brought.device
    incident = sos.find_by_kit(db, device.id, word.incident, locked=True)
    if incident is None:
        incident_key = device.workspace, device.id, word.incident
        if (
            raised_incident := sos.raise_numbered(db, *incident_key, None, brought.now)
        ) is not None:
            alarm.queue_first_messages(db, raised_incident, brought.now)
    elif incident.state != sos.SosState.OPEN:
        repeat_result(db, incident, brought.now)


def store_journal_number(db: Db, entry: Entry, number: JournalNumber, brought: KitMessage) -> None:
    """Record the number of the kit's current journal, unless the message was relayed."""
    if brought.relaying is None:
        record_journal(db, brought.device.id, entry.sequence, asks_for_names=number.wants_names)


def resend_fragments(db: Db, entry: Entry, report: Report, brought: KitMessage) -> None:
    """Send the missing fragments again. Ignore a replayed recording of the report, so that it does
    not cause costs twice.
    """
    if not mark_arrived(db, entry, brought):
        brought.duplicates += 1
    elif not send_fragments_again(db, brought.device.id, entry.sequence, report, brought.now):
        brought.mismatches.append(f"a report on {entry.sequence}")


def record_check_in(db: Db, entry: Entry, checkin_request: CheckIn, brought: KitMessage) -> None:
    """Record the kit's check-in request. Send a receipt, because people rely on the check-in."""
    device, digest = brought.device.id, compute_item_digest(entry)
    if brought.doubt_reason:
        brought.troubles.append(brought.doubt_reason)
    elif mark_arrived(db, entry, brought):
        brought.items += 1
        check_in.record_request(
            db, device, checkin_request.within_s, entry.sequence, now=brought.now
        )
        owe_receipt(db, device, entry.sequence, digest, THE_HUB, brought.now, urgent=True)
    else:
        brought.duplicates += 1
        answer_again(db, device, entry.sequence, digest, brought.now)


def record_answer(db: Db, entry: Entry, answer: CommandAnswer, brought: KitMessage) -> None:
    """Record a kit's answer to a command. Ignore an answer that did not arrive over the kit's own
    link or modem.
    """
    if brought.doubt_reason or brought.relaying is not None:
        brought.troubles.append("an answer to a command, relayed by another device")
    elif not mark_arrived(db, entry, brought):
        brought.duplicates += 1
    else:
        brought.items += 1
        came_by = (
            brought.bearer.value
            if brought.is_authenticated
            else f"{brought.bearer.value}, not authenticated"
        )
        store_command_answer(db, answer, brought, came_by)


def store_command_answer(db: Db, answer: CommandAnswer, brought: KitMessage, came_by: str) -> None:
    """Store the answer with its command. `came_by` is the name of the bearer that people see."""
    device = brought.device.id
    if commands.record_answer(db, device, answer, came_by, brought.now):
        radio_key.record_step_answer(db, device, answer, brought.now)
    elif not commands.is_answered(db, device, answer.number):
        text = f"an answer to command {answer.number}, for which the hub does not wait"
        brought.troubles.append(text)


def record_receipt(db: Db, entry: Entry, receipt: Receipt, brought: KitMessage) -> None:
    """Record a receipt: the device has stored the item with this number, or the item has reached a
    stage at the device.
    """
    if receipt.stage is not Stage.STORED:
        _record_stage(db, entry, receipt, brought)
        return
    rows = db.execute(
        "SELECT item.id, item.body, item.sos FROM delivery JOIN item ON item.id = delivery.item"
        " WHERE delivery.device = ? AND delivery.sequence = ?",
        brought.device.id,
        entry.sequence,
    )
    if not rows and _renumber_if_restored(db, entry, brought):
        brought.mismatches.append(f"a receipt of {entry.sequence}")
    for item, body, is_urgent in rows:
        digest = compute_item_digest(replace(decode_stored_entry(body), sequence=entry.sequence))
        if receipt.digest == digest:
            confirm(db, item, brought.device.id, brought.bearer, brought.now)
            if not is_urgent:
                brought.confirmed.append(item)
        else:
            brought.mismatches.append(f"a receipt of {entry.sequence}")
            if brought.is_authenticated:
                numbering.skip_numbers(db, brought.device.id, entry.sequence, brought.now)


def resend_unreadable(db: Db, entry: Entry, report: Unreadable, brought: KitMessage) -> None:
    """Send a message again that the device's modem could not read because of noise. Ignore a
    replayed recording of the report.
    """
    name = brought.device.name
    if not mark_arrived(db, entry, brought):
        brought.duplicates += 1
    elif mt_copies.send_unreadable_again(db, brought.device.id, report, brought.now):
        log.warning("%s could not read a message of %d bytes: sent again", name, report.size)
    else:
        log.error(
            "%s could not read a message of %d bytes, and the hub has sent no such message",
            name,
            report.size,
        )


def _record_stage(db: Db, entry: Entry, receipt: Receipt, brought: KitMessage) -> None:
    """Record the stage that an item has reached at a kit. The kit got the item from the hub, or
    heard it by radio from the station `receipt.by`.
    """
    if receipt.by:
        rows = db.execute(
            "SELECT id, body FROM item WHERE workspace = ? AND source_device = ?"
            " AND source_sequence = ? ORDER BY id DESC LIMIT 1",
            *(brought.device.workspace, receipt.by, entry.sequence),
        )
    else:
        rows = db.execute(
            "SELECT item.id, item.body FROM delivery JOIN item ON item.id = delivery.item"
            " WHERE delivery.device = ? AND delivery.sequence = ?",
            *(brought.device.id, entry.sequence),
        )
    if receipt.by and not rows:
        # No kit has relayed this radio item to the hub. Its sender receives the stage by radio.
        return
    for item, body in rows:
        if receipt.digest == compute_item_digest(
            replace(decode_stored_entry(body), sequence=entry.sequence)
        ):
            at = min(float(entry.time), brought.now)
            record_stage(db, item, brought.device.member, receipt.stage, receipt.text, at)
            return
    brought.mismatches.append(f"a progress note on {entry.sequence}")


def _renumber_if_restored(db: Db, entry: Entry, brought: KitMessage) -> bool:
    """Return True if the hub has not used this number yet. If the sender is authenticated, this
    shows that the database was restored from a backup, and the function skips numbers
    (`records.numbering`).
    """
    device = brought.device.id
    higher = "SELECT 1 FROM device WHERE id = ? AND next_sequence <= ?"
    if not db.execute(higher, device, entry.sequence):
        return False
    if brought.is_authenticated:
        numbering.skip_numbers(db, device, entry.sequence, brought.now)
    return True
