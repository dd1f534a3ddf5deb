"""Records the stages of payloads at this kit, such as "read by a person", and has their senders
notified.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Channel

NAME_MAX = 40
"""Maximum number of characters of the reader's name. A longer name is cut, because a receipt has
little space."""


async def store_reading(
    journal: Journal,
    inbox: Inbox,
    request_id: str,
    person: str = "",
    stage: Stage = Stage.READ,
    *,
    waits_for_space: bool = False,
    condition: Operation[bool] | None = None,
) -> bool:
    """Record that a person has read the payload, or that it has reached another `stage`. The sender
    is notified with the next transmission to the hub. Return False if `condition` returned False,
    or if `stage` is READ and the payload is unknown. Otherwise, return True.

    `person` is the person's name, empty if unknown. If `waits_for_space`, wait while the disk is
    full, because there is no caller who could be notified. `condition` runs first, in the same
    commit. If it returns False, nothing is recorded. Raises the journal's errors.
    """
    at = journal.clock.date(journal.clock.now())
    name = person if len(person) <= NAME_MAX else f"{person[: NAME_MAX - 1]}…"

    def store(db: sqlite3.Connection) -> bool:
        if condition is not None and not condition(db):
            return False
        if stage is Stage.READ and not inbound.mark_read_by(db, request_id, name):
            return False
        inbound.add_pending_stage(db, request_id, stage, name, at)
        return True

    is_recorded = await (journal.persist if waits_for_space else journal.commit)(store)
    inbox.report_stages()
    return is_recorded


async def report_new_stages(inbox: Inbox, outboxes: Mapping[Channel, ChannelOutbox]) -> None:
    """Pass new receipts to the channels' queues until cancelled."""
    while True:
        news = inbox.stages
        for outbox in outboxes.values():
            outbox.load_peer_entries()
        await news.wait()
