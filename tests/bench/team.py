"""Measures a team of kits on one air: agents' cores on simulated radios, in virtual time.
Kits that have a link need the air little, so the rows are of kits with radios alone.

`python -m tests.bench.team` prints the table with its goals. With names of rows, it measures only
those, and `--seeds 20` prints the mean and the worst of that many seeds. There are rows of traffic
for kits without a hub in range, for kits with a link (`linked`), and for two simple models on the
same air: beacons with the known items (`beacons`), and a flood that each kit repeats once
(`flood`). A Package has arrived everywhere when each other kit's hook has it.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import trio
import trio.testing

from fieldagent.extensions.lab.simulator.air import (
    BurstLosses,
    Impairments,
    SharedAir,
    read_topology,
)
from fieldagent.package.package import Channel, Message
from fieldagent.wire.envelope import decode
from fieldagent.wire.outcome import Outcome
from tests import autojump
from tests.bench import plain, radio
from tests.bench.sky import Sky
from tests.bench.table import judged, show
from tests.extensions.radio.radio_kit import Station, station
from tests.kit import START

LINE, A_C_B = "1 2\n2 3\n3 4", "1 2\n2 3"
LINE_OF_6 = "1 2\n2 3\n3 4\n4 5\n5 6"
GRID_OF_9 = "1 2\n2 3\n4 5\n5 6\n7 8\n8 9\n1 4\n4 7\n2 5\n5 8\n3 6\n6 9"
SEEDS = 40
WITHIN = 600.0
"""Seconds within which a Package must arrive everywhere."""
MESSAGE_EVERY, POSITION_EVERY, FOR = 60.0, 120.0, 1800.0
ASKED = 10
"""Number of Packages that each kit without a link asks others to relay."""
AIRS = {
    "9600": {"bitrate": 9600.0, "preamble": 0.05},
    "sf7": {"bitrate": 10_937.0, "preamble": 0.007},  # LoRa, 250 kHz, 4/5
    "sf9": {"bitrate": 1758.0, "preamble": 0.06},  # LoRa, 125 kHz, 4/5
    "sf11": {"bitrate": 1074.0, "preamble": 0.17},  # LoRa, 250 kHz, 4/5: Meshtastic's LongFast
}


@dataclass(frozen=True)
class Figure:
    what: str
    value: float
    goal: float | None = None
    at_most: bool = False
    """True if the goal is an upper limit."""
    worst: float | None = None
    """Worst value of several seeds, when the value is the mean."""

    def in_words(self) -> str:
        worst = "" if self.worst is None else f" (worst {self.worst:.2f})"
        if self.goal is None:
            return f"  {self.what:<66}{self.value:>9.2f}{worst}"
        met = self.value <= self.goal if self.at_most else self.value >= self.goal
        sign = "<=" if self.at_most else ">="
        line = f"  {self.what:<66}{self.value:>9.2f}   {sign} {self.goal:<7g}"
        return judged(line, met) + worst


def at_most(what: str, value: float, goal: float | None = None) -> Figure:
    return Figure(what, value, goal, at_most=True)


@dataclass
class Team:
    sky: Sky
    kits: list[Station]
    came: dict[tuple[int, str], float] = field(default_factory=dict)
    """Time of the first arrival at a kit's hook, by kit and text."""
    copies: int = 0
    """Number of texts that arrived at a hook more than once."""

    def look(self) -> None:
        for kit in self.kits:
            texts = kit.messages(newer=True)
            for text in texts:
                if text != "None":
                    self.copies += (kit.number, text) in self.came
                    self.came.setdefault((kit.number, text), trio.current_time())

    def has(self, text: str) -> list[int]:
        self.look()
        return [kit.number for kit in self.kits if (kit.number, text) in self.came]


Scenario = Callable[[Team], Awaitable[list[Figure]]]


