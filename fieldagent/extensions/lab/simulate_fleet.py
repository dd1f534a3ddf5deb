"""`fieldagent simulate fleet`: tests an operator's own hub under the load of many emulated kits."""

from __future__ import annotations

import argparse
import errno
import json
import os
import random
import resource
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import trio

from fieldagent.agent.channels.connecting import Unreachable
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.hub_connection import HubAddress, TokenRefused, probe
from fieldagent.agent.settings import read_hub_address
from fieldagent.extensions.lab.simulator.fleet import Fleet, Plan
from fieldagent.extensions.lab.simulator.fleet_figures import (
    FleetCost,
    format_lines,
    is_as_expected,
    report,
)
from fieldagent.extensions.lab.simulator.fleet_tokens import NoTokens, parse_tokens
from fieldagent.system import waits
from fieldagent.system.exit_codes import ERROR, OK, REFUSED, UNAVAILABLE, USAGE
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import WrongProperty
from fieldagent.system.signals import StopRequests, run_heeding
from fieldagent.system.terminal import escape_line
from fieldagent.system.wording import describe_reason, format_count

OTHER_FILES = 64
"""Number of files that this program opens in addition to the links."""
REPORT_INTERVAL_S = 5.0
SETTLE_S = 30.0
"""Seconds at the end within which the hub must confirm the last items."""
PROBED_TOKENS = 3
"""Number of tokens that are tried before all others. If the hub refuses all of them, the tokens
belong to another hub."""
BUSY_LOAD = 0.9
"""Processor load of this program above which the measurement is not valid."""
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class _NotBegun(Exception):
    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


def run_fleet(arguments: argparse.Namespace) -> int:
    """Run the fleet against the hub and print the report. Return ERROR if the result is not as
    expected.
    """
    try:
        hub, tokens = _read_hub_address(arguments), _read_tokens(arguments)
        _check_sources(arguments.source)
        _raise_open_files(len(tokens))
        run = _Run(arguments, hub, tokens)
        run_heeding(run.run)
    except _NotBegun as none:
        print_failure(escape_line(str(none)))
        return none.code
    figures = run.report
    if arguments.json:
        print(json.dumps(figures))
    else:
        print("\n".join(escape_line(line) for line in format_lines(figures)))
    return OK if is_as_expected(figures) else ERROR


def _read_hub_address(arguments: argparse.Namespace) -> HubAddress:
    try:
        address = read_hub_address(arguments.hub)
    except WrongProperty as wrong:
        raise _NotBegun(f"--hub {wrong}", USAGE) from None
    return HubAddress(address, "", arguments.ca_file)


def _read_tokens(arguments: argparse.Namespace) -> list[str]:
    try:
        tokens = parse_tokens(arguments.tokens.read_text())
    except (NoTokens, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            raise _NotBegun(f"--tokens {describe_reason(error)}", USAGE) from None
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise _NotBegun(f"--tokens {arguments.tokens}: {reason}", USAGE) from None
    wanted_count = len(tokens) - arguments.first + 1 if arguments.kits is None else arguments.kits
    chosen = tokens[arguments.first - 1 :][: max(0, wanted_count)]
    if not chosen or len(chosen) < wanted_count:
        raise _NotBegun(
            f"{arguments.tokens} has {format_count(len(tokens), 'token')}: from {arguments.first}"
            " on"
            f" there are not {max(1, wanted_count)}; `fieldagent hub device make` makes more",
            USAGE,
        )
    return chosen


def _check_sources(addresses: Sequence[str]) -> None:
    for address in addresses:
        try:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probing:
                probing.bind((address, 0))
        except (OSError, UnicodeError):
            raise _NotBegun(
                f"--source {address} is not an address of this machine", USAGE
            ) from None


def _raise_open_files(links: int) -> None:
    needed = links + OTHER_FILES
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise _NotBegun(
            f"{links} links take {needed} open files, and this process may have {allowed}: raise"
            " its hard limit (LimitNOFILE of its systemd unit, `ulimit -Hn` as root, `hard nofile`"
            f" in /etc/security/limits.conf), or take --kits {max(1, allowed - OTHER_FILES)} and"
            " another machine with --first",
            USAGE,
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))


