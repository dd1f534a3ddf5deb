"""`python -m tests.soak.people_day --minutes 10`: a short day of ten people. Five have Meshtastic
handhelds and a kit with only satellite, and five have MeshCore handhelds and a kit with a link.
There are a hub, its desk, and Cleo, whose tablet gets their texts. Meanwhile the satellite
network disappears and returns, both kits and the hub are killed and restarted, and a radio is
unplugged.

All are separate processes, and the people have their firmware's official client. The exit code is 1
if a sign claims more than the ledger, a person costs more than allowed, or an SOS is not at the
desk exactly once.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.extensions.people.camp import (
    GIVEN_UP,
    KEPT,
    LEFT,
    MESHCORE,
    MESHTASTIC,
    THERE,
    Camp,
    Firmware,
    camp,
)
from tests.hub.test_journey import IMEI, Receiver, behind_directip, folder, posted, receiver, sky
from tests.processes import Agent, Hub, Running, administer, agent, free_port

NAMES = ("Ada", "Ben", "Cem", "Dora")
"""Names of people whom a kit knows. The fifth at each kit is a guest."""
CREDITS = 4
"""Credits per day for the messages of one person."""
MESSAGES = 5
"""Minimum messages of each person: one more than they may send over satellite."""
SETTLED = 240.0
"""Seconds after the last fault within which everything has arrived."""
PATIENCE = 10.0
"""Seconds after which people repeat a text without a sign."""
LOOK_EVERY = 0.3


@dataclass
class Said:
    """One message of a person."""

    text: str
    number: int | None = None
    """Number in the person's client, or None until it is known."""
    at: float = field(default_factory=time.monotonic)
    seen: list[str] = field(default_factory=list)
    """Signs in the order in which they were seen."""

    @property
    def is_sos(self) -> bool:
        return self.text.startswith("SOS")

    def is_about(self, other: Said) -> bool:
        """Return True if it is a repetition of the same text."""
        return self.text.split(" again")[0] == other.text.split(" again")[0]

    @property
    def words(self) -> str:
        """Return the end of the text at each place: an SOS has another beginning there."""
        return self.text.removeprefix("SOS ")


@dataclass
class Person:
    name: str
    where: str
    place: int
    """Index among the people at the kit."""
    known: bool
    said: list[Said] = field(default_factory=list)


@dataclass
class Valley:
    """A kit, and the people around it."""

    camp: Camp
    people: list[Person]
    by_satellite: bool

    def write(self, person: Person, text: str) -> None:
        person.said.append(Said(text))
        self.camp.people[person.place].type(f"text {self.camp.number} {text}")

    def running(self, person: Person) -> Running:
        return self.camp.people[person.place]

    def repeat_unseen(self, person: Person, patience: float) -> None:
        """Let a person repeat texts that have had no sign for that time. The acknowledgement of the
        kit's radio says nothing about the kit, which may have been away.
        """
        for said in person.said:
            latest = [each for each in person.said if each.is_about(said)][-1]
            waits = time.monotonic() - latest.at < patience
            if not (waits or self._is_known_of(person, said)):
                self.write(person, f"{latest.text} again")

    def _is_known_of(self, person: Person, said: Said) -> bool:
        if any(each.seen for each in person.said if each.is_about(said)):
            return True
        texts = self.texts_to(person)
        if said.is_sos:
            return any("Your SOS" in each or "added to the SOS" in each for each in texts)
        return not person.known or any("credits for today are spent" in each for each in texts)

    def unseen(self, person: Person) -> list[str]:
        """Return the person's texts without any sign."""
        return [said.text for said in person.said if not self._is_known_of(person, said)]

    def texts_to(self, person: Person) -> list[str]:
        lines = [each for each in self.running(person).output() if each.startswith('{"heard"')]
        return [str(json.loads(each)["text"]) for each in lines]

    def packages(self) -> list[dict[str, Any]]:
        answer = self.camp.kit.call("GET", "/api/packages?limit=500")
        listing: list[dict[str, Any]] = answer.body["packages"]
        return listing


