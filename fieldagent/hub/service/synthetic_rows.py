"""Rows that synthetic items need in the store: a workspace with a user, a key, a token and a
webhook.

The hub processes of a database share these rows. The items themselves are deleted. Each function is
one operation for `Store.commit` or `read`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

from fieldagent.hub.access import secret
from fieldagent.hub.access.directory import SYNTHETIC, insert_row
from fieldagent.hub.records.audit import HUB, PUSH, write_line
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.webhook.signature import PREFIX

LEFT_OVER_AFTER_S = 600.0
"""Seconds after which an item is considered a leftover of a hub process that was killed."""

PUSHES_PER_MINUTE = 600
"""Largest number of pushes per minute. Each hub process makes one."""


class OwnRows(NamedTuple):
    """Rows that the items of this database use."""

    workspace: int
    member: int
    webhook: int
    secret: str
    """Signing secret of the synthetic webhook."""

    @property
    def key(self) -> str:
        """Return the API key of the synthetic user."""
        return self._compute_proof("key")

    @property
    def token(self) -> str:
        """Return the token of the synthetic user."""
        return self._compute_proof("token")

    def _compute_proof(self, prefix: str) -> str:
        # Derive the key and the token from the secret in the database, so that each hub process
        # knows them without a file.
        return (
            f"{prefix}_{hmac.digest(self.secret.encode(), prefix.encode(), hashlib.sha256).hex()}"
        )


class BegunItem(NamedTuple):
    own: OwnRows
    line: int
    """Id of the last audit line before the item was pushed."""


class PostState(NamedTuple):
    """State of an item's delivery to the webhook."""

    state: str
    attempts: int
    claimed_until: float
    reason: str


def begin_item(db: Db, url: str, now: float) -> BegunItem | None:
    """Create missing rows and begin an item. Return None if some of the rows were deleted."""
    own = _find_own(db) or _make(db, url, now) or _find_own(db)
    if own is None:
        return None
    # An outage must not disable this webhook permanently.
    db.execute(
        "UPDATE webhook SET disabled = NULL, failing_since = NULL, reason = '' WHERE id = ?"
        " AND disabled IS NOT NULL",
        own.webhook,
    )
    ((line,),) = db.execute("SELECT coalesce(max(id), 0) FROM audit")
    return BegunItem(own, line)


def _find_own(db: Db) -> OwnRows | None:
    rows = db.execute(
        "SELECT workspace.id, member, webhook.id, secrets FROM workspace"
        " JOIN membership ON membership.workspace = workspace.id"
        " JOIN webhook ON webhook.workspace = workspace.id WHERE workspace.name = ?"
        " ORDER BY member, webhook.id LIMIT 1",
        SYNTHETIC,
    )
    return OwnRows(*rows[0]) if rows else None


def _make(db: Db, url: str, now: float) -> OwnRows | None:
    """Create the rows. Return None if another hub process has just created them."""
    new_rows = db.execute(
        "INSERT INTO workspace (name, created) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
        " RETURNING id",
        *(SYNTHETIC, now),
    )
    if not new_rows:
        return None
    workspace = new_rows[0][0]
    signing = f"{PREFIX}{base64.b64encode(secrets.token_bytes(32)).decode()}"
    member = insert_row(db, "member", type="Integration", name=SYNTHETIC, created=now)
    db.execute("INSERT INTO membership (workspace, member) VALUES (?, ?)", workspace, member)
    webhook = insert_row(db, "webhook", workspace=workspace, url=url, secrets=signing, created=now)
    own = OwnRows(workspace, member, webhook, signing)
    for kind, proof, columns in (
        (
            "key",
            own.key,
            {"workspace": workspace, "scopes": "message", "per_minute": PUSHES_PER_MINUTE},
        ),
        ("token", own.token, {"member": member}),
    ):
        lookup = secret.hash_for_lookup(proof)
        insert_row(
            db, "credential", kind=kind, name=SYNTHETIC, lookup=lookup, created=now, **columns
        )
    write_line(db, workspace, HUB, "workspace add", f"{workspace} {SYNTHETIC}", now)
    return own


def add_delivery(db: Db, own_rows: OwnRows, request_id: str, now: float) -> bool:
    """Create the delivery of the item to the webhook, as for items of kits. Return False if there
    is no such item.
    """
    rows = db.execute(
        "INSERT INTO webhook_delivery (webhook, item, sender, state, not_before)"
        " SELECT ?, id, sender, 'waiting', ? FROM item WHERE request_id = ? AND workspace = ?"
        " RETURNING item",
        *(own_rows.webhook, now, request_id, own_rows.workspace),
    )
    db.announce("webhooks")
    return bool(rows)


def read_post_state(db: Db, own_rows: OwnRows, request_id: str) -> PostState | None:
    """Return the state of the item's delivery to the synthetic webhook, or None if there is no such
    delivery.
    """
    rows = db.execute(
        "SELECT state, attempts, claimed_until, reason FROM webhook_delivery WHERE webhook = ?"
        " AND item = (SELECT id FROM item WHERE request_id = ?)",
        *(own_rows.webhook, request_id),
    )
    return PostState(*rows[0]) if rows else None


def delete_item(db: Db, begun: BegunItem, request_id: str, now: float) -> None:
    """Delete the item and its audit line. Also delete leftovers of hub processes that were
    killed.
    """
    workspace = begun.own.workspace
    db.execute(
        "DELETE FROM item WHERE workspace = ? AND (request_id = ? OR accepted < ?)",
        *(workspace, request_id, now - LEFT_OVER_AFTER_S),
    )
    db.execute(
        f"DELETE FROM audit WHERE id > ? AND workspace = ? AND action = '{PUSH}'",
        *(begun.line, workspace),
    )
