"""`fieldagent demo`: a simulated modem, the agent and a printing hook, in one terminal."""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import trio

from fieldagent.agent import agent
from fieldagent.agent.settings import Settings, parse
from fieldagent.cli import simulate
from fieldagent.cli.log_lines import start_logging
from fieldagent.cli.run import ended
from fieldagent.cli.terminal import escaped
from fieldagent.simulator.commands import Bench
from fieldagent.system.signals import Asks

WELCOME = """
The agent is up, with a simulated satellite modem on a serial line. Try, in another terminal:

  curl -X POST http://127.0.0.1:{port}/api/package \\
       -H 'Content-Type: application/json' -d '{{"message": {{"content": "Camp reached"}}}}'

Each call returns when the satellite gateway has the message. Here, type

  mt hello        to send a message to the kit: the hook prints what arrives
  status 32       to make the next session fail; the agent tries again
  help            for everything else that can be sent and go wrong

A browser shows the agent at http://127.0.0.1:{port}/ ; Ctrl-C ends the demo.
"""


def demo(given: argparse.Namespace) -> int:
    start_logging(given.verbose)
    with tempfile.TemporaryDirectory(prefix="fieldagent-demo-") as directory:
        home = Path(directory)
        bench = simulate.build(home / "modem", "300234010000001", given.latency)
        text = (
            f"satellite-port={home / 'modem'}\nstate-directory={home}\napi-port={given.port}\n"
            "inbound-hook=printf 'hook: '; cat\n"
        )
        settings = parse(text, home / "agent.properties")
        return ended(partial(_run, settings, bench))


def _emit(line: str) -> None:
    print(f"[kit] {escaped(line)}", flush=True)


async def _run(settings: Settings, bench: Bench, asks: Asks) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.port.run)
        async with trio.open_nursery() as inner:
            port = await inner.start(_run_agent, settings, asks, inner.cancel_scope)
            print(WELCOME.format(port=port), flush=True)
            await simulate.listen(bench)
        nursery.cancel_scope.cancel()


async def _run_agent(
    settings: Settings, asks: Asks, all_of_it: trio.CancelScope, task_status: trio.TaskStatus[int]
) -> None:
    await agent.run(settings, _emit, asks, task_status=task_status)
    all_of_it.cancel()
