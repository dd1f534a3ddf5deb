"""Adds this kit's position, from gpsd, to its open incident."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

import trio

from fieldagent.agent import gpsd
from fieldagent.agent.journal import incident
from fieldagent.agent.journal.incident import IncidentOver
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.intake import Intake
from fieldagent.package.package import (
    SOS_PRIORITY,
    Channel,
    Location,
    Package,
    PositionSource,
    convert_to_date,
)
from fieldagent.system import waits
from fieldagent.system.clock_bounds import EARLIEST_TIME
from fieldagent.wire.gpsd import Fix

log = logging.getLogger(__name__)

FREE_CHANNEL_INTERVAL_S = 60.0
"""Seconds between two positions over free channels."""


async def track(
    journal: Journal,
    intake: Intake,
    queues: Mapping[Channel, ChannelQueue],
    *,
    source: tuple[str, int],
    interval_s: float,
) -> NoReturn:
    """Add a position to the open incident every `interval_s` seconds, which is sent over all
    channels. In between, add a position every minute that is sent only over free channels. If
    `interval_s` is 0, add no positions. `source` is gpsd's host and port.
    """
    while True:
        if not interval_s or incident.find_open(journal) is None:
            await journal.wait_for_commit()
            continue
        paid_at = trio.current_time()
        await _add_position(journal, intake, source, None)
        while incident.find_open(journal) is not None:
            free = _list_free_channels(queues)
            await waits.sleep(min(FREE_CHANNEL_INTERVAL_S, interval_s) if free else interval_s)
            due = trio.current_time() - paid_at >= interval_s
            if incident.find_open(journal) is None:
                break
            if due:
                paid_at = trio.current_time()
            # Check again which channels are free, because without the IP link each position would
            # cost an SMS.
            if due or (free := free & _list_free_channels(queues)):
                await _add_position(journal, intake, source, None if due else free)


def _list_free_channels(queues: Mapping[Channel, ChannelQueue]) -> frozenset[Channel]:
    """Return the channels on which a message costs nothing at present."""
    return frozenset(
        channel for channel in queues if not queues[channel].limits.tariff.compute_units(1)
    )


async def _add_position(
    journal: Journal,
    intake: Intake,
    source: tuple[str, int],
    channels: frozenset[Channel] | None,
) -> None:
    open_incident = incident.find_open(journal)
    fix = (
        None
        if open_incident is None
        else await gpsd.wait_for_fix_within(source, gpsd.FIRST_FIX_TIMEOUT_S)
    )
    if open_incident is None or fix is None:
        return
    package = Package(make_location(fix), channels=channels, priority=SOS_PRIORITY)
    # The incident may have been cancelled while the GPS receiver was searching. A position must not
    # open a new incident.
    with suppress(IncidentOver):
        await intake.accept(package, incident_number=open_incident.number)


def make_location(fix: Fix) -> Location:
    """Return the item for a fix. If the GPS receiver does not know the date, the item has no time,
    and the agent sets it.
    """
    moment = convert_to_date(int(fix.time)) if fix.time >= EARLIEST_TIME else None
    return Location(
        fix.latitude,
        fix.longitude,
        moment,
        fix.altitude,
        fix.speed,
        fix.course,
        PositionSource.GPS,
    )
