"""Periodic checks on kits: overdue check-ins, and the progress of updates and of a new radio key.
They also find SOS that no dispatcher can see or that have no item, and hours without a watch.
Extensions add checks (`HubPart.checks`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from fieldagent.hub import idle
from fieldagent.hub.field import check_in, radio_key, update_offers
from fieldagent.hub.part import Check, list_hub_parts
from fieldagent.hub.records import alarm, shifts, sos_without_text
from fieldagent.hub.store.contract import ANYTHING, Store
from fieldagent.hub.store.persist import log_once
from fieldagent.store.group import NOT_STORED

log = logging.getLogger(__name__)

EVERY = 15.0
"""Shortest time in seconds between two checks. Delays of some seconds do not matter."""
WATCHED = (
    Check(check_in.compute_next_late, check_in.look),
    Check(update_offers.compute_next_due, update_offers.look),
    Check(alarm.next_look, alarm.look),
    Check(sos_without_text.next_due, sos_without_text.look),
    Check(shifts.next_due, shifts.look),
    Check(radio_key.compute_next_due, radio_key.look),
)
"""The checks of the core."""


def list_checks() -> list[Check]:
    """Return the checks of the core and of all extensions."""
    return [*WATCHED, *(check for part in list_hub_parts() for check in part.checks)]


async def run(store: Store, *, clock: Callable[[], float]) -> None:
    """Run the due checks for ever, and log their warnings. It waits while nothing can be stored.
    Raises StoreFailed. Other errors are raised after all checks have run, so that a fault in one
    check does not stop the others.
    """
    watched = list_checks()
    while True:
        written = store.get_event(ANYTHING)
        soonest = 0.0
        with log_once():
            times: list[float] = []
            faults: list[Exception] = []
            for when, look in watched:
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
        await idle.wait_until_due(written, soonest - clock(), beat=EVERY)
