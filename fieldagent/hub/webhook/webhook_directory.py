"""Webhooks of a workspace, with the fields of their database rows, and their dead letters.

Each function on a database is one operation for `Store.commit`, `read` or `once`. The functions
raise Refused with the reason.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.records.stored_entry import load_stored_object
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.properties import WrongProperty
from fieldagent.system.properties import read_url as read_url
from fieldagent.system.wording import sentence
from fieldagent.webhook.signature import PREFIX, read_secrets


@dataclass(frozen=True, slots=True)
class Webhook:
    id: int
    url: str
    secrets: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    failing_since: float | None = None
    after: int = 0
    """Minutes after which the hub sends an unanswered SOS to this webhook, which then gets nothing
    else. If 0, the webhook gets all items immediately."""

    batch: int = 0
    """Largest number of items in one request, whose body is then an array. If 0, each item is a
    separate request."""
    steps: bool = False
    """True if the webhook also gets the delivery steps of items."""

    def get_name(self) -> str:
        """Return the id and the host of the webhook, as a name for people."""
        return f"webhook {self.id} ({urlsplit(self.url).hostname})"

    def get_extra_headers(self) -> tuple[tuple[str, str], ...]:
        """Return the additional headers of each request."""
        extra = tuple(self.headers.items())
        if self.username is None:
            return extra
        pair = base64.b64encode(f"{self.username}:{self.password or ''}".encode()).decode()
        return (*extra, ("Authorization", f"Basic {pair}"))


COLUMNS = (
    "webhook.id, url, secrets, username, webhook.password, headers, failing_since, after,"
    " webhook.batch, webhook.steps"
)


def read_webhook(row: Sequence[Any]) -> Webhook:
    """Return the webhook that a database row contains. The row has the columns of `COLUMNS`."""
    id_, url, secrets, username, password, headers, failing_since, after, batch, steps = row
    return Webhook(
        id_,
        url,
        tuple(secrets.split()),
        username,
        password,
        load_stored_object(headers, f"the headers of webhook {id_}"),
        failing_since,
        after,
        batch,
        bool(steps),
    )


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")
"""Value of a header (RFC 9110, sections 5.1 and 5.5), in ASCII."""
_VISIBLE = re.compile(r"[!-~]+")
_OWN_HEADERS = {
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
}


AFTER_MAX = 10_080
"""Largest value of `after` in minutes: one week."""
BATCH_MAX = 100
"""Largest number of items in one array."""


def make_webhook(
    url: str,
    secret: str = "",
    *,
    unsigned: bool = False,
    username: str | None = None,
    password: str | None = None,
    headers: Mapping[str, str] = {},
    after: int = 0,
    batch: int = 0,
    steps: bool = False,
) -> Webhook:
    """Return a new webhook that can be tested and added. If `secret` is empty, the webhook gets a
    new secret. Raises WrongProperty if one of the arguments is invalid.
    """
    checked_url = read_url(url)
    if not _VISIBLE.fullmatch(checked_url) or urlsplit(checked_url).username is not None:
        raise WrongProperty("must be a URL of visible ASCII, without a user or password in it")
    if after and steps:
        raise WrongProperty(
            "cannot be both for unanswered SOS only and for each item's steps: add two webhooks"
        )
    signing = () if unsigned and not secret.strip() else read_or_make_secrets(secret)
    return Webhook(0, checked_url, signing, username, password, headers, None, after, batch, steps)


def read_or_make_secrets(text: str = "") -> tuple[str, ...]:
    """Return the secrets in `text`, or a new secret if `text` is empty. Raises WrongProperty if a
    secret is invalid.
    """
    new_secret = f"{PREFIX}{base64.b64encode(secrets.token_bytes(32)).decode()}"
    return read_secrets(text) or (new_secret,)


def add_webhook(
    db: Db, workspace: int, webhook: Webhook, *, now: float, actor: str = ADMINISTRATION
) -> int:
    """Add a webhook and return its id. `webhook.id` is ignored. Raises Refused if a header is
    invalid.
    """
    for name, value in webhook.headers.items():
        can_be = _NAME.fullmatch(name) and _VALUE.fullmatch(value)
        if not can_be or name.lower() in _OWN_HEADERS:
            raise Refused(
                sentence(
                    "{name} cannot be a custom header: {value}",
                    name=repr(name),
                    value=repr(value),
                )
            )
    ((id_,),) = db.execute(
        "INSERT INTO webhook (workspace, url, secrets, username, password, headers, created, after,"
        " batch, steps) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id",
        workspace,
        webhook.url,
        " ".join(webhook.secrets),
        webhook.username,
        webhook.password,
        json.dumps(dict(webhook.headers)),
        now,
        webhook.after,
        webhook.batch,
        int(webhook.steps),
    )
    write_line(db, workspace, actor, "webhook add", f"{id_} {webhook.url}", now)
    return int(id_)


def find_webhook(db: Db, workspace: int, webhook: int) -> Webhook:
    """Return a webhook by its id. Raises Refused if the workspace does not have this webhook."""
    rows = db.execute(
        f"SELECT {COLUMNS} FROM webhook WHERE id = ? AND workspace = ?", webhook, workspace
    )
    _check_one(rows, webhook)
    return read_webhook(rows[0])


def list_webhooks(db: Db, workspace: int) -> list[Row]:
    """Return the webhooks of a workspace in the order of their ids, without secrets. Each has the
    numbers of its waiting and dead requests.
    """
    names = (
        *("id", "url", "signed", "steps", "after", "batch", "failingSince"),
        *("disabled", "reason", "waiting", "dead"),
    )
    rows = db.execute(
        "SELECT id, url, secrets, steps, after, batch, failing_since, disabled, reason,"
        " (SELECT count(*) FROM webhook_delivery WHERE webhook = webhook.id AND state = 'waiting'),"
        " (SELECT count(*) FROM webhook_delivery WHERE webhook = webhook.id AND state = 'dead')"
        " FROM webhook WHERE workspace = ? ORDER BY id",
        workspace,
    )
    return [
        dict(zip(names, (id_, url, bool(signed), bool(steps), *rest), strict=True))
        for id_, url, signed, steps, *rest in rows
    ]


def enable_webhook(
    db: Db, workspace: int, webhook: int, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Enable a webhook, and make its failed requests due now. Raises Refused if the workspace does
    not have the webhook.
    """
    _check_one(
        db.execute(
            "UPDATE webhook SET disabled = NULL, failing_since = NULL, quiet_until = 0,"
            " reason = ''"
            " WHERE id = ? AND workspace = ? RETURNING id",
            webhook,
            workspace,
        ),
        webhook,
    )
    db.execute(
        # Requests that were never tried are not delayed. Escalations are an exception, because they
        # wait until they are due.
        "UPDATE webhook_delivery SET not_before = 0, attempts = 0 WHERE webhook = ?"
        " AND state = 'waiting' AND attempts > 0",
        webhook,
    )
    write_line(db, workspace, actor, "webhook enable", str(webhook), now)
    db.announce("webhooks")


