"""Read receipts by radio alone: they reach the sender over the air, through relays if necessary,
once each, and only from members of the group.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.inbound import reading
from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.outbound.package_state import list_reached
from fieldagent.extensions.radio.mesh.read_receipts import (
    AGAIN_FIRST,
    HOPS_RETENTION_S,
    OWN_PACKETS_MAX,
)
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Message
from fieldagent.wire.envelope import (
    AuthorMark,
    Entry,
    Envelope,
    Receipt,
    compute_item_digest,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.outcome import Outcome
from tests.extensions.radio.radio_kit import Station, on_air, only_what_is_posted, station, until
from tests.kit import START

A_C_B = "1 2\n2 3"
LINE = "1 2\n2 3\n3 4"
KEY, OTHER_KEY = (derive_key(bytes([number] * 32), "AIR") for number in (1, 2))


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(1.0, autojump_threshold=0)


async def team(stack: AsyncExitStack, path: Path, count: int, **how: Any) -> list[Station]:
    """Start the kits. Each one hears its neighbours."""
    kits = [await start_station(stack, path, number, **how) for number in range(1, count + 1)]
    for kit in kits:
        await kit.post(message={"content": f"here is {kit.number}"})
    await trio.sleep(900)
    return kits


async def start_station(stack: AsyncExitStack, path: Path, number: int, **how: Any) -> Station:
    return await stack.enter_async_context(station(path, number, path / f"node-{number}", **how))


async def read(kit: Station, text: str, by: str, stage: Stage = Stage.READ) -> None:
    """Mark the message as read, as a person at that kit does."""
    rows = kit.journal.read("SELECT request_id FROM inbound WHERE instr(body, ?)", text)
    assert await reading.store_reading(kit.journal, kit.inbox, rows[0][0], by, stage)
    kit.outbox.load_peer_entries()


def ladder(kit: Station, sequence: int) -> list[str]:
    """Return the stages that the kit shows, beyond the disks of kits."""
    known = outbound.find_by_sequence(kit.journal, sequence)
    assert known is not None
    stages = {"read", "programs", "radio"}
    return [step.text for step in list_reached(kit.journal, known) if step.stage in stages]


def events(kit: Station, sequence: int) -> int:
    """Return the number of events in `GET /api/events` about the Package."""
    ((count,),) = kit.journal.read(
        "SELECT count(*) FROM event WHERE topic = 'package' AND subject = ?", sequence
    )
    return int(count)


def count_owed_receipts(kit: Station) -> int:
    ((count,),) = kit.journal.read("SELECT count(*) FROM station_owed")
    return int(count)


async def post_with_receipt_request(kit: Station, text: str = "camp reached?") -> int:
    return await kit.post(message={"content": text}, receipt="read")


async def next_receipt_packet(kit: Station) -> Envelope:
    """Return the kit's next packet with a receipt about the stage of an item."""
    with trio.fail_after(7200):
        while True:
            await kit.outbox.wait_until_ready()
            transmission = kit.outbox.load(200)
            assert transmission is not None
            await kit.outbox.settle(transmission, Outcome.SENT)
            envelope = decode(transmission.body)
            if any(isinstance(each.content, Receipt) for each in envelope.entries):
                return envelope


async def check_no_more_receipts(kit: Station) -> None:
    with pytest.raises(trio.TooSlowError):
        await next_receipt_packet(kit)


def receipts_of(envelope: Envelope) -> list[Entry]:
    return [each for each in envelope.entries if isinstance(each.content, Receipt)]


async def test_read_receipt_reaches_sender_with_name_and_time(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path), AsyncExitStack() as stack:
        ada, ben = await team(stack, tmp_path, 2)
        sequence = await post_with_receipt_request(ada)
        await until(lambda: "camp reached?" in ben.messages())
        await trio.sleep(300)
        count = events(ada, sequence)
        at = int(ben.journal.clock.date(ben.journal.clock.now()))
        await read(ben, "camp reached?", "Ben")
        await until(lambda: ladder(ada, sequence) == ["read by Ben, at Kit 2's kit"], 60)
        known = outbound.find_by_sequence(ada.journal, sequence)
        assert known is not None
        (step,) = (each for each in list_reached(ada.journal, known) if each.stage == "read")
        assert step.at == at
        await until(lambda: not count_owed_receipts(ben), 60)
        assert events(ada, sequence) == count + 1


