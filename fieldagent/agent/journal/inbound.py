"""Payloads in the journal: what arrived, what must still be handed to a hook, what is dead."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fieldagent.agent.journal.journal import FORGOTTEN_AT_ONCE, Journal, Operation
from fieldagent.agent.journal.listing import END
from fieldagent.agent.journal.records import LANE
from fieldagent.package.payload import Identity
from fieldagent.package.reach import Rung
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Unreadable


class ItemCame(NamedTuple):
    """An item by the number under which it came."""

    origin: int
    """Below zero the station whose number it is; else the hub gave it."""
    sequence: int
    digest: bytes
    asks: bool
    """Its sender wants to know how far it comes."""


@dataclass(frozen=True, slots=True)
class Received:
    """One payload as the JSON text that a hook gets."""

    request_id: str
    sender: str
    body: str
    received: float
    item: ItemCame | None = None
    """None where nobody can be told what becomes of it."""
    copy: bytes | None = None
    """Of an item that the hub sent: it, as it came."""


class FragmentedItem(NamedTuple):
    """What came in fragments."""

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
    whole: bytes | None = None,
    sos: bool = False,
) -> bool:
    """Note that it is here; return whether it is new. `whole` is of a fragment: the digest of its
    item. An SOS is remembered longer than anything else."""
    cursor = db.execute(
        "INSERT OR IGNORE INTO arrived (origin, sequence, digest, at, whole, sos)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (origin, sequence, digest, now, whole, sos),
    )
    return cursor.rowcount > 0


def was_seen(db: sqlite3.Connection, origin: int, sequence: int, digest: bytes) -> bool:
    """Return whether an item or fragment with this digest came from `origin` under this number. A
    number alone may be that of another item."""
    rows = db.execute(
        "SELECT 1 FROM arrived WHERE origin = ? AND sequence = ? AND digest = ?",
        (origin, sequence, digest),
    )
    return rows.fetchone() is not None


def whole_of(db: sqlite3.Connection, origin: int, sequence: int, digest: bytes) -> bytes:
    """Return the digest of the item of which this fragment was a part; empty where it is not
    known."""
    row = db.execute(
        "SELECT whole FROM arrived WHERE origin = ? AND sequence = ? AND digest = ?",
        (origin, sequence, digest),
    ).fetchone()
    return b"" if row is None or row[0] is None else bytes(row[0])


def introduce(db: sqlite3.Connection, origin: int, who: Identity) -> None:
    """Keep who `origin` is; what was known of it before is replaced. `origin` is below zero for a
    station."""
    db.execute(
        "INSERT OR REPLACE INTO identity VALUES (?, ?, ?, ?, ?, ?)",
        (origin, who.id, who.name, who.type, who.email, who.account),
    )


def knows_anybody(journal: Journal) -> bool:
    """Return whether somebody was introduced."""
    return bool(journal.read("SELECT 1 FROM identity LIMIT 1"))


def identity(db: sqlite3.Connection, origin: int) -> Identity | None:
    """Return who `origin` is, below zero a station; None where it was not introduced."""
    row = db.execute(
        "SELECT id, name, type, email, account FROM identity WHERE origin = ?", (origin,)
    ).fetchone()
    return None if row is None else Identity(*row)


def station_names(journal: Journal) -> dict[int, str]:
    """Return the names of those that have told it; in `identity` a station counts below zero."""
    return {
        -origin: name
        for origin, name in journal.read("SELECT origin, name FROM identity WHERE origin < 0")
    }


def spool(
    db: sqlite3.Connection, payload: Received, hooks: Iterable[str], not_before: float = 0.0
) -> None:
    """Keep a payload for each hook. What is no SOS waits until `not_before` (lived time)."""
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
        f" SELECT ?, number, 'waiting', {LANE} FROM inbound WHERE request_id = ?",
        [(hook, not_before, request_id) for hook in hooks],
    )


class Owed(NamedTuple):
    """What the peer has not been told yet: that its `sequence` is stored here."""

    sequence: int
    at: int
    sos: bool
    digest: bytes


def owe(db: sqlite3.Connection, channel: str, what: Owed) -> None:
    """Write down that the peer of a channel is to be told of an item that is stored here; of one
    number only the last."""
    db.execute(
        "INSERT OR REPLACE INTO owed (channel, sequence, at, sos, digest) VALUES (?, ?, ?, ?, ?)",
        (channel, *what),
    )


def owed(journal: Journal, channel: str) -> list[Owed]:
    """List the receipts that the peer of a channel is owed, the oldest first."""
    return [
        Owed(sequence, at, bool(sos), bytes(digest))
        for sequence, at, sos, digest in journal.read(
            "SELECT sequence, at, sos, digest FROM owed WHERE channel = ? ORDER BY at, sequence",
            channel,
        )
    ]


def told(db: sqlite3.Connection, channel: str, sequences: Iterable[int]) -> None:
    """Forget what the peer of a channel has been told by now, by the numbers of the items."""
    db.executemany(
        "DELETE FROM owed WHERE channel = ? AND sequence = ?", [(channel, s) for s in sequences]
    )


class UnreadableOwed(NamedTuple):
    """What the hub has not been told yet: that a message came which could not be read."""

    said: Unreadable
    at: int
    """Unix time."""


def owe_unreadable(db: sqlite3.Connection, channel: str, what: UnreadableOwed) -> None:
    """Write down that the hub is to be told of it."""
    db.execute(
        "INSERT OR IGNORE INTO unreadable_owed (channel, size, guard, at) VALUES (?, ?, ?, ?)",
        (channel, what.said.size, what.said.guard, what.at),
    )


def unreadable_owed(journal: Journal, channel: str) -> list[UnreadableOwed]:
    """Return what the hub is to be told of, the oldest first."""
    rows = journal.read(
        "SELECT size, guard, at FROM unreadable_owed WHERE channel = ? ORDER BY at", channel
    )
    return [UnreadableOwed(Unreadable(size, guard), at) for size, guard, at in rows]


def told_unreadable(
    db: sqlite3.Connection, channel: str, entries: Iterable[UnreadableOwed]
) -> None:
    """Note that the hub was told of these: they are owed no more."""
    db.executemany(
        "DELETE FROM unreadable_owed WHERE channel = ? AND size = ? AND at = ?",
        [(channel, each.said.size, each.at) for each in entries],
    )


class RungOwed(NamedTuple):
    """What the hub has not been told yet: how far an item has come here."""

    origin: int
    sequence: int
    rung: Rung
    text: str
    at: int
    """Unix time."""
    digest: bytes

    @property
    def key(self) -> tuple[int, int, int, str]:
        """Return what no other has: item, rung and text."""
        return self.origin, self.sequence, self.rung, self.text


def owe_rung(db: sqlite3.Connection, request_id: str, rung: Rung, text: str, at: float) -> bool:
    """Write down that the sender of a payload is to be told of it, by the hub and on the air;
    return whether anybody is."""
    whose = "FROM inbound WHERE request_id = ? AND digest IS NOT NULL AND (asks OR ?)"
    values = rung, text, int(at), request_id, rung is not Rung.PROGRAMS
    db.execute(
        "INSERT OR IGNORE INTO station_owed (station, sequence, rung, text, at, digest, asks)"
        f" SELECT -origin, sequence, ?, ?, ?, digest, asks {whose} AND origin < 0",
        values,
    )
    cursor = db.execute(
        "INSERT OR IGNORE INTO rung_owed (origin, sequence, rung, text, at, digest)"
        f" SELECT origin, sequence, ?, ?, ?, digest {whose}",
        values,
    )
    return cursor.rowcount == 1


READ_LOOK = 500
"""Payloads, the newest, that are looked through for one that somebody has read."""


def owe_reading_again(
    db: sqlite3.Connection, station: int, sequence: int, digest: bytes, at: float
) -> bool:
    """Write down that the hub is to be told once more that a person has read an item of a
    station's: it may have been told before it had that item. Return whether somebody has. `at` is
    Unix time, as nobody knows any more when that was."""
    cursor = db.execute(
        "INSERT OR IGNORE INTO rung_owed (origin, sequence, rung, text, at, digest)"
        " SELECT origin, sequence, ?, read_by, ?, digest FROM (SELECT * FROM inbound"
        " ORDER BY number DESC LIMIT ?) WHERE origin = ? AND sequence = ? AND digest = ?"
        " AND read_by IS NOT NULL",
        (Rung.READ, int(at), READ_LOOK, -station, sequence, digest),
    )
    return cursor.rowcount > 0


_RUNGS = "SELECT origin, sequence, rung, text, at, digest FROM rung_owed"


def rungs_owed(journal: Journal, limit: int = 64) -> list[RungOwed]:
    """List what the hub is still to be told of payloads, the oldest first."""
    return _rungs(journal.read(f"{_RUNGS} ORDER BY at LIMIT ?", limit))


def owes_rungs_of_hub(journal: Journal) -> bool:
    """Return whether the hub has not been told yet how far an item of its own has come."""
    return bool(journal.read("SELECT 1 FROM rung_owed WHERE origin >= 0 LIMIT 1"))


def rungs_of_hub(db: sqlite3.Connection, limit: int = 8) -> list[RungOwed]:
    """Return, of items that the hub sent, as many as fit one parcel."""
    return _rungs(db.execute(f"{_RUNGS} WHERE origin >= 0 ORDER BY at LIMIT ?", (limit,)))


def _rungs(rows: Iterable[Sequence[Any]]) -> list[RungOwed]:
    return [
        RungOwed(origin, sequence, Rung(rung), text, at, bytes(digest))
        for origin, sequence, rung, text, at, digest in rows
    ]


def told_rungs(db: sqlite3.Connection, keys: Iterable[tuple[int, int, int, str]]) -> None:
    """Forget what has been told of how far items came, by origin, number, rung and text."""
    db.executemany(
        "DELETE FROM rung_owed WHERE origin = ? AND sequence = ? AND rung = ? AND text = ?", keys
    )


class StationOwed(NamedTuple):
    """What a station has not been told yet: how far an item of its own has come here."""

    station: int
    sequence: int
    rung: Rung
    text: str
    at: int
    """Unix time."""
    digest: bytes
    asks: bool
    """Its sender wants to know."""


STATION_OWED_FOR = 7 * 86_400
"""Seconds for which a station is told."""


def station_owed(journal: Journal, limit: int = 64) -> list[StationOwed]:
    """Return what stations are to be told, the newest first."""
    rows = journal.read(
        "SELECT station, sequence, rung, text, at, digest, asks FROM station_owed"
        " WHERE at > ? ORDER BY at DESC LIMIT ?",
        int(journal.clock.date(journal.clock.now())) - STATION_OWED_FOR,
        limit,
    )
    return [
        StationOwed(station, sequence, Rung(rung), text, at, bytes(digest), bool(asks))
        for station, sequence, rung, text, at, digest, asks in rows
    ]


def told_station(db: sqlite3.Connection, entry: StationOwed) -> None:
    """Note that the station has this: it is owed no more."""
    db.execute(
        "DELETE FROM station_owed WHERE station = ? AND sequence = ? AND rung = ? AND text = ?",
        entry[:4],
    )


def read_by(db: sqlite3.Connection, request_id: str, who: str) -> bool:
    """Write down that a person has read a payload; return whether it is known at all."""
    cursor = db.execute("UPDATE inbound SET read_by = ? WHERE request_id = ?", (who, request_id))
    return cursor.rowcount == 1


def keep_slice(
    db: sqlite3.Connection, item: FragmentedItem, position: int, piece: bytes, now: float
) -> dict[int, bytes]:
    """Store one fragment; all that are there come back."""
    db.execute(
        "INSERT OR REPLACE INTO slice VALUES (?, ?, ?, ?, ?, ?)", (*item, position, piece, now)
    )
    return slices_of(db, item)


_SLICES = (
    "SELECT position, slice FROM slice WHERE origin = ? AND sequence = ? AND count = ?"
    " ORDER BY position"
)


def slices_of(db: sqlite3.Connection, item: FragmentedItem) -> dict[int, bytes]:
    """Return the fragments that are there, by position; none once the item is whole."""
    return dict(db.execute(_SLICES, item).fetchall())


def drop_slices(db: sqlite3.Connection, item: FragmentedItem, *, but: int = -1) -> None:
    """Drop all fragments of an item, or all but the one at the position `but`."""
    db.execute(
        "DELETE FROM slice WHERE origin = ? AND sequence = ? AND count = ? AND position <> ?",
        (*item, but),
    )


def incomplete(journal: Journal) -> dict[FragmentedItem, float]:
    """Return what lacks fragments, and when the last one of it came."""
    rows = journal.read(
        "SELECT origin, sequence, count, max(at) FROM slice GROUP BY origin, sequence, count"
    )
    return {FragmentedItem(*item): at for *item, at in rows}


def slices_there(journal: Journal, item: FragmentedItem) -> dict[int, bytes]:
    """Return the fragments that are there, as `slices_of`, of what is committed."""
    return dict(journal.read(_SLICES, *item))


def heads(journal: Journal, hook: str, limit: int) -> list[Sequence[Any]]:
    """Return the oldest payload of each lane that waits, those due first first."""
    return journal.read(
        "SELECT request_id, lane, body, received, attempts, not_before FROM (SELECT number,"
        " sender AS lane, attempts, not_before FROM handover WHERE hook = ?1 AND number IN (SELECT"
        " min(number) FROM handover WHERE hook = ?1 AND state = 'waiting' GROUP BY sender)"
        " ORDER BY not_before, number LIMIT ?2) JOIN inbound USING (number)"
        " ORDER BY not_before, number",
        hook,
        limit,
    )


class LeftOver(NamedTuple):
    """What a hook has not taken, and why not the last of it."""

    hook: str
    state: str
    """dead, or waiting for another try."""
    payloads: int
    reason: str


class LeftOvers:
    """Of each hook that has failed with something that is not handed over.

    It takes a look at every payload that is kept, and a page asks each second: so it is kept until
    something is committed.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._found: list[LeftOver] = []
        self._commits = -1
        """How many there were before the look."""

    def listing(self) -> list[LeftOver]:
        """Return them, read anew where something was committed since."""
        commits = self._journal.commits
        if commits != self._commits:
            self._found, self._commits = self._look(), commits
        return self._found

    def _look(self) -> list[LeftOver]:
        # Beside max(), a bare column is of the row that has the maximum
        # (sqlite.org/lang_select.html, 2.5).
        rows = self._journal.read(
            "SELECT hook, state, count(*), reason, max(CASE WHEN reason <> '' THEN number END)"
            " FROM handover WHERE state <> 'handed' GROUP BY hook, state ORDER BY hook, state"
        )
        return [LeftOver(*row) for *row, last in rows if last is not None]


