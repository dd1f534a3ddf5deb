"""How a kit is, of what the agent tells of itself and Linux of the machine."""

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
from fieldagent.system.lived_time import LivedTime
from fieldagent.wire.kit_condition import CHANNELS, KitCondition
from fieldagent.wire.kit_status import CLOCKS, LINKS, STATES, KitStatus, numbers_of


def status_of(
    settings: Settings, answer: Mapping[str, Any], starts: int, *, trouble: bool
) -> KitStatus:
    """Return how the kit is. `answer` is what `GET /api/status` answers, `starts` how often the
    agent has begun; `trouble`: something is wrong with all of it."""
    channels: dict[str, dict[str, Any]] = {
        name.lower(): channel for name, channel in answer["channels"].items()
    }
    links = [channels[name] for name in LINKS]
    space = channels["satellite"]
    budget, spent = space.get("creditsPerDay"), space["creditsToday"]
    free, used = machine.disk(settings.state_directory)
    version, since = numbers_of(__version__)
    satellite, radio, cellular = (each["state"] or STATES[0] for each in links)
    bars = [each["signal"] for each in links]
    clock = answer["clock"]["source"] or CLOCKS[0]
    return KitStatus(
        version,
        since,
        free,
        used,
        machine.degrees(),
        machine.millivolts(),
        round(answer["uptime"]),
        machine.uptime(),
        starts,
        (satellite, radio, cellular),
        (bars[0], bars[1], bars[2]),
        max(each["queued"] for each in links),
        spent,
        None if budget is None else max(0, budget - spent),
        clock if clock in CLOCKS else CLOCKS[-1],
        answer["deadLetters"]["came"],
        sum(each["down"] for each in answer["faults"]),
        trouble,
    )


def condition_of(
    status: KitStatus, logbook: Logbook, clock: LivedTime, links: Mapping[str, ChannelLink]
) -> KitCondition:
    """Return how the kit is, with what it knows of itself beside its status. `links` are its
    channels', by name."""
    heard = {name: link for name, link in links.items() if name in CHANNELS}
    return KitCondition(
        status,
        machine.system(),
        logbook.cause,
        logbook.starts(),
        machine.throttled(),
        _ahead(clock),
        logbook.signals(heard, trio.current_time()),
    )


def _ahead(clock: LivedTime) -> int | None:
    """Return by how many seconds the system's clock is ahead of what the kit was told."""
    return round(time.time() - clock.date(clock.now())) if clock.source() else None
