"""A team on one air: an SOS reaches everybody, over others where need be; and what asks for the hub
is asked for until the hub has it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from fieldagent.agent.journal import history, outbound
from fieldagent.agent.mesh.rounds import HUB_AGAIN_MAX
from fieldagent.agent.outbound.piggyback import PATIENCE
from fieldagent.package.package import Channel, Message, Status
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    RelayRequest,
    Source,
    decode,
    digest_of,
    digest_of_slices,
    encode,
)
from fieldagent.wire.outcome import Outcome
from tests.agent.channels.radio_kit import Station, on_air, only_what_is_posted, station, until
from tests.kit import START

CELLULAR, SATELLITE = Channel.CELLULAR, Channel.SATELLITE
LINE = "1 2\n2 3\n3 4"
A_C_B = "1 2\n2 3"


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(1.0, autojump_threshold=0)


async def team(stack: AsyncExitStack, path: Path, count: int, **how: Any) -> list[Station]:
    """Each has been heard by those in its earshot."""
    kits = [
        await stack.enter_async_context(station(path, number, path / f"node-{number}", **how))
        for number in range(1, count + 1)
    ]
    for kit in kits:
        await kit.post(message={"content": f"here is {kit.number}"})
    await trio.sleep(900)
    return kits


async def sos(kit: Station) -> int:
    return await kit.post(message={"content": "help"}, priority=100)


def has_it(kits: list[Station]) -> list[int]:
    return [kit.number for kit in kits if kit.messages().count("help") == 1]


async def test_an_sos_crosses_kits_that_do_not_hear_its_sender(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path, count=4, topology=LINE), AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 4)
        await sos(kits[0])
        await until(lambda: has_it(kits) == [2, 3, 4], 600)
        await trio.sleep(3600)
        assert has_it(kits) == [2, 3, 4], "and each has it once"


@pytest.mark.parametrize(("hops", "reached"), [(1, [2]), (2, [2, 3])])
async def test_it_crosses_no_more_kits_than_radio_hops_says(
    tmp_path: Path, clock: Any, hops: int, reached: list[int]
) -> None:
    async with on_air(tmp_path, count=4, topology=LINE), AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 4, hops=hops)
        await sos(kits[0])
        await trio.sleep(3600)
        assert has_it(kits) == reached


async def test_on_a_bad_air_everybody_has_it_and_the_sender_knows(
    tmp_path: Path, clock: Any
) -> None:
    all_hear_all = "\n".join(f"{one} > {other}" for one, other in permutations(range(1, 6), 2))
    async with (
        on_air(tmp_path, {"loss": 0.4}, count=5, topology=all_hear_all) as sky,
        AsyncExitStack() as stack,
    ):
        kits = await team(stack, tmp_path, 5)
        losses = sky.air.losses
        assert losses is not None
        # One is sure to miss what goes first.
        losses |= dict.fromkeys(((each, 5) for each in range(1, 5)), 1.0)
        sequence = await sos(kits[0])

        def sent_again() -> bool:
            package = outbound.by_sequence(kits[0].journal, sequence)
            assert package is not None
            lines = history.lines(kits[0].journal, package, [])
            return any(line.event == "sent again" and "station" in line.detail for line in lines)

        await until(sent_again)
        losses |= dict.fromkeys(losses, 0.0)
        await until(lambda: has_it(kits) == [2, 3, 4, 5])

        def confirmed() -> bool:
            found = outbound.receipts(kits[0].journal, sequence)
            return {storage.by.id for storage in found} == {"2", "3", "4", "5"}

        await until(confirmed)


async def test_who_comes_into_earshot_later_gets_what_the_others_have(
    tmp_path: Path, clock: Any
) -> None:
    """Its sender was started anew meanwhile."""
    async with on_air(tmp_path, count=3):
        async with AsyncExitStack() as stack:
            kits = await team(stack, tmp_path, 2)
            await sos(kits[0])
            await until(lambda: has_it(kits) == [2])
        async with (
            station(tmp_path, 1, tmp_path / "node-1"),
            station(tmp_path, 3, tmp_path / "node-3") as late,
        ):
            await late.post(message={"content": "I am back"})
            await until(lambda: late.messages().count("help") == 1)


@pytest.mark.parametrize("others", [0, 1])
async def test_who_only_listens_and_was_away_gets_what_it_missed(
    tmp_path: Path, clock: Any, others: int
) -> None:
    """Off for less than the hour after which it would be no neighbour any more, and longer than
    what goes round is repeated; its user sends nothing."""
    async with on_air(tmp_path, count=3) as sky, AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 1 + others)
        async with station(tmp_path, 3, tmp_path / "node-3") as ben:
            await until(lambda: 3 in kits[0].neighbours.in_earshot())
            await kits[0].outcome(await kits[0].post())
            await until(lambda: "hello" in ben.messages())
        sky.nodes.unplug(sky.nodes.sockets[2])
        missed = await kits[0].post(message={"content": "the hut is full"})
        await trio.sleep(2400)
        sky.nodes.plug(sky.nodes.sockets[2])
        async with station(tmp_path, 3, tmp_path / "node-3") as ben:
            await until(lambda: "the hut is full" in ben.messages(), 200)
            assert await kits[0].outcome(missed) is Status.DELIVERED


def entry(number: int) -> Entry:
    return Entry(number, Message("help"), int(START), sos=True)


async def said(kit: Station) -> list[Entry]:
    """What it would transmit now; it is as good as transmitted."""
    transmission = kit.outbox.load(200)
    if transmission is None:
        return []
    await kit.outbox.settle(transmission, Outcome.SENT)
    return [*decode(transmission.body).entries]


@pytest.mark.parametrize(("lacking", "answers"), [([], True), ([2], True), ([9], False)])
async def test_who_is_not_named_as_lacking_it_is_silent(
    tmp_path: Path, clock: Any, lacking: list[int], answers: bool
) -> None:
    item, ack = entry(7), Entry(7, Ack(5, digest=digest_of(entry(7))))
    named = [Entry(7, Source(number, 0)) for number in lacking]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([item, *named], origin=5))
        assert ack in await said(kit), "what is new here is confirmed in any case"
        await kit.reception.receive(encode([item, *named], origin=5))
        assert (ack in await said(kit)) is answers


@pytest.mark.parametrize(("sos", "waits"), [(False, True), (True, False)])
async def test_who_hears_that_another_has_it_waits_for_a_packet_to_ride_in(
    tmp_path: Path, clock: Any, sos: bool, waits: bool
) -> None:
    item = Entry(7, Message("x"), int(START), sos=sos)
    ack = Entry(7, Ack(5, digest=digest_of(item)))
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([item], origin=5))
        assert kit.words.is_worth_sending(), "it may be the first to say so"
        await kit.reception.receive(encode([ack], origin=6))
        assert kit.words.is_worth_sending() is not waits
        await trio.sleep(1.5 * PATIENCE)
        assert kit.words.is_worth_sending()
        assert ack in await said(kit)
        assert not kit.words.is_worth_sending()


async def test_it_rides_along_as_soon_as_something_goes(tmp_path: Path, clock: Any) -> None:
    item = Entry(7, Message("x"), int(START))
    ack = Entry(7, Ack(5, digest=digest_of(item)))
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([item], origin=5))
        await kit.reception.receive(encode([ack], origin=6))
        await kit.post()
        assert ack in await said(kit)


async def test_an_older_peer_that_tells_no_digest_has_it_too(tmp_path: Path, clock: Any) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([Entry(1, Message("here"))], origin=4))
        await kit.reception.receive(encode([Entry(1, Message("here"))], origin=5))
        sequence = await sos(kit)
        assert [each for each in await said(kit) if each.sequence == sequence]
        for number in (4, 5):
            await kit.reception.receive(encode([Entry(sequence, Ack(1))], origin=number))
        await until(lambda: bool(kit.rounds.ours()))
        (item,) = kit.rounds.ours()
        assert kit.rounds.missing(item) == []


async def test_who_comes_back_is_not_given_all_at_once(tmp_path: Path, clock: Any) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([Entry(1, Message("here"))], origin=4))
        for number in range(30):
            sequence = await kit.post(message={"content": f"note {number}"})
            await said(kit)
            await kit.reception.receive(encode([Entry(sequence, Ack(1))], origin=4))
        await until(lambda: len(kit.rounds.ours()) == 30)
        await kit.reception.receive(encode([Entry(1, Message("back"))], origin=5))
        with trio.move_on_after(60):
            while True:
                await kit.outbox.ready()
                await said(kit)
                await trio.sleep(0.1)
        tries = [each.tries for each in kit.rounds.ours()]
        assert 5 <= sum(tries) <= 14
        assert max(tries) <= 2


async def test_what_is_repeated_names_who_does_and_who_lacks_it(tmp_path: Path, clock: Any) -> None:
    """And is of its sender, as far as a peer of before this can tell."""
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([Entry(1, Ack(9))], origin=6))
        await kit.reception.receive(encode([entry(7), Entry(0, RelayRequest())], origin=5))
        found: list[Any] = []
        with trio.fail_after(60):
            while Entry(7, Source(6, 0)) not in found:
                await kit.outbox.ready()
                transmission = kit.outbox.load(200)
                assert transmission is not None
                await kit.outbox.settle(transmission, Outcome.SENT)
                envelope = decode(transmission.body)
                found = [*envelope.entries]
        assert envelope.origin == 5
        request, mark = Entry(0, RelayRequest()), Entry(0, Source(2, 1))
        assert found == [entry(7), request, mark, Entry(7, Source(6, 0))]
        assert envelope.not_understood == ()
        assert kit.neighbours.in_earshot() == [6, 5]


async def test_a_neighbour_that_repeats_ours_has_it(tmp_path: Path, clock: Any) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as kit:
        sequence = await sos(kit)
        (item,) = (each for each in await said(kit) if each.sequence == sequence)
        await kit.reception.receive(encode([item, Entry(0, Source(4, 1))], origin=1))
        assert [each.by.id for each in outbound.receipts(kit.journal, sequence)] == ["4"]
        assert kit.neighbours.in_earshot() == [4]
        assert kit.messages() == []


async def bring(kit: Station, found: list[str]) -> None:
    """The carrier's link to the hub, which takes what comes."""
    outbox = kit.outboxes[CELLULAR]
    while True:
        await outbox.ready()
        transmission = outbox.load(4096)
        if transmission is not None:
            contents = [each.content for each in decode(transmission.body).entries]
            found += [each.content for each in contents if isinstance(each, Message)]
            await outbox.settle(transmission, Outcome.SENT)


