"""Carries out the steps of the model `air.pml` with the code of kits on a simulated radio channel.

Each kit's driver waits for its turn, and the receivers of each packet are those of the model.
Before each step, the model's state is compared with each kit's journal and memory.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from fieldagent.agent.channels.radio_modem import ReceivedPacket, ReceiveQueue, TransmitResult
from fieldagent.agent.journal import on_air, outbound
from fieldagent.agent.outbound.item_identity import make_entry
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.extensions.radio import driver as radio
from fieldagent.extensions.radio.mesh.summaries import list_numbers
from fieldagent.extensions.radio.mesh.troubles import Trouble
from fieldagent.package.package import Message, Status
from fieldagent.wire.envelope import Ack, AuthorMark, compute_item_digest, decode
from tests.extensions.radio.radio_kit import Station, only_what_is_posted, station
from tests.models.spin import Step

ADA, TWIN = 0, 3
NAMES = ("ada", "ben", "cleo", "twin")
TEXTS = {"a": 1, "b": 2}
BETWEEN = 8.0
"""Seconds between two steps, in which repetitions become due and unanswered packets are
given up."""
PATIENCE = 1200.0
"""Seconds in which a kit gets ready to send."""
CROWD = 3
HOPS = 100
"""Hop limit of packets: more than any trace of the model needs."""
LEGS = {None: "waits", Status.DELIVERED: "delivered"}


class Turns:
    """Controls which kit may transmit now, and contains the kit's packet."""

    def __init__(self) -> None:
        self.outbox: ChannelOutbox | None = None
        self.changed = trio.Event()
        self.said: list[bytes] = []

    def give(self, outbox: ChannelOutbox | None) -> None:
        self.outbox = outbox
        self.changed.set()
        self.changed = trio.Event()

    def hold_calls(self, patch: pytest.MonkeyPatch) -> None:
        ready = ChannelOutbox.wait_until_ready

        async def held(outbox: ChannelOutbox, *, urgent: bool = False) -> None:
            while self.outbox is not outbox:
                await self.changed.wait()
            await ready(outbox, urgent=urgent)

        patch.setattr(ChannelOutbox, "wait_until_ready", held)
        # A twin's identical bytes are not an echo here.
        patch.setattr(radio, "ECHOES_MAX", 0)


