"""Functions with which all satellite drivers wait for the first of several events, the end of a
pause, or a person's request.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.satellite_pace import LinkRest
from fieldagent.system import waits

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_S = 60.0
"""Seconds between two calls of `progress` while idle."""
CHECK_INTERVAL_S = 60.0
"""Seconds between two checks of an idle modem for a missed ring, a reset, or the return of the
network."""


def compute_next_look() -> float:
    """Return the seconds until the next check of an idle modem."""
    return waits.compute_nearest_beat(CHECK_INTERVAL_S) - trio.current_time()


async def wait_for_first(
    seconds: float, progress: Callable[[], None], *events: Callable[[], Awaitable[None]]
) -> bool:
    """Wait until the first of `events` returns, and call `progress` about every PROGRESS_INTERVAL_S
    seconds. Return False if none of them returns within `seconds`.
    """
    with waits.move_on_after(seconds) as limit:
        async with trio.open_nursery() as nursery:

            async def wait_until(event: Callable[[], Awaitable[None]]) -> None:
                await event()
                nursery.cancel_scope.cancel()

            for event in events:
                nursery.start_soon(wait_until, event)
            while True:
                progress()
                await trio.sleep_until(waits.compute_nearest_beat(PROGRESS_INTERVAL_S))
    return not limit.cancelled_caught


async def wait_until_rested(
    rest: LinkRest,
    service: Callable[[], bool | None],
    news: Callable[[], Awaitable[None]],
    *,
    urgent: bool,
) -> None:
    """Wait until the link may be tried again. `news` waits for an unsolicited report of the modem,
    for example that the network is available again. `service` returns the last reported state.
    """
    while trio.current_time() < (ends_at := rest.compute_end(service(), urgent=urgent)):
        with trio.move_on_at(ends_at):
            await news()


async def end_pauses_on_request(
    link: ChannelLink, rest: LinkRest, wake: Callable[[], None]
) -> NoReturn:
    """End the pause `rest` each time a person requests an attempt on `link`, forever. `wake` wakes
    the task that waits for the end of the pause.
    """
    while True:
        await link.wait_until_requested()
        rest.end()
        wake()


def mark_absent(link: ChannelLink, error: BaseException) -> None:
    """Set the link's state to ABSENT, and log the reason if it is new."""
    if (link.state, link.reason) != (LinkState.ABSENT, str(error)):
        log.warning("the satellite modem is away: %s; looking for it again", error)
    link.state, link.reason = LinkState.ABSENT, str(error)
    link.record_signal(None)