_OF_REQUEST = "WHERE hook = ? AND number = (SELECT number FROM inbound WHERE request_id = ?)"


def handed(hook: str, request_id: str, at: float) -> Operation[bool]:
    """Return whether its sender is to be told that a program has it, which is Unix time `at`."""

    def store(db: sqlite3.Connection) -> bool:
        db.execute(
            f"UPDATE handover SET state = 'handed', reason = '', attempts = attempts + 1"
            f" {_OF_REQUEST}",
            (hook, request_id),
        )
        return owe_rung(db, request_id, Rung.PROGRAMS, "", at)

    return store


def postponed(
    hook: str, request_id: str, not_before: float, reason: str, *, tries: int = 1
) -> Operation[None]:
    """Count a try that failed, or none, and leave the payload to the hook from `not_before` (lived
    time) on; `reason` is for people."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            f"UPDATE handover SET attempts = attempts + ?, not_before = ?, reason = ?"
            f" {_OF_REQUEST}",
            (tries, not_before, reason, hook, request_id),
        )

    return store


def hasten(hook: str) -> Operation[None]:
    """Leave to the hook at once what waits for its next try, an SOS first."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE handover SET not_before = CASE WHEN sender = (SELECT request_id FROM inbound"
            " WHERE inbound.number = handover.number) THEN -1.0 ELSE 0.0 END"
            " WHERE hook = ? AND state = 'waiting' AND attempts > 0",
            (hook,),
        )

    return store


