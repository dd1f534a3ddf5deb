"""People's radios in the journal: who is around, what they sent and were told of it, and what is on
its way to them. Times are lived seconds where nothing else is said."""

from __future__ import annotations

import re
import sqlite3

from fieldagent.agent.journal.journal import FORGOTTEN_AT_ONCE, Journal, Operation
from fieldagent.system.lazy_named_tuple import NamedTuple

KNOWN_FOR = 86_400.0
"""Seconds for which a packet of theirs is known again: its numbers are random for each start."""
AROUND_MAX = 500
"""Handhelds that are kept; of more the one that was heard longest ago is forgotten, but for those
whose person has joined."""


class Handheld(NamedTuple):
    """A person's radio."""

    handle: str
    name: str = ""
    key: bytes | None = None
    """The first public key that it told."""
    other_key: bytes | None = None
    """Another one that came later: it was set up anew, or is somebody else's."""
    joined: float | None = None
    """Since when its person is known by the code."""
    heard: float | None = None
    rssi: int | None = None
    snr: float | None = None
    hops: int | None = None
    battery: int | None = None
    latitude: float | None = None
    longitude: float | None = None
    altitude: float | None = None
    fixed: float | None = None
    """When it was there, Unix time."""
    precision: int | None = None


_COLUMNS = ", ".join(Handheld._fields)
_KEY = re.compile(r"mesh (\S+) ([0-9]{1,18})", re.ASCII)
"""Of a Package that a packet of theirs became; what goes beside it has a word more."""


class HandheldSent(NamedTuple):
    """A packet of theirs that became a Package."""

    handle: str
    number: int
    sequence: int
    told: str
    """The signs that were put on it, in order."""


class HandheldPost(NamedTuple):
    """A text on its way to a person."""

    number: int
    handle: str
    request_id: str
    text: str
    part: int
    """How many of its parts their radio has."""
    tries: int
    not_before: float
    expires: float
    answers: int


def note(handle: str, **known: object) -> Operation[bool]:
    """Keep what is known of a handheld; return whether it is new."""

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
                (AROUND_MAX, handle),
            )
        return is_new

    return store


def handheld(journal: Journal, handle: str) -> Handheld:
    """Return what is known of a handheld radio; of an unknown one, its handle alone."""
    rows = journal.read(f"SELECT {_COLUMNS} FROM handheld WHERE handle = ?", handle)
    return Handheld(*rows[0]) if rows else Handheld(handle)


def around(journal: Journal, limit: int = AROUND_MAX) -> list[Handheld]:
    """Return those that are known, the last that was heard first."""
    rows = journal.read(
        f"SELECT {_COLUMNS} FROM handheld ORDER BY heard IS NULL, heard DESC LIMIT ?", limit
    )
    return [Handheld(*row) for row in rows]


def was_heard(journal: Journal, handle: str, number: int) -> bool:
    """Return whether that packet came before."""
    sql = "SELECT 1 FROM handheld_said WHERE handle = ? AND number = ?"
    return bool(journal.read(sql, handle, number))


REFUSED = "❌"
"""What its writer was told of a packet that was not taken."""


def was_refused(journal: Journal, handle: str, number: int) -> bool:
    """Return whether that packet came before, and was not taken."""
    sql = "SELECT told FROM handheld_said WHERE handle = ? AND number = ? AND sequence IS NULL"
    return any(answer == REFUSED for (answer,) in journal.read(sql, handle, number))


