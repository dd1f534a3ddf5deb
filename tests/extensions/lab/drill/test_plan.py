"""The content of a drill's file, and the messages about errors in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.extensions.lab.drill.plan import (
    BadPlan,
    PlanHours,
    change_values,
    load_toml,
    read_plan,
)
from fieldagent.package.package import Channel

EXAMPLES = Path(__file__).parents[4] / "examples"
KIT = '[[kit]]\nname = "hut"\nbearers = ["satellite"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("days = ", "the file is not TOML"),
        ("", "kit: a drill needs at least one"),
        ("[[kit]]\nname = 'hut'", "kit 1: bearers is missing"),
        (KIT + "colour = 1", "kit 1: colour is not a key; known are name, count, bearers"),
        (KIT.replace("satellite", "smoke"), 'must be a list of "satellite", "cellular"'),
        (KIT + "sky = 1", "kit 1: sky must be a table such as"),
        (KIT + 'sky = { hours = ["25-3"] }', "kit 1: sky.hours must be a list of hours"),
        (KIT + 'awake = ["8-8"]', "kit 1: awake must be a list of hours"),
        (KIT + "sky = { lost = 1.5 }", "kit 1: sky.lost must be a number from 0 to 0.95, not 1.5"),
        (KIT + 'position-every = "soon"', "must be a time such as 30s, 5m or 2h, not 'soon'"),
        ("days = true\n" + KIT, "days must be a number of days from 0.02 to 60, not True"),
        (KIT + KIT, "kit: give each kit another name"),
        ("kit = 3", "kit must be a list of tables: [[kit]]"),
        ('[air]\npairs = ["hut ada"]\n' + KIT, "air.pairs: hut and ada are not both names"),
        (KIT + "[[dispatcher]]\nage = 3", "dispatcher 1: age is not a key"),
        (KIT + "[[dispatcher]]\nshift = ['6-22']", "dispatcher 1: name is missing"),
        ("kits = 3\n" + KIT, "kits must be a table: [kits]"),
        ("[air]\npairs = [5]\n" + KIT, "air.pairs must be a list of radio links"),
        (KIT + "settings = 'fan-out'", "kit 1: settings must be a table of settings"),
        (KIT.replace("'satellite'", "5").replace('"satellite"', "5"), "bearers must be a list of"),
    ],
)
def test_plan_fault_is_reported_with_its_key_and_the_valid_values(text: str, message: str) -> None:
    with pytest.raises(BadPlan) as bad:
        read_plan(load_toml(text))
    assert message in str(bad.value)


def test_kits_share_common_values_unless_overridden() -> None:
    text = "[kits]\ncredits-per-day = 9\nsos-reserve = 3\n" + KIT + "sos-reserve = 4\ncount = 2"
    one, two = read_plan(load_toml(text)).kits
    assert (one.name, two.name) == ("hut-1", "hut-2")
    assert (one.credits_per_day, one.sos_reserve) == (9, 4)
    assert one.bearers == (Channel.SATELLITE,)


def test_hours_of_a_plan_span_midnight() -> None:
    assert [hour for hour in range(24) if PlanHours("22-2").has(hour)] == [0, 1, 22, 23]


def test_one_changed_value_keeps_the_rest_of_the_plan() -> None:
    values = load_toml("days = 2\n[kits]\nsos-per-week = 2\n" + KIT)
    plan = read_plan(change_values(values, "kits.credits-per-day=20"))
    assert (plan.kits[0].credits_per_day, plan.kits[0].sos_per_week) == (20, 2)
    assert plan.days == 2
    assert values["kits"] == {"sos-per-week": 2}
    assert read_plan(change_values(values, "name=night watch")).name == "night watch"


@pytest.mark.parametrize("change", ["kits", "=3", "days.long=3"])
def test_invalid_change_of_a_plan_is_refused(change: str) -> None:
    with pytest.raises(BadPlan):
        change_values(load_toml("days = 2\n" + KIT), change)


@pytest.mark.parametrize("path", [EXAMPLES / "week.toml", *sorted(EXAMPLES.glob("drills/*.toml"))])
def test_every_example_plan_can_be_read(path: Path) -> None:
    plan = read_plan(load_toml(path.read_text()))
    assert plan.text
    assert plan.dispatchers
