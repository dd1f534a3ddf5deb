"""Radio between agents: real ptys, simulated nodes, and an air with losses, duplicates and
collisions.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from fieldagent.agent.channels.air_pace import AIR_BYTES
from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.journal import incident, outbound
from fieldagent.agent.outbound.package_state import list_reached
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.driver import URGENT_MAX
from fieldagent.extensions.radio.radios.node import open_node
from fieldagent.package.package import Channel, Message, Status
from fieldagent.package.reading import read_package
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    Fragment,
    Receipt,
    RelayRequest,
    Source,
    compute_fragments_digest,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.fragments import split
from fieldagent.wire.outcome import Outcome
from tests.extensions.radio.radio_kit import Station, on_air, station, until
from tests.kit import RATES, START, fail_after

RADIO, CELLULAR, SATELLITE = Channel.RADIO, Channel.CELLULAR, Channel.SATELLITE
KEY = derive_key(bytes(32), "AIR")


@pytest.fixture(params=RATES)
def clock(request: pytest.FixtureRequest) -> trio.testing.MockClock:
    """Ptys on this machine are faster than this clock. If one is not, the protocol repeats."""
    return trio.testing.MockClock(request.param, autojump_threshold=0)


def data(size: int) -> dict[str, Any]:
    return {"payload": base64.b64encode(bytes(i * 7 % 256 for i in range(size))).decode()}


async def test_package_is_delivered_once_neighbour_has_stored_item(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path) as sky, station(tmp_path, 1, tmp_path / "node-1") as ada:
        sequence = await ada.post(message={"content": "anybody there?"})
        await until(lambda: len(sky.log) > 2)
        assert ada.standing(1).status is None
        async with station(tmp_path, 2, tmp_path / "node-2") as ben:
            assert await ada.outcome(sequence) is Status.DELIVERED
            assert ben.messages() == ["anybody there?"]
        (receipt,) = ada.receipts(1)
        assert (receipt.by.name, receipt.by.type) == ("Kit 2", "Device")


async def test_sos_is_sent_although_radio_reports_no_results(
    tmp_path: Path, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The radio acknowledges on its line and transmits, but sends no Result."""
    async with (
        on_air(tmp_path) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        sky.node(0).mute = True
        await ada.post(message={"content": "ordinary"})
        await trio.sleep(2)
        for number in range(3):
            sequence = await ada.post(message={"content": f"SOS {number}"}, priority=100)
            text = f"SOS {number}"
            await until(lambda text=text: text in ben.messages(), URGENT_MAX + 5)  # type: ignore[misc]
            assert await ada.outcome(sequence) is Status.DELIVERED
        await until(lambda: "did not report the result of 3 packets" in caplog.text, 60)
        sky.node(0).mute = False
        assert await ada.outcome(await ada.post()) is Status.DELIVERED


async def test_unresponsive_node_is_detected_while_nothing_is_sent(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path) as sky, station(tmp_path, 1, tmp_path / "node-1") as ada:
        await until(lambda: ada.outbox.link.state is LinkState.READY)
        await trio.sleep(600)
        assert ada.outbox.link.state is LinkState.READY, "a node without traffic is present"
        sky.node(0).deaf = True
        await until(lambda: ada.outbox.link.state is LinkState.ABSENT, 70)
        assert "does not answer" in ada.outbox.link.reason
        sky.node(0).deaf = False
        await until(lambda: ada.outbox.link.state is LinkState.READY, 60)


@pytest.mark.full
@pytest.mark.parametrize("priority", [12, 100])
@pytest.mark.parametrize("minutes", [1, 3, 10, 30])
async def test_waiting_package_is_sent_when_neighbour_is_heard_again(
    tmp_path: Path, clock: Any, minutes: int, priority: int
) -> None:
    """First all packets are lost, and later none. A neighbour sends every few seconds."""
    async with (
        on_air(tmp_path) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
        trio.open_nursery() as nursery,
    ):
        assert await ada.outcome(await ada.post()) is Status.DELIVERED

        async def talk() -> None:
            for number in range(10_000):
                await ben.post(message={"content": f"word {number}"}, timeToLive=1)
                await trio.sleep(5)

        nursery.start_soon(talk)
        sky.air.losses = {}
        sequence = await ada.post(message={"content": "over the hill"}, priority=priority)
        await trio.sleep(60 * minutes)
        before = len(ada.messages())
        sky.air.losses = None
        await until(lambda: len(ada.messages()) > before)
        with fail_after(10):
            assert await ada.outcome(sequence) is Status.DELIVERED
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "impairments",
    [
        {},
        {"loss": 0.3},
        {"duplicates": 1.0},
        {"loss": 0.3, "duplicates": 0.3, "bit_errors": 0.0002, "delay": 3.0},
        {"bit_errors": 0.0005, "unnoticed": 1.0},
    ],
)
async def test_packages_are_delivered_in_both_directions_over_lossy_air(
    tmp_path: Path, clock: Any, impairments: dict[str, float]
) -> None:
    # If a damaged packet passes the radio's own check, the tag detects it.
    keys = (KEY,)
    async with (
        on_air(tmp_path, impairments),
        station(tmp_path, 1, tmp_path / "node-1", keys=keys) as ada,
        station(tmp_path, 2, tmp_path / "node-2", keys=keys) as ben,
    ):
        posted = [
            (sender, await sender.post(message={"content": f"{sender.number}.{number}"}))
            for number in range(10)
            for sender in (ada, ben)
        ]
        for sender, sequence in posted:
            assert await sender.outcome(sequence) is Status.DELIVERED
        assert sorted(ben.messages()) == [f"1.{number}" for number in range(10)]
        assert sorted(ada.messages()) == [f"2.{number}" for number in range(10)]


