"""Revokes a stolen or lost kit, and restores it.

1. A revoked device is disabled: its link ends, it cannot open another link, and the hub sends it
   nothing.
2. Messages from the device over its modem or a neighbour are stored as dead letters. They are not
   messages of its user. Items that the device relays for others are also stored as dead letters.
3. An SOS still notifies people, because a thief may be in danger, or the kit may have been revoked
   in error. The notification contains the time of the revocation.
4. When the device is restored, its dead letters are processed.
"""

from __future__ import annotations

from collections.abc import Collection

from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.contract import Device
from fieldagent.hub.records import lease
from fieldagent.hub.records.audit import ADMINISTRATION
from fieldagent.hub.store.contract import Db, make_membership
from fieldagent.package.writing import format_clock_time
from fieldagent.system.wording import sentence

REASON_MAX = 200
"""Largest number of characters of the reason."""


def revoke(db: Db, device: int, reason: str, *, now: float, actor: str = ADMINISTRATION) -> None:
    """Revoke a device. Its messages then no longer count as messages of its user. Raises Refused if
    the device is revoked already.
    """
    changed = db.execute(
        "UPDATE device SET revoked = ?, revoked_why = ?, disabled = ?"
        " WHERE id = ? AND revoked IS NULL RETURNING id",
        *(now, reason[:REASON_MAX], now, device),
    )
    if not changed:
        raise Refused(sentence("device {device} is revoked already", device=device))
    lease.remove_lease(db, device)
    detail = f"{device}: {reason}" if reason else str(device)
    directory.audit_device(db, device, actor, "device revoke", detail, now)


def restore(db: Db, device: int, *, now: float, actor: str = ADMINISTRATION) -> None:
    """Restore a revoked device. Raises Refused if the device is not revoked or its user is
    disabled.
    """
    if find_revocation(db, device) is None:
        raise Refused(sentence("device {device} is not revoked", device=device))
    db.execute("UPDATE device SET revoked = NULL, revoked_why = '' WHERE id = ?", device)
    directory.set_disabled(db, "device", device, None, now=now, actor=actor)
    directory.audit_device(db, device, actor, "device restore", str(device), now)


def find_revocation(db: Db, device: int) -> float | None:
    """Return the Unix time when the device was revoked, or None if it is not revoked."""
    rows = db.execute("SELECT revoked FROM device WHERE id = ? AND revoked IS NOT NULL", device)
    return float(rows[0][0]) if rows else None


def find_revoked(db: Db, devices: Collection[int]) -> set[int]:
    """Return those of `devices` that are revoked."""
    which, numbers = make_membership(db, devices)
    rows = db.execute(f"SELECT id FROM device WHERE id {which} AND revoked IS NOT NULL", *numbers)
    return {device for (device,) in rows}


def find_revocation_doubt(
    db: Db, carrier: Device | None, device: Device
) -> tuple[float | None, str]:
    """Return the Unix time when the device was revoked, or when the carrier that relays its items
    was revoked. Also return the reason for the dead letter. If neither is revoked, return None and
    an empty text.
    """
    for each in (carrier, device):
        if each is not None and (at := find_revocation(db, each.id)) is not None:
            return at, (
                f"{each.name} is revoked since {format_clock_time(at)}: this may be from a thief;"
                f" accept it with `fieldagent hub device restore {each.id}`"
            )
    return None, ""
