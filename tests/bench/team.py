"""How a team of kits fares on one air: agents' cores on simulated nodes, in virtual time.

`python -m tests.bench.team` prints the table, with its goals; with names of rows it measures those
alone. Seeds are fixed; what hangs on the order in which ptys and disks answer moves the figures by
a few in a hundred. A Package counts as everywhere when it is at the hook of every other kit.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import trio
import trio.testing

from fieldagent.package.package import Channel, Message
from fieldagent.wire.envelope import decode
from fieldagent.wire.outcome import Outcome
from tests import autojump
from tests.agent.channels.radio_kit import OnAir, Station, on_air, station
from tests.bench import radio
from tests.kit import START

LINE, A_C_B = "1 2\n2 3\n3 4", "1 2\n2 3"
WITHIN = 600.0
"""Seconds in which a Package is to be everywhere."""
MESSAGE_EVERY, POSITION_EVERY, FOR = 60.0, 120.0, 1800.0
SLOTS = int(FOR / MESSAGE_EVERY)
ASKED = 10
"""Packages that each kit without a link asks to be relayed."""


@dataclass(frozen=True)
class Figure:
    what: str
    value: float
    goal: float | None = None
    at_most: bool = False
    """The goal is a bound from above."""

    def in_words(self) -> str:
        if self.goal is None:
            return f"  {self.what:<66}{self.value:>9.2f}"
        met = self.value <= self.goal if self.at_most else self.value >= self.goal
        sign = "<=" if self.at_most else ">="
        return (
            f"  {self.what:<66}{self.value:>9.2f}   {sign} {self.goal:<7g}"
            f" {'met' if met else 'NOT MET'}"
        )


@dataclass
class Team:
    sky: OnAir
    kits: list[Station]

    def transmissions(self) -> int:
        return sum("transmits" in line for line in self.sky.log)

    def seconds_on_air(self) -> float:
        sizes = [int(line.split()[3]) for line in self.sky.log if "transmits" in line]
        return sum(self.sky.air.airtime(bytes(size)) for size in sizes)

    def twice(self) -> int:
        """Messages that a hook got more than once."""
        texts = [[each for each in kit.messages() if each != "None"] for kit in self.kits]
        return sum(len(each) - len({*each}) for each in texts)


Scenario = Callable[[Team], Awaitable[list[Figure]]]


def measure(
    scenario: Scenario,
    count: int,
    loss: float,
    *,
    topology: str | None = None,
    linked: frozenset[int] = frozenset(),
    seed: int = 1,
) -> list[Figure]:
    """Where some are `linked`, those reach the hub, and the others ask for a relay."""

    def asks(number: int) -> Callable[[], bool]:
        return lambda: bool(linked) and number not in linked

    async def run(path: Path) -> list[Figure]:
        async with AsyncExitStack() as stack:
            sky = await stack.enter_async_context(
                on_air(path, {"loss": loss}, count, topology=topology, seed=seed)
            )
            kits = [
                await stack.enter_async_context(
                    station(
                        path,
                        number,
                        path / f"node-{number}",
                        asks_for_relay=asks(number),
                        relays_over=frozenset({Channel.CELLULAR} if number in linked else ()),
                    )
                )
                for number in range(1, count + 1)
            ]
            while not all(kit.outbox.link.facts.get("node") for kit in kits):
                await trio.sleep(0.1)
            return await scenario(Team(sky, kits))

    with TemporaryDirectory() as folder:
        clock = trio.testing.MockClock(autojump_threshold=0.001)
        return trio.run(run, Path(folder), clock=clock)


async def known(team: Team) -> None:
    """Each has said its name, so that all know who is there."""
    for kit in team.kits:
        await kit.post(message={"content": f"here is {kit.number}"})
        await trio.sleep(20)
    await trio.sleep(600)
    team.sky.log.clear()


async def sos(team: Team) -> list[Figure]:
    """Five kits post an SOS each, ten minutes apart."""
    await known(team)
    posts = team.kits[:5]
    for kit in posts:
        await kit.post(message={"content": f"sos {kit.number}"}, priority=100)
        await trio.sleep(WITHIN)
    got = sum(
        f"sos {sender.number}" in kit.messages()
        for sender in posts
        for kit in team.kits
        if kit is not sender
    )
    of = len(posts) * (len(team.kits) - 1)
    return [
        Figure(f"at how many of {of} hooks an SOS is within 10 min", got, of),
        Figure("twice at a hook", team.twice(), 0, at_most=True),
        Figure("transmissions an SOS", team.transmissions() / len(posts)),
    ]


async def end_to_end(team: Team) -> list[Figure]:
    await known(team)
    await team.kits[0].post(message={"content": "sos"}, priority=100)
    await trio.sleep(WITHIN)
    got = sum("sos" in kit.messages() for kit in team.kits[1:])
    of = len(team.kits) - 1
    return [
        Figure(f"at how many of {of} hooks the SOS is within 10 min", got, of),
        Figure("transmissions", team.transmissions()),
    ]


async def traffic(team: Team) -> list[Figure]:
    """A message a minute and a position each two minutes, from each kit, for half an hour."""
    posted: list[tuple[Station, str, float]] = []
    came: dict[tuple[int, str], float] = {}
    count = len(team.kits)

    async def talk(kit: Station) -> None:
        await trio.sleep(MESSAGE_EVERY * kit.number / (count + 1))
        for number in range(SLOTS):
            text = f"{kit.number}: message {number}, Camp reached"
            posted.append((kit, text, trio.current_time()))
            await kit.post(message={"content": text})
            if number % (POSITION_EVERY / MESSAGE_EVERY) == 1:
                moment = datetime.fromtimestamp(START + trio.current_time(), UTC)
                position = {"latitude": 47.0, "longitude": 8.0, "timestamp": moment.isoformat()}
                await kit.post(location=position)
            await trio.sleep(MESSAGE_EVERY)

    async def look() -> None:
        while True:
            for kit in team.kits:
                for text in kit.messages():
                    came.setdefault((kit.number, text), trio.current_time())
            await trio.sleep(10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        async with trio.open_nursery() as talking:
            for kit in team.kits:
                talking.start_soon(talk, kit)
        air = team.seconds_on_air() / trio.current_time()
        each = team.transmissions() / (count * SLOTS * (1 + MESSAGE_EVERY / POSITION_EVERY))
        await trio.sleep(WITHIN + 11)
        nursery.cancel_scope.cancel()
    everywhere = sum(
        all(
            came.get((kit.number, text), 1e9) - at <= WITHIN + 10
            for kit in team.kits
            if kit is not sender
        )
        for sender, text, at in posted
    )
    loss = team.sky.air.impairments.loss
    share = GOALS.get((count, loss))
    clean = not loss
    return [
        Figure("everywhere within 10 min, in %", 100 * everywhere / len(posted), share),
        Figure(
            "transmissions a Package",
            each,
            {5: 2.5, 10: 3.5}[count] if clean else None,
            at_most=True,
        ),
        Figure("air used, in %", 100 * air, 6 if clean and count == 10 else None, at_most=True),
        Figure("twice at a hook", team.twice(), 0, at_most=True),
    ]


GOALS = {(5, 0.1): 99.5, (5, 0.3): 98.0, (10, 0.1): 99.0, (10, 0.3): 97.0}
"""By kits and loss, how many in a hundred Packages are to be everywhere."""


async def relayed(team: Team) -> list[Figure]:
    """What those without a link post, to be brought to the hub by others."""
    await known(team)
    found: set[str] = set()
    asking = [kit for kit in team.kits if Channel.CELLULAR not in kit.outboxes]
    if team.sky.air.losses is not None:
        asking = asking[:1]  # the one in between has its own question
    async with trio.open_nursery() as nursery:
        for kit in team.kits:
            if kit not in asking and Channel.CELLULAR in kit.outboxes:
                nursery.start_soon(bring, kit, found)
        for number in range(ASKED):
            for kit in asking:
                content = f"{kit.number} to the hub: {number}"
                await kit.post(message={"content": content}, channels=["Radio"])
            await trio.sleep(60)
        await trio.sleep(1800)
        nursery.cancel_scope.cancel()
    asked = {f"{kit.number} to the hub: {number}" for kit in asking for number in range(ASKED)}
    return [
        Figure(f"how many of {len(asked)} the hub has", len(asked & found), len(asked)),
        Figure("transmissions a Package", team.transmissions() / len(asked)),
    ]


async def bring(kit: Station, found: set[str]) -> None:
    """Its link to the hub, which takes everything at once."""
    outbox = kit.outboxes[Channel.CELLULAR]
    while True:
        await outbox.ready()
        transmission = outbox.load(4096)
        if transmission is not None:
            contents = [entry.content for entry in decode(transmission.body).entries]
            found |= {each.content for each in contents if isinstance(each, Message)}
            await outbox.settle(transmission, Outcome.SENT)


def transfer() -> list[Figure]:
    goals = dict(zip(radio.LOSSES, (0.85, 0.75, 0.55), strict=True))
    return [
        Figure(f"of what the air carries after headers, {loss:.0%} loss", radio.ratio(loss), goal)
        for loss, goal in goals.items()
    ]


def rows() -> Iterator[tuple[str, str, Callable[[], list[Figure]]]]:
    for count in (5, 10):
        for loss in (0.0, 0.1, 0.3):
            yield (
                f"traffic{count}-{100 * loss:.0f}",
                f"{count} kits, {loss:.0%} loss, a message a minute and half a position each",
                lambda count=count, loss=loss: measure(traffic, count, loss),  # type: ignore[misc]
            )
    yield "sos", "SOS, 10 kits, 30 % loss", lambda: measure(sos, 10, 0.3)
    for loss in (0.0, 0.3):
        at = f", {loss:.0%} loss"
        yield (
            f"line-{100 * loss:.0f}",
            f"SOS, a line of 4 whose ends do not hear each other{at}",
            lambda loss=loss: measure(end_to_end, 4, loss, topology=LINE),  # type: ignore[misc]
        )
        yield (
            f"acb-{100 * loss:.0f}",
            f"relay asked over one without a link (A-C-B){at}",
            lambda loss=loss: measure(  # type: ignore[misc]
                relayed, 3, loss, topology=A_C_B, linked=frozenset({3})
            ),
        )
    yield (
        "relay",
        "relay asked by 4 of 5 in earshot, 30 % loss",
        lambda: measure(relayed, 5, 0.3, linked=frozenset({5})),
    )
    yield "transfer", "3 000 bytes between two", transfer


def main(*names: str) -> None:
    logging.disable(logging.CRITICAL)
    autojump.install()
    known_rows = {name: (what, run) for name, what, run in rows()}
    if unknown := {*names} - known_rows.keys():
        sys.exit(f"no row {', '.join(sorted(unknown))}; there are {', '.join(known_rows)}")
    for name in names or known_rows:
        what, run = known_rows[name]
        print(what, flush=True)
        for figure in run():
            print(figure.in_words(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
