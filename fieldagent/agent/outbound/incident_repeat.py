"""Repeats the items of the kit's open incident until a person has received the incident, or the
incident is over.

A channel's acceptance of an item proves little: the operator may lose it, or no station may listen.
So the kit repeats each item over the channels that accepted it. Receivers recognise duplicates by
the item's number. The end depends on the channel:

| channel | ends when |
|---|---|
| any | the incident is closed or canceled |
| Satellite, Cellular | the hub has confirmed the item verifiably |
| Radio | a person has it (`sos-until=person`), or the hub has the item (`sos-until=hub`) |

An acknowledgement by another kit does not end the repeats.
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
from fieldagent.package.package import Channel, IncidentState

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 15.0
"""Seconds between two checks."""

RepeatKey = tuple[int, Channel]


def list_repeated(journal: Journal, end_condition: str) -> dict[RepeatKey, float]:
    """Return the items of the open incident that must be repeated. The key is the item and the
    channel, the value the elapsed time of the item's last event on this channel.

    `end_condition` is `person` or `hub`.
    """
    open_incident = incident.find_open(journal)
    if open_incident is None:
        return {}
    at_hub = incident.list_at_hub(journal, open_incident.number)
    return {
        key: at
        for key, at in incident.list_accepted_items(journal, open_incident.number).items()
        if _is_still_repeated(open_incident, key, at_hub, end_condition)
    }


def _is_still_repeated(
    open_incident: Incident, key: RepeatKey, at_hub: Mapping[int, float], end_condition: str
) -> bool:
    sequence, channel = key
    if channel is not Channel.RADIO:
        return sequence not in at_hub
    return open_incident.state == IncidentState.OPEN and not (
        end_condition == "hub" and sequence in at_hub
    )


async def run_incident_repeats(
    journal: Journal,
    queues: Mapping[Channel, ChannelQueue],
    *,
    interval_s: float,
    end_condition: str,
    clock: Callable[[], float],
) -> NoReturn:
    """Repeat the items of `list_repeated` forever. An item is repeated on a channel if it had no
    event there for `interval_s` seconds. 0 disables the repeats.
    """
    repeating: set[RepeatKey] = set()
    idle = IdleTimes[RepeatKey](CHECK_INTERVAL_S)
    while True:
        heard_times = list_repeated(journal, end_condition)
        for sequence, channel in repeating - heard_times.keys():
            queues[channel].withdraw([sequence], "confirmed")
            repeating.discard((sequence, channel))
        silent = idle.measure(heard_times, trio.current_time(), clock())
        due = [key for key, seconds in silent.items() if interval_s and seconds >= interval_s]
        for sequence, channel in due:
            if channel in queues and sequence not in queues[channel]:
                log.warning("SOS item %d is sent again over %s", sequence, channel)
                await repeat(journal, queues[channel], sequence)
                repeating.add((sequence, channel))
        if incident.find_open(journal) is not None:
            # Wake the queues, which also check whether the hub must receive the incident's number.
            for queue in queues.values():
                queue.wake()
        else:
            # Wait for a commit, because only a commit can open an incident.
            await journal.wait_for_commit()
        await trio.sleep(CHECK_INTERVAL_S)
