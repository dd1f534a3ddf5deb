"""Items for a kit go over another kit in its range, and count when the addressee proves them."""

from __future__ import annotations

from math import inf

import pytest

from fieldagent.hub.access.device_keys import read_secrets
from fieldagent.hub.access.directory import set_relay
from fieldagent.hub.api.standing import list_device_standings
from fieldagent.hub.field import check_in
from fieldagent.hub.field.mailbox import IpMailbox
from fieldagent.hub.records.stations_in_range import NEXT_CARRIER_AFTER_S
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message, Parcel
from fieldagent.wire.envelope import Entry, Introduction, Receipt, compute_item_digest
from fieldagent.wire.kit_note import StationsInRange
from fieldagent.wire.parcel import BODY_MAX_BYTES, DOWN, UP, unwrap, wrap
from tests.hub.field import START, Field, collect
from tests.hub.field import field_of as field

ADA, BEN, CLEO = 1, 2, 3
TIME = int(START)


async def link_carrier(alps: Field, number: int, **hears: int) -> IpMailbox:
    """Return the mailbox of a linked kit that has reported its neighbours and their hops."""

    def link(db: Db) -> None:
        db.execute(
            "INSERT INTO process (name, until) VALUES ('here', ?) ON CONFLICT DO NOTHING", inf
        )
        db.execute("INSERT INTO lease (device, process, link) VALUES (?, 'here', 1)", number)

    await alps.store.commit(link)
    mailbox = alps.mailbox(number)
    await mailbox.record_hello(70_000_000 + number)
    stations = {{"ada": ADA, "ben": BEN, "cleo": CLEO}[who]: hops for who, hops in hears.items()}
    await mailbox.process_note(StationsInRange(stations).encode())
    return mailbox


async def fetch_parcels(mailbox: IpMailbox) -> list[Parcel]:
    entries = [entry for envelope in await collect(mailbox) for entry in envelope.entries]
    return [each.content for each in entries if isinstance(each.content, Parcel)]


async def open_parcel(alps: Field, parcel: Parcel) -> list[Entry]:
    """Return the entries that Ben's kit reads from a parcel."""
    secrets = await alps.store.read(lambda db: read_secrets(db, BEN))
    assert parcel.station == BEN
    envelope = unwrap(parcel.body, secrets, DOWN)
    assert envelope.origin == ADA
    return list(envelope.entries)


async def list_states(alps: Field) -> list[tuple[str, str | None]]:
    return await alps.rows("SELECT state, way FROM delivery WHERE device = ?", BEN)


async def confirm(alps: Field, item: Entry, secret: bytes, digest: bytes = b"") -> None:
    """Bring the confirmation of Ben's kit over Cleo's."""
    receipt = Entry(item.sequence, Receipt(digest=digest or compute_item_digest(item)), TIME)
    parcel = Parcel(wrap([receipt], secret, UP))
    await alps.sends(CLEO, Entry(9, parcel, TIME), origin=BEN)


async def test_parcel_counts_as_stored_only_with_proof_of_its_addressee(store: Store) -> None:
    async with field(store) as alps:
        linked = await link_carrier(alps, CLEO, ben=1)
        await alps.push(Message("turn back"), target=BEN)
        (parcel,) = await fetch_parcels(linked)
        assert parcel.minutes == 1440
        named, item = await open_parcel(alps, parcel)
        assert isinstance(named.content, Introduction) and named.content.identity.name == "Ada"
        assert item.content == Message("turn back")
        assert await list_states(alps) == [("waiting", None)]
        assert await fetch_parcels(linked) == [], "once is enough"
        (secret,) = await store.read(lambda db: read_secrets(db, BEN))
        cleos = await store.read(lambda db: read_secrets(db, CLEO))
        await confirm(alps, item, cleos[0])
        await confirm(alps, item, secret, digest=b"else")
        assert await list_states(alps) == [("waiting", None)]
        ((reason,),) = await alps.rows("SELECT reason FROM dead_letter")
        assert "a parcel of kit 2" in reason
        for _ in range(2):
            await confirm(alps, item, secret)
        assert await list_states(alps) == [("stored", "radio")]


async def test_repeated_parcel_does_not_count_as_a_check_in(store: Store) -> None:
    """The parcel comes later under another number of its carrier."""
    async with field(store) as alps:
        (secret,) = await store.read(lambda db: read_secrets(db, BEN))
        first, second = (
            Parcel(wrap([Entry(7, Receipt(digest=digest), TIME)], secret, UP))
            for digest in (b"item", b"next")
        )
        await alps.store.commit(lambda db: check_in.record_request(db, BEN, 3600, 1, now=alps.now))
        for number, parcel, counts in ((9, first, True), (10, first, False), (11, second, True)):
            alps.now += 60
            await alps.sends(CLEO, Entry(number, parcel, int(alps.now)), origin=BEN)
            ((due,),) = await alps.rows("SELECT due FROM check_in WHERE device = ?", BEN)
            assert (due == alps.now + 3600) is counts


async def test_parcel_and_own_link_deliver_the_same_item(store: Store) -> None:
    async with field(store) as alps:
        linked = await link_carrier(alps, CLEO, ben=1)
        await alps.push(Message("turn back"), target=BEN)
        (parcel,) = await fetch_parcels(linked)
        _, by_radio = await open_parcel(alps, parcel)
        (own,) = await collect(alps.mailbox(BEN))
        assert by_radio in own.entries
        assert await list_states(alps) == [("stored", "ip")]
        assert await fetch_parcels(linked) == []


async def test_parcel_goes_over_the_nearest_kit_and_later_over_another(store: Store) -> None:
    async with field(store) as alps:
        far, near = await link_carrier(alps, CLEO, ben=2), await link_carrier(alps, ADA, ben=1)
        await alps.push(Message("turn back"), target=BEN)
        assert await fetch_parcels(far) == []
        assert len(await fetch_parcels(near)) == 1
        assert await fetch_parcels(far) == []
        alps.now += NEXT_CARRIER_AFTER_S + 1
        assert len(await fetch_parcels(far)) == 1
        assert await fetch_parcels(near) == [], "it goes on by itself"
        await near.record_hello(80_000_000)
        await near.process_note(StationsInRange({BEN: 1}).encode())
        alps.now += NEXT_CARRIER_AFTER_S + 1
        assert len(await fetch_parcels(near)) == 1, "its journal is lost"


@pytest.mark.parametrize("why", ["its own link", "no right", "too large", "heard by radio"])
async def test_item_that_cannot_be_relayed_waits_without_a_parcel(store: Store, why: str) -> None:
    async with field(store) as alps:
        linked = await link_carrier(alps, CLEO, ben=1)
        text = "turn back"
        if why == "its own link":
            await link_carrier(alps, BEN)
        elif why == "no right":
            await store.commit(lambda db: set_relay(db, CLEO, False, now=alps.now))
        elif why == "too large":
            text = "x" * BODY_MAX_BYTES
        if why == "heard by radio":
            await alps.sends(CLEO, Entry(7, Message(text), TIME))
        else:
            await alps.push(Message(text), target=BEN)
        assert await fetch_parcels(linked) == []
        standing = await store.read(lambda db: list_device_standings(db, 1, alps.now))
        assert [each["state"] for each in standing if each["id"] == BEN] == ["waiting"]