@dataclass
class Day:
    signs: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    spent: dict[str, int] = field(default_factory=dict)
    """Credits by person."""
    sos: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class World:
    home: Path
    database: str
    hub: Hub
    hub_settings: dict[str, str]
    hooked: Receiver
    above: Running
    cleo: Agent
    valleys: list[Valley]

    def restart_hub(self) -> None:
        self.hub.kill()
        self.hub = Hub(self.home / "hub", self.hub_settings)


@contextmanager
def world(home: Path) -> Iterator[World]:
    mo_port, mt_port, port = free_port(), free_port(), free_port()
    database = str(home / "hub.sqlite3")
    administer(database, "init", "Alps")
    devices = {}
    for name, *more in (["Hut", "--imei", IMEI, "--tagged"], ["Pass"], ["Cleo"]):
        administer(database, "user", "add", name, "--over-satellite")
        devices[name] = administer(database, "device", "add", name, "--user", name, *more)
    settings = behind_directip(database, mo_port, mt_port) | {"port": str(port)}
    with ExitStack() as stack:
        hooked = stack.enter_context(receiver())
        hub = Hub(folder(home / "hub"), settings)
        administer(database, "webhook", "add", hooked.url, "--untried")
        above = stack.enter_context(sky(home, mo_port, mt_port))

        def link(name: str) -> dict[str, str | None]:
            address, token = f"http://127.0.0.1:{port}", devices[name]["hub-token"]
            return {"satellite-port": None, "hub-address": address, "hub-token": token}

        cleo = stack.enter_context(agent(folder(home / "cleo"), link("Cleo")))
        by_satellite: dict[str, str | None] = {
            "satellite-port": str(home / "modem"),
            "satellite-key": devices["Hut"]["satellite-key"],
            "mesh-credits-per-day": str(CREDITS),
        }
        valleys = [
            _valley(folder(home / "hut"), "Hut", MESHTASTIC, by_satellite, stack),
            _valley(folder(home / "pass"), "Pass", MESHCORE, link("Pass"), stack),
        ]
        there = World(home, database, hub, settings, hooked, above, cleo, valleys)
        try:
            yield there
        finally:
            there.hub.kill()


def _valley(
    home: Path, where: str, firmware: Firmware, settings: dict[str, str | None], stack: ExitStack
) -> Valley:
    known = [
        f"{firmware.handle(number)} {name} of the {where}" for number, name in enumerate(NAMES, 2)
    ]
    there = camp(
        home,
        settings | {"mesh-people": ", ".join(known)},
        people=len(NAMES) + 1,
        firmware=firmware,
    )
    made = stack.enter_context(there)
    people = [Person(f"{name} of the {where}", where, at, True) for at, name in enumerate(NAMES)]
    guest = Person(f"Node {len(NAMES) + 2}", where, len(NAMES), False)
    return Valley(made, [*people, guest], settings["satellite-port"] is not None)


class Watch:
    """Checks the signs that each person has seen, and whether they were true."""

    def __init__(self, there: World, day: Day) -> None:
        self._there = there
        self._day = day

    def look(self) -> None:
        for valley in self._there.valleys:
            for person in valley.people:
                _number(valley, person)
                for said in person.said:
                    self._look_at(valley, person, said)

    def _look_at(self, valley: Valley, person: Person, said: Said) -> None:
        if said.number is None:
            return
        signs = valley.camp.firmware.signs(valley.running(person), said.number, said.text)
        for sign in dict.fromkeys(signs):
            if sign not in said.seen:
                said.seen.append(sign)
                self._day.signs[sign] += 1
                if why := self._untrue(valley, person, said, sign):
                    self._day.wrong.append(f"{person.name} saw {sign} on {said.text!r}: {why}")
        if len(said.seen) > 3:
            self._day.wrong.append(f"{person.name} saw {said.seen} on {said.text!r}")

    def _others(self, valley: Valley) -> list[Agent]:
        """Return the kits of all other people, which get all texts."""
        others = [each.camp.kit for each in self._there.valleys if each is not valley]
        return [self._there.cleo, *others]

    def _untrue(self, valley: Valley, person: Person, said: Said, sign: str) -> str:
        """Return the reason why a sign claims too much at this moment, or ""."""
        # MeshCore's signs quote the start of a message, which is the same for its repetitions.
        quoted = valley.camp.firmware.name == "meshcore"
        alike = [each for each in person.said if quoted and each.is_about(said)] or [said]
        ends = tuple(each.words for each in alike)
        packages = [each for each in valley.packages() if (each["text"] or "").endswith(ends)]
        if not packages:
            return "the kit does not have it"
        outcomes = [each["channels"].get("Satellite", {}).get("status") for each in packages]
        if sign == LEFT and "Delivered" not in outcomes:
            return f"it did not leave by satellite: {outcomes}"
        if sign == THERE and not any(
            text.endswith(ends) for kit in self._others(valley) for text in _came_to(kit)
        ):
            return "nobody's kit has it"
        statuses = {each["status"] for each in packages}
        if sign == GIVEN_UP and not statuses & {"Error", "Canceled"}:
            return f"it is not: {statuses}"
        return ""


