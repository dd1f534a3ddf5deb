"""A stolen kit: its later messages have no valid sender, and its SOS rings."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

from fieldagent.hub.access import directory, revocation
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.contract import Bearer, Revoked
from fieldagent.hub.field import kept_letters
from fieldagent.hub.field.dead_letters import list_devices_with_letters
from fieldagent.hub.records.lease import Leases
from fieldagent.hub.records.stored_entry import decode_stored_entry
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.opening import open_store
from fieldagent.package.package import IncidentState, IncidentUpdate, Location, Message
from fieldagent.wire.envelope import (
    Entry,
    Receipt,
    UnauthenticatedMark,
    compute_item_digest,
    encode,
)
from fieldagent.wire.fragments import split
from tests.hub.field import Field, collect, field_of, said
from tests.hub.test_dead_letters import IMEI, Operators
from tests.hub.test_dead_letters import listed as dead_letters
from tests.hub.test_journey import receiver
from tests.processes import PATIENCE, administer, agent, hub, until
from tests.running import running

TIME = 1_790_000_000
ADA, BEN = 1, 2
HELLO, HELP = Entry(5, Message("hello"), TIME), Entry(6, Message("help"), TIME, sos=True)


async def revoke(alps: Field, device: int) -> None:
    await alps.store.commit(lambda db: revocation.revoke(db, device, "stolen", now=alps.now))


async def restore(alps: Field, device: int) -> int:
    await alps.store.commit(lambda db: revocation.restore(db, device, now=alps.now))
    hub = alps.mobile_originated()
    return await alps.store.commit(lambda db: hub.replay(db, alps.device(device), ()))


async def list_dead_letters(alps: Field) -> list[str]:
    return [text for (text,) in await alps.rows("SELECT reason FROM dead_letter ORDER BY id")]


@pytest.mark.parametrize("bearer", [Bearer.SATELLITE, Bearer.IP, Bearer.SMS])
async def test_items_of_a_revoked_kit_are_kept_and_imported_after_restoration(
    store: Store, bearer: Bearer
) -> None:
    async with field_of(store) as alps:
        await revoke(alps, BEN)
        where = Entry(7, Location(46.0, 7.0), TIME)
        over = Entry(8, IncidentUpdate(6, IncidentState.CALLED_OFF), TIME)
        for entry in (HELLO, where, over):
            await alps.sends(BEN, entry, bearer=bearer)
        assert await alps.rows("SELECT id FROM item") == []
        assert await alps.rows("SELECT device FROM contact") == [], "nobody was heard of"
        reasons = await list_dead_letters(alps)
        assert len(reasons) == 3
        assert all("kit 2 is revoked since 2026-09-21T" in each for each in reasons)
        assert await restore(alps, BEN) == 3
        assert said(await collect(alps.mailbox(ADA))) == [(BEN, "hello")]
        assert await list_dead_letters(alps) == []


async def test_sos_of_a_revoked_kit_rings_with_the_revocation_time(store: Store) -> None:
    async with field_of(store) as alps:
        await revoke(alps, BEN)
        at = alps.now
        alps.now += 60
        await alps.sends(BEN, HELP, HELLO, bearer=Bearer.SATELLITE)
        assert await alps.rows("SELECT sos, unauthenticated, revoked FROM item") == [(1, 1, at)]
        (envelope,) = await collect(alps.mailbox(ADA))
        assert said([envelope]) == [(BEN, "help")]
        assert UnauthenticatedMark() in [entry.content for entry in envelope.entries]
        assert await alps.rows("SELECT device, state FROM sos") == [(BEN, "open")]
        # The hub sends the revoked kit neither news about the SOS nor pushes.
        await alps.push(Message("where are you?"), target=BEN, over_satellite=True)
        alps.now += 3_600
        await alps.satellite()
        assert alps.device(BEN).imei not in [*(imei for imei, _ in alps.sky.taken), *alps.sky.rings]


async def test_joined_fragments_of_a_revoked_kit_wait_for_restoration(store: Store) -> None:
    async with field_of(store) as alps:
        await revoke(alps, BEN)
        long = Entry(9, Message("a long way down " * 30), TIME)
        for part in split(encode([long]), 200):
            await alps.sends(BEN, Entry(9, part, TIME), bearer=Bearer.SATELLITE)
        assert await alps.rows("SELECT id FROM item") == []
        assert await restore(alps, BEN) == 1
        ((who, text),) = said(await collect(alps.mailbox(ADA)))
        assert (who, text) == (BEN, long.content.content)  # type: ignore[union-attr]


async def test_receipt_of_a_revoked_kit_is_ignored(store: Store) -> None:
    async with field_of(store) as alps:
        await alps.push(Message("meet at the hut"), target=BEN)
        ((sequence, state, body),) = await alps.rows(
            "SELECT sequence, delivery.state, body FROM delivery JOIN item ON item.id = item"
        )
        digest = compute_item_digest(replace(decode_stored_entry(body), sequence=sequence))
        await revoke(alps, BEN)
        await alps.sends(BEN, Entry(sequence, Receipt(BEN, digest), TIME), bearer=Bearer.SATELLITE)
        assert await alps.rows("SELECT state FROM delivery") == [(state,)]


async def test_items_relayed_for_or_by_a_revoked_kit_are_kept_apart(store: Store) -> None:
    async with field_of(store) as alps:
        await revoke(alps, BEN)
        await alps.sends(ADA, HELLO, origin=BEN)
        await alps.sends(BEN, HELLO, origin=ADA, bearer=Bearer.SATELLITE)
        assert await alps.rows("SELECT id FROM item") == []
        assert all("kit 2 is revoked" in each for each in await list_dead_letters(alps))
        await alps.sends(ADA, HELP, origin=BEN)
        assert await alps.rows("SELECT sos, revoked FROM item") == [(1, alps.now)]
        await store.commit(lambda db: revocation.restore(db, BEN, now=alps.now))
        hub, holders = alps.mobile_originated(), partial(list_devices_with_letters, workspace=1)
        await store.commit(lambda db: kept_letters.accept_letters(db, hub, holders(db)))
        assert await alps.rows("SELECT reason FROM dead_letter") == []
        assert len(await alps.rows("SELECT id FROM item")) == 3


async def test_revocation_ends_the_link_in_another_process(database: str) -> None:
    one, other = open_store(database), open_store(database)
    try:
        async with field_of(one) as alps, running(other):
            token = await one.commit(lambda db: directory.make_link_token(db, BEN, now=alps.now))
            async with Leases(other, "b", clock=alps.clock).hold_lease(alps.device(BEN)) as lease:
                await revoke(alps, BEN)
                with trio.fail_after(PATIENCE):
                    await lease.lost.wait()
            with pytest.raises(Revoked):
                await other.read(lambda db: directory.find_device_of_token(db, token))
    finally:
        one.close()
        other.close()


async def test_revoked_kit_is_enabled_only_by_restoration(store: Store) -> None:
    async with field_of(store) as alps:
        await revoke(alps, BEN)
        change = partial(directory.set_disabled, id_=BEN, now=alps.now)
        with pytest.raises(Refused, match="is revoked and therefore disabled"):
            await store.commit(partial(change, table="device", when=None))
        await store.commit(partial(change, table="member", when=alps.now))
        await store.commit(partial(change, table="member", when=None))
        assert await alps.rows("SELECT disabled FROM device WHERE id = 2") == [(alps.now,)]
        with pytest.raises(Refused, match="revoked already"):
            await revoke(alps, BEN)
        await restore(alps, BEN)
        with pytest.raises(Refused, match="is not revoked"):
            await restore(alps, BEN)
        await alps.sends(BEN, HELLO)
        assert said(await collect(alps.mailbox(ADA))) == [(BEN, "hello")]
        actions = await alps.rows("SELECT action FROM audit WHERE action LIKE 'device re%'")
        assert actions == [("device revoke",), ("device restore",)]


def test_real_revoked_kit_loses_its_link_and_its_sos_rings(tmp_path: Path) -> None:
    """The thief has the kit's modem and its token. Hub, kit and webhook are real."""
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    add = ("device", "add", "kit", "--user", "Ada", "--imei", IMEI)
    token = administer(database, *add)["hub-token"]
    operators = Operators(tmp_path, database)
    with receiver() as hooked, hub(tmp_path, operators.settings) as above:
        administer(database, "webhook", "add", hooked.url, "--untried")
        settings = {"satellite-port": None, "hub-token": token, "hub-address": above.address}
        with agent(tmp_path, settings) as kit:
            kit.expect("linked to the hub")
            administer(database, "device", "revoke", "kit", "--why", "gone from the hut")
            above.expect("must end: this kit is revoked")
            kit.expect("the hub has revoked this kit")
            (row,) = administer(database, "device", "list")
            assert (row["revokedWhy"], row["linked"]) == ("gone from the hut", False)
            assert row["revoked"] == pytest.approx(time.time(), abs=PATIENCE)
            now = int(time.time())
            operators.directip(encode([Entry(5, Message("all is well"), now)]))
            operators.directip(encode([Entry(6, Message("help"), now, sos=True)]))
            until(lambda: hooked.got)
            (event,) = hooked.got[0]["payloads"][0]["events"]
            assert (event["content"], event["sos"]) == ("help", True)
            assert event["revokedSince"].endswith("Z") and "revokedSince" in event["incident"]
            (letter,) = dead_letters(database)
            assert "may be from a thief" in letter["reason"]
            (shown,) = administer(database, "sos", "list")
            assert "gone from the hut" in json.dumps(shown)
        assert administer(database, "device", "restore", "kit")["deadLettersTaken"] == 1
        until(lambda: len(hooked.got) == 2)
        assert "all is well" in json.dumps(hooked.got[1])
