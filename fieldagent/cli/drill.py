"""`fieldagent drill`: a team's week in virtual time, and a report of it."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fieldagent.drill import report
from fieldagent.drill.findings import BrokenPromise, find
from fieldagent.drill.plan import BadPlan, Plan, changed, load_toml, read_plan
from fieldagent.drill.report import Run
from fieldagent.drill.world import drill as let_pass
from fieldagent.system.exit_codes import ERROR, MISSING, OK, USAGE
from fieldagent.system.log_lines import complain
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escaped
from fieldagent.system.wording import reason_of

MEMORY = Path("/dev/shm")
"""Where journals are kept meanwhile: no disk fails in a drill."""


def drill(given: argparse.Namespace) -> int:
    try:
        values = load_toml(given.plan.read_text())
        plans = [("the plan", read_plan(values))]
        if given.against:
            plans.append((given.against, read_plan(changed(values, given.against))))
    except (OSError, UnicodeDecodeError) as error:
        complain(f"{given.plan}: {reason_of(error) if isinstance(error, OSError) else 'no text'}")
        return MISSING
    except BadPlan as bad:
        complain(escaped(f"{given.plan}: {bad}"))
        return USAGE
    try:
        runs = [
            _run(label, plan, seed, given)
            for label, plan in plans
            for seed in range(given.seed, given.seed + (given.weeks if given.budget else 1))
        ]
    except InvalidSettings as wrong:
        complain(escaped(f"{given.plan}: settings: {'; '.join(wrong.faults)}"))
        return USAGE
    except BrokenPromise as broken:
        complain(f"a promise is broken: {escaped(str(broken).splitlines()[0])}")
        print(escaped_lines(str(broken)), file=sys.stderr)
        return ERROR
    _tell(given, runs)
    return OK


def _run(label: str, plan: Plan, seed: int, given: argparse.Namespace) -> Run:
    def tell(line: str) -> None:
        print(f"[drill] {label}, seed {seed}: {line}", file=sys.stderr, flush=True)

    if given.days:
        plan = replace(plan, days=given.days)
    began = time.monotonic()
    where = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fieldagent-drill-", dir=where) as home:
        found = find(let_pass(plan, seed, Path(home), tell))
    tell(f"done in {time.monotonic() - began:.0f} s")
    return Run(label, plan, seed, found)


def _tell(given: argparse.Namespace, runs: list[Run]) -> None:
    source = given.plan.name
    if given.json:
        told: dict[str, Any] = report.as_json(source, runs)
        if given.budget:
            told["budget"] = report.budget(runs)
        text = json.dumps(told)
    elif given.budget:
        text = report.budget_text(runs)
    else:
        text = report.markdown(source, runs)
    if given.out is None:
        print(escaped_lines(text))
    else:
        given.out.write_text(text)


def escaped_lines(text: str) -> str:
    return "\n".join(map(escaped, text.splitlines()))
