"""Payloads in the journal: all payloads that have arrived, their state at each hook, and their
receipts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fieldagent.agent.journal.journal import DELETED_ROWS_MAX, Journal, Operation
from fieldagent.agent.journal.listing import END
from fieldagent.agent.journal.records import LANE_SQL
from fieldagent.package.delivery import Stage
from fieldagent.package.payload import Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Unreadable


class NumberedItem(NamedTuple):
    """Identity of an item: the number that its sender gave it, and its digest."""

    origin: int
    """Sender that assigned the number: negative for a station, 0 or positive for a sender at the
    hub."""
    sequence: int
    digest: bytes
    wants_receipt: bool
    """True if the item's sender requests receipts."""


@dataclass(frozen=True, slots=True)
class Received:
    """One received payload, as the JSON text that a hook gets."""

    request_id: str
    sender: str
    body: str
    received: float
    item: NumberedItem | None = None
    """Number and digest for receipts. None if the sender expects no receipts."""
    copy: bytes | None = None
    """The item as the hub sent it. None for items of other senders."""


class FragmentedItem(NamedTuple):
    """Identity of an item that arrives in fragments."""

    origin: int
    sequence: int
    parts: int


def mark_arrived(
    db: sqlite3.Connection,
    origin: int,
    sequence: int,
    digest: bytes,
    now: float,
    *,
    complete_item: bytes | None = None,
    sos: bool = False,
) -> bool:
    """Record that an item or fragment has arrived, and return True if it is new. For a fragment,
    `complete_item` is the digest of its item. The arrival of an SOS is remembered longer than other
    arrivals.
    """
    cursor = db.execute(
        "INSERT OR IGNORE INTO arrived (origin, sequence, digest, at, whole, sos)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (origin, sequence, digest, now, complete_item, sos),
    )
    return cursor.rowcount > 0


def has_arrived(db: sqlite3.Connection, origin: int, sequence: int, digest: bytes) -> bool:
    """Return True if an item or fragment with this digest came from `origin` with the number
    `sequence`. The number alone is not enough, because a sender may use a number again.
    """
    rows = db.execute(
        "SELECT 1 FROM arrived WHERE origin = ? AND sequence = ? AND digest = ?",
        (origin, sequence, digest),
    )
    return rows.fetchone() is not None


def find_item_digest(db: sqlite3.Connection, origin: int, sequence: int, digest: bytes) -> bytes:
    """Return the digest of the item to which a fragment belongs, or b'' if it is unknown."""
    row = db.execute(
        "SELECT whole FROM arrived WHERE origin = ? AND sequence = ? AND digest = ?",
        (origin, sequence, digest),
    ).fetchone()
    return b"" if row is None or row[0] is None else bytes(row[0])


def store_identity(db: sqlite3.Connection, origin: int, person: Identity) -> None:
    """Store the identity of `origin`, which is negative for a station. A known identity is
    replaced.
    """
    db.execute(
        "INSERT OR REPLACE INTO identity VALUES (?, ?, ?, ?, ?, ?)",
        (origin, person.id, person.name, person.type, person.email, person.account),
    )


def has_identities(journal: Journal) -> bool:
    """Return True if the identity of any sender is known."""
    return bool(journal.read("SELECT 1 FROM identity LIMIT 1"))


def find_identity(db: sqlite3.Connection, origin: int) -> Identity | None:
    """Return the identity of `origin`, which is negative for a station, or None if it is
    unknown.
    """
    row = db.execute(
        "SELECT id, name, type, email, account FROM identity WHERE origin = ?", (origin,)
    ).fetchone()
    return None if row is None else Identity(*row)


def read_station_names(journal: Journal) -> dict[int, str]:
    """Return the names of the stations that have sent their names, by station number. (The journal
    stores negated station numbers.)
    """
    return {
        -origin: name
        for origin, name in journal.read("SELECT origin, name FROM identity WHERE origin < 0")
    }