def dead(hook: str, request_id: str, reason: str) -> Operation[None]:
    """Count a try that failed, and hand this payload to that hook no more unless it is replayed;
    `reason` is for people."""

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            f"UPDATE handover SET state = 'dead', attempts = attempts + 1, reason = ?"
            f" {_OF_REQUEST}",
            (reason, hook, request_id),
        )

    return store


def replay(request_id: str, hooks: Iterable[str]) -> Operation[bool]:
    """Hand it to every configured hook again, whatever became of it. False when it is unknown."""
    hooks = list(hooks)

    def store(db: sqlite3.Connection) -> bool:
        known = db.execute("SELECT 1 FROM inbound WHERE request_id = ?", (request_id,)).fetchone()
        _hand_over(db, request_id, hooks)
        return known is not None

    return store


STATES = ("waiting", "handed", "dead")
"""How a payload may stand at a hook."""


def listing(
    journal: Journal, limit: int, state: str | None = None, before: int = END
) -> list[Mapping[str, Any]]:
    """List the newest payloads with a number lower than `before`, and how they stand at each
    hook."""
    rows = journal.read(
        "SELECT number, request_id, body, received, asks, read_by FROM inbound"
        " WHERE number < ?1"
        " AND (?2 IS NULL OR number IN (SELECT number FROM handover WHERE state = ?2))"
        " ORDER BY number DESC LIMIT ?3",
        before,
        state,
        limit,
    )
    return [_as_told(journal, row) for row in rows]


