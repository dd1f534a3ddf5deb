"""Handheld radios in the journal: the known handhelds, their messages and the replies, and texts on
their way to handhelds. Times are elapsed time unless stated otherwise.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from fieldagent.agent.journal.journal import DELETED_ROWS_MAX, Journal, Operation
from fieldagent.system.lazy_named_tuple import NamedTuple

DUPLICATE_WINDOW_S = 86_400.0
"""Seconds for which a handheld's packet is recognised as a duplicate. The time is limited because a
handheld begins with a random number at each start."""
HANDHELDS_MAX = 500
"""Maximum number of handhelds that are kept. If there are more, those that were heard longest ago
are deleted, except the handhelds of people who have joined."""


class Handheld(NamedTuple):
    """A person's handheld radio, with its last known values. None means unknown.

    `heard` is the time when the handheld was heard last. `battery` is in percent. `latitude` and
    `longitude` are in degrees, `altitude` in metres.
    """

    handle: str
    name: str = ""
    key: bytes | None = None
    """The first public key that the handheld sent."""
    other_key: bytes | None = None
    """A different key that arrived later. The handheld was reset, or another person uses its id."""
    joined: float | None = None
    """Time when the handheld's owner joined with the code. None if the owner has not joined."""
    heard: float | None = None
    rssi: int | None = None
    snr: float | None = None
    hops: int | None = None
    battery: int | None = None
    latitude: float | None = None
    longitude: float | None = None
    altitude: float | None = None
    fixed: float | None = None
    """Unix time of the position."""
    precision: int | None = None


_COLUMNS = ", ".join(Handheld._fields)
_KEY = re.compile(r"mesh (\S+) ([0-9]{1,18})", re.ASCII)
"""Idempotency-Key of a Package that was made from a handheld's packet. The key of a second Package
from the same packet has a fourth part."""


class HandheldSent(NamedTuple):
    """A packet of a handheld from which a Package was made."""

    handle: str
    number: int
    sequence: int
    told: str
    """Reaction signs (emoji) that were sent to the handheld for this packet, in order."""


class HandheldPost(NamedTuple):
    """A text on its way to a person."""

    number: int
    handle: str
    request_id: str
    text: str
    part: int
    """Number of parts of the text that the handheld has received. It is also the index of the next
    part to send."""
    attempts: int
    not_before: float
    expires: float
    answers: int


def store_facts(handle: str, **known: object) -> Operation[bool]:
    """Return the operation that stores values for fields of `Handheld`. Its result is True if the
    handheld was unknown.
    """

    def store(db: sqlite3.Connection) -> bool:
        cursor = db.execute("INSERT OR IGNORE INTO handheld (handle) VALUES (?)", (handle,))
        is_new = cursor.rowcount == 1
        if known:
            columns = ", ".join(f"{name} = ?" for name in known)
            db.execute(f"UPDATE handheld SET {columns} WHERE handle = ?", (*known.values(), handle))
        if is_new:
            db.execute(
                "DELETE FROM handheld WHERE joined IS NULL AND handle NOT IN (SELECT handle FROM"
                " handheld ORDER BY heard IS NULL, heard DESC LIMIT ?) AND handle <> ?",
                (HANDHELDS_MAX, handle),
            )
        return is_new

    return store


def read_handheld(journal: Journal, handle: str) -> Handheld:
    """Return the stored values of a handheld. For an unknown handheld, the result contains only the
    handle.
    """
    rows = journal.read(f"SELECT {_COLUMNS} FROM handheld WHERE handle = ?", handle)
    return Handheld(*rows[0]) if rows else Handheld(handle)


def list_recently_heard(journal: Journal, limit: int = HANDHELDS_MAX) -> list[Handheld]:
    """Return the known handhelds. The handheld that was heard last comes first."""
    rows = journal.read(
        f"SELECT {_COLUMNS} FROM handheld ORDER BY heard IS NULL, heard DESC LIMIT ?", limit
    )
    return [Handheld(*row) for row in rows]


def is_heard(journal: Journal, handle: str, packet_number: int) -> bool:
    """Return True if the packet `packet_number` of the handheld arrived before."""
    sql = "SELECT 1 FROM handheld_said WHERE handle = ? AND number = ?"
    return bool(journal.read(sql, handle, packet_number))


REFUSED_SIGN = "❌"
"""Sign that the handheld gets for a packet that was refused."""


def is_refused(journal: Journal, handle: str, packet_number: int) -> bool:
    """Return True if the packet `packet_number` of the handheld arrived before and was refused."""
    sql = "SELECT told FROM handheld_said WHERE handle = ? AND number = ? AND sequence IS NULL"
    return any(answer == REFUSED_SIGN for (answer,) in journal.read(sql, handle, packet_number))


