"""A confirmation at the hub ends only the item with that number and content."""

from __future__ import annotations

from dataclasses import replace

from fieldagent.hub.contract import Bearer
from fieldagent.hub.records.forgetting import delete_old_items
from fieldagent.hub.store.contract import Store
from fieldagent.package.package import Data, Message
from fieldagent.wire.envelope import (
    Entry,
    Receipt,
    Report,
    compute_fragments_digest,
    compute_item_digest,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.fragments import split
from tests.hub.field import MASTER, Field, collect
from tests.hub.field import field_of as field

TIME = 1_790_000_000
KEY, MT_KEY = derive_key(MASTER, "MO"), derive_key(MASTER, "MT")
DAY = 86_400.0


async def send_over_satellite(alps: Field) -> Entry:
    """Return the hub's last entry to Cleo's kit."""
    await alps.satellite()
    (entry,) = [
        entry
        for entry in decode(alps.sky.taken[-1][1], keys=[MT_KEY]).entries
        if isinstance(entry.content, Message)
    ]
    return entry


async def list_states(alps: Field) -> list[str]:
    return [state for (state,) in await alps.rows("SELECT state FROM delivery ORDER BY sequence")]


async def test_receipt_from_before_a_restored_backup_confirms_nothing(store: Store) -> None:
    """The restored database assigns numbers that kits have already confirmed."""
    async with field(store) as alps:
        await alps.push(Message("lost with the database"), target=3)
        alps.now += 60
        lost = await send_over_satellite(alps)
        await store.commit(lambda db: db.execute("DELETE FROM item"))
        await store.commit(lambda db: db.execute("UPDATE device SET next_sequence = 1"))
        await alps.push(Message("nobody has this"), target=3)
        alps.now += 60
        fresh = await send_over_satellite(alps)
        assert fresh.sequence == lost.sequence
        hub = alps.mobile_originated()
        late = Entry(fresh.sequence, Receipt(digest=compute_item_digest(lost)), TIME)
        body = encode([late], key=KEY)
        await hub.take_in(alps.device(3), body, Bearer.SATELLITE)
        assert (await list_states(alps), hub.mismatches) == (["sent"], 1)
        right = replace(late, content=Receipt(digest=compute_item_digest(fresh)))
        await alps.sends(3, right, bearer=Bearer.SATELLITE, key=KEY)
        assert await list_states(alps) == ["stored"]


async def test_sos_of_a_new_journal_is_confirmed_despite_a_reused_number(store: Store) -> None:
    async with field(store) as alps:
        await store.commit(lambda db: db.execute("UPDATE device SET journal = 9 WHERE id = 3"))
        for text in ("help", "help again"):
            entry = Entry(5, Message(text), TIME, sos=True)
            await alps.sends(3, entry, bearer=Bearer.SATELLITE, key=KEY)
            (envelope,) = await collect(alps.mailbox(3))
            assert envelope.entries[-1].content == Receipt(0, compute_item_digest(entry))


async def test_replayed_fragment_report_causes_one_resend(store: Store) -> None:
    async with field(store) as alps:
        await alps.push(Data(bytes(700)), target=3)
        alps.now += 60
        for _ in range(4):
            await alps.satellite()
        whole = decode(alps.sky.taken[-1][1], keys=[MT_KEY]).entries[0]
        ((body, sender),) = await alps.rows("SELECT body, sender FROM item")
        (stored,) = decode(bytes(body)).entries
        item = replace(stored, sequence=whole.sequence)
        slices = [part.payload for part in split(encode([item], origin=sender), 340 - 9)]
        said = Report(len(slices), frozenset([0]), compute_fragments_digest(slices[:1]))
        recording = encode([Entry(whole.sequence, said, TIME)], key=KEY)
        before = len(alps.sky.taken)
        for _ in range(5):
            hub = alps.mobile_originated()
            await hub.take_in(alps.device(3), recording, Bearer.SATELLITE)
            for _ in range(4):
                await alps.satellite()
        assert len(alps.sky.taken) - before == len(slices) - 1
        other = replace(said, digest=b"else")
        body = encode([Entry(whole.sequence, other, TIME + 1)], key=KEY)
        await hub.take_in(alps.device(3), body, Bearer.SATELLITE)
        assert hub.mismatches == 1


async def test_replayed_tagged_sos_is_ignored_after_60_days(store: Store) -> None:
    async with field(store) as alps:
        sos = Entry(5, Message("help"), TIME, sos=True)
        for later in (0.0, 60 * DAY):
            alps.now += later
            await store.commit(
                lambda db: delete_old_items(db, before=alps.now - 30 * DAY, now=alps.now)
            )
            await alps.sends(3, sos, bearer=Bearer.SATELLITE, key=KEY)
        assert await alps.rows("SELECT count(*) FROM item") == [(1,)]