@pytest.mark.full
async def test_unrequested_read_receipt_travels_only_with_other_items(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path), AsyncExitStack() as stack:
        ada, ben = await team(stack, tmp_path, 2)
        sequence = await ada.post(message={"content": "camp reached"})
        await until(lambda: "camp reached" in ben.messages())
        # Wait until no beacon contains it.
        await trio.sleep(2 * 3600)
        await read(ben, "camp reached", "Ben")
        assert not ben.words.readings.is_due(ben.words.clock() + 86_400)
        await ben.post(message={"content": "on our way"})
        await until(lambda: ladder(ada, sequence) == ["read by Ben, at Kit 2's kit"], 60)
        await ada.post(message={"content": "good"})
        await until(lambda: not count_owed_receipts(ben))


@pytest.mark.full
@pytest.mark.parametrize("lost", [1, 2, 5])
@pytest.mark.parametrize("lost_entry", ["receipt", "confirmation"])
async def test_lost_read_receipt_is_repeated_until_confirmed(
    tmp_path: Path, clock: Any, lost: int, lost_entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_what_is_posted(monkeypatch)
    async with (
        station(tmp_path, 1, tmp_path / "nowhere") as ada,
        station(tmp_path, 2, tmp_path / "nowhere") as ben,
    ):
        sequence = await post_with_receipt_request(ada)
        package = outbound.find_by_sequence(ada.journal, sequence)
        assert package is not None
        transmission = ada.outbox.load(200)
        assert transmission is not None
        await ben.reception.receive(transmission.body)
        await read(ben, "camp reached?", "Ben")
        for _ in range(lost):
            word = await next_receipt_packet(ben)
            if lost_entry == "confirmation":
                await ada.reception.receive(encode([*receipts_of(word)], origin=2))
                await next_receipt_packet(ada)
        word = await next_receipt_packet(ben)
        await ada.reception.receive(encode([*receipts_of(word)], origin=2))
        answer = await next_receipt_packet(ada)
        await ben.reception.receive(encode([*receipts_of(answer)], origin=1))
        assert ladder(ada, sequence) == ["read by Ben, at station 2's kit"]
        assert count_owed_receipts(ben) == 0
        await check_no_more_receipts(ben)


@pytest.mark.full
async def test_read_receipts_are_relayed_by_kits_in_between(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path, count=4, topology=LINE), AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 4)
        sequence = await post_with_receipt_request(kits[0])
        await until(lambda: all("camp reached?" in kit.messages() for kit in kits[1:]))
        await read(kits[2], "camp reached?", "Cleo")
        await read(kits[3], "camp reached?", "Dora")
        both = ["read by Cleo, at Kit 3's kit", "read by Dora, at Kit 4's kit"]
        await until(lambda: sorted(ladder(kits[0], sequence)) == both, 600)
        await until(lambda: not count_owed_receipts(kits[2]) and not count_owed_receipts(kits[3]))
        await check_silence(kits)


@pytest.mark.full
async def test_read_receipt_arrives_once_over_lossy_air(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path, {"loss": 0.4, "duplicates": 0.2}, count=3, topology=A_C_B),
        AsyncExitStack() as stack,
    ):
        kits = await team(stack, tmp_path, 3)
        sequence = await post_with_receipt_request(kits[0])
        await until(lambda: "camp reached?" in kits[2].messages())
        await read(kits[2], "camp reached?", "Cleo")
        await until(lambda: len(ladder(kits[0], sequence)) == 1, 86_400)
        await until(lambda: not count_owed_receipts(kits[2]), 86_400)
        assert len(ladder(kits[0], sequence)) == 1
        await check_silence(kits)


