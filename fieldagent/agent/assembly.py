"""Assembles the parts of an agent without starting a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from fieldagent.agent.bearer import get_bearer_bytes
from fieldagent.agent.channels.air_time import AirTime
from fieldagent.agent.channels.contract import ChannelLink, Reception
from fieldagent.agent.channels.flight_recorder import FlightRecorder
from fieldagent.agent.events import Events
from fieldagent.agent.inbound.command_gate import CommandGate
from fieldagent.agent.inbound.hooks import Hook, make_hooks
from fieldagent.agent.inbound.hub_reception import Carrier, HubReception
from fieldagent.agent.inbound.incident_news import IncidentNews
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal import commands, outbound
from fieldagent.agent.journal.incident import OWN_STATION
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.spending import read_air_time
from fieldagent.agent.kit_part import find_enabled_parts, find_station_number, find_station_part
from fieldagent.agent.outbound.budget import (
    NO_LIMIT,
    Budget,
    DayLimit,
    compute_sos_reserve,
    make_bytes_limit,
)
from fieldagent.agent.outbound.cancel import Cancellation
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.incident_status import describe_incidents
from fieldagent.agent.outbound.intake import Intake, Resume
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import HubPiggyback
from fieldagent.agent.part_service import PartBase, PartHost, PartPlan, PartService
from fieldagent.agent.settings import Settings, get_channels
from fieldagent.package.package import Channel
from fieldagent.system.extension import import_own
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.price import Price
from fieldagent.wire import trace
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.proof import derive_command_key, derive_proof_key, digest_token

if TYPE_CHECKING:
    # Import only for type checks: an agent without a station saves this memory.
    from fieldagent.agent.station import Station, StationPlan


FAR_END = {Channel.SATELLITE: "satellite", Channel.CELLULAR: "hub", Channel.RADIO: "radio"}
"""Name of the time source over each channel (`system.elapsed_time.SOURCES_BY_RANK`). The radio
channel is not a source of time."""

_TRACE_CONTENTS = {Channel.RADIO: trace.RADIO, Channel.CELLULAR: trace.LINK}
"""Kind of content in a channel's trace, if the modem does not set it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of one agent. No part is a global variable."""

    journal: Journal
    events: Events
    hooks: list[Hook]
    inbox: Inbox
    queues: Mapping[Channel, ChannelQueue]
    endings: Endings
    intake: Intake
    resume: Resume
    cancellation: Cancellation
    outboxes: Mapping[Channel, ChannelOutbox]
    receptions: Mapping[Channel, Reception]
    station: Station | None
    services: Mapping[str, PartService]
    """The parts of extensions, by name."""
    proof_keys: Sequence[bytes]
    """Keys that only this kit and the hub share. They authenticate updates about the kit's
    incidents. The first key makes proofs."""
    incident_status: Callable[[], dict[str, Any]]
    price: Price | None = None
    """Price of a satellite credit. None if the settings contain no price."""


def assemble(settings: Settings, journal: Journal, emit: Callable[[str], None]) -> Parts:
    """Assemble the parts, and put the first batch of waiting Packages into the queues. `emit`
    prints the lines of the script hook.
    """
    plans = _make_plans(settings, PartBase(journal, settings.package_time_to_live))
    hooks = [*make_hooks(settings, emit), *(hook for plan in plans.values() for hook in plan.hooks)]
    inbox = _make_inbox(settings, journal, hooks)
    events = Events(journal)
    channels = get_channels(settings)
    queues = {channel: make_channel_queue(journal, channel) for channel in channels}
    links = {each: _make_link(settings, journal, each, events.set_changed) for each in channels}
    station_plan = _plan_station(settings, journal, links)
    endings = Endings(
        journal,
        queues,
        clock=journal.clock.now,
        fan_out=settings.fan_out,
        ends_when_heard=settings.fan_out_until == "heard",
        neighbours=None if station_plan is None else station_plan.acknowledger,
    )
    resumed = trio.Event()
    intake = Intake(
        journal,
        queues,
        endings,
        time_to_live=settings.package_time_to_live,
        head_start=settings.fan_out_head_start,
        resume_event=resumed,
    )
    carrier = None if station_plan is None else station_plan.make_carrier(intake)
    outboxes: dict[Channel, ChannelOutbox] = {}
    receptions: dict[Channel, Reception] = {}
    for channel in channels - {Channel.RADIO}:
        options = _make_hub_channel_options(settings, channel)
        outboxes[channel], receptions[channel] = assemble_hub_channel(
            journal, inbox, endings, queues[channel], links[channel], options, carrier=carrier
        )
    station = None
    if station_plan is not None:
        station = station_plan.set_up(inbox, intake, endings, queues[Channel.RADIO])
        outboxes[Channel.RADIO], receptions[Channel.RADIO] = station.outbox, station.reception
    resume = Resume(journal, queues, intake, endings, resumed)
    resume.begin()
    cancellation = Cancellation(journal, queues, endings, resumed)
    proof_keys = _derive_proof_keys(settings)
    interval, until = settings.sos_repeat, settings.sos_until
    incidents = partial(
        describe_incidents, journal, queues, outboxes, interval_s=interval, end_condition=until
    )
    host = PartHost(
        journal,
        intake,
        inbox,
        outboxes,
        cancellation,
        proof_keys,
        incidents,
        bearer_bytes=get_bearer_bytes(settings.parts),
    )
    return Parts(
        journal,
        events,
        hooks,
        inbox,
        queues,
        endings,
        intake,
        resume,
        cancellation,
        outboxes,
        receptions,
        station,
        {name: plan.service(host) for name, plan in plans.items()},
        proof_keys,
        incidents,
        settings.satellite_credit_price,
    )