def record_packet(
    handle: str, packet_number: int, now: float, sequence: int | None, answer: str = ""
) -> Operation[None]:
    """Return the operation that records that a packet arrived. `sequence` is the Package that was
    made from it (None: no Package), and `answer` the sign that was sent to the handheld.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "DELETE FROM handheld_said WHERE at < ? AND (sequence IS NULL OR NOT EXISTS (SELECT 1"
            " FROM package WHERE package.sequence = handheld_said.sequence))",
            (now - DUPLICATE_WINDOW_S,),
        )
        db.execute(
            "INSERT OR IGNORE INTO handheld_said (handle, number, at, sequence, told)"
            " VALUES (?, ?, ?, ?, ?)",
            (handle, packet_number, now, sequence, answer),
        )

    return store


def list_reportable(journal: Journal) -> list[HandheldSent]:
    """Return at most 200 packets whose Packages are still in the journal and for which the handheld
    has not received the sign ✅, newest first.
    """
    rows = journal.read(
        "SELECT handle, number, handheld_said.sequence, told FROM handheld_said"
        " JOIN package USING (sequence) WHERE NOT instr(told, '✅')"
        " ORDER BY handheld_said.sequence DESC LIMIT 200"
    )
    return [HandheldSent(*row) for row in rows]


def store_signs(handheld_packet: HandheldSent, sign_texts: str) -> Operation[None]:
    """Return the operation that replaces the stored signs of a packet by `sign_texts`, which
    contains all signs that were sent for the packet.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE handheld_said SET told = ? WHERE handle = ? AND number = ?",
            (sign_texts, handheld_packet.handle, handheld_packet.number),
        )

    return store


def make_idempotency_key(handle: str, packet_number: int) -> str:
    """Return the Idempotency-Key for the Package that is made from a handheld's packet."""
    return f"mesh {handle} {packet_number}"


def is_idempotency_key(key: str) -> bool:
    """Return True if `key` has exactly the form of `make_idempotency_key`. A key of another program
    that only begins in the same way does not match.
    """
    return _KEY.fullmatch(key) is not None


def record_interrupted_packets(db: sqlite3.Connection) -> None:
    """Record the packets whose Packages were stored before a power failure, if the packets
    themselves were not recorded. Also record the incidents of their senders.
    """
    rows = db.execute(
        "SELECT sequence, idempotency_key, accepted, incident FROM package"
        " LEFT JOIN incident_item USING (sequence)"
        " WHERE idempotency_key LIKE 'mesh %' AND sequence NOT IN"
        " (SELECT sequence FROM handheld_said WHERE sequence IS NOT NULL)"
    ).fetchall()
    for sequence, key, accepted, in_need in rows:
        # Check the complete key, because a program's own key may begin in the same way.
        if match := _KEY.fullmatch(key):
            db.execute(
                "INSERT OR IGNORE INTO handheld_said (handle, number, at, sequence)"
                " VALUES (?, ?, ?, ?)",
                (match[1], int(match[2]), accepted, sequence),
            )
            if in_need is not None:
                db.execute(
                    "INSERT OR IGNORE INTO handheld_sos VALUES (?, ?, ?, 0)",
                    (in_need, match[1], int(in_need == sequence)),
                )


def sum_spent(journal: Journal, day: str, handle: str, packet_number: int) -> int:
    """Return the credits that a person's messages may have cost on `day`, without the packet
    `packet_number`.
    """
    ((booked,),) = journal.read(
        "SELECT coalesce(sum(credits), 0) FROM handheld_spent"
        " WHERE day = ? AND handle = ? AND number <> ?",
        day,
        handle,
        packet_number,
    )
    return int(booked)


def sum_spent_by_all(journal: Journal, day: str, handle: str, packet_number: int) -> int:
    """Return the credits that all people's messages may have cost on `day`, without the packet
    `packet_number` of the handheld `handle`.
    """
    ((booked,),) = journal.read(
        "SELECT coalesce(sum(credits), 0) FROM handheld_spent"
        " WHERE day = ? AND NOT (handle = ? AND number = ?)",
        day,
        handle,
        packet_number,
    )
    return int(booked)


def book_packet_cost(day: str, handle: str, packet_number: int, amount: int) -> Operation[None]:
    """Return the operation that books the possible cost of a packet. The cost is booked only once,
    even if the packet arrives repeatedly.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM handheld_spent WHERE day < ?", (day,))
        db.execute(
            "INSERT OR IGNORE INTO handheld_spent (day, handle, number, credits)"
            " VALUES (?, ?, ?, ?)",
            (day, handle, packet_number, amount),
        )

    return store


def list_booked(journal: Journal, day: str) -> list[tuple[str, int]]:
    """Return the handle and number of each packet whose cost was booked on `day`."""
    return journal.read("SELECT handle, number FROM handheld_spent WHERE day = ?", day)


def cancel_bookings(day: str, packets: Sequence[tuple[str, int]]) -> Operation[None]:
    """Return the operation that cancels the bookings of packets that turned out to cost nothing."""

    def store(db: sqlite3.Connection) -> None:
        db.executemany(
            "DELETE FROM handheld_spent WHERE day = ? AND handle = ? AND number = ?",
            [(day, *packet) for packet in packets],
        )

    return store


def store_text(
    handle: str, request_id: str, text: str, now: float, expires: float, answers: int = 0
) -> Operation[None]:
    """Return the operation that stores a text for a person. A text with a known request id is not
    stored again.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "INSERT OR IGNORE INTO handheld_post (handle, request_id, text, not_before, expires,"
            " answers) VALUES (?, ?, ?, ?, ?, ?)",
            (handle, request_id, text, now, expires, answers),
        )

    return store


