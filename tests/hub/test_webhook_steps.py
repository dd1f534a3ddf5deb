"""A webhook that gets the stages of each item: each stage once, after its item, even if stages come
faster than posts or during one.
"""

from __future__ import annotations

import json
from functools import partial

import pytest

from fieldagent.http.message import Response
from fieldagent.hub.contract import Bearer
from fieldagent.hub.records import ledger, workspace_log
from fieldagent.hub.store.contract import Store
from fieldagent.hub.webhook import webhook_directory
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.system.properties import WrongProperty
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.webhook.schedule import DELAY_MAX_S
from fieldagent.wire.envelope import Entry
from tests.hub.claiming import claim, settle
from tests.hub.field import START, Field
from tests.hub.test_webhooks import Receiver, posting, turn

BEN = 2


def list_posted(there: Receiver) -> list[str | list[str]]:
    """Return the content or the stages of each event that came."""
    bodies = [json.loads(request.body) for request in there.got]
    events = [
        each["payloads"][0]["events"][0]
        for body in bodies
        for each in (body if isinstance(body, list) else [body])
    ]
    return [
        event["content"] if "content" in event else [step["text"] for step in event["reached"]]
        for event in events
    ]


async def record_stage(alps: Field, stage: Stage, text: str = "", *, item: int = 1) -> None:
    """Record a stage of an item with Ben."""
    if stage is Stage.STORED:
        await alps.store.commit(lambda db: workspace_log.create_missing_rows(db, [(BEN, alps.now)]))
        await alps.store.commit(
            partial(ledger.confirm, item=item, device=BEN, bearer=Bearer.IP, now=alps.now)
        )
        return
    noted = partial(
        ledger.record_stage, item=item, member=BEN, stage=stage, text=text, now=alps.now
    )
    await alps.store.commit(noted)


@pytest.mark.parametrize("batch", [0, 10])
async def test_each_stage_is_posted_once_after_its_item(store: Store, batch: int) -> None:
    async with posting(store, steps=True, batch=batch) as (alps, there):
        await alps.sends(1, Entry(1, Message("are you there?"), int(START)))
        # The item has reached a stage before its post, but the item is posted first.
        await record_stage(alps, Stage.STORED)
        await turn(alps)
        assert list_posted(there) == ["are you there?", ["on Ben's kit"]]
        # Two stages before the next post go in one post, and a stage is not repeated.
        await record_stage(alps, Stage.PROGRAMS)
        await record_stage(alps, Stage.READ, "Ben")
        await record_stage(alps, Stage.READ, "Ben")
        await turn(alps)
        steps = ["on Ben's kit", "with Ben's programs", "read by Ben"]
        assert list_posted(there)[2:] == [steps]
        await turn(alps)
        assert len(there.got) == 3
        ids = {request.headers["webhook-id"] for request in there.got}
        assert len(ids) == 3, "each post is one of its own"
        of = [json.loads(request.body) for request in there.got]
        names = {(each[0] if batch else each)["requestId"] for each in of}
        assert len(names) == 1, "all name the item"


async def test_stage_during_a_post_is_posted_afterwards(store: Store) -> None:
    async with posting(store, steps=True) as (alps, there):
        await alps.sends(1, Entry(1, Message("are you there?"), int(START)))
        for stage in (Stage.STORED, Stage.READ):
            (under_way,) = await store.commit(partial(claim, now=alps.now))
            await record_stage(alps, stage)
            ended = HandoverResult(HandoverOutcome.HANDED)
            await store.commit(partial(settle, posting=under_way, result=ended, now=alps.now))
        await turn(alps)
        assert list_posted(there) == [["on Ben's kit", "read at Ben's kit"]]


async def test_failed_post_of_stages_is_retried_with_newer_stages(store: Store) -> None:
    async with posting(store, steps=True) as (alps, there):
        await alps.sends(1, Entry(1, Message("are you there?"), int(START)))
        await turn(alps)
        there.answers = [Response(503)]
        await record_stage(alps, Stage.STORED)
        await turn(alps)
        await record_stage(alps, Stage.READ, "Ben")
        await turn(alps)
        assert len(there.got) == 2, "its schedule holds"
        alps.now += DELAY_MAX_S
        await turn(alps)
        assert list_posted(there)[1:] == [["on Ben's kit"], ["on Ben's kit", "read by Ben"]]
        ids = [request.headers["webhook-id"] for request in there.got]
        assert len({*ids}) == 3, "another text has another id"


async def test_only_stages_of_a_push_are_posted(store: Store) -> None:
    async with posting(store, steps=True) as (alps, there):
        await alps.push(Message("come down"), target=BEN)
        await turn(alps)
        assert there.got == []
        await record_stage(alps, Stage.STORED)
        await turn(alps)
        assert list_posted(there) == [["on Ben's kit"]]


async def test_stages_of_an_sos_do_not_raise_another_alarm(store: Store) -> None:
    async with posting(store, steps=True) as (alps, there):
        await alps.sends(1, Entry(1, Message("Leg broken"), int(START), sos=True))
        await record_stage(alps, Stage.STORED)
        await turn(alps)
        assert list_posted(there) == ["Leg broken", ["on Ben's kit"]]
        assert ["fieldagent-sos" in request.headers for request in there.got] == [True, False]
        raised = "SELECT count(*) FROM sos_event WHERE event = 'webhook'"
        assert await alps.rows(raised) == [(1,)]


async def test_webhook_without_stages_gets_only_the_item(store: Store) -> None:
    async with posting(store) as (alps, there):
        await alps.sends(1, Entry(1, Message("are you there?"), int(START)))
        await turn(alps)
        await record_stage(alps, Stage.STORED)
        await record_stage(alps, Stage.READ, "Ben")
        await turn(alps)
        assert list_posted(there) == ["are you there?"]


def test_webhook_for_unanswered_sos_cannot_have_stages() -> None:
    with pytest.raises(WrongProperty, match="add two"):
        webhook_directory.make_webhook("https://example.org/", after=5, steps=True)
