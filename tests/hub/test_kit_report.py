"""Settings that are offered to a kit, on both engines and by another process than the one that has
its link; and what the kit tells of itself."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing

from fieldagent.hub import contact, directory, kit_report
from fieldagent.hub.contract import Device
from fieldagent.hub.mailbox import IpMailbox
from fieldagent.hub.mobile_originated import MobileOriginated
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.opening import open_store
from fieldagent.wire.kit_note import KitReport, OfferReport, SettingsOffer, UpdateReport
from fieldagent.wire.settings_change import SettingsChange, kit_of
from tests.running import running

KIT = kit_of("token")


def change(number: int) -> SettingsChange:
    return SettingsChange("kit", KIT, number, (("sos-repeat", str(number)),))


def mailbox(store: Store) -> IpMailbox:
    """Of the only device."""

    async def keys(device: Device) -> list[bytes]:
        return []

    taking = MobileOriginated(store, clock=lambda: 0.0, keys=keys, grace=0, time_to_live=60)
    return IpMailbox(store, Device(1, 1, 1, "kit"), taking, clock=lambda: 0.0)


@pytest.fixture
def with_kit(database: str) -> str:
    store = open_store(database)

    def make(db: Db) -> None:
        workspace = directory.add_workspace(db, "Alps", now=0.0)
        user = directory.add_user(db, workspace, "ada", now=0.0)
        directory.add_device(db, workspace, user, "kit", now=0.0)
        contact.note(db, 1, "ip", 0.0)

    store.once(make)
    store.close()
    return database


def listed(store: Store) -> tuple[str, str]:
    (device,) = store.once(lambda db: directory.devices(db, 1, 0.0))
    return device["settings"], device["lastUpdate"]


async def test_an_offer_reaches_the_link_whichever_process_has_it(with_kit: str) -> None:
    store, another = open_store(with_kit), open_store(with_kit)
    offer = partial(another.once, lambda db: kit_report.offer(db, 1, change(7), "signed", 0.0))
    with trio.fail_after(60):
        async with running(store), trio.open_nursery() as nursery:
            told: list[bytes] = []

            async def tell(link: IpMailbox) -> None:
                told.append(await link.next_note())

            link = mailbox(store)
            nursery.start_soon(tell, link)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await trio.to_thread.run_sync(offer)
            while not told:
                await trio.sleep(0.01)
            assert told == [SettingsOffer(change(7).text(), "signed").encode()]
            # Not twice over a link; again over the next, until the kit tells of it.
            with trio.move_on_after(0.1) as waits:
                await link.next_note()
            assert waits.cancelled_caught
            assert await mailbox(store).next_note() == told[0]
            await link.take_note(KitReport(None, OfferReport(7, "taken")).encode())
            with trio.move_on_after(0.1) as waits:
                await mailbox(store).next_note()
            assert waits.cancelled_caught
    for each in (store, another):
        each.close()


async def test_what_a_kit_tells_is_listed_and_of_another_number_is_not(with_kit: str) -> None:
    store = open_store(with_kit)
    store.once(lambda db: kit_report.offer(db, 1, change(8), "signed", 0.0))
    async with running(store):
        link = mailbox(store)
        for body in (b"", b"\xff", KitReport(None, OfferReport(7, "back", "no")).encode()):
            await link.take_note(body)
        assert listed(store) == ("8 offered", "")
        update = UpdateReport("2", "1", "no agent answers")
        await link.take_note(KitReport(update, OfferReport(8, "back", "no link")).encode())
        assert listed(store) == ("8 back: no link", "2 fell back to 1: no agent answers")
        await link.take_note(KitReport(None, OfferReport(8, "invented")).encode())
        assert listed(store)[0] == "8 back: no link"
    store.once(lambda db: kit_report.offer(db, 1, change(9), "signed", 0.0))
    assert listed(store)[0] == "9 offered"
    assert store.once(lambda db: kit_report.last_number(db, 1)) == 9
    store.close()