def note_said(
    handle: str, number: int, now: float, sequence: int | None, answer: str = ""
) -> Operation[None]:
    """Know a packet again from here on, the Package that it became, and what its writer was told of
    it."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "DELETE FROM handheld_said WHERE at < ? AND (sequence IS NULL OR NOT EXISTS (SELECT 1"
            " FROM package WHERE package.sequence = handheld_said.sequence))",
            (now - KNOWN_FOR,),
        )
        db.execute(
            "INSERT OR IGNORE INTO handheld_said (handle, number, at, sequence, told)"
            " VALUES (?, ?, ?, ?, ?)",
            (handle, number, now, sequence, answer),
        )

    return store


def told_of(journal: Journal) -> list[HandheldSent]:
    """Return the packets of theirs that became Packages which are kept still, newest first,
    but for those that have arrived."""
    rows = journal.read(
        "SELECT handle, number, handheld_said.sequence, told FROM handheld_said"
        " JOIN package USING (sequence) WHERE NOT instr(told, '✅')"
        " ORDER BY handheld_said.sequence DESC LIMIT 200"
    )
    return [HandheldSent(*row) for row in rows]


def note_told(sent: HandheldSent, signs: str) -> Operation[None]:
    """Write down the signs that were put on a packet of a handheld's, all of them, in order."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE handheld_said SET told = ? WHERE handle = ? AND number = ?",
            (signs, sent.handle, sent.number),
        )

    return store


def key_of(handle: str, number: int) -> str:
    """Return the Idempotency-Key of the Package that a packet of theirs becomes."""
    return f"mesh {handle} {number}"


def is_key(key: str) -> bool:
    """Return whether that is such a key; a program's own may begin like it."""
    return _KEY.fullmatch(key) is not None


def find_again(db: sqlite3.Connection) -> None:
    """Note the packets whose Package was stored just before power failed, and who is in an incident
    by that."""
    rows = db.execute(
        "SELECT sequence, idempotency_key, accepted, incident FROM package"
        " LEFT JOIN incident_item USING (sequence)"
        " WHERE idempotency_key LIKE 'mesh %' AND sequence NOT IN"
        " (SELECT sequence FROM handheld_said WHERE sequence IS NOT NULL)"
    ).fetchall()
    for sequence, key, accepted, in_need in rows:
        # A program's own key may begin like that, too.
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


def spent(journal: Journal, day: str, handle: str, number: int) -> int:
    """Return the credits that a person's messages of that day may have cost, beside the packet of
    that number."""
    ((booked,),) = journal.read(
        "SELECT coalesce(sum(credits), 0) FROM handheld_spent"
        " WHERE day = ? AND handle = ? AND number <> ?",
        day,
        handle,
        number,
    )
    return int(booked)


def spent_by_all(journal: Journal, day: str, handle: str, number: int) -> int:
    """Return the credits that everybody's messages of that day may have cost, beside that packet of
    one's."""
    ((booked,),) = journal.read(
        "SELECT coalesce(sum(credits), 0) FROM handheld_spent"
        " WHERE day = ? AND NOT (handle = ? AND number = ?)",
        day,
        handle,
        number,
    )
    return int(booked)