@pytest.mark.parametrize("impairments", [{}, {"loss": 0.3, "duplicates": 0.2}])
async def test_long_item_is_fragmented_and_only_lost_fragments_are_repeated(
    tmp_path: Path, clock: Any, impairments: dict[str, float]
) -> None:
    async with (
        on_air(tmp_path, impairments) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        await until(lambda: bool(ada.outbox.link.facts.get("node")))
        sequence = await ada.post(data=data(2000))
        assert await ada.outcome(sequence) is Status.DELIVERED
        assert ben.messages() == [data(2000)["payload"]]
        if not impairments:
            sizes = [line for line in sky.log if line.startswith("node 1 transmits")]
            assert len(sizes) == ada.cost(_package(2000), ada.outbox.channel).parts


@pytest.mark.parametrize(("loss", "answers"), [(0.0, 3), (0.3, 40)])
async def test_round_of_fragments_is_acknowledged_once(
    tmp_path: Path, clock: Any, loss: float, answers: int
) -> None:
    """The wait for a neighbour does not grow without limit, however bad the air is."""
    async with (
        on_air(tmp_path, {"loss": loss}) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        for each in (ada, ben):
            await until(lambda each=each: bool(each.outbox.link.facts.get("node")))  # type: ignore[misc]
            assert await each.outcome(await each.post()) is Status.DELIVERED
        sky.log.clear()
        with fail_after(600):
            assert await ada.outcome(await ada.post(data=data(3000))) is Status.DELIVERED
        said = [line for line in sky.log if line.startswith("node 2 transmits")]
        assert 1 <= len(said) <= answers


async def test_cancellation_ends_round_of_fragments(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        for each in (ada, ben):
            assert await each.outcome(await each.post()) is Status.DELIVERED
        sky.log.clear()
        await ada.post(data=data(3000))
        while len([line for line in sky.log if line.startswith("node 1 transmits")]) < 3:
            await trio.sleep(0.1)
        sky.air.losses = {}  # no station answers
        with fail_after(60):
            assert (await ada.cancellation.cancel(2)).status is Status.CANCELED


async def test_receiver_computes_number_of_fragments_that_follow(
    tmp_path: Path, clock: Any
) -> None:
    parts = [Fragment(index, 9, bytes([index] * 50)) for index in range(9)]
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:

        async def follow(index: int, *beside: Entry) -> int:
            body = encode([Entry(7, parts[index]), *beside], origin=5)
            return (await kit.reception.receive(body)).more_fragments

        assert [await follow(index) for index in (0, 1, 4, 8)] == [8, 7, 4, 0]
        assert await follow(3) == 3, "the missing fragments after this one"
        assert await follow(2, Entry(0, Source(5, 2))) == 2, "the number that the sender announces"
        assert await follow(2, Entry(0, Source(5, 0))) == 0, "the sender listens now"


async def test_last_fragments_announce_end_of_round(tmp_path: Path, clock: Any) -> None:
    """Without these marks, a receiver that misses the last packet does not know when to answer."""
    async with station(tmp_path, 2, tmp_path / "nowhere") as kit:
        await kit.reception.receive(encode([Entry(7, Message("there"))], origin=5))
        await kit.post(data=data(1500))
        sources = []
        more = True
        while more:
            transmission = kit.outbox.load(AIR_BYTES)
            assert transmission is not None
            more = transmission.more
            entries = decode(transmission.body).entries
            marks = [each.content for each in entries if isinstance(each.content, Source)]
            sources.append(marks)
        assert sources[-5:] == [[], *([Source(2, follow)] for follow in (3, 2, 1, 0))]


def _read_held_fragments(of: Station, sequence: int, count: int) -> set[int]:
    """Return the fragments that its only neighbour has."""
    held = outbound.read_held_fragments(of.journal, RADIO, sequence, count)
    return next(iter(held.values()), set())


async def test_package_is_not_delivered_until_one_station_has_all_fragments(
    tmp_path: Path, clock: Any
) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        open_node(RadioPlace(str(tmp_path / "node-2")), ChannelLink()) as ear,
    ):
        sequence = await ada.post(data=data(600))
        count = ada.cost(_package(600), ada.outbox.channel).parts
        has = {5: set(range(0, count, 2)), 6: set(range(1, count, 2))}

        async def says(number: int) -> None:
            digest = ada.digest_of_fragments(sequence, count, has[number])
            digest = ada.digest(sequence) if len(has[number]) == count else digest
            heard = Entry(sequence, Ack(1, count, frozenset(has[number]), digest=digest))
            await ada.reception.receive(encode([heard], origin=number))

        await says(5)
        await says(6)
        offered: set[int] = set()
        while len(offered) < count:
            entries = decode((await ear.receive()).body).entries
            offered |= {e.content.index for e in entries if isinstance(e.content, Fragment)}
        assert ada.standing(1).status is None
        has[6] = set(range(count))
        await says(6)
        assert await ada.outcome(sequence) is Status.DELIVERED


async def test_ack_of_other_fragmentation_does_not_deliver_package(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path), station(tmp_path, 1, tmp_path / "node-1") as ada:
        sequence = await ada.post()
        await until(lambda: ada.outbox.link.facts != {})
        heard = Entry(sequence, Ack(1, 5, frozenset([0]), digest=b"none"))
        await ada.reception.receive(encode([heard], origin=5))
        await trio.sleep(60)
        assert ada.standing(1).status is None


def _package(size: int) -> Any:
    return read_package({"data": data(size)})


async def test_sos_is_sent_between_fragments_of_data(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        large = await ada.post(data=data(9000))
        count = ada.cost(_package(9000), ada.outbox.channel).parts
        await until(lambda: bool(outbound.read_held_fragments(ada.journal, RADIO, large, count)))
        urgent = await ada.post(message={"content": "help"}, priority=100)
        assert await ada.outcome(urgent) is Status.DELIVERED
        assert ben.messages()[0] == "help"
        if not clock.rate:
            # If time passes while code runs, the other Package may be complete by now.
            assert ben.messages() == ["help"]
            assert ada.standing(1).status is None
        open_incident = incident.find_open(ada.journal)
        assert open_incident is not None, "storage at another kit does not end the incident"
        assert await ada.outcome(large) is Status.DELIVERED
        assert ben.messages() == ["help", data(9000)["payload"]]


async def test_fragments_resume_after_restart_without_duplicates(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "node-2") as ben:
        async with station(tmp_path, 1, tmp_path / "node-1") as ada:
            large = await ada.post(data=data(2000))
            count = ada.cost(_package(2000), ada.outbox.channel).parts
            await until(lambda: bool(_read_held_fragments(ada, large, count)))
        async with station(tmp_path, 1, tmp_path / "node-1") as ada:
            assert await ada.outcome(large) is Status.DELIVERED
        assert ben.messages() == [data(2000)["payload"]]


async def test_unplugged_and_rebooted_nodes_lose_no_package(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2") as ben,
    ):
        first, second = sky.nodes.sockets
        large = await ada.post(data=data(2500))
        for trouble in (first, second, first):
            await trio.sleep(2)
            sky.nodes.reboot(trouble)
            await trio.sleep(2)
            sky.nodes.unplug(trouble)
            await trio.sleep(30)
            sky.nodes.plug(trouble)
        assert await ada.outcome(large) is Status.DELIVERED
        assert ben.messages() == [data(2500)["payload"]]


async def test_unplugged_node_transmits_nothing(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
    ):
        await until(lambda: ada.outbox.link.state is LinkState.READY)
        sky.node(0).busy = True
        await ada.post(data=data(2500))
        await trio.sleep(2)
        sky.nodes.unplug(sky.nodes.sockets[0])
        sky.node(0).busy = False
        said = len(sky.log)
        await trio.sleep(30)
        assert [line for line in sky.log[said:] if line.startswith("node 1")] == []


async def test_recent_neighbour_is_asked_soon_after_radio_returns(
    tmp_path: Path, clock: Any
) -> None:
    """Ben answers and then hears nothing for two minutes, during which Ada's radio disappears and
    returns.
    """
    async with (
        on_air(tmp_path, topology="1 2") as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2"),
    ):
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        losses = sky.air.losses
        assert losses is not None
        losses[1, 2] = 1.0
        second = await ada.post(message={"content": "still there?"})
        await trio.sleep(100)
        sky.nodes.unplug(sky.nodes.sockets[0])
        await trio.sleep(5)
        sky.nodes.plug(sky.nodes.sockets[0])
        await trio.sleep(60)
        losses[1, 2] = 0.0
        with fail_after(150):
            assert await ada.outcome(second) is Status.DELIVERED


async def test_link_is_absent_while_node_is_unplugged(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path) as sky, station(tmp_path, 1, tmp_path / "node-1") as ada:
        await until(lambda: ada.outbox.link.state is LinkState.READY)
        sky.nodes.unplug(sky.nodes.sockets[0])
        await until(lambda: ada.outbox.link.state is LinkState.ABSENT)
        await ada.post()
        sky.nodes.plug(sky.nodes.sockets[0])
        await until(lambda: ada.outbox.link.state is not LinkState.ABSENT)


async def test_busy_channel_is_reported_and_delays_package(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path) as sky,
        station(tmp_path, 1, tmp_path / "node-1") as ada,
        station(tmp_path, 2, tmp_path / "node-2"),
    ):
        for socket in sky.nodes.sockets:
            socket.node.busy = True
        sequence = await ada.post()
        await until(lambda: ada.outbox.link.state is LinkState.NO_SERVICE)
        assert ada.outbox.link.reason == "the channel is busy"
        for socket in sky.nodes.sockets:
            socket.node.busy = False
        assert await ada.outcome(sequence) is Status.DELIVERED
        events = [line.event for line in ada.history(1)]
        assert "not sent" in events


async def test_station_with_other_key_is_not_heard(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", keys=(derive_key(bytes([1] * 32), "AIR"),)) as x,
        station(tmp_path, 2, tmp_path / "node-2", keys=(KEY,)) as ben,
    ):
        await x.post(timeToLive=600)
        await trio.sleep(1200)
        assert x.standing(1).status is Status.ERROR
        assert ben.messages() == []
        assert ben.neighbours.list_in_range() == []


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\xff" * 200,
        encode([Entry(1, Message("whose?"))]),
        encode([Entry(1, Receipt(digest=b"none")), Entry(1, Ack(77, digest=b"none"))], origin=9),
    ],
)
async def test_invalid_packets_are_ignored(tmp_path: Path, clock: Any, packet: bytes) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "node-2") as ben:
        await ben.reception.receive(packet)
        assert ben.messages() == []
        assert ben.outbox.load(200) is None