def list_posts(journal: Journal) -> list[HandheldPost]:
    """Return the waiting texts, in sending order."""
    rows = journal.read(
        "SELECT number, handle, request_id, text, part, tries, not_before, expires, answers"
        " FROM handheld_post WHERE state = 'waiting'"
        " ORDER BY request_id NOT LIKE 'answer %', number"
    )
    return [HandheldPost(*row) for row in rows]


def record_packet_number(text_number: int, packet_number: int) -> Operation[None]:
    """Return the operation that records the packet number of a text's part. It must run before the
    part is sent, because an answer contains this number.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "INSERT OR REPLACE INTO handheld_packet VALUES (?, ?)", (packet_number, text_number)
        )

    return store


def update_text(text_number: int, **changed: object) -> Operation[None]:
    """Return the operation that stores the values `changed` for a text."""

    def store(db: sqlite3.Connection) -> None:
        columns = ", ".join(f"{name} = ?" for name in changed)
        db.execute(
            f"UPDATE handheld_post SET {columns} WHERE number = ?", (*changed.values(), text_number)
        )

    return store


def mark_arrived(text_number: int) -> Operation[bool]:
    """Return the operation that records that the person's radio has the complete text. Its result
    is False if the text was no longer waiting, for example because the person has already answered
    a part of it.
    """

    def store(db: sqlite3.Connection) -> bool:
        cursor = db.execute(
            "UPDATE handheld_post SET state = 'on radio' WHERE number = ? AND state = 'waiting'",
            (text_number,),
        )
        return cursor.rowcount == 1

    return store


def find_answered(journal: Journal, handle: str, packet: int) -> str | None:
    """Return the request id of the text to which our packet `packet` belongs, or None if there is
    none.
    """
    rows = journal.read(
        "SELECT request_id FROM handheld_packet JOIN handheld_post ON post = handheld_post.number"
        " WHERE packet = ? AND handle = ?",
        packet,
        handle,
    )
    return rows[0][0] if rows else None


def mark_read(request_id: str) -> Operation[bool]:
    """Return the operation that records that a person has read the text. Its result is True if this
    was not recorded before.
    """

    def store(db: sqlite3.Connection) -> bool:
        cursor = db.execute(
            "UPDATE handheld_post SET state = 'read' WHERE request_id = ? AND state <> 'read'",
            (request_id,),
        )
        return cursor.rowcount == 1

    return store


def join_sos(incident: int, handle: str, *, is_raiser: bool) -> Operation[None]:
    """Return the operation that records that a person is part of this kit's incident `incident`."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            # Keep the value of `raised` that was stored first.
            "INSERT INTO handheld_sos VALUES (?, ?, ?, 0) ON CONFLICT DO UPDATE SET called_off = 0",
            (incident, handle, int(is_raiser)),
        )

    return store


class PersonInSos(NamedTuple):
    """A person with a handheld who is part of an incident of this kit."""

    handle: str
    raised: bool
    called_off: bool


def list_in_sos(journal: Journal, incident: int) -> list[PersonInSos]:
    """Return the people with handhelds in this kit's incident `incident`, including those who have
    cancelled.
    """
    rows = journal.read(
        "SELECT handle, raised, called_off FROM handheld_sos WHERE incident = ?", incident
    )
    return [PersonInSos(handle, bool(is_raised), bool(off)) for handle, is_raised, off in rows]


def record_sos_canceled(incident: int, handle: str) -> Operation[None]:
    """Return the operation that records that a person has cancelled their own SOS."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE handheld_sos SET called_off = 1 WHERE incident = ? AND handle = ?",
            (incident, handle),
        )

    return store


def count_states(journal: Journal) -> dict[str, int]:
    """Return the number of texts to people in each state."""
    return dict(journal.read("SELECT state, count(*) FROM handheld_post GROUP BY state"))


def forget(*, end_time: float, keep_count: int) -> Operation[int]:
    """Return the operation that deletes some ended texts to people: texts older than `end_time`,
    and texts that are not among the last `keep_count`. It also deletes the people of incidents that
    ended before `end_time`. Its result is the number of deleted texts.
    """

    def store(db: sqlite3.Connection) -> int:
        db.execute(
            "DELETE FROM handheld_sos WHERE incident NOT IN (SELECT number FROM incident WHERE"
            " ended IS NULL OR ended >= ?)",
            (end_time,),
        )
        cursor = db.execute(
            "DELETE FROM handheld_post WHERE number IN (SELECT number FROM handheld_post"
            " WHERE state <> 'waiting' AND (not_before < ? OR number <= (SELECT max(number) - ?"
            " FROM handheld_post)) LIMIT ?)",
            (end_time, keep_count, DELETED_ROWS_MAX),
        )
        return cursor.rowcount

    return store