def store_payload(
    db: sqlite3.Connection, payload: Received, hooks: Iterable[str], not_before: float = 0.0
) -> None:
    """Store a payload for each of the hooks. Unless the payload is an SOS, it waits until
    `not_before` (elapsed time).
    """
    db.execute(
        "INSERT INTO inbound (request_id, sender, body, received, origin, sequence, digest, asks,"
        " copy) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            payload.request_id,
            payload.sender,
            payload.body,
            payload.received,
            *(payload.item or (None, None, None, False)),
            payload.copy,
        ),
    )
    _hand_over(db, payload.request_id, hooks, not_before)


def _hand_over(
    db: sqlite3.Connection, request_id: str, hooks: Iterable[str], not_before: float = 0.0
) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO handover (hook, number, state, sender, not_before)"
        f" SELECT ?, number, 'waiting', {LANE_SQL} FROM inbound WHERE request_id = ?",
        [(hook, not_before, request_id) for hook in hooks],
    )


class PendingReceipt(NamedTuple):
    """A receipt that the peer has not received yet. It states that this kit has stored the item
    `sequence`.
    """

    sequence: int
    at: int
    """Unix time when the item was stored."""
    sos: bool
    digest: bytes


def add_pending_receipt(db: sqlite3.Connection, channel: str, receipt: PendingReceipt) -> None:
    """Record that the peer of `channel` must receive a receipt for a stored item. For each item
    number, only the last receipt is kept.
    """
    db.execute(
        "INSERT OR REPLACE INTO owed (channel, sequence, at, sos, digest) VALUES (?, ?, ?, ?, ?)",
        (channel, *receipt),
    )


def list_pending_receipts(journal: Journal, channel: str) -> list[PendingReceipt]:
    """Return the receipts that the peer of a channel has not received yet, oldest first."""
    return [
        PendingReceipt(sequence, at, bool(sos), bytes(digest))
        for sequence, at, sos, digest in journal.read(
            "SELECT sequence, at, sos, digest FROM owed WHERE channel = ? ORDER BY at, sequence",
            channel,
        )
    ]


def mark_reported(db: sqlite3.Connection, channel: str, sequences: Iterable[int]) -> None:
    """Delete the receipts for the items `sequences`, because the peer of `channel` has received
    them.
    """
    db.executemany(
        "DELETE FROM owed WHERE channel = ? AND sequence = ?", [(channel, s) for s in sequences]
    )


class PendingUnreadableReport(NamedTuple):
    """A report that the hub has not received yet. It states that an unreadable message has
    arrived.
    """

    report: Unreadable
    at: int
    """Unix time of the message's arrival."""


def add_unreadable_report(
    db: sqlite3.Connection, channel: str, report: PendingUnreadableReport
) -> None:
    """Record that the hub must be notified of an unreadable message."""
    db.execute(
        "INSERT OR IGNORE INTO unreadable_owed (channel, size, guard, at) VALUES (?, ?, ?, ?)",
        (channel, report.report.size, report.report.guard, report.at),
    )


def list_pending_unreadable_reports(
    journal: Journal, channel: str
) -> list[PendingUnreadableReport]:
    """Return the reports of unreadable messages that the hub has not received yet, oldest first."""
    rows = journal.read(
        "SELECT size, guard, at FROM unreadable_owed WHERE channel = ? ORDER BY at", channel
    )
    return [PendingUnreadableReport(Unreadable(size, guard), at) for size, guard, at in rows]


def mark_unreadable_reported(
    db: sqlite3.Connection, channel: str, entries: Iterable[PendingUnreadableReport]
) -> None:
    """Delete the reports that the hub has received."""
    db.executemany(
        "DELETE FROM unreadable_owed WHERE channel = ? AND size = ? AND at = ?",
        [(channel, each.report.size, each.at) for each in entries],
    )


