"""The receivers of an item that names a person, and its stages, which its sender sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from fieldagent.hub.access import directory, people
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration import deletion
from fieldagent.hub.contract import Bearer
from fieldagent.hub.store.contract import Store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Data, Message, Person
from fieldagent.wire.envelope import Entry, Introduction, Receipt, compute_item_digest, encode
from tests.hub.field import GRACE, START, Field, collect, field_of, read, said

ADA, BEN, CLEO = 1, 2, 3
TIME = int(START)


def make_message(number: int, to: Person | None, *, asks: bool = False, text: str = "Hi") -> Entry:
    return Entry(number, Message(text), TIME, to=to, wants_receipt=asks)


async def add_group(field: Field, name: str, *members: int, over_satellite: bool = False) -> int:
    add = partial(people.add_group, over_satellite=over_satellite, now=START)
    number = await field.store.commit(lambda db: add(db, 1, name))
    join = frozenset(members)
    await field.store.commit(lambda db: people.change_group(db, 1, number, join=join, now=START))
    return number


async def receipts(field: Field, kit: int) -> list[tuple[int, Receipt]]:
    """Return the receipts to the kit about its own items, by number."""
    mailbox = field.mailbox(kit)
    await mailbox.record_hello(70_000_000 + kit)
    envelopes = await collect(mailbox)
    entries = [entry for envelope in envelopes for entry in envelope.entries]
    return [(each.sequence, each.content) for each in entries if isinstance(each.content, Receipt)]


TO_ONE: Sequence[tuple[Person | None, set[int]]] = [
    (BEN, {BEN}),
    ("Ben", {BEN}),
    ("ben", {BEN}),
    ("user:Ben", {BEN}),
    ("kit 3", {CLEO}),
    ("device:kit 2", {BEN}),
    ("rescue", {BEN, CLEO}),
    ("group:Rescue", {BEN, CLEO}),
    (-1, {BEN, CLEO}),
    (None, {BEN, CLEO}),
    ("dora", set()),
    ("group:nowhere", set()),
    (99, set()),
    (-99, set()),
    ("empty", set()),
    ("dora@example.org", set()),
    ("+41 79 000 00 00", set()),
]


@pytest.mark.parametrize(("to", "kits"), TO_ONE, ids=str)
async def test_item_is_sent_only_to_its_addressees(
    store: Store, to: Person | None, kits: set[int]
) -> None:
    async with field_of(store) as field:
        await add_group(field, "rescue", ADA, BEN, CLEO)
        await add_group(field, "empty")
        await field.sends(ADA, make_message(7, to))
        got = {kit for kit in (ADA, BEN, CLEO) if said(await collect(field.mailbox(kit)))}
        assert got == kits


NOT_FOUND = [
    ("dora", "nobody here is called dora"),
    (99, "user 99 is not in the workspace"),
    (-99, "group 99 is not in the workspace"),
    ("group:nowhere", "no group here is called nowhere"),
    ("user:nowhere", "no user here is called nowhere"),
    ("device:nowhere", "no kit here is called nowhere"),
    ("empty", "the group empty has no members"),
]


@pytest.mark.parametrize(("to", "why"), NOT_FOUND, ids=str)
async def test_unknown_addressee_is_reported_to_the_sender(
    store: Store, to: Person, why: str
) -> None:
    async with field_of(store) as field:
        await add_group(field, "empty")
        sent = make_message(7, to)
        await field.sends(ADA, sent)
        ((number, receipt),) = await receipts(field, ADA)
        assert (number, receipt.stage, receipt.by, receipt.digest) == (
            7,
            Stage.NOBODY,
            0,
            compute_item_digest(sent),
        )
        assert receipt.text == why
        # Nothing is lost: users who see the whole workspace can see it.
        assert await field.rows("SELECT team FROM item") == [(people.NO_MEMBERS,)] or to == "empty"


async def test_ambiguous_addressee_is_reported_to_the_sender(store: Store) -> None:
    async with field_of(store) as field:
        await field.rows("SELECT 1")
        await field.store.commit(
            lambda db: db.execute("UPDATE member SET name = 'Ben' WHERE id = ?", CLEO)
        )
        await field.sends(ADA, make_message(7, "Ben"))
        ((_, receipt),) = await receipts(field, ADA)
        assert receipt.text == "Ben can be user 2 or 3: use a number"
        assert said(await collect(field.mailbox(BEN))) == []


async def test_each_stage_is_reported_once_to_the_sender_with_the_name(store: Store) -> None:
    async with field_of(store) as field:
        sent = make_message(7, BEN, asks=True)
        await field.sends(ADA, sent)
        mailbox = field.mailbox(BEN)
        (envelope,) = await collect(mailbox)
        (came,) = [each for each in envelope.entries if isinstance(each.content, Message)]
        assert (came.to, came.wants_receipt) == (BEN, True)
        digest = compute_item_digest(came)
        for stage, text in ((Stage.PROGRAMS, ""), (Stage.READ, "Ben"), (Stage.READ, "Ben")):
            await field.sends(BEN, Entry(came.sequence, Receipt(0, digest, stage, text), TIME))
        answers = await receipts(field, ADA)
        assert [(number, each.stage, each.by, each.text) for number, each in answers] == [
            (7, Stage.STORED, BEN, ""),
            (7, Stage.PROGRAMS, BEN, ""),
            (7, Stage.READ, BEN, "Ben"),
        ]
        assert {each.digest for _, each in answers} == {compute_item_digest(sent)}


async def test_stage_of_an_item_heard_by_radio_is_reported_to_the_sender(store: Store) -> None:
    async with field_of(store) as field:
        sent = make_message(7, BEN, asks=True)
        await field.sends(ADA, sent)
        heard = Receipt(ADA, compute_item_digest(sent), Stage.READ, "Ben")
        await field.sends(BEN, Entry(7, heard, TIME))
        assert (7, replace(heard, by=BEN)) in await receipts(field, ADA)


async def test_stage_of_an_unknown_item_is_ignored_without_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The item is read at a kit that heard it by radio, while the sender's own link is away."""
    async with field_of(store) as field:
        sent = make_message(7, BEN, asks=True)
        entries = [Entry(7, Receipt(ADA, compute_item_digest(sent), Stage.READ, "Ben"), TIME)]
        hub = field.mobile_originated()
        await hub.take_in(field.device(BEN), encode(entries), Bearer.IP)
        assert (hub.mismatches, caplog.messages) == (0, [])
        await field.sends(ADA, sent)
        assert await field.rows("SELECT text FROM reached") == []


