"""The kit's incidents: each SOS from its raising to its end, with all that belongs to it.

At most one of this kit's is open. It is named by the number of the Package that raised it. Words,
positions and whatever else is posted as an SOS join it while it is open. What others say of it, and
the incidents of other kits that came here, are kept beside it.

A handheld whose owner nobody has proved opens an incident of its own: anybody can send an SOS by
radio, and what ends a false one must not end the kit's.

    open      raised; nobody is known to have seen it
    seen      a person has it
    closed    a person at the hub has closed it
    called off    this kit has taken it back

`seen` may follow `open`, and both ends may follow either. Nothing leads back: what is posted as an
SOS after an end opens the next incident.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Channel, IncidentWord, Said
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.lived_time import LivedTime

OWN = 0
"""Where a station's number stands: this kit."""


AGE_SHOWN_S = 6 * 3600
"""Seconds that an SOS is behind a trusted clock before people see what its own clock says."""


RAISED_UNPROVED = 2
"""In `handheld_sos.raised`: nobody has proved who has that radio, and the incident is its own."""
_OF_OTHERS = (
    "EXISTS (SELECT 1 FROM handheld_sos WHERE incident = incident.number"
    f" AND raised = {RAISED_UNPROVED}"
)


class IncidentOver(Exception):
    """The incident that a Package was to join is over: nothing was stored."""


class Incident(NamedTuple):
    number: int
    raised: float
    """Lived time."""
    state: str
    ended: float | None
    """Lived time; None while it is open."""


class Word(NamedTuple):
    """What somebody has said of an incident."""

    says: str
    by: str
    text: str
    at: float
    """Unix time."""
    proved: bool


class HeardIncident(NamedTuple):
    """Another kit's incident that came here."""

    station: int
    number: int
    state: str
    since: float
    """Unix time by its sender's clock."""
    at: float
    """Unix time at which it came."""
    text: str


def shown_age(heard: HeardIncident, clock: LivedTime) -> int | None:
    """Return the seconds from the sender's date of an SOS to its arrival, where people should see
    them; None where this kit's clock is not trusted, or was set since the arrival."""
    age = int(heard.at - heard.since)
    was_dated = bool(clock.source()) and heard.at <= clock.date(clock.now())
    return age if was_dated and age > AGE_SHOWN_S else None


def join(
    db: sqlite3.Connection, sequence: int, now: float, only: int | None = None, unproved: str = ""
) -> int:
    """Let a Package join the kit's open incident, or raise one; return the incident's number. With
    `only` it joins that one and raises none. `unproved` is the handheld whose own incident it is.
    Raises IncidentOver where the incident is not open any more."""
    values: tuple[int | str, ...] = ()
    if only is not None:
        sql, values = "SELECT number FROM incident WHERE number = ? AND ended IS NULL", (only,)
    elif unproved:
        sql = f"SELECT number FROM incident WHERE ended IS NULL AND {_OF_OTHERS} AND handle = ?)"
        values = (unproved,)
    else:
        sql = f"SELECT number FROM incident WHERE ended IS NULL AND NOT {_OF_OTHERS})"
    row = db.execute(sql, values).fetchone()
    if only is not None and row is None:
        raise IncidentOver
    number = sequence if row is None else int(row[0])
    if row is None:
        db.execute("INSERT INTO incident VALUES (?, ?, 'open', NULL)", (number, now))
        if unproved:
            raised = (number, unproved, RAISED_UNPROVED)
            db.execute("INSERT INTO handheld_sos VALUES (?, ?, ?, 0)", raised)
    db.execute("INSERT INTO incident_item VALUES (?, ?)", (sequence, number))
    return number


def is_own(db: sqlite3.Connection, number: int) -> bool:
    """Return whether this kit has raised an incident of that number."""
    rows = db.execute("SELECT 1 FROM incident WHERE number = ?", (number,))
    return rows.fetchone() is not None


def call_off(db: sqlite3.Connection, number: int, now: float) -> bool:
    """End the kit's own incident; return whether it was open."""
    return _end(db, number, Said.CALLED_OFF, now)


def _end(db: sqlite3.Connection, number: int, state: str, now: float) -> bool:
    cursor = db.execute(
        "UPDATE incident SET state = ?, ended = ? WHERE number = ? AND ended IS NULL",
        (state, now, number),
    )
    return cursor.rowcount == 1


