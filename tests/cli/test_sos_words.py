"""The texts of `fieldagent sos` and `status` for each state of an SOS in the API."""

from __future__ import annotations

from typing import Any

import pytest

from fieldagent.agent.description import describe
from fieldagent.cli.kit.sos import format_heard, format_incident, format_step
from fieldagent.system.terminal import format_local_time

AT = 1_800_000_000.0
WHEN = format_local_time(AT)
SCHEMAS = describe()["components"]["schemas"]


def step(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "at": AT, **more}


STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "raised": (step("raised"), f"raised {WHEN}"),
    "raised in memory": (
        step("raised", text="not on the disk, and lost if power fails: full"),
        f'raised {WHEN}: "not on the disk, and lost if power fails: full"',
    ),
    "left": (step("left", channel="Satellite"), f"left by Satellite {WHEN}"),
    "heard by": (step("heard by", by="Ben"), f"heard by Ben {WHEN}"),
    "not passed on": (
        step("not passed on", text="Ben: no more hops"),
        f'not passed on {WHEN}: "Ben: no more hops"',
    ),
    "at the hub": (step("at the hub"), f"at the hub {WHEN}"),
    "at the hub, by a neighbour": (
        step("at the hub", text="Ben brought it", unauthenticated=True),
        f'at the hub {WHEN}: "Ben brought it" (unauthenticated)',
    ),
    "seen by": (
        step("seen by", by="Olga", text="heli is up"),
        f'seen by Olga {WHEN}: "heli is up"',
    ),
    "seen by nobody knows whom": (
        step("seen by", by="Eve", unauthenticated=True),
        f"seen by Eve {WHEN} (unauthenticated)",
    ),
    "closed": (step("closed", by="Olga"), f"closed by Olga {WHEN}"),
    "called off": (step("called off"), f"called off {WHEN}"),
    "open": (step("open", by="Ben"), f"open by Ben {WHEN}"),
}


@pytest.mark.parametrize("name", STEPS)
def test_each_incident_step_has_its_text(name: str) -> None:
    one, words = STEPS[name]
    assert format_step(one) == words


def test_texts_cover_every_step_of_the_api() -> None:
    states = {one["state"] for one, _ in STEPS.values()}
    assert states == {*SCHEMAS["IncidentStep"]["properties"]["state"]["enum"]}


NONE = "no channel can send it"
AGAIN = f"next try {WHEN}"
ENDS: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "the answer to the raising": ({}, ("raised",), ""),
    "raised, to be tried": ({"nextTry": AT}, ("raised",), AGAIN),
    "raised, and no channel": ({"nextTry": None}, ("raised",), NONE),
    "raised, and called off": ({"nextTry": None, "ended": AT}, ("raised",), ""),
    "left, and goes again": ({"nextTry": AT}, ("raised", "left"), AGAIN),
    "left, and goes no more": ({"nextTry": None}, ("raised", "left"), ""),
    "heard, and goes no more": ({"nextTry": None}, ("raised", "heard by"), ""),
    "at the hub": ({"nextTry": None}, ("raised", "left", "at the hub"), ""),
    "seen": ({"nextTry": None}, ("raised", "left", "seen by"), ""),
    "closed": ({"nextTry": None, "ended": AT}, ("raised", "left", "closed"), ""),
}
"""The API's answer without the steps, the steps, and the end of the line."""


@pytest.mark.parametrize("name", ENDS)
def test_next_try_of_an_sos_is_shown_only_if_known(name: str) -> None:
    members, states, end = ENDS[name]
    one = {
        "short": "377",
        "ended": None,
        "steps": [step(state, by="Ben") for state in states],
        **members,
    }
    said = format_incident(one)
    for words in (NONE, "next try"):
        assert (words in said) == end.startswith(words)
    assert said.startswith("SOS 377 raised ") and said.endswith(end)


@pytest.mark.parametrize("state", SCHEMAS["HeardIncident"]["properties"]["state"]["enum"])
@pytest.mark.parametrize("age", [None, 7 * 3600, 13 * 3600 + 59, 30 * 86_400])
def test_sos_of_another_kit_shows_its_time_or_its_age(state: str, age: int | None) -> None:
    came = AT if age is None else AT + age
    heard = {
        "number": 693758377,
        "short": "070",
        "name": "Ada",
        "state": state,
        "raised": AT,
        "came": came,
        "age": age,
        "text": "help",
        "steps": [],
    }
    clock = {None: "", 7 * 3600: "7 hours", 13 * 3600 + 59: "13 hours", 30 * 86_400: "30 days"}
    said = format_heard(heard)
    assert said.startswith("SOS 070 of Ada (693758377), ") and said.endswith(": help")
    assert (f"raised {WHEN}" in said) == (age is None)
    assert (f"{clock[age]} ago by its clock" in said) == (age is not None)
