"""A team on one air: an SOS reaches all kits, through relays if necessary. A kit that needs the hub
repeats its request until the hub has the message.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations
from math import inf
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from fieldagent.agent.channels.air_pace import ACK_WITHIN
from fieldagent.agent.journal import history, incident, outbound
from fieldagent.agent.journal import on_air as on_air_journal
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.incident_status import describe_incident
from fieldagent.agent.outbound.item_identity import make_entry
from fieldagent.agent.outbound.repeats import run_incident_repeats
from fieldagent.extensions.lab.simulator.air import Losses
from fieldagent.extensions.radio.mesh import relay
from fieldagent.extensions.radio.mesh.rounds import (
    HUB_AGAIN_MAX,
    OTHERS_REPEAT_LIFETIME_S,
    REDRAW_INTERVAL_S,
    REPEATERS_ENOUGH,
    SOS_ALONE,
    UNCONFIRMABLE_S,
)
from fieldagent.extensions.radio.mesh.summaries import ASK_AFTER_S
from fieldagent.package.package import Channel, IncidentState, IncidentUpdate, Message, Status
from fieldagent.wire.envelope import (
    NO_ROUTE,
    Ack,
    AuthorMark,
    Entry,
    RelayRequest,
    RouteToHub,
    Source,
    compute_fragments_digest,
    compute_item_digest,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.outcome import Outcome
from tests.bench.team import GRID_OF_9, LINE_OF_6, cold_starts
from tests.extensions.radio.radio_kit import Station, on_air, only_what_is_posted, station, until
from tests.kit import START

CELLULAR, SATELLITE = Channel.CELLULAR, Channel.SATELLITE
LINE = "1 2\n2 3\n3 4"
A_C_B = "1 2\n2 3"
KEY = derive_key(bytes(32), "AIR")


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(1.0, autojump_threshold=0)


async def team(stack: AsyncExitStack, path: Path, count: int, **how: Any) -> list[Station]:
    """Start the kits. Each one hears its neighbours."""
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


async def test_sos_reaches_kits_out_of_range_of_sender(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path, count=4, topology=LINE), AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 4)
        await sos(kits[0])
        await until(lambda: has_it(kits) == [2, 3, 4], 600)
        await trio.sleep(3600)
        assert has_it(kits) == [2, 3, 4], "each kit has the SOS once"


def stops(kit: Station, sequence: int) -> list[str]:
    """Return the places where that Package stops, as `fieldagent show` prints them."""
    package = outbound.find_by_sequence(kit.journal, sequence)
    assert package is not None
    lines = history.list_lines(kit.journal, package, [])
    return [line.detail for line in lines if line.event == "not passed on"]


NO_FURTHER = "{} has it and may not pass it on (radio-hops); {} has not confirmed it there"


@pytest.mark.full
@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize(
    ("hops", "reached", "stopped"),
    [
        (1, [2], [NO_FURTHER.format("Kit 2", "station 3")]),
        pytest.param(
            *(2, [2, 3], [NO_FURTHER.format("Kit 3", "station 4")]), marks=pytest.mark.full
        ),
        (3, [2, 3, 4], []),
    ],
)
async def test_sos_stops_after_radio_hops_and_sender_is_informed(
    tmp_path: Path, clock: Any, hops: int, reached: list[int], stopped: list[str], loss: float
) -> None:
    """Kit 1 hears only kit 2. The stop at kit 3 reaches kit 1 with its news, that at kit 4 does
    not.
    """
    async with on_air(tmp_path, count=4, topology=LINE) as sky, AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 4, hops=hops)
        assert sky.air.losses is not None
        sky.air.losses |= {pair: loss for pair, lost in sky.air.losses.items() if lost < 1}
        number = await sos(kits[0])
        await trio.sleep(3600)
        assert has_it(kits) == reached
        assert stops(kits[0], number) == stopped
        own = incident.find_last(kits[0].journal)
        assert own is not None
        steps = describe_incident(kits[0].journal, own)["steps"]
        assert [each["text"] for each in steps if each["state"] == "not passed on"] == stopped


@pytest.mark.full
async def test_message_stops_after_radio_hops_and_sender_is_informed(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path, count=4, topology=LINE), AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 4, hops=2)
        number = await kits[0].post(message={"content": "camp reached"})
        await until(lambda: bool(stops(kits[0], number)))
        assert stops(kits[0], number) == [NO_FURTHER.format("Kit 3", "station 4")]


@pytest.mark.full
async def test_sos_reaches_all_kits_over_lossy_air_and_is_confirmed(
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
        # One kit certainly misses the first transmission.
        losses |= dict.fromkeys(((each, 5) for each in range(1, 5)), 1.0)
        sequence = await sos(kits[0])

        def sent_again() -> bool:
            package = outbound.find_by_sequence(kits[0].journal, sequence)
            assert package is not None
            lines = history.list_lines(kits[0].journal, package, [])
            return any(line.event == "sent again" and "Kit" in line.detail for line in lines)

        await until(sent_again)
        losses |= dict.fromkeys(losses, 0.0)
        await until(lambda: has_it(kits) == [2, 3, 4, 5])

        def confirmed() -> bool:
            receipts = outbound.list_receipts(kits[0].journal, sequence)
            return {storage.by.id for storage in receipts} == {"2", "3", "4", "5"}

        await until(confirmed)


async def test_late_kit_gets_sos_from_restarted_sender(tmp_path: Path, clock: Any) -> None:
    """The sender restarts before the third kit starts."""
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


@pytest.mark.full
async def test_restarted_kit_repeats_items_of_other_kits(tmp_path: Path, clock: Any) -> None:
    """The sender is off, and so was the third kit. The third kit gets each item once."""
    async with on_air(tmp_path, count=3):
        async with AsyncExitStack() as stack:
            kits = await team(stack, tmp_path, 2)
            await kits[0].outcome(await kits[0].post(message={"content": "the hut is full"}))
            await sos(kits[0])
            await until(lambda: {"the hut is full", "help"} <= {*kits[1].messages()})
        async with (
            station(tmp_path, 2, tmp_path / "node-2"),
            station(tmp_path, 3, tmp_path / "node-3") as late,
        ):
            await until(lambda: "the hut is full" in late.messages(), 600)
            assert "help" in late.messages(), "the SOS is not later than the message"
            await trio.sleep(600)
            assert len(late.messages()) == len({*late.messages()})
            assert on_air_journal.list_stored(
                late.journal, start_time=late.words.clock() - OTHERS_REPEAT_LIFETIME_S
            )
            await trio.sleep(OTHERS_REPEAT_LIFETIME_S)
            assert (
                on_air_journal.list_stored(
                    late.journal, start_time=late.words.clock() - OTHERS_REPEAT_LIFETIME_S
                )
                == []
            )


@pytest.mark.parametrize(
    "damaged",
    [
        "x'ff'",
        pytest.param("CAST(replace(on_air, 'full', 'fuel') AS BLOB)", marks=pytest.mark.full),
    ],
)
async def test_damaged_item_of_other_kit_is_not_repeated(
    tmp_path: Path, clock: Any, damaged: str
) -> None:
    """The items stored next to it are repeated in any case: this kit has repeated nothing
    before.
    """
    async with on_air(tmp_path, count=3) as sky:
        sky.nodes.unplug(sky.nodes.sockets[2])
        async with AsyncExitStack() as stack:
            kits = await team(stack, tmp_path, 2)
            await kits[0].outcome(await kits[0].post(message={"content": "the hut is full"}))
            await sos(kits[0])
            await until(lambda: {"the hut is full", "help"} <= {*kits[1].messages()})
            await kits[1].journal.commit(partial(damage_stored_item, damaged=damaged))
        sky.nodes.plug(sky.nodes.sockets[2])
        async with (
            station(tmp_path, 2, tmp_path / "node-2"),
            station(tmp_path, 3, tmp_path / "node-3") as late,
        ):
            await until(lambda: "help" in late.messages(), 600)
            await trio.sleep(600)
            assert not [each for each in late.messages() if each.startswith("the hut")]


def damage_stored_item(db: sqlite3.Connection, damaged: str) -> None:
    changed = db.execute(
        f"UPDATE arrived SET on_air = {damaged} WHERE instr(on_air, CAST('hut' AS BLOB))"
    )
    assert changed.rowcount == 1


@pytest.mark.parametrize("others", [0, pytest.param(1, marks=pytest.mark.full)])
async def test_returning_kit_that_sends_nothing_gets_missed_item(
    tmp_path: Path, clock: Any, others: int
) -> None:
    """The kit is off for less than the hour after which it would stop being a neighbour, but longer
    than items are repeated. Its user sends nothing.
    """
    async with on_air(tmp_path, count=3) as sky, AsyncExitStack() as stack:
        kits = await team(stack, tmp_path, 1 + others)
        async with station(tmp_path, 3, tmp_path / "node-3") as ben:
            await until(lambda: 3 in kits[0].neighbours.list_in_range())
            await kits[0].outcome(await kits[0].post())
            await until(lambda: "hello" in ben.messages())
        sky.nodes.unplug(sky.nodes.sockets[2])
        missed = await kits[0].post(message={"content": "the hut is full"})
        await trio.sleep(2400)
        sky.nodes.plug(sky.nodes.sockets[2])
        async with station(tmp_path, 3, tmp_path / "node-3") as ben:
            await until(lambda: "the hut is full" in ben.messages(), 200)
            assert await kits[0].outcome(missed) is Status.DELIVERED


def summary(station: int, *items: Entry) -> Entry:
    first = min(each.sequence for each in items)
    arrived = frozenset(each.sequence - first for each in items)
    digests = [compute_item_digest(each) for each in sorted(items, key=lambda each: each.sequence)]
    return Entry(first, Ack(station, 0, arrived, digest=compute_fragments_digest(digests)))


def entry(number: int) -> Entry:
    return Entry(number, Message("help"), int(START), sos=True)


async def transmit_next(kit: Station) -> list[Entry]:
    """Return the entries of the next transmission, and count it as sent."""
    transmission = kit.outbox.load(200)
    if transmission is None:
        return []
    await kit.outbox.settle(transmission, Outcome.SENT)
    return [*decode(transmission.body).entries]


@pytest.mark.parametrize(("lacking", "answers"), [([], True), ([2], True), ([9], False)])
async def test_repeated_item_is_acknowledged_unless_meant_for_other_kits(
    tmp_path: Path, clock: Any, lacking: list[int], answers: bool
) -> None:
    item, ack = entry(7), Entry(7, Ack(5, digest=compute_item_digest(entry(7))))
    named = [Entry(7, Source(number, 0)) for number in lacking]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([item, *named], origin=5))
        assert ack in await transmit_next(kit), "a new item is acknowledged in any case"
        await kit.reception.receive(encode([item, *named], origin=5))
        assert (ack in await transmit_next(kit)) is answers


@pytest.mark.parametrize("sos", [False, True])
async def test_ack_of_other_kit_triggers_own_ack_only_for_sos(
    tmp_path: Path, clock: Any, sos: bool
) -> None:
    """An item that is not an SOS is confirmed in the next summary."""
    item = Entry(7, Message("x"), int(START), sos=sos)
    ack = Entry(7, Ack(5, digest=compute_item_digest(item)))
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([Entry(1, Ack(9, digest=bytes(4)))], origin=6))
        await kit.reception.receive(encode([item], origin=5))
        await kit.reception.receive(encode([ack if sos else summary(5, item)], origin=6))
        await trio.sleep(ACK_WITHIN)
        assert kit.words.is_worth_sending() is sos
        await kit.post()
        entries = [each for _ in range(3) for each in await transmit_next(kit)]
        assert (ack if sos else summary(5, item)) in entries


async def test_returning_kit_gets_newest_items_first_in_few_packets(
    tmp_path: Path, clock: Any
) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([Entry(1, Message("here"))], origin=4))
        numbers = []
        for number in range(30):
            numbers.append(await kit.post(message={"content": f"note {number}"}))
            await transmit_next(kit)
            ack = Ack(1, digest=kit.digest(numbers[-1]))
            await kit.reception.receive(encode([Entry(numbers[-1], ack)], origin=4))
        await until(lambda: len(kit.rounds.list_ours()) == 30)
        await trio.sleep(600)
        await kit.reception.receive(encode([Entry(numbers[0], Ack(1, 0, frozenset()))], origin=5))
        packets: list[list[int]] = []
        with trio.move_on_after(20):
            while True:
                await kit.outbox.wait_until_ready()
                messages = [
                    each for each in await transmit_next(kit) if isinstance(each.content, Message)
                ]
                packets += [[each.sequence for each in messages]] * bool(messages)
                await trio.sleep(0.1)
        assert 2 <= len(packets) <= 5
        repeated = [number for packet in packets for number in packet]
        assert repeated == sorted({*repeated}, reverse=True)
        assert len(packets[0]) > 1
        assert repeated[0] == numbers[-1]


async def test_kit_with_lost_journal_gets_sos_within_minute(tmp_path: Path, clock: Any) -> None:
    """The sender is off by then, and another kit that heard the SOS sends it."""
    async with on_air(tmp_path, count=3), AsyncExitStack() as stack:
        cid = await stack.enter_async_context(station(tmp_path, 3, tmp_path / "node-3"))
        async with (
            station(tmp_path, 1, tmp_path / "node-1") as ada,
            station(tmp_path, 2, tmp_path / "node-2") as ben,
        ):
            await ada.post(message={"content": "help"}, priority=100)
            await until(lambda: "help" in ben.messages() and "help" in cid.messages())
            await trio.sleep(900)
        shutil.rmtree(tmp_path / "station-2")
        for number in range(8):
            await cid.post(message={"content": f"meanwhile {number}"})
        await trio.sleep(300)
        ben = await stack.enter_async_context(station(tmp_path, 2, tmp_path / "node-2"))
        await until(lambda: "help" in ben.messages(), 60)


@pytest.mark.parametrize("starts_anew", [False, True])
async def test_called_off_sos_is_not_repeated_to_late_kit(
    tmp_path: Path, clock: Any, starts_anew: bool
) -> None:
    """The SOS would ring there, and by radio alone no kit would end it."""
    async with on_air(tmp_path, count=3) as sky, AsyncExitStack() as stack:
        sky.nodes.unplug(sky.nodes.sockets[2])
        async with AsyncExitStack() as before:
            ada = await before.enter_async_context(station(tmp_path, 1, tmp_path / "node-1"))
            async with station(tmp_path, 2, tmp_path / "node-2") as ben:
                number = await sos(ada)
                await until(lambda: "help" in ben.messages() and ada.rounds.list_ours() != [])
            await ada.cancellation.call_off(number)
            if not starts_anew:
                stack.push_async_exit(before.pop_all())
        if starts_anew:
            ada = await stack.enter_async_context(station(tmp_path, 1, tmp_path / "node-1"))
        sky.nodes.plug(sky.nodes.sockets[2])
        cid = await stack.enter_async_context(station(tmp_path, 3, tmp_path / "node-3"))
        await cid.post(message={"content": "here is 3"})
        await until(lambda: 3 in ada.neighbours.list_in_range())
        await trio.sleep(1800)
        assert cid.messages() == []


async def test_sos_closed_by_hub_is_not_repeated_to_late_kit(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path, count=3) as sky, AsyncExitStack() as stack:
        sky.nodes.unplug(sky.nodes.sockets[2])
        ben = await stack.enter_async_context(station(tmp_path, 2, tmp_path / "node-2"))
        async with station(tmp_path, 1, tmp_path / "node-1") as ada:
            number = await sos(ada)
            await until(lambda: "help" in ben.messages())
        closed = IncidentUpdate(number, IncidentState.CLOSED, 1, "Dana")
        await ben.journal.commit(
            lambda db: incident.record_update(
                db, closed, START, START, is_proved=True, counts=False
            )
        )
        sky.nodes.plug(sky.nodes.sockets[2])
        cid = await stack.enter_async_context(station(tmp_path, 3, tmp_path / "node-3"))
        await cid.post(message={"content": "here is 3"})
        await until(lambda: 3 in ben.neighbours.list_in_range())
        await trio.sleep(900)
        assert cid.messages() == []


async def test_repeated_packet_names_repeater_and_kits_without_item(
    tmp_path: Path, clock: Any
) -> None:
    """The packet belongs to the original sender, as far as an older peer can see."""
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([Entry(1, Ack(9, digest=bytes(4)))], origin=6))
        await kit.reception.receive(encode([entry(7), Entry(0, RelayRequest(0))], origin=5))
        entries: list[Any] = []
        with trio.fail_after(60):
            while Entry(7, Source(6, 0)) not in entries:
                await kit.outbox.wait_until_ready()
                transmission = kit.outbox.load(200)
                assert transmission is not None
                await kit.outbox.settle(transmission, Outcome.SENT)
                envelope = decode(transmission.body)
                entries = [*envelope.entries]
        assert envelope.origin == 5
        request, mark = Entry(0, RelayRequest(0)), Entry(0, Source(2, 1))
        assert entries == [entry(7), request, mark, Entry(7, Source(6, 0))]
        assert envelope.not_understood == ()
        assert kit.neighbours.list_in_range() == [6, 5]


async def test_repeat_of_own_item_by_neighbour_adds_receipt(tmp_path: Path, clock: Any) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as kit:
        sequence = await sos(kit)
        (item,) = (each for each in await transmit_next(kit) if each.sequence == sequence)
        await kit.reception.receive(encode([item, Entry(0, Source(4, 1))], origin=1))
        assert [each.by.id for each in outbound.list_receipts(kit.journal, sequence)] == ["4"]
        assert kit.neighbours.list_in_range() == [4]
        assert kit.messages() == []


async def accept_as_hub(kit: Station, texts: list[str]) -> None:
    """Act as the relaying kit's link to the hub, which accepts all items."""
    outbox = kit.outboxes[CELLULAR]
    while True:
        await outbox.wait_until_ready()
        transmission = outbox.load(4096)
        if transmission is not None:
            contents = [each.content for each in decode(transmission.body).entries]
            texts += [each.content for each in contents if isinstance(each, Message)]
            await outbox.settle(transmission, Outcome.SENT)