def _came_to(kit: Agent) -> list[str]:
    listed = kit.call("GET", "/api/inbound?limit=500").body["payloads"]
    events = [each["body"]["payloads"][0]["events"][0] for each in listed]
    return [str(each.get("content", "")) for each in events]


def _number(valley: Valley, person: Person) -> None:
    """Learn the client's number of each message, in the order of writing."""
    lines = [each for each in valley.running(person).output() if each.startswith('{"sent"')]
    for said, line in zip(person.said, lines, strict=False):
        said.number = json.loads(line)["sent"]


def plan(there: World, day: Day, seconds: float, chance: random.Random) -> list[Any]:
    """Return the planned messages and faults, each with its time in seconds from the start."""
    steps: list[tuple[float, Callable[[], None]]] = []

    def at(moment: float, act: Callable[[], None]) -> None:
        steps.append((moment * seconds, act))

    def fault(what: str, act: Callable[[], None]) -> Callable[[], None]:
        def break_it() -> None:
            day.faults[what] += 1
            act()

        return break_it

    for valley in there.valleys:
        for person in valley.people:
            for count in range(MESSAGES + round(seconds / 120)):
                text = f"{person.name[:3]}{valley.by_satellite:d}{count} {chance.randrange(10**6)}"
                at(chance.random(), partial(valley.write, person, text))
        known, guest = valley.people[0], valley.people[-1]
        for moment, person in ((chance.uniform(0.3, 0.5), guest), (0.7, known)):
            words = f"SOS {person.name} is hurt, {person.where}"
            at(moment, partial(valley.write, person, words))
    hut, crossing = there.valleys
    out = ("the satellites' network", lambda: there.above.type("service 0"))
    at(0.15, fault(*out))
    at(0.35, lambda: there.above.type("service 1"))
    at(0.4, fault("the hub is killed", there.restart_hub))
    at(0.55, fault("a kit is killed", hut.camp.restart))
    at(0.6, fault("a kit is killed", crossing.camp.restart))
    at(0.75, fault("a radio is unplugged", lambda: hut.camp.air.type("unplug 1")))
    at(0.8, lambda: hut.camp.air.type("plug 1"))
    return sorted(steps, key=lambda step: step[0])


def _wait_for_each_sign(there: World, watch: Watch) -> list[str]:
    """Let Ada see her message on the kit and then at the satellites, while later stages are
    impossible. Return the signs that she does not see.
    """
    hut = there.valleys[0]
    ada = hut.people[0]
    there.above.type("service 0")
    hut.write(ada, "Good morning")
    (said,) = ada.said
    unseen = _look_for(watch, said, KEPT)
    there.hub.kill()
    there.above.type("service 1")
    unseen += _look_for(watch, said, LEFT)
    there.restart_hub()
    return unseen


def _look_for(watch: Watch, said: Said, sign: str) -> list[str]:
    deadline = time.monotonic() + SETTLED
    while sign not in said.seen and time.monotonic() < deadline:
        watch.look()
        time.sleep(LOOK_EVERY)
    return [] if sign in said.seen else [f"{said.text!r} has no {sign}"]


