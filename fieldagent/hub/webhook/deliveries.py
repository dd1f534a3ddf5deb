"""Deliveries to webhooks in the store: find due deliveries, claim them for one process, and record
the results.

A claim contains the items of one kit for one webhook, oldest first (`flow.Lane`). So no other
process sends any of these items at the same time (`records.claims`).
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from fieldagent.hub.api.sos_desk import describe_for_pager, record_webhook_post
from fieldagent.hub.api.standing import list_reached
from fieldagent.hub.field.envelope_packing import read_identity
from fieldagent.hub.part import make_answer_link
from fieldagent.hub.records import alarm
from fieldagent.hub.records.audit import HUB, write_line
from fieldagent.hub.records.stored_entry import decode_stored_entry, parse_stored_object
from fieldagent.hub.store.contract import Db, make_marks, make_membership
from fieldagent.hub.webhook.flow import Lane
from fieldagent.hub.webhook.webhook_directory import COLUMNS, Webhook, read_webhook
from fieldagent.package.package import Item, get_date
from fieldagent.package.payload import (
    Identity,
    encode_event,
    encode_payload,
    make_estimated_position,
)
from fieldagent.package.writing import format_timestamp
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.webhook.post import DEADLINE_S
from fieldagent.webhook.schedule import RETRY_AFTER_MAX_S, SCHEDULE, SOS_SCHEDULE, compute_delay

CLAIM_S = 3 * DEADLINE_S
"""Seconds after which a request without a result is repeated."""
RUN_POSTS_MAX = 100
"""Largest number of requests in a run."""
RUN_BATCHES_MAX = 10
"""Largest number of batches in a run. The number is greater than 1, because each claim waits for a
commit and each kit has only one run at a time."""
RUN_BYTES = 1_000_000
"""Largest size of the stored items in one run, in bytes."""
DISABLE_AFTER_S = 5 * 86_400.0
"""Seconds without a success after which a webhook is disabled."""
TRIES_MIN = 4
"""Smallest number of failed attempts for one item before a webhook is disabled. There may have been
few attempts because no items arrived or the hub was off, and one failed request proves little."""


@dataclass(frozen=True, slots=True)
class WebhookPost:
    """A request that this process may send to a webhook now: one item, or a batch."""

    webhook: Webhook
    items: tuple[int, ...]
    delivery: Delivery
    """The delivery. For a batch, its body is the array."""
    claimed_until: float
    """Unix time when the claim ends. The process recognises its own claim by this value."""
    raises: bool
    """True if the item raises an incident. The timeline of the incident then shows which webhooks
    have accepted the item."""
    is_early: bool
    """True for a request that probes a webhook before the request is due. Such a probe does not
    count as an attempt."""


class PostResult(NamedTuple):
    """Result of a webhook request, and its consequences."""

    post: WebhookPost
    result: HandoverResult
    now: float
    not_made: Sequence[WebhookPost] = ()
    """Requests of the same claim that are not sent now."""
    is_recovered: bool = False
    """True if the webhook was down before this success. All requests that wait for their next
    attempt then become due."""


_SELECT_FIRST = (
    "WITH RECURSIVE whose (webhook, sender) AS (SELECT id, (SELECT min(d.sender)"
    " FROM webhook_delivery d WHERE d.webhook = webhook.id AND d.state = 'waiting')"
    " FROM webhook WHERE disabled IS NULL UNION ALL SELECT webhook, (SELECT min(d.sender)"
    " FROM webhook_delivery d WHERE d.webhook = whose.webhook AND d.state = 'waiting'"
    " AND d.sender > whose.sender) FROM whose WHERE sender IS NOT NULL),"
    # MATERIALIZED is necessary, because SQLite after 3.40 would otherwise repeat the search for
    # each waiting row.
    " first (webhook, item) AS MATERIALIZED (SELECT webhook, (SELECT min(d.item)"
    " FROM webhook_delivery d WHERE d.webhook = whose.webhook AND d.sender = whose.sender"
    " AND d.state = 'waiting') FROM whose WHERE sender IS NOT NULL)"
    " SELECT d.webhook, d.item, d.sender, d.not_before, d.claimed_until, d.attempts FROM first"
    " CROSS JOIN webhook_delivery d WHERE d.webhook = first.webhook AND d.item = first.item"
    " ORDER BY d.sender >= 0, d.item"
)
"""SQL: the oldest waiting item of each kit and webhook. Each SOS has its own `sender` number and
comes first. The query skips the items behind the first item by jumping along the index, because a
webhook that was down for days has many such items."""


def list_oldest(db: Db) -> list[Lane]:
    """Return the oldest waiting delivery of each kit and webhook. SOS items come first."""
    return [Lane(*row) for row in db.execute(_SELECT_FIRST)]


def list_failing(db: Db) -> dict[int, float]:
    """Return the webhooks that have had no success since their last failure. Each is mapped to the
    Unix time until which it wants no requests.
    """
    rows = db.execute(
        "SELECT id, quiet_until FROM webhook WHERE failing_since IS NOT NULL AND disabled IS NULL"
    )
    return dict(rows)


def claim(
    db: Db, lanes: Iterable[Lane], now: float, *, desk: str = ""
) -> list[tuple[WebhookPost, ...]]:
    """Claim the run of each lane and return the runs. Skip a lane that another process has claimed
    meanwhile. `desk` is the console's address, which receivers of an SOS get.
    """
    runs: list[tuple[WebhookPost, ...]] = []
    by_webhook: dict[int, list[Lane]] = {}
    for lane in lanes:
        by_webhook.setdefault(lane.webhook, []).append(lane)
    for id_, own in by_webhook.items():
        sql = f"SELECT {COLUMNS} FROM webhook WHERE id = ? AND disabled IS NULL"
        for row in db.execute(sql, id_):
            runs += _list_runs(db, read_webhook(row), own, now, desk)
    return runs


def _list_runs(
    db: Db, webhook: Webhook, lanes: Sequence[Lane], now: float, desk: str
) -> list[tuple[WebhookPost, ...]]:
    runs, early = _choose_batches(db, webhook, lanes, now)
    if not runs:
        return []
    items = [item for run in runs for batch in run for item in batch]
    posts = _claim_posts(db, webhook, items, early, now, desk)
    # Items behind the locked oldest item may have been deleted meanwhile.
    post_runs = [
        [[posts[item] for item in batch if item in posts] for batch in batches] for batches in runs
    ]
    if webhook.batch:
        return [tuple(_combine(batch) for batch in run if batch) for run in post_runs]
    return [tuple(post for batch in run for post in batch) for run in post_runs]


def _choose_batches(
    db: Db, webhook: Webhook, lanes: Sequence[Lane], now: float
) -> tuple[list[list[list[int]]], set[int]]:
    """Lock the oldest item of each lane. Return the items of each lane in batches, and the items
    that are not due yet, whose requests probe the webhook.
    """
    membership, items = make_membership(db, [lane.item for lane in lanes])
    # The process that locks the oldest item claims the lane.
    heads = db.execute(
        f"SELECT item, sender, batch, not_before FROM webhook_delivery WHERE webhook = ?"
        f" AND item {membership} AND state = 'waiting' AND claimed_until <= ?"
        f" ORDER BY sender >= 0, item{db.skip_locked()}",
        webhook.id,
        *items,
        now,
    )
    runs: list[list[list[int]]] = []
    early: set[int] = set()
    for first_item, sender, number, not_before in heads:
        members = _list_members(db, webhook, first_item, sender, number, now)
        # A batch that was tried before is repeated unchanged and without other items.
        size = webhook.batch if not number else 0
        batches = (
            [members[at : at + size] for at in range(0, len(members), size)] if size else [members]
        )
        for batch in batches if size else ():
            db.execute(
                f"UPDATE webhook_delivery SET batch = ? WHERE webhook = ?"
                f" AND item IN ({make_marks(batch)})",
                *(batch[0], webhook.id, *batch),
            )
        runs.append(batches)
        if not_before > now:
            early.update(members)
    return runs, early


def _claim_posts(
    db: Db, webhook: Webhook, items: Sequence[int], early: set[int], now: float, desk: str
) -> dict[int, WebhookPost]:
    """Claim the items for this process, and return the request of each item."""
    membership, parameters = make_membership(db, items)
    db.execute(
        "UPDATE webhook_delivery SET claimed_until = ?, claimed_by = ?,"
        " telling = CASE WHEN told < 0 THEN 0 ELSE steps END WHERE webhook = ?"
        f" AND item {membership}",
        *(now + CLAIM_S, db.worker, webhook.id, *parameters),
    )
    rows = db.execute(
        "SELECT item.id, item.request_id, item.sender, item.workspace, item.body, item.accepted,"
        " item.addressee, item.estimate, item.unauthenticated, item.revoked,"
        " (SELECT kind FROM sos WHERE sos.item = d.item),"
        " item.incident, d.telling, d.attempts FROM webhook_delivery d"
        f" JOIN item ON item.id = d.item WHERE d.webhook = ? AND d.item {membership}",
        webhook.id,
        *parameters,
    )
    steps = list_reached(db, [item for item, *_, notification, _ in rows if notification])
    writer = _Writer(db, webhook, now, desk, early, steps)
    return {row[0]: writer.post(row) for row in rows}


def _list_members(
    db: Db, webhook: Webhook, head: int, sender: int, batch: int, now: float
) -> list[int]:
    """Return the items that are sent together with the oldest item of a lane, in their order. These
    are the other items of its earlier batch, or the items that wait behind it. They can fill
    several batches.
    """
    rows = db.execute(
        "SELECT d.item, d.batch, d.not_before, d.claimed_until, length(item.body)"
        " FROM webhook_delivery d JOIN item ON item.id = d.item WHERE d.webhook = ?"
        " AND d.sender = ? AND d.state = 'waiting' AND d.item >= ? ORDER BY d.item LIMIT ?",
        *(webhook.id, sender, head, webhook.batch * RUN_BATCHES_MAX or RUN_POSTS_MAX),
    )
    members: list[int] = []
    size = 0
    for item, of, not_before, claimed_until, length in rows:
        size += length
        is_same_batch = batch and of == batch
        is_single = not batch and not of and not_before <= now and size <= RUN_BYTES
        if item != head and (claimed_until > now or not (is_same_batch or is_single)):
            break
        members.append(item)
    return members


def _combine(run: Sequence[WebhookPost]) -> WebhookPost:
    """Combine the requests of a run into one request. A repeat with the same items has the same
    id.
    """
    first = run[0]
    ids = [each.delivery.request_id for each in run]
    id_ = ids[0] if len(ids) == 1 else str(uuid.uuid5(uuid.UUID(ids[0]), " ".join(ids)))
    body = f"[{','.join(each.delivery.body for each in run)}]"
    combined = first.delivery
    return WebhookPost(
        first.webhook,
        tuple(item for each in run for item in each.items),
        Delivery(id_, combined.lane, body, combined.received, combined.attempts),
        first.claimed_until,
        first.raises,
        first.is_early,
    )


class _Writer:
    """Builds the requests for a webhook."""

    def __init__(
        self,
        db: Db,
        webhook: Webhook,
        now: float,
        desk: str,
        early: set[int],
        steps: Mapping[int, list[dict[str, Any]]],
    ) -> None:
        self._db = db
        self._webhook = webhook
        self._now = now
        self._desk = desk
        self._early = early
        self._steps = steps
        self._identities: dict[tuple[int, int], Identity] = {}

    def post(self, row: Sequence[Any]) -> WebhookPost:
        item, request_id, sender, workspace, body, accepted, addressee, *rest = row
        estimate, unproved, revoked, raises, incident, notification, attempts = rest
        db, webhook, link = self._db, self._webhook, ""
        if notification:
            identity = self._find_identity(sender, workspace)
            return self._write_step(item, request_id, identity, accepted, notification, attempts)
        if raises or webhook.after:
            own_id = str(uuid.uuid5(uuid.UUID(request_id), f"webhook {webhook.id}"))
            if raises and incident is not None:
                link = make_answer_link(db, incident, webhook.get_name(), own_id, self._now)
            if webhook.after:
                # An escalation needs a separate id, because a pager treats equal ids as one alert.
                request_id = own_id
        entry = decode_stored_entry(body)
        content = entry.content
        assert isinstance(content, Item), "the ledger holds items alone"
        moment = get_date(content, entry.time)
        extra: dict[str, Any] = {}
        if (estimate_seen := parse_stored_object(estimate, make_estimated_position)) is not None:
            extra["estimatedPosition"] = estimate_seen
        if unproved:
            extra["unauthenticated"] = True
        if revoked is not None:
            extra["revokedSince"] = format_timestamp(datetime.fromtimestamp(revoked, UTC))
        if (addressee_object := parse_stored_object(addressee, dict[str, Any])) is not None:
            extra["to"] = addressee_object
        if entry.wants_receipt:
            extra["receipt"] = "read"
        if raises and raises != "sos":
            extra[raises] = True
        if (
            incident is not None
            and not entry.sos
            and (kind := _find_alarm_kind(db, item, incident))
        ):
            extra["alarm"] = kind
        if incident is not None:
            extra["incident"] = describe_for_pager(db, incident, self._desk, link)
        identity = self._find_identity(sender, workspace)
        text = encode_payload(request_id, identity, content, moment, sos=entry.sos, extra=extra)
        delivery = Delivery(request_id, str(sender), text, accepted, attempts)
        claimed_until, early = self._now + CLAIM_S, item in self._early
        return WebhookPost(webhook, (item,), delivery, claimed_until, bool(raises), early)

    def _write_step(
        self,
        item: int,
        request_id: str,
        identity: Identity,
        accepted: float,
        notification: int,
        tries: int,
    ) -> WebhookPost:
        """Build the request with an item's delivery steps. Its event refers to the item by id."""
        steps = self._steps[item]
        at = max((step["at"] for step in steps), default=accepted)
        event = {
            "type": "Reached",
            "timestamp": format_timestamp(datetime.fromtimestamp(at, UTC)),
            "reached": steps,
        }
        own_id = str(uuid.uuid5(uuid.UUID(request_id), f"reached {notification}"))
        text = encode_event(request_id, identity, event)
        delivery = Delivery(own_id, identity.id, text, accepted, tries)
        return WebhookPost(
            self._webhook, (item,), delivery, self._now + CLAIM_S, False, item in self._early
        )

    def _find_identity(self, sender: int, workspace: int) -> Identity:
        if (sender, workspace) not in self._identities:
            self._identities[sender, workspace] = read_identity(self._db, sender, workspace)
        return self._identities[sender, workspace]


