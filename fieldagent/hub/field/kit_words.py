"""What a kit says to the hub itself, beside what it sends to people: how far an item has come
there, what it could not read, what it answers, by when it checks in."""

from __future__ import annotations

import logging
from dataclasses import replace

from fieldagent.hub.field import check_in, radio_key
from fieldagent.hub.field.arrival import KitMessage, mark_arrived
from fieldagent.hub.field.envelope_packing import note_journal
from fieldagent.hub.field.mobile_terminated import send_fragments_again
from fieldagent.hub.records import alarm, commands, mt_copies, numbering, sos
from fieldagent.hub.records.ledger import confirm, note_rung
from fieldagent.hub.records.owed import THE_HUB, answer_again, owe_receipt, say_again
from fieldagent.hub.records.stored_entry import stored_entry
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import CheckIn, CommandAnswer, IncidentWord
from fieldagent.package.reach import Rung
from fieldagent.wire.envelope import Entry, JournalNumber, Receipt, Report, Unreadable, digest_of

log = logging.getLogger(__name__)


def take_open(db: Db, word: IncidentWord, brought: KitMessage) -> None:
    """Raise the open incident that a kit names where the hub does not know it: it was lost, and
    rings again."""
    if brought.doubt or brought.relaying is not None:
        return
    device = brought.device
    incident = sos.of_kit(db, device.id, word.incident, locked=True)
    if incident is None:
        whose = device.workspace, device.id, word.incident
        if (raised := sos.raise_numbered(db, *whose, None, brought.now)) is not None:
            alarm.begin(db, raised, brought.now)
    elif incident.state != sos.SosState.OPEN:
        say_again(db, incident, brought.now)


def take_journal_number(db: Db, entry: Entry, number: JournalNumber, brought: KitMessage) -> None:
    """Note with which journal a kit goes on, as its own way alone tells."""
    if brought.relaying is None:
        note_journal(db, brought.device.id, entry.sequence, anew=number.asks)


def take_report(db: Db, entry: Entry, report: Report, brought: KitMessage) -> None:
    """Send the fragments that it lacks again. A recording of one says nothing new: what it asks
    for costs only once."""
    if not mark_arrived(db, entry, brought):
        brought.duplicates += 1
    elif not send_fragments_again(db, brought.device.id, entry.sequence, report, brought.now):
        brought.mismatches.append(f"a report on {entry.sequence}")


def take_check_in(db: Db, entry: Entry, asked: CheckIn, brought: KitMessage) -> None:
    """Ask for it, and tell its kit that the hub has it: somebody relies on that."""
    device, digest = brought.device.id, digest_of(entry)
    if brought.doubt:
        brought.troubles.append(brought.doubt)
    elif mark_arrived(db, entry, brought):
        brought.items += 1
        check_in.ask(db, device, asked.within, entry.sequence, now=brought.now)
        owe_receipt(db, device, entry.sequence, digest, THE_HUB, brought.now, urgent=True)
    else:
        brought.duplicates += 1
        answer_again(db, device, entry.sequence, digest, brought.now)


def take_answer(db: Db, entry: Entry, answer: CommandAnswer, brought: KitMessage) -> None:
    """Note what a kit answers to a command, which only its own link or modem brings."""
    if brought.doubt or brought.relaying is not None:
        brought.troubles.append("an answer to a command, which another device brought")
    elif not mark_arrived(db, entry, brought):
        brought.duplicates += 1
    else:
        brought.items += 1
        came_by = (
            brought.bearer.value if brought.proved else f"{brought.bearer.value}, not authenticated"
        )
        note_answer(db, answer, brought, came_by)


def note_answer(db: Db, answer: CommandAnswer, brought: KitMessage, came_by: str) -> None:
    """Note it with the command that it answers; `came_by` is how it came, in words."""
    device = brought.device.id
    if commands.note_answer(db, device, answer, came_by, brought.now):
        radio_key.note_answer(db, device, answer, brought.now)
    elif not commands.is_answered(db, device, answer.number):
        text = f"an answer to command {answer.number}, which waits for none here"
        brought.troubles.append(text)


def take_receipt(db: Db, entry: Entry, receipt: Receipt, brought: KitMessage) -> None:
    """Note that the device has stored what was given this number, or how far that has come."""
    if receipt.rung is not Rung.STORED:
        _take_rung(db, entry, receipt, brought)
        return
    rows = db.execute(
        "SELECT item.id, item.body, item.sos FROM delivery JOIN item ON item.id = delivery.item"
        " WHERE delivery.device = ? AND delivery.sequence = ?",
        brought.device.id,
        entry.sequence,
    )
    if not rows and _renumber_if_restored(db, entry, brought):
        brought.mismatches.append(f"a receipt of {entry.sequence}")
    for item, body, urgent in rows:
        digest = digest_of(replace(stored_entry(body), sequence=entry.sequence))
        if receipt.digest == digest:
            confirm(db, item, brought.device.id, brought.bearer, brought.now)
            if not urgent:
                brought.confirmed.append(item)
        else:
            brought.mismatches.append(f"a receipt of {entry.sequence}")
            if brought.proved:
                numbering.suspect(db, brought.device.id, entry.sequence, brought.now)


def take_unreadable(db: Db, entry: Entry, said: Unreadable, brought: KitMessage) -> None:
    """Send a message again that came to the device's modem and could not be read, for noise. A
    recording of that says nothing new."""
    name = brought.device.name
    if not mark_arrived(db, entry, brought):
        brought.duplicates += 1
    elif mt_copies.send_unreadable_again(db, brought.device.id, said, brought.now):
        log.warning("%s could not read a message of %d bytes: sent again", name, said.size)
    else:
        log.error(
            "%s could not read a message of %d bytes, and none of those that it was sent fits",
            name,
            said.size,
        )


def _take_rung(db: Db, entry: Entry, receipt: Receipt, brought: KitMessage) -> None:
    """A kit tells how far an item has come there: one that it has from the hub, or heard by radio
    from the station `receipt.by`."""
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
        # Heard by radio of a kit that has not brought it here: its sender is told by radio.
        return
    for item, body in rows:
        if receipt.digest == digest_of(replace(stored_entry(body), sequence=entry.sequence)):
            at = min(float(entry.time), brought.now)
            note_rung(db, item, brought.device.member, receipt.rung, receipt.text, at)
            return
    brought.mismatches.append(f"a word on how far {entry.sequence} has come")


def _renumber_if_restored(db: Db, entry: Entry, brought: KitMessage) -> bool:
    """Return whether the number is one that the hub has yet to give. Where that is proved, its
    database was restored: numbers are left out (`records.numbering`)."""
    device = brought.device.id
    higher = "SELECT 1 FROM device WHERE id = ? AND next_sequence <= ?"
    if not db.execute(higher, device, entry.sequence):
        return False
    if brought.proved:
        numbering.suspect(db, device, entry.sequence, brought.now)
    return True
