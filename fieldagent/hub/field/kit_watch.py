"""What is looked for among the kits now and then: those that were to be heard of, or to be at a
place by a time, how far an update or a new radio-key of many has come, SOS that nobody is there to
see or that came without a word, and hours in which nobody is on watch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from fieldagent.hub import idle
from fieldagent.hub.field import check_in, radio_key, update_offers
from fieldagent.hub.places import routes
from fieldagent.hub.records import alarm, shifts, wordless
from fieldagent.hub.store.contract import ANYTHING, Store
from fieldagent.hub.store.persist import told_once
from fieldagent.store.group import NOT_STORED

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between two looks at the least: what is late is not so by a second."""
WATCHED = (
    (check_in.next_late, check_in.look),
    (routes.next_due, routes.look),
    (update_offers.next_due, update_offers.look),
    (alarm.next_look, alarm.look),
    (wordless.next_due, wordless.look),
    (shifts.next_due, shifts.look),
    (radio_key.next_due, radio_key.look),
)
"""When there is something, and what is done about it; that tells what to warn of."""


async def run(store: Store, *, clock: Callable[[], float]) -> None:
    """Look for ever at what falls due among the kits, and log what to warn of; while nothing can be
    stored, it waits. Raises StoreFailed; what else is raised is raised once all have been looked
    at: a fault in one keeps nobody from being missed by another."""
    while True:
        written = store.heard(ANYTHING)
        soonest = 0.0
        with told_once():
            times: list[float] = []
            faults: list[Exception] = []
            for when, look in WATCHED:
                try:
                    times.append(at := await store.read(when))
                    if at <= clock():
                        for text in await store.commit(partial(look, now=clock())):
                            log.warning("%s", text)
                except NOT_STORED:
                    raise
                except Exception as error:
                    faults.append(error)
            if faults:
                raise ExceptionGroup("some looks at the kits failed", faults)
            soonest = min(times)
        await idle.until_due(written, soonest - clock(), beat=EVERY)