class PendingStage(NamedTuple):
    """A receipt that the hub has not received yet. It shows the stage that an item has reached on
    this kit.
    """

    origin: int
    sequence: int
    stage: Stage
    text: str
    at: int
    """Time of the stage, in Unix time."""
    digest: bytes

    @property
    def key(self) -> tuple[int, int, int, str]:
        """Return the unique key of the receipt: origin, number, stage and text."""
        return self.origin, self.sequence, self.stage, self.text


def add_pending_stage(
    db: sqlite3.Connection, request_id: str, stage: Stage, text: str, at: float
) -> bool:
    """Record that the sender of a payload must receive a receipt for `stage`. A receipt for the
    stage PROGRAMS is stored only if the sender requests receipts. A station receives the receipt by
    radio and through the hub. `at` is Unix time. Return True if a new receipt was stored.
    """
    from_condition = "FROM inbound WHERE request_id = ? AND digest IS NOT NULL AND (asks OR ?)"
    values = stage, text, int(at), request_id, stage is not Stage.PROGRAMS
    db.execute(
        "INSERT OR IGNORE INTO station_owed (station, sequence, rung, text, at, digest, asks)"
        f" SELECT -origin, sequence, ?, ?, ?, digest, asks {from_condition} AND origin < 0",
        values,
    )
    cursor = db.execute(
        "INSERT OR IGNORE INTO rung_owed (origin, sequence, rung, text, at, digest)"
        f" SELECT origin, sequence, ?, ?, ?, digest {from_condition}",
        values,
    )
    return cursor.rowcount == 1


SEARCHED_PAYLOADS_MAX = 500
"""Number of payloads that `repeat_pending_stages` searches, beginning with the newest."""


def repeat_pending_stages(
    db: sqlite3.Connection, station: int, sequence: int, digest: bytes, at: float
) -> bool:
    """Record that the hub must receive the read receipts of a station's item again, because it may
    have received them before the item. Return True if there is such a receipt. `at` is the Unix
    time for the receipts, because the original time is unknown.
    """
    cursor = db.execute(
        "INSERT OR IGNORE INTO rung_owed (origin, sequence, rung, text, at, digest)"
        " SELECT origin, sequence, ?, read_by, ?, digest FROM (SELECT * FROM inbound"
        " ORDER BY number DESC LIMIT ?) WHERE origin = ? AND sequence = ? AND digest = ?"
        " AND read_by IS NOT NULL",
        (Stage.READ, int(at), SEARCHED_PAYLOADS_MAX, -station, sequence, digest),
    )
    return cursor.rowcount > 0


_STAGES = "SELECT origin, sequence, rung, text, at, digest FROM rung_owed"


def list_pending_stages(journal: Journal, limit: int = 64) -> list[PendingStage]:
    """Return the receipts that the hub has not received yet, oldest first."""
    return _list_stages(journal.read(f"{_STAGES} ORDER BY at LIMIT ?", limit))


def has_pending_hub_stage(journal: Journal) -> bool:
    """Return True if a receipt for one of the hub's own items has not been sent yet."""
    return bool(journal.read("SELECT 1 FROM rung_owed WHERE origin >= 0 LIMIT 1"))


def list_hub_stages(db: sqlite3.Connection, limit: int = 8) -> list[PendingStage]:
    """Return the waiting receipts for the hub's own items, oldest first. By default, at most as
    many as fit into one parcel are returned.
    """
    return _list_stages(db.execute(f"{_STAGES} WHERE origin >= 0 ORDER BY at LIMIT ?", (limit,)))


def _list_stages(rows: Iterable[Sequence[Any]]) -> list[PendingStage]:
    return [
        PendingStage(origin, sequence, Stage(stage), text, at, bytes(digest))
        for origin, sequence, stage, text, at, digest in rows
    ]


def mark_stages_reported(db: sqlite3.Connection, keys: Iterable[tuple[int, int, int, str]]) -> None:
    """Delete the receipts that were sent. Each key contains origin, number, stage and text."""
    db.executemany(
        "DELETE FROM rung_owed WHERE origin = ? AND sequence = ? AND rung = ? AND text = ?", keys
    )


