"""Settings offers to a kit, on both engines and by another process than the one with its link, and
the kit's reports.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import trio
import trio.testing

from fieldagent.hub.access import directory
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.api import reading
from fieldagent.hub.contract import Device
from fieldagent.hub.field.mailbox import IpMailbox
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.field.position_feed import PositionFeeds
from fieldagent.hub.records import contact, kit_report
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.wire.kit_note import (
    KitReport,
    ModemReport,
    OfferReport,
    SettingsOffer,
    UpdateReport,
)
from fieldagent.wire.settings_change import SettingsChange, get_kit_id
from tests.hub.alps import Alps
from tests.processes import PATIENCE, administer, agent, hub, sky, until
from tests.running import running

KIT = get_kit_id("token")


def make_change(number: int) -> SettingsChange:
    return SettingsChange("kit", KIT, number, (("sos-repeat", str(number)),))


def make_mailbox(store: Store) -> IpMailbox:
    """Return the mailbox of the only device."""

    async def keys(device: Device) -> list[bytes]:
        return []

    taking = MobileOriginatedReceiver(
        store,
        clock=lambda: 0.0,
        keys=keys,
        grace=0,
        time_to_live=60,
    )
    feeds = PositionFeeds(store, clock=lambda: 0.0)
    return IpMailbox(store, Device(1, 1, 1, "kit"), taking, clock=lambda: 0.0, feeds=feeds)


@pytest.fixture
def with_kit(database: str) -> str:
    store = open_store(database)

    def make(db: Db) -> None:
        workspace = directory.add_workspace(db, "Alps", now=0.0)
        user = directory.add_user(db, workspace, "ada", now=0.0)
        directory.add_device(db, workspace, user, directory.NewDevice("kit"), now=0.0)
        contact.record_contact(db, 1, "ip", 0.0)

    store.run_once(make)
    store.close()
    return database


async def read_listed_state(store: Store) -> tuple[str, str]:
    (device,) = await store.read(lambda db: directory.list_devices(db, 1, 0.0))
    return device["settings"], device["lastUpdate"]


async def test_settings_offer_of_another_process_reaches_the_link(with_kit: str) -> None:
    store, another = open_store(with_kit), open_store(with_kit)
    offer = partial(
        another.run_once, lambda db: kit_report.offer_settings(db, 1, make_change(7), "signed", 0.0)
    )
    with trio.fail_after(60):
        async with running(store), trio.open_nursery() as nursery:
            notes: list[bytes] = []

            async def tell(link: IpMailbox) -> None:
                notes.append(await link.next_note())

            link = make_mailbox(store)
            nursery.start_soon(tell, link)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await trio.to_thread.run_sync(offer)
            while not notes:
                await trio.sleep(0.01)
            assert notes == [SettingsOffer(make_change(7).format_text(), "signed").encode()]
            # The hub sends the offer once per link, until the kit reports the offer.
            with trio.move_on_after(0.1) as waits:
                await link.next_note()
            assert waits.cancelled_caught
            assert await make_mailbox(store).next_note() == notes[0]
            await link.process_note(KitReport(None, OfferReport(7, "taken")).encode())
            with trio.move_on_after(0.1) as waits:
                await make_mailbox(store).next_note()
            assert waits.cancelled_caught
    for each in (store, another):
        each.close()


async def test_report_of_the_current_offer_is_listed_and_others_are_ignored(with_kit: str) -> None:
    store = open_store(with_kit)
    store.run_once(lambda db: kit_report.offer_settings(db, 1, make_change(8), "signed", 0.0))
    async with running(store):
        link = make_mailbox(store)
        for body in (b"", b"\xff", KitReport(None, OfferReport(7, "back", "no")).encode()):
            await link.process_note(body)
        assert await read_listed_state(store) == ("8 offered", "")
        update = UpdateReport("2", "1", "no agent answers")
        await link.process_note(KitReport(update, OfferReport(8, "back", "no link")).encode())
        assert await read_listed_state(store) == (
            "8 back: no link",
            "2 fell back to 1: no agent answers",
        )
        await link.process_note(KitReport(None, OfferReport(8, "invented")).encode())
        await link.process_note(KitReport(modems=(ModemReport("radio", 4, 87),)).encode())
        await link.process_note(KitReport().encode())
        assert (await read_listed_state(store))[0] == "8 back: no link"
    store.run_once(lambda db: kit_report.offer_settings(db, 1, make_change(9), "signed", 0.0))
    assert (await read_listed_state(store))[0] == "9 offered"
    reader = Caller(1, "", 1, frozenset(), 1, "Integration", "push", "", may_push=True)
    ((device,), _) = store.run_once(lambda db: reading.list_devices(db, reader, 9, 9, 0.0))
    assert device["modems"] == [{"channel": "radio", "signal": 4, "battery": 87, "at": 0.0}]
    assert store.run_once(lambda db: kit_report.read_last_number(db, 1)) == 9
    store.close()


def test_signal_of_a_real_kit_is_readable_at_the_hub(tmp_path: Path) -> None:
    """A real agent at a real pty reports to its hub, and an integration reads from the hub."""
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    key = administer(database, "key", "add", "reader", "--read")["apiKey"]

    def modems(address: str) -> Any:
        request = Request(f"{address}/api/devices", headers={**alps.proof, "x-api-key": key})
        with urlopen(request, timeout=PATIENCE) as answer:
            (device,) = json.load(answer)["devices"]
        return [(each["channel"], each["signal"]) for each in device["modems"]]

    linked = {"satellite-port": str(tmp_path / "modem"), "hub-token": alps.token}
    with hub(tmp_path, {"database": database}) as serving, sky(tmp_path):
        linked["hub-address"] = serving.address
        with agent(tmp_path, linked):
            until(lambda: modems(serving.address) == [("satellite", 4)])
