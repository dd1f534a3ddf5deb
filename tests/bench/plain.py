"""Two simple radio protocols for comparison with ours: beacons that list the known items, and a
flood.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

import cbor2
import trio

from tests.bench.sky import Sky

BEACON_EVERY = 60.0
HEAD, POSITION = 24, 20
"""Bytes of an envelope without the text, and bytes of a position."""
ENTRY = 18
"""Bytes in a beacon for the items of one sender."""
PACKET = 200
HOPS = 3

Item = tuple[int, int]
"""Sender and sequence number of an item."""


class Kit:
    def __init__(self, number: int, sky: Sky, seed: int) -> None:
        self.number = number
        self.random = Random(seed * 1000 + number)
        self.modem = sky.modem(number)
        self.items: dict[Item, str] = {}
        self.came: list[str] = []
        self._out, self._to_send = trio.open_memory_channel[dict[str, Any]](10_000)

    async def post(self, **document: Any) -> None:
        text = document.get("message", {"content": ""})["content"]
        item = self.number, len(self.items) + 1_000_000
        self.items[item] = text
        self.begin(item)

    def begin(self, item: Item) -> None:
        raise NotImplementedError

    def send_events(self, **words: Any) -> None:
        self._out.send_nowait(words)

    def take_in(self, item: Item, text: str) -> bool:
        """Store an item and return True if it is new."""
        if item in self.items:
            return False
        self.items[item] = text
        if text:
            self.came.append(text)
        return True

    async def send_all(self) -> NoReturn:
        while True:
            words = await self._to_send.receive()
            size = words.pop("bytes")
            if words.pop("void", lambda: False)():
                continue
            await trio.sleep(self.random.random())
            packet = cbor2.dumps(words)
            await self.modem.transmit(packet.ljust(size, b"\0"), urgent=False)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.send_all)
            nursery.start_soon(self.listen)
            nursery.start_soon(self.tick)

    async def listen(self) -> NoReturn:
        while True:
            packet = await self.modem.receive()
            self.hear(cbor2.loads(packet.body))

    def hear(self, words: dict[str, Any]) -> None:
        raise NotImplementedError

    async def tick(self) -> None:
        pass

    def size(self, item: Item) -> int:
        text = self.items[item]
        return HEAD + (len(text) if text else POSITION)


class Beacons(Kit):
    """A kit that sends each item once, and a list of its items each minute. If another kit's list
    does not contain an item, the kit repeats the item after a random wait, unless a third kit
    repeats it first.
    """

    def __init__(self, number: int, sky: Sky, seed: int) -> None:
        super().__init__(number, sky, seed)
        self.heard: dict[Item, float] = {}
        """Last time of each item on the air."""
        self.due: dict[Item, float] = {}

    def begin(self, item: Item) -> None:
        self.send_events(item=item, text=self.items[item], bytes=self.size(item))

    def hear(self, words: dict[str, Any]) -> None:
        now = trio.current_time()
        if "item" in words:
            item = words["item"][0], words["item"][1]
            self.take_in(item, words["text"])
            self.heard[item] = now
            self.due.pop(item, None)
        else:
            has = {(one, other) for one, other in self.beacons[words["of"]]}
            for item in self.items.keys() - has:
                if item[0] != words["by"]:
                    self.due.setdefault(item, now + 1 + 14 * self.random.random())

    beacons: dict[int, list[Item]] = {}  # noqa: RUF012
    """Content of each beacon, by number: on the air only its size counts."""

    async def tick(self) -> None:
        said = trio.current_time() + BEACON_EVERY * self.random.random()
        while True:
            now = trio.current_time()
            for item in [item for item, at in self.due.items() if at <= now]:
                del self.due[item]
                self.send_events(item=item, text=self.items[item], bytes=self.size(item))
            if now >= said:
                said = now + BEACON_EVERY * (0.9 + 0.2 * self.random.random())
                number = len(Beacons.beacons)
                Beacons.beacons[number] = [*self.items]
                origins = len({origin for origin, _ in self.items})
                size = 8 + ENTRY * origins
                for _ in range(size // PACKET):
                    self.send_events(more=1, by=self.number, of=number, bytes=PACKET)
                self.send_events(by=self.number, of=number, bytes=max(24, size % PACKET))
            await trio.sleep(0.5)


class Flood(Kit):
    """A kit that repeats each received item once, unless it hears a repetition by another kit. It
    repeats its own items up to three times, until it hears a repetition.
    """

    def __init__(self, number: int, sky: Sky, seed: int) -> None:
        super().__init__(number, sky, seed)
        self.times: dict[Item, int] = {}
        """Number of times that each item was heard."""

    def begin(self, item: Item) -> None:
        for tries in range(3):
            self.send_events(
                item=item,
                text=self.items[item],
                hops=0,
                bytes=self.size(item),
                void=lambda tries=tries: tries > 0 and self.times.get(item, 0) > 0,
            )

    def hear(self, words: dict[str, Any]) -> None:
        item = words["item"][0], words["item"][1]
        self.times[item] = self.times.get(item, 0) + 1
        if self.take_in(item, words["text"]) and words["hops"] < HOPS:
            self.send_events(
                item=item,
                text=words["text"],
                hops=words["hops"] + 1,
                bytes=self.size(item),
                void=lambda: self.times[item] > 1,
            )


@dataclass
class Team:
    """Implements the functions of `team.Team` for kits of these protocols."""

    sky: Sky
    kits: list[Any]
    came: dict[tuple[int, str], float] = field(default_factory=dict)
    copies: int = 0

    def look(self) -> None:
        for kit in self.kits:
            for text in kit.came:
                self.came.setdefault((kit.number, text), trio.current_time())
            kit.came.clear()
