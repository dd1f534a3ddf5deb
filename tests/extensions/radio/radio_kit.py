"""Agents' cores on simulated nodes, with real ptys, a shared air and a separate journal each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from random import Random

import pytest
import trio

from fieldagent.agent.assembly import HubChannelOptions, assemble_hub_channel, make_channel_queue
from fieldagent.agent.channels.air_pace import AIR_BYTES, ROUND_FRAGMENTS_MAX, WINDOW
from fieldagent.agent.channels.contract import ChannelLink, Reception
from fieldagent.agent.channels.radio_modem import AirReception, RadioModem
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake, Resume
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.extensions.lab.simulator.air import Impairments, SharedAir, read_topology
from fieldagent.extensions.lab.simulator.node import SimulatedNode
from fieldagent.extensions.lab.simulator.nodes import Nodes
from fieldagent.extensions.radio import driver as radio
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.identification import IdentificationTimer, open_identified
from fieldagent.extensions.radio.mesh import repeating
from fieldagent.extensions.radio.mesh.key_change import GroupKeys, KeyStep
from fieldagent.extensions.radio.mesh.neighbours import Neighbours
from fieldagent.extensions.radio.mesh.radio_piggyback import RadioPiggyback
from fieldagent.extensions.radio.mesh.relay import Relay
from fieldagent.extensions.radio.mesh.rounds import Rounds
from fieldagent.extensions.radio.mesh.station import StationSettings, make_piggyback, set_up
from fieldagent.extensions.radio.mesh.troubles import AirTroubles
from fieldagent.extensions.radio.radios.node import open_node
from fieldagent.package.package import Channel, Status
from fieldagent.package.reading import read_package
from tests.agent.channels.contract import CheckedRadio
from tests.kit import START, Core, TrustedClocks
from tests.running import running


@dataclass
class Station(Core):
    """The core of one agent with a radio."""

    number: int
    outbox: ChannelOutbox
    reception: AirReception
    neighbours: Neighbours
    troubles: AirTroubles
    rounds: Rounds
    relay: Relay | None
    words: RadioPiggyback
    use_group_keys: Callable[[GroupKeys, KeyStep], None]

    async def post(self, **document: object) -> int:
        """Post a Package, by default a message, and return its number on the air."""
        if not {"message", "data", "location"} & document.keys():
            document["message"] = {"content": "hello"}
        return (await self.intake.accept(read_package(document))).sequence

    async def outcome(self, sequence: int) -> Status | None:
        return (await self.endings.wait_for_outcome(sequence)).status

    def notice(self) -> str:
        return "" if self.relay is None else self.relay.find_notice()

    looked: int = 0

    def messages(self, *, newer: bool = False) -> list[str]:
        """Return the texts of received messages, the oldest first. With `newer`, only those since
        the last such call.
        """
        after = self.looked if newer else 0
        sql = "SELECT number, body FROM inbound WHERE number > ? ORDER BY number"
        rows = self.journal.read(sql, after)
        if newer and rows:
            self.looked = rows[-1][0]
        return [_content(body) for _, body in rows]


def _content(body: str) -> str:
    event = json.loads(body)["payloads"][0]["events"][0]
    return str(event.get("content") or event.get("payload"))


@dataclass
class OnAir:
    air: SharedAir
    nodes: Nodes
    log: list[str]

    def node(self, index: int) -> SimulatedNode:
        node = self.nodes.sockets[index].node
        assert isinstance(node, SimulatedNode)
        return node


def clock() -> float:
    return START + trio.current_time()


@asynccontextmanager
async def station(
    path: Path,
    number: int,
    port: Path,
    *,
    keys: tuple[bytes, ...] = (),
    asks_for_relay: Callable[[], bool] = lambda: False,
    low: Callable[[], bool] = lambda: False,
    relays_over: frozenset[Channel] = frozenset(),
    credits_per_day: int = 10,
    hops: int = 3,
    key_step: KeyStep = KeyStep.NONE,
    sealed: bool = False,
    callsign: str = "",
    packet_bytes: int = AIR_BYTES,
    repeats_sos: bool = True,
    modem: Callable[[], AbstractAsyncContextManager[RadioModem]] | None = None,
) -> AsyncIterator[Station]:
    """Yield a station. `relays_over` adds channels to the hub, and the test acts as their driver.
    With `modem`, its radio is that modem instead of a node on a port.
    """
    folder = path / f"station-{number}"
    folder.mkdir(exist_ok=True, parents=True)
    journal = Journal(folder / "journal.sqlite3", TrustedClocks())
    inbox = Inbox(journal, ["script"], clock=clock)
    radio_ = Channel.RADIO
    queues = {name: make_channel_queue(journal, name) for name in (*sorted(relays_over), radio_)}
    settings = StationSettings(
        number,
        f"Kit {number}",
        keys,
        relays_over,
        credits_per_day,
        86_400,
        packet_bytes,
        hops,
        key_step,
        sealed,
        repeats_sos=repeats_sos,
    )
    words = make_piggyback(
        settings, journal, asks_for_relay=asks_for_relay, is_battery_low=low, clock=clock
    )
    endings = Endings(journal, queues, clock=clock, neighbours=words if relays_over else None)
    intake = Intake(journal, queues, endings, time_to_live=86_400, head_start=120.0)
    outboxes: dict[Channel, ChannelOutbox] = {}
    receptions: dict[Channel, Reception] = {}
    for name in relays_over:
        outboxes[name], receptions[name] = assemble_hub_channel(
            journal, inbox, endings, queues[name], ChannelLink(), HubChannelOptions()
        )
    link = ChannelLink()
    on_the_air = set_up(settings, journal, inbox, intake, endings, words, queues[radio_], link)
    outboxes[radio_], receptions[radio_] = on_the_air.outbox, on_the_air.reception
    Resume(journal, queues, intake, endings, trio.Event()).begin()
    opener: Callable[[], AbstractAsyncContextManager[RadioModem]]
    place = RadioPlace(str(port), packet_bytes=packet_bytes)
    opener = partial(open_node, place, link) if modem is None else modem
    if callsign:
        opener = partial(
            open_identified, opener, IdentificationTimer(on_the_air.make_identification(callsign))
        )
    try:
        async with running(journal), trio.open_nursery() as nursery:
            for each in outboxes.values():
                nursery.start_soon(each.run)
            driving = partial(radio.run, random=Random(number), packet_bytes=packet_bytes)
            nursery.start_soon(on_the_air.repeating.run)
            outbox = CheckedRadio(on_the_air.outbox, in_flight=WINDOW + ROUND_FRAGMENTS_MAX)
            nursery.start_soon(driving, opener, outbox, on_the_air.reception, link)
            yield Station(
                journal,
                inbox,
                queues,
                endings,
                intake,
                outboxes,
                receptions,
                number,
                on_the_air.outbox,
                on_the_air.reception,
                on_the_air.neighbours,
                on_the_air.troubles,
                on_the_air.rounds,
                on_the_air.relay,
                words,
                on_the_air.use_group_keys,
            )
            nursery.cancel_scope.cancel()
    finally:
        journal.close()


@asynccontextmanager
async def on_air(
    path: Path,
    impairments: Mapping[str, float] | None = None,
    count: int = 2,
    *,
    topology: str | None = None,
    seed: int = 3,
) -> AsyncIterator[OnAir]:
    """Yield nodes and the air between them. The test opens the stations."""
    log: list[str] = []
    losses = None if topology is None else read_topology(topology, count)
    air = SharedAir(Random(seed), Impairments(**(impairments or {})), losses=losses)
    nodes = Nodes(air, [path / f"node-{n}" for n in range(1, count + 1)], log.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(nodes.run)
        yield OnAir(air, nodes, log)
        nursery.cancel_scope.cancel()


def only_what_is_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop the hello packets of stations, so that only posted items are transmitted."""
    monkeypatch.setattr(repeating, "PRESENT_FIRST", inf)


async def until(condition: Callable[[], bool], seconds: float = 3600.0) -> None:
    """Wait until the condition is true. Fails after that many seconds of virtual time."""
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(1)
