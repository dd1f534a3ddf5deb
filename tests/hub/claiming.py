"""Claims webhook posts as a hub process does that has just started."""

from __future__ import annotations

from fieldagent.hub.store.contract import Db
from fieldagent.hub.webhook import deliveries
from fieldagent.hub.webhook.deliveries import PostResult, WebhookPost
from fieldagent.hub.webhook.flow import Flows
from fieldagent.webhook.delivery import HandoverResult


def claim(db: Db, now: float, *, desk: str = "") -> list[WebhookPost]:
    """Claim due posts once, as a hub process does, and return the posts of all lanes in one
    list.
    """
    return [post for run in claim_runs(db, now, desk=desk) for post in run]


def claim_runs(db: Db, now: float, *, desk: str = "") -> list[tuple[WebhookPost, ...]]:
    lanes, _ = Flows().choose(deliveries.list_oldest(db), now, {})
    return deliveries.claim(db, lanes, now, desk=desk)


def settle(db: Db, posting: WebhookPost, result: HandoverResult, now: float) -> str:
    (text,) = deliveries.record_results(db, [PostResult(posting, result, now)])
    return text
