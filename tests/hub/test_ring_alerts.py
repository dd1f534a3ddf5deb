"""A missed ring is repeated, more and more rarely, until the kit has fetched its messages."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from fieldagent.hub.contract import Bearer
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.records.ring_alerts import record_session_of_imei
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Message
from fieldagent.wire.envelope import Entry, Receipt, compute_item_digest, decode, derive_key
from fieldagent.wire.outcome import Outcome
from tests.breaking import Put, environment
from tests.hub.field import MASTER, Field, collect
from tests.hub.field import field_of as field
from tests.hub.test_cluster import contents, push
from tests.hub.test_foreign_modems import PEER
from tests.hub.test_journey import IMEI, behind_directip, folder, message_to
from tests.processes import MODULE, Running, administer, agent, free_port, hub, until

DAY = 86_400.0


async def send_messages(alps: Field, *texts: str) -> list[Entry]:
    """Let the gateway accept a message for Cleo's kit with each text."""
    entries: list[Entry] = []
    for text in texts:
        await alps.push(Message(text), target=3)
        alps.now += 60
        alps.sky.keeps += 1
        await alps.satellite()
        entries += decode(alps.sky.taken[-1][1], keys=[derive_key(MASTER, "MT")]).entries
    return [entry for entry in entries if isinstance(entry.content, Message)]


async def list_rings(alps: Field, seconds: float, step: float = 60.0) -> list[float]:
    """Return the times of the hub's rings within that time, from now."""
    began, when = alps.now, []
    while alps.now < began + seconds:
        alps.now += step
        before = len(alps.sky.rings)
        await alps.satellite()
        when += [alps.now - began] * (len(alps.sky.rings) - before)
    return when


async def test_ring_alerts_become_rare_and_end(store: Store) -> None:
    """One ring alert serves both messages. The hub sends no ring alert after the item has expired
    or the gateway has forgotten the item.
    """
    async with field(store) as alps:
        await send_messages(alps, "one", "two")
        when = await list_rings(alps, 10 * DAY, 300.0)
        daily = [19_200 + day * DAY for day in range(1, 5)]
        assert when == [300, 1200, 4800, 19_200, *daily]
        assert {*alps.sky.rings} == {"300000000000003"}


async def test_expired_message_causes_no_ring_alert(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("soon over"), target=3, expires=alps.now + 2000)
        alps.now += 60
        alps.sky.keeps = 1
        await alps.satellite()
        assert await list_rings(alps, DAY) == [300.0, 1200.0]


async def test_operator_without_a_queue_count_sends_no_ring_alert(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("by RockBLOCK"), target=3)
        alps.now += 60
        await alps.satellite()
        assert await list_rings(alps, DAY) == []


@pytest.mark.parametrize("bearer", [Bearer.SATELLITE, Bearer.IP])
async def test_receipt_ends_the_ring_alerts(store: Store, bearer: Bearer) -> None:
    async with field(store) as alps:
        one, two = await send_messages(alps, "one", "two")
        for entry, left in ((one, [300.0, 1200.0]), (two, [])):
            receipt = Entry(entry.sequence, Receipt(digest=compute_item_digest(entry)), 1)
            key = derive_key(MASTER, "MO") if bearer is Bearer.SATELLITE else None
            await alps.sends(3, receipt, bearer=bearer, key=key)
            assert await list_rings(alps, 3600) == left


async def test_message_delivered_over_ip_causes_no_ring_alert(store: Store) -> None:
    async with field(store) as alps:
        await send_messages(alps, "one")
        await collect(alps.mailbox(3))
        assert await list_rings(alps, DAY) == []


async def test_session_that_empties_the_mailbox_ends_the_ring_alerts(store: Store) -> None:
    async with field(store) as alps:
        note = partial(record_session_of_imei, store, "300000000000003", clock=alps.clock)
        await send_messages(alps, "one", "two")
        await note(fetched=True)
        assert await list_rings(alps, 1800) == [300.0, 1200.0]
        await note(fetched=True)
        assert await list_rings(alps, DAY) == []
        await send_messages(alps, "three")
        await note(fetched=False)
        assert await list_rings(alps, DAY) == []


async def test_failed_ring_alert_counts_as_missed(store: Store) -> None:
    async with field(store) as alps:
        await send_messages(alps, "one")
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT), Verdict(Outcome.REFUSED)]
        assert await list_rings(alps, DAY) == [300.0, 1200.0]


def test_kit_gets_its_message_after_a_missed_ring_alert(tmp_path: Path) -> None:
    """The modem of an independent gateway misses the first ring alert."""
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    ada = administer(database, "user", "add", "Ada")["id"]
    administer(database, "device", "add", "kit", "--user", str(ada), "--imei", IMEI)
    lines = folder(tmp_path / "lines")
    soon = environment(
        tmp_path,
        Put("fieldagent.hub.records.ring_alerts:RING_PAUSES_S", [3.0]),
        Put("fieldagent.hub.idle:BUSY_INTERVAL_S", 0.2),
    )
    settings = behind_directip(database, mo_port, mt_port)
    peer = [sys.executable, str(PEER), str(lines), str(mo_port), str(mt_port), f"0:{IMEI}:unheard"]
    with ExitStack() as stack:
        running = stack.enter_context(hub(folder(tmp_path / "hub"), settings, MODULE, **soon))
        above = stack.enter_context(Running(peer, "ready"))
        satellite = {"satellite-port": str(lines / "0"), "satellite-receipts": "at-once"}
        kit = stack.enter_context(agent(folder(tmp_path / "kit"), satellite))
        push(running.port, proof, message_to(ada, first, "come home"))
        running.expect("the operator has it")
        running.expect("ring alert repeated: kit, for which the operator holds 1 MT message")
        until(lambda: contents(kit) == ["come home"])
        above.expect("MO ")
        # The receipt has arrived, and the hub stops ringing.
        until(lambda: not waits_for_a_ring(database))


def waits_for_a_ring(database: str) -> bool:
    with closing(sqlite3.connect(database)) as look:
        return bool(look.execute("SELECT 1 FROM ring_alert").fetchall())
