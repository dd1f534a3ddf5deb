"""What the driver of any satellite modem waits for: the first of some events, the end of a rest, a
person who asks; and what it shows while the modem is away."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink, LinkState
from fieldagent.agent.channels.satellite_pace import LinkRest
from fieldagent.system import waits

log = logging.getLogger(__name__)

PROGRESS_EVERY = 60.0
"""Seconds between two calls of `progress` while nothing happens."""
LOOK_EVERY = 60.0
"""Seconds between two looks at an idle modem: for a ring that was missed, a reset, the sky."""


def next_look() -> float:
    """Return the seconds until an idle modem is looked at."""
    return waits.beat_after(LOOK_EVERY) - trio.current_time()


async def first_of(
    seconds: float, progress: Callable[[], None], *events: Callable[[], Awaitable[None]]
) -> bool:
    """Wait for the first of these events, showing progress. False when none came in time."""
    with waits.move_on_after(seconds) as limit:
        async with trio.open_nursery() as nursery:

            async def until(event: Callable[[], Awaitable[None]]) -> None:
                await event()
                nursery.cancel_scope.cancel()

            for event in events:
                nursery.start_soon(until, event)
            while True:
                progress()
                await trio.sleep_until(waits.beat_after(PROGRESS_EVERY))
    return not limit.cancelled_caught


async def until_rested(
    rest: LinkRest,
    service: Callable[[], bool | None],
    news: Callable[[], Awaitable[None]],
    *,
    urgent: bool,
) -> None:
    """Wait until the link may be tried again; `news` waits until the modem says something, as that
    the network is back, which `service` then tells."""
    while trio.current_time() < (ends := rest.ends(service(), urgent=urgent)):
        with trio.move_on_at(ends):
            await news()


async def obey(link: ChannelLink, rest: LinkRest, tell: Callable[[], None]) -> NoReturn:
    """End the rest whenever a person asks for it; `tell` wakes who waits for its end."""
    while True:
        await link.asked()
        rest.end()
        tell()


def note_absent(link: ChannelLink, error: BaseException) -> None:
    """Show that the modem is away, and log it where that is news."""
    if (link.state, link.reason) != (LinkState.ABSENT, str(error)):
        log.warning("the satellite modem is away: %s; looking for it again", error)
    link.state, link.reason = LinkState.ABSENT, str(error)
    link.note_signal(None)
