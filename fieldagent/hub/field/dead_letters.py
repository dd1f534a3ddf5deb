"""MO messages that the hub could not use: kept as they came, within bounds, until somebody can.

What an operator was told is stored is never only logged. A letter goes once it could be taken in,
when somebody removes it, or when newer ones need its room: the oldest first.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any

from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.contract import Bearer, Device
from fieldagent.hub.records.audit import ADMINISTRATION, note
from fieldagent.hub.store.contract import Db, marks
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.sentence import sentence

OF_ONE_MAX = 200
"""What is kept of one IMEI, or of one device over IP: a stranger's must not push out all others."""
COUNT_MAX, BYTES_MAX = 10_000, 16 << 20
"""What is kept at most, of both."""

_OLDEST = (
    "DELETE FROM dead_letter WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER newest AS"
    " place, sum(length(body)) OVER newest AS size FROM dead_letter WHERE {whose}"
    " WINDOW newest AS (ORDER BY id DESC)) AS listed WHERE place > ? OR size > ?) RETURNING id"
)


class Letter(NamedTuple):
    id: int
    body: bytes
    bearer: Bearer


def keep(
    db: Db,
    body: bytes,
    reason: str,
    *,
    imei: str = "",
    device: int | None,
    bearer: Bearer,
    now: float,
) -> int:
    """Return how many older ones had to go for it. `device` is None where nobody has the IMEI."""
    db.execute(
        "INSERT INTO dead_letter (imei, device, way, body, reason, received)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        imei,
        device,
        bearer.value,
        body,
        reason,
        now,
    )
    whose = "imei = ? AND (imei <> '' OR coalesce(device, 0) = ?)"
    dropped = len(
        db.execute(_OLDEST.format(whose=whose), imei, device or 0, OF_ONE_MAX, BYTES_MAX)
    ) + len(db.execute(_OLDEST.format(whose="id > 0"), COUNT_MAX, BYTES_MAX))
    db.execute(
        "INSERT INTO dead_letter_tally (one, came, dropped) VALUES (1, 1, ?) ON CONFLICT (one)"
        " DO UPDATE SET came = dead_letter_tally.came + 1,"
        " dropped = dead_letter_tally.dropped + excluded.dropped",
        dropped,
    )
    return dropped


def keep_once(db: Db, body: bytes, reason: str, imei: str, now: float) -> None:
    """Store what an operator brought and nobody may decode, unless the same bytes are there."""
    there = "SELECT 1 FROM dead_letter WHERE imei = ? AND body = ?"
    if not db.execute(there, imei, body):
        rows = db.execute("SELECT id FROM device WHERE imei = ? AND imei <> ''", imei)
        device = rows[0][0] if rows else None
        keep(db, body, reason, imei=imei, device=device, bearer=Bearer.SATELLITE, now=now)


def assign(db: Db, device: int) -> None:
    """Let what came from this device's IMEI, when nobody had it, be its own.

    For the hub's operator, who knows whose modem it is: an administrator can say so of any.
    """
    db.execute(
        "UPDATE dead_letter SET device = ? WHERE device IS NULL AND imei <> ''"
        " AND imei = (SELECT imei FROM device WHERE id = ?)",
        device,
        device,
    )


def of_device(db: Db, device: Device) -> list[Letter]:
    """Return those that are its; the oldest first."""
    rows = db.execute(
        "SELECT id, body, way FROM dead_letter WHERE device = ? ORDER BY id", device.id
    )
    return [Letter(id_, bytes(body), Bearer(bearer)) for id_, body, bearer in rows]


def stays(db: Db, letter: int, device: int, reason: str) -> None:
    """Write down why it could not be used this time either."""
    db.execute("UPDATE dead_letter SET device = ?, reason = ? WHERE id = ?", device, reason, letter)


def remove(db: Db, letter: int) -> None:
    """Delete a dead letter for good."""
    db.execute("DELETE FROM dead_letter WHERE id = ?", letter)


def discard(
    db: Db,
    letter: int,
    *,
    workspace: int | None = None,
    now: float,
    by: str = ADMINISTRATION,
) -> None:
    """Remove a dead letter: somebody of that workspace, or of none, has no use for it. Raises
    Refused."""
    rows = db.execute("DELETE FROM dead_letter WHERE id = ? RETURNING device", letter)
    if not rows:
        raise Refused(
            sentence(
                "there is no dead letter {letter}; `fieldagent hub dead-letter list`", letter=letter
            )
        )
    whose = db.execute("SELECT workspace FROM device WHERE id = ?", rows[0][0] or 0)
    note(db, whose[0][0] if whose else workspace, by, "dead-letter remove", str(letter), now)


def devices_with(db: Db, workspace: int | None = None) -> list[int]:
    """Return the devices in use that have some: of that workspace, or all."""
    which, of = ("", ()) if workspace is None else (" AND device.workspace = ?", (workspace,))
    rows = db.execute(
        "SELECT DISTINCT device.id FROM device JOIN dead_letter ON dead_letter.device = device.id"
        f" WHERE device.disabled IS NULL{which} ORDER BY device.id",
        *of,
    )
    return [id_ for (id_,) in rows]


def listing(db: Db, devices: Collection[int] | None = None) -> list[Row]:
    """List them, the newest first: all there are, or those of some devices."""
    which, of = "", devices or ()
    if devices is not None:
        which = f" WHERE dead_letter.device IN ({marks(of)})" if of else " WHERE 1 = 0"
    return _listed(db, which, of, COUNT_MAX)


def of_workspace(db: Db, workspace: int, before: int, limit: int) -> list[Row]:
    """List those of its devices, the newest first.

    What came from an IMEI that no device has may be anybody's: the hub's operator alone sees it,
    also where there is one workspace.
    """
    which = " WHERE device.workspace = ? AND dead_letter.id < ?"
    return _listed(db, which, (workspace, before), limit)


def is_of_workspace(db: Db, workspace: int, letter: int) -> bool:
    """Return whether it came from one of its devices."""
    return bool(
        db.execute(
            "SELECT 1 FROM dead_letter JOIN device ON device.id = dead_letter.device"
            " WHERE device.workspace = ? AND dead_letter.id = ?",
            *(workspace, letter),
        )
    )


def _listed(db: Db, which: str, of: Collection[Any], limit: int) -> list[Row]:
    rows = db.execute(
        "SELECT dead_letter.id, received, dead_letter.imei, device.name, way, body, reason"
        " FROM dead_letter LEFT JOIN device ON device.id = dead_letter.device"
        f"{which} ORDER BY dead_letter.id DESC LIMIT ?",
        *of,
        limit,
    )
    return [
        {
            "id": id_,
            "received": float(received),
            "imei": imei,
            "device": name,
            "way": bearer,
            "payload": base64.b64encode(bytes(body)).decode(),
            "reason": reason,
        }
        for id_, received, imei, name, bearer, body, reason in rows
    ]


def figures(db: Db) -> dict[str, int]:
    """Return for the metrics what is kept, and since the database began."""
    ((kept,),) = db.execute("SELECT count(*) FROM dead_letter")
    rows = db.execute("SELECT came, dropped FROM dead_letter_tally")
    came, dropped = rows[0] if rows else (0, 0)
    return {
        "dead_letters_kept": kept,
        "dead_letters": came,
        "dead_letters_dropped": dropped,
    }