@pytest.mark.parametrize("loss", [0.0, 0.3])
async def test_a_relay_is_found_behind_one_that_has_no_link(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    """A-C-B, where B alone reaches the hub: it comes there once, and A is told."""
    only_what_is_posted(monkeypatch)
    found: list[str] = []
    asks = {"asks_for_relay": lambda: True}
    async with (
        on_air(tmp_path, {"loss": loss}, count=3, topology=A_C_B),
        station(tmp_path, 1, tmp_path / "node-1", **asks) as ada,  # type: ignore[arg-type]
        station(tmp_path, 2, tmp_path / "node-2", **asks),  # type: ignore[arg-type]
        station(tmp_path, 3, tmp_path / "node-3", relays_over=frozenset([CELLULAR])) as ben,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(bring, ben, found)
        await ben.post(message={"content": "here is Ben"}, channels=["Radio"])
        await ada.post(message={"content": "no link here"})

        def events() -> list[str]:
            return [line.event for line in ada.history(1)]

        await until(lambda: "relayed" in events(), 4 * 3600)
        assert found.count("no link here") == 1
        await trio.sleep(600)
        sent = events().count("sent again")
        await trio.sleep(7200)
        assert found.count("no link here") == 1
        assert events().count("sent again") == sent
        nursery.cancel_scope.cancel()


async def test_the_hub_is_asked_for_until_it_has_it(tmp_path: Path, clock: Any) -> None:
    """The carrier's link is down for an hour, and then what it says of the hub is lost."""
    async with on_air(tmp_path, count=2) as sky, AsyncExitStack() as stack:
        ada = await stack.enter_async_context(
            station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: True)
        )
        ben = await stack.enter_async_context(
            station(tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([CELLULAR]))
        )
        await ben.post(message={"content": "here is Ben"}, channels=["Radio"])
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        await trio.sleep(3600)
        assert "relayed" not in [line.event for line in ada.history(1)]
        sky.air.losses = {}
        transmission = ben.outboxes[CELLULAR].load(4096)
        assert transmission is not None
        await ben.outboxes[CELLULAR].settle(transmission, Outcome.SENT)
        await trio.sleep(600)
        sky.air.losses = None
        # It asks once in an hour by now, a quarter of one sooner or later.
        await until(lambda: "relayed" in [line.event for line in ada.history(1)], 2 * HUB_AGAIN_MAX)


async def test_where_nobody_reaches_the_hub_it_is_asked_for_a_few_times(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_what_is_posted(monkeypatch)
    asks = {"asks_for_relay": lambda: True}
    async with (
        on_air(tmp_path, count=2) as sky,
        station(tmp_path, 1, tmp_path / "node-1", **asks) as ada,  # type: ignore[arg-type]
        station(tmp_path, 2, tmp_path / "node-2", **asks),  # type: ignore[arg-type]
    ):
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        await trio.sleep(7200)
        sky.log.clear()
        await trio.sleep(7200)
        assert not [line for line in sky.log if "transmits" in line]


async def test_what_costs_more_than_is_left_for_others_waits_for_the_next_day(
    tmp_path: Path, clock: Any
) -> None:
    async with station(
        tmp_path, 2, tmp_path / "nowhere", relays_over=frozenset([SATELLITE]), credits_per_day=1
    ) as ben:
        request = Entry(0, RelayRequest())
        for number in (7, 8, 9):
            item = Entry(number, Message(f"note {number}"), int(START))
            await ben.reception.receive(encode([item, request], origin=5))
        assert len(ben.outboxes[SATELLITE]) == 1
        assert "2 that neighbours ask us to bring to the hub wait until midnight" in ben.notice()
        await trio.sleep(86_400 + 10)
        assert len(ben.outboxes[SATELLITE]) == 1, "the first has outlived its time, as it may"
        assert "1 that neighbours ask" in ben.notice()


def several(station: int, *items: Entry) -> Entry:
    first = min(each.sequence for each in items)
    arrived = frozenset(each.sequence - first for each in items)
    digests = [digest_of(each) for each in sorted(items, key=lambda each: each.sequence)]
    return Entry(first, Ack(station, 0, arrived, digest=digest_of_slices(digests)))


READS = Entry(0, Ack(5, 0, frozenset()))
"""Station 5 reads what acknowledges several."""


@pytest.mark.parametrize("reads", [True, False])
async def test_one_entry_acknowledges_several_to_who_reads_it(
    tmp_path: Path, clock: Any, reads: bool
) -> None:
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8, 10)]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        for item in items:
            await kit.reception.receive(encode([item, READS] if reads else [item], origin=5))
        acks = [each for each in await said(kit) if isinstance(each.content, Ack)]
        if reads:
            assert several(5, *items) in acks
        else:
            assert {each.sequence for each in acks if each.content.count} == {7, 8, 10}  # type: ignore[union-attr]
        again = Entry(12, Message("note 12"), int(START))
        await kit.reception.receive(encode([again], origin=5))
        acks = [each for each in await said(kit) if isinstance(each.content, Ack)]
        assert acks == [
            several(5, *items, again) if reads else Entry(12, Ack(5, digest=digest_of(again)))
        ], "what was said before may be lost"


