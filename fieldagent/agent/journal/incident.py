"""Incidents in the journal: each SOS from its start to its end, with everything that belongs to it.

At most one incident of the kit's own people is open. The number of an incident is the sequence of
the Package that raised it. Texts, positions and other items posted as an SOS join the open
incident. Updates about incidents, and the incidents of other kits, are stored too.

A handheld whose owner is unauthenticated opens its own incident. This is necessary because anyone
can send an SOS by radio. The end of a false SOS must not end the incident of the kit's own people.

    open          raised; no person is known to have seen it
    seen          a person has it
    closed        a person at the hub has closed it
    called off    this kit has canceled it

`seen` may follow `open`, and each of the two end states may follow `open` or `seen`. An incident
that is over never opens again: the next item posted as an SOS opens a new one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fieldagent.agent.journal.journal import Journal
from fieldagent.package.package import Channel, IncidentState, IncidentUpdate
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.system.lazy_named_tuple import NamedTuple

OWN_STATION = 0
"""Value that stands for this kit in place of a station number."""


AGE_SHOWN_S = 6 * 3600
"""Seconds between the date of an SOS (its sender's clock) and its arrival (a trusted clock) from
which the difference is shown to people."""


RAISED_BY_UNKNOWN = 2
"""Value of `raised` in the table `handheld_sos`. It means that the handheld's owner is
unauthenticated, and that the incident belongs only to the handheld."""
_IS_OTHERS_SQL = (
    "EXISTS (SELECT 1 FROM handheld_sos WHERE incident = incident.number"
    f" AND raised = {RAISED_BY_UNKNOWN}"
)


class IncidentOver(Exception):
    """The incident that a Package should join is over. The Package was not stored."""


class Incident(NamedTuple):
    number: int
    raised: float
    """Elapsed time when the incident was raised."""
    state: str
    ended: float | None
    """Elapsed time when the incident ended. None while it is open."""


class StoredUpdate(NamedTuple):
    """A stored update about an incident: the reported state, the person who reported it, and a
    text.
    """

    state: str
    by: str
    text: str
    at: float
    """Unix time of the update."""
    is_authenticated: bool


class HeardIncident(NamedTuple):
    """An incident of another kit that this kit has received."""

    station: int
    number: int
    state: str
    since: float
    """Unix time of the incident's start, by its sender's clock."""
    at: float
    """Unix time when the incident's first item arrived at this kit."""
    text: str


def compute_shown_age(heard_incident: HeardIncident, clock: ElapsedTime) -> int | None:
    """Return the seconds between the sender's date of an SOS and its arrival. Return None if they
    must not be shown: the difference is small, this kit's clock is not trusted, or the clock was
    set after the arrival.
    """
    age = int(heard_incident.at - heard_incident.since)
    was_dated = bool(clock.source()) and heard_incident.at <= clock.date(clock.now())
    return age if was_dated and age > AGE_SHOWN_S else None


def add_to_incident(
    db: sqlite3.Connection,
    sequence: int,
    now: float,
    incident_number: int | None = None,
    handle: str = "",
) -> int:
    """Add a Package to the kit's open incident, or open an incident with it. Return the incident's
    number. If `incident_number` is not None, the Package joins that incident and opens none. If
    `handle` is not empty, the Package joins or opens the handheld's own incident. Raises
    IncidentOver if the incident `incident_number` is no longer open.
    """
    values: tuple[int | str, ...] = ()
    if incident_number is not None:
        sql, values = (
            "SELECT number FROM incident WHERE number = ? AND ended IS NULL",
            (incident_number,),
        )
    elif handle:
        sql = (
            f"SELECT number FROM incident WHERE ended IS NULL AND {_IS_OTHERS_SQL} AND handle = ?)"
        )
        values = (handle,)
    else:
        sql = f"SELECT number FROM incident WHERE ended IS NULL AND NOT {_IS_OTHERS_SQL})"
    row = db.execute(sql, values).fetchone()
    if incident_number is not None and row is None:
        raise IncidentOver
    number = sequence if row is None else int(row[0])
    if row is None:
        db.execute("INSERT INTO incident VALUES (?, ?, 'open', NULL)", (number, now))
        if handle:
            unknown_incident = (number, handle, RAISED_BY_UNKNOWN)
            db.execute("INSERT INTO handheld_sos VALUES (?, ?, ?, 0)", unknown_incident)
    db.execute("INSERT INTO incident_item VALUES (?, ?)", (sequence, number))
    return number


def has_raised(db: sqlite3.Connection, incident_number: int) -> bool:
    """Return True if `incident_number` is an incident that this kit has raised."""
    rows = db.execute("SELECT 1 FROM incident WHERE number = ?", (incident_number,))
    return rows.fetchone() is not None


def mark_called_off(db: sqlite3.Connection, incident_number: int, now: float) -> bool:
    """Cancel this kit's incident `incident_number`. Return True if the incident was open."""
    return _end_incident(db, incident_number, IncidentState.CALLED_OFF, now)


def _end_incident(db: sqlite3.Connection, number: int, state: str, now: float) -> bool:
    cursor = db.execute(
        "UPDATE incident SET state = ?, ended = ? WHERE number = ? AND ended IS NULL",
        (state, now, number),
    )
    return cursor.rowcount == 1


def record_update(
    db: sqlite3.Connection,
    update: IncidentUpdate,
    at: float,
    now: float,
    *,
    is_proved: bool,
    counts: bool,
) -> None:
    """Store an update about an incident. The update changes the state of another kit's incident if
    the update is proved or `counts`, and the state of this kit's own incident if it `counts`. For
    an update without a proof, the caller sets `counts` only if there is no hub that could make a
    proof. `at` is Unix time, `now` elapsed time.
    """
    db.execute(
        "INSERT INTO incident_word (station, incident, says, by, text, at, proved)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET proved = max(proved,"
        " excluded.proved)",
        (update.station, update.incident, update.state, update.by, update.text, at, int(is_proved)),
    )
    if update.station != OWN_STATION and (is_proved or counts):
        db.execute(
            "UPDATE heard_incident SET state = ? WHERE station = ? AND number = ?"
            " AND state NOT IN ('closed', 'called off')",
            (update.state, update.station, update.incident),
        )
    elif update.station == OWN_STATION and counts and update.state is IncidentState.SEEN:
        db.execute(
            "UPDATE incident SET state = 'seen' WHERE number = ? AND state = 'open'",
            (update.incident,),
        )
    elif update.station == OWN_STATION and counts and update.state is IncidentState.CLOSED:
        _end_incident(db, update.incident, IncidentState.CLOSED, now)


def store_heard_incident(db: sqlite3.Connection, heard_incident: HeardIncident) -> None:
    """Store another kit's incident when its first item arrives. If the first item has no text, a
    later item adds it. Updates about the incident may have arrived before the item.
    """
    row = db.execute(
        "SELECT says FROM incident_word WHERE station = ? AND incident = ? AND proved"
        " ORDER BY says = 'seen' LIMIT 1",
        (heard_incident.station, heard_incident.number),
    ).fetchone()
    db.execute(
        "INSERT INTO heard_incident VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " text = CASE text WHEN '' THEN excluded.text ELSE text END",
        heard_incident if row is None else heard_incident._replace(state=row[0]),
    )


def _read_incidents(rows: Sequence[Sequence[object]]) -> list[Incident]:
    return [Incident(*row) for row in rows]  # type: ignore[arg-type]


_COLUMNS = "SELECT number, raised, state, ended FROM incident"


def find_open(journal: Journal) -> Incident | None:
    """Return the open incident that the kit's own people have raised, or None if there is none."""
    sql = f"{_COLUMNS} WHERE ended IS NULL AND NOT {_IS_OTHERS_SQL})"
    incidents = _read_incidents(journal.read(sql))
    return incidents[0] if incidents else None


def list_all_open(journal: Journal) -> list[Incident]:
    """Return all open incidents of this kit: the incident of its own people, and the incidents of
    unauthenticated handhelds.
    """
    return _read_incidents(journal.read(f"{_COLUMNS} WHERE ended IS NULL ORDER BY number"))


def find_open_of_handheld(journal: Journal, handle: str) -> Incident | None:
    """Return the open incident that an unauthenticated handheld has raised for itself, or None if
    there is none.
    """
    sql = f"{_COLUMNS} WHERE ended IS NULL AND {_IS_OTHERS_SQL} AND handle = ?)"
    incidents = _read_incidents(journal.read(sql, handle))
    return incidents[0] if incidents else None


def list_unproved(journal: Journal, limit: int) -> list[tuple[Incident, str]]:
    """Return at most `limit` incidents of unauthenticated handhelds, each with its handle, newest
    first. If there are more, open incidents take precedence over ended ones.
    """
    rows = journal.read(
        "SELECT * FROM (SELECT number, incident.raised, state, ended, handle FROM incident"
        f" JOIN handheld_sos ON incident = number AND handheld_sos.raised = {RAISED_BY_UNKNOWN}"
        " ORDER BY ended IS NOT NULL, number DESC LIMIT ?) ORDER BY number DESC",
        limit,
    )
    return [
        (Incident(number, raised_at, state, ended), handle)
        for number, raised_at, state, ended, handle in rows
    ]


ANSWER_AWAITED_S = 86_400.0
"""Seconds for which this kit waits for the answer to a neighbour's SOS. After this time, the hub no
longer sends the answer to the relaying kit."""


def is_answer_awaited(journal: Journal, now: float) -> bool:
    """Return True if the kit's own people have an open incident, or if this kit relayed a
    neighbour's incident within ANSWER_AWAITED_S that no person is known to have seen. `now` is Unix
    time.
    """
    return find_open(journal) is not None or bool(
        journal.read(
            "SELECT 1 FROM carried JOIN heard_incident heard ON heard.station = carried.origin"
            " AND heard.number = carried.origin_sequence - carried.back"
            " WHERE heard.state = 'open' AND heard.at > ? LIMIT 1",
            now - ANSWER_AWAITED_S,
        )
    )


def find_last(journal: Journal) -> Incident | None:
    """Return the last incident of the kit's own people, whether open or over, or None if there is
    none.
    """
    sql = f"{_COLUMNS} WHERE NOT {_IS_OTHERS_SQL}) ORDER BY number DESC LIMIT 1"
    incidents = _read_incidents(journal.read(sql))
    return incidents[0] if incidents else None


def find_by_number(journal: Journal, incident_number: int) -> Incident | None:
    """Return the incident `incident_number`, whether open or over, or None if it does not exist."""
    incidents = _read_incidents(journal.read(f"{_COLUMNS} WHERE number = ?", incident_number))
    return incidents[0] if incidents else None


def is_over(journal: Journal, station: int, incident_number: int) -> bool:
    """Return True if an incident of this kit or of another station is known to be closed or
    cancelled.
    """
    return bool(
        journal.read(
            "SELECT 1 FROM incident WHERE ?1 = 0 AND number = ?2 AND ended IS NOT NULL UNION ALL"
            " SELECT 1 FROM heard_incident WHERE station = ?1 AND number = ?2"
            " AND state IN ('closed', 'called off')",
            station,
            incident_number,
        )
    )


def list_items(journal: Journal, incident_number: int) -> list[int]:
    """Return the sequences of the incident's Packages that are still kept, oldest first."""
    rows = journal.read(
        "SELECT sequence FROM incident_item WHERE incident = ? ORDER BY sequence", incident_number
    )
    return [sequence for (sequence,) in rows]


def find_incident(journal: Journal, sequence: int) -> int | None:
    """Return the number of the incident to which a Package belongs, or None if it belongs to
    none.
    """
    rows = journal.read("SELECT incident FROM incident_item WHERE sequence = ?", sequence)
    return rows[0][0] if rows else None


def list_updates(
    journal: Journal, incident_number: int, station: int = OWN_STATION
) -> list[StoredUpdate]:
    """Return the updates about an incident, oldest first."""
    rows = journal.read(
        "SELECT says, by, text, at, proved FROM incident_word WHERE station = ? AND incident = ?"
        " ORDER BY number",
        station,
        incident_number,
    )
    return [
        StoredUpdate(state, person, text, at, bool(is_proved))
        for state, person, text, at, is_proved in rows
    ]


def list_heard(journal: Journal, limit: int) -> list[HeardIncident]:
    """Return at most `limit` incidents of other kits, newest first. If there are more, the states
    `open` and `seen` take precedence over the others.
    """
    rows = journal.read(
        "SELECT station, number, state, since, at, text FROM (SELECT * FROM heard_incident"
        " ORDER BY state NOT IN ('open', 'seen'), at DESC LIMIT ?) ORDER BY at DESC",
        limit,
    )
    return [HeardIncident(*row) for row in rows]


def list_at_hub(journal: Journal, incident_number: int) -> dict[int, float]:
    """Return the Packages of the incident that the hub has verifiably confirmed, each with the Unix
    time of the confirmation. Over IP, the link's acknowledgement is enough. On other channels, a
    receipt is necessary.
    """
    rows = journal.read(
        "SELECT sequence, min(at) FROM (SELECT item.sequence, receipt.at FROM incident_item item"
        " JOIN receipt USING (sequence) WHERE incident = ?1 AND by >= 0 AND proved = 1 UNION ALL"
        " SELECT item.sequence, leg.ended + ?2 FROM incident_item item JOIN leg USING (sequence)"
        " WHERE incident = ?1 AND channel = 'Cellular' AND status = 'Delivered')"
        " GROUP BY sequence",
        incident_number,
        journal.clock.date(0.0),
    )
    return dict(rows)


def list_waiting(journal: Journal, incident_number: int) -> list[tuple[int, Channel]]:
    """Return pairs of a Package of the incident and a channel on which the Package has not
    ended.
    """
    rows = journal.read(
        "SELECT leg.sequence, leg.channel FROM incident_item JOIN leg USING (sequence)"
        " WHERE incident = ? AND leg.status IS NULL",
        incident_number,
    )
    return [(sequence, Channel(name)) for sequence, name in rows]


def list_accepted_items(journal: Journal, incident_number: int) -> dict[tuple[int, Channel], float]:
    """Return the incident's Packages and the channels that accepted each of them, with the elapsed
    time of the last event on the channel. Reports of other stations do not count as events, because
    anyone can forge them on an open channel. Of the positions, only the newest is listed.
    """
    rows = journal.read(
        "SELECT leg.sequence, leg.channel, max(leg.ended, coalesce((SELECT max(story.at) FROM story"
        " WHERE story.sequence = leg.sequence AND story.channel = leg.channel"
        " AND event NOT IN ('relayed', 'left nearby', 'not passed on')), 0))"
        " FROM incident_item JOIN leg USING (sequence) JOIN package USING (sequence)"
        " WHERE incident = ?1 AND leg.status = 'Delivered' AND (NOT instr(body, '\"location\":{')"
        " OR sequence = (SELECT max(sequence) FROM incident_item JOIN package USING (sequence)"
        " WHERE incident = ?1 AND instr(body, '\"location\":{')))"
        " ORDER BY leg.sequence, leg.channel",
        incident_number,
    )
    return {(sequence, Channel(name)): at for sequence, name, at in rows}


def list_transmitting_channels(journal: Journal, incident_number: int) -> dict[str, float]:
    """Return the channels that have transmitted items of the incident, and the elapsed time of the
    first transmission on each.
    """
    rows = journal.read(
        "SELECT channel, min(at) FROM (SELECT channel, at FROM story JOIN incident_item"
        " USING (sequence) WHERE incident = ?1 AND event = 'sent' UNION ALL"
        " SELECT channel, ended FROM leg JOIN incident_item USING (sequence)"
        " WHERE incident = ?1 AND status = 'Delivered') GROUP BY channel ORDER BY 2",
        incident_number,
    )
    return dict(rows)


def list_relayed(journal: Journal, incident_number: int) -> list[tuple[float, str]]:
    """Return the reports of neighbours that they relayed items of the incident to the hub, each
    with its elapsed time.
    """
    return journal.read(
        "SELECT min(at), detail FROM story JOIN incident_item USING (sequence)"
        " WHERE incident = ? AND event = 'relayed' GROUP BY detail ORDER BY 1",
        incident_number,
    )


def list_left_nearby(journal: Journal, incident_number: int) -> list[tuple[float, str]]:
    """Return the reports of neighbours that items of the incident left over their satellite modems,
    each with its elapsed time.
    """
    return journal.read(
        "SELECT min(at), detail FROM story JOIN incident_item USING (sequence)"
        " WHERE incident = ? AND event = 'left nearby' GROUP BY detail ORDER BY 1",
        incident_number,
    )


def list_stopped(journal: Journal, incident_number: int) -> list[tuple[float, str]]:
    """Return the reports that a kit has items of the incident but is not allowed to pass them on,
    each with its elapsed time.
    """
    return journal.read(
        "SELECT min(at), detail FROM story JOIN incident_item USING (sequence)"
        " WHERE incident = ? AND event = 'not passed on' GROUP BY detail ORDER BY 1",
        incident_number,
    )
