"""Queries gpsd for the time while the system's clock is not trusted, and for the position of an
SOS.

gpsd is queried only in these cases, because a GPS receiver can sleep between queries to save power.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from fieldagent.system import waits
from fieldagent.system.elapsed_time import GPS, SOURCES_BY_RANK, ElapsedTime
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.gpsd import LINE_BYTES, WATCH_COMMAND, Fix, parse_line

log = logging.getLogger(__name__)

FIRST_FIX_TIMEOUT_S = 120.0
"""Longest time in seconds until a receiver that was asleep has its first fix."""
RETRY_AFTER_S = 60.0
"""Seconds until gpsd is queried again if it was absent or had no fix."""
CLOCK_ACCURATE_S = 3600.0
"""Seconds for which the machine's own clock keeps the time accurate."""


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