@pytest.mark.parametrize(
    ("said", "still_to_say"), [({0, 1, 2}, False), ({0, 1}, False), ({0, 2}, True)]
)
async def test_ack_is_not_sent_if_other_station_has_sent_same_ack(
    tmp_path: Path, clock: Any, said: set[int], still_to_say: bool
) -> None:
    parts = split(encode([Entry(1, Message("x" * 500))]), 180)
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "nowhere") as ben:
        for part in parts[:2]:
            await ben.reception.receive(encode([Entry(1, part)], origin=9))
        digest = compute_fragments_digest(parts[index].payload for index in sorted(said))
        other = Entry(1, Ack(9, len(parts), frozenset(said), digest=digest))
        await ben.reception.receive(encode([other], origin=8))
        assert (ben.outbox.load(200) is not None) is still_to_say


@pytest.mark.full
async def test_packets_from_many_station_numbers_use_bounded_memory(
    tmp_path: Path, clock: Any
) -> None:
    async with on_air(tmp_path), station(tmp_path, 2, tmp_path / "node-2") as ben:
        for number in range(10, 1110):
            await ben.reception.receive(encode([Entry(1, Message("x"))], origin=number))
        assert len(ben.neighbours.known) == 1000
        assert len(ben.words._acks) <= 256


async def test_late_ack_adds_receipt_to_expired_package(tmp_path: Path, clock: Any) -> None:
    async with on_air(tmp_path), station(tmp_path, 1, tmp_path / "node-1") as ada:
        await ada.post(timeToLive=30)
        await until(lambda: ada.standing(1).status is Status.ERROR)
        number = ada.sequence()
        late = Entry(number, Ack(1, digest=ada.digest(number)))
        await ada.reception.receive(encode([late], origin=5))
        assert ada.standing(1).status is Status.ERROR
        (receipt,) = ada.receipts(1)
        assert (receipt.by.id, receipt.by.type) == ("5", "Device")


