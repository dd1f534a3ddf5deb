"""Packages in the journal, from their acceptance to their end on every channel."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from fieldagent.agent.channels.contract import Intent, Transmission
from fieldagent.agent.journal import check_in as asked
from fieldagent.agent.journal import dating, incident
from fieldagent.agent.journal.high_water import CHOSEN_IDS
from fieldagent.agent.journal.incident import RAISED_BY_UNKNOWN
from fieldagent.agent.journal.journal import DELETED_ROWS_MAX, Journal, Operation
from fieldagent.agent.journal.losses import read_status
from fieldagent.agent.journal.records import (
    DAMAGED_DELIVERY,
    DamagedPackage,
    EndedDelivery,
    PackageFacts,
    Segment,
    StorageReceipt,
    StoredPackage,
    allow_relaying_again,
    compute_crc,
)
from fieldagent.package.delivery import ChannelDelivery, Stage, get_terminal_status
from fieldagent.package.package import Channel, CheckIn, Status
from fieldagent.package.payload import Identity, make_unknown_identity
from fieldagent.package.reading import read_stored_package
from fieldagent.system.lazy_named_tuple import NamedTuple

ONLY_PEER = 0
"""Number of the receiver on a channel that has only one peer."""

_COLUMNS = (
    "sequence, id, body, digest, idempotency_key, accepted, expires, dated, crc, status, ended,"
    " origin, origin_sequence, sequence IN (SELECT sequence FROM undated),"
    " coalesce(back, sequence - incident, 0), EXISTS (SELECT 1 FROM handheld_sos"
    f" WHERE handheld_sos.incident = incident_item.incident AND raised = {RAISED_BY_UNKNOWN})"
)
_PACKAGES = (
    "FROM package LEFT JOIN carried USING (sequence) LEFT JOIN incident_item USING (sequence)"
)
_LISTED_SQL = "(SELECT value FROM json_each(?))"
_SELECT_FACTS = "SELECT sequence, id, digest, accepted, status, ended FROM package"
_SELECT_BY_STATUSES = (
    "SELECT statuses, json_group_array(sequence) FROM (SELECT sequence, json_group_array(status)"
    f" AS statuses FROM leg WHERE sequence IN {_LISTED_SQL} GROUP BY sequence) GROUP BY statuses"
)
"""SQL query that groups Packages by the combination of their channel states. With it, one query is
enough for thousands of Packages that end at the same time."""


def _read_accepted(row: Sequence[Any]) -> StoredPackage:
    """Return the Package in a row with the columns `_COLUMNS`. Raises DamagedPackage if the
    checksum is wrong or the text cannot be read.
    """
    *values, crc, status, ended_at, origin, origin_sequence, undated, items_back, is_unproved = row
    sequence, id_, body, digest, key, *times = values
    accepted, expires, dated = times
    try:
        if crc is not None and crc != compute_crc(sequence, id_, body, digest, key, *times):
            raise DamagedPackage(sequence)
        package = read_stored_package(body)
    except (ValueError, TypeError):
        # A row without a checksum, from an older version, may also be damaged.
        raise DamagedPackage(sequence) from None
    final_status = read_status(status)
    origin_key = (origin or 0, origin_sequence or 0)
    life = (accepted, expires, final_status, ended_at)
    marks = (dated, bool(undated), items_back, bool(is_unproved))
    return StoredPackage(sequence, id_, package, digest, key, *life, *origin_key, *marks)


def read_kept_package(journal: Journal, sequence: int) -> StoredPackage | None:
    """Return the Package `sequence`, or None if it is no longer kept. Raises DamagedPackage."""
    rows = journal.read(f"SELECT {_COLUMNS} {_PACKAGES} WHERE sequence = ?", sequence)
    return _read_accepted(rows[0]) if rows else None


def read_packages(
    journal: Journal, sequences: Sequence[int]
) -> dict[int, StoredPackage | PackageFacts]:
    """Return the Packages by sequence. For a damaged Package, return the known facts about it,
    because a list without the Package would hide the loss.
    """
    rows = journal.read(
        f"SELECT {_COLUMNS} {_PACKAGES} WHERE sequence IN {_LISTED_SQL}", json.dumps(sequences)
    )
    by_number: dict[int, StoredPackage | PackageFacts] = {}
    for row in rows:
        try:
            by_number[row[0]] = _read_accepted(row)
        except DamagedPackage:
            package = find_by_sequence(journal, row[0])
            if package is not None:
                by_number[row[0]] = package
    return by_number


def read_package_in(db: sqlite3.Connection, sequence: int) -> StoredPackage | None:
    """Return a Package as `read_kept_package` does, within a transaction."""
    row = db.execute(f"SELECT {_COLUMNS} {_PACKAGES} WHERE sequence = ?", (sequence,)).fetchone()
    return None if row is None else _read_accepted(row)


def _make_first_facts(rows: Sequence[Sequence[Any]]) -> PackageFacts | None:
    for sequence, id_, digest, accepted, status, ended_at in rows:
        final_status = read_status(status)
        return PackageFacts(sequence, id_, digest, accepted, final_status, ended_at)
    return None


def find_by_sequence(journal: Journal, sequence: int) -> PackageFacts | None:
    """Return the facts about the Package `sequence`, or None if it is unknown or deleted."""
    return _make_first_facts(journal.read(f"{_SELECT_FACTS} WHERE sequence = ?", sequence))


def read_to_send(journal: Journal, channel: Channel, sequence: int) -> tuple[StoredPackage, int]:
    """Return a waiting Package, and its number of attempts on `channel` since a part of the Package
    last left. Raises DamagedPackage.
    """
    ((attempts, *row),) = journal.read(
        "SELECT (SELECT tries FROM leg WHERE leg.sequence = package.sequence AND channel = ?),"
        f" {_COLUMNS} {_PACKAGES} WHERE sequence = ?",
        channel,
        sequence,
    )
    return _read_accepted(row), attempts or 0


def find_by_id(journal: Journal, id_: int) -> PackageFacts | None:
    """Return the newest Package with the id `id_`. There may be several, because a caller may use
    an id again after its Package has ended.
    """
    return _make_first_facts(
        journal.read(f"{_SELECT_FACTS} WHERE id = ? ORDER BY sequence DESC LIMIT 1", id_)
    )


def find_by_idempotency_key(journal: Journal, key: str) -> PackageFacts | None:
    """Return the Package that was accepted with the Idempotency-Key `key`, or None if there is
    none.
    """
    return _make_first_facts(journal.read(f"{_SELECT_FACTS} WHERE idempotency_key = ?", key))


def compute_next_id(journal: Journal) -> int:
    """Return the first id above all used ids. Ids from CHOSEN_IDS, which callers chose, are
    ignored.
    """
    ((highest_kept, forgotten),) = journal.read(
        "SELECT (SELECT coalesce(max(id), 0) FROM package WHERE id < ?),"
        " (SELECT coalesce(max(id), 0) FROM forgotten)",
        CHOSEN_IDS,
    )
    return max(1, int(highest_kept) + 1, int(forgotten) + 1)


def read_journal_number(journal: Journal) -> int:
    """Return the random number that identifies this journal to the hub and other kits."""
    ((number,),) = journal.read("SELECT number FROM beginning")
    return int(number)


def compute_next_sequence(journal: Journal) -> int:
    """Return the sequence of the next Package. No sequence is ever used twice."""
    ((last,),) = journal.read("SELECT max(seq) FROM sqlite_sequence WHERE name = 'package'")
    return int(last or 0) + 1


def read_deliveries(journal: Journal, sequence: int) -> dict[Channel, ChannelDelivery]:
    """Return the state of a Package on each of its channels, or an empty dict if the Package is
    unknown.
    """
    rows = journal.read(
        "SELECT channel, status, reason, begins FROM leg WHERE sequence = ? ORDER BY channel",
        sequence,
    )
    return {Channel(channel): _read_delivery(*columns) for channel, *columns in rows}


def read_end(journal: Journal, sequence: int, channel: Channel) -> float:
    """Return the elapsed time when a Package ended on a channel. The Package must have ended on the
    channel.
    """
    sql = "SELECT ended FROM leg WHERE sequence = ? AND channel = ?"
    return float(journal.read(sql, sequence, channel)[0][0])


def read_deliveries_of(
    journal: Journal, sequences: Sequence[int]
) -> dict[int, dict[Channel, ChannelDelivery]]:
    """Return the states of several Packages on their channels, in one query. The result has an
    entry for each Package; the entry may be empty.
    """
    by_number: dict[int, dict[Channel, ChannelDelivery]] = {sequence: {} for sequence in sequences}
    for sequence, channel, *columns in journal.read(
        f"SELECT sequence, channel, status, reason, begins FROM leg WHERE sequence IN {_LISTED_SQL}"
        " ORDER BY sequence, channel",
        json.dumps(sequences),
    ):
        by_number[sequence][Channel(channel)] = _read_delivery(*columns)
    return by_number


def _read_delivery(status: str | None, reason: str, starts_at: float) -> ChannelDelivery:
    return ChannelDelivery(read_status(status), reason, starts_at)


THE_HUB = Identity("0", "the hub", "Integration")


def list_receipts(journal: Journal, sequence: int) -> list[StorageReceipt]:
    """Return the receipts of a Package, oldest first."""
    return list_receipts_of(journal, [sequence])[sequence]


def list_receipts_of(journal: Journal, sequences: Sequence[int]) -> dict[int, list[StorageReceipt]]:
    """Return the receipts of several Packages, oldest first, in one query. The result has an entry
    for each Package; the entry may be empty.
    """
    by_number: dict[int, list[StorageReceipt]] = {sequence: [] for sequence in sequences}
    for sequence, receiver, at, *who in journal.read(
        "SELECT sequence, by, at, identity.id, name, type, email, account"
        " FROM receipt LEFT JOIN identity ON identity.origin = receipt.by"
        f" WHERE sequence IN {_LISTED_SQL} ORDER BY at, by",
        json.dumps(sequences),
    ):
        by_number[sequence].append(
            StorageReceipt(_make_identity(receiver, who), at, "agent" if receiver else "hub")
        )
    return by_number


def store_receipt(
    db: sqlite3.Connection, sequence: int, station: int, at: float, *, is_proved: bool = True
) -> bool:
    """Store a receipt for a Package. Return True if the receipt is new, or the first authenticated
    one (`is_proved`) from this station. A receipt for a Package that is no longer kept is not
    stored.
    """
    cursor = db.execute(
        "INSERT INTO receipt (sequence, by, at, proved) SELECT sequence, ?, ?, ? FROM package"
        " WHERE sequence = ? ON CONFLICT DO UPDATE SET proved = 1"
        " WHERE excluded.proved > proved",
        (station, at, int(is_proved), sequence),
    )
    return cursor.rowcount == 1


def store_stage(
    db: sqlite3.Connection, sequence: int, station: int, stage: Stage, text: str, at: float
) -> bool:
    """Store a stage of delivery that follows the storage on the receiver's kit. Return True if the
    stage is new.
    """
    cursor = db.execute(
        "INSERT OR IGNORE INTO reached (sequence, by, rung, text, at)"
        " SELECT sequence, ?, ?, ?, ? FROM package WHERE sequence = ?",
        (station, stage, text, at, sequence),
    )
    return cursor.rowcount == 1


class ReachedStage(NamedTuple):
    by: Identity
    stage: Stage
    text: str
    at: float
    """Time of the stage, in Unix time."""


def list_reached(journal: Journal, sequences: Sequence[int]) -> dict[int, list[ReachedStage]]:
    """Return the stages that each Package has reached after storage on a receiver's kit, oldest
    first. A stage that was reported by radio and by the hub is listed once.
    """
    by_number: dict[int, list[ReachedStage]] = {sequence: [] for sequence in sequences}
    for sequence, by, stage, text, at, *who in journal.read(
        "SELECT sequence, by, rung, text, at, identity.id, name, type, email, account"
        " FROM reached LEFT JOIN identity ON identity.origin = by"
        f" WHERE sequence IN {_LISTED_SQL} AND NOT (by < 0 AND EXISTS (SELECT 1 FROM reached hub"
        " WHERE hub.sequence = reached.sequence AND hub.rung = reached.rung AND hub.by > 0"
        " AND hub.at = reached.at AND instr(hub.text, reached.text) = 1))"
        " ORDER BY at",
        json.dumps(sequences),
    ):
        by_number[sequence].append(ReachedStage(_make_identity(by, who), Stage(stage), text, at))
    return by_number


def _make_identity(station: int, row: Sequence[Any]) -> Identity:
    if station == 0:
        return THE_HUB
    return make_unknown_identity(station) if row[0] is None else Identity(*row)


Place = tuple[int, int]
"""Place of a Package in the queue: its negated priority, and its sequence."""
FIRST_PLACE: Place = (-(2**40), 0)
_PLACES = "SELECT -priority, sequence FROM leg WHERE status IS NULL"


def list_next_waiting(
    journal: Journal, start_place: Place, last_sequence: int, limit: int
) -> tuple[list[int], Place | None]:
    """Return the next Packages that wait on any channel and have a sequence of at most
    `last_sequence`. The most urgent come first, then the oldest. Also return the place from which
    the next call continues, or None if there are no more Packages.
    """
    # Use two queries along the index: SQLite does not use the index to compare a pair that contains
    # an expression.
    places: list[Place] = journal.read(
        f"{_PLACES} AND -priority = ? AND sequence > ? ORDER BY sequence LIMIT ?",
        *start_place,
        limit,
    )
    if len(places) < limit:
        places += journal.read(
            f"{_PLACES} AND -priority > ? ORDER BY -priority, sequence LIMIT ?",
            start_place[0],
            limit - len(places),
        )
    sequences = dict.fromkeys(sequence for _, sequence in places if sequence <= last_sequence)
    return list(sequences), places[-1] if len(places) == limit else None


class NewPackage(NamedTuple):
    """A Package to be stored. Times are elapsed time."""

    body: str
    """Canonical text of the Package (`make_canonical`)."""
    digest: bytes
    accepted: float
    expires: float | None
    dated_at: float
    """Unix time of the item's date."""
    deliveries: Mapping[Channel, ChannelDelivery]
    priority: int
    id: int | None = None
    """The caller's id. None for a neighbour's Package: it gets a negative id, because callers
    seldom use negative ids."""
    idempotency_key: str | None = None
    undated: bool = False
    status: Status | None = None
    is_sos: bool = False
    joins: int | None = None
    """Incident that an SOS belongs to."""
    unauthenticated_handle: str = ""
    """Handheld of an unauthenticated owner that raised this SOS. Empty for other Packages."""
    calls_off: int | None = None
    """This kit's incident that the Package cancels. None if it cancels none."""
    check_in: CheckIn | None = None