@dataclass(frozen=True)
class Place:
    """Conditions of a measurement: the number of kits, who hears whom, losses and radio speed."""

    count: int
    loss: float = 0.0
    topology: str | None = None
    linked: frozenset[int] = frozenset()
    """Numbers of the kits that have a link to the hub and relay for the others."""
    asks: bool = True
    """True if the others ask for a relay, like a kit with a hub but without a route to it."""
    hops: int = 3
    air: str = "9600"
    fades: tuple[float, float] | None = None
    """Share of the time with a fade, and its seconds."""

    def sky(self, seed: int) -> Sky:
        chance = Random(seed)
        losses = None if self.topology is None else read_topology(self.topology, self.count)
        air = SharedAir(chance, Impairments(loss=self.loss), losses=losses, **AIRS[self.air])  # type: ignore[arg-type]
        if self.fades is not None:
            air.fades = BurstLosses(*self.fades, Random(seed))
        return Sky(air, chance)


def at_once(monkeypatched: Any = trio.to_thread) -> None:
    """Make commits of the journal run without a worker thread."""

    async def run_sync(work: Callable[..., Any], *args: Any, **_: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*args)

    monkeypatched.run_sync = run_sync


def measure(scenario: Scenario, place: Place, seed: int = 1) -> list[Figure]:
    async def run(path: Path) -> list[Figure]:
        sky = place.sky(seed)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            nursery.start_soon(sky.run)
            kits = []
            for number in range(1, place.count + 1):
                linked = number in place.linked
                over = frozenset({Channel.CELLULAR} if linked else ())
                entered = station(
                    path,
                    number,
                    path,
                    asks_for_relay=lambda linked=linked: place.asks and not linked,  # type: ignore[misc]
                    relays_over=over,
                    hops=place.hops,
                    modem=sky.modem(number).opened,
                )
                kits.append(await stack.enter_async_context(entered))
            figures = await scenario(Team(sky, kits))
            await stack.aclose()
            nursery.cancel_scope.cancel()
        return figures

    threads = trio.to_thread.run_sync
    at_once()
    try:
        with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            clock = trio.testing.MockClock(autojump_threshold=0)
            return trio.run(run, Path(folder), clock=clock)
    finally:
        trio.to_thread.run_sync = threads


async def known(team: Team) -> None:
    """Let each kit send its name, so that all know each other."""
    for kit in team.kits:
        await kit.post(message={"content": f"here is {kit.number}"})
        await trio.sleep(20)
    await trio.sleep(600)
    team.sky.forget()


async def sos(team: Team) -> list[Figure]:
    """Measure an SOS from each of five kits, ten minutes apart."""
    await known(team)
    posts = team.kits[:5]
    for kit in posts:
        await kit.post(message={"content": f"sos {kit.number}"}, priority=100)
        await trio.sleep(WITHIN)
    got = sum(len({*team.has(f"sos {kit.number}")} - {kit.number}) for kit in posts)
    of = len(posts) * (len(team.kits) - 1)
    return [
        Figure(f"at how many of {of} hooks an SOS is within 10 min", got, of),
        at_most("twice at a hook", team.copies, 0),
        Figure("transmissions an SOS", team.sky.transmissions() / len(posts)),
    ]


async def end_to_end(team: Team) -> list[Figure]:
    await known(team)
    await team.kits[0].post(message={"content": "sos"}, priority=100)
    await trio.sleep(WITHIN)
    of = len(team.kits) - 1
    return [
        Figure(f"at how many of {of} hooks the SOS is within 10 min", len(team.has("sos")), of),
        Figure("transmissions", team.sky.transmissions()),
    ]


async def cold_start(team: Team) -> list[Figure]:
    """Post an SOS a minute after all kits were switched on, with some lost hellos."""
    await trio.sleep(60)
    team.sky.forget()
    await team.kits[0].post(message={"content": "sos"}, priority=100)
    others = len(team.kits) - 1
    with trio.move_on_after(WITHIN):
        while len(team.has("sos")) < others:
            await trio.sleep(1)
    return [
        Figure("hooks", len(team.has("sos"))),
        Figure("transmissions", team.sky.transmissions()),
    ]


