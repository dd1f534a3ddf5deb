"""MO messages that the hub could not use. The hub stores them unchanged, within limits, until it
can use them.

The hub has acknowledged these messages, so the operator does not send them again. A letter is
deleted when the hub can accept it or a person removes it. The oldest letters are deleted when newer
letters need their space.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any

from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.contract import Bearer, Device
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.store.contract import Db, make_marks
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

LETTERS_PER_KIT_MAX = 200
"""Largest number of letters per IMEI, or per device over IP. The limit prevents an unknown sender
from displacing the letters of all others."""
COUNT_MAX, BYTES_MAX = 10_000, 16 << 20
"""Largest number of letters of all senders, and largest total of their bytes."""

_DELETE_OLDEST = (
    "DELETE FROM dead_letter WHERE id IN (SELECT id FROM (SELECT id, row_number() OVER newest AS"
    " place, sum(length(body)) OVER newest AS size FROM dead_letter WHERE {whose}"
    " WINDOW newest AS (ORDER BY id DESC)) AS listed WHERE place > ? OR size > ?) RETURNING id"
)


class Letter(NamedTuple):
    id: int
    body: bytes
    bearer: Bearer


def store_letter(
    db: Db,
    body: bytes,
    reason: str,
    *,
    imei: str = "",
    device: int | None,
    bearer: Bearer,
    now: float,
) -> int:
    """Store a letter. Return the number of older letters that were deleted to make space. `device`
    is None if no device has the IMEI.
    """
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
    letter_condition = "imei = ? AND (imei <> '' OR coalesce(device, 0) = ?)"
    dropped = len(
        db.execute(
            _DELETE_OLDEST.format(whose=letter_condition),
            imei,
            device or 0,
            LETTERS_PER_KIT_MAX,
            BYTES_MAX,
        )
    ) + len(db.execute(_DELETE_OLDEST.format(whose="id > 0"), COUNT_MAX, BYTES_MAX))
    db.execute(
        "INSERT INTO dead_letter_tally (one, came, dropped) VALUES (1, 1, ?) ON CONFLICT (one)"
        " DO UPDATE SET came = dead_letter_tally.came + 1,"
        " dropped = dead_letter_tally.dropped + excluded.dropped",
        dropped,
    )
    return dropped


def store_letter_once(db: Db, body: bytes, reason: str, imei: str, now: float) -> None:
    """Store an undecodable message from an operator, unless the same bytes are stored already."""
    earlier_letter = "SELECT 1 FROM dead_letter WHERE imei = ? AND body = ?"
    if not db.execute(earlier_letter, imei, body):
        rows = db.execute("SELECT id FROM device WHERE imei = ? AND imei <> ''", imei)
        device = rows[0][0] if rows else None
        store_letter(db, body, reason, imei=imei, device=device, bearer=Bearer.SATELLITE, now=now)


def assign_letters(db: Db, device: int) -> None:
    """Assign to a device the letters that its IMEI sent before any device had this IMEI.

    Only the operator of the hub may call this function, because only the operator knows the owner
    of the modem. An administrator of a workspace could claim any IMEI.
    """
    db.execute(
        "UPDATE dead_letter SET device = ? WHERE device IS NULL AND imei <> ''"
        " AND imei = (SELECT imei FROM device WHERE id = ?)",
        device,
        device,
    )


def list_device_letters(db: Db, device: Device) -> list[Letter]:
    """Return the letters of a device, oldest first."""
    rows = db.execute(
        "SELECT id, body, way FROM dead_letter WHERE device = ? ORDER BY id", device.id
    )
    return [Letter(id_, bytes(body), Bearer(bearer)) for id_, body, bearer in rows]


def store_reason(db: Db, letter: int, device: int, reason: str) -> None:
    """Store the device of a dead letter, and the reason why the latest attempt failed."""
    db.execute("UPDATE dead_letter SET device = ?, reason = ? WHERE id = ?", device, reason, letter)


def delete_letter(db: Db, letter: int) -> None:
    """Delete a dead letter that the hub could use."""
    db.execute("DELETE FROM dead_letter WHERE id = ?", letter)


def discard_letter(
    db: Db,
    letter: int,
    *,
    workspace: int | None = None,
    now: float,
    actor: str = ADMINISTRATION,
) -> None:
    """Delete a dead letter because a person requested it, and record the deletion in the audit log.
    Raises Refused if there is no such letter.
    """
    rows = db.execute("DELETE FROM dead_letter WHERE id = ? RETURNING device", letter)
    if not rows:
        raise Refused(
            sentence(
                "dead letter {letter} does not exist; see `fieldagent hub device dead-letter list`",
                letter=letter,
            )
        )
    owner_rows = db.execute("SELECT workspace FROM device WHERE id = ?", rows[0][0] or 0)
    write_line(
        db,
        owner_rows[0][0] if owner_rows else workspace,
        actor,
        "dead-letter remove",
        str(letter),
        now,
    )


def list_devices_with_letters(db: Db, workspace: int | None = None) -> list[int]:
    """Return the devices that are in use and have letters, of one workspace or of all
    workspaces.
    """
    condition, workspace_values = (
        ("", ()) if workspace is None else (" AND device.workspace = ?", (workspace,))
    )
    rows = db.execute(
        "SELECT DISTINCT device.id FROM device JOIN dead_letter ON dead_letter.device = device.id"
        f" WHERE device.disabled IS NULL{condition} ORDER BY device.id",
        *workspace_values,
    )
    return [id_ for (id_,) in rows]


def list_letters(db: Db, devices: Collection[int] | None = None) -> list[Row]:
    """Return the letters, newest first. If `devices` is not None, return only their letters."""
    condition, device_values = "", devices or ()
    if devices is not None:
        condition = (
            f" WHERE dead_letter.device IN ({make_marks(device_values)})"
            if device_values
            else " WHERE 1 = 0"
        )
    return _read_letters(db, condition, device_values, COUNT_MAX)


def list_workspace_letters(db: Db, workspace: int, before: int, limit: int) -> list[Row]:
    """Return the letters of a workspace's devices, newest first.

    Letters from an IMEI without a device are not included, because they could belong to any
    workspace. Only the operator of the hub sees these letters.
    """
    condition = " WHERE device.workspace = ? AND dead_letter.id < ?"
    return _read_letters(db, condition, (workspace, before), limit)


def is_of_workspace(db: Db, workspace: int, letter: int) -> bool:
    """Return True if the letter came from a device of the workspace."""
    return bool(
        db.execute(
            "SELECT 1 FROM dead_letter JOIN device ON device.id = dead_letter.device"
            " WHERE device.workspace = ? AND dead_letter.id = ?",
            *(workspace, letter),
        )
    )


def _read_letters(db: Db, condition: str, of: Collection[Any], limit: int) -> list[Row]:
    rows = db.execute(
        "SELECT dead_letter.id, received, dead_letter.imei, device.name, way, body, reason"
        " FROM dead_letter LEFT JOIN device ON device.id = dead_letter.device"
        f"{condition} ORDER BY dead_letter.id DESC LIMIT ?",
        *of,
        limit,
    )
    return [
        {
            "id": id_,
            "received": float(received),
            "imei": imei,
            "device": name,
            "bearer": bearer,
            "payload": base64.b64encode(bytes(body)).decode(),
            "reason": reason,
        }
        for id_, received, imei, name, bearer, body, reason in rows
    ]


def count_figures(db: Db) -> dict[str, int]:
    """Return the metrics: the number of stored letters, and the numbers of letters received and
    dropped since the database was created.
    """
    ((letter_count,),) = db.execute("SELECT count(*) FROM dead_letter")
    rows = db.execute("SELECT came, dropped FROM dead_letter_tally")
    arrived, dropped = rows[0] if rows else (0, 0)
    return {
        "dead_letters_kept": letter_count,
        "dead_letters": arrived,
        "dead_letters_dropped": dropped,
    }
