"""`python -m tests.soak.sos_day --minutes 8`: a short day of a team, with twenty incidents under
the soak's faults, with real processes. Each is raised at a kit, seen by a dispatcher, answered
and closed, while kits, hubs, database, links, modems and radio nodes fail.

The exit code is 1 if one is lost, ends without a person, or is at the desk twice.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

import trio

from tests.postgres import Server, server
from tests.processes import administer
from tests.soak.faults import plague
from tests.soak.ledger import Ledger
from tests.soak.world import Kit, World, world

INCIDENTS, KITS = 20, 4
ANSWER = "help is on its way"
LOOK_EVERY = 0.5
PATIENCE = 900.0
"""Maximum seconds of one incident, from the press to its end at the kit."""
in_thread = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(100))
Answer = TypeVar("Answer")


@dataclass
class Day:
    raised: list[tuple[str, int]] = field(default_factory=list)
    """Incidents by the kit's name and number."""
    until_desk: list[float] = field(default_factory=list)
    until_closed: list[float] = field(default_factory=list)
    """Seconds from the press."""
    desk: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def persist(call: Callable[[], Answer]) -> Answer:
    """Call until there is an answer: the called process may be killed or restarted at this
    moment.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return call()
        except (OSError, HTTPException, AssertionError, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_EVERY)


def listed(there: World) -> list[dict[str, Any]]:
    incidents: list[dict[str, Any]] = persist(lambda: administer(there.database, "sos", "list"))
    return incidents


def of_kit(kit: Kit) -> dict[str, Any] | None:
    def look() -> dict[str, Any] | None:
        answer = kit.agent.call("GET", "/api/sos")
        assert answer.status == 200
        incident: dict[str, Any] | None = answer.body["incident"]
        return incident

    return persist(look)


class Team:
    """People who raise an SOS and who answer it."""

    def __init__(self, there: World, day: Day, chance: random.Random) -> None:
        self._there = there
        self._day = day
        self._chance = chance
        self._left = INCIDENTS

    def keep_pressing(self, kit: Kit, pause: float) -> None:
        """Raise one after the other at this kit, until all of the day were raised."""
        while self._left > 0:
            self._left -= 1
            number = INCIDENTS - self._left
            time.sleep(self._chance.uniform(0, 2 * pause))
            self._live_through(kit, f"incident {number}")

    def _live_through(self, kit: Kit, words: str) -> None:
        began = time.monotonic()
        key = {"Idempotency-Key": words.replace(" ", "-")}

        def press() -> int:
            answer = kit.agent.call("POST", "/api/sos", {"text": words}, **key)
            assert answer.status in (200, 201), answer
            return int(answer.body["number"])

        name = (kit.name, persist(press))
        self._day.raised.append(name)
        card = self._wait(lambda: self._card(name, kit), f"{name} is not at the desk")
        if card is None:
            return
        self._day.until_desk.append(time.monotonic() - began)
        if self._end_of(name, kit):
            self._day.wrong.append(f"{name} ended before anybody had it")
        for what in ("acknowledge", "close"):
            words_too = [ANSWER] if what == "acknowledge" else ["found"]
            persist(lambda: self._act(what, card, words_too))  # noqa: B023
        self._wait(lambda: self._end_of(name, kit), f"{name} goes on at its kit")
        self._day.until_closed.append(time.monotonic() - began)

    def _act(self, what: str, card: dict[str, Any], words: list[str]) -> None:
        """Act once: after a lost connection, the act may already be done."""
        by = ["--by", "Olga"]
        state = {each["id"]: each["state"] for each in listed(self._there)}[card["id"]]
        if state == "open" or (what == "close" and state == "seen"):
            administer(self._there.database, "sos", what, str(card["id"]), *words, *by)

    def _card(self, name: tuple[str, int], kit: Kit) -> dict[str, Any] | None:
        cards = [each for each in listed(self._there) if _name(each) == name]
        return cards[0] if cards else None

    def _end_of(self, name: tuple[str, int], kit: Kit) -> str:
        own = of_kit(kit)
        if own is None or own["number"] != name[1]:
            self._day.wrong.append(f"{name} is not at its kit: {own}")
            return "lost"
        closed = [step for step in own["steps"] if step["state"] == "closed"]
        if own["ended"] is not None and not any(step.get("by") == "Olga" for step in closed):
            self._day.wrong.append(f"{name} ended without a person: {own['steps']}")
        return "" if own["ended"] is None else str(own["state"])

    def _wait(self, look: Callable[[], Answer], complaint: str) -> Answer | None:
        deadline = time.monotonic() + PATIENCE
        while not (answer := look()):
            if time.monotonic() > deadline:
                self._day.wrong.append(complaint)
                return None
            time.sleep(LOOK_EVERY)
        return answer


def _name(card: dict[str, Any]) -> tuple[str, int]:
    return card["device"]["name"], card["number"]


async def live(home: Path, database: Server, *, seed: int, seconds: float, hurry: float) -> Day:
    day, ledger, chance = Day(), Ledger(), random.Random(seed)
    with world(home, database, KITS) as there:
        administer(there.database, "user", "add", "Olga")
        administer(there.database, "user", "role", "Olga", "dispatcher")
        team = Team(there, day, chance)
        pause = seconds * KITS / INCIDENTS / 2
        async with trio.open_nursery() as ports:
            for kit in there.kits:
                await ports.start(kit.port.run)
            async with trio.open_nursery() as faults:
                faults.start_soon(plague, there, ledger, hurry)
                async with trio.open_nursery() as people:
                    for kit in there.kits:
                        people.start_soon(in_thread, team.keep_pressing, kit, pause)
                faults.cancel_scope.cancel()
            day.desk.update(_name(each) for each in await in_thread(listed, there))
            ports.cancel_scope.cancel()
    day.faults.update(ledger.faults)
    day.wrong += [f"{name} is lost" for name in day.raised if not day.desk[name]]
    day.wrong += [f"{name} is there {n} times" for name, n in day.desk.items() if n > 1]
    day.wrong += [f"{name} was never raised" for name in day.desk if name not in day.raised]
    if len({*day.raised}) != INCIDENTS:
        day.wrong.append(f"{len({*day.raised})} incidents of {INCIDENTS}")
    return day


def report(day: Day) -> str:
    faults = ", ".join(f"{what} {times}" for what, times in sorted(day.faults.items()))
    desk, closed = sorted(day.until_desk), sorted(day.until_closed)
    return "\n".join(
        [
            f"{len(day.raised)} incidents; faults: {faults}.",
            f"seconds until the desk had it: median {desk[len(desk) // 2]:.1f},"
            f" most {desk[-1]:.1f}",
            f"seconds until it was closed at its kit: median {closed[len(closed) // 2]:.1f},"
            f" most {closed[-1]:.1f}",
            *(day.wrong or ["None was lost, none ended without a person, none was there twice."]),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.sos_day", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8.0, help="in which they are raised (8)")
    parser.add_argument("--hurry", type=float, default=2.0, help="so many times the faults (2)")
    parser.add_argument("--seed", type=int, default=1, help="when and where each is raised (1)")
    arguments = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="fieldagent-day-") as home, server() as database:
        run = partial(
            live,
            Path(home),
            database,
            seed=arguments.seed,
            seconds=arguments.minutes * 60,
            hurry=arguments.hurry,
        )
        day = trio.run(run)
    print(report(day))
    return 1 if day.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