def store_new_package(package: NewPackage) -> Operation[int]:
    """Return the operation that stores a new Package. Its result is the sequence number on the air.
    Raises IncidentOver if the incident in `joins` is over.
    """
    ended_at = None if package.status is None else package.accepted

    def store(db: sqlite3.Connection) -> int:
        sequence = _compute_next_sequence(db)
        id_ = package.id if package.id is not None else -sequence
        body_values = (id_, package.body, package.digest, package.idempotency_key)
        crc = compute_crc(
            sequence, *body_values, package.accepted, package.expires, package.dated_at
        )
        db.execute(
            "INSERT INTO package (sequence, id, body, digest, idempotency_key, accepted, expires,"
            " status, ended, crc, dated) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                sequence,
                *body_values,
                package.accepted,
                package.expires,
                package.status,
                ended_at,
                crc,
                package.dated_at,
            ),
        )
        db.executemany(
            "INSERT INTO leg (sequence, channel, status, reason, ended, priority, begins)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    sequence,
                    channel,
                    delivery.status,
                    delivery.reason,
                    package.accepted if delivery.status else None,
                    package.priority,
                    delivery.begins_after,
                )
                for channel, delivery in package.deliveries.items()
            ],
        )
        if package.undated:
            dating.mark_undated(db, sequence)
        if package.is_sos:
            incident.add_to_incident(
                db, sequence, package.accepted, package.joins, package.unauthenticated_handle
            )
        if package.calls_off is not None:
            incident.mark_called_off(db, package.calls_off, package.accepted)
        if package.check_in is not None:
            asked.store_request(db, sequence, package.check_in.within_s, package.accepted)
        return sequence

    return store


