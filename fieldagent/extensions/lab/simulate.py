"""`fieldagent simulate`: simulated hardware that is controlled by typed commands."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from fieldagent.extensions.lab.simulator.base_camp import BaseCamp
from fieldagent.extensions.lab.simulator.commands import BadCommand, Bench, run_line
from fieldagent.extensions.lab.simulator.gateway import SimulatedGateway
from fieldagent.extensions.lab.simulator.hub_side import HubSide
from fieldagent.extensions.lab.simulator.imt_commands import ImtBench
from fieldagent.extensions.lab.simulator.imt_commands import run_line as obey_imt
from fieldagent.extensions.lab.simulator.imt_modem import PAYLOAD_BYTES, SimulatedImtModem
from fieldagent.extensions.lab.simulator.imt_port import ImtPort
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.pty_port import NoLine, PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.http.listeners import ListenFailed, PortTaken
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.exit_codes import OK, TAKEN, USAGE
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import WrongProperty, read_endpoint
from fieldagent.system.signals import StopRequests, run_heeding
from fieldagent.system.terminal import escape_line
from fieldagent.wire.credit import make_byte_tariff
from fieldagent.wire.envelope import derive_key


def print_line(line: str) -> None:
    """Print a line of the simulation immediately, with control characters escaped."""
    print(f"[sky] {escape_line(line)}", flush=True)


def simulate_satellite(arguments: argparse.Namespace) -> int:
    """Simulate a modem and its gateway until stopped. If `--link` is not given, the port is in a
    temporary folder.
    """
    if not re.fullmatch(r"[0-9]{15}", arguments.imei):
        print("fieldagent: --imei takes 15 digits", file=sys.stderr)
        return USAGE
    if arguments.key is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", arguments.key):
        print("fieldagent: --key takes 64 hexadecimal digits", file=sys.stderr)
        return USAGE
    if arguments.kind == "imt" and arguments.hub:
        print("fieldagent: --hub is DirectIP's, for --kind sbd", file=sys.stderr)
        return USAGE
    with link_to(arguments.link, "modem") as link:
        masters = [bytes.fromhex(arguments.key)] if arguments.key else []
        if arguments.kind == "imt":
            imt_bench = build_imt(link, arguments.imei, arguments.latency, masters)
            return run_until_stopped(partial(_run_imt, imt_bench))
        hub = _read_endpoint(arguments.hub) if arguments.hub else None
        bench = build(link, arguments.imei, arguments.latency, masters, hub)
        return run_until_stopped(partial(_run, bench, arguments.mt_port))


@contextmanager
def link_to(link: Path | None, name: str) -> Iterator[Path]:
    """Yield `link`. If `link` is None, yield a path with the name `name` in a temporary folder. The
    folder is created only if necessary, because a killed process cannot remove it.
    """
    if link is not None:
        yield link
        return
    with tempfile.TemporaryDirectory(prefix="fieldagent-") as folder:
        yield Path(folder) / name


def run_until_stopped(simulate: Callable[[], Awaitable[None]]) -> int:
    """Run `simulate` until SIGTERM or Ctrl-C. Return the exit code. If a port cannot be opened,
    print the reason.
    """

    async def cancel_on_signal(stop_requests: StopRequests, scope: trio.CancelScope) -> None:
        await stop_requests.receive()
        scope.cancel()

    async def run(stop_requests: StopRequests) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_on_signal, stop_requests, nursery.cancel_scope)
            await simulate()
            nursery.cancel_scope.cancel()

    try:
        run_heeding(run)
    except* (NoLine, ListenFailed) as group:
        error = get_first_error(group)
        print_failure(escape_line(str(error)))
        code = TAKEN if isinstance(error, PortTaken) else USAGE
    else:
        code = OK
    return code


def _read_endpoint(text: str) -> tuple[str, int]:
    try:
        return read_endpoint(text)
    except WrongProperty as wrong:
        print_failure(escape_line(f"--hub {wrong}"))
        raise SystemExit(USAGE) from None


def build(
    link: Path,
    imei: str,
    latency: float,
    masters: Sequence[bytes] = (),
    hub: tuple[str, int] | None = None,
) -> Bench:
    """Return a simulated 9602 with its gateway. They are not running yet. `latency` is in seconds.
    `masters` are satellite keys, and the first of them authenticates MT messages. `hub` is the
    hub's address for DirectIP.
    """
    queue = MtQueue()
    home = BaseCamp(
        print_line,
        queue,
        key=derive_key(masters[0], "MT") if masters else None,
        keys=[derive_key(master, "MO") for master in masters],
    )
    side = HubSide(*hub, imei, queue, print_line) if hub else None
    modem = SimulatedModem(
        SimulatedGateway(print_line, queue, side or home), imei=imei, clock=time.time
    )
    return Bench(modem, PtyPort(modem, link, latency=latency), queue, home, side)


def build_imt(link: Path, imei: str, latency: float, masters: Sequence[bytes] = ()) -> ImtBench:
    """Return a simulated 9704 with its gateway, in the same way as `build` does for a 9602. The
    gateway is not connected to a hub.
    """
    queue = MtQueue()
    home = BaseCamp(
        print_line,
        queue,
        key=derive_key(masters[0], "MT") if masters else None,
        keys=[derive_key(master, "MO") for master in masters],
        mt_bytes=PAYLOAD_BYTES,
    )
    gateway = SimulatedGateway(print_line, queue, home, make_byte_tariff(0))
    modem = SimulatedImtModem(gateway, imei=imei)
    return ImtBench(modem, ImtPort(modem, link, latency=latency), queue, home)


async def _run_imt(bench: ImtBench) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(bench.port.run)
        print_line(
            f"modem {bench.modem.imei} on {bench.port.link}: satellite-port={bench.port.link}"
        )
        print_line(
            "set satellite-modem=imt; type `help` for what can be sent and what can go wrong"
        )
        await listen(partial(obey_imt, bench))
        await trio.sleep_forever()


async def _run(bench: Bench, mt_port: int) -> None:
    async with trio.open_nursery() as nursery:
        if bench.hub is not None:
            await _connect_to_hub(bench, bench.hub, mt_port, nursery)
        await nursery.start(bench.port.run)
        print_line(
            f"modem {bench.modem.state.imei} on {bench.port.link}: satellite-port={bench.port.link}"
        )
        print_line("type `help` for what can be sent and what can go wrong")
        await listen(partial(run_line, bench))
        # Standard input has ended, for example because the program runs in the background. The
        # simulation continues.
        await trio.sleep_forever()


async def _connect_to_hub(bench: Bench, hub: HubSide, mt_port: int, nursery: trio.Nursery) -> None:
    def ring() -> None:
        bench.modem.ring()
        bench.port.poke()

    listening = await nursery.start(hub.serve, mt_port, ring)
    nursery.start_soon(hub.send_messages)
    print_line(
        f"MO messages go to {hub.host}:{hub.port};"
        f" MT messages: directip-gateway=127.0.0.1:{listening}"
    )


async def listen(obey: Callable[[str], str]) -> None:
    """Run the typed commands until standard input ends."""
    async for line in read_typed_lines():
        try:
            answer = obey(line)
        except BadCommand as bad:
            answer = str(bad)
        for part in answer.splitlines():
            print_line(part)


async def read_typed_lines() -> AsyncIterator[str]:
    """Yield the lines of standard input without their line ends. A last line that has no line end
    is ignored.
    """
    rest = b""
    # Read in a thread that can be abandoned. The terminal must remain in blocking mode, because the
    # parent shell uses it too.
    while chunk := await trio.to_thread.run_sync(os.read, 0, 4096, abandon_on_cancel=True):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
