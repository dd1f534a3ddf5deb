"""Periodic checks on kits.

The checks find overdue check-ins, open incidents that no dispatcher can see, and incidents without
an item. They also continue program updates and changes of a radio key. Extensions can add checks
(`HubPart.checks`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from fieldagent.hub import idle
from fieldagent.hub.field import check_in, radio_key, update_offers
from fieldagent.hub.part import HubCheck, list_hub_parts
from fieldagent.hub.records import alarm, sos_without_text
from fieldagent.hub.store.contract import ANY_WRITE_TOPIC, Store
from fieldagent.hub.store.persist import skip_if_unavailable
from fieldagent.store.group import NOT_STORED

log = logging.getLogger(__name__)

CHECK_INTERVAL_MIN_S = 15.0
"""Shortest time in seconds between two rounds of checks."""
CORE_CHECKS = (
    HubCheck(check_in.compute_next_late, check_in.warn_of_late),
    HubCheck(update_offers.compute_next_due, update_offers.continue_offers),
    HubCheck(alarm.compute_next_look, alarm.notify_of_open),
    HubCheck(sos_without_text.compute_next_due, sos_without_text.add_own_items),
    HubCheck(radio_key.compute_next_due, radio_key.continue_changes),
)
"""Checks that are part of the core."""
CONTACTS_CHECK = HubCheck(alarm.compute_next_mark, alarm.mark_contacts)
"""Additional check of a hub without an extension that notifies contacts."""


def list_checks() -> list[HubCheck]:
    """Return the checks of the core and of all extensions."""
    parts = list_hub_parts()
    contact_checks = [] if any(each.is_notifying_contacts for each in parts) else [CONTACTS_CHECK]
    return [*contact_checks, *CORE_CHECKS, *(check for part in parts for check in part.checks)]


async def run(store: Store, *, clock: Callable[[], float]) -> None:
    """Run the due checks until cancelled, and log their warnings. Wait while nothing can be stored.

    Raises StoreFailed. Any other error is raised only after all checks have run, so that a bug in
    one check does not stop the others.
    """
    watched = list_checks()
    while True:
        any_write = store.get_event(ANY_WRITE_TOPIC)
        next_due = 0.0
        with skip_if_unavailable():
            times: list[float] = []
            faults: list[Exception] = []
            for due_at, look in watched:
                try:
                    times.append(at := await store.read(due_at))
                    if at <= clock():
                        for text in await store.commit(partial(look, now=clock())):
                            log.warning("%s", text)
                except NOT_STORED:
                    raise
                except Exception as error:
                    faults.append(error)
            if faults:
                raise ExceptionGroup("some checks of the kits failed", faults)
            next_due = min(times)
        await idle.wait_until_due(any_write, next_due - clock(), beat=CHECK_INTERVAL_MIN_S)