def cold_starts(
    topology: str, count: int, seeds: Sequence[int] = range(1, SEEDS + 1)
) -> list[Figure]:
    """Measure several seeds: each SOS must be at all hooks within ten minutes."""
    place = Place(count, 0.3, topology, hops=count - 1)
    figures = {seed: measure(cold_start, place, seed) for seed in seeds}
    missed = [seed for seed, (hooks, _) in figures.items() if hooks.value < count - 1]
    if missed:
        show(f"  missed with the seeds {' '.join(map(str, missed))}")
    everywhere, of = len(figures) - len(missed), len(figures)
    return [
        Figure(f"of {of} seeds, in how many the SOS is at every hook", everywhere, of),
        Figure("transmissions until then", fmean(sent.value for _, sent in figures.values())),
    ]


@dataclass(frozen=True)
class Traffic:
    """Row with regular traffic: each kit sends a message per minute and a position every two
    minutes, for half an hour.
    """

    every: float = MESSAGE_EVERY
    seconds: float = FOR
    within: float = WITHIN
    together: bool = False
    """True if all post at the same instant."""
    positions: bool = True
    goals: tuple[float | None, ...] = (None, None, None)
    """Goals: share that arrives everywhere, transmissions per Package, used air."""

    async def __call__(self, team: Any) -> list[Figure]:
        posted: list[tuple[int, str, float]] = []
        count, slots = len(team.kits), int(self.seconds / self.every)
        packages = 0

        async def talk(kit: Any) -> None:
            nonlocal packages
            if not self.together:
                await trio.sleep(self.every * kit.number / (count + 1))
            for number in range(slots):
                text = f"{kit.number}: message {number}, Camp reached"
                posted.append((kit.number, text, trio.current_time()))
                await kit.post(message={"content": text})
                packages += 1
                if self.positions and number % 2 == 1:
                    moment = datetime.fromtimestamp(START + trio.current_time(), UTC)
                    position = {"latitude": 47.0, "longitude": 8.0}
                    await kit.post(location=position | {"timestamp": moment.isoformat()})
                    packages += 1
                await trio.sleep(self.every)

        async def look() -> None:
            while True:
                team.look()
                await trio.sleep(10)

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            async with trio.open_nursery() as talking:
                for kit in team.kits:
                    talking.start_soon(talk, kit)
            air = team.sky.seconds / (trio.current_time() - began)
            each = team.sky.transmissions() / packages
            await trio.sleep(self.within + 11)
            nursery.cancel_scope.cancel()
        late: dict[str, int] = defaultdict(int)
        for sender, text, at in posted:
            others = (kit.number for kit in team.kits if kit.number != sender)
            late[text] = sum(
                team.came.get((other, text), 1e9) - at > self.within + 10 for other in others
            )
        everywhere = sum(not lacking for lacking in late.values())
        share, most, used = self.goals
        return [
            Figure("everywhere in time, in %", 100 * everywhere / len(posted), share),
            Figure(
                "at the hooks in time, in %",
                100 - 100 * sum(late.values()) / len(posted) / (count - 1),
            ),
            at_most("transmissions a Package", each, most),
            at_most("the same, with the quiet after", team.sky.transmissions() / packages),
            at_most("air used, in %", 100 * air, used),
            at_most("twice at a hook", team.copies, 0),
        ]


async def one_goes_home(team: Team) -> list[Figure]:
    """Measure half an hour of traffic, after which the last kit is out of range for an hour."""
    before = await Traffic(positions=False)(team)
    gone = team.kits.pop()
    team.sky.air.away.add(gone.number)
    await Traffic(positions=False, seconds=600)(team)
    team.sky.forget()
    after = await Traffic(positions=False)(team)
    one, other = before[2].value, after[2].value
    return [
        Figure("transmissions a Package before", one),
        Figure("transmissions a Package from 20 minutes after", other),
        at_most("of before", other / one, 1.1),
    ]