def live(home: Path, *, seed: int, seconds: float) -> Day:
    day = Day()
    with world(home) as there:
        watch = Watch(there, day)
        day.wrong += _wait_for_each_sign(there, watch)
        began = time.monotonic()
        for moment, act in plan(there, day, seconds, random.Random(seed)):
            while time.monotonic() - began < moment:
                watch.look()
                time.sleep(LOOK_EVERY)
            act()
        deadline = time.monotonic() + SETTLED
        while (why := _unsettled(there)) and time.monotonic() < deadline:
            watch.look()
            for valley in there.valleys:
                for person in valley.people:
                    valley.repeat_unseen(person, PATIENCE)
            time.sleep(LOOK_EVERY)
        day.wrong += why
        judge(there, day)
    return day


def _posted(hooked: Receiver) -> list[str]:
    """Return the hub's posts. A hub that is killed before it has stored a post repeats it with the
    same `webhook-id`.
    """
    ids = [each["webhook-id"] for each in hooked.headers]
    return list(dict(zip(ids, posted(hooked), strict=False)).values())


def _accepted(valley: Valley, person: Person) -> list[dict[str, Any]]:
    begins = f"{person.name}: "
    return [each for each in valley.packages() if (each["text"] or "").startswith(begins)]


def _unsettled(there: World) -> list[str]:
    """Return items that have not arrived yet."""
    at_hub = _posted(there.hooked)
    why = []
    for valley in there.valleys:
        for person in valley.people:
            why += [f"{person.name} knows nothing of {text!r}" for text in valley.unseen(person)]
            taken = [each["text"] for each in _accepted(valley, person)]
            why += [f"{text!r} is not at the hub" for text in taken if text not in at_hub]
            for said in person.said:
                there_too = [text for text in at_hub if said.words.split(" again")[0] in text]
                if said.is_sos and not any(text.startswith("SOS from") for text in there_too):
                    why.append(f"{said.text!r} is not at the hub")
    return why


def judge(there: World, day: Day) -> None:
    """Check the final state."""
    at_hub = Counter(_posted(there.hooked))
    day.wrong += [f"{text!r} is at the hub {n} times" for text, n in at_hub.items() if n > 1]
    for valley in there.valleys:
        for person in valley.people:
            taken = _accepted(valley, person)
            for said in person.said:
                if LEFT in said.seen and not any(each.endswith(said.words) for each in at_hub):
                    day.wrong.append(f"{said.text!r} left, as {person.name} saw, and is nowhere")
            if not person.known and taken:
                day.wrong.append(f"a guest's messages were taken: {taken}")
            if valley.by_satellite:
                day.spent[person.name] = sum(each["credits"] for each in taken)
                if len(taken) > CREDITS or day.spent[person.name] > CREDITS:
                    day.wrong.append(f"{person.name} cost more than they may: {taken}")
    desk = Counter(each["device"]["name"] for each in administer(there.database, "sos", "list"))
    day.sos = sum(desk.values())
    # The kit's own people share an incident. Each unproved person has a separate one.
    expected: Counter[str] = Counter()
    for name, valley in zip(("Hut", "Pass"), there.valleys, strict=True):
        raised = [each for each in valley.people if any(said.is_sos for said in each.said)]
        expected[name] = any(each.known for each in raised) + sum(not each.known for each in raised)
    if desk != expected:
        day.wrong.append(f"at the desk are incidents of {dict(desk)}, not {dict(expected)}")


def report(day: Day) -> str:
    signs = ", ".join(f"{sign} {count}" for sign, count in day.signs.items())
    faults = ", ".join(f"{what} {count}" for what, count in sorted(day.faults.items()))
    spent = ", ".join(f"{name} {count}" for name, count in day.spent.items())
    return "\n".join(
        [
            f"Signs that people saw: {signs}. Faults: {faults}.",
            f"Credits of {CREDITS}: {spent}. Incidents at the desk: {day.sos}.",
            *(day.wrong or ["None said more than was so, none cost more, no SOS was lost."]),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.people_day", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="in which they write (10)")
    parser.add_argument("--seed", type=int, default=1, help="when each writes (1)")
    arguments = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="fieldagent-people-") as home:
        day = live(Path(home), seed=arguments.seed, seconds=arguments.minutes * 60)
    print(report(day))
    return 1 if day.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
