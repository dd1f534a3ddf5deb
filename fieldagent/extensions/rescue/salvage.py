"""Saves the intact rows of a damaged journal into a new journal.

Packages that had ended remain ended. If a Package is only partly readable, or differs from the
Package that was accepted, it ends as damaged. If the state of a Package on a channel is lost, the
Package waits there again, because receivers recognise duplicates.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from fieldagent.agent.journal.high_water import HighWater
from fieldagent.agent.journal.records import (
    DAMAGED_DELIVERY,
    LANE_SQL,
    RELAYED,
    allow_relaying_again,
    compute_crc,
)
from fieldagent.agent.journal.repair import RepairResult
from fieldagent.agent.journal.schema import UNSOUND_ROWS_SQL
from fieldagent.extensions.rescue.pages import Pages, Row, Value
from fieldagent.package.delivery import ChannelDelivery, get_terminal_status
from fieldagent.package.package import SOS_PRIORITY, Channel, IncidentState, Package, Parcel, Status
from fieldagent.package.reading import read_stored_package
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

STATES: dict[str, dict[str, set[Value]]] = {
    "package": {"status": {None, *Status}},
    "leg": {"channel": {*Channel}, "status": {None, *Status}},
    "handover": {"state": {"waiting", "handed", "dead"}},
    "incident": {"state": {*IncidentState}},
    "inbound": {},
    "dead_letter": {"channel": {*Channel}},
    "intent": {"channel": {*Channel}},
    "arrived": {},
    "command": {"channel": {*Channel}, "state": {"accepted", "begun", "owed", "answered"}},
}
"""Tables whose rows are recognised by their content, with the allowed values of columns."""
IS_LATER_SQL = {
    "package": "package.status IS NULL AND excluded.status IS NOT NULL",
    "leg": "leg.status IS NULL AND excluded.status IS NOT NULL",
    "handover": "handover.state = 'waiting' AND excluded.state <> 'waiting'",
}
"""SQL conditions by table. A condition is true if the new row (`excluded`) is later than the stored
row with the same key."""
TYPES = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}
DEFAULTS: dict[str | None, Value] = {"0": 0, "1": 1, "''": ""}
"""Values for a column that an old row does not contain. The key is the text of the column's default
in the schema."""
CHANNELS = frozenset(Channel)
NAMED_MAX = 20
"""Largest number of Package ids that the report lists."""

RowValues = dict[str, Value]
"""Values of a row by column name."""


@dataclass
class LossCount:
    packages: int = 0
    waiting: int = 0
    payloads: int = 0
    damaged: list[int] = field(default_factory=list)
    """Ids of Packages that were waiting and can no longer be sent."""
    unknown: int = 0
    """Number of Packages, accepted last, that are entirely lost."""
    payloads_lost: int = 0

    def describe_count(self) -> str:
        """Return a sentence with the numbers of saved and lost Packages and payloads. If Packages
        were lost, the sentence asks people to post them again.
        """
        text = f"intact Packages: {self.packages}, {self.waiting} of them to be sent"
        text += f"; intact payloads: {self.payloads}"
        if self.damaged:
            id_text = ", ".join(str(id_) for id_ in self.damaged[:NAMED_MAX])
            more_count = len(self.damaged) - NAMED_MAX
            text += f"; damaged and not sent: {id_text}" + (
                f" and {more_count} more" if more_count > 0 else ""
            )
        if self.unknown:
            text += f"; unknown: the last {self.unknown} accepted"
        if self.payloads_lost:
            text += f"; received payloads that are lost: {self.payloads_lost}"
        if self.damaged or self.unknown:
            text += ". Post those again"
        return text


class _Column(NamedTuple):
    """A row of `PRAGMA table_info` (https://sqlite.org/pragma.html#pragma_table_info)."""

    place: int
    name: str
    kind: str
    required: int
    default: str | None
    in_key: int
    """Place in the primary key, from 1; 0 if the column is not part of the key."""


class _Table:
    """A table of the new journal, and the form of its rows in the damaged file."""

    def __init__(self, db: sqlite3.Connection, name: str, sql: str) -> None:
        self.name = name
        columns = [_Column(*row) for row in db.execute(f"PRAGMA table_info({name})")]
        self._in_key_order = "WITHOUT ROWID" in sql
        if self._in_key_order:
            columns.sort(key=lambda column: column.in_key or len(columns) + column.place)
        self._columns = columns
        names = ", ".join(column.name for column in columns)
        keys = ", ".join(column.name for column in columns if column.in_key)
        news = ", ".join(f"{column.name} = excluded.{column.name}" for column in columns)
        then = f"ON CONFLICT ({keys}) DO UPDATE SET {news} WHERE {IS_LATER_SQL.get(name)}"
        self.insert = (
            f"INSERT INTO {name} ({names}) VALUES ({', '.join('?' * len(columns))})"
            f" {then if name in IS_LATER_SQL else 'ON CONFLICT DO NOTHING'}"
        )

    def read_row(self, record: Row) -> RowValues | None:
        """Return the record as a row of this table, or None if the record does not fit the
        table.
        """
        if (record.rowid is None) != self._in_key_order or len(record.values) > len(self._columns):
            return None
        row: RowValues = {}
        for index, (_, name, kind, required, default, key) in enumerate(self._columns):
            # An old row does not contain a value for a column that was added later.
            value: Value = DEFAULTS.get(default)
            if key and kind == "INTEGER" and not self._in_key_order:
                value = record.rowid
            elif index < len(record.values):
                value = record.values[index]
            if (value is None and required) or not isinstance(value, (type(None), *TYPES[kind])):
                return None
            row[name] = value
        allowed = STATES.get(self.name, {})
        if self.name == record.table == "package" and row["status"] not in allowed["status"]:
            # The row belongs to a Package, but its status is damaged. The states of the Package on
            # its channels show the status.
            row["status"] = None
        return row if all(row[name] in values for name, values in allowed.items()) else None


class _Salvage:
    def __init__(self, db: sqlite3.Connection, now: float) -> None:
        self._db = db
        self._now = now
        self._tables = {
            name: _Table(db, name, sql)
            for name, sql in db.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"
                " AND name NOT LIKE 'sqlite_%' AND name NOT IN ('reserve', 'event')"
            ).fetchall()
        }
        self._ids: dict[int, int] = {}
        """Ids of Packages by sequence, from an index."""
        self._pending: set[tuple[int, str]] = set()
        """Sequence and channel of deliveries that were waiting, from an index."""
        self._damaged_packages: dict[int, RowValues] = {}
        """Packages that differ from the Packages that were accepted."""
        self._beginning = 0
        """Number before the first Package of the damaged journal; 0 if this number is lost too."""

    def collect_rows(self, pages: Pages) -> None:
        for record in pages.read_rows():
            match record:
                case Row("package_by_id", None, (int(id_), int(sequence))):
                    self._ids[sequence] = id_
                case Row("leg_pending", None, (int(), int(sequence), str(channel))):
                    self._pending.add((sequence, channel))
                case _:
                    for table, row in self._find_tables(record):
                        self._collect_row(table, row)

    def _find_tables(self, record: Row) -> Iterator[tuple[_Table, RowValues]]:
        """Yield the tables to which a record may belong. The page determines the table, or else the
        content of the record.
        """
        for name in [record.table] if record.table in self._tables else STATES:
            table = self._tables[name or ""]
            row = table.read_row(record)
            certain = record.table is not None or name != "inbound"
            if row is not None and (certain or _is_inbound(row)):
                yield table, row

    def _collect_row(self, table: _Table, row: RowValues) -> None:
        if table.name == "package" and not _is_whole(row):
            sequence = row["sequence"]
            assert isinstance(sequence, int)
            self._damaged_packages.setdefault(sequence, row)
            return
        if table.name == "beginning":
            self._beginning = max(self._beginning, int(str(row["number"])))
            return
        with suppress(sqlite3.IntegrityError):
            self._db.execute(table.insert, tuple(row.values()))

    def repair(self, high_water: HighWater, count: LossCount) -> None:
        """Make the rows consistent, and count the losses in `count`."""
        db = self._db
        self._drop_unsound()
        known_sequences = {sequence for (sequence,) in db.execute("SELECT sequence FROM package")}
        count.packages = len(known_sequences)
        orphans = {
            sequence for (sequence,) in db.execute("SELECT sequence FROM leg WHERE status IS NULL")
        }
        orphans |= {sequence for sequence, channel in self._pending if channel in CHANNELS}
        orphans |= {each for each, row in self._damaged_packages.items() if row["status"] is None}
        for sequence in sorted(orphans - known_sequences):
            count.damaged.append(self._end_package(sequence))
        self._restore_deliveries(known_sequences)
        self._restore_payloads(count)
        self._restore_stations(count)
        self._drop_orphans()
        self._restore_incidents()
        self._skip_used_numbers(high_water, count)
        waiting = "SELECT count(DISTINCT sequence) FROM leg WHERE status IS NULL"
        ((count.waiting,),) = db.execute(waiting)

    def _drop_unsound(self) -> None:
        for table, unsound in UNSOUND_ROWS_SQL.items():
            if table == "package":
                continue
            deleted_count = self._db.execute(f"DELETE FROM {table} WHERE {unsound}").rowcount
            if table == "person" and deleted_count:
                # Delete the version of the directory, so that the hub sends the whole directory
                # again.
                self._db.execute("DELETE FROM directory")

    def _drop_orphans(self) -> None:
        db = self._db
        for table in self._tables:
            for _, _, parent, column, *_ in db.execute(
                f"PRAGMA foreign_key_list({table})"
            ).fetchall():
                columns = db.execute(f"PRAGMA table_info({parent})").fetchall()
                (key,) = (name for _, name, *_, is_key in columns if is_key)
                db.execute(
                    f"DELETE FROM {table} WHERE {column} NOT IN (SELECT {key} FROM {parent})"
                )

    def _end_package(self, sequence: int) -> int:
        """End a Package of which too little remains, and return its id. The remaining content is
        kept for inspection.
        """
        row: RowValues = {
            "accepted": 0.0,
            "expires": None,
            **self._damaged_packages.get(sequence, {}),
        }
        candidate = self._ids.get(sequence, row.get("id"))
        # People can find a Package only by its id. If the id is lost, use the negative number of
        # the Package as its id.
        id_ = candidate if isinstance(candidate, int) else -sequence
        self._db.execute(
            "INSERT INTO package (sequence, id, body, digest, accepted, expires, status, ended,"
            " crc) VALUES (?, ?, ?, ?, ?, ?, 'Error', ?, 0)",
            (
                sequence,
                id_,
                row.get("body", ""),
                row.get("digest", b""),
                row["accepted"],
                row["expires"],
                self._now,
            ),
        )
        channels = {channel for number, channel in self._pending if number == sequence}
        for channel in channels & {*Channel}:
            self._db.execute(
                "INSERT OR IGNORE INTO leg (sequence, channel) VALUES (?, ?)", (sequence, channel)
            )
        self._end_damaged(sequence)
        return id_

    def _restore_deliveries(self, sequences: set[int]) -> None:
        """Make sure that a waiting Package waits on at least one channel."""
        db = self._db
        insert_sql = "INSERT OR IGNORE INTO leg (sequence, channel, priority) SELECT sequence, ?, ?"
        for sequence, channel in self._pending:
            if sequence in sequences and channel in CHANNELS:
                db.execute(f"{insert_sql} FROM package WHERE sequence = ?", (channel, 0, sequence))
        usual = {channel for (channel,) in db.execute("SELECT DISTINCT channel FROM leg")}
        lost_rows = db.execute(
            "SELECT sequence, body FROM package WHERE status IS NULL"
            " AND sequence NOT IN (SELECT sequence FROM leg)"
        ).fetchall()
        for sequence, body in lost_rows:
            channels = read_stored_package(body).channels
            if channels is None:
                channels = frozenset(usual or Channel)
            for channel in channels:
                db.execute(f"{insert_sql} FROM package WHERE sequence = ?", (channel, 0, sequence))
        db.execute(
            "UPDATE leg SET priority = (SELECT json_extract(body, '$.priority') FROM package"
            " WHERE package.sequence = leg.sequence) WHERE status IS NULL"
            " AND sequence IN (SELECT sequence FROM package WHERE status IS NOT 'Error')"
        )
        ended_rows = db.execute(
            "SELECT sequence FROM package WHERE status IS NULL AND sequence IN"
            " (SELECT sequence FROM leg WHERE status IS NOT NULL)"
        ).fetchall()
        for (sequence,) in ended_rows:
            rows = db.execute("SELECT status FROM leg WHERE sequence = ?", (sequence,)).fetchall()
            status = get_terminal_status(ChannelDelivery(each and Status(each)) for (each,) in rows)
            db.execute(
                "UPDATE package SET status = ?, ended = coalesce(ended, ?) WHERE sequence = ?",
                (status, None if status is None else self._now, sequence),
            )

    def _restore_stations(self, count: LossCount) -> None:
        """Restore the original station of neighbours' items from the relay marks. Without it, a
        neighbour's SOS would become an SOS of this kit. If the station is lost, the item ends. It
        is relayed again when its kit repeats the request.
        """
        db = self._db
        marks = {
            bytes(digest)[len(RELAYED) :]: (-station, number)
            for station, number, digest in db.execute(
                "SELECT origin, sequence, digest FROM arrived WHERE substr(digest, 1, ?) = ?",
                (len(RELAYED), RELAYED),
            )
        }
        lost_rows = db.execute(
            "SELECT sequence, digest, body, status FROM package WHERE id = -sequence AND crc <> 0"
            " AND sequence NOT IN (SELECT sequence FROM carried)"
        ).fetchall()
        for sequence, digest, body, status in lost_rows:
            package = read_stored_package(body)
            if digest in marks:
                station, number = marks[digest]
                raising_number = self._find_raising_item(station, number) if package.sos else number
                db.execute(
                    "INSERT INTO carried VALUES (?, ?, ?, ?)",
                    (sequence, station, number, number - raising_number),
                )
            elif _is_for_hub(package):
                count.damaged += [-sequence] if status is None else []
                self._end_damaged(sequence)

    def _find_raising_item(self, station: int, number: int) -> int:
        """Return the number of the item that raised an incident of another station."""
        ((raising_number,),) = self._db.execute(
            "SELECT max(number) FROM heard_incident WHERE station = ? AND number <= ?",
            (station, number),
        )
        return number if raising_number is None else int(raising_number)

    def _end_damaged(self, sequence: int) -> None:
        values = {"status": DAMAGED_DELIVERY.status, "at": self._now, "sequence": sequence}
        clauses = {"leg": ", reason = :reason", "package": ""}
        for table, reason in clauses.items():
            self._db.execute(
                f"UPDATE {table} SET status = :status, ended = :at{reason}"
                " WHERE sequence = :sequence AND status IS NULL",
                values | {"reason": DAMAGED_DELIVERY.reason},
            )
        allow_relaying_again(self._db, sequence)

    def _restore_incidents(self) -> None:
        """Assign each waiting SOS to an incident, even if the row with its incident is lost."""
        waits = self._db.execute(
            "SELECT sequence FROM leg WHERE status IS NULL AND priority >= ? AND sequence NOT IN"
            " (SELECT sequence FROM incident_item UNION SELECT sequence FROM package"
            " WHERE id = -sequence)"
            " GROUP BY sequence ORDER BY sequence",
            (SOS_PRIORITY,),
        ).fetchall()
        rows = self._db.execute("SELECT number FROM incident WHERE ended IS NULL").fetchall()
        if waits and not rows:
            rows = [waits[0]]
            self._db.execute(
                "INSERT INTO incident VALUES (?, ?, 'open', NULL) ON CONFLICT DO NOTHING",
                (*waits[0], self._now),
            )
        for (sequence,) in waits:
            self._db.execute("INSERT INTO incident_item VALUES (?, ?)", (sequence, *rows[0]))

    def _restore_payloads(self, count: LossCount) -> None:
        """Hand over again each payload whose state is lost. The payload keeps its `requestId`."""
        db = self._db
        ((count.payloads,),) = db.execute("SELECT count(*) FROM inbound")
        ((count.payloads_lost,),) = db.execute(
            "SELECT count(DISTINCT number) FROM handover WHERE state = 'waiting'"
            " AND number NOT IN (SELECT number FROM inbound)"
        )
        db.execute("DELETE FROM handover WHERE number NOT IN (SELECT number FROM inbound)")
        db.execute(
            "INSERT INTO handover (hook, number, state, sender, not_before)"
            f" SELECT hooks.hook, number, 'waiting', {LANE_SQL} FROM inbound,"
            " (SELECT DISTINCT hook FROM handover) AS hooks"
            " WHERE number NOT IN (SELECT number FROM handover)",
            (0.0,),
        )

    def _skip_used_numbers(self, high_water: HighWater, count: LossCount) -> None:
        """Make sure that numbers and ids are not used twice."""
        db = self._db
        for table, key, highest in (
            ("package", "sequence", high_water.package),
            ("inbound", "number", high_water.payload),
        ):
            ((largest,),) = db.execute(f"SELECT coalesce(max({key}), 0) FROM {table}")
            if table == "package":
                first_number = max(largest, self._beginning)
                # If no row shows the number of Packages, the ids show it, because they start at 1.
                unknown = (
                    highest - first_number
                    if first_number
                    else min(highest, high_water.id or highest)
                )
                count.unknown = max(0, unknown)
            else:
                count.payloads_lost += max(0, highest - largest)
            db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            db.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, max(largest, highest)))
        db.execute(
            "INSERT INTO forgotten VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET id = max(id, ?1)",
            (high_water.id,),
        )