def record_results(db: Db, ends: Sequence[PostResult]) -> list[str]:
    """Record the results of webhook requests. Return for each a log line, or an empty string.

    If this process's claim has expired, the result is ignored, because another process has the
    claim now.
    """
    taken_ends = [end for end in ends if end.result.outcome is HandoverOutcome.HANDED]
    for (webhook, claimed_until), same_claim in groupby(
        sorted(taken_ends, key=_claim_of), _claim_of
    ):
        _record_handovers(db, webhook, claimed_until, [*same_claim])
    return [
        "" if end.result.outcome is HandoverOutcome.HANDED else _record_failure(db, end)
        for end in ends
    ]


def _claim_of(result: PostResult) -> tuple[int, float]:
    return result.post.webhook.id, result.post.claimed_until


def _record_handovers(
    db: Db, webhook: int, claimed_until: float, ends: Sequence[PostResult]
) -> None:
    membership, items = make_membership(db, [item for end in ends for item in end.post.items])
    now = ends[0].now
    rows = db.execute(
        # A step that arrived meanwhile needs a separate request.
        "UPDATE webhook_delivery SET told = telling, batch = CASE WHEN steps > telling THEN 0"
        " ELSE batch END, state = CASE WHEN steps > telling THEN 'waiting' ELSE 'handed' END,"
        " attempts = CASE WHEN steps > telling THEN 0 ELSE attempts + 1 END,"
        " not_before = CASE WHEN steps > telling THEN 0 ELSE ? END,"
        f" claimed_until = 0, reason = '' WHERE webhook = ? AND item {membership}"
        " AND state = 'waiting' AND claimed_until = ? RETURNING item",
        *(now, webhook, *items, claimed_until),
    )
    if not rows:
        return
    noted = {item for (item,) in rows}
    for end in ends:
        if end.post.raises and noted.intersection(end.post.items):
            record_webhook_post(db, end.post.items[0], webhook, end.now)
    db.execute(
        "UPDATE webhook SET failing_since = NULL, quiet_until = 0, reason = CASE"
        " WHEN disabled IS NULL THEN '' ELSE reason END WHERE id = ? AND failing_since IS NOT NULL",
        webhook,
    )
    if any(end.is_recovered for end in ends):
        # Requests that were never tried are not delayed. Escalations are an exception, because they
        # wait until they are due.
        db.execute(
            "UPDATE webhook_delivery SET not_before = 0 WHERE webhook = ? AND state = 'waiting'"
            " AND attempts > 0",
            webhook,
        )
        db.announce("webhooks")