async def one_returns(team: Team) -> list[Figure]:
    """Measure the return of a kit that was away while the others sent for half an hour, including
    an SOS.
    """
    await known(team)
    back = team.kits.pop()
    team.sky.air.away.add(back.number)
    await team.kits[0].post(message={"content": "sos"}, priority=100)
    await Traffic(positions=False)(team)
    said = {text for number, text in team.came if number != back.number and "message" in text}
    team.kits.append(back)
    team.sky.air.away.discard(back.number)
    team.sky.forget()
    began = trio.current_time()
    await back.post(message={"content": "I am back"})
    for _ in range(1800):
        await trio.sleep(1)
        team.look()
    order = [text for number, text in team.came if number == back.number]
    got = [text for text in order if text in said]
    first = team.came.get((back.number, "sos"), 1e9) - began
    return [
        Figure(f"of {len(said)} messages it has", len(got), len(said)),
        Figure("seconds until it has the SOS", first),
        Figure("transmissions for it, a message", team.sky.transmissions() / len(said)),
        at_most("twice at a hook", team.copies, 0),
    ]


async def relayed(team: Team) -> list[Figure]:
    """Post items of kits without a link that others must relay to the hub."""
    await known(team)
    texts: set[str] = set()
    asking = [kit for kit in team.kits if Channel.CELLULAR not in kit.outboxes]
    if team.sky.air.losses is not None:
        asking = asking[:1]  # the kit in between has its own request
    async with trio.open_nursery() as nursery:
        for kit in team.kits:
            if kit not in asking and Channel.CELLULAR in kit.outboxes:
                nursery.start_soon(bring, kit, texts)
        for number in range(ASKED):
            for kit in asking:
                content = f"{kit.number} to the hub: {number}"
                await kit.post(message={"content": content}, channels=["Radio"])
            await trio.sleep(60)
        await trio.sleep(1800)
        nursery.cancel_scope.cancel()
    asked = {f"{kit.number} to the hub: {number}" for kit in asking for number in range(ASKED)}
    return [
        Figure(f"how many of {len(asked)} the hub has", len(asked & texts), len(asked)),
        Figure("transmissions a Package", team.sky.transmissions() / len(asked)),
    ]


async def bring(kit: Station, texts: set[str]) -> None:
    """Act as its link to the hub, which accepts everything immediately."""
    outbox = kit.outboxes[Channel.CELLULAR]
    while True:
        await outbox.wait_until_ready()
        transmission = outbox.load(4096)
        if transmission is not None:
            contents = [entry.content for entry in decode(transmission.body).entries]
            texts |= {each.content for each in contents if isinstance(each, Message)}
            await outbox.settle(transmission, Outcome.SENT)


def transfer() -> list[Figure]:
    """Measure over simulated nodes with ptys."""
    autojump.install()
    goals = dict(zip(radio.LOSSES, (0.85, 0.75, 0.55), strict=True))
    return [
        Figure(f"of what the air carries after headers, {loss:.0%} loss", radio.ratio(loss), goal)
        for loss, goal in goals.items()
    ]


TRAFFIC: dict[str, tuple[str, Place, Traffic]] = {
    "5-0": ("5 kits", Place(5), Traffic()),
    "10-0": ("10 kits", Place(10), Traffic(goals=(99.5, 2.2, 6))),
    "10-10": ("10 kits, 10 % loss", Place(10, 0.1), Traffic(goals=(99.5, None, None))),
    "10-30": ("10 kits, 30 % loss", Place(10, 0.3), Traffic(goals=(99.5, 4.5, None))),
    "30-10": ("30 kits, 10 % loss", Place(30, 0.1), Traffic(goals=(99.5, 4.5, 15))),
    "100-10": (
        "100 kits, 10 % loss, a message each ten minutes",
        Place(100, 0.1),
        Traffic(600, 1800, 1800, positions=False, goals=(99, None, None)),
    ),
    "10-fades": (
        "10 kits, each two of which fade a fifth of the time, for a minute",
        Place(10, fades=(0.2, 60)),
        Traffic(),
    ),
    "10-instant": ("10 kits that post at one instant", Place(10, 0.1), Traffic(together=True)),
    "10-sf7": ("10 kits, 10 %, LoRa SF7 at 250 kHz", Place(10, 0.1, air="sf7"), Traffic()),
    "10-sf9": (
        "10 kits, 10 %, LoRa SF9 at 125 kHz, a fifth of the traffic",
        Place(10, 0.1, air="sf9"),
        Traffic(300, 3600),
    ),
    "10-sf11": (
        "10 kits, 10 %, Meshtastic's LongFast (SF11 at 250 kHz), a fifth of the traffic",
        Place(10, 0.1, air="sf11"),
        Traffic(300, 3600),
    ),
}