def _is_for_hub(package: Package) -> bool:
    """Return True if a Package that this kit relayed is for the hub. A Package for Radio alone is
    for a neighbour. A parcel may be this kit's own answer, so it does not count.
    """
    return package.channels != frozenset({Channel.RADIO}) and not isinstance(package.item, Parcel)


CHECKED = ("sequence", "id", "body", "digest", "idempotency_key", "accepted", "expires", "dated")
"""Columns of a Package in the order of the arguments of `compute_crc`."""


def _is_whole(row: RowValues) -> bool:
    if row["crc"] is not None:
        values: list[Any] = [row[name] for name in CHECKED]
        return bool(row["crc"] == compute_crc(*values))
    try:
        read_stored_package(str(row["body"]))
    except ValueError:
        return False
    return True


def _is_inbound(row: RowValues) -> bool:
    try:
        document = json.loads(str(row["body"]))
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("requestId") == row["request_id"]


def salvage(path: Path, db: sqlite3.Connection, high_water: HighWater, now: float) -> RepairResult:
    """Save the intact rows of the damaged journal at `path`. Implements
    `agent.journal.repair.Salvage`.
    """
    count = LossCount()
    work = _Salvage(db, now)
    work.collect_rows(Pages(_read_content(path), _read_content(path.with_name(f"{path.name}-wal"))))
    work.repair(high_water, count)
    lost_count = len(count.damaged) + count.unknown
    return RepairResult(count.describe_count(), lost_count, count.payloads_lost)


def _read_content(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