def _compute_next_sequence(db: sqlite3.Connection) -> int:
    (row,) = db.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'package'")
    return int(row[0] or 0) + 1


def record_ends(endings: Iterable[EndedDelivery], now: float) -> Operation[None]:
    """Return the operation that records the ends of channel deliveries, and the Package's own
    status if it is now final. A neighbour's item that was damaged may then be relayed again.

    A channel delivery ends only once, and a Package's final status never changes.
    """
    alike: dict[tuple[Channel, ChannelDelivery], list[int]] = {}
    for each in endings:
        alike.setdefault((each.channel, each.delivery), []).append(each.sequence)
    concerned = json.dumps([*chain.from_iterable(alike.values())])

    def store(db: sqlite3.Connection) -> None:
        for (channel, delivery), sequences in alike.items():
            db.execute(
                "UPDATE leg SET status = ?, reason = ?, ended = ?"
                f" WHERE sequence IN {_LISTED_SQL} AND channel = ? AND status IS NULL",
                (delivery.status, delivery.reason, now, json.dumps(sequences), channel),
            )
        for statuses, ended_sequences in db.execute(_SELECT_BY_STATUSES, (concerned,)).fetchall():
            status = get_terminal_status(
                ChannelDelivery(read_status(each)) for each in json.loads(statuses)
            )
            if status is not None:
                db.execute(
                    "UPDATE package SET status = ?, ended = ?"
                    f" WHERE sequence IN {_LISTED_SQL} AND status IS NULL",
                    (status, now, ended_sequences),
                )
        for (_, delivery), sequences in alike.items():
            for sequence in sequences if delivery == DAMAGED_DELIVERY else ():
                allow_relaying_again(db, sequence)

    return store