def spend(day: str, handle: str, number: int, amount: int) -> Operation[None]:
    """Book what one packet of theirs may cost, once however often that comes."""

    def store(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM handheld_spent WHERE day < ?", (day,))
        db.execute(
            "INSERT OR IGNORE INTO handheld_spent (day, handle, number, credits)"
            " VALUES (?, ?, ?, ?)",
            (day, handle, number, amount),
        )

    return store


def post(
    handle: str, request_id: str, text: str, now: float, expires: float, answers: int = 0
) -> Operation[None]:
    """Put a text to a person on disk; once only for each request."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "INSERT OR IGNORE INTO handheld_post (handle, request_id, text, not_before, expires,"
            " answers) VALUES (?, ?, ?, ?, ?, ?)",
            (handle, request_id, text, now, expires, answers),
        )

    return store


def posts(journal: Journal) -> list[HandheldPost]:
    """Return those that wait, in their order."""
    rows = journal.read(
        "SELECT number, handle, request_id, text, part, tries, not_before, expires, answers"
        " FROM handheld_post WHERE state = 'waiting'"
        " ORDER BY request_id NOT LIKE 'answer %', number"
    )
    return [HandheldPost(*row) for row in rows]


def note_packet(number: int, packet: int) -> Operation[None]:
    """Note the packet's number before a part goes: by this number an answer names it."""

    def store(db: sqlite3.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO handheld_packet VALUES (?, ?)", (packet, number))

    return store


def settle(number: int, **changed: object) -> Operation[None]:
    """Write down how a text to a person stands."""

    def store(db: sqlite3.Connection) -> None:
        columns = ", ".join(f"{name} = ?" for name in changed)
        db.execute(
            f"UPDATE handheld_post SET {columns} WHERE number = ?", (*changed.values(), number)
        )

    return store


def arrived(number: int) -> Operation[bool]:
    """Note that the person's radio has all of it; return whether that is news: it is none where
    they have answered a part meanwhile, and so read it."""

    def store(db: sqlite3.Connection) -> bool:
        cursor = db.execute(
            "UPDATE handheld_post SET state = 'on radio' WHERE number = ? AND state = 'waiting'",
            (number,),
        )
        return cursor.rowcount == 1

    return store


def answered(journal: Journal, handle: str, packet: int) -> str | None:
    """Return the request of which that packet of ours to them was a part; None where it was of
    none."""
    rows = journal.read(
        "SELECT request_id FROM handheld_packet JOIN handheld_post ON post = handheld_post.number"
        " WHERE packet = ? AND handle = ?",
        packet,
        handle,
    )
    return rows[0][0] if rows else None


def read(request_id: str) -> Operation[bool]:
    """Write down that a person has read it; return whether that is news."""

    def store(db: sqlite3.Connection) -> bool:
        cursor = db.execute(
            "UPDATE handheld_post SET state = 'read' WHERE request_id = ? AND state <> 'read'",
            (request_id,),
        )
        return cursor.rowcount == 1

    return store


def join_sos(incident: int, handle: str, *, raised: bool) -> Operation[None]:
    """Note that a person is in that incident of this kit's."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            # What the raising has written stays.
            "INSERT INTO handheld_sos VALUES (?, ?, ?, 0) ON CONFLICT DO UPDATE SET called_off = 0",
            (incident, handle, int(raised)),
        )

    return store


class InSos(NamedTuple):
    """A person in an incident."""

    handle: str
    raised: bool
    called_off: bool


def in_sos(journal: Journal, incident: int) -> list[InSos]:
    """Return the people with handhelds in an incident of this kit's, by its number; also those who
    have called off."""
    rows = journal.read(
        "SELECT handle, raised, called_off FROM handheld_sos WHERE incident = ?", incident
    )
    return [InSos(handle, bool(raised), bool(off)) for handle, raised, off in rows]


def leave_sos(incident: int, handle: str) -> Operation[None]:
    """Note that the person calls their own SOS off."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE handheld_sos SET called_off = 1 WHERE incident = ? AND handle = ?",
            (incident, handle),
        )

    return store


def states(journal: Journal) -> dict[str, int]:
    """Return how many texts to people stand how."""
    return dict(journal.read("SELECT state, count(*) FROM handheld_post GROUP BY state"))


def forget(*, before: float, keep: int) -> Operation[int]:
    """Drop some texts to people that ended before `before`, or before the last `keep`, and what was
    noted of incidents that are over; how many texts those were."""

    def store(db: sqlite3.Connection) -> int:
        db.execute(
            "DELETE FROM handheld_sos WHERE incident NOT IN (SELECT number FROM incident WHERE"
            " ended IS NULL OR ended >= ?)",
            (before,),
        )
        cursor = db.execute(
            "DELETE FROM handheld_post WHERE number IN (SELECT number FROM handheld_post"
            " WHERE state <> 'waiting' AND (not_before < ? OR number <= (SELECT max(number) - ?"
            " FROM handheld_post)) LIMIT ?)",
            (before, keep, FORGOTTEN_AT_ONCE),
        )
        return cursor.rowcount

    return store
