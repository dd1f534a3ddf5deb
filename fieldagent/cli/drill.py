"""`fieldagent drill`: a team's week in virtual time, and a report of it."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from fieldagent.drill import report
from fieldagent.drill.findings import BrokenPromise, find
from fieldagent.drill.plan import BadPlan, DrillPlan, changed, load_toml, read_plan
from fieldagent.drill.report import Run
from fieldagent.drill.world import drill as let_pass
from fieldagent.system.exit_codes import ERROR, IO_FAILED, MISSING, OK, USAGE
from fieldagent.system.log_lines import complain
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escaped
from fieldagent.system.wording import reason_of

MEMORY = Path("/dev/shm")
"""Where journals are kept meanwhile: no disk fails in a drill."""


class _NotRun(Exception):
    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


def drill(given: argparse.Namespace) -> int:
    """Run the plans and print or write their report. Returns MISSING or USAGE for a plan that
    cannot be run, ERROR where a promise of the program's was broken."""
    try:
        drills = [(path.name, _plans(path, given)) for path in given.plan]
        runs = [(name, _runs(name, plans, given)) for name, plans in drills]
        _tell(given, runs)
    except _NotRun as none:
        complain(escaped(str(none).partition("\n")[0]))
        for line in str(none).splitlines()[1:]:
            print(escaped(line), file=sys.stderr)
        return none.code
    return OK


def _plans(path: Path, given: argparse.Namespace) -> list[tuple[str, DrillPlan]]:
    try:
        values = load_toml(path.read_text())
        plans = [("the plan", read_plan(values))]
        if given.against:
            plans.append((given.against, read_plan(changed(values, given.against))))
    except OSError as error:
        raise _NotRun(reason_of(error), MISSING) from None
    except UnicodeDecodeError:
        raise _NotRun(f"{path}: it is no text", USAGE) from None
    except BadPlan as bad:
        raise _NotRun(f"{path}: {bad}", USAGE) from None
    if given.days:
        return [(label, replace(plan, days=given.days)) for label, plan in plans]
    return plans


def _runs(name: str, plans: list[tuple[str, DrillPlan]], given: argparse.Namespace) -> list[Run]:
    seeds = range(given.seed, given.seed + (given.weeks if given.budget else 1))
    try:
        return [_run(name, label, plan, seed) for label, plan in plans for seed in seeds]
    except InvalidSettings as wrong:
        raise _NotRun(f"{name}: settings: {'; '.join(wrong.faults)}", USAGE) from None
    except BrokenPromise as broken:
        raise _NotRun(f"{name}: a promise is broken: {broken}", ERROR) from None


def _run(name: str, label: str, plan: DrillPlan, seed: int) -> Run:
    def tell(line: str) -> None:
        about = escaped(f"{name}, {label}, seed {seed}: {line}")
        print(f"[drill] {about}", file=sys.stderr, flush=True)

    began = time.monotonic()
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fieldagent-drill-", dir=where) as home:
        found = find(let_pass(plan, seed, Path(home), tell))
    tell(f"done in {time.monotonic() - began:.0f} s")
    return Run(label, plan, seed, found)


def _tell(given: argparse.Namespace, drills: list[tuple[str, list[Run]]]) -> None:
    if given.json:
        told = [
            report.as_json(name, runs) | ({"budget": report.budget(runs)} if given.budget else {})
            for name, runs in drills
        ]
        text = json.dumps(told[0] if len(told) == 1 else told) + "\n"
    elif given.budget:
        text = "\n".join(report.budget_text(name, runs) for name, runs in drills)
    else:
        text = report.page([report.markdown(name, runs) for name, runs in drills])
    if given.out is None:
        print("\n".join(map(escaped, text.splitlines())))
        return
    try:
        given.out.write_text(text)
    except OSError as error:
        raise _NotRun(f"--out {reason_of(error)}", IO_FAILED) from None