@pytest.mark.parametrize("digest", [b"abcd", b""])
async def test_a_stage_of_another_item_is_ignored(store: Store, digest: bytes) -> None:
    async with field_of(store) as field:
        await field.sends(ADA, make_message(7, BEN, asks=True))
        await field.sends(BEN, Entry(1, Receipt(0, digest, Stage.READ), TIME))
        await field.sends(CLEO, Entry(1, Receipt(0, digest, Stage.READ), TIME))
        assert await receipts(field, ADA) == []


async def test_group_item_goes_over_satellite_by_member_option_or_group_rule(store: Store) -> None:
    """Cleo accepts items over satellite. Ben does not, but the group's rule allows it."""
    async with field_of(store) as field:
        for number, rule in ((7, False), (8, True)):
            await add_group(field, f"rescue {number}", BEN, CLEO, over_satellite=rule)
            await field.sends(ADA, make_message(number, f"rescue {number}"))
        field.now += GRACE + 1
        await field.satellite()
        reached = [imei[-1] for imei, _ in field.sky.taken]
        assert sorted(reached) == ["2", "3"]
        due = await field.rows(
            "SELECT device, satellite_from IS NULL FROM delivery ORDER BY item, device"
        )
        assert [(device, bool(never)) for device, never in due] == [
            (BEN, True),
            (CLEO, False),
            (BEN, False),
            (CLEO, False),
        ]


async def test_addressed_item_goes_over_satellite_and_others_only_on_request(store: Store) -> None:
    async with field_of(store) as field:
        await field.sends(ADA, make_message(7, BEN))
        await field.sends(ADA, make_message(8, None))
        due = await field.rows("SELECT device, satellite_from FROM delivery ORDER BY item, device")
        # Ben has no row for an item without a named person before his link fetches mail.
        assert due == [(BEN, START + GRACE), (CLEO, START + GRACE)]


async def test_author_with_own_radio_is_the_sender_of_the_item(store: Store) -> None:
    async with field_of(store) as field:
        await field.sends(ADA, replace(make_message(7, CLEO), author=BEN))
        assert said(await collect(field.mailbox(CLEO))) == [(BEN, "Hi")]
        # The item is for all users, but the kit that brought the item already has it.
        await field.sends(ADA, replace(make_message(8, None), author=BEN))
        assert said(await collect(field.mailbox(ADA))) == []
        assert said(await collect(field.mailbox(CLEO))) == [(BEN, "Hi")]
        # The author is no member of the workspace, so it stays the kit's item.
        await field.sends(ADA, replace(make_message(9, CLEO), author=77))
        assert said(await collect(field.mailbox(CLEO))) == [(ADA, "Hi")]