def store_with_ends(
    operation: Operation[int], endings: Sequence[EndedDelivery], now: float
) -> Operation[int]:
    """Return an operation that stores a Package and ends the Packages that it replaces, in one
    commit.
    """
    if not endings:
        return operation
    note_ends = record_ends(endings, now)

    def store(db: sqlite3.Connection) -> int:
        note_ends(db)
        return operation(db)

    return store


def record_try(
    channel: Channel, sequences: Iterable[int], *, ends_intent: bool = True
) -> Operation[None]:
    """Return the operation that counts an attempt in which nothing was transmitted. If
    `ends_intent`, the operation also deletes the channel's intent.
    """
    rows = [(sequence, channel) for sequence in sequences]

    def store(db: sqlite3.Connection) -> None:
        db.executemany("UPDATE leg SET tries = tries + 1 WHERE sequence = ? AND channel = ?", rows)
        if ends_intent:
            db.execute("DELETE FROM intent WHERE channel = ?", (channel,))

    return store


def record_sent(
    channel: Channel, segments: Iterable[Segment], *, is_shared: bool = False
) -> Operation[None]:
    """Return the operation that records a transmission that left: it deletes the intent, resets the
    number of attempts of fragmented Packages, and stores the fragments that the only peer now has.
    If the channel `is_shared`, no fragments are stored, because each station reports its own
    fragments.
    """
    parts = [segment for segment in segments if segment.count > 1]
    fragments = [(p.sequence, channel, ONLY_PEER, p.count, p.position) for p in parts]
    if is_shared:
        fragments.clear()
    fruitful = [(segment.sequence, channel) for segment in parts]

    def store(db: sqlite3.Connection) -> None:
        db.executemany("UPDATE leg SET tries = 0 WHERE sequence = ? AND channel = ?", fruitful)
        db.executemany("INSERT OR IGNORE INTO fragment_held VALUES (?, ?, ?, ?, ?)", fragments)
        db.execute("DELETE FROM intent WHERE channel = ?", (channel,))

    return store