async def check_silence(kits: list[Station]) -> None:
    """Check that no kit repeats the news."""
    await trio.sleep(600)
    for kit in kits:
        now = kit.words.clock()
        assert kit.words.readings.list_to_send(now + 86_400, has_other_content=True) == []


@pytest.mark.full
@pytest.mark.parametrize("restarts", [1, 2, 3])
async def test_read_receipt_survives_restart_of_any_kit(
    tmp_path: Path, clock: Any, restarts: int
) -> None:
    """The kit restarts before the news arrives, and again before its answer is certain."""
    async with on_air(tmp_path, count=3, topology=A_C_B) as sky, AsyncExitStack() as stack:
        others = {n: await start_station(stack, tmp_path, n) for n in {1, 2, 3} - {restarts}}
        kits = others
        async with station(tmp_path, restarts, tmp_path / f"node-{restarts}") as kit:
            kits[restarts] = kit
            for each in kits.values():
                await each.post(message={"content": f"here is {each.number}"})
            await trio.sleep(900)
            # Two names at the same moment collide. The second one comes with the next hour's
            # beacon.
            await until(lambda: 3 in inbound.read_station_names(kits[2].journal), 2 * 3600)
            sequence = await post_with_receipt_request(kits[1])
            await until(lambda: "camp reached?" in kits[3].messages())
            # The first transmission is lost.
            sky.air.away.add(3)
            await read(kits[3], "camp reached?", "Cleo")
            await trio.sleep(2 * AGAIN_FIRST)
        async with station(tmp_path, restarts, tmp_path / f"node-{restarts}") as kit:
            kits[restarts] = kit
            sky.air.away.clear()
            await until(lambda: len(ladder(kits[1], sequence)) == 1)
        async with station(tmp_path, restarts, tmp_path / f"node-{restarts}") as kit:
            kits[restarts] = kit
            await until(lambda: not count_owed_receipts(kits[3]), 2 * 3600)
            assert ladder(kits[1], sequence) == ["read by Cleo, at Kit 3's kit"]


async def test_all_stages_of_item_reach_sender(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path), AsyncExitStack() as stack:
        ada, ben = await team(stack, tmp_path, 2)
        sequence = await post_with_receipt_request(ada)
        await until(lambda: "camp reached?" in ben.messages())
        await read(ben, "camp reached?", "", Stage.PROGRAMS)
        await read(ben, "camp reached?", "Bea", Stage.RADIO)
        await read(ben, "camp reached?", "")
        stages = ["on Kit 2's radio", "read at Kit 2's kit", "with Kit 2's programs"]
        await until(lambda: sorted(ladder(ada, sequence)) == stages)
        await until(lambda: not count_owed_receipts(ben))


@pytest.mark.full
async def test_read_receipt_reaches_sender_that_was_away(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path) as sky, AsyncExitStack() as stack:
        ada, ben = await team(stack, tmp_path, 2)
        sequence = await post_with_receipt_request(ada)
        await until(lambda: "camp reached?" in ben.messages())
        sky.air.away.add(1)
        await read(ben, "camp reached?", "Ben")
        await trio.sleep(30 * 3600)
        sky.air.away.clear()
        await ada.post(message={"content": "back"})
        await until(lambda: len(ladder(ada, sequence)) == 1, 120)


@pytest.mark.parametrize("key", [None, OTHER_KEY], ids=["no tag", "tag of another key"])
async def test_read_receipt_without_tag_of_group_is_ignored(
    tmp_path: Path, clock: Any, key: bytes | None
) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere", keys=(KEY,)) as ada:
        sequence = await post_with_receipt_request(ada)
        entry = item_of(ada, sequence)
        said = Entry(
            sequence, Receipt(1, compute_item_digest(entry), Stage.READ, "Ben"), int(START)
        )
        await ada.reception.receive(encode([said], origin=2, key=key))
        assert ladder(ada, sequence) == []
        await ada.reception.receive(encode([said], origin=2, key=KEY))
        assert ladder(ada, sequence) == ["read by Ben, at station 2's kit"]