# Relay for a neighbour.


async def _send_to_hub(outbox: Any, outcome: Outcome = Outcome.SENT) -> Any:
    """Transmit as a driver of that channel would do to the hub."""
    with fail_after(600):
        await outbox.wait_until_ready()
    transmission = outbox.load(340)
    await outbox.settle(transmission, outcome)
    return decode(transmission.body)


async def test_relayed_item_keeps_origin_and_sequence(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: True) as ada,
        station(tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([CELLULAR])) as ben,
    ):
        sequence = await ada.post(message={"content": "no link here"})
        envelope = await _send_to_hub(ben.outboxes[CELLULAR])
        assert envelope.origin == 1
        (entry,) = envelope.entries
        assert (entry.sequence, entry.content) == (sequence, Message("no link here"))
        await until(lambda: "relayed" in [line.event for line in _read_history(ada)])
        assert len(ben.outboxes[CELLULAR]) == 0
        assert ben.messages() == ["no link here"]


def _read_history(of: Any) -> Any:
    return of.history(1)


@pytest.mark.parametrize("priority", [12, 100])
async def test_satellite_relay_reports_hub_only_after_receipt_of_hub(
    tmp_path: Path, clock: Any, priority: int
) -> None:
    def ladder() -> list[str]:
        known = outbound.find_by_sequence(ada.journal, sequence)
        assert known is not None
        return [each.text for each in list_reached(ada.journal, known)]

    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: True) as ada,
        station(tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([SATELLITE])) as ben,
    ):
        sequence = await ada.post(message={"content": "help"}, priority=priority)
        await _send_to_hub(ben.outboxes[SATELLITE])
        await until(lambda: "left by Kit 2's satellite" in ladder())
        assert not any("hub" in each for each in ladder())
        ((carried,),) = ben.journal.read("SELECT sequence FROM carried")
        await ben.journal.persist(lambda db: outbound.store_receipt(db, carried, 0, 1.0))
        await ben.endings.record_arrival_at_hub(carried, is_proved=True)
        await until(lambda: "at the hub, reported by a neighbour" in ladder())


