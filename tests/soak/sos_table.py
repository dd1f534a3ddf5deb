"""`python -m tests.soak.sos_table`: where an SOS is after 1, 10 and 60 minutes, in every state of
its surroundings, and what each person sees.

All states run at once, with real processes and a real clock. The table is printed as Markdown, and
`--write` writes it to docs/reference/sos-table.md. The exit code is 1 if an SOS is not where it
could be, or if no person who could know of it does.
"""

from __future__ import annotations

import argparse
import logging
import re
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import trio

from tests.soak.sos_cell import (
    BACK_AFTER,
    CHANNELS,
    DOWN_FOR,
    LOOK_EVERY,
    RESTORED_AFTER,
    UP_FOR,
    Answers,
    Cell,
    State,
    cell,
    run_hardware,
)

PAGE = Path(__file__).parents[2] / "docs/reference/sos-table.md"
BEGIN, END = "<!-- tests/soak/sos_table.py writes this -->", "<!-- until here -->"
MINUTES = (1.0, 10.0, 60.0)
AT_ONCE = 4
"""Maximum number of cells that are set up at the same time."""
LOG = sys.stderr
"""The original stream, before any redirection."""
in_thread = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(200))

HOWS = ("up", "flapping", "down")
ALL, RADIO, SATELLITE = ("up", "up", "up"), ("down", "down", "up"), ("down", "up", "down")
WITH_A_HUB = [
    *(State((one, two, three)) for one, two, three in product(HOWS, repeat=3)),
    *(State((cellular, "spent", radio)) for cellular in ("up", "down") for radio in ("up", "down")),
    State(RADIO, "Ben's kit has a link"),
    State(ALL, "its disk is full"),
    State(SATELLITE, "its disk is full"),
    State(ALL, "its clock shows 1970"),
    State(RADIO, "its clock shows 1970"),
    State(ALL, "its clock is 10 years ahead"),
    State(RADIO, "its clock is 10 years ahead"),
    State(ALL, "the hub is down"),
    State(ALL, "the hub's database is restored"),
    State(SATELLITE, "the hub's database is restored"),
    State(ALL, "the dispatcher is signed out"),
]
WITHOUT = [
    *(State(("absent", one, two)) for one, two in product(HOWS, repeat=2)),
    State(("absent", "spent", "up")),
    State(("absent", "spent", "down")),
    State(("absent", "up", "up"), "its disk is full"),
    State(("absent", "up", "up"), "its clock shows 1970"),
    State(("absent", "down", "up"), "its clock shows 1970"),
    State(("absent", "down", "up"), "its clock is 10 years ahead"),
]


@dataclass(frozen=True)
class Seen:
    """The places of the SOS and each person's view at one moment."""

    where: str
    ada: str
    ben: str
    olga: str = ""


@dataclass
class Story:
    state: State
    seen: list[Seen] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def look(there: Cell) -> Seen:
    own = there.ada.call("GET", "/api/sos").body["incident"]
    heard = there.kits["Ben"].call("GET", "/api/sos").body["heard"]
    at_desk = [] if there.desk is None else there.desk.incidents()
    places = [
        ("her kit", True),
        ("Ben's kit", bool(heard)),
        ("the operator", there.gateway.has_it),
        ("the hub", bool(at_desk)),
    ]
    where = ", ".join(name for name, here in places if here)
    olga = "" if there.desk is None else _of_olga(there, at_desk)
    return Seen(where, _of_ada(own), _of_ben(heard), olga)


def _step(each: dict[str, Any]) -> str:
    who = each.get("by") or each.get("channel") or ""
    said = f" “{each['text']}”" if each.get("text") and "by" in each else ""
    doubt = " (unauthenticated)" if each.get("unauthenticated") else ""
    return f"{each['state']}{' by' if 'channel' in each else ''} {who}{said}{doubt}".replace(
        "  ", " "
    ).strip()