def _make_link(
    settings: Settings, journal: Journal, channel: Channel, report_change: Callable[[], None]
) -> ChannelLink:
    ring = settings.state_directory / f"trace-{channel.lower()}.log"
    transmission_time = AirTime()
    if channel is Channel.RADIO:
        transmission_time = AirTime(journal.clock.now, read_air_time(journal))
    return ChannelLink(
        air_time=transmission_time,
        report_time=partial(journal.clock.record_time, FAR_END[channel]),
        changed=report_change,
        recorder=FlightRecorder(ring, _TRACE_CONTENTS.get(channel, "")),
    )


def _plan_station(
    settings: Settings, journal: Journal, links: Mapping[Channel, ChannelLink]
) -> StationPlan | None:
    """Return the plan of the station, or None if the settings turn none on."""
    if (part := find_station_part(settings.parts)) is None:
        return None
    # Import this module here, so that a kit without a station saves this memory.
    from fieldagent.agent.station import StationBase

    own, secrets = settings.parts[part.name], get_secrets(settings)
    base = StationBase(settings, own, journal, links, secrets)
    plan: StationPlan = import_own(part.station)(base)
    return plan


def _make_plans(settings: Settings, base: PartBase) -> dict[str, PartPlan]:
    """Return the plan of each extension's part that the settings turn on, by the part's name."""
    parts = find_enabled_parts(settings.parts)
    plans = {name: part.plan for name, part in parts.items() if part.plan}
    return {name: import_own(plan)(settings.parts[name], base) for name, plan in plans.items()}


def get_secrets(settings: Settings) -> list[bytes]:
    """Return the secrets that only this kit and the hub share."""
    secrets = [*settings.satellite_key]
    if settings.hub_token is not None:
        secrets.append(digest_token(settings.hub_token))
    return secrets


def _derive_proof_keys(settings: Settings) -> list[bytes]:
    return [derive_proof_key(secret) for secret in get_secrets(settings)]


def _make_inbox(settings: Settings, journal: Journal, hooks: list[Hook]) -> Inbox:
    return Inbox(
        journal,
        [hook.name for hook in hooks],
        clock=journal.clock.now,
        keys=[derive_key(master, "MT") for master in settings.satellite_key],
        spools_unreadable=settings.inbound_dead_letters == "hook",
        incidents=IncidentNews(
            find_station_number(settings.parts) or OWN_STATION,
            _derive_proof_keys(settings),
            has_hub=settings.satellite_port is not None or settings.hub_address is not None,
        ),
        commands=CommandGate(
            [derive_command_key(secret) for secret in get_secrets(settings)],
            settings.remote_commands,
        ),
    )


def make_channel_queue(journal: Journal, channel: Channel) -> ChannelQueue:
    """Build a channel's queue. At first it contains only the Packages of an unsettled intent, which
    are in flight. If the channel is Satellite, also set the kinds that a command holds back.
    """
    intent = outbound.read_intent(journal, channel)
    queue = ChannelQueue(channel, None if intent is None else intent[1])
    if channel is Channel.SATELLITE:
        queue.held_kinds |= commands.read_held_kinds(journal)
    return queue


class HubChannelOptions(NamedTuple):
    """Options of a channel that leads to the hub."""

    key: bytes | None = None
    """Key that authenticates transmissions. None if they have no tag."""
    credits_per_day: int | None = None
    """Maximum number of credits in a UTC day. None if there is no limit."""
    reserve: int = 0
    """Credits of the budget that only an SOS may use."""
    bytes_limit: DayLimit = NO_LIMIT
    receipts_at_once: bool = False


def assemble_hub_channel(
    journal: Journal,
    inbox: Inbox,
    endings: Endings,
    queue: ChannelQueue,
    link: ChannelLink,
    options: HubChannelOptions,
    *,
    carrier: Carrier | None = None,
) -> tuple[ChannelOutbox, HubReception]:
    """Assemble the outbox and the reception of a channel that leads to the hub. `carrier` is None
    if this kit does not relay for neighbours.
    """
    packing = Packing(journal, queue, key=options.key)
    budget = Budget(
        queue.channel,
        journal,
        clock=endings.clock,
        limits={
            "credit": DayLimit(options.credits_per_day, options.reserve),
            "byte": options.bytes_limit,
        },
        tariff=lambda: queue.limits.tariff,
    )
    piggyback = HubPiggyback(journal, queue, is_immediate=options.receipts_at_once)
    outbox = ChannelOutbox(journal, packing, budget, piggyback, endings, link)
    reception = HubReception(journal, inbox, packing, budget, piggyback, endings, carrier=carrier)
    return outbox, reception


def _make_hub_channel_options(settings: Settings, channel: Channel) -> HubChannelOptions:
    if channel is not Channel.SATELLITE:
        return HubChannelOptions()
    masters = settings.satellite_key
    return HubChannelOptions(
        derive_key(masters[0], "MO") if masters else None,
        settings.satellite_credits_per_day,
        compute_sos_reserve(settings.satellite_credits_per_day, settings.satellite_sos_reserve),
        make_bytes_limit(settings.satellite_bytes_per_day, settings.satellite_sos_reserve),
        settings.satellite_receipts == "at-once",
    )