class PendingStationStage(NamedTuple):
    """A receipt that a station has not received yet. It shows the stage that the station's item has
    reached on this kit.
    """

    station: int
    sequence: int
    stage: Stage
    text: str
    at: int
    """Unix time when the item reached the stage."""
    digest: bytes
    wants_receipt: bool
    """True if the sender requests receipts."""


STATION_RECEIPT_LIFETIME_S = 7 * 86_400
"""Seconds for which a receipt for a station is sent."""


def list_pending_station_stages(journal: Journal, limit: int = 64) -> list[PendingStationStage]:
    """Return the receipts that stations have not received yet, newest first."""
    rows = journal.read(
        "SELECT station, sequence, rung, text, at, digest, asks FROM station_owed"
        " WHERE at > ? ORDER BY at DESC LIMIT ?",
        int(journal.clock.date(journal.clock.now())) - STATION_RECEIPT_LIFETIME_S,
        limit,
    )
    return [
        PendingStationStage(
            station, sequence, Stage(stage), text, at, bytes(digest), bool(wants_receipt)
        )
        for station, sequence, stage, text, at, digest, wants_receipt in rows
    ]


def mark_station_reported(db: sqlite3.Connection, entry: PendingStationStage) -> None:
    """Delete the receipt that the station has received."""
    db.execute(
        "DELETE FROM station_owed WHERE station = ? AND sequence = ? AND rung = ? AND text = ?",
        entry[:4],
    )


def mark_read_by(db: sqlite3.Connection, request_id: str, person_name: str) -> bool:
    """Record that a person has read a payload. Return True if the payload is known."""
    cursor = db.execute(
        "UPDATE inbound SET read_by = ? WHERE request_id = ?", (person_name, request_id)
    )
    return cursor.rowcount == 1


def store_fragment(
    db: sqlite3.Connection, item: FragmentedItem, position: int, segment: bytes, now: float
) -> dict[int, bytes]:
    """Store one fragment. Return all stored fragments of the item by their positions."""
    db.execute(
        "INSERT OR REPLACE INTO slice VALUES (?, ?, ?, ?, ?, ?)", (*item, position, segment, now)
    )
    return read_fragments(db, item)


_SLICES = (
    "SELECT position, slice FROM slice WHERE origin = ? AND sequence = ? AND count = ?"
    " ORDER BY position"
)


def read_fragments(db: sqlite3.Connection, item: FragmentedItem) -> dict[int, bytes]:
    """Return the stored fragments by position; empty once the item is complete."""
    return dict(db.execute(_SLICES, item).fetchall())


def delete_fragments(
    db: sqlite3.Connection, item: FragmentedItem, *, kept_position: int = -1
) -> None:
    """Delete the fragments of an item, except the fragment at `kept_position`. -1 deletes
    all.
    """
    db.execute(
        "DELETE FROM slice WHERE origin = ? AND sequence = ? AND count = ? AND position <> ?",
        (*item, kept_position),
    )


def list_incomplete(journal: Journal) -> dict[FragmentedItem, float]:
    """Return the incomplete items, and the elapsed time of the last fragment of each item."""
    rows = journal.read(
        "SELECT origin, sequence, count, max(at) FROM slice GROUP BY origin, sequence, count"
    )
    return {FragmentedItem(*item): at for *item, at in rows}


def read_committed_fragments(journal: Journal, item: FragmentedItem) -> dict[int, bytes]:
    """Return the fragments as `read_fragments` does, but outside a transaction."""
    return dict(journal.read(_SLICES, *item))