def read_held_fragments(
    journal: Journal, channel: Channel, sequence: int, count: int
) -> dict[int, set[int]]:
    """Return the positions of the fragments that each receiver has, by receiver. Fragments of an
    item that was cut into another number than `count` do not count.
    """
    rows = journal.read(
        "SELECT holder, position FROM fragment_held WHERE sequence = ? AND channel = ?"
        " AND count = ?",
        sequence,
        channel,
        count,
    )
    positions_by_receiver: dict[int, set[int]] = {}
    for holder, position in rows:
        positions_by_receiver.setdefault(holder, set()).add(position)
    return positions_by_receiver


def is_held_whole(journal: Journal, channel: Channel, sequence: int) -> bool:
    """Return True if at least one receiver has every fragment. It is not enough that several
    receivers together have all fragments.
    """
    rows = journal.read(
        "SELECT 1 FROM fragment_held WHERE sequence = ? AND channel = ?"
        " GROUP BY holder, count HAVING count(*) = count LIMIT 1",
        sequence,
        channel,
    )
    return bool(rows)


def record_held_fragments(
    db: sqlite3.Connection,
    channel: Channel,
    sequence: int,
    holder: int,
    count: int,
    positions: Iterable[int],
) -> bool:
    """Record that a receiver has reported exactly these fragments. Return True if any of the
    fragments is new.
    """
    rows = [(channel, holder, count, position, sequence) for position in positions]
    before = db.execute(
        "DELETE FROM fragment_held WHERE sequence = ? AND channel = ? AND holder = ? AND count = ?"
        " RETURNING position",
        (sequence, channel, holder, count),
    ).fetchall()
    db.executemany(
        "INSERT INTO fragment_held SELECT sequence, ?, ?, ?, ? FROM package WHERE sequence = ?",
        rows,
    )
    return not {(position,) for *_, position, _ in rows} <= set(before)