async def test_item_of_station_with_own_link_is_not_relayed(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: False) as ada,
        station(tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([CELLULAR])) as ben,
    ):
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        assert len(ben.outboxes[CELLULAR]) == 0


async def test_item_of_neighbour_is_relayed_once_over_one_channel(
    tmp_path: Path, clock: Any
) -> None:
    both = frozenset([CELLULAR, SATELLITE])
    async with (
        on_air(tmp_path, {"loss": 0.3, "duplicates": 0.5}),
        station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: True) as ada,
        station(tmp_path, 2, tmp_path / "node-2", relays_over=both) as ben,
    ):
        assert await ada.outcome(await ada.post()) is Status.DELIVERED
        await _send_to_hub(ben.outboxes[CELLULAR])
        await trio.sleep(600)
        assert [len(outbox) for outbox in ben.outboxes.values()] == [0, 0, 0]


async def test_reused_sequence_of_neighbour_is_relayed_as_new_item(
    tmp_path: Path, clock: Any
) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 2, tmp_path / "nowhere", relays_over=frozenset([CELLULAR])) as ben,
    ):
        for content in ("before", "before", "after"):
            plea = [Entry(1, Message(content)), Entry(0, RelayRequest(0))]
            await ben.reception.receive(encode(plea, origin=1))
        envelope = await _send_to_hub(ben.outboxes[CELLULAR])
        contents = [entry.content for entry in envelope.entries]
        assert contents == [Message("before"), Message("after")]
        assert len(ben.outboxes[CELLULAR]) == 0