def list_oldest_waiting(journal: Journal, hook: str, limit: int) -> list[Sequence[Any]]:
    """Return at most `limit` rows, ordered by due time: the oldest waiting payload of each sender.
    An SOS counts as a sender of its own.
    """
    return journal.read(
        "SELECT request_id, lane, body, received, attempts, not_before FROM (SELECT number,"
        " sender AS lane, attempts, not_before FROM handover WHERE hook = ?1 AND number IN (SELECT"
        " min(number) FROM handover WHERE hook = ?1 AND state = 'waiting' GROUP BY sender)"
        " ORDER BY not_before, number LIMIT ?2) JOIN inbound USING (number)"
        " ORDER BY not_before, number",
        hook,
        limit,
    )


class UnacceptedPayloads(NamedTuple):
    """Payloads that a hook has not accepted, and the reason of the last failure."""

    hook: str
    state: str
    """`dead`, or `waiting` for another attempt."""
    payloads: int
    reason: str


class UnacceptedPayloadList:
    """Lists the payloads that were not accepted, for each hook with a failed call.

    The query reads every payload, and the page requests the list every second. So the result is
    cached until the next commit.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._payloads: list[UnacceptedPayloads] = []
        self._commits = -1
        """Number of commits at the time of the query."""

    def list_payloads(self) -> list[UnacceptedPayloads]:
        """Return the list. Query the journal again if there was a commit since the last query."""
        commits = self._journal.commits
        if commits != self._commits:
            self._payloads, self._commits = self._query(), commits
        return self._payloads

    def _query(self) -> list[UnacceptedPayloads]:
        # With max(), SQLite takes the other columns from the row with the maximum
        # (sqlite.org/lang_select.html, 2.5).
        rows = self._journal.read(
            "SELECT hook, state, count(*), reason, max(CASE WHEN reason <> '' THEN number END)"
            " FROM handover WHERE state <> 'handed' GROUP BY hook, state ORDER BY hook, state"
        )
        return [UnacceptedPayloads(*row) for *row, last in rows if last is not None]


_REQUEST_CONDITION_SQL = (
    "WHERE hook = ? AND number = (SELECT number FROM inbound WHERE request_id = ?)"
)


def mark_handed_over(hook: str, request_id: str, at: float) -> Operation[bool]:
    """Return the operation that records that a hook has accepted the payload at Unix time `at`. Its
    result is True if the payload's sender must receive a receipt.
    """

    def store(db: sqlite3.Connection) -> bool:
        db.execute(
            f"UPDATE handover SET state = 'handed', reason = '', attempts = attempts + 1"
            f" {_REQUEST_CONDITION_SQL}",
            (hook, request_id),
        )
        return add_pending_stage(db, request_id, Stage.PROGRAMS, "", at)

    return store


def postpone(
    hook: str, request_id: str, not_before: float, reason: str, *, tries: int = 1
) -> Operation[None]:
    """Return the operation that counts `tries` failed attempts, and postpones the payload until
    `not_before` (elapsed time). `reason` is for people.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            f"UPDATE handover SET attempts = attempts + ?, not_before = ?, reason = ?"
            f" {_REQUEST_CONDITION_SQL}",
            (tries, not_before, reason, hook, request_id),
        )

    return store


def hasten(hook: str) -> Operation[None]:
    """Return the operation that makes all payloads due now that wait for a retry at `hook`. An SOS
    comes first.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE handover SET not_before = CASE WHEN sender = (SELECT request_id FROM inbound"
            " WHERE inbound.number = handover.number) THEN -1.0 ELSE 0.0 END"
            " WHERE hook = ? AND state = 'waiting' AND attempts > 0",
            (hook,),
        )

    return store


def mark_dead(hook: str, request_id: str, reason: str) -> Operation[None]:
    """Return the operation that counts a failed attempt, and marks the payload as dead for `hook`.
    Only `replay` hands a dead payload to the hook again. `reason` is for people.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            f"UPDATE handover SET state = 'dead', attempts = attempts + 1, reason = ?"
            f" {_REQUEST_CONDITION_SQL}",
            (reason, hook, request_id),
        )

    return store


