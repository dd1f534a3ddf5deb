"""Links in requests to webhooks, with which a person acknowledges an SOS."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from fieldagent.hub.store.contract import Store
from fieldagent.hub.webhook import webhook_directory
from fieldagent.package.package import Message
from tests.hub.claiming import claim
from tests.hub.field import START
from tests.hub.test_sos_desk import HELP, desk, make_later_entry


async def test_each_webhook_gets_its_own_answer_link_with_the_raising_item(store: Store) -> None:
    async with desk(store) as hub:
        for after in (0, 0, 10):
            made = webhook_directory.make_webhook("https://pager.example/", after=after)
            await store.commit(
                partial(webhook_directory.add_webhook, workspace=1, webhook=made, now=START)
            )
        await hub.alps.sends(1, HELP, make_later_entry(8, Message("cold")))

        async def claimed(now: float) -> list[dict[str, Any]]:
            posts = await store.commit(lambda db: claim(db, now, desk="https://hub.example.org"))
            bodies = [json.loads(each.delivery.body) for each in posts]
            return [each["payloads"][0]["events"][0] for each in bodies]

        # The first two are claimed again, as after a hub's death. Each then has the same link.
        events = await claimed(START + 1) + await claimed(START + 601)
        raised = [each for each in events if each["content"] == "leg broken"]
        links = {each["incident"]["acknowledge"] for each in raised}
        assert (len(raised), len(links)) == (5, 3)
        others = [each for each in events if each["content"] == "cold"]
        assert others and all("acknowledge" not in each["incident"] for each in others)
