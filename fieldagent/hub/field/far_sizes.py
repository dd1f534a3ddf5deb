"""Whether a push can reach kits by what their satellite modems take, told before it is entered.

A 9602 or 9603 takes 270 bytes in a message, a 9704 100 000. What is too large for each kit of the
addressee, and can reach it no other way, is refused with the reason.
"""

from __future__ import annotations

from fieldagent.hub.field.envelope_packing import Waiting
from fieldagent.hub.field.mobile_terminated import sizes
from fieldagent.hub.records.account import ACCOUNT, account_of
from fieldagent.hub.records.lease import IS_LINKED
from fieldagent.hub.store.contract import Db
from fieldagent.package.package import Data, Item
from fieldagent.package.picture import picture_type
from fieldagent.system.wording import counted
from fieldagent.wire.envelope import Entry
from fieldagent.wire.errors import LocalProtocolError

PICTURE_PARTS = 8
"""Messages that a picture may take: a hundred for one thumbnail is nobody's wish."""

_KITS = (
    f"SELECT {IS_LINKED}, contact.way, {ACCOUNT} FROM device LEFT JOIN contact"
    " ON contact.device = device.id WHERE device.workspace = ? AND device.member = ?"
    " AND device.disabled IS NULL"
)


def too_large(db: Db, workspace: int, target: int | None, item: Item, now: float) -> str:
    """Return why none of the addressee's kits can get it; empty where one may. `now`: Unix time."""
    if target is None or not isinstance(item, Data):
        return ""
    rows = db.execute(_KITS, now, workspace, target)
    told = ""
    for linked, way, *row in rows:
        account = account_of(row)
        if linked or way in ("ip", "sms") or account.device.imei is None:
            return ""
        try:
            parts = len(sizes(Waiting(0, 1, Entry(1, item)), [], account))
        except LocalProtocolError:
            parts = 0
        limit = PICTURE_PARTS if picture_type(item.payload) else None
        if parts and (limit is None or parts <= limit):
            return ""
        needs = counted(parts, "message") if parts else "more messages than may be"
        told = (
            f"{account.device.name} is reached by satellite alone, by a modem that takes"
            f" {account.mt_bytes} bytes in a message: these {len(item.payload)} bytes need {needs}."
            " Send fewer, or wait until it has a link"
        )
    return told
