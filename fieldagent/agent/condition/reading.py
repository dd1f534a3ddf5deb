"""Builds the kit's condition from the agent's status and from Linux's report on the machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import trio

from fieldagent import __version__
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.condition import machine
from fieldagent.agent.condition.logbook import Logbook
from fieldagent.agent.settings import Settings
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.wire.kit_condition import REPORTED_CHANNELS, KitCondition
from fieldagent.wire.kit_status import CLOCKS, LINKS, STATES, KitStatus, read_version_numbers


def make_status(
    settings: Settings, answer: Mapping[str, Any], starts: int, *, trouble: bool
) -> KitStatus:
    """Return the kit's status. `answer` is the response to `GET /api/status`, and `starts` the
    number of the agent's starts. `trouble` is True if the whole agent has a problem.
    """
    channels: dict[str, dict[str, Any]] = {
        name.lower(): channel for name, channel in answer["channels"].items()
    }
    links = [channels[name] for name in LINKS]
    space = channels["satellite"]
    budget, credits_spent = space.get("creditsPerDay"), space["creditsToday"]
    free, used_share = machine.read_disk(settings.state_directory)
    version, since = read_version_numbers(__version__)
    satellite, radio, cellular = (each["state"] or STATES[0] for each in links)
    bars = [each["signal"] for each in links]
    clock = answer["clock"]["source"] or CLOCKS[0]
    return KitStatus(
        version,
        since,
        free,
        used_share,
        machine.read_degrees(),
        machine.read_millivolts(),
        round(answer["uptime"]),
        machine.read_uptime(),
        starts,
        (satellite, radio, cellular),
        (bars[0], bars[1], bars[2]),
        max(each["queued"] for each in links),
        credits_spent,
        None if budget is None else max(0, budget - credits_spent),
        clock if clock in CLOCKS else CLOCKS[-1],
        answer["deadLetters"]["came"],
        sum(each["down"] for each in answer["faults"]),
        trouble,
    )


def make_condition(
    status: KitStatus, logbook: Logbook, clock: ElapsedTime, links: Mapping[str, ChannelLink]
) -> KitCondition:
    """Return the kit's condition: its status and other facts about the kit. `links` are its
    channels' links by name.
    """
    reported_links = {name: link for name, link in links.items() if name in REPORTED_CHANNELS}
    return KitCondition(
        status,
        machine.read_system_name(),
        logbook.cause,
        logbook.count_starts(),
        machine.read_throttling(),
        _compute_clock_lead(clock),
        logbook.compute_signals(reported_links, trio.current_time()),
    )


def _compute_clock_lead(clock: ElapsedTime) -> int | None:
    """Return the seconds by which the system's clock is ahead of the time that the kit has
    received, or None if it has received no time.
    """
    return round(time.time() - clock.date(clock.now())) if clock.source() else None
