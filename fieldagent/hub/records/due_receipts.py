"""Receipts and incident updates that the hub must send to kits.

Each receipt or update is a row of the table `receipt`. The first bearer that reaches the kit
delivers it. If the message is lost, the hub sends the receipt again, less and less often.
"""

from __future__ import annotations

from fieldagent.hub.records import sos
from fieldagent.hub.store.contract import Db, insert
from fieldagent.package.delivery import Stage
from fieldagent.package.package import IncidentState

THE_HUB = 0
"""Placeholder for a member id: the hub itself, or a service behind the hub."""

RECEIPT = ("device", "sequence", "member", "at", "urgent", "state", "digest")
"""Columns of the table of receipts that kits must get."""


def announce_mail(db: Db, device: int) -> None:
    """Wake the task that sends to a device over its IP link, after the commit."""
    db.announce(get_mail_topic(device))


def get_mail_topic(device: int) -> str:
    """Return the topic that is announced when a message for a device may be waiting."""
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
    stage: Stage = Stage.STORED,
    text: str = "",
) -> None:
    """Record that the hub must send a receipt to a device. For an urgent receipt, the hub may pay
    for a separate satellite message.
    """
    row = (
        device,
        sequence,
        member,
        now,
        int(urgent),
        "waiting",
        digest,
        stage,
        shorten_update_text(text),
    )
    insert(db, "receipt", (*RECEIPT, "rung", "text"), [row])
    announce_answer(db, device)


UPDATE_TEXT_MAX, UPDATE_NAME_MAX = 120, 40
"""Largest number of characters of an update's text and of its author's name, as sent to a kit."""
UPDATE_TEXT_BYTES, UPDATE_NAME_BYTES = 160, 60
"""Largest number of UTF-8 bytes of the same text and name, because a character takes up to four
bytes. With these limits, one satellite message has space for the whole update with its proof and
tag."""


def owe_incident_update(
    db: Db, incident: sos.Sos, state: IncidentState, person: str, text: str, now: float
) -> None:
    """Record that the hub must send an incident update with a person's text to kits. The kit of the
    incident gets the update. Neighbours that relayed the incident get it too, because the kit may
    have no other route. All other kits that show the SOS get it over free bearers.
    """
    if incident.number is None:
        return
    urgent = dict.fromkeys([incident.device, *sos.list_carriers(db, incident.id)], 1)
    devices = dict.fromkeys(sos.list_ringing(db, incident.id), 0) | urgent
    says_so = (
        state,
        _shorten(person, UPDATE_NAME_MAX, UPDATE_NAME_BYTES),
        shorten_update_text(text),
    )
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
            _find_incident_device(incident, device),
        )
        for device, worth in sorted(devices.items())
    ]
    insert(db, "receipt", _UPDATE_COLUMNS, rows)
    for device in devices:
        announce_answer(db, device)


_UPDATE_COLUMNS = (*RECEIPT, "says", "by_name", "text", "about")


def _find_incident_device(incident: sos.Sos, device: int) -> int:
    """Return the id of the incident's device for an update to `device`. Return 0 if the update goes
    to the incident's own device, which does not need the id.
    """
    return 0 if device == incident.device else incident.device


def record_carrier(db: Db, incident: sos.Sos, device: int, now: float) -> None:
    """Record that a neighbour's device has relayed a part of an incident. The neighbour then gets
    the earlier updates of the incident, so that it can relay them.
    """
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


def shorten_update_text(text: str) -> str:
    """Shorten a text to the limits of an incident update."""
    return _shorten(text, UPDATE_TEXT_MAX, UPDATE_TEXT_BYTES)


def _shorten(text: str, character_limit: int, byte_limit: int) -> str:
    """Shorten a text to `character_limit` characters and `byte_limit` bytes. A shortened text ends
    with an ellipsis.
    """
    if len(text) <= character_limit and len(text.encode()) <= byte_limit:
        return text
    mark = "…"
    shortened = text[: character_limit - 1].encode()[: byte_limit - len(mark.encode())]
    return shortened.decode("utf-8", "ignore") + mark


def announce_answer(db: Db, device: int) -> None:
    """Wake the tasks that send to a device over IP and over satellite, after the commit."""
    announce_mail(db, device)
    db.announce("satellite")


ANSWER_AGAIN_AFTER_S = 120.0
"""Seconds after an answer during which a repeated SOS does not show that the answer was lost. The
kit may have repeated the SOS before it could receive the answer."""


def answer_again(db: Db, device: int, sequence: int, digest: bytes, now: float) -> None:
    """Send the answer to an SOS again. Called when a kit repeats an answered SOS, which shows that
    the answer was lost. The answers become less and less frequent, so that an attacker who replays
    a recorded SOS cannot cause costs.
    """
    repeated_rows = db.execute(
        "UPDATE receipt SET state = 'waiting' WHERE device = ? AND sequence = ? AND digest = ?"
        " AND urgent = 1 AND state = 'sent' AND sent <= ? AND ? - sent >= sent - at RETURNING id",
        device,
        sequence,
        digest,
        now - ANSWER_AGAIN_AFTER_S,
        now,
    )
    if repeated_rows:
        announce_answer(db, device)


def repeat_result(db: Db, incident: sos.Sos, now: float) -> None:
    """Send the result of an incident again. Called when the kit still considers the incident open,
    which shows that the update was lost. Repeats become less and less frequent, and use all
    carriers of the incident.
    """
    repeated_rows = db.execute(
        "UPDATE receipt SET state = 'waiting' WHERE sequence = ? AND says <> ''"
        " AND device IN (SELECT ? UNION SELECT device FROM sos_carrier WHERE sos = ?)"
        " AND about = CASE device WHEN ? THEN 0 ELSE ? END"
        " AND state = 'sent' AND sent <= ? AND ? - sent >= sent - at RETURNING device",
        incident.number,
        incident.device,
        incident.id,
        incident.device,
        incident.device,
        now - ANSWER_AGAIN_AFTER_S,
        now,
    )
    for (device,) in repeated_rows:
        announce_answer(db, device)
