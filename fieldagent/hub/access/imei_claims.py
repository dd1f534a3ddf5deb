"""Stores claims of an IMEI by two workspaces. The IMEI is contested until the operator of the hub
decides.

The first owner keeps receiving the modem's messages, because a claim must not cut off the kit of
another workspace. Both workspaces and the operator of the hub are notified.
"""

from __future__ import annotations

from fieldagent.hub.records.audit import AuditLine, write_lines
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple

CLAIMS = (
    "the IMEI of this device is also that of a device in another workspace: "
    "the operator of the hub decides"
)
IS_CLAIMED = "another workspace claims the IMEI of this device: the operator of the hub decides"
CONTESTED_TEXT = (
    f"CASE WHEN EXISTS (SELECT 1 FROM imei_claim c WHERE c.device = device.id) THEN '{CLAIMS}'"
    f" WHEN EXISTS (SELECT 1 FROM imei_claim c WHERE c.imei = device.imei) THEN '{IS_CLAIMED}'"
    " ELSE '' END"
)
"""SQL expression on a `device`: a text for its workspace about a contested IMEI, or an empty
text."""


class ImeiHolder(NamedTuple):
    device: int
    workspace: int


def find_holder(db: Db, imei: str, device: int = 0) -> ImeiHolder | None:
    """Return the device, other than `device`, that has the IMEI. Return None if no other device has
    the IMEI.
    """
    rows = db.execute("SELECT id, workspace FROM device WHERE imei = ? AND id <> ?", imei, device)
    return ImeiHolder(*rows[0]) if rows else None


def store_claim(db: Db, device: int, imei: str, *, now: float, actor: str) -> None:
    """Store the claim of the device's workspace. Record the claim in the audit logs of both
    workspaces.
    """
    db.execute(
        "INSERT INTO imei_claim (device, imei, at) VALUES (?, ?, ?)"
        " ON CONFLICT (device) DO UPDATE SET imei = excluded.imei, at = excluded.at",
        *(device, imei, now),
    )
    rows = db.execute("SELECT workspace FROM device WHERE id = ? OR imei = ?", device, imei)
    write_lines(
        db, [AuditLine(each, actor, "device imei contested", imei) for (each,) in rows], now
    )


def delete_claims(db: Db, imei: str) -> None:
    """Delete the claims of an IMEI. Called when the operator has assigned the IMEI."""
    db.execute("DELETE FROM imei_claim WHERE imei = ?", imei)


def list_claims(db: Db) -> list[dict[str, object]]:
    """Return each claim with the current owner of the IMEI, for the operator of the hub."""
    rows = db.execute(
        "SELECT c.imei, c.at, mine.id, mine.name, mine.workspace, theirs.id, theirs.name,"
        " theirs.workspace FROM imei_claim c JOIN device mine ON mine.id = c.device"
        " LEFT JOIN device theirs ON theirs.imei = c.imei ORDER BY c.at"
    )
    names = ("imei", "since", "claimedBy", "claimedByName", "claimedByWorkspace")
    held = ("held", "heldName", "heldWorkspace")
    return [dict(zip((*names, *held), row, strict=True)) for row in rows]
