"""What agents send, on its way to a workspace's webhooks: one POST for each item and webhook.

In order for each sender; whoever is slow or broken holds up nobody else. A process claims what it
posts, so that several share the work; one that dies leaves its claim to run out.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any, NamedTuple

import trio

from fieldagent.http.client import Opener
from fieldagent.hub import idle
from fieldagent.hub.audit import HUB, note
from fieldagent.hub.envelope_packing import identity_of
from fieldagent.hub.ledger import stored_entry
from fieldagent.hub.sos_desk import note_posted
from fieldagent.hub.store.contract import ANYTHING, Db, Store, marks
from fieldagent.hub.store.persist import persist, told_once
from fieldagent.package.package import Item, Message, recorded
from fieldagent.package.payload import Identity, estimated_position, payload_json
from fieldagent.store.group import StoreFailed
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.supervisor import Note, brief, log_fault
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.webhook.post import DEADLINE, post
from fieldagent.webhook.schedule import SCHEDULE, SOS_SCHEDULE, delay

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Posts under way in one process."""
AT_ONCE_EACH = 4
"""Posts under way to one webhook, in all processes: one that never answers holds up no other."""
CLAIM = 3 * DEADLINE
"""Seconds after which a post that nobody has settled is made again."""
PATIENCE = 5 * 86_400.0
"""Seconds without a success after which a webhook is disabled."""
REMEDY = "correct the URL with `fieldagent hub webhook`"


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
    """Minutes for which nobody answered an SOS, of which alone it is told; 0: of all, at once."""

    def extra(self) -> tuple[tuple[str, str], ...]:
        """The headers that go along with every post."""
        extra = tuple(self.headers.items())
        if self.username is None:
            return extra
        pair = base64.b64encode(f"{self.username}:{self.password or ''}".encode()).decode()
        return (*extra, ("Authorization", f"Basic {pair}"))


@dataclass(frozen=True, slots=True)
class WebhookPost:
    """One delivery that this process may post now."""

    webhook: Webhook
    item: int
    delivery: Delivery
    claimed_until: float
    """By this the claim is known as its own."""


COLUMNS = "webhook.id, url, secrets, username, webhook.password, headers, failing_since, after"


def webhook_of(row: Sequence[Any]) -> Webhook:
    id_, url, secrets, username, password, headers, failing_since, after = row
    given = tuple(secrets.split()), username, password, json.loads(headers)
    return Webhook(id_, url, *given, failing_since, after)


_FIRST = (
    "WITH RECURSIVE whose (webhook, sender) AS (SELECT id, (SELECT min(d.sender)"
    " FROM webhook_delivery d WHERE d.webhook = webhook.id AND d.state = 'waiting')"
    " FROM webhook WHERE disabled IS NULL UNION ALL SELECT webhook, (SELECT min(d.sender)"
    " FROM webhook_delivery d WHERE d.webhook = whose.webhook AND d.state = 'waiting'"
    " AND d.sender > whose.sender) FROM whose WHERE sender IS NOT NULL),"
    # Materialized: a later SQLite than 3.40 would look for it once for each row that waits.
    " first (webhook, item) AS MATERIALIZED (SELECT webhook, (SELECT min(d.item)"
    " FROM webhook_delivery d WHERE d.webhook = whose.webhook AND d.sender = whose.sender"
    " AND d.state = 'waiting') FROM whose WHERE sender IS NOT NULL)"
    " SELECT d.webhook, d.item, d.not_before, d.claimed_until FROM first"
    " CROSS JOIN webhook_delivery d WHERE d.webhook = first.webhook AND d.item = first.item"
    " ORDER BY d.sender >= 0, d.item"
)
"""The oldest that waits, of each sender and webhook, and each SOS, which goes first and has a
`sender` of its own. It steps along the index from one to another: what waits behind the first,
where a webhook was down for days, is not looked at."""


class _Due(NamedTuple):
    now: dict[int, list[int]]
    """Items that may be posted now, by webhook; that with the oldest comes first."""
    next: float
    """When others fall due by themselves."""


def _due(db: Db, now: float) -> _Due:
    live: Counter[int] = Counter()
    ripe: dict[int, list[int]] = {}
    soonest = inf
    for webhook, item, not_before, claimed_until in db.execute(_FIRST):
        live[webhook] += claimed_until > now
        at = max(not_before, claimed_until)
        if at <= now:
            ripe.setdefault(webhook, []).append(item)
        else:
            soonest = min(soonest, at)
    free = {
        webhook: items[: AT_ONCE_EACH - live[webhook]]
        for webhook, items in ripe.items()
        if live[webhook] < AT_ONCE_EACH
    }
    return _Due(free, soonest)


