"""Daily limits of the hub's messages to telephones and email addresses, and of tests of webhooks.

Each SMS and email costs the operator of the hub money, and each test calls a third party's server.
Alarms have no daily limit, because `tries` limits the number of messages of an alarm to each
contact.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fieldagent.hub.store.contract import Db
from fieldagent.system.wording import sentence

DAY_S = 86_400.0
WORKSPACE_PER_DAY_MAX = 500
"""Daily limit of a workspace for tests, letters and replies together. Tests of webhooks have a
separate limit of the same size."""
TEST, LETTER, REPLY, WEBHOOK = "test", "letter", "reply", "webhook"
ADDRESS_PER_DAY_MAX = {TEST: 10, LETTER: 50, REPLY: 50, WEBHOOK: 50}
"""Largest number of messages of a workspace to one address in a day, by kind. The address of a
webhook is its host."""

ALL_WORKSPACES_FACTOR = 3
"""Limit of all workspaces together to one address, as a multiple of one workspace's limit. Webhooks
do not have this limit, because many workspaces can use the same host."""


def record_message_or_refuse(db: Db, workspace: int, address: str, kind: str, now: float) -> str:
    """Record one message to an address and return an empty string. If a daily limit is reached,
    record nothing and return the reason.
    """
    db.execute("DELETE FROM sending WHERE at <= ?", now - DAY_S)
    ((to_it, of_it),) = db.execute(
        "SELECT count(CASE WHEN address = ? AND what = ? THEN 1 END), count(*) FROM sending"
        " WHERE workspace = ? AND (what = 'webhook') = (? = 'webhook')",
        *(address, kind, workspace, kind),
    )
    daily_limit = ADDRESS_PER_DAY_MAX[kind]
    if to_it >= daily_limit:
        return sentence(
            "the limit of {n} messages a day to one address is reached: try tomorrow", n=daily_limit
        )
    if of_it >= WORKSPACE_PER_DAY_MAX:
        return sentence(
            "the limit of {n} messages a day per workspace is reached: try tomorrow",
            n=WORKSPACE_PER_DAY_MAX,
        )
    if (
        kind != WEBHOOK
        and _count_sent_by_all(db, address, kind) >= ALL_WORKSPACES_FACTOR * daily_limit
    ):
        return sentence(
            "the limit of {n} messages a day to one address, from all workspaces, is reached: try"
            " tomorrow",
            n=ALL_WORKSPACES_FACTOR * daily_limit,
        )
    db.execute(
        "INSERT INTO sending (workspace, address, what, at) VALUES (?, ?, ?, ?)",
        *(workspace, address, kind, now),
    )
    return ""


def record_webhook_test(db: Db, workspace: int, url: str, now: float) -> str:
    """Record a test of a webhook and return an empty string. If a daily limit is reached, record
    nothing and return the reason.
    """
    return record_message_or_refuse(db, workspace, urlsplit(url).hostname or "", WEBHOOK, now)


def _count_sent_by_all(db: Db, address: str, what: str) -> int:
    """Return the number of messages of a kind to one address, from all workspaces."""
    ((count,),) = db.execute(
        "SELECT count(*) FROM sending WHERE address = ? AND what = ?", address, what
    )
    return int(count)