def mark_relayed(
    db: sqlite3.Connection, sequence: int, origin: int, origin_sequence: int, items_back: int
) -> None:
    """Mark the Package as a neighbour's item. `origin_sequence` is the number that the neighbour
    gave it, and `items_back` the difference to the number of its incident's first item.
    """
    db.execute(
        "INSERT INTO carried VALUES (?, ?, ?, ?)", (sequence, origin, origin_sequence, items_back)
    )


def has_relayed(db: sqlite3.Connection, origin: int, incident: int) -> bool:
    """Return True if this kit has relayed an item of the incident `incident` of the station
    `origin` to the hub.
    """
    rows = db.execute(
        "SELECT 1 FROM carried WHERE origin = ? AND origin_sequence - back = ? LIMIT 1",
        (origin, incident),
    )
    return rows.fetchone() is not None


def is_accepted_since(db: sqlite3.Connection, digest: bytes, *, start_time: float) -> bool:
    """Return True if a Package with `digest` was accepted after `start_time` (elapsed time)."""
    rows = db.execute(
        "SELECT 1 FROM package WHERE digest = ? AND accepted > ? LIMIT 1", (digest, start_time)
    )
    return rows.fetchone() is not None


def send_again(
    channel: Channel, sequence: int, positions: Collection[int] | None
) -> Operation[None]:
    """Return the operation that marks the fragments at `positions` as not arrived, because a
    receiver is missing them. If `positions` is None, all fragments of the Package are marked.
    """

    def store(db: sqlite3.Connection) -> None:
        rows = db.execute(
            "SELECT DISTINCT position FROM fragment_held WHERE sequence = ? AND channel = ?",
            (sequence, channel),
        ).fetchall()
        db.executemany(
            "DELETE FROM fragment_held WHERE sequence = ? AND channel = ? AND position = ?",
            [
                (sequence, channel, position)
                for (position,) in rows
                if positions is None or position in positions
            ],
        )

    return store