async def test_what_acknowledges_several_of_ours_is_of_those_alone(
    tmp_path: Path, clock: Any
) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as kit:
        numbers = [await kit.post(message={"content": f"note {each}"}) for each in range(3)]
        ours = [each for each in await said(kit) if each.sequence in numbers]
        assert len(ours) == 3
        wrong = several(1, *ours)
        assert isinstance(wrong.content, Ack)
        wrong = replace(wrong, content=replace(wrong.content, digest=bytes(4)))
        await kit.reception.receive(encode([wrong], origin=5))
        assert not outbound.receipts(kit.journal, numbers[0])
        await kit.reception.receive(encode([several(1, ours[0], ours[2])], origin=5))
        has = [
            [each.by.id for each in outbound.receipts(kit.journal, number)] for number in numbers
        ]
        assert has == [["5"], [], ["5"]]
        unknown = Entry(numbers[2] + 1, Message("never ours"))
        await kit.reception.receive(encode([several(1, *ours, unknown)], origin=6))
        assert kit.inbox.mismatches == 1, "the first alone: of what is forgotten nobody can tell"


async def test_what_comes_again_is_acknowledged_by_itself_too(tmp_path: Path, clock: Any) -> None:
    """Its sender may have forgotten the others by now, which ended: of several of which it knows
    one no more it cannot tell that they are its own."""
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8, 10)]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        for item in items:
            await kit.reception.receive(encode([item, READS], origin=5))
        await said(kit)
        for again in (items[1:2], items[:2]):
            await kit.reception.receive(encode(again, origin=5))
            acks = [each for each in await said(kit) if isinstance(each.content, Ack)]
            alone = [Entry(each.sequence, Ack(5, digest=digest_of(each))) for each in again]
            assert sorted(acks, key=alone.count, reverse=True) == [*alone, several(5, *items)]


