"""What a person here does with a payload, told to whoever sent it: it rides along to the hub."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel
from fieldagent.package.reach import Rung

NAME_MAX = 40
"""Characters of who has read it: it rides where there is little room."""


async def mark(
    journal: Journal,
    inbox: Inbox,
    request_id: str,
    by: str = "",
    rung: Rung = Rung.READ,
    *,
    waits: bool = False,
    once: Operation[bool] | None = None,
) -> bool:
    """Put on disk that a person has read the payload, or that `rung` is reached; its sender is told
    with the next that goes to the hub. Return whether the payload is known. `by` is the person's
    name, empty where that is not known. With `waits` a full disk is waited for, as there is nobody
    to be told. What is noted `once` is in the same commit, and says whether it is news: else nobody
    is told. Raises what the journal raises."""
    at = journal.clock.date(journal.clock.now())
    name = by if len(by) <= NAME_MAX else f"{by[: NAME_MAX - 1]}…"

    def store(db: sqlite3.Connection) -> bool:
        if once is not None and not once(db):
            return False
        if rung is Rung.READ and not inbound.read_by(db, request_id, name):
            return False
        inbound.owe_rung(db, request_id, rung, name, at)
        return True

    known = await (journal.persist if waits else journal.commit)(store)
    inbox.tell_rungs()
    return known


async def keep_telling(inbox: Inbox, outboxes: Mapping[Channel, ChannelOutbox]) -> None:
    """Hand what is owed to the channels to the hub, whenever there is something new."""
    while True:
        news = inbox.rungs
        for outbox in outboxes.values():
            outbox.look_for_words()
        await news.wait()