ASKED_FOR = re.compile(r"linked|beacons|flood|traffic(30|100|10-(fades|instant|sf))")
"""Rows that run only by name: the other models, and rows that take minutes."""
Run = Callable[[int], list[Figure]]


def rows() -> Iterator[tuple[str, str, Run]]:
    for name, (what, place, traffic) in TRAFFIC.items():
        what = f"{what}"
        yield f"traffic{name}", what + ", radio only", partial(measure, traffic, place)
        linked = Place(place.count, place.loss, asks=False, air=place.air, fades=place.fades)
        yield f"linked{name}", what + ", all with a link", partial(measure, traffic, linked)
        for model in (plain.Beacons, plain.Flood):
            label = model.__name__.lower()
            yield (
                f"{label}{name}",
                what + f", {label}",
                partial(measure_plain, model, traffic, place),
            )
    yield "home", "one of 5 goes home, 10 % loss", partial(measure, one_goes_home, Place(5, 0.1))
    yield "return", "one of 5 returns, 10 % loss", partial(measure, one_returns, Place(5, 0.1))
    yield "sos", "SOS, 10 kits, 30 % loss", partial(measure, sos, Place(10, 0.3))
    for loss in (0.0, 0.3):
        at = f", {loss:.0%} loss"
        yield (
            f"line-{100 * loss:.0f}",
            f"SOS, a line of 4 whose ends do not hear each other{at}",
            partial(measure, end_to_end, Place(4, loss, LINE)),
        )
        yield (
            f"acb-{100 * loss:.0f}",
            f"relay asked over one without a link (A-C-B){at}",
            partial(measure, relayed, Place(3, loss, A_C_B, frozenset({3}))),
        )
    shapes = (("acb", A_C_B, 3), ("line", LINE, 4), ("line6", LINE_OF_6, 6), ("grid", GRID_OF_9, 9))
    for name, topology, count in shapes:
        yield (
            f"cold-{name}",
            f"SOS after a cold start, {name} of {count}, 30 % loss",
            lambda seed, topology=topology, count=count: cold_starts(  # type: ignore[misc]
                topology, count, range(seed, seed + SEEDS)
            ),
        )
    yield (
        "relay",
        "relay asked by 4 of 5 in range, 30 % loss",
        partial(measure, relayed, Place(5, 0.3, linked=frozenset({5}))),
    )
    yield "transfer", "3 000 bytes between two", lambda seed: transfer()


def measure_plain(
    model: type[plain.Beacons] | type[plain.Flood], traffic: Traffic, place: Place, seed: int
) -> list[Figure]:
    async def run() -> list[Figure]:
        sky = place.sky(seed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sky.run)
            team = plain.Team(
                sky, [model(number, sky, seed) for number in range(1, place.count + 1)]
            )
            for kit in team.kits:
                nursery.start_soon(kit.run)
            figures = await traffic(team)
            nursery.cancel_scope.cancel()
        return figures

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def over_seeds(run: Run, seeds: int) -> list[Figure]:
    """Return the mean of each figure, and the worst."""
    results = [run(seed) for seed in range(1, seeds + 1)]
    if seeds == 1:
        return results[0]
    return [
        Figure(
            first.what,
            fmean(each.value for each in same),
            first.goal,
            first.at_most,
            (max if first.at_most else min)(each.value for each in same),
        )
        for same in zip(*results, strict=True)
        for first in same[:1]
    ]


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.team")
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    known_rows = {name: (what, run) for name, what, run in rows()}
    if unknown := {*options.rows} - known_rows.keys():
        sys.exit(f"no row {', '.join(sorted(unknown))}; there are {', '.join(known_rows)}")
    for name in options.rows or [each for each in known_rows if not ASKED_FOR.match(each)]:
        what, run = known_rows[name]
        show(f"{name}: {what}")
        for figure in over_seeds(run, options.seeds):
            show(figure.in_words())


if __name__ == "__main__":
    main(*sys.argv[1:])