def note_word(
    db: sqlite3.Connection,
    word: IncidentWord,
    at: float,
    now: float,
    *,
    proved: bool,
    counts: bool,
) -> None:
    """Keep what was said of an incident. Of this kit's own it changes the state where it `counts`,
    which a word without a proof does only where no hub could give one. `at` is Unix time, `now`
    lived time."""
    db.execute(
        "INSERT INTO incident_word (station, incident, says, by, text, at, proved)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET proved = max(proved,"
        " excluded.proved)",
        (word.station, word.incident, word.says, word.by, word.text, at, int(proved)),
    )
    if word.station != OWN and proved:
        db.execute(
            "UPDATE heard_incident SET state = ? WHERE station = ? AND number = ?"
            " AND state NOT IN ('closed', 'called off')",
            (word.says, word.station, word.incident),
        )
    elif word.station == OWN and counts and word.says is Said.SEEN:
        db.execute(
            "UPDATE incident SET state = 'seen' WHERE number = ? AND state = 'open'",
            (word.incident,),
        )
    elif word.station == OWN and counts and word.says is Said.CLOSED:
        _end(db, word.incident, Said.CLOSED, now)


def note_heard(db: sqlite3.Connection, heard: HeardIncident) -> None:
    """Keep another kit's incident by what came of it first. A later item brings words where the
    first had none. The notice that a person has it, or that it is over, may have come before."""
    known = db.execute(
        "SELECT says FROM incident_word WHERE station = ? AND incident = ? AND proved"
        " ORDER BY says = 'seen' LIMIT 1",
        (heard.station, heard.number),
    ).fetchone()
    db.execute(
        "INSERT INTO heard_incident VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " text = CASE text WHEN '' THEN excluded.text ELSE text END",
        heard if known is None else heard._replace(state=known[0]),
    )


def _incidents(rows: Sequence[Sequence[object]]) -> list[Incident]:
    return [Incident(*row) for row in rows]  # type: ignore[arg-type]


_COLUMNS = "SELECT number, raised, state, ended FROM incident"


def open_one(journal: Journal) -> Incident | None:
    """Return the incident of the kit's own people that is open, if one is."""
    sql = f"{_COLUMNS} WHERE ended IS NULL AND NOT {_OF_OTHERS})"
    incidents = _incidents(journal.read(sql))
    return incidents[0] if incidents else None


def all_open(journal: Journal) -> list[Incident]:
    """Return every incident that is open here, the kit's own and those of unproved handhelds."""
    return _incidents(journal.read(f"{_COLUMNS} WHERE ended IS NULL ORDER BY number"))


def open_of(journal: Journal, handle: str) -> Incident | None:
    """Return the open incident that an unproved handheld has raised for itself, if there is one."""
    sql = f"{_COLUMNS} WHERE ended IS NULL AND {_OF_OTHERS} AND handle = ?)"
    incidents = _incidents(journal.read(sql, handle))
    return incidents[0] if incidents else None


def unproved(journal: Journal, limit: int) -> list[tuple[Incident, str]]:
    """Return the incidents of unproved handhelds, each with the handle, the last first; those that
    are open are among them if there are more than `limit`."""
    rows = journal.read(
        "SELECT * FROM (SELECT number, incident.raised, state, ended, handle FROM incident"
        f" JOIN handheld_sos ON incident = number AND handheld_sos.raised = {RAISED_UNPROVED}"
        " ORDER BY ended IS NOT NULL, number DESC LIMIT ?) ORDER BY number DESC",
        limit,
    )
    return [
        (Incident(number, raised, state, ended), handle)
        for number, raised, state, ended, handle in rows
    ]


CARRIED_FOR = 86_400.0
"""Seconds for which the answer to a neighbour's SOS is awaited: no longer does the hub give it to
who brought that."""


def awaits_answer(journal: Journal, now: float) -> bool:
    """Return whether this kit's own incident is open, or another's of which something was brought
    to the hub from here, and nobody has said anything yet. `now` is Unix time."""
    return open_one(journal) is not None or bool(
        journal.read(
            "SELECT 1 FROM carried JOIN heard_incident heard ON heard.station = carried.origin"
            " AND heard.number = carried.origin_sequence - carried.back"
            " WHERE heard.state = 'open' AND heard.at > ? LIMIT 1",
            now - CARRIED_FOR,
        )
    )


def last(journal: Journal) -> Incident | None:
    """Return the one that the kit's own people raised last, whether or not it is over."""
    sql = f"{_COLUMNS} WHERE NOT {_OF_OTHERS}) ORDER BY number DESC LIMIT 1"
    incidents = _incidents(journal.read(sql))
    return incidents[0] if incidents else None


def named(journal: Journal, number: int) -> Incident | None:
    """Return the SOS of that number, open or over; None where there was none."""
    incidents = _incidents(journal.read(f"{_COLUMNS} WHERE number = ?", number))
    return incidents[0] if incidents else None


def is_over(journal: Journal, station: int, number: int) -> bool:
    """Return whether an incident, this kit's or a station's, is known to be closed or called
    off."""
    return bool(
        journal.read(
            "SELECT 1 FROM incident WHERE ?1 = 0 AND number = ?2 AND ended IS NOT NULL UNION ALL"
            " SELECT 1 FROM heard_incident WHERE station = ?1 AND number = ?2"
            " AND state IN ('closed', 'called off')",
            station,
            number,
        )
    )


