"""Sets or corrects the IMEI of a device's modem, and assigns a contested IMEI."""

from __future__ import annotations

from fieldagent.hub.access import imei_claims
from fieldagent.hub.access.directory import audit_device, is_contested
from fieldagent.hub.operator.registry import DEFAULT
from fieldagent.hub.records import operator_trouble
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.store.contract import Db


def reassign_imei(db: Db, imei: str, device: int, *, now: float) -> None:
    """Assign an IMEI to `device` and take it from its current device. Called when the operator has
    decided.
    """
    if (holder := imei_claims.find_holder(db, imei, device)) is not None:
        db.execute("UPDATE device SET imei = NULL WHERE id = ?", holder.device)
        detail = f"{holder.device} taken away"
        write_line(db, holder.workspace, ADMINISTRATION, "device imei", detail, now)


def set_imei(db: Db, device: int, imei: str, *, now: float, actor: str = ADMINISTRATION) -> None:
    """Set or correct the IMEI of a device. If a device of another workspace has the IMEI, the IMEI
    becomes contested and is not set.
    """
    ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
    if is_contested(db, imei, workspace, device, actor=actor):
        imei_claims.store_claim(db, device, imei, now=now, actor=actor)
        return
    imei_claims.delete_claims(db, imei)
    db.execute("DELETE FROM imei_claim WHERE device = ?", device)
    db.execute(
        "UPDATE device SET imei = ?, operator = coalesce(operator, ?) WHERE id = ?",
        imei,
        DEFAULT,
        device,
    )
    operator_trouble.call_again(db, device)
    audit_device(db, device, actor, "device imei", f"{device} {imei}", now)