@pytest.mark.parametrize("loss", [0.0, pytest.param(0.3, marks=pytest.mark.full)])
async def test_item_reaches_hub_through_kit_without_link(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, loss: float
) -> None:
    """A-C-B, and only B reaches the hub: the item arrives there once, and A gets the
    confirmation.
    """
    only_what_is_posted(monkeypatch)
    texts: list[str] = []
    asks = {"asks_for_relay": lambda: True}
    async with (
        on_air(tmp_path, {"loss": loss}, count=3, topology=A_C_B),
        station(tmp_path, 1, tmp_path / "node-1", **asks) as ada,  # type: ignore[arg-type]
        station(tmp_path, 2, tmp_path / "node-2", **asks),  # type: ignore[arg-type]
        station(tmp_path, 3, tmp_path / "node-3", relays_over=frozenset([CELLULAR])) as ben,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(accept_as_hub, ben, texts)
        await ben.post(message={"content": "here is Ben"}, channels=["Radio"])
        await ada.post(message={"content": "no link here"})

        def events() -> list[str]:
            return [line.event for line in ada.history(1)]

        await until(lambda: "relayed" in events(), 4 * 3600)
        assert texts.count("no link here") == 1
        await trio.sleep(600)
        sent = events().count("sent again")
        await trio.sleep(7200)
        assert texts.count("no link here") == 1
        assert events().count("sent again") == sent
        nursery.cancel_scope.cancel()


@pytest.mark.full
@pytest.mark.parametrize("spared", [2, 3])
async def test_route_with_low_battery_is_avoided_if_another_exists(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, spared: int
) -> None:
    """The kit in between announces its empty battery. If there is no other route, it relays in any
    case.
    """
    only_what_is_posted(monkeypatch)
    texts: dict[int, list[str]] = {2: [], 3: []}
    asks = {"asks_for_relay": lambda: True}
    gateway = {"relays_over": frozenset([CELLULAR])}
    async with (
        on_air(tmp_path, count=4, topology="1 4\n4 2\n4 3"),
        station(tmp_path, 1, tmp_path / "node-1", **asks) as ada,  # type: ignore[arg-type]
        station(tmp_path, 2, tmp_path / "node-2", **gateway, low=lambda: spared == 2) as two,  # type: ignore[arg-type]
        station(tmp_path, 4, tmp_path / "node-4", **asks) as between,  # type: ignore[arg-type]
        station(tmp_path, 3, tmp_path / "node-3", **gateway, low=lambda: spared == 3) as three,  # type: ignore[arg-type]
        trio.open_nursery() as nursery,
    ):
        kits = {2: two, 3: three}
        for number, kit in kits.items():
            nursery.start_soon(accept_as_hub, kit, texts[number])
            await kit.post(message={"content": f"here is {number}"}, channels=["Radio"])
        await until(lambda: {2, 3} <= between.words.hub_routes.get_valid_routes().keys(), 3600)
        # Both routes are free and equally long.
        assert [
            between.words.hub_routes.get_valid_routes()[number].is_battery_low
            for number in (spared, 5 - spared)
        ] == [
            True,
            False,
        ]
        await ada.post(message={"content": "no link here"})
        await until(lambda: "relayed" in [line.event for line in ada.history(1)], 4 * 3600)
        assert (texts[spared], texts[5 - spared]) == ([], ["no link here"])
        await until(lambda: not ada.words.hub_routes.get_valid_routes()[4].is_battery_low, 3600)
        # If there is no other route, the kit is asked, and its announcement shows the empty
        # battery.
        for number in (1, 5 - spared):
            between.words.hub_routes.record_route(number, RouteToHub(NO_ROUTE))
        ours = between.words.hub_routes.find_own_route()
        assert (
            between.words.hub_routes.find_next_hop() == spared
            and ours is not None
            and ours.is_battery_low
        )
        nursery.cancel_scope.cancel()


@pytest.mark.full
async def test_relay_request_is_repeated_until_hub_has_item(tmp_path: Path, clock: Any) -> None:
    """The relaying kit's link is down for an hour, and then its news about the hub is lost."""
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
        # By now Ada asks once per hour, plus or minus a quarter.
        await until(lambda: "relayed" in [line.event for line in ada.history(1)], 2 * HUB_AGAIN_MAX)


@pytest.mark.full
async def test_relay_request_is_not_repeated_without_route_to_hub(
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
        assert "sent again" not in [line.event for line in ada.history(1)]
        await trio.sleep(7200)
        assert "sent again" not in [line.event for line in ada.history(1)]
        sky.log.clear()
        await trio.sleep(7200)
        assert not [line for line in sky.log if "transmits" in line]


@pytest.mark.full
async def test_sos_without_route_to_hub_causes_little_traffic(tmp_path: Path, clock: Any) -> None:
    """Each kit asks because it knows no route, and not because another kit has asked about the same
    item. When a kit with a link to the hub appears, they ask immediately.
    """
    asks = {"asks_for_relay": lambda: True}
    texts: list[str] = []
    async with AsyncExitStack() as stack:
        sky = await stack.enter_async_context(on_air(tmp_path, count=5))
        kits = [
            await stack.enter_async_context(
                station(tmp_path, each, tmp_path / f"node-{each}", **asks)  # type: ignore[arg-type]
            )
            for each in range(1, 5)
        ]
        for kit in kits:
            await kit.post(message={"content": f"here is {kit.number}"})
        await trio.sleep(60)
        ada = kits[0]
        await ada.post(message={"content": "leg broken"}, priority=100)
        await trio.sleep(7200)
        sky.log.clear()
        await trio.sleep(3600)
        # By then the sender asks hourly, and the three other kits ask three times each after that.
        assert len([line for line in sky.log if "transmits" in line]) < 100
        gateway = await stack.enter_async_context(
            station(tmp_path, 5, tmp_path / "node-5", relays_over=frozenset([CELLULAR]))
        )
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(accept_as_hub, gateway, texts)
        await until(lambda: "leg broken" in texts, 120)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def kit_with_spent_credits(tmp_path: Path) -> AsyncIterator[Station]:
    """Yield a kit that may spend one credit per day for others and has three of their items to
    relay.
    """
    async with station(
        tmp_path, 2, tmp_path / "nowhere", relays_over=frozenset([SATELLITE]), credits_per_day=1
    ) as ben:
        request = Entry(0, RelayRequest(0))
        for number in (7, 8, 9):
            item = Entry(number, Message(f"note {number}"), int(START))
            await ben.reception.receive(encode([item, request], origin=5))
        yield ben


async def test_items_to_relay_are_stored_with_digest_of_item_alone(
    tmp_path: Path, clock: Any
) -> None:
    """Beside each item that a kit must relay, a mark with its number is stored."""
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8, 9)]
    async with kit_with_spent_credits(tmp_path) as ben:
        here = on_air_journal.list_others_items(ben.journal, 2)
    assert here == [(5, item.sequence, compute_item_digest(item)) for item in items]


