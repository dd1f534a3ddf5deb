"""`fieldagent drill` at the command line: the report agrees with the bill, and one seed gives one
report.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio.testing

from fieldagent import __version__
from fieldagent.extensions.lab.drill.findings import BrokenPromise, Findings, find
from fieldagent.extensions.lab.drill.outage import OutageCondition
from fieldagent.extensions.lab.drill.plan import Outages, PlanHours, load_toml, read_plan
from fieldagent.extensions.lab.drill.report import compute_percentile
from fieldagent.extensions.lab.drill.steady import replace_for_a_while
from fieldagent.extensions.lab.drill.world import World, run_drill
from tests import autojump

ROOT = Path(__file__).parents[4]
PLAN = """
name = "An hour of two kits"
days = 0.05
[kits]
awake = ["0-24"]
messages-per-day = 100
sos-per-week = 200
[[kit]]
name = "hut"
bearers = ["satellite"]
sky = { lost = 0.2, lasting = "2m" }
position-every = "20m"
[[kit]]
name = "car"
bearers = ["cellular"]
network = { lost = 0.3, lasting = "5m" }
[[dispatcher]]
name = "Olga"
answers-in = "1m"
messages-per-day = 50
"""


def run(*words: str | Path, hashes: str = "random") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fieldagent", "drill", *map(str, words)]
    environment = {**os.environ, "PYTHONHASHSEED": hashes}
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(PLAN)
    return path


def simulated(home: Path, text: str = PLAN, **change: Any) -> World:
    plan = replace(read_plan(load_toml(text)), **change)
    clock = trio.testing.MockClock
    with replace_for_a_while([(clock, "_autojump", autojump.jump)]):
        return run_drill(plan, 1, home, lambda line: None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return simulated(tmp_path_factory.mktemp("drill"))


@pytest.fixture(scope="module")
def findings(world: World) -> Findings:
    return find(world)


def test_times_of_each_drill_sos_are_in_causal_order(findings: Findings) -> None:
    assert {call.kit for call in findings.calls} == {"hut", "car"}
    for call in findings.calls:
        assert call.at_hub is not None
        assert call.seen is not None
        assert call.known is not None
        assert call.raised <= call.at_hub <= call.seen <= call.known


def test_operators_bill_equals_the_credits_that_the_kit_counted(
    world: World, findings: Findings
) -> None:
    (bill,) = findings.bills
    assert bill.kit == "hut"
    assert sum(bill.days) == bill.own_count > bill.for_sos > 0
    with closing(sqlite3.connect(world.kits[0].home / "journal.sqlite3")) as journal:
        by_day = [spent for (spent,) in journal.execute("SELECT credits FROM spent")]
    assert sum(by_day) == sum(bill.days)


def test_report_counts_every_posted_message(world: World, findings: Findings) -> None:
    posted = sum(not each.sos for kit in world.kits for each in kit.record.posted.values())
    assert len(findings.sent) == posted > 8
    with closing(sqlite3.connect(world.database)) as hub:
        ((at_hub,),) = hub.execute("SELECT count(*) FROM item WHERE sos = 0 AND source_device > 0")
    assert sum(each.at_hub is not None for each in findings.sent) == at_hub


def test_report_contains_delays_of_the_dispatchers_messages(findings: Findings) -> None:
    assert findings.written
    assert any(each.on_kit is not None and each.on_kit > each.at for each in findings.written)


def test_lost_message_stops_the_drill_with_its_trace(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(world.home, tmp_path / "copy")
    monkeypatch.setattr(world, "home", tmp_path / "copy")
    number = next(number for number, each in world.kits[1].record.posted.items() if not each.sos)
    with closing(sqlite3.connect(world.database)) as hub, hub:
        hub.execute("DELETE FROM item WHERE source_device = 2 AND source_sequence = ?", (number,))
    with pytest.raises(BrokenPromise) as broken:
        find(world)
    message = str(broken.value)
    assert message.startswith(f"car: message {number} is Delivered, but the hub does not have it")
    assert f"posted {number}" in message


def test_uncounted_credit_stops_the_drill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bill = world.kits[0].account.bill
    monkeypatch.setitem(bill, 0, bill[0] + 1)
    with pytest.raises(BrokenPromise, match="the operator bills"):
        find(world)


def test_failed_part_stops_the_drill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.kits[1].record, "faults", ["Cellular: KeyError"])
    with pytest.raises(BrokenPromise, match="car: Cellular: KeyError"):
        find(world)


@pytest.mark.full
def test_same_seed_gives_the_same_report(plan: Path, tmp_path: Path) -> None:
    first, second = (run(plan, hashes=hashes) for hashes in ("1", "2"))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert f"fieldagent {__version__}, `two.toml`, seed 1: 2 kits" in first.stdout
    assert "[drill] two.toml, the plan, seed 1: done" in first.stderr


@pytest.mark.full
def test_report_compares_two_settings(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    done = run(plan, "--against", "kits.sos-per-week=0", "--out", out, "--days", "0.03")
    assert done.returncode == 0, done.stderr
    text = out.read_text()
    assert "|  | the plan | kits.sos-per-week=0 |" in text
    assert "# With kits.sos-per-week=0" in text


@pytest.mark.full
def test_budget_report_is_computed_from_the_billed_days(plan: Path) -> None:
    done = run(plan, "--budget", "--weeks", "2", "--json", "--days", "0.03")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    days = sorted(each["credits"][0]["days"][0] for each in report["runs"])
    assert report["budget"]["hut"]["50"] == days[0]
    assert report["budget"]["hut"]["99"] == days[1]
    assert "car" not in report["budget"]


def test_percentile_is_the_smallest_sufficient_value() -> None:
    values = [*range(1, 101)]
    assert [compute_percentile(values, share) for share in (50, 90, 99)] == [50, 90, 99]
    assert compute_percentile([7], 99) == 7


def test_invalid_kit_setting_in_a_plan_is_reported(plan: Path) -> None:
    plan.write_text(PLAN + "[kits.settings]\nfan-out = 'all'")
    done = run(plan)
    assert done.returncode == 2
    assert "fan-out" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.full
def test_kit_without_power_does_not_fail_the_drill(tmp_path: Path) -> None:
    plan = PLAN.replace('name = "car"', 'name = "car"\npower = { hours = ["0-9"] }')
    (tmp_path / "plan.toml").write_text(plan)
    done = run(tmp_path / "plan.toml", "--json")
    assert done.returncode == 0, done.stderr


def test_missing_plan_file_is_reported(tmp_path: Path) -> None:
    done = run(tmp_path / "none.toml")
    assert done.returncode == 66
    assert "none.toml" in done.stderr


def test_outage_duration_is_computed_within_a_period() -> None:
    condition = OutageCondition("asleep", Outages((PlanHours("1-2"),)), Random(1))
    condition.log = [(100.0, True), (200.0, False), (300.0, True)]
    assert condition.compute_outage(0, 1000) == 800
    assert condition.compute_outage(150, 250) == 50
    assert condition.compute_outage(210, 290) == 0


DRILLS = sorted(ROOT.glob("examples/drills/*.toml"))


def test_sample_report_is_published_for_each_example_plan() -> None:
    text = (ROOT / "docs/reference/sample-drills.md").read_text()
    named = re.findall(r"^fieldagent \S+, `(\w+\.toml)`, seed 1: ", text, re.MULTILINE)
    assert named == [path.name for path in DRILLS]


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=() if path.stem == "hut" else pytest.mark.full)
        for path in DRILLS
    ],
)
def test_published_sample_report_equals_the_output_of_the_command(name: str) -> None:
    """If the change is intended, run `build/drill_reports` to write the page."""
    done = subprocess.run(
        ["build/drill_reports", "--check", name], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
