"""An SOS in each state of its environment, and a day of a team with twenty of them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.postgres import server
from tests.soak.sos_day import live
from tests.soak.sos_day import report as told_of_a_day
from tests.soak.sos_table import (
    MINUTES,
    PAGE,
    WITH_A_HUB,
    WITHOUT,
    judge_all,
    shown,
    table,
    tell_all,
)

SEEDS = [int(seed) for seed in os.environ.get("SOS_DAY_SEEDS", "1 2 3").split()]


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS)
def test_twenty_incidents_of_a_day_are_handled_despite_faults(tmp_path: Path, seed: int) -> None:
    with server() as database:
        day = trio.run(partial(live, tmp_path, database, seed=seed, seconds=360, hurry=2.0))
    print(told_of_a_day(day))
    assert not day.wrong, told_of_a_day(day)


@pytest.mark.soak
def test_sos_delay_table_matches_the_results_of_an_hour(tmp_path: Path) -> None:
    """The test takes an hour. If its table differs from the page's, either the kit has a fault, or
    `python -m tests.soak.sos_table --write` must update the page.
    """
    states = [*WITH_A_HUB, *WITHOUT]
    stories = trio.run(tell_all, states, tmp_path, MINUTES)
    text = table(stories, MINUTES)
    print(text)
    assert not judge_all(stories)
    assert text == shown(PAGE.read_text())


def test_sos_without_channels_and_hub_stays_on_its_kit(tmp_path: Path) -> None:
    """The test runs the same program for a few seconds."""
    (state,) = [each for each in WITHOUT if each.channels[1:] == ("down", "down")]
    (story,) = trio.run(tell_all, [state], tmp_path, (0.02,))
    (seen,) = story.seen
    assert (seen.where, seen.ada, seen.ben) == ("her kit", "raised; next try", "nothing")