def item_of(kit: Station, sequence: int) -> Entry:
    transmission = kit.outbox.load(200)
    assert transmission is not None
    (item,) = (each for each in decode(transmission.body).entries if each.sequence == sequence)
    return item


@pytest.mark.parametrize(
    "said",
    [
        lambda entry: Receipt(1, b"else", Stage.READ, "Ben"),
        lambda entry: Receipt(1, b"", Stage.READ, "Ben"),
        lambda entry: Receipt(1, compute_item_digest(entry), Stage.HANDED_OVER, "SMS"),
        lambda entry: Receipt(1, compute_item_digest(entry), Stage.NOBODY, "no Ada here"),
        lambda entry: Receipt(1, compute_item_digest(entry), Stage.STORED, "Ben"),
        lambda entry: Receipt(3, compute_item_digest(entry), Stage.READ, "Ben"),
        lambda entry: Receipt(0, compute_item_digest(entry), Stage.READ, "Ben"),
    ],
    ids=["other item", "no item", "handed over", "not found", "stored", "other author", "hub"],
)
async def test_invalid_read_receipt_is_ignored(tmp_path: Path, clock: Any, said: Any) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as ada:
        sequence = await post_with_receipt_request(ada)
        word = Entry(sequence, said(item_of(ada, sequence)), int(START))
        await ada.reception.receive(encode([word], origin=2))
        assert ladder(ada, sequence) == []


async def test_read_receipt_by_radio_and_hub_is_shown_once(tmp_path: Path, clock: Any) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as ada:
        sequence = await post_with_receipt_request(ada)
        entry = item_of(ada, sequence)
        said = Receipt(1, compute_item_digest(entry), Stage.READ, "Ben")
        await ada.reception.receive(encode([Entry(sequence, said, int(START))], origin=2))

        def by_the_hub(db: Any) -> None:
            outbound.store_stage(db, sequence, 2, Stage.READ, "Ben", START)

        await ada.journal.commit(by_the_hub)
        assert ladder(ada, sequence) == ["read by Ben, at user 2's kit"]


async def test_only_matching_confirmation_of_sender_ends_receipt(
    tmp_path: Path, clock: Any
) -> None:
    async with station(tmp_path, 2, tmp_path / "nowhere") as ben:
        item = Entry(7, Message("camp reached?"), int(START), wants_receipt=True)
        await ben.reception.receive(encode([item], origin=1))
        await read(ben, "camp reached?", "Ben")
        (word,) = receipts_of(await next_receipt_packet(ben))
        other = Receipt(2, compute_item_digest(item))
        await ben.reception.receive(encode([Entry(7, other, int(START))], origin=1))
        right = Entry(7, Receipt(2, compute_item_digest(word)), int(START))
        await ben.reception.receive(encode([right], origin=5))
        assert count_owed_receipts(ben) == 1
        await ben.reception.receive(encode([right], origin=1))
        assert count_owed_receipts(ben) == 0


async def test_read_receipt_heard_again_is_not_relayed_again(tmp_path: Path, clock: Any) -> None:
    """Two kits that hear each other and the sender relay the news once for each transmission."""
    said = Entry(9, Receipt(1, b"item", Stage.READ, "Ben"), int(START))
    async with station(tmp_path, 3, tmp_path / "nowhere") as cleo:
        await cleo.reception.receive(encode([said], origin=2))
        passed = await next_receipt_packet(cleo)
        assert [*passed.entries][-2:] == [Entry(0, AuthorMark(2, 1)), said]
        for minutes in (1, 60):
            await trio.sleep(minutes * 60)
            await cleo.reception.receive(encode([Entry(0, AuthorMark(2, 1)), said], origin=4))
            assert (
                cleo.words.readings.list_to_send(cleo.words.clock() + 600, has_other_content=True)
                == []
            )
        # The route to the sender is longer by now.
        await trio.sleep(HOPS_RETENTION_S)
        await cleo.reception.receive(encode([Entry(0, AuthorMark(2, 1)), said], origin=4))
        passed = await next_receipt_packet(cleo)
        assert [*passed.entries][-2:] == [Entry(0, AuthorMark(2, 2)), said]


