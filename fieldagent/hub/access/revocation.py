"""Takes a kit that was stolen or lost out of the hands of whoever has it, and gives it back.

1. A revoked device is out of use: its link ends and none is opened, and nothing is sent to it.
2. What comes from it all the same, by its modem or a neighbour, is kept apart as a dead letter: it
   is never its user's word. What it brings of others is kept apart as well.
3. An SOS rings: a thief may be in need, and so may somebody whose kit was revoked in error. It says
   since when its kit is revoked.
4. Once the device is restored, what was kept apart is taken in.
"""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.contract import Device
from fieldagent.hub.records import lease
from fieldagent.hub.records.audit import ADMINISTRATION
from fieldagent.hub.store.contract import Db, one_of
from fieldagent.package.writing import clock_time
from fieldagent.system.sentence import sentence

WHY_MAX = 200
"""Characters."""


def revoke(db: Db, device: int, why: str, *, now: float, by: str = ADMINISTRATION) -> None:
    """Let nothing that this device says from now on be its user's. Raises Refused where it is
    revoked already."""
    changed = db.execute(
        "UPDATE device SET revoked = ?, revoked_why = ?, disabled = ?"
        " WHERE id = ? AND revoked IS NULL RETURNING id",
        *(now, why[:WHY_MAX], now, device),
    )
    if not changed:
        raise Refused(sentence("device {device} is revoked already", device=device))
    lease.end(db, device)
    detail = f"{device}: {why}" if why else str(device)
    directory.note_of_device(db, device, by, "device revoke", detail, now)


def restore(db: Db, device: int, *, now: float, by: str = ADMINISTRATION) -> None:
    """Take a revoked device back into use. Raises Refused where it is not revoked, or its user is
    disabled."""
    if since(db, device) is None:
        raise Refused(sentence("device {device} is not revoked", device=device))
    db.execute("UPDATE device SET revoked = NULL, revoked_why = '' WHERE id = ?", device)
    directory.set_disabled(db, "device", device, None, now=now, by=by)
    directory.note_of_device(db, device, by, "device restore", str(device), now)


def since(db: Db, device: int) -> float | None:
    """Return since when it is revoked, in Unix seconds; None where it is not."""
    rows = db.execute("SELECT revoked FROM device WHERE id = ? AND revoked IS NOT NULL", device)
    return float(rows[0][0]) if rows else None


def among(db: Db, devices: Collection[int]) -> set[int]:
    """Return those of them that are revoked."""
    which, numbers = one_of(db, devices)
    rows = db.execute(f"SELECT id FROM device WHERE id {which} AND revoked IS NOT NULL", *numbers)
    return {device for (device,) in rows}


def doubt_of(db: Db, carrier: Device | None, device: Device) -> tuple[float | None, str]:
    """Return since when the device is revoked, or the one that brings what it sent, and why that is
    kept apart; None and nothing where neither is."""
    for each in (carrier, device):
        if each is not None and (at := since(db, each.id)) is not None:
            return at, (
                f"{each.name} is revoked since {clock_time(at)}: this may be a thief's, and is"
                f" nobody else's word; `fieldagent hub device restore {each.id}` takes it in"
            )
    return None, ""