def record_intent(channel: Channel, intent: Intent, segments: Iterable[Segment]) -> Operation[None]:
    """Return the operation that stores a transmission and its content before it begins. The intent
    replaces an earlier intent of `channel`.
    """
    t = intent.transmission
    segment_list = json.dumps([[p.sequence, p.position, p.count] for p in segments])

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "INSERT OR REPLACE INTO intent VALUES (?, ?, ?, ?, ?, ?, ?)",
            (channel, t.body, t.urgent, t.attempts, segment_list, intent.modem, intent.at_modem),
        )

    return store


def read_intent(journal: Journal, channel: Channel) -> tuple[Intent, list[Segment]] | None:
    """Return the transmission that was begun on `channel` and not settled, and its segments. Return
    None if there is none. The number of the transmission is 0, because the outbox numbers new
    transmissions from 1.
    """
    rows = journal.read(
        "SELECT body, urgent, tries, pieces, modem, momsn FROM intent WHERE channel = ?", channel
    )
    if not rows:
        return None
    # The column `momsn` contains the MOMSN for SBD, and other numbers for other modems.
    body, is_urgent, attempts, segment_list, modem, at_modem = rows[0]
    transmission = Transmission(0, body, bool(is_urgent), attempts)
    return Intent(transmission, modem, at_modem), [
        Segment(*segment) for segment in json.loads(segment_list)
    ]


def forget(*, end_time: float, keep_count: int) -> Operation[int]:
    """Return the operation that deletes some Packages that have ended on every channel and belong
    to no open incident, if they ended before `end_time` (elapsed time) or are not among the last
    `keep_count`. Its result is the number of deleted Packages. Run the operation again until the
    result is 0.
    """

    def store(db: sqlite3.Connection) -> int:
        # Remember the highest id, because an id must not be used twice even after its Package is
        # deleted.
        db.execute(
            "INSERT OR REPLACE INTO forgotten SELECT 1, max(coalesce(max(package.id), 0),"
            " (SELECT coalesce(max(id), 0) FROM forgotten)) FROM package WHERE package.id < ?",
            (CHOSEN_IDS,),
        )
        settled = "ended IS NOT NULL AND NOT EXISTS (SELECT 1 FROM leg WHERE leg.sequence ="
        settled += " package.sequence AND leg.status IS NULL) AND sequence NOT IN"
        settled += " (SELECT sequence FROM incident_item JOIN incident ON incident.number ="
        settled += " incident_item.incident WHERE incident.ended IS NULL)"
        # The query uses the index of ended Packages, which has the oldest first.
        last = (
            f"SELECT ended, sequence FROM package WHERE {settled}"
            " ORDER BY ended DESC, sequence DESC"
        )
        cursor = db.execute(
            "DELETE FROM package WHERE sequence IN (SELECT sequence FROM package"
            f" WHERE {settled} AND (ended < ? OR (ended, sequence) <= ({last} LIMIT 1 OFFSET ?))"
            " ORDER BY ended, sequence LIMIT ?)",
            (end_time, keep_count, DELETED_ROWS_MAX),
        )
        return cursor.rowcount

    return store