async def test_known_confirmation_is_repeated_under_station_of_author(
    tmp_path: Path, clock: Any
) -> None:
    said = Entry(9, Receipt(1, b"item", Stage.READ, "Ben"), int(START))
    answer = Entry(9, Receipt(2, compute_item_digest(said)), int(START))
    async with station(tmp_path, 3, tmp_path / "nowhere") as cleo:
        await cleo.reception.receive(encode([said], origin=2))
        await cleo.reception.receive(encode([answer], origin=1))
        # No station that waits for this confirmation is known here.
        await check_no_more_receipts(cleo)
        await cleo.reception.receive(encode([said], origin=2))
        passed = await next_receipt_packet(cleo)
        assert [*passed.entries][-2:] == [Entry(0, AuthorMark(1, 1)), answer]


async def test_read_receipt_is_not_relayed_beyond_radio_hops(tmp_path: Path, clock: Any) -> None:
    said = Entry(9, Receipt(1, b"item", Stage.READ, "Ben"), int(START))
    async with station(tmp_path, 3, tmp_path / "nowhere", hops=2) as cleo:
        await cleo.reception.receive(encode([Entry(0, AuthorMark(2, 1)), said], origin=4))
        readings, later = cleo.words.readings, cleo.words.clock() + 600
        assert readings.list_to_send(later, has_other_content=True) == []


@pytest.mark.full
async def test_peer_without_read_receipts_sends_and_gets_other_items(
    tmp_path: Path, clock: Any
) -> None:
    """The peer does not confirm read receipts. After some hours they only travel with other
    entries. The peer accepts the other entries of a packet.
    """
    async with station(tmp_path, 2, tmp_path / "nowhere") as ben:
        item = Entry(7, Message("camp reached?"), int(START), wants_receipt=True)
        await ben.reception.receive(encode([item], origin=1))
        await read(ben, "camp reached?", "Ben")
        for _ in range(OWN_PACKETS_MAX):
            envelope = await next_receipt_packet(ben)
        assert envelope.not_understood == ()
        await trio.sleep(7200)
        assert not ben.words.readings.is_due(ben.words.clock())
        await ben.reception.receive(
            encode([Entry(8, Message("are you there?"), int(START))], origin=1)
        )
        assert ben.messages() == ["camp reached?", "are you there?"]


@pytest.mark.parametrize(("size", "name"), [(51, "Benjamin So"), (200, "Benjamin Somebody")])
async def test_name_in_read_receipt_is_shortened_to_packet_size(
    tmp_path: Path, clock: Any, size: int, name: str
) -> None:
    how: Any = {"packet_bytes": size, "keys": (KEY,)}
    async with station(tmp_path, 2, tmp_path / "nowhere", **how) as ben:
        item = Entry(2**30, Message("camp reached?"), int(START), wants_receipt=True)
        await ben.reception.receive(encode([item], origin=1, key=KEY))
        await read(ben, "camp reached?", "Benjamin Somebody")
        await ben.outbox.wait_until_ready()
        (word,) = receipts_of(await next_receipt_packet(ben))
        assert isinstance(word.content, Receipt)
        assert word.content.text == name
        passed = encode([Entry(0, AuthorMark(2, 1), word.time), word], origin=3, key=KEY)
        assert len(passed) <= size


async def test_read_receipt_takes_documented_number_of_bytes(tmp_path: Path, clock: Any) -> None:
    """The sizes beside an item are those in docs/reference/radio-protocol.md."""
    at = int(START)
    item = Entry(2**30, Message("camp reached"), at)
    word = Entry(2**30 + 9, Receipt(7, b"abcd", Stage.READ, "Ben"), at + 60)
    answer = Entry(2**30 + 9, Receipt(9, b"abcd"), at + 60)
    alone = len(encode([item], origin=9))
    assert len(encode([item, word], origin=9)) - alone == 20
    assert len(encode([item, answer], origin=9)) - alone == 15
