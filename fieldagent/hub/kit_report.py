"""What kits tell of themselves over their links: how their last update ended."""

from __future__ import annotations

from fieldagent.hub.store.contract import Db
from fieldagent.wire.kit_note import KitReport


def note(db: Db, device: int, report: KitReport) -> None:
    """Of a device that was heard of (`contact.note`)."""
    if report.update is not None:
        db.execute(
            "UPDATE contact SET last_update = ? WHERE device = ?", str(report.update), device
        )
