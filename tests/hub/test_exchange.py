"""Items from agents and pushes: their receivers, their routes, single delivery, and receipts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import cbor2
import pytest

from fieldagent.hub.access.user_names import NAME_CHARACTERS_MAX
from fieldagent.hub.contract import Bearer
from fieldagent.hub.field import mobile_terminated, operator_handover
from fieldagent.hub.operator.contract import Verdict
from fieldagent.hub.operator.directip import DIRECTIP
from fieldagent.hub.operator.failures import FULL_PAUSE_S
from fieldagent.hub.records.forgetting import delete_old_items, expire_deliveries
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import CheckIn, Data, Location, Message
from fieldagent.package.payload import Identity
from fieldagent.package.reading import ITEM_BYTES_MAX
from fieldagent.wire.credit import CREDIT_BYTES, compute_credits
from fieldagent.wire.envelope import (
    Contact,
    Entry,
    Fragment,
    Introduction,
    Receipt,
    Report,
    Source,
    compute_fragments_digest,
    compute_item_digest,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.fragments import ASK_AFTER_S, join, split
from fieldagent.wire.link import BODY_BYTES
from fieldagent.wire.outcome import Outcome
from tests.hub.field import GRACE, MASTER, START, Field, collect, field_of, read, said

TIME = int(START)
FULL = DIRECTIP[-5]
MT_KEY = derive_key(MASTER, "MT")


@asynccontextmanager
async def field(store: Store) -> AsyncIterator[Field]:
    async with field_of(store) as alps:
        yield alps


async def test_item_reaches_other_kits_and_receipts_return_to_the_sender(store: Store) -> None:
    async with field(store) as alps:
        sent = Entry(77, Message("Hut open"), TIME)
        await alps.sends(1, sent)
        assert await collect(alps.mailbox(1)) == []
        (envelope,) = await collect(alps.mailbox(2))
        introduction, entry, source = envelope.entries
        ada = Identity("1", "Ada", "User", "ada@example.org", "1")
        assert (introduction.sequence, introduction.content) == (1, Introduction(ada))
        assert (entry.content, entry.time, envelope.origin) == (Message("Hut open"), TIME, 1)
        assert source == Entry(entry.sequence, Source(1, 77))
        (receipts,) = await collect(alps.mailbox(1))
        ben, receipt = receipts.entries
        assert isinstance(ben.content, Introduction)
        assert (receipt.sequence, receipt.content) == (77, Receipt(2, compute_item_digest(sent)))
        assert await collect(alps.mailbox(1)) == []


async def test_name_is_sent_once_and_again_after_a_change(store: Store) -> None:
    async with field(store) as alps:
        mailbox = alps.mailbox(2)
        for sequence, expected in ((1, [Introduction, Message]), (2, [Message])):
            await alps.sends(1, Entry(sequence, Message("x"), TIME))
            (envelope,) = await collect(mailbox)
            assert [type(e.content) for e in envelope.entries] == [*expected, Source]
        await store.commit(lambda db: db.execute("UPDATE member SET name = 'Eda' WHERE id = 1"))
        await alps.sends(1, Entry(3, Message("x"), TIME))
        (envelope,) = await collect(mailbox)
        kinds = [type(entry.content) for entry in envelope.entries]
        assert kinds == [Introduction, Message, Source]


async def test_item_over_two_channels_is_stored_once(store: Store) -> None:
    async with field(store) as alps:
        entry = Entry(77, Message("once"), TIME)
        await alps.sends(1, entry)
        await alps.sends(1, entry, bearer=Bearer.SATELLITE)
        await alps.sends(1, entry)
        assert said(await collect(alps.mailbox(2))) == [(1, "once")]
        await alps.sends(1, Entry(77, Message("number used anew"), TIME))
        assert said(await collect(alps.mailbox(2))) == [(1, "number used anew")]


async def test_relayed_item_has_its_true_sender_and_arrives_once(store: Store) -> None:
    async with field(store) as alps:
        entry = Entry(77, Message("from the valley"), TIME)
        await alps.sends(3, entry, origin=1)
        await alps.sends(1, entry)
        await alps.sends(2, entry, origin=1)
        assert said(await collect(alps.mailbox(2))) == [(1, "from the valley")]
        assert await alps.rows("SELECT source_device, source_sequence FROM item") == [(1, 77)]


async def test_relaying_kit_does_not_get_the_item_and_sends_a_receipt(store: Store) -> None:
    async with field(store) as alps:
        sent = Entry(77, Message("from the valley"), TIME)
        await alps.sends(3, sent, origin=1)
        assert await collect(alps.mailbox(3)) == []
        (envelope,) = await collect(alps.mailbox(1))
        assert envelope.entries[-1] == Entry(
            77, Receipt(3, compute_item_digest(sent)), int(alps.now)
        )


async def test_fragments_over_a_neighbour_and_directly_are_joined(store: Store) -> None:
    async with field(store) as alps:
        large = Entry(9, Data(bytes(700)), TIME)
        first, *others = split(encode([large]), 300)
        await alps.sends(1, Entry(9, first))
        for fragment in others:
            await alps.sends(3, Entry(9, fragment), origin=1)
        (envelope,) = await collect(alps.mailbox(2))
        assert envelope.entries[-2].content == Data(bytes(700))


@pytest.mark.parametrize("origin", [4711, 4])
async def test_relayed_item_of_an_unknown_sender_is_ignored(store: Store, origin: int) -> None:
    async with field(store) as alps:
        await store.commit(_add_workspace)
        await alps.sends(3, Entry(77, Message("who is this?"), TIME), origin=origin)
        assert await alps.rows("SELECT count(*) FROM item") == [(0,)]


def _add_workspace(db: Db) -> None:
    db.execute("INSERT INTO workspace (id, name, created) VALUES (2, 'Andes', 0)")
    db.execute(
        "INSERT INTO device (id, workspace, member, name, created) VALUES (4, 2, 1, 'kit 4', 0)"
    )


async def test_addressed_message_goes_to_one_and_location_to_all_others(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("to Ben"), target=2)
        await alps.push(Location(47.0, 8.0))
        addressed = await alps.rows("SELECT item, device FROM delivery ORDER BY item, device")
        first = addressed[0][0]
        assert [(item - first, device) for item, device in addressed] == [(0, 2), (1, 2), (1, 3)]


async def test_unconfirmed_item_waits_and_sos_is_sent_first(store: Store) -> None:
    async with field(store) as alps:
        await alps.sends(1, Entry(1, Message("first"), TIME))
        await alps.sends(3, Entry(1, Message("help"), TIME, sos=True))
        mailbox = alps.mailbox(2)
        outgoing = await mailbox.load(65_536)
        assert outgoing is not None
        assert said([read(outgoing)]) == [(3, "help")]
        await mailbox.return_message(outgoing, reason="the link ended")
        assert said(await collect(alps.mailbox(2))) == [(3, "help"), (1, "first")]


async def test_item_without_a_link_is_sent_over_satellite_after_the_grace(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("to Ben"), target=2)
        await alps.satellite()
        assert alps.sky.taken == []
        alps.now += GRACE
        await alps.satellite()
        ((imei, body),) = alps.sky.taken
        assert imei == "300000000000002"
        assert said([decode(body)]) == [(1, "to Ben")]
        await alps.satellite()
        assert len(alps.sky.taken) == 1
        assert await alps.rows("SELECT state, way FROM delivery") == [("sent", "satellite")]


async def test_text_over_satellite_is_packed_but_an_sos_is_plain(store: Store) -> None:
    async with field(store) as alps:
        for text, how in (("Come down before noon", {}), ("We come", {"sos": True})):
            await alps.push(Message(text), target=2, priority=100 if how else 12, **how)
            alps.now += GRACE
            await alps.satellite()
            bodies = [body for imei, body in alps.sky.taken if imei == alps.device(2).imei]
            envelope = decode(bodies[-1])
            ((_, content),) = said([envelope])
            assert (content, envelope.is_packed) == (text, not how)


async def test_packed_track_is_stored_as_single_locations_with_times(store: Store) -> None:
    """The hub unpacks the track, and so does a kit that gets the track over satellite."""
    times = [TIME + 300 * number for number in range(5)]
    moments = [datetime.fromtimestamp(at, UTC) for at in times]
    track = [
        Entry(70 + number, Location(46.5 + number / 1000, 7.25, moment), times[number])
        for number, moment in enumerate(moments)
    ]
    body = encode(track, is_packed=True)
    async with field(store) as alps:
        await alps.mobile_originated().take_in(alps.device(1), body, Bearer.SATELLITE)
        # Each position is the same as over another route.
        for entry in track:
            await alps.sends(1, entry)
        stored = await alps.rows("SELECT body FROM item ORDER BY id")
        assert [decode(bytes(entry)).entries[0].content for (entry,) in stored] == [
            each.content for each in track
        ]
        alps.now += GRACE
        await alps.satellite()
        bodies = [body for imei, body in alps.sky.taken if imei == alps.device(3).imei]
        envelope = decode(bodies[0], keys=[MT_KEY])
        assert envelope.is_packed
        locations = [each for each in envelope.entries if isinstance(each.content, Location)]
        assert [(each.time, each.content) for each in locations] == [
            (each.time, each.content) for each in track
        ]


async def test_linked_kit_gets_only_an_sos_over_satellite(store: Store) -> None:
    async with field(store) as alps:
        await store.commit(
            lambda db: db.execute("INSERT INTO process VALUES ('a', ?)", START + 9999)
        )
        await store.commit(lambda db: db.execute("INSERT INTO lease VALUES (2, 'a', 1)"))
        await alps.push(Message("to Ben"), target=2)
        alps.now += 2 * GRACE
        await alps.satellite()
        assert alps.sky.taken == []
        await alps.sends(3, Entry(1, Message("help"), TIME, sos=True), key=derive_key(MASTER, "MO"))
        await alps.satellite()
        assert "help" in [text for _, text in said([decode(body) for _, body in alps.sky.taken])]


async def test_kit_item_is_sent_over_satellite_only_to_members_with_that_option(
    store: Store,
) -> None:
    async with field(store) as alps:
        await alps.sends(1, Entry(1, Message("hello all"), TIME))
        alps.now += GRACE
        await alps.satellite()
        assert [imei for imei, _ in alps.sky.taken] == ["300000000000003"]


async def test_receipt_over_satellite_confirms_and_is_sent_to_the_sender(store: Store) -> None:
    async with field(store) as alps:
        sent = Entry(5, Message("hello"), TIME)
        await alps.sends(1, sent)
        alps.now += GRACE
        await alps.satellite()
        ((_, body),) = alps.sky.taken
        (entry,) = [
            e for e in decode(body, keys=[MT_KEY]).entries if isinstance(e.content, Message)
        ]
        key = derive_key(MASTER, "MO")
        receipt = Entry(entry.sequence, Receipt(digest=compute_item_digest(entry)), TIME + 70)
        await alps.sends(3, receipt, bearer=Bearer.SATELLITE, key=key)
        await alps.sends(3, receipt, bearer=Bearer.SATELLITE, key=key)
        assert await alps.rows("SELECT state FROM delivery WHERE device = 3") == [("stored",)]
        (envelope,) = await collect(alps.mailbox(1))
        receipts = [e for e in envelope.entries if isinstance(e.content, Receipt)]
        assert [(e.sequence, e.content) for e in receipts] == [
            (5, Receipt(3, compute_item_digest(sent)))
        ]


async def test_untagged_message_from_device_with_key_is_rejected(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with field(store) as alps:
        await alps.sends(3, Entry(1, Message("forged"), TIME), bearer=Bearer.SATELLITE)
        assert await alps.rows("SELECT * FROM item") == []
        assert "tag is missing" in caplog.text


@pytest.mark.parametrize("bearer", list(Bearer))
async def test_contact_details_of_the_author_are_sent_with_a_message(
    store: Store, bearer: Bearer
) -> None:
    async with field(store) as alps:
        kept = '{"phone": "+41 79 000", "email": "ada@example.org"}'
        await alps.push(Message("call me"), target=2, contact=kept)
        await alps.push(Message("no more than this"), target=2)
        if bearer is Bearer.IP:
            (envelope,) = await collect(alps.mailbox(2))
        else:
            alps.now += GRACE + 1
            await alps.satellite()
            ((_, body),) = alps.sky.taken
            envelope = decode(body)
        contacts = [
            (e.sequence, e.content) for e in envelope.entries if isinstance(e.content, Contact)
        ]
        assert contacts == [(1, Contact("+41 79 000", "ada@example.org"))]


@pytest.mark.parametrize("outcome", [Outcome.NOT_SENT, Outcome.DOUBTFUL])
async def test_failed_operator_call_is_retried_with_the_same_bytes(
    store: Store, outcome: Outcome
) -> None:
    async with field(store) as alps:
        alps.sky.verdicts = [Verdict(outcome, FULL._replace(retry_after=900.0))]
        await alps.push(Message("to Ben"), target=2)
        alps.now += GRACE
        await alps.satellite()
        await alps.satellite()
        assert len(alps.sky.calls) == 1
        alps.now += 901
        await alps.satellite()
        assert alps.sky.calls[0] == alps.sky.calls[1]
        assert len(alps.sky.taken) == 1


async def test_full_queue_of_one_device_does_not_block_others_and_keeps_order(store: Store) -> None:
    async with field(store) as alps:
        for number in range(20):
            await alps.push(Data(bytes([number]) * 240), target=2)
        await alps.push(Message("to Cleo"), target=3)
        alps.now += GRACE
        for _ in range(20):
            await store.commit(lambda db: mobile_terminated.pack_due_messages(db, alps.now))
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, FULL)]
        await alps.satellite()
        assert [imei for imei, _ in alps.sky.taken] == ["300000000000003"]
        await alps.satellite()
        assert len(alps.sky.calls) == 2
        alps.now += FULL_PAUSE_S + 1
        await alps.satellite()
        assert alps.sky.taken[-1][1] == alps.sky.calls[0]


async def test_largest_item_with_longest_name_is_sent_over_ip(store: Store) -> None:
    async with field(store) as alps:
        longest = "x" * NAME_CHARACTERS_MAX
        await store.commit(
            lambda db: db.execute("UPDATE member SET name = ? WHERE id = 1", longest)
        )
        largest = Data(bytes(ITEM_BYTES_MAX))
        await alps.push(largest, target=2)
        (envelope,) = await collect(alps.mailbox(2), BODY_BYTES)
        assert envelope.entries[-1].content == largest


async def test_name_is_sent_before_an_item_that_leaves_no_space(store: Store) -> None:
    async with field(store) as alps:
        item = Data(bytes(240))
        await alps.push(item, target=2)
        alps.now += GRACE
        for _ in range(3):
            await alps.satellite()
        first, second = (decode(body) for _, body in alps.sky.taken)
        assert [type(entry.content) for entry in first.entries] == [Introduction]
        assert [entry.content for entry in second.entries] == [item]


async def test_mt_message_claimed_by_a_dead_process_is_sent_again(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("to Ben"), target=2)
        alps.now += GRACE
        await store.commit(lambda db: mobile_terminated.pack_due_messages(db, alps.now))
        assert await store.commit(lambda db: operator_handover.claim_messages(db, alps.now))
        await alps.satellite()
        assert alps.sky.calls == []
        alps.now += operator_handover.CALL_SECONDS
        await alps.satellite()
        assert len(alps.sky.taken) == 1


async def test_mt_message_delivered_over_the_link_is_not_sent_over_satellite(store: Store) -> None:
    async with field(store) as alps:
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, FULL)]
        await alps.push(Message("to Ben"), target=2)
        alps.now += GRACE
        await alps.satellite()
        assert said(await collect(alps.mailbox(2))) == [(1, "to Ben")]
        alps.now += 9999
        await alps.satellite()
        assert len(alps.sky.calls) == 1
        assert await alps.rows("SELECT * FROM mobile_terminated") == []


async def test_receipt_in_a_cancelled_mt_message_is_sent_over_the_link(store: Store) -> None:
    async with field(store) as alps:
        alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, FULL)]
        await alps.push(Message("to Ben"), target=2)
        alps.now += GRACE
        await alps.sends(2, Entry(9, CheckIn(3600), TIME), bearer=Bearer.SATELLITE)
        await alps.satellite()
        assert said(await collect(alps.mailbox(2))) == [(1, "to Ben")]
        alps.now += 9999
        await alps.satellite()
        assert len(alps.sky.calls) == 1
        (envelope,) = await collect(alps.mailbox(2))
        assert [(e.sequence, type(e.content)) for e in envelope.entries] == [(9, Receipt)]


async def exceed_daily_credits(alps: Field, store: Store) -> None:
    """Make two messages due, while the credits outside the SOS reserve are enough for one."""
    await store.commit(
        lambda db: db.execute("UPDATE device SET credits_per_day = 6, sos_reserve = 3")
    )
    await alps.push(Message("x" * 100), target=2)
    await alps.push(Message("y" * 100), target=2)
    alps.now += GRACE


async def test_daily_credits_limit_messages_and_the_reserve_is_for_sos(store: Store) -> None:
    async with field(store) as alps:
        await exceed_daily_credits(alps, store)
        for _ in range(3):
            await alps.satellite()
        assert len(alps.sky.taken) == 1
        await alps.push(Message("help"), target=2, sos=True, priority=100)
        await alps.satellite()
        assert len(alps.sky.taken) == 2
        assert said([decode(alps.sky.taken[1][1])])[0] == (1, "help")
        alps.now += 86_400
        await alps.satellite()
        assert said([decode(alps.sky.taken[2][1])]) == [(1, "y" * 100)]


async def test_unauthenticated_sos_leaves_half_of_the_reserve(store: Store) -> None:
    """Anyone can send as a device without a key, for example in the name of another kit."""
    async with field(store) as alps:
        await store.commit(
            lambda db: db.execute("UPDATE device SET credits_per_day = 8, sos_reserve = 8")
        )
        for n in range(9):
            await alps.push(Message(f"forged {n} " * 4), target=2, sos=True, priority=100)
        await store.commit(lambda db: db.execute("UPDATE item SET unauthenticated = 1"))
        for _ in range(9):
            await alps.satellite()
        forged = [body for _, body in alps.sky.taken]
        assert forged
        assert sum(compute_credits(len(body)) for body in forged) <= 4
        await alps.push(Message("help"), target=2, sos=True, priority=100)
        await alps.satellite()
        assert said([decode(alps.sky.taken[-1][1])])[-1][1] == "help"
        alps.now += 86_400
        await alps.satellite()
        assert len(alps.sky.taken) > len(forged) + 1


async def test_sos_on_reserve_credits_is_sent_without_other_items(store: Store) -> None:
    async with field(store) as alps:
        await store.commit(
            lambda db: db.execute("UPDATE device SET credits_per_day = 12, sos_reserve = 8")
        )
        await alps.push(Message("x" * 150), target=2)
        alps.now += GRACE
        await alps.satellite()
        for n in range(8):
            await alps.push(Message(f"{n} " * 50), target=2)
        alps.now += GRACE
        await alps.push(Message("help"), target=2, sos=True, priority=100)
        await alps.satellite()
        _, body = alps.sky.taken[-1]
        assert said([decode(body)]) == [(1, "help")]
        assert len(body) <= CREDIT_BYTES


@pytest.mark.parametrize(("budget", "goes"), [(22, 0), (23, 21)])
async def test_name_before_a_large_item_uses_no_reserve_credits(
    store: Store, budget: int, goes: int
) -> None:
    """The item's fragments cost 20 credits, and the sender's name costs one more."""
    async with field(store) as alps:
        await store.commit(
            lambda db: db.execute("UPDATE device SET credits_per_day = ?, sos_reserve = 2", budget)
        )
        await alps.push(Data(bytes(range(256)) * 3), target=2)
        alps.now += GRACE
        for _ in range(8):
            await alps.satellite()
        assert sum(compute_credits(len(body)) for _, body in alps.sky.taken) == goes


async def test_check_in_is_confirmed_while_a_message_waits_for_credits(store: Store) -> None:
    async with field(store) as alps:
        await exceed_daily_credits(alps, store)
        await alps.sends(2, Entry(9, CheckIn(3600), TIME), bearer=Bearer.SATELLITE)
        await alps.satellite()
        await alps.satellite()
        kinds = [type(e.content) for _, body in alps.sky.taken for e in decode(body).entries]
        assert kinds.count(Receipt) == 1
        assert kinds.count(Message) == 1


async def test_large_item_is_fragmented_and_missing_fragments_are_sent_again(store: Store) -> None:
    async with field(store) as alps:
        large = Data(bytes(range(256)) * 3)
        await alps.push(large, target=2)
        alps.now += GRACE
        for _ in range(8):
            await alps.satellite()
        parts: dict[int, bytes] = {}
        envelopes = [decode(body) for _, body in alps.sky.taken]
        assert isinstance(envelopes[0].entries[0].content, Introduction)
        fragments = [e.entries[0] for e in envelopes[1:]]
        for entry in fragments:
            assert isinstance(entry.content, Fragment)
            parts[entry.content.index] = entry.content.payload
        (whole,) = decode(join(parts)).entries
        assert whole.content == large
        before = len(alps.sky.taken)
        arrived = frozenset(parts) - {1}
        digest = compute_fragments_digest(parts[index] for index in sorted(arrived))
        for _ in range(2):  # the kit asks again while the operator accepts nothing
            alps.sky.verdicts = [Verdict(Outcome.NOT_SENT, FULL)]
            asked = Entry(whole.sequence, Report(len(parts), arrived, digest), int(alps.now))
            await alps.sends(2, asked)
            await alps.satellite()
            alps.now += 3600
        for _ in range(2):
            await alps.satellite()
        assert [body for _, body in alps.sky.taken[before:]] == [alps.sky.taken[2][1]]


async def test_fragments_from_a_kit_are_joined_and_missing_ones_requested(store: Store) -> None:
    async with field(store) as alps:
        large = Entry(9, Data(bytes(700)), TIME)
        first, *others = split(encode([large]), 300)
        for fragment in others:
            await alps.sends(2, Entry(9, fragment), bearer=Bearer.SATELLITE)
        alps.now += ASK_AFTER_S + 1
        for _ in range(2):
            await store.commit(lambda db: mobile_terminated.ask_for_fragments(db, alps.now))
        await alps.satellite()
        ((_, body),) = alps.sky.taken
        arrived = sorted(others, key=lambda fragment: fragment.index)
        digest = compute_fragments_digest(fragment.payload for fragment in arrived)
        expected = Report(len(others) + 1, frozenset(f.index for f in others), digest)
        assert [(e.sequence, e.content) for e in decode(body).entries] == [(9, expected)]
        await alps.sends(2, Entry(9, first), bearer=Bearer.SATELLITE)
        (envelope,) = await collect(alps.mailbox(1))
        assert [e.content for e in envelope.entries[-2:]] == [Data(bytes(700)), Source(2, 9)]


@pytest.mark.parametrize("enough", [False, True])
async def test_requests_and_resent_fragments_respect_the_daily_credits(
    store: Store, enough: bool
) -> None:
    """The limit holds for the hub's own request and for fragments that a kit requests."""
    async with field(store) as alps:
        await alps.push(Data(bytes(range(256)) * 3), target=2)
        alps.now += GRACE
        for _ in range(8):
            await alps.satellite()
        costs = [compute_credits(len(body)) for _, body in alps.sky.taken]
        _, (_, part), *others = alps.sky.taken
        sequence = decode(part).entries[0].sequence
        first, *_ = split(encode([Entry(9, Data(bytes(700)), TIME)]), 300)
        await alps.sends(2, Entry(9, first), bearer=Bearer.SATELLITE)
        # For the request and one fragment.
        budget = sum(costs) + (1 + costs[1]) * enough
        await store.commit(lambda db: db.execute("UPDATE device SET credits_per_day = ?", budget))
        alps.now += ASK_AFTER_S + 1
        asked = await store.commit(lambda db: mobile_terminated.ask_for_fragments(db, alps.now))
        assert asked == enough
        none = Report(1 + len(others), frozenset(), compute_fragments_digest([]))
        await alps.sends(2, Entry(sequence, none, int(alps.now)))
        for _ in range(4):
            await alps.satellite()
        assert len(alps.sky.taken) - len(costs) == 2 * enough