class _Run:
    def __init__(self, arguments: argparse.Namespace, hub: HubAddress, tokens: list[str]) -> None:
        self.report: dict[str, Any] = {}
        self._seconds = arguments.minutes * 60
        self._hub = hub
        self._tokens = tokens
        self._plan = Plan(arguments.every, arguments.connect_rate, tuple(arguments.source))
        self._started_at = 0.0

    async def run(self, stop_requests: StopRequests) -> None:
        """Run the fleet until its time is over or a signal stops it. Fill `report`. Raises
        _NotBegun if the hub refuses the tokens or does not answer.
        """
        await self._try_some()
        memory, processor = _read_memory(), time.process_time()
        self._started_at = trio.current_time()
        all_kits = Fleet(self._hub, self._tokens, self._plan)
        async with trio.open_nursery() as nursery:
            end_event = trio.Event()
            nursery.start_soon(_wait_until_given_up, all_kits, end_event)
            nursery.start_soon(self._show, all_kits)
            with waits.move_on_after(self._seconds):
                await _wait_for_first(stop_requests, end_event)
            all_kits.stop()
            with trio.move_on_after(SETTLE_S):
                async with trio.open_nursery() as waiting:
                    waiting.start_soon(_cancel_on_signal, stop_requests, waiting.cancel_scope)
                    await all_kits.wait_until_settled()
                    waiting.cancel_scope.cancel()
            seconds = trio.current_time() - self._started_at
            cost = FleetCost(seconds, time.process_time() - processor, _read_memory(), memory)
            figures = all_kits.figures
            self.report = report(figures, len(self._tokens), all_kits.count_waiting(), cost)
            self.report["advice"] = self._list_advice(cost)
            nursery.cancel_scope.cancel()

    async def _try_some(self) -> None:
        """Try a few tokens at the hub. Raises _NotBegun if the tokens belong to another hub, or if
        there is no hub.
        """
        probed_tokens = random.sample(self._tokens, min(PROBED_TOKENS, len(self._tokens)))
        for token in probed_tokens:
            try:
                return await probe(replace(self._hub, token=token))
            except TokenRefused:
                continue
            except Unreachable as trouble:
                code = REFUSED if trouble.state is LinkState.FAULT else UNAVAILABLE
                text = trouble.reason.replace("hub-ca-file", "--ca-file")
                raise _NotBegun(f"no kit was emulated: {text}", code) from None
        raise _NotBegun(
            f"no kit was emulated: the hub at {self._hub.address} refuses"
            f" {format_count(len(probed_tokens), 'token')} of the file: it is another hub, or these"
            " test kits were deleted there. Make some at your hub by `fieldagent hub device make`",
            REFUSED,
        )

    async def _show(self, all_kits: Fleet) -> NoReturn:
        figures, kits = all_kits.figures, len(self._tokens)
        while True:
            await trio.sleep(REPORT_INTERVAL_S)
            minutes, seconds = divmod(int(trio.current_time() - self._started_at), 60)
            print(
                f"[fleet] {minutes:02}:{seconds:02}  {figures.open} of {kits} links open,"
                f" {figures.sent} items sent, {figures.confirmed} confirmed,"
                f" {figures.refused.total()} attempts refused, {figures.lost.total()} links lost",
                file=sys.stderr,
                flush=True,
            )

    def _list_advice(self, cost: FleetCost) -> list[str]:
        """Return texts about the limits of this run and about ways to raise these limits."""
        refused, links = self.report["links"]["refused"], self.report["links"]
        advice = []
        if any(reason.endswith(_describe_error(errno.EMFILE)) for reason in refused):
            advice.append("Open files ran out: raise the hard limit of this process.")
        if any(reason.endswith(_describe_error(errno.EADDRNOTAVAIL)) for reason in refused):
            low, high = PORT_RANGE.read_text().split()
            advice.append(
                f"Ports ran out: one address of this machine has {int(high) - int(low) + 1} to one"
                " hub (net.ipv4.ip_local_port_range). Give it more addresses, each with --source."
            )
        if cost.processor > BUSY_LOAD * cost.seconds:
            advice.append(
                "This program had no processor left, so that the times are its own, too: share the"
                " kits among several processes or machines, by --first and --kits."
            )
        if links["givenUp"]:
            advice.append(
                f"{format_count(links['givenUp'], 'kit')} gave up, for the reasons above: their"
                " tokens"
                " are not of this hub any more, or somebody else uses them."
            )
        return advice


def _describe_error(number: int) -> str:
    return os.strerror(number).lower()


async def _wait_until_given_up(all_kits: Fleet, end_event: trio.Event) -> None:
    await all_kits.run()
    end_event.set()


async def _wait_for_first(stop_requests: StopRequests, end_event: trio.Event) -> None:
    """Wait until a signal arrives or all kits have given up."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_on_signal, stop_requests, nursery.cancel_scope)
        await end_event.wait()
        nursery.cancel_scope.cancel()


async def _cancel_on_signal(stop_requests: StopRequests, scope: trio.CancelScope) -> None:
    await stop_requests.receive()
    scope.cancel()


def _read_memory() -> int:
    """Return the size of this process's memory in bytes (proc_pid_statm(5))."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