def _of_ada(own: dict[str, Any]) -> str:
    steps = [_step(each) for each in own["steps"][1:]]
    left = [each.removeprefix("left by ") for each in steps if each.startswith("left by ")]
    others = [each for each in steps if not each.startswith("left by ")]
    phrases = ([f"left by {' and '.join(sorted(left))}"] if left else []) + [*dict.fromkeys(others)]
    memory = "not on the disk" in own["steps"][0].get("text", "")
    first = "raised, with a warning that it is not on the disk" if memory else "raised"
    return "; ".join([first, *phrases] if memory else phrases or [first, "next try"])


def _of_ben(heard: list[dict[str, Any]]) -> str:
    if not heard:
        return "nothing"
    (each,) = heard
    phrase = {"open": "rings"}.get(each["state"], each["state"])
    steps = [_step(step) for step in each["steps"]]
    return "; ".join([phrase, *dict.fromkeys(steps)]) if steps else str(phrase)


def _of_olga(there: Cell, at_desk: list[dict[str, Any]]) -> str:
    assert there.desk is not None
    if there.desk.hub.process.poll() is not None:
        return "no hub"
    if not there.desk.signed_in:
        return "signed out; " + (
            "her pager was notified" if there.desk.pager.got else "nobody was notified yet"
        )
    if not at_desk:
        return "nothing"
    if len(at_desk) > 1:
        return f"{len(at_desk)} cards"
    state = str(at_desk[0]["state"])
    return {"open": "rings", "seen": "has it"}.get(state, state)


def judge(state: State, last: Seen) -> list[str]:
    """Return the differences from the expected end state."""
    hears = state.of("Radio") != "down"
    wanted: list[tuple[bool, str, str]] = [(hears, "Ben's kit", last.where)]
    if state.has_hub:
        leads = "up" in state.channels[:2] or "flapping" in state.channels[:2]
        leads = leads or state.of("Satellite") == "spent" or "link" in state.also
        wanted += [(leads, "the hub", last.where), (leads, "has it", last.olga)]
        # An answer to an SOS that only a neighbour relays does not return to its sender.
        wanted += [(leads and "link" not in state.also, "seen by Olga", last.ada)]
    else:
        wanted += [(hears, "seen by Ben", last.ada)]
        above = state.of("Satellite") != "down"
        wanted += [(above, "the operator", last.where)]
    return [
        f"{what!r} is not in {text!r}" for due, what, text in wanted if due and what not in text
    ]


async def tell(
    state: State, home: Path, minutes: tuple[float, ...], setting_up: trio.CapacityLimiter
) -> Story:
    """Run one state from start to end."""
    story = Story(state)
    with ExitStack() as stack:
        async with trio.open_nursery() as nursery:
            async with setting_up:
                there = await in_thread(lambda: stack.enter_context(cell(state, home)))
                await nursery.start(partial(_hardware, there))
                await in_thread(there.start_kits)
            await in_thread(there.trouble)
            for channel in CHANNELS:
                if state.of(channel) in ("down", "flapping"):
                    there.switch(channel, on=False)
            await in_thread(there.press)
            _say(f"raised: {_label(state)}")
            for channel in CHANNELS:
                if state.of(channel) == "flapping":
                    nursery.start_soon(_flap, there, channel)
            nursery.start_soon(_answer, there)
            if there.desk is not None:
                nursery.start_soon(_change, there)
            for each in minutes:
                await trio.sleep(there.raised + each * 60 - time.monotonic())
                story.seen.append(await in_thread(look, there))
            nursery.cancel_scope.cancel()
    story.wrong = judge(state, story.seen[-1])
    return story


async def _hardware(there: Cell, task_status: trio.TaskStatus[None]) -> None:
    await run_hardware(there, task_status=task_status)


async def _flap(there: Cell, channel: str) -> None:
    while True:
        await trio.sleep(DOWN_FOR)
        there.switch(channel, on=True)
        await trio.sleep(UP_FOR)
        there.switch(channel, on=False)


async def _answer(there: Cell) -> None:
    people = Answers(there)
    while True:
        await trio.sleep(LOOK_EVERY)
        await in_thread(people.look)


async def _change(there: Cell) -> None:
    """Change hub and dispatcher while it is open."""
    assert there.desk is not None
    if there.state.also == "the hub's database is restored":
        await trio.sleep(RESTORED_AFTER)
        await in_thread(there.desk.restore)
    elif there.state.also in ("the hub is down", "the dispatcher is signed out"):
        await trio.sleep(BACK_AFTER)
        await in_thread(there.come_back)


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=LOG, flush=True)


