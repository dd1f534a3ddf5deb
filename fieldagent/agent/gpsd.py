"""Queries gpsd for the time while the system's clock is not trusted, and for the positions that
this kit adds to its open incident.

gpsd is queried only in these cases, because a GPS receiver can sleep between queries to save power.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn

import trio

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
from fieldagent.system.elapsed_time import GPS, SOURCES_BY_RANK, ElapsedTime
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.gpsd import LINE_BYTES, WATCH_COMMAND, Fix, parse_line

log = logging.getLogger(__name__)


FIRST_FIX_TIMEOUT_S = 120.0
"""Longest time in seconds until a receiver that was asleep has its first fix."""
RETRY_AFTER_S = 60.0
"""Seconds until gpsd is queried again if it was absent or had no fix."""
CLOCK_ACCURATE_S = 3600.0
"""Seconds after a fix for which the machine's own clock is accurate enough."""


async def update_clock_from_gpsd(clock: ElapsedTime, gpsd: tuple[str, int]) -> None:
    """Set `clock` to the time of gpsd at (host, port) while the system's clock is not trusted.
    Query gpsd again `CLOCK_ACCURATE_S` seconds after a fix, or `RETRY_AFTER_S` seconds after a
    failure. Never returns.
    """
    while True:
        pause = RETRY_AFTER_S
        if clock.source() in ("", *SOURCES_BY_RANK):
            with waits.move_on_after(FIRST_FIX_TIMEOUT_S):
                try:
                    clock.record_time(GPS, (await _wait_for_fix(*gpsd, needs_time=True)).time)
                    pause = CLOCK_ACCURATE_S
                except (OSError, trio.BrokenResourceError) as error:
                    log.debug("no time from gpsd: %s", error)
        await trio.sleep_until(waits.compute_nearest_beat(pause))


async def wait_for_fix_within(gpsd: tuple[str, int], seconds: float) -> Fix | None:
    """Return the next fix, or None if there is no fix within `seconds` or gpsd is absent."""
    with waits.move_on_after(seconds):
        try:
            return await _wait_for_fix(*gpsd)
        except (OSError, trio.BrokenResourceError) as error:
            log.debug("no fix from gpsd: %s", error)
    return None


async def _wait_for_fix(host: str, port: int, *, needs_time: bool = False) -> Fix:
    """Return the next fix or, if `needs_time`, the next fix that contains a time. Raises OSError,
    trio.BrokenResourceError.
    """
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(WATCH_COMMAND)
        text = b""
        while data := await stream.receive_some():
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                # Skip an unreadable line, because it does not affect the following lines.
                with suppress(RemoteProtocolError):
                    report = parse_line(line)
                    if isinstance(report, Fix) and (report.time or not needs_time):
                        return report
            if len(text) > LINE_BYTES:
                raise OSError("gpsd sent an endless line")
    raise OSError("gpsd ended the connection")


FREE_CHANNEL_INTERVAL_S = 60.0
"""Seconds between two positions over free channels."""


async def track_incident(
    journal: Journal,
    intake: Intake,
    queues: Mapping[Channel, ChannelQueue],
    *,
    source: tuple[str, int],
    interval_s: float,
) -> NoReturn:
    """Every `interval_s` seconds, add a position to the open incident and send it over all
    channels. In between, add a position every FREE_CHANNEL_INTERVAL_S seconds and send it only over
    free channels. If `interval_s` is 0, add no positions. `source` is gpsd's host and port. Never
    returns.
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
    fix = None if open_incident is None else await wait_for_fix_within(source, FIRST_FIX_TIMEOUT_S)
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
