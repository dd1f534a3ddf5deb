"""`python -m tests.soak --minutes 60`: real processes under faults, and a table of the results.

The exit code is 1 if an item was lost, came twice, or is missing although it was called Delivered,
or if a resource grows.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from fieldagent.agent.channels.air_pace import AGAIN_MAX
from tests.postgres import Server, server
from tests.processes import PATIENCE
from tests.soak.faults import plague
from tests.soak.gauges import Sample, growing, look, table
from tests.soak.ledger import Ledger, Post
from tests.soak.traffic import keep_posting, keep_pushing
from tests.soak.world import Kit, World, world

CALLERS = 12
"""Callers of each kit over satellite."""
QUIET = AGAIN_MAX + PATIENCE
"""Seconds: behind a hill, a Package may rest that long between two tries on the air."""
LONG = 600.0
"""Seconds after which memory and files must be constant."""


@dataclass
class Found:
    ledger: Ledger
    seconds: float
    samples: list[Sample]
    again: int
    """Messages that came off the air twice."""
    wrong: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    """Rows of the table of counts."""


async def soak(home: Path, database: Server, *, seconds: float, kits: int, hurry: float) -> Found:
    with world(home, database, kits) as there:
        ledger, samples = Ledger(), list[Sample]()
        began = time.monotonic()
        async with trio.open_nursery() as ports:
            for kit in there.kits:
                await ports.start(kit.port.run)
            async with trio.open_nursery() as callers:
                stop = _begin_traffic(there, ledger, callers)
                try:
                    with trio.move_on_after(seconds):
                        async with trio.open_nursery() as faults:
                            faults.start_soon(plague, there, ledger, hurry)
                            faults.start_soon(_keep_looking, there, samples, seconds)
                finally:
                    # Only this event ends the threads.
                    stop.set()
                    ports.start_soon(_give_up, there, ledger)
            await trio.to_thread.run_sync(_settle, there, ledger)
            ports.cancel_scope.cancel()
        findings = Found(
            ledger, time.monotonic() - began, samples, sum(k.above.again for k in there.kits)
        )
        _judge(findings, there)
        return findings


def _begin_traffic(there: World, ledger: Ledger, callers: trio.Nursery) -> threading.Event:
    """Start the traffic, and return the event that ends it."""
    stop = threading.Event()
    in_thread = partial(trio.to_thread.run_sync, limiter=trio.CapacityLimiter(1000))

    def begin(kit: Kit, channel: str, pause: float) -> None:
        callers.start_soon(in_thread, keep_posting, kit, channel, ledger, stop, pause)

    for kit in there.kits:
        for _ in range(CALLERS):
            begin(kit, "Satellite", 0.0)
        begin(kit, "Cellular", 0.5)
    for kit in there.kits[:2]:
        begin(kit, "Radio", 2.0)
    callers.start_soon(in_thread, keep_pushing, there, ledger, stop, 0.5)
    return stop


async def _give_up(there: World, ledger: Ledger) -> None:
    """Report what hangs if nothing arrives for longer than the longest pause. Without faults, all
    callers get an answer.
    """
    known, since = -1, trio.current_time()
    while trio.current_time() - since < QUIET:
        await trio.sleep(1)
        arrived = sum(post.arrived().total() for post, _ in expected(there, ledger).values())
        if (count := arrived + sum(map(len, ledger.delivered.values()))) != known:
            known, since = count, trio.current_time()
    for kit in there.kits:
        status = kit.agent.call("GET", "/api/status").body
        waits = {
            what: (state["queued"], state["reason"]) for what, state in status["channels"].items()
        }
        ledger.otherwise[f"none from {kit.name}: {waits} {status['faults']}"] += 1
    ledger.given_up.set()
    for kit in there.kits:
        kit.kill()


async def _keep_looking(there: World, samples: list[Sample], seconds: float) -> None:
    while True:
        await trio.sleep(min(10.0, seconds / 30))
        samples.append({name: look(*each) for name, each in there.running().items()})


def expected(there: World, ledger: Ledger) -> dict[str, tuple[Post, set[str]]]:
    """Return the expected items of each hook."""
    by_ip = ledger.accepted.get("Cellular", set())
    hooks = {there.hooked.name: (there.hooked, set(by_ip))}
    for kit in there.kits:
        mine = f"{kit.name} "
        wanted = {text for text in by_ip if not text.startswith(mine)}
        wanted |= ledger.accepted.get(f"push to {kit.name}", set())
        if kit in there.kits[:2]:
            heard = ledger.accepted.get("Radio", set())
            wanted |= {text for text in heard if not text.startswith(mine)}
        hooks[kit.hook.name] = (kit.hook, wanted)
    return hooks


def _settle(there: World, ledger: Ledger) -> None:
    """Report missing items if nothing arrives any more. Without faults, all items arrive."""
    while not ledger.given_up.is_set():
        if all(
            wanted <= post.arrived().keys() for post, wanted in expected(there, ledger).values()
        ):
            return
        time.sleep(0.5)


def _judge(findings: Found, there: World) -> None:
    ledger, wrong = findings.ledger, findings.wrong
    sat, there_now = ledger.delivered.get("Satellite", set()), set[str]()
    for kit in there.kits:
        there_now |= {
            text for text in sat if text.startswith(f"{kit.name} ") and kit.above.has(text)
        }
    absent = {*ledger.absent} | (sat - there_now)
    if absent:
        wrong.append(f"Delivered, and not at the gateway: {sorted(absent)}")
    posted = ledger.count("Satellite")
    findings.rows.append(f"| the gateways | {posted} | {len(sat)} | {len(sat) - len(absent)} | | |")
    for what, (post, wanted) in expected(there, ledger).items():
        came = post.arrived()
        lost = wanted - came.keys()
        twice, interrupted = post.twice()
        here = len(wanted & came.keys())
        findings.rows.append(
            f"| {what} | {len(wanted)} | | {here} | {len(twice)} | {len(interrupted)} |"
        )
        if lost:
            wrong.append(f"{what} never got {sorted(lost)}")
        if twice:
            wrong.append(f"{what} got twice {sorted(twice)}")
        if strange := came.keys() - wanted:
            wrong.append(f"{what} got what was not for it: {sorted(strange)}")
    wrong += [f"{times} answers were {what}" for what, times in ledger.otherwise.items()]
    wrong += growing(findings.samples) if findings.seconds >= LONG else []


def report(findings: Found) -> str:
    faults = ", ".join(f"{what} {times}" for what, times in sorted(findings.ledger.faults.items()))
    lines = [
        f"{findings.seconds:.0f} s; faults: {faults}.",
        f"{findings.again} messages came off the air twice, and count once.",
        "",
        "| where | posted | `Delivered` | arrived | twice | twice, its sender killed meanwhile |",
        "|---|---|---|---|---|---|",
        *findings.rows,
        "",
        table(findings.samples),
        "",
        *(findings.wrong or ["Nothing was lost, nothing came twice, nothing grew."]),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--kits", type=int, default=3, help="how many agents; 3 or more (3)")
    parser.add_argument("--hurry", type=float, default=1.0, help="so many times the faults (1)")
    arguments = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="fieldagent-soak-") as home, server() as database:
        run = partial(
            soak,
            Path(home),
            database,
            seconds=arguments.minutes * 60,
            kits=arguments.kits,
            hurry=arguments.hurry,
        )
        findings = trio.run(run)
    print(report(findings))
    return 1 if findings.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