@pytest.mark.full
async def test_items_above_relay_credits_wait_for_next_day(tmp_path: Path, clock: Any) -> None:
    async with kit_with_spent_credits(tmp_path) as ben:
        assert len(ben.outboxes[SATELLITE]) == 1
        assert "2 from neighbours for the hub wait until midnight" in ben.notice()
        await trio.sleep(86_400 + 10)
        assert len(ben.outboxes[SATELLITE]) == 1, "the first item has expired"
        assert "1 from neighbours for the hub wait" in ben.notice()


@pytest.mark.full
async def test_items_waiting_for_relay_credits_are_encoded_once(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kit without credits for others checks at each turn of its day. Packing texts took almost
    all of its processor time, and then it began write transactions without a change.
    """
    packed: list[int] = []

    async def write_nothing(journal: Journal, operation: Any) -> Any:
        raise AssertionError("there is nothing to write")

    def counted(entries: Sequence[Entry], **how: Any) -> bytes:
        packed.append(len(entries))
        return encode(entries, **how)

    monkeypatch.setattr(relay, "encode", counted)
    async with kit_with_spent_credits(tmp_path) as ben:
        before = len(packed)
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "persist", write_nothing)
            await trio.sleep(6 * 3600)
        assert len(packed) == before
        assert "2 from neighbours for the hub wait" in ben.notice()


async def test_one_summary_acknowledges_all_items_of_station(tmp_path: Path, clock: Any) -> None:
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8, 10)]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        for item in items:
            await kit.reception.receive(encode([item], origin=5))
        acks = [each for each in await transmit_next(kit) if isinstance(each.content, Ack)]
        assert acks == [summary(5, *items)]
        again = Entry(12, Message("note 12"), int(START))
        await kit.reception.receive(encode([again], origin=5))
        acks = [each for each in await transmit_next(kit) if isinstance(each.content, Ack)]
        assert acks == [summary(5, *items, again)], "the earlier Ack may be lost"


@pytest.mark.parametrize("another_asks", [False, True])
async def test_missing_item_is_requested_unless_other_kit_has_asked(
    tmp_path: Path, clock: Any, another_asks: bool
) -> None:
    """Another kit that also misses the item may have asked already."""
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8)]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        for number in (6, 8):
            await kit.reception.receive(encode([Entry(1, Ack(9, digest=bytes(4)))], origin=number))
        await kit.reception.receive(encode([items[0]], origin=5))
        await trio.sleep(ACK_WITHIN)
        await transmit_next(kit)
        await kit.reception.receive(encode([summary(5, *items)], origin=6))
        if another_asks:
            await kit.reception.receive(encode([summary(5, items[0])], origin=8))
        summaries = kit.words.summaries
        assert summaries.compute_due_time() <= START + trio.current_time() + 1.5 * ASK_AFTER_S
        summaries.begin(summaries.compute_due_time())
        assert (summary(5, items[0]) in await transmit_next(kit)) is not another_asks


async def test_missing_item_is_repeated_unless_other_kit_has_repeated(
    tmp_path: Path, clock: Any
) -> None:
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8)]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        for item in items:
            await kit.reception.receive(encode([item], origin=5))
        await transmit_next(kit)
        await trio.sleep(600)
        await kit.reception.receive(encode([Entry(7, Ack(5, 0, frozenset()))], origin=6))
        by_another = [Entry(0, AuthorMark(5, 1)), items[1]]
        await kit.reception.receive(encode(by_another, origin=8))
        entries: list[Entry] = []
        with trio.move_on_after(30):
            while True:
                await kit.outbox.wait_until_ready()
                entries += await transmit_next(kit)
        assert [each for each in entries if isinstance(each.content, Message)] == [items[0]]
        assert Entry(0, AuthorMark(5, 1)) in entries
        assert not {5, 8} - {*kit.neighbours.list_in_range()}
        assert kit.messages() == ["note 7", "note 8"]


@pytest.mark.parametrize(
    ("kits", "chance", "at_once"), [(9, 0.99, True), (30, 0.99, False), (30, 0.1, True)]
)
async def test_in_crowd_few_kits_repeat_at_first_request(
    tmp_path: Path, clock: Any, kits: int, chance: float, at_once: bool
) -> None:
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8)]
    has = frozenset({1})
    digest = compute_fragments_digest([compute_item_digest(items[1])])
    lacks_it = encode([Entry(7, Ack(5, 0, has, digest=digest))], origin=10)
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        kit.rounds._random = lambda: chance
        for number in range(10, 10 + kits):
            await kit.reception.receive(encode([Entry(1, Ack(9, digest=bytes(4)))], origin=number))
        for item in items:
            await kit.reception.receive(encode([item], origin=5))
        await trio.sleep(UNCONFIRMABLE_S)
        await kit.reception.receive(lacks_it)
        first = kit.rounds.items[5, 7, compute_item_digest(items[0])]
        assert (first.due_at < inf) is at_once
        await trio.sleep(REDRAW_INTERVAL_S)
        await kit.reception.receive(lacks_it)
        assert first.due_at < inf or first.attempts


async def test_summary_confirms_only_listed_items_with_correct_digest(
    tmp_path: Path, clock: Any
) -> None:
    async with station(tmp_path, 1, tmp_path / "nowhere") as kit:
        numbers = [await kit.post(message={"content": f"note {each}"}) for each in range(3)]
        ours = [each for each in await transmit_next(kit) if each.sequence in numbers]
        assert len(ours) == 3
        wrong = summary(1, *ours)
        assert isinstance(wrong.content, Ack)
        wrong = replace(wrong, content=replace(wrong.content, digest=bytes(4)))
        await kit.reception.receive(encode([wrong], origin=5))
        assert not outbound.list_receipts(kit.journal, numbers[0])
        await kit.reception.receive(encode([summary(1, ours[0], ours[2])], origin=5))
        has = [
            [each.by.id for each in outbound.list_receipts(kit.journal, number)]
            for number in numbers
        ]
        assert has == [["5"], [], ["5"]]
        unknown = Entry(numbers[2] + 1, Message("never ours"))
        await kit.reception.receive(encode([summary(1, *ours, unknown)], origin=6))
        assert kit.inbox.mismatches == 1, "the summary with an unknown item is no mismatch"


async def test_repeated_item_is_acknowledged_alone_and_in_summary(
    tmp_path: Path, clock: Any
) -> None:
    """The sender deletes ended items. A sender that has deleted one item of a summary cannot verify
    the summary, so each repeated item also needs its own Ack.
    """
    items = [Entry(number, Message(f"note {number}"), int(START)) for number in (7, 8, 10)]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        for item in items:
            await kit.reception.receive(encode([item], origin=5))
        await transmit_next(kit)
        for again in (items[1:2], items[:2]):
            await kit.reception.receive(encode(again, origin=5))
            acks = [each for each in await transmit_next(kit) if isinstance(each.content, Ack)]
            alone = [
                Entry(each.sequence, Ack(5, digest=compute_item_digest(each))) for each in again
            ]
            assert sorted(acks, key=alone.count, reverse=True) == [*alone, summary(5, *items)]


async def test_item_confirmed_after_restart_is_repeated_to_kit_without_item(
    tmp_path: Path, clock: Any
) -> None:
    """The item was sent before the restart and is not sent again."""
    async with station(tmp_path, 1, tmp_path / "nowhere") as ada:
        number = await ada.post(message={"content": "before the restart"})
        transmission = ada.outbox.load(200)
        assert transmission is not None
        (sent, *_) = decode(transmission.body).entries
    async with station(tmp_path, 1, tmp_path / "nowhere") as ada:
        has_it = replace(summary(1, sent), sequence=number)
        await ada.reception.receive(encode([has_it], origin=2))
        await until(lambda: ada.words.summaries.find_digest(1, number) == compute_item_digest(sent))
        lacks_it = Entry(number, Ack(1, 0, frozenset(), digest=b""))
        await trio.sleep(3)
        await ada.reception.receive(encode([lacks_it], origin=3))
        (item,) = ada.rounds.list_ours()
        assert item.attempts or item.due_at < inf


async def test_sender_that_has_deleted_ended_items_gets_ack(tmp_path: Path, clock: Any) -> None:
    """Regression: a soak test found a Package that never got an answer."""
    async with on_air(tmp_path, topology="1 2") as sky, AsyncExitStack() as stack:
        ada, ben = await team(stack, tmp_path, 2)
        losses = sky.air.losses
        assert losses is not None
        losses[2, 1] = 1.0
        note = await ada.post(message={"content": "tea?"})
        await until(lambda: "tea?" in ben.messages())
        await ada.journal.commit(outbound.forget(end_time=START + 1e6, keep_count=0))
        losses[2, 1] = 0.0
        with trio.fail_after(3600):
            assert await ada.outcome(note) is Status.DELIVERED


async def test_ordinary_item_is_repeated_to_late_kit_by_receiver(
    tmp_path: Path, clock: Any
) -> None:
    """The item is not an SOS and does not need the hub."""
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
        assert len(sky.log) < 60, "a delivered item is not repeated"


async def test_sos_reaches_kit_that_was_never_heard(
    tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-C-B: C has never heard B, so C does not know that B misses the SOS. A does not repeat the
    open SOS (`sos-repeat=0`).
    """
    only_what_is_posted(monkeypatch)
    heard: Losses = {(1, 2): 0.0, (2, 1): 0.0, (2, 3): 0.0}
    async with on_air(tmp_path, count=3) as sky, AsyncExitStack() as stack:
        sky.air.losses = heard
        ada, _, ben = [
            await stack.enter_async_context(
                station(tmp_path, n, tmp_path / f"node-{n}", repeats_sos=False)
            )
            for n in (1, 2, 3)
        ]
        await trio.sleep(60)
        await ada.post(message={"content": "help"}, priority=100)
        await until(lambda: "help" in ben.messages(), 120)
        # The repetitions end, although Ben is never heard.
        await trio.sleep(3600)
        sky.log.clear()
        await trio.sleep(1800)
        assert not [line for line in sky.log if "node 2 transmits" in line]


@pytest.mark.parametrize("keys", [(), (KEY,)])
async def test_acks_reduce_repeats_of_own_sos_only_with_radio_key(
    tmp_path: Path, clock: Any, keys: tuple[bytes, ...]
) -> None:
    """An attacker can forge an Ack, and can repeat it."""
    async with (
        on_air(tmp_path, count=1),
        station(tmp_path, 1, tmp_path / "node-1", keys=keys) as kit,
    ):
        number = await sos(kit)
        known = outbound.read_kept_package(kit.journal, number)
        assert known is not None
        ack = Ack(1, by_hub=True, digest=compute_item_digest(make_entry(known)))
        for by in 66, 67, *20 * [67]:
            key = next(iter(keys), None)
            await kit.reception.receive(encode([Entry(number, ack)], origin=by, key=key))
            await trio.sleep(60)
        (item,) = kit.rounds.list_ours()
        assert (item.attempts < SOS_ALONE) is bool(keys)
        story = kit.journal.read("SELECT event, at FROM story WHERE sequence = ?", number)
        left = max(at for event, at in story if event == "sent again")
        open_incident = incident.find_open(kit.journal)
        assert open_incident is not None
        assert (
            incident.list_accepted_items(kit.journal, open_incident.number)[number, Channel.RADIO]
            == left
        )


@pytest.mark.parametrize(
    ("keys", "minute", "ten_minutes", "longest_gap_s"),
    [pytest.param((), 3, 7, 230, marks=pytest.mark.full), ((KEY,), 4, 16, 70)],
)
@pytest.mark.parametrize("by", [2, pytest.param(66, marks=pytest.mark.full)])
async def test_forged_acks_delay_repeats_of_sos_only_without_radio_key(
    tmp_path: Path,
    clock: Any,
    monkeypatch: pytest.MonkeyPatch,
    by: int,
    keys: tuple[bytes, ...],
    minute: int,
    ten_minutes: int,
    longest_gap_s: float,
) -> None:
    """An attacker acknowledges an SOS each second in the name of a kit that does not hear the SOS,
    or of an unknown kit. Without forged Acks, at most 64 s are between two packets of the SOS. All
    pauses can be a quarter longer than planned: then seven packets are sent in ten minutes.
    """
    only_what_is_posted(monkeypatch)
    async with on_air(tmp_path, count=2) as sky, AsyncExitStack() as stack:
        ada, _ = await team(stack, tmp_path, 2, keys=keys)
        sky.air.losses = {(1, 2): 1.0, (2, 1): 0.0}
        sky.log.clear()
        number = await sos(ada)
        known = outbound.read_kept_package(ada.journal, number)
        assert known is not None
        ack = Entry(number, Ack(1, by_hub=True, digest=compute_item_digest(make_entry(known))))
        forged = encode([ack], origin=by)
        begun = trio.current_time()
        aired = [begun]
        async with trio.open_nursery() as nursery:
            queues = {Channel.RADIO: ada.outbox._queue}
            repeats = partial(
                run_incident_repeats,
                *(ada.journal, queues),
                interval_s=600.0,
                end_condition="person",
                clock=lambda: START + trio.current_time(),
            )
            nursery.start_soon(repeats)
            while trio.current_time() < begun + 2400:
                await ada.reception.receive(forged)
                await trio.sleep(1)
                if any("node 1 transmits" in line for line in sky.log):
                    aired.append(trio.current_time())
                sky.log.clear()
            nursery.cancel_scope.cancel()
        sent = [at - begun for at in aired[1:]]
        assert sum(at < 60 for at in sent) >= minute
        assert sum(at < 600 for at in sent) >= ten_minutes
        assert max(later - at for at, later in pairwise(aired)) <= longest_gap_s


@pytest.mark.parametrize("evidence", ["no key", "key", "sos-repeat=0", "hub", "person", "closed"])
async def test_forged_ack_of_hub_does_not_end_repeats_of_sos_for_the_hub(
    tmp_path: Path, clock: Any, evidence: str
) -> None:
    """Only a group's key, the hub's proof or a person's answer ends them."""
    keys = (KEY,) if evidence == "key" else ()
    async with (
        on_air(tmp_path, count=1),
        station(
            *(tmp_path, 1, tmp_path / "node-1"),
            keys=keys,
            asks_for_relay=lambda: True,
            repeats_sos=evidence != "sos-repeat=0",
        ) as kit,
    ):
        number = await sos(kit)
        known = outbound.read_kept_package(kit.journal, number)
        assert known is not None
        ack = Ack(1, by_hub=True, digest=compute_item_digest(make_entry(known)))
        key = next(iter(keys), None)
        await kit.reception.receive(encode([Entry(number, ack)], origin=66, key=key))
        if evidence == "hub":
            await kit.journal.commit(lambda db: outbound.store_receipt(db, number, 0, START))
        if evidence in ("person", "closed"):
            state = IncidentState.SEEN if evidence == "person" else IncidentState.CLOSED
            update = IncidentUpdate(number, state, incident.OWN_STATION, "Dana")
            await kit.journal.commit(
                lambda db: incident.record_update(
                    db, update, START, START, is_proved=True, counts=True
                )
            )
        await trio.sleep(3 * 3600)
        sent = asked = 0
        for detail, times in kit.journal.read(
            "SELECT detail, times FROM story WHERE sequence = ? AND event = 'sent again'"
            " AND at > ?",
            *(number, START + 3600),
        ):
            sent, asked = sent + times, asked + ("the hub" in detail) * times
        assert (sent >= 36 and asked >= 9) is (evidence == "no key")
        assert (sent == 0) is (evidence != "no key")


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_kit_does_not_repeat_sos_that_other_kits_repeat(
    tmp_path: Path, clock: Any, others: int
) -> None:
    item = Entry(7, Message("x"), int(START), sos=True)
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([item], origin=5))
        await transmit_next(kit)
        for number in range(others):
            by = Entry(0, Source(20 + number, 1))
            await kit.reception.receive(encode([item, by, Entry(7, Source(9, 0))], origin=5))
        (known,) = kit.rounds.items.values()
        known.confirmed_by |= {*range(20, 30)}
        repeats = kit.rounds.pop_due_repeats(known.due_at)
        assert bool(repeats) is (others < REPEATERS_ENOUGH)
        assert known.attempts == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("topology", "count"),
    [(A_C_B, 3), (LINE, 4), (LINE_OF_6, 6), (GRID_OF_9, 9)],
    ids=["A-C-B", "4", "6", "grid"],
)
def test_sos_after_cold_start_reaches_all_kits(topology: str, count: int) -> None:
    everywhere, _ = cold_starts(topology, count, range(1, 4))
    assert everywhere.value == 3


@pytest.mark.full
@pytest.mark.parametrize(
    ("topology", "count"),
    [(A_C_B, 3), (LINE, 4), (LINE_OF_6, 6), (GRID_OF_9, 9)],
    ids=["A-C-B", "4", "6", "grid"],
)
def test_sos_after_cold_start_reaches_all_kits_in_40_seeds(topology: str, count: int) -> None:
    everywhere, _ = cold_starts(topology, count)
    assert everywhere.value == 40
