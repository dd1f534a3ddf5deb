"""A hub dies while it informs people of an SOS: a remaining or later hub informs them."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fieldagent.extensions.desk.hub import outward
from fieldagent.hub.store.contract import Db, Store
from tests.fork_server import COLD
from tests.hub.raising import kit_of, raise_sos, settle_in
from tests.hub.relay import mail_relay
from tests.hub.test_claims import check_release, make_due
from tests.hub.test_journey import folder, receiver
from tests.processes import PATIENCE, administer, agent, hub, until

BOUND = 5.0
"""Seconds from the end of a hub until another one has sent the news of an SOS."""
START = 1.0
"""Twice the seconds of a hub's start on an idle machine."""


def test_another_hub_sends_sos_news_within_seconds_of_a_hub_crash(
    database: str, tmp_path: Path
) -> None:
    """The dying hub waits for the receiver of a webhook and for a mail relay."""
    token = settle_in(database)
    administer(database, "contact", "add", "Bergwacht", "bw@example.org")
    came, over = threading.Event(), threading.Event()

    def hold_back() -> None:
        if "fieldagent-sos" in pager.headers[-1] and not came.is_set():
            came.set()
            over.wait(PATIENCE)

    with ExitStack() as stack:
        pager = stack.enter_context(receiver(before_answer=hold_back))
        relay = stack.enter_context(mail_relay())
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        silent.settimeout(PATIENCE)
        stack.callback(over.set)
        administer(database, "webhook", "add", pager.url, "--untried")
        settings = {"database": database, "webhook-allow": "127.0.0.0/8", **relay.settings}
        at_silent = {**settings, "smtp-port": str(silent.getsockname()[1])}
        began = time.monotonic()
        # A cold start, because the limit includes a start.
        dies = stack.enter_context(hub(folder(tmp_path / "dies"), at_silent, COLD))
        start = time.monotonic() - began
        kit = stack.enter_context(agent(tmp_path, kit_of(dies, token)))
        raise_sos(kit, database)
        assert came.wait(PATIENCE)
        waiting, _ = silent.accept()
        stack.enter_context(waiting)
        lives = folder(tmp_path / "lives")
        if database.startswith("postgresql"):
            stack.enter_context(hub(lives, settings, COLD))
            dies.kill()
            began = time.monotonic()
        else:
            dies.kill()
            began = time.monotonic()
            stack.enter_context(hub(lives, settings, COLD))
        ids = [each["webhook-id"] for each in pager.headers if "fieldagent-sos" in each]
        until(lambda: [each["webhook-id"] for each in pager.headers].count(ids[0]) == 2)
        relay.mail()
        # On a busy machine a start takes longer, and so does everything else here.
        assert time.monotonic() - began < BOUND * max(1.0, start / START)


def _make_due(db: Db) -> None:
    make_due(db)
    outward.add_outward_item(db, 1, "ada@example.org", 1.0)


async def test_claimed_item_with_unknown_commit_result_is_released(store: Store) -> None:
    def claim(db: Db) -> Any:
        return outward.claim_items(db, 2.0, 16)

    await check_release(store, "outward", _make_due, claim, outward.release_claims)
