"""Items on the air in the journal: the stations that have our items, the items of other stations,
and the reports of relaying neighbours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from fieldagent.agent.journal import history, outbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.package.package import Channel, Status
from fieldagent.wire.bitmap import DIGEST_BYTES
from fieldagent.wire.envelope import FINGERPRINT_BYTES


def read_holders(journal: Journal, sequence: int) -> set[int]:
    """Return the stations that have confirmed a Package on the air. The table `receipt` contains
    them as negative numbers.
    """
    rows = journal.read("SELECT -by FROM receipt WHERE sequence = ? AND by < 0", sequence)
    return {number for (number,) in rows}


def list_others_items(
    journal: Journal, own_station: int, limit: int = 2000
) -> list[tuple[int, int, bytes]]:
    """Return the station, number and digest of the newest `limit` items from other stations, oldest
    first. SOS items, and items of another kit that uses our station number (`own_station`), are
    left out.
    """
    rows = journal.read(
        "SELECT -origin, sequence, substr(digest, 1, ?) FROM arrived"
        # Rows with a longer digest are items that were relayed to the hub: skip them.
        " WHERE origin < 0 AND origin != -? AND sequence > 0 AND whole IS NULL AND NOT sos"
        " AND length(digest) = ? ORDER BY at DESC LIMIT ?",
        *(DIGEST_BYTES, own_station, FINGERPRINT_BYTES, limit),
    )
    return [(station, number, bytes(digest)) for station, number, digest in reversed(rows)]


KEPT_BYTES, KEPT_ITEMS = 200_000, 1000
"""Maximum bytes and number of other stations' items that are read for repeating after a restart. An
SOS comes first, then the newest items."""


def store_item(
    db: sqlite3.Connection, station: int, sequence: int, identity: bytes, envelope: bytes
) -> None:
    """Store an item that has just arrived from another station, so that it can be repeated for
    other stations even after a restart.
    """
    db.execute(
        "UPDATE arrived SET on_air = ? WHERE origin = ? AND sequence = ? AND digest = ?",
        (envelope, -station, sequence, identity),
    )


def list_stored(journal: Journal, *, start_time: float) -> list[tuple[bytes, bytes, float]]:
    """Return the stored items that arrived after `start_time` (elapsed time), oldest first: the
    envelope, the item's fingerprint and the time of arrival of each. At most KEPT_ITEMS items and
    KEPT_BYTES bytes are returned.
    """
    rows = journal.read(
        "SELECT on_air, digest, at FROM arrived WHERE on_air IS NOT NULL AND at > ?"
        " ORDER BY sos DESC, at DESC LIMIT ?",
        start_time,
        KEPT_ITEMS,
    )
    items, bytes_taken = [], 0
    for envelope, identity, at in rows:
        bytes_taken += len(envelope)
        if bytes_taken > KEPT_BYTES:
            break
        items.append((bytes(envelope), bytes(identity), float(at)))
    return sorted(items, key=_read_arrival)


def _read_arrival(stored_row: tuple[bytes, bytes, float]) -> float:
    _envelope, _identity, at = stored_row
    return at


def forget_kept(*, end_time: float) -> Operation[None]:
    """Return the operation that deletes the stored items that arrived before `end_time` (elapsed
    time). The records of their arrivals are kept.
    """

    def store(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE arrived SET on_air = NULL WHERE on_air IS NOT NULL AND at <= ?", (end_time,)
        )

    return store


def has_confirmed(db: sqlite3.Connection, station: int, sequence: int) -> bool:
    """Return True if the station has confirmed the Package `sequence` by radio."""
    rows = db.execute("SELECT 1 FROM receipt WHERE sequence = ? AND by = ?", (sequence, -station))
    return rows.fetchone() is not None


def list_recently_delivered(journal: Journal, *, start_time: float) -> set[int]:
    """Return those of the last 500 Packages that another station has received since `start_time`
    (elapsed time).
    """
    rows = journal.read(
        "SELECT sequence FROM leg WHERE sequence > (SELECT coalesce(max(sequence), 0) FROM package)"
        " - 500 AND channel = ? AND status = 'Delivered' AND ended > ?",
        Channel.RADIO,
        start_time,
    )
    return {sequence for (sequence,) in rows}


def is_delivered_elsewhere(journal: Journal, sequence: int) -> bool:
    """Return True if the Package was delivered over a channel to the hub."""
    return any(
        delivery.status is Status.DELIVERED and channel is not Channel.RADIO
        for channel, delivery in outbound.read_deliveries(journal, sequence).items()
    )


def is_relayed(journal: Journal, sequence: int) -> bool:
    """Return True if a neighbour has reported that the hub has the Package."""
    return find_relay_time(journal, sequence) is not None


def list_left_nearby(journal: Journal, sequence: int) -> list[tuple[float, str]]:
    """Return the reports of neighbours that the Package left over their satellite modems, each with
    its elapsed time.
    """
    return journal.read(
        "SELECT min(at), detail FROM story WHERE sequence = ? AND event = 'left nearby'"
        " GROUP BY detail ORDER BY 1",
        sequence,
    )


def find_relay_time(journal: Journal, sequence: int) -> float | None:
    """Return the elapsed time when a neighbour reported that it relayed the Package to the hub, or
    None if no neighbour did.
    """
    rows = journal.read(
        "SELECT at FROM story WHERE sequence = ? AND channel = ? AND event = 'relayed'",
        sequence,
        Channel.RADIO,
    )
    return float(rows[0][0]) if rows else None


def describe_stop(station: int, missing_stations: Sequence[int]) -> str:
    """Return a text for people: `station` has an item but is not allowed to pass it on, and the
    stations `missing_stations` in its range have not confirmed it.
    """
    lacking = ", ".join(f"station {number}" for number in missing_stations)
    have = "have" if len(missing_stations) > 1 else "has"
    return (
        f"station {station} has it and may not pass it on (radio-hops);"
        f" {lacking} {have} not confirmed it there"
    )


def record_stop(db: sqlite3.Connection, sequence: int, text: str, at: float) -> bool:
    """Add the text of `describe_stop` to the history of a Package. Return True if the history did
    not already contain the text.
    """
    cursor = db.execute(
        "SELECT 1 FROM story WHERE sequence = ? AND event = 'not passed on' AND detail = ?",
        (sequence, text),
    )
    if cursor.fetchone() is not None:
        return False
    history.record_event(db, [sequence], Channel.RADIO, "not passed on", text, at)
    return True


def read_relay_state(
    db: sqlite3.Connection, origin: int, origin_sequence: int, digest: bytes
) -> tuple[bool, bool]:
    """Return two flags for a neighbour's item that this kit relayed. The first is True if the hub
    confirmed the item, the second if only a satellite gateway has it. `digest` contains the first
    bytes of the item's digest.
    """
    (at_hub, left) = db.execute(
        "SELECT coalesce(max(channel = 'Cellular' OR EXISTS (SELECT 1 FROM receipt"
        " WHERE receipt.sequence = leg.sequence AND by >= 0 AND proved = 1)), 0), count(*)"
        " FROM carried JOIN package USING (sequence) JOIN leg USING (sequence) WHERE origin = ?"
        " AND origin_sequence = ? AND leg.status = 'Delivered' AND substr(digest, 1, ?) = ?",
        (origin, origin_sequence, len(digest), digest),
    ).fetchone()
    return bool(at_hub), left > 0 and not at_hub
