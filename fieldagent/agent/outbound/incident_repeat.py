"""Keeps the kit's open incident on its way until a person has it, or it is over.

That a channel took an item says no more than that: the operator may lose it, nobody may listen. So
each item goes again over the channels that took it; receivers know its number and hand it to nobody
twice. What ends that, by the channel:

| channel | ends when |
|---|---|
| any | the incident is closed or called off |
| Satellite, Cellular | the hub has the item, by its own proved word: they cost or lead to it |
| Radio | a person has it (`sos-until=person`), or the hub has the item (`sos-until=hub`) |

That another kit has acknowledged an item ends nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NoReturn

import trio

from fieldagent.agent.journal import incident
from fieldagent.agent.journal.incident import Incident
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.idle_time import IdleTimes
from fieldagent.agent.outbound.repeat import repeat
from fieldagent.package.package import Channel, Said

log = logging.getLogger(__name__)

LOOK_EVERY = 15.0
"""Seconds."""

Leg = tuple[int, Channel]


def repeated(journal: Journal, until: str) -> dict[Leg, float]:
    """Return what is to go again once it is silent: each item of the open incident on each channel
    that took it and goes on, with the lived time at which it was last heard of.

    `until` is `person` or `hub`.
    """
    open_incident = incident.open_one(journal)
    if open_incident is None:
        return {}
    at_hub = incident.at_hub(journal, open_incident.number)
    return {
        leg: at
        for leg, at in incident.taken(journal, open_incident.number).items()
        if _goes_on(open_incident, leg, at_hub, until)
    }


def _goes_on(open_incident: Incident, leg: Leg, at_hub: Mapping[int, float], until: str) -> bool:
    sequence, channel = leg
    if channel is not Channel.RADIO:
        return sequence not in at_hub
    return open_incident.state == Said.OPEN and not (until == "hub" and sequence in at_hub)


async def keep_going(
    journal: Journal,
    queues: Mapping[Channel, ChannelQueue],
    *,
    every: float,
    until: str,
    clock: Callable[[], float],
) -> NoReturn:
    """Repeat for ever what `repeated` finds, once it is silent. `every` is how many seconds an item
    may be silent on a channel; 0 repeats none."""
    repeating: set[Leg] = set()
    idle = IdleTimes[Leg](LOOK_EVERY)
    while True:
        heard_at = repeated(journal, until)
        for sequence, channel in repeating - heard_at.keys():
            queues[channel].withdraw([sequence], "confirmed")
            repeating.discard((sequence, channel))
        silent = idle.measure(heard_at, trio.current_time(), clock())
        due = [key for key, seconds in silent.items() if every and seconds >= every]
        for sequence, channel in due:
            if channel in queues and sequence not in queues[channel]:
                log.warning("SOS item %d goes again over %s", sequence, channel)
                await repeat(journal, queues[channel], sequence)
                repeating.add((sequence, channel))
        if incident.open_one(journal) is not None:
            # What names the incident to the hub now and then looks whether it is due.
            for queue in queues.values():
                queue.wake()
        else:
            # Nothing changes until something is accepted.
            await journal.news()
        await trio.sleep(LOOK_EVERY)
