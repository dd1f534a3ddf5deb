"""The text of a dry run about channels that start in turn."""

from __future__ import annotations

from typing import Any

import pytest

from fieldagent.cli.kit.expected import describe_turns


def cost(begins: float, expected: dict[str, Any] | None = None, paid: int = 0) -> dict[str, Any]:
    return {"begins": begins, "expected": expected, "credits": paid}


SOME = {"p90": None, "share": 0.68, "longest": 40.0}
NEARLY_ALL = {"p90": 55.0, "share": 1.0, "longest": 200.0}


@pytest.mark.parametrize(
    ("channels", "said"),
    [
        ({}, []),
        ({"Satellite": cost(0, NEARLY_ALL, 2)}, []),
        ({"Cellular": cost(0, SOME), "Satellite": cost(0, NEARLY_ALL, 2)}, []),
        (
            {"Satellite": cost(40, NEARLY_ALL, 2), "Radio": cost(0, SOME)},
            [
                "by Radio within 40 s (7 of 10), otherwise by Satellite within 2 min (9 of 10)"
                " for 2 credits"
            ],
        ),
        (
            {"Cellular": cost(0), "Radio": cost(120), "Satellite": cost(240, None, 1)},
            [
                "by Cellular, otherwise by Radio after 2 min, otherwise by Satellite after 4 min"
                " for 1 credit"
            ],
        ),
    ],
)
def test_dry_run_describes_channels_that_start_in_turn(
    channels: dict[str, Any], said: list[str]
) -> None:
    assert describe_turns(channels) == said