@pytest.mark.parametrize("named", [4, "Dora"])
async def test_user_without_kit_is_reached_by_the_kit_hearing_the_radio(
    store: Store, named: Person
) -> None:
    dora = 4
    async with field_of(store) as field:
        await field.store.commit(
            lambda db: db.execute(
                "INSERT INTO member (id, type, name, email, created)"
                " VALUES (?, 'User', 'Dora', '', 0)",
                dora,
            )
        )
        join = partial(directory.add_member, over_satellite=False, now=START)
        await field.store.commit(lambda db: join(db, 1, dora))
        radios = partial(people.set_radios, now=START)
        await field.store.commit(lambda db: radios(db, 1, dora, ["!0badf00d"]))
        # She is unknown so far: the item waits for no receiver and goes to no other.
        await field.sends(ADA, make_message(7, named))
        assert [said(await collect(field.mailbox(kit))) for kit in (BEN, CLEO)] == [[], []]
        await field.sends(BEN, replace(make_message(8, None), author=dora))
        await collect(field.mailbox(CLEO))
        await field.sends(ADA, make_message(9, named, text="Come down"))
        (envelope,) = await collect(field.mailbox(BEN))
        assert said([envelope]) == [(ADA, "Come down")]
        assert [each.to for each in envelope.entries if isinstance(each.content, Message)] == [
            named
        ]
        assert said(await collect(field.mailbox(CLEO))) == []


async def test_name_of_an_addressee_is_sent_over_satellite_with_the_receipt(store: Store) -> None:
    """A kit without IP learns the number and name of the named person from the receipt."""
    async with field_of(store) as field:
        await field.sends(ADA, make_message(7, "Ben"), bearer=Bearer.SATELLITE)
        await collect(field.mailbox(BEN))
        outgoing = await field.mailbox(ADA).load(270)
        assert outgoing is not None
        named = [
            each.content.identity.name
            for each in read(outgoing).entries
            if isinstance(each.content, Introduction)
        ]
        assert named == ["Ben"]


TAKEN = ["Ada", "ben", "kit 2", "", " ", "a:b", "a@b", "12", "-3", "é" * 41, "Rescue", "rescue"]


@pytest.mark.parametrize("name", TAKEN)
async def test_group_with_an_invalid_or_existing_name_is_rejected(store: Store, name: str) -> None:
    async with field_of(store) as field:
        await add_group(field, "rescue", BEN)
        with pytest.raises(Refused):
            await add_group(field, name)


async def test_radio_belongs_to_one_user(store: Store) -> None:
    async with field_of(store) as field:
        radios = partial(people.set_radios, now=START)
        await field.store.commit(lambda db: radios(db, 1, BEN, ["!A1B2C3D4", "!a1b2c3d4"]))
        with pytest.raises(Refused, match="user 2"):
            await field.store.commit(lambda db: radios(db, 1, CLEO, ["!a1b2C3D4"]))
        address_book = await field.store.read(lambda db: people.make_directory(db, 1, ADA))
        assert [each.handles for each in address_book.people if each.number == BEN][:1] == [
            ("!a1b2c3d4",)
        ]


async def test_stored_item_contains_its_addressee(store: Store) -> None:
    async with field_of(store) as field:
        await add_group(field, "rescue", BEN)
        await field.sends(ADA, Entry(7, Data(b"x"), TIME, to="RESCUE", wants_receipt=True))
        ((addressee, asks),) = await field.rows("SELECT addressee, asks FROM item")
        assert json.loads(addressee) == {"id": "1", "name": "rescue", "type": "Group"}
        assert asks == 1


async def test_deletion_of_a_user_removes_the_name_from_read_receipts(store: Store) -> None:
    async with field_of(store) as field:
        sent = make_message(7, BEN, asks=True)
        await field.sends(ADA, sent)
        read_it = Receipt(ADA, compute_item_digest(sent), Stage.READ, "Ben")
        await field.sends(BEN, Entry(7, read_it, TIME))
        assert await field.rows("SELECT text FROM reached") == [("Ben",)]
        await add_group(field, "rescue", BEN)
        before = await field.store.read(lambda db: people.read_version(db, 1))
        await field.store.commit(
            lambda db: deletion.delete_remaining_rows(db, Subject("user", BEN, "Ben"), START)
        )
        assert await field.rows("SELECT text FROM reached") == []
        assert await field.rows("SELECT member FROM team_member") == []
        address_book = await field.store.read(lambda db: people.make_directory(db, 1, ADA))
        assert address_book.version > before
        assert "Ben" not in [each.name for each in address_book.people]
