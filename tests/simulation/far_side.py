"""Simulated receivers at the other end of each channel, which count the items that arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.mesh.packet import split_by_origin
from fieldagent.extensions.radio.mesh.summaries import list_numbers
from fieldagent.extensions.radio.radios.node import NodeModem, open_node
from fieldagent.package.package import IncidentState, IncidentUpdate, Message
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    Envelope,
    Fragment,
    Introduction,
    JournalNumber,
    Program,
    Receipt,
    RelayRequest,
    Report,
    RouteToHub,
    Source,
    compute_fragments_digest,
    compute_item_digest,
    decode,
    encode,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.fragments import join

AGENT = 1
"""Station number of the agent by radio. For the hub it is 0."""

_NO_ITEM = (
    Ack | RelayRequest | RouteToHub | Source | Report | Introduction | Program | JournalNumber
)


@dataclass
class Collector:
    """Decodes envelopes as a receiver does, and records their items."""

    items: dict[int, set[bytes]] = field(default_factory=dict)
    """Complete items by number. A receiver passes each of the set to its user."""
    carried: dict[tuple[int, int], set[bytes]] = field(default_factory=dict)
    """Complete items that the agent has relayed, by station and number."""
    receipts: Counter[int] = field(default_factory=Counter)
    named: set[int] = field(default_factory=set)
    """Incidents that the kit has named as open."""
    _slices: dict[tuple[int, int, int], dict[int, bytes]] = field(default_factory=dict)

    def receive_message(self, body: bytes) -> Envelope:
        envelope = decode(body)
        for part in split_by_origin(envelope):
            for entry in part.entries:
                self._take(entry, part.origin)
        return envelope

    def _take(self, entry: Entry, origin: int) -> None:
        content = entry.content
        if isinstance(content, Fragment):
            slices = self._slices.setdefault((origin, entry.sequence, content.count), {})
            slices[content.index] = content.payload
            if len(slices) == content.count:
                for inner in decode(join(slices)).entries:
                    self._take(inner, origin)
        elif isinstance(content, Receipt):
            self.receipts[entry.sequence] += 1
        elif isinstance(content, IncidentUpdate) and content.state is IncidentState.OPEN:
            self.named.add(content.incident)
        elif isinstance(content, _NO_ITEM):
            pass
        elif origin in (0, AGENT):
            self.items.setdefault(entry.sequence, set()).add(encode([entry]))
        else:
            self.carried.setdefault((origin, entry.sequence), set()).add(encode([entry]))

    def digest(self, entry: Entry) -> bytes:
        """Return the digest of its arrived fragments."""
        assert isinstance(entry.content, Fragment)
        slices = self._slices.get((AGENT, entry.sequence, entry.content.count), {})
        return compute_fragments_digest(slices[index] for index in sorted(slices))

    def arrived(self, entry: Entry) -> frozenset[int]:
        assert isinstance(entry.content, Fragment)
        return frozenset(self._slices.get((AGENT, entry.sequence, entry.content.count), {}))


@dataclass
class Neighbour:
    """A station in radio range. It acknowledges items, and sometimes sends items, for which it may
    request a relay to the hub.
    """

    station: int
    port: str
    random: Random
    collector: Collector = field(default_factory=Collector)
    away: bool = False
    to_say: dict[int, Entry] = field(default_factory=dict)
    """Items of this station that the agent has not acknowledged yet, by number."""
    answered: set[int] = field(default_factory=set)
    pleaded: set[int] = field(default_factory=set)
    told_carried: set[int] = field(default_factory=set)
    """Items that the agent reports as relayed to the hub."""
    _answers: dict[int, Entry] = field(default_factory=dict)
    _news: trio.Event = field(default_factory=trio.Event)

    def send_events(self, sequence: int, text: str, time: int, *, plead: bool) -> None:
        self.to_say[sequence] = Entry(sequence, Message(text), time)
        if plead:
            self.pleaded.add(sequence)
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def run(self) -> None:
        while True:
            try:
                async with (
                    open_node(RadioPlace(self.port), ChannelLink()) as air,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._listen, air)
                    nursery.start_soon(self._speak, air)
            except* (RadioLost, PortLost):
                pass
            await trio.sleep(10)

    async def _listen(self, air: NodeModem) -> None:
        while True:
            packet = (await air.receive()).body
            with suppress(RemoteProtocolError):
                if not self.away and decode(packet).origin == AGENT:
                    self._hear(self.collector.receive_message(packet))

    def _hear(self, envelope: Envelope) -> None:
        for entry in split_by_origin(envelope)[0].entries:
            content = entry.content
            if isinstance(content, Ack):
                if content.station == self.station and content.by_hub:
                    self.told_carried.add(entry.sequence)
                if content.station == self.station:
                    numbers = list_numbers(entry) if content.count == 0 else [entry.sequence]
                    said = self.to_say.keys() & numbers
                    for number in said:
                        del self.to_say[number]
                    self.answered |= said
            elif isinstance(content, Fragment):
                arrived = self.collector.arrived(entry)
                digest = self.collector.digest(entry)
                heard = Ack(AGENT, content.count, arrived, digest=digest)
                self._answers[entry.sequence] = Entry(entry.sequence, heard)
            elif not isinstance(content, _NO_ITEM):
                self._answers[entry.sequence] = Entry(
                    entry.sequence, Ack(AGENT, digest=compute_item_digest(entry))
                )
        self._wake()

    async def _speak(self, air: NodeModem) -> None:
        while True:
            if self.away or not (self._answers or self.to_say):
                news = self._news
                with trio.move_on_after(3600):
                    await news.wait()
                continue
            await trio.sleep(self.random.uniform(0.2, 1.0))
            entries = [*self._answers.values()][:6] or [*self.to_say.values()][:1]
            if not entries:
                continue
            for entry in entries:
                self._answers.pop(entry.sequence, None)
            if entries[0].sequence in self.pleaded and isinstance(entries[0].content, Message):
                entries.append(Entry(0, RelayRequest(0)))
            with trio.move_on_after(100):
                await air.transmit(encode(entries, origin=self.station), urgent=False)
            if isinstance(entries[0].content, Message):
                await trio.sleep(self.random.uniform(20, 400))


@dataclass
class Operator:
    """The satellite operator's gateway: `simulator.sbd_session.Gateway`."""

    told: Callable[[str], None]
    collector: Collector = field(default_factory=Collector)
    bodies: list[bytes] = field(default_factory=list)
    waiting_messages: list[bytes] = field(default_factory=list)
    taken_messages: int = 0

    def receive_mobile_originated(self, imei: str, momsn: int, body: bytes) -> None:
        self.told(f"operator takes MO {momsn}, {len(body)} bytes")
        self.bodies.append(body)
        self.collector.receive_message(body)

    def get_mobile_terminated(self) -> bytes | None:
        return self.waiting_messages[0] if self.waiting_messages else None

    def remove_mobile_terminated(self) -> None:
        self.waiting_messages.pop(0)
        self.taken_messages += 1

    def count_waiting(self) -> int:
        return len(self.waiting_messages)


@dataclass
class HubPost:
    """The hub's end of an IP link: `ip_link.Post`."""

    collector: Collector
    waiting: list[Any]
    told: Callable[[str], None]
    stored_bodies: list[bytes] = field(default_factory=list)
    news: trio.Event = field(default_factory=trio.Event)

    def put(self, item: Any) -> None:
        self.waiting.append(item)
        self.news.set()
        self.news = trio.Event()

    async def wait_for_next_note(self) -> bytes:
        await trio.sleep_forever()

    async def process_note(self, body: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def accept_hello(self, journal: int) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_for_next(self, *, urgent: bool) -> Any:
        await trio.lowlevel.checkpoint()
        if urgent:
            await trio.sleep_forever()
        while not self.waiting:
            await self.news.wait()
        return self.waiting.pop(0)

    async def mark_stored(self, item: Any) -> None:
        await trio.lowlevel.checkpoint()
        self.stored_bodies.append(item.body)

    async def return_unsent(self, items: list[Any], reason: str) -> None:
        self.waiting[:0] = items

    async def store_body(self, body: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self.told(f"hub takes {len(body)} bytes")
        self.collector.receive_message(body)