def next_due(db: Db, now: float) -> float:
    """When `claim` finds something."""
    found = _due(db, now)
    return now if found.now else found.next


def claim(db: Db, now: float, limit: int) -> list[WebhookPost]:
    """The oldest that waits of each sender and webhook, for this process alone; every webhook with
    something due has its turn."""
    claimed: list[WebhookPost] = []
    for webhook, items in _due(db, now).now.items():
        if some := items[: limit - len(claimed)]:
            claimed += _claim_of(db, webhook, some, now)
    return claimed


def _claim_of(db: Db, webhook: int, items: Sequence[int], now: float) -> list[WebhookPost]:
    """Without those that another process has claimed meanwhile."""
    locked = db.skip_locked.replace("UPDATE", "UPDATE OF d")
    rows = db.execute(
        f"SELECT {COLUMNS}, item.id, item.request_id, item.sender, item.workspace, item.body,"
        " item.accepted, item.estimate, item.unauthenticated, item.source_sequence IS NULL,"
        " d.attempts FROM webhook_delivery d JOIN webhook ON webhook.id = d.webhook"
        f" JOIN item ON item.id = d.item WHERE d.webhook = ? AND d.item IN ({marks(items)})"
        f" AND d.state = 'waiting' AND d.claimed_until <= ? ORDER BY d.sender >= 0, d.item{locked}",
        webhook,
        *items,
        now,
    )
    for row in rows:
        db.execute(
            "UPDATE webhook_delivery SET claimed_until = ? WHERE webhook = ? AND item = ?",
            now + CLAIM,
            webhook,
            row[8],
        )
    return [_posting(db, row, now + CLAIM) for row in rows]


def _posting(db: Db, row: Sequence[Any], claimed_until: float) -> WebhookPost:
    item, request_id, sender, workspace, body, accepted, *rest = row[8:]
    estimate, unproved, overdue, attempts = rest
    entry = stored_entry(body)
    content = entry.content
    assert isinstance(content, Item), "the ledger holds items alone"
    moment = recorded(content) or datetime.fromtimestamp(entry.time, UTC)
    extra: dict[str, Any] = {}
    if estimate:
        extra["estimatedPosition"] = estimated_position(**json.loads(estimate))
    if unproved:
        extra["unauthenticated"] = True
    if overdue:
        extra["overdue"] = True
    who = identity_of(db, sender, workspace)
    text = payload_json(request_id, who, content, moment, sos=entry.sos, extra=extra)
    delivery = Delivery(request_id, str(sender), text, accepted, attempts)
    return WebhookPost(webhook_of(row[:8]), item, delivery, claimed_until)


def settle(
    db: Db,
    posting: WebhookPost,
    result: HandoverResult,
    now: float,
    *,
    sos_confirmed_by: str | None = None,
) -> str:
    """Record how a post ended; what people should know of it, or nothing.

    Where the claim has run out meanwhile, another's word counts.
    """
    webhook, attempts = posting.webhook.id, posting.delivery.attempts + 1
    if result.outcome is HandoverOutcome.HANDED:
        if _mark(db, posting, "handed", attempts, now, ""):
            db.execute("UPDATE webhook SET failing_since = NULL WHERE id = ?", webhook)
            where = f"webhook {webhook}"
            return note_posted(db, posting.item, where, sos_confirmed_by, now)
        return ""
    schedule = SOS_SCHEDULE if posting.delivery.sos else SCHEDULE
    wait = delay(
        attempts, schedule=schedule, retry_after=result.retry_after, chance=random.random()
    )
    dead = wait is None or result.outcome is HandoverOutcome.REFUSED
    gone = result.outcome is HandoverOutcome.GONE
    state = "dead" if dead and not gone else "waiting"
    if not _mark(db, posting, state, attempts, now + (wait or 0.0), result.reason):
        return ""
    ((since,),) = db.execute(
        "UPDATE webhook SET failing_since = coalesce(failing_since, ?) WHERE id = ?"
        " RETURNING failing_since",
        now,
        webhook,
    )
    if gone or now - since >= PATIENCE:
        return _disable(db, webhook, result.reason, now)
    if state == "dead":
        request_id = posting.delivery.request_id
        return (
            f"webhook {webhook} did not take {request_id}: {result.reason};"
            f" `fieldagent hub webhook replay {request_id}` posts it again"
        )
    return f"webhook {webhook}: {result.reason}; tried again in {wait:.0f} s"