async def test_relay_credits_limit_items_of_neighbours_except_sos(
    tmp_path: Path, clock: Any
) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: True) as ada,
        station(
            tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([SATELLITE]), credits_per_day=2
        ) as ben,
    ):
        for number in range(4):
            content = f"note {number}"
            assert await ada.outcome(await ada.post(message={"content": content}))
        assert len(ben.outboxes[SATELLITE]) == 2
        await ada.outcome(await ada.post(message={"content": "help"}, priority=100))
        envelope = await _send_to_hub(ben.outboxes[SATELLITE])
        assert envelope.entries[0].content == Message("help")
        assert envelope.entries[0].sos


async def test_fragmented_item_is_relayed_whole(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path, {"loss": 0.2}),
        station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: True) as ada,
        station(tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([CELLULAR])) as ben,
    ):
        sequence = await ada.post(data=data(900))
        assert await ada.outcome(sequence) is Status.DELIVERED
        outbox = ben.outboxes[CELLULAR]
        transmission = outbox.load(65_536)
        assert transmission is not None
        envelope = decode(transmission.body)
        assert (envelope.origin, envelope.entries[0].sequence) == (1, sequence)


async def test_relayed_item_survives_restart_of_relaying_kit(tmp_path: Path, clock: Any) -> None:
    async with (
        on_air(tmp_path),
        station(tmp_path, 1, tmp_path / "node-1", asks_for_relay=lambda: True) as a,
    ):
        async with station(tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([CELLULAR])):
            assert await a.outcome(await a.post(message={"content": "kept"})) is Status.DELIVERED
        async with station(
            tmp_path, 2, tmp_path / "node-2", relays_over=frozenset([CELLULAR])
        ) as ben:
            envelope = await _send_to_hub(ben.outboxes[CELLULAR])
            assert (envelope.origin, envelope.entries[0].content) == (1, Message("kept"))
            assert envelope.entries[0].time >= int(START)