def _as_told(journal: Journal, row: Sequence[Any]) -> Mapping[str, Any]:
    number, request_id, body, received, asks, read_by = row
    return {
        "number": number,
        "requestId": request_id,
        "received": journal.clock.date(received),
        "body": body,
        "asks": bool(asks),
        "readBy": read_by,
        "hooks": {
            hook: {"state": state, "attempts": attempts, "reason": reason}
            for hook, state, attempts, reason in journal.read(
                "SELECT hook, state, attempts, reason FROM handover WHERE number = ?", number
            )
        },
    }


def forget(*, before: float, keep: int) -> Operation[int]:
    """Drop some payloads that no hook waits for, and what is remembered to recognise duplicates;
    how many payloads those were. More may be there while it is not 0."""

    def store(db: sqlite3.Connection) -> int:
        done = "number NOT IN (SELECT number FROM handover WHERE state = 'waiting')"
        cursor = db.execute(
            f"DELETE FROM inbound WHERE number IN (SELECT number FROM inbound WHERE {done}"
            " AND (received < ? OR number <= (SELECT number FROM inbound"
            f" WHERE {done} ORDER BY number DESC LIMIT 1 OFFSET ?)) ORDER BY number LIMIT ?)",
            (before, keep, FORGOTTEN_AT_ONCE),
        )
        # By age only where they are many: after a jump of the clock all of them look old.
        (slices,) = db.execute("SELECT count(*) FROM slice").fetchone()
        if slices > SLICES_MAX:
            db.execute("DELETE FROM slice WHERE at < ?", (before,))
        for sos, kept in ((0, SEEN_MAX), (1, SOS_SEEN_MAX)):
            db.execute(
                "DELETE FROM arrived WHERE sos = ?1 AND at < (SELECT min(at) FROM (SELECT at"
                " FROM arrived WHERE sos = ?1 ORDER BY at DESC LIMIT ?2))",
                (sos, kept),
            )
        return cursor.rowcount

    return store


SLICES_MAX = 4_096
"""Fragments of unfinished items that are kept however old they look: about 1 MB on disk."""
SEEN_MAX = 50_000
"""How many arrivals are remembered: years of satellite traffic, 3 MB on disk."""
SOS_SEEN_MAX = 2_000
"""The same of an SOS, beside them: no traffic pushes one out, so that a recording of it stays one
that is known."""
