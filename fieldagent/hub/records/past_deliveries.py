"""Times from the acceptance of past items until a kit stored them."""

from __future__ import annotations

from fieldagent.hub.store.contract import Db
from fieldagent.package.forecast import PastDelivery


def list_past_deliveries(db: Db, device: int, limit: int) -> list[PastDelivery]:
    """Return the delivery times of the newest items for a device, newest first. SOS items are not
    included, because they overtake other items.
    """
    rows = db.execute(
        "SELECT item.accepted, delivery.ended, delivery.state FROM delivery"
        " JOIN item ON item.id = delivery.item WHERE delivery.device = ? AND item.sos = 0"
        " ORDER BY delivery.sequence DESC LIMIT ?",
        device,
        limit,
    )
    return [
        PastDelivery(accepted, ended_at, state == "stored") for accepted, ended_at, state in rows
    ]
