"""Describes incidents for people: this kit's own incident as a list of steps, and the incidents of
other kits.

The steps show known facts only, with the same words on every screen:

    raised        the SOS is on this kit's disk, or the step's text states that it is not
    left          a channel has transmitted it; this does not show that it was received
    heard by      another kit has it
    not passed on such a kit may not pass it on, and a station in its range has not confirmed it
    at the hub    the hub has it
    seen by       a person has it
    closed, called off
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent.agent.journal import handhelds, inbound, incident, outbound
from fieldagent.agent.journal.history import add_names
from fieldagent.agent.journal.incident import HeardIncident, Incident, StoredUpdate
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.repeats import list_repeated
from fieldagent.agent.outbound.waiting import WaitReasons
from fieldagent.package.package import (
    Channel,
    IncidentState,
    Location,
    Message,
    format_short_sos_number,
)
from fieldagent.package.writing import encode_item, get_kind

OVER_SHOWN_S = 86_400.0
"""Seconds for which an incident is shown after its end."""
ITEMS_SHOWN = 50
"""Maximum number of Packages that are shown for an incident, the newest ones."""
HEARD_SHOWN = 100
"""Maximum number of incidents of other kits that are shown, open ones first. It is more than the
kits of a team, and it is limited because a stranger's radio can raise any number."""

Step = dict[str, Any]


def describe_incidents(
    journal: Journal,
    queues: Mapping[Channel, ChannelQueue],
    outboxes: Mapping[Channel, ChannelOutbox],
    *,
    interval_s: float,
    end_condition: str,
) -> dict[str, Any]:
    """Return the response to `GET /api/sos`: the last incident of this kit's own people (None if it
    ended more than OVER_SHOWN_S ago), the number of their open incidents (0 or 1), and the
    incidents of others.

    An item without an event for `interval_s` seconds is repeated until `end_condition` (`person` or
    `hub`).
    """
    own = incident.find_last(journal)
    now = journal.clock.now()
    if own is not None and own.ended is not None and now - own.ended > OVER_SHOWN_S:
        own = None
    open_status = None
    if own is not None:
        sequences = incident.list_items(journal, own.number)
        open_status = _describe_incident(journal, own, sequences)
        open_status["nextTry"] = _compute_next_try(
            journal, own, sequences, queues, outboxes, interval_s, end_condition
        )
    return {
        "active": int(own is not None and own.ended is None),
        "incident": open_status,
        "heard": list_heard_incidents(journal),
    }


def list_heard_incidents(
    journal: Journal, incident_number: int | None = None
) -> list[dict[str, Any]]:
    """Return the incidents of unauthenticated handhelds, which have this kit's station 0, and then
    the incidents of other kits, newest first. With `incident_number`, return only the incidents
    with that number.
    """
    names = inbound.read_station_names(journal)
    earliest = journal.clock.now() - OVER_SHOWN_S
    handhelds_own = [
        _describe_handheld_incident(journal, each, handle)
        for each, handle in incident.list_unproved(journal, HEARD_SHOWN)
        if each.ended is None or each.ended > earliest
    ]
    return [
        each
        for each in (
            *handhelds_own,
            *(
                _describe_heard(journal, heard_incident, names)
                for heard_incident in incident.list_heard(journal, HEARD_SHOWN)
            ),
        )
        if incident_number in (None, each["number"])
    ]


def describe_incident(journal: Journal, own_incident: Incident) -> dict[str, Any]:
    """Return an incident of this kit, with its steps and its Packages from the oldest to the
    newest.
    """
    return _describe_incident(
        journal, own_incident, incident.list_items(journal, own_incident.number)
    )


def _describe_incident(
    journal: Journal, own_incident: Incident, sequences: Sequence[int]
) -> dict[str, Any]:
    date = journal.clock.date
    return {
        "number": own_incident.number,
        "short": format_short_sos_number(own_incident.number),
        "state": own_incident.state,
        "raised": date(own_incident.raised),
        "ended": None if own_incident.ended is None else date(own_incident.ended),
        "steps": list_steps(journal, own_incident, sequences),
        "items": [_describe_item(journal, each) for each in sequences[-ITEMS_SHOWN:]],
    }


