"""What is looked for among the kits now and then: those that were to be heard of, and how far an
update of many has come."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from fieldagent.hub import check_in, update_offers
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.persist import told_once

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between two looks: what is late is not so by a second."""
WATCHED = (
    (check_in.is_late, check_in.look),
    (update_offers.is_due, update_offers.look),
)
"""Whether there is something, and what is done about it; that tells what to warn of."""


async def run(store: Store, *, clock: Callable[[], float]) -> None:
    while True:
        with told_once():
            for is_due, look in WATCHED:
                now = clock()
                if await store.read(partial(is_due, now=now)):
                    for text in await store.commit(partial(look, now=now)):
                        log.warning("%s", text)
        await trio.sleep(EVERY)
