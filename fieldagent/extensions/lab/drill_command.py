"""`fieldagent drill`: runs a team's week in virtual time and writes a report."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from fieldagent.extensions.lab.drill import report
from fieldagent.extensions.lab.drill.findings import BrokenPromise, find
from fieldagent.extensions.lab.drill.plan import (
    BadPlan,
    DrillPlan,
    change_values,
    load_toml,
    read_plan,
)
from fieldagent.extensions.lab.drill.report import DrillRun
from fieldagent.extensions.lab.drill.world import run_drill as let_pass
from fieldagent.system.exit_codes import ERROR, IO_FAILED, MISSING, OK, USAGE
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import escape_line
from fieldagent.system.text_files import read_text_file
from fieldagent.system.wording import describe_reason

MEMORY = Path("/dev/shm")
"""Folder in memory that contains the journals during a run, because a drill does not simulate disk
failures."""


class _NotRun(Exception):
    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


def run_drill(arguments: argparse.Namespace) -> int:
    """Run the plans, and print or write their report. Return MISSING or USAGE if a plan cannot be
    run, or ERROR if a guarantee of the program was broken.
    """
    try:
        drills = [(path.name, _read_plans(path, arguments)) for path in arguments.plan]
        runs = [(name, _run_plans(name, plans, arguments)) for name, plans in drills]
        _print_progress(arguments, runs)
    except _NotRun as none:
        print_failure(escape_line(str(none).partition("\n")[0]))
        for line in str(none).splitlines()[1:]:
            print(escape_line(line), file=sys.stderr)
        return none.code
    return OK


def _read_plans(path: Path, arguments: argparse.Namespace) -> list[tuple[str, DrillPlan]]:
    try:
        values = load_toml(read_text_file(path))
        plans = [("the plan", read_plan(values))]
        if arguments.against:
            plans.append((arguments.against, read_plan(change_values(values, arguments.against))))
    except OSError as error:
        raise _NotRun(describe_reason(error), MISSING) from None
    except UnicodeDecodeError:
        raise _NotRun(f"{path}: it is not text", USAGE) from None
    except BadPlan as bad:
        raise _NotRun(f"{path}: {bad}", USAGE) from None
    if arguments.days:
        return [(label, replace(plan, days=arguments.days)) for label, plan in plans]
    return plans


def _run_plans(
    name: str, plans: list[tuple[str, DrillPlan]], arguments: argparse.Namespace
) -> list[DrillRun]:
    seeds = range(arguments.seed, arguments.seed + (arguments.weeks if arguments.budget else 1))
    try:
        return [_run(name, label, plan, seed) for label, plan in plans for seed in seeds]
    except InvalidSettings as wrong:
        raise _NotRun(f"{name}: settings: {'; '.join(wrong.faults)}", USAGE) from None
    except BrokenPromise as broken:
        raise _NotRun(f"{name}: a promise is broken: {broken}", ERROR) from None


def _run(name: str, label: str, plan: DrillPlan, seed: int) -> DrillRun:
    def print_progress(line: str) -> None:
        progress_line = escape_line(f"{name}, {label}, seed {seed}: {line}")
        print(f"[drill] {progress_line}", file=sys.stderr, flush=True)

    started_at = time.monotonic()
    folder = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fieldagent-drill-", dir=folder) as home:
        findings = find(let_pass(plan, seed, Path(home), print_progress))
    print_progress(f"done in {time.monotonic() - started_at:.0f} s")
    return DrillRun(label, plan, seed, findings)


def _print_progress(
    arguments: argparse.Namespace, drills: list[tuple[str, list[DrillRun]]]
) -> None:
    if arguments.json:
        documents = [
            report.encode_runs(name, runs)
            | ({"budget": report.compute_budget(runs)} if arguments.budget else {})
            for name, runs in drills
        ]
        text = json.dumps(documents[0] if len(documents) == 1 else documents) + "\n"
    elif arguments.budget:
        text = "\n".join(report.format_budget(name, runs) for name, runs in drills)
    else:
        text = report.format_page([report.format_markdown(name, runs) for name, runs in drills])
    if arguments.out is None:
        print("\n".join(map(escape_line, text.splitlines())))
        return
    try:
        arguments.out.write_text(text)
    except OSError as error:
        raise _NotRun(f"--out {describe_reason(error)}", IO_FAILED) from None
