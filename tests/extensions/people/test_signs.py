"""The signs on a person's message, none of which claims more than is known."""

from __future__ import annotations

import pytest

from fieldagent.agent.outbound.package_state import Step
from fieldagent.extensions.people.post import PARTS_MAX, count_parts, split_into_parts
from fieldagent.extensions.people.signs import (
    ARRIVED_SIGN,
    GIVEN_UP,
    LEFT_SIGN,
    STORED_SIGN,
    find_due_sign,
)
from fieldagent.package.delivery import Stage, describe_stage


def steps(*stages: str) -> list[Step]:
    return [Step(float(at), stage, "Ben", f"it is {stage}") for at, stage in enumerate(stages)]


@pytest.mark.parametrize(
    ("signs", "stages", "sign"),
    [
        ("", ["kept"], STORED_SIGN),
        (STORED_SIGN, ["kept"], ""),
        (STORED_SIGN, ["kept", "left"], LEFT_SIGN),
        ("", ["kept", "left"], LEFT_SIGN),
        (LEFT_SIGN, ["kept", "left"], ""),
        (STORED_SIGN, ["kept", "hub"], ""),
        (STORED_SIGN, ["kept", "heard"], ""),
        (STORED_SIGN, ["kept", "radio", "handed_over"], ""),
        (STORED_SIGN + LEFT_SIGN, ["kept", "left", "stored"], ARRIVED_SIGN),
        (STORED_SIGN, ["kept", "read"], ARRIVED_SIGN),
        (STORED_SIGN + LEFT_SIGN + ARRIVED_SIGN, ["kept", "left", "stored", "read"], ""),
        (STORED_SIGN, ["kept", "ended"], GIVEN_UP),
        (STORED_SIGN, ["kept", "nobody"], GIVEN_UP),
        (STORED_SIGN + GIVEN_UP, ["kept", "ended", "stored"], ARRIVED_SIGN),
        (STORED_SIGN + LEFT_SIGN + GIVEN_UP, ["kept", "left", "ended", "stored"], ""),
        (GIVEN_UP, ["kept", "left", "ended"], ""),
        ("", [], ""),
    ],
)
def test_highest_true_sign_is_shown_on_a_change(signs: str, stages: list[str], sign: str) -> None:
    emoji, line = find_due_sign(signs, steps(*stages))
    assert emoji == sign
    assert bool(line) is (sign == GIVEN_UP)


@pytest.mark.parametrize("text", ["short", "x" * 700, "wörter " * 60, "✓" * 150, "a " * 1000])
def test_text_is_split_into_few_whole_parts(text: str) -> None:
    parts = split_into_parts(text, 200)
    assert 1 <= len(parts) <= PARTS_MAX
    assert all(len(part.encode()) <= 200 for part in parts)
    if len(parts) > 1:
        joined = "".join(part.partition(" ")[2] for part in parts)
        assert joined.replace(" ", "") == text.replace(" ", "")
    elif len(text.encode()) > 200:
        assert parts[0].endswith(" … more at the kit")


@pytest.mark.parametrize(
    ("text", "said"),
    [("x" * 100, "on Ada's radio"), ("x" * 500, "on Ada's radio"), ("x" * 606, "part 1 of 4 on")],
)
def test_truncated_text_is_not_reported_as_complete_on_the_radio(text: str, said: str) -> None:
    parts, whole = len(split_into_parts(text, 200)), count_parts(text, 200)
    name = f"{parts}/{whole} Ada" if whole > parts else "Ada"
    assert describe_stage(Stage.RADIO, "Ada", name).startswith(said)
