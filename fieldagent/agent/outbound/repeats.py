"""Repeats what may be lost: Packages that the peer is missing, the items of the kit's open
incident, and requests for missing fragments.

A channel's acceptance of an item of an incident proves little: the operator may lose it, or no
station may listen. So the kit repeats each item over the channels that accepted it. Receivers
recognise duplicates by the item's number. The end depends on the channel:

| channel | ends when |
|---|---|
| any | the incident is closed or canceled |
| Satellite, Cellular | the hub has confirmed the item verifiably |
| Radio | a person has it (`sos-until=person`), or the hub has the item (`sos-until=hub`) |

An acknowledgement by another kit does not end the repeats.

Each request for fragments costs credits or air time, and a sender that withdrew its Package never
answers. So the requests become less and less frequent, and then stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.journal import inbound, incident, outbound
from fieldagent.agent.journal.incident import Incident
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DamagedPackage
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.idle_time import IdleTimes
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.package.package import Channel, IncidentState
from fieldagent.wire.envelope import Entry, Report, compute_fragments_digest
from fieldagent.wire.fragments import ASK_AFTER_S, ASK_UNTIL_S, SILENCE_GROWTH_FACTOR

log = logging.getLogger(__name__)


async def repeat(
    journal: Journal, queue: ChannelQueue, sequence: int, positions: Collection[int] | None = None
) -> None:
    """Queue the fragments at `positions` again, or the complete Package if `positions` is None. The
    repeated Package never expires. A Package that still waits, is damaged, or is no longer in the
    journal is not changed. The change is on disk when the function returns.
    """
    if sequence in queue:
        return
    try:
        package = outbound.read_kept_package(journal, sequence)
    except DamagedPackage as damaged:
        log.error("%s: it is not sent again", damaged)
        return
    if package is None:
        return
    await journal.persist(outbound.send_again(queue.channel, sequence, positions))
    queue.add(package, None)


INCIDENT_CHECK_INTERVAL_S = 15.0
"""Seconds between two checks of the open incident."""

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
    idle = IdleTimes[RepeatKey](INCIDENT_CHECK_INTERVAL_S)
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
        await trio.sleep(INCIDENT_CHECK_INTERVAL_S)


FRAGMENT_CHECK_INTERVAL_S = ASK_AFTER_S / 4
"""Seconds between two checks for missing fragments."""


async def run_fragment_requests(
    journal: Journal, outboxes: Mapping[Channel, ChannelOutbox], *, clock: Callable[[], float]
) -> NoReturn:
    """Ask for missing fragments forever. `clock` is the journal's clock."""
    silences = IdleTimes[inbound.FragmentedItem](FRAGMENT_CHECK_INTERVAL_S)
    asked_times: dict[inbound.FragmentedItem, float] = {}
    """For each item, the seconds without a new fragment at the time of the last request."""
    while True:
        await trio.sleep(FRAGMENT_CHECK_INTERVAL_S)
        last = inbound.list_incomplete(journal)
        silence = silences.measure(last, trio.current_time(), clock())
        asked_times = {item: asked_times.get(item, 0.0) for item in last}
        for item, seconds in silence.items():
            if seconds < asked_times[item]:
                asked_times[item] = 0.0
            outbox = _find_channel_toward(outboxes, item.origin)
            if (
                outbox is None
                or not max(ASK_AFTER_S, SILENCE_GROWTH_FACTOR * asked_times[item])
                <= seconds
                < ASK_UNTIL_S
            ):
                continue
            asked_times[item] = seconds
            held_fragments = inbound.read_committed_fragments(journal, item)
            log.info(
                "%d of %d fragments of %d received", len(held_fragments), item.parts, item.sequence
            )
            report = Report(
                item.parts,
                frozenset(held_fragments),
                compute_fragments_digest(held_fragments.values()),
            )
            outbox.report(
                item.origin, Entry(item.sequence, report, int(journal.clock.date(clock())))
            )


def _find_channel_toward(
    outboxes: Mapping[Channel, ChannelOutbox], origin: int
) -> ChannelOutbox | None:
    """Return the outbox of the channel that reaches `origin` soonest. For a station, this is the
    radio. For the hub, it is the cheapest channel that is ready, or else the cheapest configured
    channel. Return None if there is none.
    """
    if origin < 0:
        return outboxes.get(Channel.RADIO)
    to_hub = (Channel.CELLULAR, Channel.SATELLITE)
    configured = [outboxes[channel] for channel in to_hub if channel in outboxes]
    ready = [outbox for outbox in configured if outbox.link.state is LinkState.READY]
    return next(iter(ready or configured), None)
