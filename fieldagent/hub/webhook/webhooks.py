"""Sends agents' items to the webhooks of a workspace.

Items of each kit are sent in their order. A slow or broken webhook does not delay other webhooks.
`flow` limits the number of simultaneous requests. `deliveries` reads and writes the store.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import UTC, datetime
from functools import partial

import trio

from fieldagent.http.client import KeptConnections, Opener
from fieldagent.hub import idle
from fieldagent.hub.records import claims
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Db, Store
from fieldagent.hub.store.persist import persist, persist_together, skip_if_unavailable
from fieldagent.hub.webhook.deliveries import (
    PostResult,
    WebhookPost,
    claim,
    list_failing,
    list_oldest,
    record_results,
    release_claims,
)
from fieldagent.hub.webhook.flow import Flows, Lane
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.package.package import Message
from fieldagent.package.payload import Identity, encode_payload
from fieldagent.store.group import StoreFailed
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.supervisor import Note, describe_error, log_fault
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.webhook.post import post

log = logging.getLogger(__name__)

TURN_MAX_S = 5.0
"""Seconds after which a run starts no more requests, so that other runs can start."""
REMEDY = "correct the URL with `fieldagent hub webhook`"


async def run(
    store: Store,
    *,
    clock: Callable[[], float],
    open_stream: Opener,
    note_fault: Note = log_fault,
    note_post: NotePost = lambda post, result, seconds: None,
    desk: str = "",
) -> None:
    """Send due requests until cancelled. `desk` is the console's address (see
    `deliveries.claim`).
    """
    await _Posts(store, clock, open_stream, note_fault, note_post, desk).run()


NotePost = Callable[[WebhookPost, HandoverResult, float], None]
"""Called after each request, with its result and its duration in seconds."""


@dataclass(slots=True)
class _Posts:
    store: Store
    clock: Callable[[], float]
    open_stream: Opener
    note_fault: Note
    note_post: NotePost
    desk: str
    flows: Flows = field(default_factory=Flows)
    kept: KeptConnections = field(default_factory=KeptConnections)
    stopping: bool = False
    pause: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def run(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                try:
                    await self.begin_runs(nursery)
                finally:
                    self.stopping = True
        finally:
            self.kept.close()

    async def begin_runs(self, nursery: trio.Nursery) -> None:
        while True:
            news, any_write = (
                self.store.get_event("webhooks"),
                self.store.get_event(ANY_WRITE_TOPIC),
            )
            self.pause = trio.CancelScope()
            next_due = 0.0
            runs: list[tuple[WebhookPost, ...]] = []
            with skip_if_unavailable():
                next_due, runs = await self.claim_due_runs()
            for posts in runs:
                self.count(posts[0], 1)
                nursery.start_soon(waits.run_to_the_end, partial(self.carry_out, posts))
            with self.pause:
                await idle.wait_until_due(any_write, next_due - self.clock(), news=news)

    async def claim_due_runs(self) -> tuple[float, list[tuple[WebhookPost, ...]]]:
        """Return the Unix time when the next request is due, and the runs that this process has
        claimed.
        """
        now = self.clock()
        lanes, down = await self.store.read(lambda db: (list_oldest(db), list_failing(db)))
        chosen_lanes, next_due = self.flows.choose(lanes, now, down)
        if not chosen_lanes:
            return next_due, []
        claim = partial(self.claim, chosen=chosen_lanes, now=now)
        return next_due, await claims.commit_claim(self.store, claim, _release_all)

    def claim(self, db: Db, chosen: list[Lane], now: float) -> list[tuple[WebhookPost, ...]]:
        return claim(db, chosen, now, desk=self.desk)

    def count(self, post: WebhookPost, runs: int) -> None:
        flow = self.flows.get_flow(post.webhook.id)
        if post.delivery.urgent:
            flow.sos_under_way += runs
        else:
            flow.under_way += runs

    async def carry_out(self, posts: Sequence[WebhookPost]) -> None:
        """Send the requests one after the other until one fails. If the hub stops, or after
        TURN_MAX_S, release the claims of the rest. If the hub is killed before a result is stored,
        the hub repeats the request with the same id.
        """
        until = trio.current_time() + TURN_MAX_S
        try:
            async with trio.open_nursery() as nursery:
                for at, each in enumerate(posts):
                    result = await self.post_one(each)
                    is_taken = result.outcome is HandoverOutcome.HANDED
                    remaining_posts = posts[at + 1 :]
                    end = self.record_result(each, result, () if is_taken else remaining_posts)
                    nursery.start_soon(self.write_down, end)
                    if not is_taken:
                        break
                    if remaining_posts and (self.stopping or trio.current_time() > until):
                        nursery.start_soon(self.release_posts, remaining_posts)
                        break
        finally:
            self.count(posts[0], -1)
            self.pause.cancel()

    def record_result(
        self, post: WebhookPost, result: HandoverResult, unsent_posts: Sequence[WebhookPost]
    ) -> PostResult:
        """Update the flow of the webhook with the result of a request. Return the result in the
        form for the store.
        """
        flow, now = self.flows.get_flow(post.webhook.id), self.clock()
        if result.outcome is HandoverOutcome.HANDED:
            return PostResult(post, result, now, is_recovered=flow.record_success())
        flow.record_failure(now, random.random())
        return PostResult(post, result, now, unsent_posts)

    async def write_down(self, result: PostResult) -> None:
        try:
            # Store the result together with other results that arrive at the same moment.
            text = await persist_together(self.store, record_results, result)
        except StoreFailed:
            raise
        except Exception as error:
            self.note_fault(error, f"the end of a post to webhook {result.post.webhook.id}")
        else:
            if text:
                log.warning("%s", text)

    async def release_posts(self, unsent_posts: Sequence[WebhookPost]) -> None:
        await persist(self.store, lambda db: release_claims(db, unsent_posts))

    async def post_one(self, webhook_post: WebhookPost) -> HandoverResult:
        webhook, started_at = webhook_post.webhook, trio.current_time()
        try:
            result = await post(
                webhook.url,
                webhook_post.delivery,
                secrets=webhook.secrets,
                clock=self.clock,
                extra=webhook.get_extra_headers(),
                open_stream=self.open_stream,
                remedy=REMEDY,
                kept_connections=self.kept,
            )
        except Exception as error:
            # Count a bug in the hub as a failed request, so that the request is repeated.
            self.note_fault(error, f"a post to webhook {webhook.id}")
            reason = f"the post failed in the hub; see its log: {describe_error(error)}"
            result = HandoverResult(HandoverOutcome.FAILED, reason)
        self.note_post(webhook_post, result, trio.current_time() - started_at)
        return result


def _release_all(db: Db, runs: Sequence[Sequence[WebhookPost]]) -> None:
    release_claims(db, [post for run in runs for post in run])


async def test_call(
    webhook: Webhook, *, clock: Callable[[], float], open_stream: Opener
) -> HandoverResult:
    """Send a request that is marked as a test, and return the result."""
    request_id = str(uuid.uuid4())
    now = datetime.fromtimestamp(clock(), UTC)
    hub = Identity("0", "fieldagent hub", "Integration")
    body = encode_payload(request_id, hub, Message("A test of this webhook"), now)
    delivery = Delivery(request_id, "0", f"[{body}]" if webhook.batch else body, clock())
    return await post(
        webhook.url,
        delivery,
        secrets=webhook.secrets,
        clock=clock,
        extra=webhook.get_extra_headers(),
        open_stream=open_stream,
        remedy=REMEDY,
    )