def sign_with(
    db: Db,
    workspace: int,
    webhook: int,
    signing: tuple[str, ...],
    *,
    only: bool = False,
    now: float,
    actor: str = ADMINISTRATION,
) -> None:
    """Sign all requests from now on with the secrets `signing`, including waiting requests. The
    newest previous secret also signs until the next change, so that the receiver can change its
    secret at any time. If `only` is True, the previous secret does not sign. Raises Refused if the
    workspace does not have the webhook.
    """
    before = find_webhook(db, workspace, webhook).secrets
    kept_secrets = () if only else tuple(each for each in before[:1] if each not in signing)
    text = " ".join((*signing, *kept_secrets))
    db.execute("UPDATE webhook SET secrets = ? WHERE id = ?", text, webhook)
    write_line(db, workspace, actor, "webhook secret", str(webhook), now)


def remove_webhook(
    db: Db, workspace: int, webhook: int, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Remove a webhook and its waiting requests."""
    delete_query = "DELETE FROM webhook WHERE id = ? AND workspace = ? RETURNING id"
    _check_one(db.execute(delete_query, webhook, workspace), webhook)
    write_line(db, workspace, actor, "webhook remove", str(webhook), now)


ITEM_ID_END = 2**63 - 1
"""Number that is greater than the id of any item."""
_OF_WORKSPACE = "SELECT id FROM webhook WHERE workspace = ?"


def list_dead_letters(
    db: Db, workspace: int, before: int = ITEM_ID_END, limit: int = ITEM_ID_END
) -> tuple[list[Row], int | None]:
    """Return a page of dead requests for items with ids below `before`, newest first. Also return
    the item before which the next page begins, or None. A page contains `limit` requests and all
    other requests of its last item.
    """
    letters: list[tuple[int, Row]] = []
    names = ("webhook", "requestId", "accepted", "attempts", "reason")
    # Read one webhook at a time, because the dead requests of each webhook are a separate range of
    # the index.
    for (webhook,) in db.execute(_OF_WORKSPACE, workspace):
        rows = db.execute(
            "SELECT d.item, d.webhook, request_id, accepted, attempts, d.reason"
            " FROM webhook_delivery d JOIN item ON item.id = d.item"
            " WHERE d.state = 'dead' AND d.webhook = ? AND d.item < ?"
            " ORDER BY d.item DESC LIMIT ?",
            *(webhook, before, min(limit, ITEM_ID_END - 1) + 1),
        )
        letters += [(item, dict(zip(names, row, strict=True))) for item, *row in rows]
    letters.sort(key=lambda each: (-each[0], each[1]["webhook"]))
    if len(letters) <= limit:
        return [row for _, row in letters], None
    last = letters[limit - 1][0]
    shown_letters = [row for item, row in letters if item >= last]
    return shown_letters, last if len(shown_letters) < len(letters) else None


def replay_dead_letters(
    db: Db, workspace: int, request_id: str | None, *, now: float, actor: str = ADMINISTRATION
) -> int:
    """Send the dead letters of an item again, or all dead letters if `request_id` is None. Return
    the number of requests. Raises Refused if there are none.
    """
    one_item = (
        "" if request_id is None else " AND item = (SELECT id FROM item WHERE request_id = ?)"
    )
    rows = db.execute(
        "UPDATE webhook_delivery SET state = 'waiting', attempts = 0, not_before = 0"
        f" WHERE state = 'dead' AND webhook IN ({_OF_WORKSPACE}){one_item} RETURNING item",
        workspace,
        *([] if request_id is None else [request_id]),
    )
    if not rows:
        raise Refused("no such dead letter; see `fieldagent hub webhook dead`")
    write_line(db, workspace, actor, "webhook replay", f"{len(rows)} deliveries", now)
    db.announce("webhooks")
    return len(rows)


def _check_one(rows: Sequence[Any], webhook: int) -> None:
    if not rows:
        raise Refused(
            sentence(
                "no webhook {webhook} is in that workspace; see `fieldagent hub webhook list`",
                webhook=webhook,
            )
        )