async def test_who_forgets_what_has_ended_is_answered(tmp_path: Path, clock: Any) -> None:
    """A soak found a Package that nobody seemed to answer, for as long as its sender asked."""
    async with on_air(tmp_path, topology="1 2") as sky, AsyncExitStack() as stack:
        ada, ben = await team(stack, tmp_path, 2)
        losses = sky.air.losses
        assert losses is not None
        losses[2, 1] = 1.0
        note = await ada.post(message={"content": "tea?"})
        await until(lambda: "tea?" in ben.messages())
        await ada.journal.commit(outbound.forget(before=START + 1e6, keep=0))
        losses[2, 1] = 0.0
        with trio.fail_after(3600):
            assert await ada.outcome(note) is Status.DELIVERED


async def test_what_its_sender_cannot_repeat_whoever_has_it_does(
    tmp_path: Path, clock: Any
) -> None:
    """An item that is no SOS and asks for no hub."""
    async with on_air(tmp_path, count=3, topology="1 2") as sky, AsyncExitStack() as stack:
        ada, ben = await team(stack, tmp_path, 2)
        assert await ada.outcome(await ada.post(message={"content": "tea?"})) is Status.DELIVERED
        sky.air.losses = {(2, 3): 0.0, (3, 2): 0.0}
        cleo = await stack.enter_async_context(station(tmp_path, 3, tmp_path / "node-3"))
        await cleo.post(message={"content": "I am here"})
        await until(lambda: cleo.messages().count("tea?") == 1, 1200)
        sky.log.clear()
        await trio.sleep(1800)
        assert cleo.messages().count("tea?") == ben.messages().count("tea?") == 1
        assert len(sky.log) < 60, "once she has it, it goes no more"