def _find_alarm_kind(db: Db, item: int, incident: int) -> str:
    """Return the kind of the alarm that the hub raised with this item, such as `fence`. Return an
    empty text for any other item.
    """
    rows = db.execute(
        "SELECT sos.kind FROM item JOIN sos ON sos.id = ? WHERE item.id = ? AND item.sos = ?",
        *(incident, item, alarm.ITEM),
    )
    return str(rows[0][0]) if rows else ""


def _record_failure(db: Db, end: PostResult) -> str:
    post, result, now = end.post, end.result, end.now
    webhook, attempts = post.webhook.id, post.delivery.attempts + 1
    schedule = SOS_SCHEDULE if post.delivery.urgent else SCHEDULE
    asked_pause = min(result.retry_after, RETRY_AFTER_MAX_S)
    wait = compute_delay(
        attempts, schedule=schedule, retry_after=asked_pause, random_share=random.random()
    )
    is_gone = result.outcome is HandoverOutcome.GONE
    # A failed probe does not count as an attempt, so the last attempt for the item is still made
    # when it is due.
    last = wait is None and not post.is_early
    dead = (last or result.outcome is HandoverOutcome.REFUSED) and not is_gone
    release_claims(db, end.not_made)
    change: str
    values: list[str | float]
    apart = dead and len(post.items) > 1
    if apart:
        # The receiver may reject only one of the items, so send each item a last time in a separate
        # array.
        dead = False
        change = "batch = item, attempts = ?, not_before = ?"
        values = [attempts, now]
    elif post.is_early and not dead:
        # A failed probe does not delay the next attempt for the item, unless the receiver asks for
        # a longer wait.
        change = "not_before = CASE WHEN not_before < ? THEN ? ELSE not_before END"
        values = [now + asked_pause, now + asked_pause]
    else:
        change = "state = ?, attempts = ?, not_before = ?"
        values = ["dead" if dead else "waiting", attempts, now + (wait or 0.0)]
    membership, items = make_membership(db, post.items)
    db.announce("webhooks")
    if not db.execute(
        f"UPDATE webhook_delivery SET {change}, claimed_until = 0, reason = ? WHERE webhook = ?"
        f" AND item {membership} AND state = 'waiting' AND claimed_until = ? RETURNING item",
        *(*values, result.reason, webhook, *items, post.claimed_until),
    ):
        return ""
    ((since,),) = db.execute(
        "UPDATE webhook SET failing_since = coalesce(failing_since, ?),"
        " quiet_until = CASE WHEN quiet_until < ? THEN ? ELSE quiet_until END,"
        " reason = CASE WHEN disabled IS NULL THEN ? ELSE reason END WHERE id = ?"
        " RETURNING failing_since",
        *(now, now + asked_pause, now + asked_pause, result.reason, webhook),
    )
    if is_gone or (now - since >= DISABLE_AFTER_S and attempts >= TRIES_MIN):
        return _disable(db, webhook, result.reason, now)
    if dead:
        # Log the item's id, because an escalation is sent under another id.
        ((request_id,),) = db.execute("SELECT request_id FROM item WHERE id = ?", post.items[0])
        return (
            f"webhook {webhook} did not accept {request_id}: {result.reason};"
            f" `fieldagent hub webhook replay {request_id}` posts it again"
        )
    if apart:
        return (
            f"webhook {webhook} did not accept {len(post.items)} items together:"
            f" {result.reason}; trying each one separately"
        )
    if post.is_early:
        return ""
    # The log line says "within", because a probe may send the item before that time. After a
    # success, the webhook gets all waiting requests.
    return f"webhook {webhook}: {result.reason}; tried again within {wait:.0f} s"


def release_claims(db: Db, posts: Sequence[WebhookPost]) -> None:
    """Release the claims of requests that this process does not send now."""
    for post in posts:
        membership, items = make_membership(db, post.items)
        db.execute(
            f"UPDATE webhook_delivery SET claimed_until = 0 WHERE webhook = ? AND item {membership}"
            " AND state = 'waiting' AND claimed_until = ?",
            *(post.webhook.id, *items, post.claimed_until),
        )
    if posts:
        db.announce("webhooks")


def _disable(db: Db, webhook: int, reason: str, now: float) -> str:
    disabled = db.execute(
        "UPDATE webhook SET disabled = ?, reason = ? WHERE id = ? AND disabled IS NULL"
        " RETURNING workspace",
        now,
        reason,
        webhook,
    )
    if not disabled:
        return ""
    notice = f"webhook {webhook} is disabled: {reason}"
    write_line(db, disabled[0][0], HUB, "webhook disable", notice, now)
    return f"{notice}; resume with `fieldagent hub webhook enable {webhook}`"
