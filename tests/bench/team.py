"""How a team of kits fares on one air: agents' cores on simulated nodes, in virtual time.

`python -m tests.bench.team` prints the table; with names of rows it measures those alone. Seeds are
fixed; what hangs on the order in which ptys answer moves the figures by a few in a hundred.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
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
from tests.agent.channels.radio_kit import OnAir, Station, on_air, station
from tests.kit import START

LINE = "1 2\n2 3\n3 4"
WITHIN = 600.0
"""Seconds in which a Package is to be everywhere."""
MESSAGE_EVERY, POSITION_EVERY, FOR = 60.0, 120.0, 1800.0


@dataclass
class Team:
    sky: OnAir
    kits: list[Station]

    def transmissions(self) -> int:
        return sum("transmits" in line for line in self.sky.log)

    def seconds_on_air(self) -> float:
        sizes = [int(line.split()[3]) for line in self.sky.log if "transmits" in line]
        return sum(self.sky.air.airtime(bytes(size)) for size in sizes)


def measure(
    scenario: Callable[[Team], Awaitable[str]],
    count: int,
    loss: float,
    *,
    topology: str | None = None,
    linked: frozenset[int] = frozenset(range(100)),
    seed: int = 1,
) -> str:
    """`linked` are the kits that reach the hub; the others ask for a relay."""

    async def run(path: Path) -> str:
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
                        asks_for_relay=lambda number=number: number not in linked,  # type: ignore[misc]
                        relays_over=frozenset({Channel.CELLULAR})
                        if number in linked and len(linked) < 100
                        else frozenset(),
                    )
                )
                for number in range(1, count + 1)
            ]
            while not all(kit.outbox.link.facts.get("node") for kit in kits):
                await trio.sleep(0.1)
            return await scenario(Team(sky, kits))

    with TemporaryDirectory() as folder:
        clock = trio.testing.MockClock(autojump_threshold=0.03)
        return trio.run(run, Path(folder), clock=clock)


async def known(team: Team) -> None:
    """Each has said its name, so that all know who is there."""
    for kit in team.kits:
        await kit.post(message={"content": f"here is {kit.number}"})
        await trio.sleep(20)
    await trio.sleep(600)
    team.sky.log.clear()


async def sos(team: Team) -> str:
    """Each kit but five posts an SOS, ten minutes apart; at how many of the other hooks it is."""
    await known(team)
    posts = team.kits[:5]
    for kit in posts:
        await kit.post(message={"content": f"sos {kit.number}"}, priority=100)
        await trio.sleep(WITHIN)
    got = sum(
        kit.messages().count(f"sos {sender.number}")
        for sender in posts
        for kit in team.kits
        if kit is not sender
    )
    twice = sum(len(kit.messages()) - len({*kit.messages()}) for kit in team.kits)
    of = len(posts) * (len(team.kits) - 1)
    each = team.transmissions() / len(posts)
    return f"{got} of {of}, {twice} twice, {each:.1f} transmissions each"


async def end_to_end(team: Team) -> str:
    await known(team)
    await team.kits[0].post(message={"content": "sos"}, priority=100)
    await trio.sleep(WITHIN)
    got = [kit.number for kit in team.kits if "sos" in kit.messages()]
    return f"at {got}, {team.transmissions()} transmissions"


async def traffic(team: Team) -> str:
    posted: list[tuple[Station, str, float]] = []
    came: dict[tuple[int, str], float] = {}

    async def talk(kit: Station) -> None:
        await trio.sleep(kit.number * 5)
        number = 0
        while trio.current_time() < FOR:
            text = f"{kit.number}: message {number}, Camp reached"
            posted.append((kit, text, trio.current_time()))
            await kit.post(message={"content": text})
            if number % 2:
                moment = datetime.fromtimestamp(START + trio.current_time(), UTC)
                timestamp = moment.isoformat()
                await kit.post(
                    location={"latitude": 47.0, "longitude": 8.0, "timestamp": timestamp}
                )
            number += 1
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
        sent = team.transmissions() / (len(posted) * 1.5)
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
    return (
        f"{100 * everywhere / len(posted):.1f} % everywhere within 10 min,"
        f" {sent:.1f} transmissions a Package, air used {100 * air:.1f} %"
    )


async def relayed(team: Team) -> str:
    """What the first posts, to be brought to the hub by others."""
    await known(team)
    found: set[str] = set()
    async with trio.open_nursery() as nursery:
        for kit in team.kits:
            if Channel.CELLULAR in kit.outboxes:
                nursery.start_soon(bring, kit, found)
        for number in range(10):
            await team.kits[0].post(message={"content": f"to the hub {number}"}, channels=["Radio"])
            await trio.sleep(60)
        await trio.sleep(1800)
        nursery.cancel_scope.cancel()
    asked = {f"to the hub {number}" for number in range(10)}
    return f"{len(asked & found)} of 10 at the hub, {team.transmissions()} transmissions"


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


ROWS: dict[str, tuple[str, Callable[[], str]]] = {
    "sos10": ("SOS, 10 kits, 30 % loss, of 45 hooks", lambda: measure(sos, 10, 0.3)),
    "sos5": ("SOS, 5 kits, 30 % loss, of 20 hooks", lambda: measure(sos, 5, 0.3)),
    "sos10clean": ("SOS, 10 kits, no loss", lambda: measure(sos, 10, 0.0)),
    "line": (
        "SOS, line of 4 whose ends do not hear each other",
        lambda: measure(end_to_end, 4, 0.0, topology=LINE),
    ),
    "line30": (
        "the same, 30 % loss",
        lambda: measure(end_to_end, 4, 0.3, topology=LINE),
    ),
    "relay": (
        "relay asked of 3 in earshot of whom one has a link, 30 % loss",
        lambda: measure(relayed, 4, 0.3, linked=frozenset({4})),
    ),
    "acb": (
        "relay asked over one without a link (A-C-B)",
        lambda: measure(relayed, 3, 0.0, topology="1 2\n2 3", linked=frozenset({3})),
    ),
    "acb30": (
        "the same, 30 % loss",
        lambda: measure(relayed, 3, 0.3, topology="1 2\n2 3", linked=frozenset({3})),
    ),
    **{
        f"traffic{count}-{loss:.0%}": (
            f"{count} kits, {loss:.0%} loss, a message a minute each",
            lambda count=count, loss=loss: measure(traffic, count, loss),  # type: ignore[misc]
        )
        for count in (5, 10)
        for loss in (0.0, 0.1, 0.3)
    },
}


def main() -> None:
    logging.disable(logging.CRITICAL)
    for name in sys.argv[1:] or ROWS:
        what, run = ROWS[name]
        print(f"{what:<64} {run()}", flush=True)


if __name__ == "__main__":
    main()