def items(journal: Journal, number: int) -> list[int]:
    """Return the numbers of its Packages that are kept still, oldest first."""
    rows = journal.read(
        "SELECT sequence FROM incident_item WHERE incident = ? ORDER BY sequence", number
    )
    return [sequence for (sequence,) in rows]


def incident_of(journal: Journal, sequence: int) -> int | None:
    """Return the incident that a Package belongs to."""
    rows = journal.read("SELECT incident FROM incident_item WHERE sequence = ?", sequence)
    return rows[0][0] if rows else None


def words(journal: Journal, number: int, station: int = OWN) -> list[Word]:
    """Return what was said of an incident, oldest first."""
    rows = journal.read(
        "SELECT says, by, text, at, proved FROM incident_word WHERE station = ? AND incident = ?"
        " ORDER BY number",
        station,
        number,
    )
    return [Word(says, by, text, at, bool(proved)) for says, by, text, at, proved in rows]


def heard(journal: Journal, limit: int) -> list[HeardIncident]:
    """Return the incidents of other kits, the last that came first. Where there are more than
    `limit`, those that are not over are among them."""
    rows = journal.read(
        "SELECT station, number, state, since, at, text FROM (SELECT * FROM heard_incident"
        " ORDER BY state NOT IN ('open', 'seen'), at DESC LIMIT ?) ORDER BY at DESC",
        limit,
    )
    return [HeardIncident(*row) for row in rows]


def at_hub(journal: Journal, number: int) -> dict[int, float]:
    """Return those of its Packages that the hub has on its own proved word, and since when (Unix
    time): over IP the link's acknowledgement says so, otherwise a receipt."""
    rows = journal.read(
        "SELECT sequence, min(at) FROM (SELECT item.sequence, receipt.at FROM incident_item item"
        " JOIN receipt USING (sequence) WHERE incident = ?1 AND by >= 0 AND proved = 1 UNION ALL"
        " SELECT item.sequence, leg.ended + ?2 FROM incident_item item JOIN leg USING (sequence)"
        " WHERE incident = ?1 AND channel = 'Cellular' AND status = 'Delivered')"
        " GROUP BY sequence",
        number,
        journal.clock.date(0.0),
    )
    return dict(rows)


def waiting(journal: Journal, number: int) -> list[tuple[int, Channel]]:
    """Return its Packages on each channel on which they have not ended."""
    rows = journal.read(
        "SELECT leg.sequence, leg.channel FROM incident_item JOIN leg USING (sequence)"
        " WHERE incident = ? AND leg.status IS NULL",
        number,
    )
    return [(sequence, Channel(name)) for sequence, name in rows]


def taken(journal: Journal, number: int) -> dict[tuple[int, Channel], float]:
    """Return its Packages on each channel that took them, and when that was last heard of (lived
    time). A position that a later one has replaced is not among them."""
    rows = journal.read(
        "SELECT leg.sequence, leg.channel, max(leg.ended, coalesce((SELECT max(story.at) FROM story"
        " WHERE story.sequence = leg.sequence AND story.channel = leg.channel), 0))"
        " FROM incident_item JOIN leg USING (sequence) JOIN package USING (sequence)"
        " WHERE incident = ?1 AND leg.status = 'Delivered' AND (NOT instr(body, '\"location\":{')"
        " OR sequence = (SELECT max(sequence) FROM incident_item JOIN package USING (sequence)"
        " WHERE incident = ?1 AND instr(body, '\"location\":{')))"
        " ORDER BY leg.sequence, leg.channel",
        number,
    )
    return {(sequence, Channel(name)): at for sequence, name, at in rows}


def left(journal: Journal, number: int) -> dict[str, float]:
    """Return the channels that have transmitted something of it, and when first (lived time)."""
    rows = journal.read(
        "SELECT channel, min(at) FROM (SELECT channel, at FROM story JOIN incident_item"
        " USING (sequence) WHERE incident = ?1 AND event = 'sent' UNION ALL"
        " SELECT channel, ended FROM leg JOIN incident_item USING (sequence)"
        " WHERE incident = ?1 AND status = 'Delivered') GROUP BY channel ORDER BY 2",
        number,
    )
    return dict(rows)


def brought(journal: Journal, number: int) -> list[tuple[float, str]]:
    """Return which neighbours say that they have brought something of it to the hub, and when
    (lived time)."""
    return journal.read(
        "SELECT min(at), detail FROM story JOIN incident_item USING (sequence)"
        " WHERE incident = ? AND event = 'relayed' GROUP BY detail ORDER BY 1",
        number,
    )


def stopped(journal: Journal, number: int) -> list[tuple[float, str]]:
    """Return which kits say that something of it goes no further with them, and when (lived
    time)."""
    return journal.read(
        "SELECT min(at), detail FROM story JOIN incident_item USING (sequence)"
        " WHERE incident = ? AND event = 'not passed on' GROUP BY detail ORDER BY 1",
        number,
    )