def replay(request_id: str, hooks: Iterable[str]) -> Operation[bool]:
    """Return the operation that hands the payload to all `hooks` again, whatever its state is. Its
    result is False if the payload is unknown.
    """
    hooks = list(hooks)

    def store(db: sqlite3.Connection) -> bool:
        row = db.execute("SELECT 1 FROM inbound WHERE request_id = ?", (request_id,)).fetchone()
        _hand_over(db, request_id, hooks)
        return row is not None

    return store


STATES = ("waiting", "handed", "dead")
"""States of a payload at a hook: it waits for an attempt, the hook has accepted it, or only
`replay` tries it again."""


def list_payloads(
    journal: Journal, limit: int, state: str | None = None, end_place: int = END
) -> list[Mapping[str, Any]]:
    """Return at most `limit` payloads with a number lower than `end_place`, newest first, with
    their state at each hook. If `state` is not None, return only payloads with this state at one
    hook or more.
    """
    rows = journal.read(
        "SELECT number, request_id, body, received, asks, read_by FROM inbound"
        " WHERE number < ?1"
        " AND (?2 IS NULL OR number IN (SELECT number FROM handover WHERE state = ?2))"
        " ORDER BY number DESC LIMIT ?3",
        end_place,
        state,
        limit,
    )
    return [_make_listed(journal, row) for row in rows]


def _make_listed(journal: Journal, row: Sequence[Any]) -> Mapping[str, Any]:
    number, request_id, body, received, wants_receipt, read_by = row
    return {
        "number": number,
        "requestId": request_id,
        "received": journal.clock.date(received),
        "body": body,
        "asks": bool(wants_receipt),
        "readBy": read_by,
        "hooks": {
            hook: {"state": state, "attempts": attempts, "reason": reason}
            for hook, state, attempts, reason in journal.read(
                "SELECT hook, state, attempts, reason FROM handover WHERE number = ?", number
            )
        },
    }


def forget(*, end_time: float, keep_count: int) -> Operation[int]:
    """Return the operation that deletes old records of arrivals, old fragments, and a batch of
    payloads. It deletes payloads that wait at no hook, if they arrived before `end_time` (elapsed
    time) or are not among the last `keep_count`. Its result is the number of deleted payloads. Run
    the operation again until the result is 0.
    """

    def store(db: sqlite3.Connection) -> int:
        settled = "number NOT IN (SELECT number FROM handover WHERE state = 'waiting')"
        cursor = db.execute(
            f"DELETE FROM inbound WHERE number IN (SELECT number FROM inbound WHERE {settled}"
            " AND (received < ? OR number <= (SELECT number FROM inbound"
            f" WHERE {settled} ORDER BY number DESC LIMIT 1 OFFSET ?)) ORDER BY number LIMIT ?)",
            (end_time, keep_count, DELETED_ROWS_MAX),
        )
        # Delete by age only if there are many arrivals, because after a jump of the clock all
        # arrivals look old.
        (slices,) = db.execute("SELECT count(*) FROM slice").fetchone()
        if slices > FRAGMENTS_MAX:
            db.execute("DELETE FROM slice WHERE at < ?", (end_time,))
        for sos, kept_max in ((0, ARRIVALS_MAX), (1, SOS_ARRIVALS_MAX)):
            db.execute(
                "DELETE FROM arrived WHERE sos = ?1 AND at < (SELECT min(at) FROM (SELECT at"
                " FROM arrived WHERE sos = ?1 ORDER BY at DESC LIMIT ?2))",
                (sos, kept_max),
            )
        return cursor.rowcount

    return store


FRAGMENTS_MAX = 4_096
"""Number of fragments above which `forget` deletes old fragments of incomplete items. So many
fragments take about 1 MB on disk."""
ARRIVALS_MAX = 50_000
"""Number of recorded arrivals that are kept. This is enough for years of satellite traffic, and
takes 3 MB on disk."""
SOS_ARRIVALS_MAX = 2_000
"""Number of recorded SOS arrivals that are kept in addition. Other traffic never displaces them, so
that a replayed SOS is recognised for longer."""