@pytest.mark.full
async def test_missing_fragment_is_requested_at_growing_intervals_and_then_given_up(
    store: Store,
) -> None:
    async with field(store) as alps:
        first, *_ = split(encode([Entry(9, Data(bytes(700)), TIME)]), 300)
        await alps.sends(2, Entry(9, first), bearer=Bearer.SATELLITE)
        asked = []
        for minute in range(3 * 24 * 60):
            alps.now += 60
            if await store.commit(lambda db: mobile_terminated.ask_for_fragments(db, alps.now)):
                asked.append(minute + 1)
        assert asked == [11, 44, 176, 704, 2816]


async def test_fragments_of_a_reused_number_are_joined_when_complete(store: Store) -> None:
    async with field(store) as alps:
        lost, newer = (
            split(encode([Entry(9, Data(bytes([fill]) * 700), TIME)]), 300) for fill in (1, 2)
        )
        for part in [lost[0], *newer[1:], newer[0], *newer[1:]]:
            await alps.sends(2, Entry(9, part))
        (envelope,) = await collect(alps.mailbox(1))
        assert [e.content for e in envelope.entries[-2:]] == [Data(b"\2" * 700), Source(2, 9)]


async def test_joined_fragments_with_unknown_entry_are_stored_as_dead_letter(store: Store) -> None:
    async with field(store) as alps:
        of_a_later_version = cbor2.dumps([1, 0, 0, [1, 9, 0, "known"], [3_000, 10, bytes(700)]])
        for part in split(of_a_later_version, 300):
            await alps.sends(2, Entry(9, part), bearer=Bearer.SATELLITE)
        assert said(await collect(alps.mailbox(1))) == [(2, "known")]
        ((body, reason),) = await alps.rows("SELECT body, reason FROM dead_letter")
        assert (bytes(body), reason) == (of_a_later_version, "entry 1: kind 3000 is unknown")
        assert not await alps.rows("SELECT 1 FROM slice")


async def test_time_to_live_and_collapse_key_apply_to_pushes(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("old"), target=2, collapse_key=4)
        await alps.push(Message("new"), target=2, collapse_key=4)
        await alps.push(Message("stale"), target=2, expires=alps.now + 10)
        alps.now += 11
        assert await store.commit(lambda db: expire_deliveries(db, alps.now)) == 1
        assert said(await collect(alps.mailbox(2))) == [(1, "new")]
        states = await alps.rows("SELECT state FROM delivery ORDER BY item")
        assert states == [("collapsed",), ("stored",), ("expired",)]


async def test_delivered_items_are_forgotten_and_waiting_items_are_kept(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Message("delivered"), target=2)
        await collect(alps.mailbox(2))
        await alps.push(Message("waits"), target=2)
        alps.now += 1000
        assert (
            await store.commit(lambda db: delete_old_items(db, before=alps.now, now=alps.now)) == 1
        )
        assert said(await collect(alps.mailbox(2))) == [(1, "waits")]