class Radio:
    """Implements `RadioModem`: the walk takes each packet and chooses its receivers."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.heard = ReceiveQueue()

    async def transmit(self, packet: bytes, *, urgent: bool) -> TransmitResult:
        await trio.lowlevel.checkpoint()
        self._turns.said.append(packet)
        self._turns.give(None)
        return TransmitResult.TRANSMITTED

    async def receive(self) -> ReceivedPacket:
        return await self.heard.receive()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Radio]:
        yield self


class Walk:
    """One trace of the model. Each kit runs in a task of `nursery`."""

    def __init__(self, place: Path, twin_of: int, turns: Turns, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._place = place
        self._turns = turns
        self._numbers = [1, 2, 3, *[twin_of] * bool(twin_of)]
        self._kits: dict[int, Station] = {}
        self._stop_calls: dict[int, trio.Event] = {}
        self._stopped: dict[int, trio.Event] = {}
        self._radios: dict[int, Radio] = {}
        self._sequence = 0
        self._digests: dict[bytes, int] = {}
        self._gone: set[int] = set()

    async def begin(self) -> None:
        for index in range(len(self._numbers)):
            if index == TWIN and self._numbers[index] == 1:
                # The card was copied before either posted.
                await self._stop(ADA)
                shutil.copytree(self._folder(ADA), self._folder(TWIN))
                await self._start(ADA)
            await self._start(index)
        senders = [index for index, number in enumerate(self._numbers) if number == 1]
        for index, text in zip(senders, TEXTS, strict=False):
            kit = self._kits[index]
            self._sequence = await kit.post(message={"content": text})
            posted = outbound.read_kept_package(kit.journal, self._sequence)
            assert posted is not None
            self._digests[compute_item_digest(make_entry(posted))] = TEXTS[text]

    async def end(self) -> None:
        for index in self._kits:
            await self._stop(index)

    def _folder(self, index: int) -> Path:
        return self._place / NAMES[index] / f"station-{self._numbers[index]}"

    async def _start(self, index: int) -> None:
        self._stop_calls[index], self._stopped[index] = trio.Event(), trio.Event()
        await self._nursery.start(self._live, index)

    async def _live(self, index: int, *, task_status: trio.TaskStatus[None]) -> None:
        set_ = self._radios[index] = Radio(self._turns)
        folder, number = self._folder(index).parent, self._numbers[index]
        async with station(folder, number, folder, hops=HOPS, modem=set_.opened) as kit:
            self._kits[index] = kit
            task_status.started()
            await self._stop_calls[index].wait()
        self._stopped[index].set()

    async def _stop(self, index: int) -> None:
        self._stop_calls[index].set()
        await self._stopped[index].wait()

    async def receive_message(self, step: Step) -> None:
        await trio.sleep(BETWEEN)
        assert (state := self._state()) == step.state, (step, state)
        if step.call in ("restart", "lose_journal"):
            index = NAMES.index(step.how)
            await self._stop(index)
            if step.call == "lose_journal":
                shutil.rmtree(self._folder(index))
                self._gone.add(index)
            await self._start(index)
        elif step.call != "ended":
            await self._speak(NAMES.index(step.how), step)

    async def _speak(self, index: int, step: Step) -> None:
        """Let it transmit to the chosen receivers. A packet that only contains its own name is
        lost.
        """
        kit = self._kits[index]
        if step.call == "fill":
            # A new kit may be there, so this one need not be silent for long.
            kit.words.repeat_for_returned_station(crowd=CROWD)
            kit.outbox.packing.queue.wake()
        packet = None
        with trio.move_on_after(PATIENCE):
            while packet is None or self._call(packet) == "":
                self._turns.give(kit.outbox)
                while not self._turns.said:
                    await trio.sleep(0.5)
                packet = self._turns.said.pop()
        assert packet is not None, f"the code says nothing, the model does {step}"
        assert self._call(packet) == step.call, (step, decode(packet))
        for other, set_ in self._radios.items():
            if step.value & (1 << other):
                set_.heard.add_packet(ReceivedPacket(packet))

    def _call(self, packet: bytes) -> str:
        """Return the part of the packet about the item, or "" if it only contains a name."""
        entries = decode(packet).entries
        if any(isinstance(each.content, Message) for each in entries):
            repeated = any(isinstance(each.content, AuthorMark) for each in entries)
            return "_pack_repeats" if repeated else "pack"
        return "fill" if any(isinstance(each.content, Ack) for each in entries) else ""

    # The state that the model sees.

    def _state(self) -> dict[str, str]:
        kits = [self._kits.get(index) for index in range(len(NAMES))]
        twin_of = self._numbers[TWIN] if len(self._numbers) > TWIN else 0
        holders = on_air.read_holders(self._kits[ADA].journal, self._sequence)
        return {
            "twin": str(twin_of),
            "leg": f"{self._delivery(ADA)},{self._delivery(TWIN) if twin_of == 1 else 'none'}",
            "confirmed": str(sum(1 << number for number in holders)),
            "has": _in_line(0 if kit is None else self._has(kit) for kit in kits),
            "here": _in_line(0 if kit is None else self._here(kit)[0] for kit in kits),
            "lack": _in_line(0 if kit is None else self._here(kit)[1] for kit in kits),
            "noticed": _in_line(
                int(kit is not None and kit.troubles.is_recent(Trouble.NAMESAKE)) for kit in kits
            ),
        }

    def _delivery(self, index: int) -> str:
        if index in self._gone:
            return "gone"
        (delivery,) = outbound.read_deliveries(self._kits[index].journal, self._sequence).values()
        return LEGS[delivery.status]

    def _has(self, kit: Station) -> int:
        return sum(TEXTS[text] for text in kit.messages())

    def _here(self, kit: Station) -> tuple[int, int]:
        """Return which of the two items it lists, and whether it lists that it has none."""
        summary = kit.words.summaries.make_summary(1)
        if summary is None:
            return 0, 0
        digest = kit.words.summaries.find_digest(1, self._sequence)
        number = 0 if digest is None else self._digests[digest]
        return number, int(self._sequence not in list_numbers(summary))


def _in_line(values: Any) -> str:
    return ",".join(map(str, values))


async def walk(steps: Sequence[Step], place: Path) -> None:
    """Carry out a trace of the model with the real code. Fails if a state of the code differs from
    the state of the model.
    """
    turns = Turns()
    with pytest.MonkeyPatch.context() as patch:
        only_what_is_posted(patch)
        turns.hold_calls(patch)
        async with trio.open_nursery() as nursery:
            taken = Walk(place, int(steps[0].state["twin"]), turns, nursery)
            try:
                await taken.begin()
                for step in steps:
                    await taken.receive_message(step)
            finally:
                await taken.end()
