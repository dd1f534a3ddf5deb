"""What kits are owed by the hub: receipts for what they sent, and what people say of an SOS.

They are rows of `receipt`, and go by whatever bearer a kit is reached by first. What was lost goes
again, ever more rarely.
"""

from __future__ import annotations

from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Db, insert
from fieldagent.package.package import Said
from fieldagent.package.reach import Rung

THE_HUB = 0
"""Stands where a member does: the hub itself, and what is behind it."""

RECEIPT = ("device", "sequence", "member", "at", "urgent", "state", "digest")
"""Columns."""


def announce_mail(db: Db, device: int) -> None:
    """Wake who sends to a device over its IP link, once this is committed."""
    db.announce(mail_topic(device))


def mail_topic(device: int) -> str:
    """Return what is announced when something may wait for a device."""
    return f"device {device}"


def owe_receipt(
    db: Db,
    device: int,
    sequence: int,
    digest: bytes,
    member: int,
    now: float,
    *,
    urgent: bool,
    rung: Rung = Rung.STORED,
    text: str = "",
) -> None:
    """Owe a receipt. An urgent one is worth a satellite message of its own."""
    row = (
        device,
        sequence,
        member,
        now,
        int(urgent),
        "waiting",
        digest,
        rung,
        cut_word(text),
    )
    insert(db, "receipt", (*RECEIPT, "rung", "text"), [row])
    announce_answer(db, device)


WORD_MAX, NAME_MAX = 120, 40
"""Characters of a word's text on its way to a kit, and of who says it."""
WORD_BYTES, NAME_BYTES = 160, 60
"""The same in UTF-8, in which a letter takes up to four bytes: so they fit one satellite message,
with the rest of the word, its proof and its tag."""


def owe_word(db: Db, incident: sos.Sos, says: Said, by: str, text: str, now: float) -> None:
    """Owe a word: the kit of an incident is to be told what a person here says of it; so are the
    neighbours that brought it, as it may have no other way, and, where that costs nothing, all that
    ring."""
    if incident.number is None:
        return
    urgent = dict.fromkeys([incident.device, *sos.carriers(db, incident.id)], 1)
    devices = dict.fromkeys(sos.heard_at(db, incident.id), 0) | urgent
    says_so = (says, _cut(by, NAME_MAX, NAME_BYTES), cut_word(text))
    rows = [
        (
            device,
            incident.number,
            THE_HUB,
            now,
            worth,
            "waiting",
            b"",
            *says_so,
            _about(incident, device),
        )
        for device, worth in sorted(devices.items())
    ]
    insert(db, "receipt", _WORD, rows)
    for device in devices:
        announce_answer(db, device)


_WORD = (*RECEIPT, "says", "by_name", "text", "about")


def _about(incident: sos.Sos, device: int) -> int:
    """Of its own a kit needs no telling whose it is."""
    return 0 if device == incident.device else incident.device


def note_carrier(db: Db, incident: sos.Sos, device: int, now: float) -> None:
    """Note that a neighbour's device has brought something of an incident: what was said of that
    before, it is to bring down."""
    if not sos.add_carrier(db, incident.id, device):
        return
    db.execute(
        "INSERT INTO receipt (device, sequence, member, at, urgent, state, digest, says, by_name,"
        " text, about) SELECT ?, sequence, member, ?, 1, 'waiting', digest, says, by_name, text,"
        " device FROM receipt WHERE device = ? AND sequence = ? AND says <> '' AND about = 0"
        " ORDER BY id",
        *(device, now, incident.device, incident.number),
    )
    announce_answer(db, device)


def cut_word(text: str) -> str:
    """Return as much of a text as goes with a word."""
    return _cut(text, WORD_MAX, WORD_BYTES)


def _cut(text: str, letters: int, size: int) -> str:
    """Return as much of it as so many letters and bytes are, with a mark where some is left out."""
    if len(text) <= letters and len(text.encode()) <= size:
        return text
    mark = "…"
    left = text[: letters - 1].encode()[: size - len(mark.encode())]
    return left.decode("utf-8", "ignore") + mark


def announce_answer(db: Db, device: int) -> None:
    """Wake who sends to a device over IP and by satellite, once this is committed."""
    announce_mail(db, device)
    db.announce("satellite")


ANSWERED_AGAIN = 120.0
"""Seconds: a repeat that left earlier has met the answer on its way."""


def answer_again(db: Db, device: int, sequence: int, digest: bytes, now: float) -> None:
    """Answer again: an SOS comes once more that was answered: the answer was lost, and goes again.
    Ever more rarely: who plays back a recording must not run up costs."""
    again = db.execute(
        "UPDATE receipt SET state = 'waiting' WHERE device = ? AND sequence = ? AND digest = ?"
        " AND urgent = 1 AND state = 'sent' AND sent <= ? AND ? - sent >= sent - at RETURNING id",
        device,
        sequence,
        digest,
        now - ANSWERED_AGAIN,
        now,
    )
    if again:
        announce_answer(db, device)


def say_again(db: Db, incident: sos.Sos, now: float) -> None:
    """Say again what became of an SOS: its kit takes it for open, and a person has it, or has
    closed it: that word was lost, and goes again, ever more rarely, by whoever it was to go by."""
    again = db.execute(
        "UPDATE receipt SET state = 'waiting' WHERE sequence = ? AND says <> ''"
        " AND device IN (SELECT ? UNION SELECT device FROM sos_carrier WHERE sos = ?)"
        " AND about = CASE device WHEN ? THEN 0 ELSE ? END"
        " AND state = 'sent' AND sent <= ? AND ? - sent >= sent - at RETURNING device",
        incident.number,
        incident.device,
        incident.id,
        incident.device,
        incident.device,
        now - ANSWERED_AGAIN,
        now,
    )
    for (device,) in again:
        announce_answer(db, device)
