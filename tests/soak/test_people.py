"""A day of ten people with handhelds, two kits and a hub, while all of these fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.people_day import live, report

pytestmark = pytest.mark.full


def _run(home: Path, seconds: float, seed: int) -> None:
    day = live(home, seed=seed, seconds=seconds)
    print(report(day))
    assert not day.wrong, report(day)
    assert {"📥", "🛰"} <= day.signs.keys(), report(day)


def test_ten_people_lose_no_message_in_a_short_day_of_faults(tmp_path: Path) -> None:
    _run(tmp_path, 8.0, 1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ten_people_lose_no_message_in_a_day_of_faults(tmp_path: Path, seed: int) -> None:
    _run(tmp_path, 600.0, seed)