def _label(state: State) -> str:
    phrases = [f"{name} {how}" for name, how in zip(CHANNELS, state.channels, strict=True)]
    return ", ".join([*phrases, *([state.also] if state.also else [])])


async def tell_all(states: list[State], home: Path, minutes: tuple[float, ...]) -> list[Story]:
    setting_up = trio.CapacityLimiter(AT_ONCE)
    stories: dict[int, Story] = {}

    async def one(number: int) -> None:
        place = home / str(number)
        place.mkdir()
        try:
            stories[number] = await tell(states[number], place, minutes, setting_up)
        except Exception as error:
            _say(f"{_label(states[number])}: {error!r}")
            stories[number] = Story(states[number], wrong=[repr(error)])

    async with trio.open_nursery() as nursery:
        for number in range(len(states)):
            nursery.start_soon(one, number)
    return [stories[number] for number in range(len(states))]


def table(stories: list[Story], minutes: tuple[float, ...]) -> str:
    """Return the table as Markdown: a row for each state and each moment with news."""
    hub = [each for each in stories if each.state.has_hub]
    team = [each for each in stories if not each.state.has_hub]
    parts = []
    if hub:
        parts += ["A person with a hub, and Ben in range:", ""]
        parts += [
            "| Cellular | Satellite | Radio | after, minutes | it is at | Ada sees | Ben sees"
            " | Olga sees |"
        ]
        parts += ["|---|---|---|---|---|---|---|---|"]
        parts += [row for each in hub for row in _rows(each, minutes)]
    if team:
        parts += ["", "A team without a hub:", ""] if hub else ["A team without a hub:", ""]
        parts += [
            "| Satellite | Radio | after, minutes | it is at | Ada sees | Ben sees |",
            "|---|---|---|---|---|---|",
        ]
        parts += [row for each in team for row in _rows(each, minutes)]
    return "\n".join(parts)


def _rows(story: Story, minutes: tuple[float, ...]) -> list[str]:
    state = story.state
    same: list[tuple[list[str], Seen]] = []
    for at, seen in zip(minutes, story.seen, strict=False):
        if same and same[-1][1] == seen:
            same[-1][0].append(f"{at:g}")
        else:
            same.append(([f"{at:g}"], seen))
    rows = []
    for number, (moments, seen) in enumerate(same):
        names = [*state.channels] if state.has_hub else [*state.channels[1:]]
        if state.also:
            names[-1] += f"; {state.also}"
        first = names if number == 0 else [""] * len(names)
        columns = [*first, ", ".join(moments), seen.where, seen.ada, seen.ben]
        rows.append(" | ".join([*columns, seen.olga] if state.has_hub else columns))
    return [f"| {row} |" for row in rows]


def judge_all(stories: list[Story]) -> list[str]:
    """Return the differences from the expected state, each with its state."""
    return [f"{_label(each.state)}: {what}" for each in stories for what in each.wrong]


def shown(page: str) -> str:
    """Return the table in the page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip()


def written(page: str, text: str) -> str:
    """Return the page with the table in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.sos_table", description=__doc__)
    parser.add_argument("--minutes", default=",".join(f"{each:g}" for each in MINUTES))
    parser.add_argument("--only", default="", help="states whose words match this pattern")
    parser.add_argument("--write", action="store_true", help=f"put it into {PAGE.name}")
    arguments = parser.parse_args()
    logging.disable()
    # A signal to this program also ends its processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    minutes = tuple(float(each) for each in arguments.minutes.split(","))
    states = [each for each in (*WITH_A_HUB, *WITHOUT) if re.search(arguments.only, _label(each))]
    with tempfile.TemporaryDirectory(prefix="fieldagent-sos-") as home:
        stories = trio.run(tell_all, states, Path(home), minutes)
    text = table(stories, minutes)
    print(text)
    if arguments.write:
        PAGE.write_text(written(PAGE.read_text(), text))
    wrong = judge_all(stories)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
