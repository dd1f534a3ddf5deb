"""Asks gpsd for a fix: for its time while the system's clock is not trusted, and for the position
of an SOS.

Only then is gpsd called: a receiver that sleeps between calls costs nothing else.
"""

from __future__ import annotations

import logging
from contextlib import suppress

import trio

from fieldagent.system import waits
from fieldagent.system.lived_time import GPS, RANKS, LivedTime
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.gpsd import LINE_BYTES, WATCH, Fix, read_line

log = logging.getLogger(__name__)

PATIENCE = 120.0
"""Seconds that a receiver which has just been woken has for its first fix."""
AGAIN = 60.0
"""Seconds until a gpsd that was away, or had no fix, is called again."""
KNOWN = 3600.0
"""Seconds for which the time since boot is believed to have gone on as it should."""


async def keep_told(clock: LivedTime, gpsd: tuple[str, int]) -> None:
    """Tell `clock` the time of gpsd at (host, port) as long as the system's clock is not trusted:
    again `KNOWN` seconds after a fix, `AGAIN` where there was none. Never returns."""
    while True:
        pause = AGAIN
        if clock.source() in ("", *RANKS):
            with waits.move_on_after(PATIENCE):
                try:
                    clock.tell(GPS, (await _next_fix(*gpsd, dated=True)).time)
                    pause = KNOWN
                except (OSError, trio.BrokenResourceError) as error:
                    log.debug("no time from gpsd: %s", error)
        await trio.sleep_until(waits.beat_after(pause))


async def fix_within(gpsd: tuple[str, int], seconds: float) -> Fix | None:
    """Return the next fix; None where none comes within so many seconds, or gpsd is away."""
    with waits.move_on_after(seconds):
        try:
            return await _next_fix(*gpsd)
        except (OSError, trio.BrokenResourceError) as error:
            log.debug("no fix from gpsd: %s", error)
    return None


async def _next_fix(host: str, port: int, *, dated: bool = False) -> Fix:
    """Raises OSError, trio.BrokenResourceError."""
    async with await trio.open_tcp_stream(host, port) as stream:
        await stream.send_all(WATCH)
        text = b""
        while data := await stream.receive_some():
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                # One that is not understood says nothing against the next.
                with suppress(RemoteProtocolError):
                    report = read_line(line)
                    if isinstance(report, Fix) and (report.time or not dated):
                        return report
            if len(text) > LINE_BYTES:
                raise OSError("gpsd writes a line without end")
    raise OSError("gpsd ended the connection")
