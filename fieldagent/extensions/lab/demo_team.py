"""`fieldagent demo --team 3`: runs several kits in one terminal. The kits reach each other over a
simulated radio, without any hardware (`radio-protocol=udp`).
"""

from __future__ import annotations

import argparse
import signal
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path

import trio

from fieldagent.agent import agent
from fieldagent.agent.settings import Settings, parse
from fieldagent.cli.kit.run import run_to_end
from fieldagent.system.exit_codes import SETTINGS, USAGE
from fieldagent.system.log_lines import print_failure, start_logging
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.signals import StopRequests
from fieldagent.system.terminal import escape_line

NAMES = ("Ada", "Ben", "Cleo", "Dora", "Eli", "Fay", "Gus", "Hana")
WELCOME = """
{count} kits hear each other as by radio, {loss} % of the packets are lost. In a browser:

{pages}

Write on one page, and it is on the others; hold SOS on one, and it is said on all. "Delivered" is
what another kit has on its disk. In another terminal:

  .venv/bin/fieldagent send message 'Camp reached' --port {port}
  .venv/bin/fieldagent neighbours --port {port}

Ctrl-C ends the team.
"""


def run_demo_team(arguments: argparse.Namespace) -> int:
    """Run `arguments.team` kits in a temporary folder until they are stopped. They share one
    simulated radio channel (UDP).
    """
    port_max = 65_536 - arguments.team
    if arguments.port > port_max:
        print_failure(
            f"--port: {arguments.team} kits take as many ports from that on: {port_max} at the most"
        )
        return USAGE
    start_logging(arguments.verbose)
    air = f"udp://127.255.255.255:{_find_free_port()}"
    with tempfile.TemporaryDirectory(prefix="fieldagent-team-") as directory:
        home = Path(directory)
        try:
            kits = [
                _make_kit_settings(home, number, air, arguments) for number in range(arguments.team)
            ]
        except InvalidSettings as invalid:
            # A program without the extension `radio` has no radio for the team.
            print_failure(invalid.faults[0])
            return SETTINGS
        return run_to_end(partial(_run, kits, arguments.loss), home)


def _find_free_port() -> int:
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _make_kit_settings(
    home: Path, number: int, air: str, arguments: argparse.Namespace
) -> Settings:
    state = home / NAMES[number]
    port = arguments.port + number if arguments.port else 0
    text = (
        f"radio-port={air}\nradio-protocol=udp\nudp-loss={arguments.loss}\n"
        f"radio-station={number + 1}\nradio-name={NAMES[number]}\n"
        f"state-directory={state}\napi-port={port}\n"
    )
    return parse(text, home / f"{NAMES[number]}.properties")


async def _run(kits: Sequence[Settings], loss: int, stop_requests: StopRequests) -> None:
    """Run the kits, and print the addresses of their pages. Pass the first stop signal to all kits.
    If one kit fails, end the others too.
    """
    async with trio.open_nursery() as nursery:
        tell_channels, pages = [], []
        for kit in kits:
            stop_signals, received_signals = trio.open_memory_channel[signal.Signals](inf)
            tell_channels.append(stop_signals)
            port = await nursery.start(_run_one, kit, received_signals)
            pages.append((kit.state_directory.name, port))
        page_list = "\n".join(f"  {name:<5} http://127.0.0.1:{port}/" for name, port in pages)
        values = {"count": len(kits), "loss": loss, "pages": page_list, "port": pages[0][1]}
        print(WELCOME.format(**values), flush=True)
        async for number in stop_requests:
            for stop_signals in tell_channels:
                stop_signals.send_nowait(number)
            break
        # A second signal does not interrupt the kits, because each kit has received the first
        # signal and ends properly.


async def _run_one(
    kit: Settings, stop_requests: StopRequests, task_status: trio.TaskStatus[int]
) -> None:
    def emit(line: str) -> None:
        print(f"[{kit.state_directory.name}] {escape_line(line)}", flush=True)

    await agent.run(kit, emit, stop_requests, task_status=task_status)