def list_steps(journal: Journal, own_incident: Incident, sequences: Sequence[int]) -> list[Step]:
    """Return the known steps in their order. Each step has `state` and `at` (Unix time), and
    `channel`, `by`, `text` and `unauthenticated` if they apply. `sequences` contains the incident's
    Packages.
    """
    date = journal.clock.date
    raised_step: Step = {"state": "raised", "at": date(own_incident.raised)}
    if disk_fault := journal.not_on_disk:
        raised_step["text"] = f"not on the disk, and lost if power fails: {disk_fault}"
    steps = [raised_step]
    channels = incident.list_transmitting_channels(journal, own_incident.number)
    steps += [{"state": "left", "at": date(at), "channel": name} for name, at in channels.items()]
    heard_times: dict[str, float] = {}
    for receipts in outbound.list_receipts_of(journal, sequences).values():
        for each in receipts:
            if each.kind == "agent":
                who = each.by.name or f"kit {each.by.id}"
                heard_times[who] = min(each.at, heard_times.get(who, each.at))
    steps += [{"state": "heard by", "at": at, "by": who} for who, at in heard_times.items()]
    steps += [
        {"state": "not passed on", "at": date(at), "text": add_names(journal, text)}
        for at, text in incident.list_stopped(journal, own_incident.number)
    ]
    at_hub = incident.list_at_hub(journal, own_incident.number)
    if at_hub:
        steps.append({"state": "at the hub", "at": min(at_hub.values())})
    for at, text in () if at_hub else incident.list_relayed(journal, own_incident.number):
        # The step comes from a neighbour's report. No one has authenticated the report, so people
        # must see this.
        step = {"state": "at the hub", "at": date(at), "text": add_names(journal, text)}
        steps.append(step | {"unauthenticated": True})
    for at, text in () if at_hub else incident.list_left_nearby(journal, own_incident.number):
        kit_name = add_names(journal, text).removeprefix("left by ").removesuffix("'s satellite")
        step = {"state": "left", "channel": Channel.SATELLITE, "at": date(at), "by": kit_name}
        steps.append(step | {"unauthenticated": True})
    return (
        steps
        + [_make_step(update) for update in incident.list_updates(journal, own_incident.number)]
        + _make_end_step(own_incident, date)
    )


def _make_step(update: StoredUpdate) -> Step:
    state = {IncidentState.SEEN: "seen by", IncidentState.CLOSED: "closed"}.get(
        IncidentState(update.state), update.state
    )
    step: Step = {"state": state, "at": update.at}
    if update.by:
        step["by"] = update.by
    if update.text:
        step["text"] = update.text
    return step if update.is_authenticated else step | {"unauthenticated": True}


def _make_end_step(own_incident: Incident, date: Any) -> list[Step]:
    """Return a list with the step of a cancellation. The list is empty if the incident was not
    called off. The step of a closed incident is already among the updates.
    """
    if own_incident.state != IncidentState.CALLED_OFF or own_incident.ended is None:
        return []
    return [{"state": "called off", "at": date(own_incident.ended)}]


def _describe_item(journal: Journal, sequence: int) -> dict[str, Any]:
    package = outbound.read_packages(journal, [sequence])[sequence]
    if not isinstance(package, StoredPackage):
        return {"id": package.id, "damaged": True}
    item = package.package.item
    members = {"id": package.id, "at": journal.clock.date(package.accepted), "kind": get_kind(item)}
    if isinstance(item, Message):
        members["text"] = item.content
    elif isinstance(item, Location):
        members["position"] = encode_item(item)
    return members


def _compute_next_try(
    journal: Journal,
    own_incident: Incident,
    sequences: Sequence[int],
    queues: Mapping[Channel, ChannelQueue],
    outboxes: Mapping[Channel, ChannelOutbox],
    interval_s: float,
    end_condition: str,
) -> float | None:
    """Return the Unix time of the incident's next attempt. Return None if no channel will send any
    of its Packages.

    The journal decides which Packages wait: a Package that is new, or from before a restart, may be
    in no queue yet.
    """
    if own_incident.ended is not None:
        return None
    now, date = journal.clock.now(), journal.clock.date
    reasons = WaitReasons(journal, queues, outboxes, now)
    waits = {*incident.list_waiting(journal, own_incident.number)}
    waits |= {(each, name) for name, queue in queues.items() for each in sequences if each in queue}
    moments = [
        reasons.compute_next_try(name, sequence) for sequence, name in waits if name in queues
    ]
    if interval_s:
        moments += [
            date(at + interval_s)
            for (sequence, name), at in list_repeated(journal, end_condition).items()
            if name in queues and sequence not in queues[name]
        ]
    return max(date(now), min(moments)) if moments else None


def _describe_handheld_incident(
    journal: Journal, handheld_incident: Incident, handle: str
) -> dict[str, Any]:
    items = [
        _describe_item(journal, each)
        for each in incident.list_items(journal, handheld_incident.number)[:1]
    ]
    raised_at = journal.clock.date(handheld_incident.raised)
    return {
        "station": incident.OWN_STATION,
        "name": handhelds.read_handheld(journal, handle).name or handle,
        "number": handheld_incident.number,
        "short": format_short_sos_number(handheld_incident.number),
        "state": handheld_incident.state,
        "raised": raised_at,
        "came": raised_at,
        "age": None,
        "text": next((each["text"] for each in items if "text" in each), ""),
        "steps": [
            _make_step(update)
            for update in incident.list_updates(journal, handheld_incident.number)
        ],
    }


def _describe_heard(
    journal: Journal, heard_incident: HeardIncident, names: Mapping[int, str]
) -> dict[str, Any]:
    updates = incident.list_updates(journal, heard_incident.number, heard_incident.station)
    return {
        "station": heard_incident.station,
        "name": names.get(heard_incident.station, f"kit {heard_incident.station}"),
        "number": heard_incident.number,
        "short": format_short_sos_number(heard_incident.number),
        "state": heard_incident.state,
        "raised": heard_incident.since,
        "came": heard_incident.at,
        "age": incident.compute_shown_age(heard_incident, journal.clock),
        "text": heard_incident.text,
        "steps": [_make_step(update) for update in updates],
    }
