"""Incidents that a kit names as open before any of their items has arrived.

The cause is a restored database, or items that are still under way. The hub notifies contacts and
the desk of the incident immediately. Webhooks need an item, so they get an item of the hub if no
item of the kit arrives soon.
"""

from __future__ import annotations

from fieldagent.hub.records import ledger
from fieldagent.hub.records.ledger import Posting
from fieldagent.hub.store.contract import Db, find_earliest
from fieldagent.package.package import SOS_PRIORITY, Message

ITEM_WAIT_S = 20.0
"""Seconds to wait for an item of the kit. Over IP, the item arrives with the next envelope."""
_FROM_WITHOUT_TEXT = (
    " FROM sos JOIN device ON device.id = sos.device WHERE item IS NULL AND state = 'open'"
)


def compute_next_due(db: Db) -> float:
    """Return the Unix time when the next incident has waited `ITEM_WAIT_S` for an item."""
    return find_earliest(db, f"SELECT min(raised + ?){_FROM_WITHOUT_TEXT}", ITEM_WAIT_S)


def add_own_items(db: Db, now: float) -> list[str]:
    """Add an item of the hub for each incident that has waited `ITEM_WAIT_S` for an item of its
    kit. Return the log lines.
    """
    rows = db.execute(
        f"SELECT sos.id, device.id, device.workspace, member, name{_FROM_WITHOUT_TEXT} AND raised"
        " + ? <= ?"
        f" ORDER BY sos.id{db.skip_locked('sos')}",
        *(ITEM_WAIT_S, now),
    )
    lines = []
    for incident, device, workspace, member, name in rows:
        text = f"{name} reports an open SOS, but its text has not arrived: ask it"
        posting = Posting(workspace, member, Message(text), int(now), SOS_PRIORITY, sos=True)
        ledger.post_text(db, posting, device, incident, now)
        lines.append(f"SOS {incident}: {text}")
    return lines