def _mark(
    db: Db, posting: WebhookPost, state: str, attempts: int, not_before: float, reason: str
) -> bool:
    """Whether this process still had the claim, and so may record the end."""
    db.announce("webhooks")
    return bool(
        db.execute(
            "UPDATE webhook_delivery SET state = ?, attempts = ?, not_before = ?,"
            " claimed_until = 0, reason = ? WHERE webhook = ? AND item = ? AND state = 'waiting'"
            " AND claimed_until = ? RETURNING item",
            state,
            attempts,
            not_before,
            reason,
            posting.webhook.id,
            posting.item,
            posting.claimed_until,
        )
    )


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
    note(db, disabled[0][0], HUB, "webhook disable", notice, now)
    return f"{notice}; `fieldagent hub webhook enable {webhook}` goes on with what waits"


async def run(
    store: Store,
    *,
    clock: Callable[[], float],
    open_stream: Opener,
    note_fault: Note = log_fault,
    sos_confirmed_by: str | None = None,
    note_post: NotePost = lambda webhook, item, result, seconds, why: None,
) -> None:
    """Post what is due until cancelled. `sos_confirmed_by`: see `sos_desk.note_posted`."""
    await _Posts(store, clock, open_stream, note_fault, sos_confirmed_by, note_post).run()


NotePost = Callable[[int, str, str, float, str], None]
"""The webhook, the item's request id, how it ended, after how many seconds, and why."""


@dataclass(slots=True)
class _Posts:
    store: Store
    clock: Callable[[], float]
    open_stream: Opener
    note_fault: Note
    sos_confirmed_by: str | None
    note_post: NotePost
    under_way: int = 0
    pause: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                news, written = self.store.heard("webhooks"), self.store.heard(ANYTHING)
                self.pause = trio.CancelScope()
                free = AT_ONCE - self.under_way
                soonest = inf
                if free:
                    soonest, postings = await self.due(free)
                    for posting in postings:
                        self.under_way += 1
                        nursery.start_soon(waits.let_finish, partial(self.carry_out, posting))
                with self.pause:
                    await idle.until_due(written, soonest - self.clock(), news=news)

    async def due(self, free: int) -> tuple[float, list[WebhookPost]]:
        """When something is due, and what of it this process may post now."""
        with told_once():
            soonest = await self.store.read(lambda db: next_due(db, self.clock()))
            if soonest > self.clock():
                return soonest, []
            return soonest, await self.store.commit(lambda db: claim(db, self.clock(), free))
        return 0.0, []

    async def carry_out(self, posting: WebhookPost) -> None:
        """Where the hub is killed before its end is written down, its claim runs out, and it is
        posted again under the same id."""
        try:
            began = trio.current_time()
            result = await self.post(posting)
            self.note_post(
                posting.webhook.id,
                posting.delivery.request_id,
                result.outcome.value,
                trio.current_time() - began,
                result.reason,
            )
            by = self.sos_confirmed_by
            text = await persist(
                self.store,
                lambda db: settle(db, posting, result, self.clock(), sos_confirmed_by=by),
            )
            if text:
                log.warning("%s", text)
        except StoreFailed:
            raise
        except Exception as error:
            self.note_fault(error, f"the end of a post to webhook {posting.webhook.id}")
        finally:
            self.under_way -= 1
            self.pause.cancel()

    async def post(self, posting: WebhookPost) -> HandoverResult:
        webhook = posting.webhook
        try:
            return await post(
                webhook.url,
                posting.delivery,
                secrets=webhook.secrets,
                clock=self.clock,
                extra=webhook.extra(),
                open_stream=self.open_stream,
                remedy=REMEDY,
            )
        except Exception as error:
            # A mistake of ours: it is made again as if the receiver had not taken it.
            self.note_fault(error, f"a post to webhook {webhook.id}")
            reason = f"the post failed in the hub, whose log tells more: {brief(error)}"
            return HandoverResult(HandoverOutcome.FAILED, reason)


async def test_call(
    webhook: Webhook, *, clock: Callable[[], float], open_stream: Opener
) -> HandoverResult:
    """Post a message that says what it is."""
    request_id = str(uuid.uuid4())
    now = datetime.fromtimestamp(clock(), UTC)
    hub = Identity("0", "fieldagent hub", "Integration")
    body = payload_json(request_id, hub, Message("A test of this webhook"), now)
    delivery = Delivery(request_id, "0", body, clock())
    return await post(
        webhook.url,
        delivery,
        secrets=webhook.secrets,
        clock=clock,
        extra=webhook.extra(),
        open_stream=open_stream,
        remedy=REMEDY,
    )
