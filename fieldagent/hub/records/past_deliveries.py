"""How long what was for a kit took to get to its disk."""

from __future__ import annotations

from fieldagent.hub.store.contract import Db
from fieldagent.package.forecast import PastLeg


def past_deliveries(db: Db, device: int, limit: int) -> list[PastLeg]:
    """Return how the newest items for that device went, the newest first: not an SOS, which goes
    before them all."""
    rows = db.execute(
        "SELECT item.accepted, delivery.ended, delivery.state FROM delivery"
        " JOIN item ON item.id = delivery.item WHERE delivery.device = ? AND item.sos = 0"
        " ORDER BY delivery.sequence DESC LIMIT ?",
        device,
        limit,
    )
    return [PastLeg(accepted, ended, state == "stored") for accepted, ended, state in rows]
