"""Answers to commands that change nothing. Each returns the body of its answer."""

from __future__ import annotations

import re
from typing import Any

from fieldagent import __version__
from fieldagent.agent.commands import machine
from fieldagent.agent.commands.hands import CannotBeDone, Hands
from fieldagent.agent.journal import history, outbound
from fieldagent.package.package import Channel
from fieldagent.package.writing import clock_time
from fieldagent.wire import answer_text, kit_status
from fieldagent.wire.command import Argument, size_of
from fieldagent.wire.kit_status import CLOCKS, LINKS, STATES, KitStatus

_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.dev(\d+)|\+(\d+)\.)?")


def status(hands: Hands, arguments: tuple[Argument, ...]) -> bytes:
    """Return how the kit is, in 32 bytes."""
    return kit_status.encode(kit_status_of(hands))


def kit_status_of(hands: Hands) -> KitStatus:
    """Return how the kit is."""
    told = hands.status()
    channels: dict[str, dict[str, Any]] = {
        name.lower(): channel for name, channel in told["channels"].items()
    }
    links = [channels[name] for name in LINKS]
    space = channels["satellite"]
    budget, spent = space.get("creditsPerDay"), space["creditsToday"]
    free, used = machine.disk(hands.settings.state_directory)
    version = _VERSION.match(__version__)
    assert version is not None
    major, minor, patch, *since = version.groups()
    satellite, radio, cellular = (each["state"] or STATES[0] for each in links)
    bars = [each["signal"] for each in links]
    clock = told["clock"]["source"] or CLOCKS[0]
    return KitStatus(
        (int(major), int(minor), int(patch)),
        int(next(filter(None, since), 0)),
        free,
        used,
        machine.degrees(),
        machine.millivolts(),
        round(told["uptime"]),
        machine.uptime(),
        hands.starts,
        (satellite, radio, cellular),
        (bars[0], bars[1], bars[2]),
        max(each["queued"] for each in links),
        spent,
        None if budget is None else max(0, budget - spent),
        clock if clock in CLOCKS else CLOCKS[-1],
        told["deadLetters"]["came"],
        sum(each["down"] for each in told["faults"]),
        hands.trouble() is not None,
    )


def log(hands: Hands, arguments: tuple[Argument, ...]) -> bytes:
    """Return the newest warnings."""
    lines = hands.log.lines() or ["no warning since the agent began"]
    return answer_text.pack_lines(lines, size_of(arguments))


def show(hands: Hands, arguments: tuple[Argument, ...]) -> bytes:
    """Return what a Package went through, the last first. Raises CannotBeDone."""
    journal, id_ = hands.parts.journal, int(arguments[0])
    known = outbound.by_id(journal, id_)
    if known is None:
        raise CannotBeDone(f"no Package has the id {id_}")
    receipts = outbound.receipts(journal, known.sequence)
    lines = [f"status {known.status or 'waiting'}"]
    for each in reversed(history.lines(journal, known, receipts)):
        often = f"x{each.times}" if each.times > 1 else ""
        words = (clock_time(each.at), each.channel or "", each.event, each.detail, often)
        lines.append(" ".join(filter(None, words)))
    return answer_text.pack_lines(lines, size_of(arguments[1:]))


def trace(hands: Hands, arguments: tuple[Argument, ...]) -> bytes:
    """Return the last of the satellite's trace. Raises CannotBeDone."""
    if (outbox := hands.parts.outboxes.get(Channel.SATELLITE)) is None:
        raise CannotBeDone("no satellite modem is configured")
    lines = outbox.link.recorder.text().splitlines()
    return answer_text.pack_last(lines, size_of(arguments))


READS = {"status": status, "log": log, "show": show, "trace": trace}
