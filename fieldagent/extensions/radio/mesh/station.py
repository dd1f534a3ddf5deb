"""This agent's station on the air: its outbox, its reception, and its relay for neighbours."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from fieldagent.agent.channels.air_pace import AIR_BYTES
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.inbound.reception import Inbox
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.budget import Budget
from fieldagent.agent.outbound.channel_queue import ChannelQueue
from fieldagent.agent.outbound.ending import Endings
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.outbox import ChannelOutbox
from fieldagent.agent.outbound.packing import Packing
from fieldagent.extensions.radio.mesh.hub_routes import HubRoutes
from fieldagent.extensions.radio.mesh.key_change import GroupKeys, KeyChange, KeyStep
from fieldagent.extensions.radio.mesh.neighbours import Neighbours
from fieldagent.extensions.radio.mesh.packet import PacketReception
from fieldagent.extensions.radio.mesh.parcels import Parcels
from fieldagent.extensions.radio.mesh.radio_piggyback import RadioPiggyback
from fieldagent.extensions.radio.mesh.read_receipts import Readings
from fieldagent.extensions.radio.mesh.reception import RadioReception
from fieldagent.extensions.radio.mesh.relay import Relay
from fieldagent.extensions.radio.mesh.repeating import ItemRepeater
from fieldagent.extensions.radio.mesh.rounds import Rounds
from fieldagent.extensions.radio.mesh.troubles import AirTroubles
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Channel
from fieldagent.package.payload import Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.bitmap import DIGEST_BYTES
from fieldagent.wire.envelope import EPOCH, AuthorMark, Entry, Introduction, Receipt, encode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StationSettings:
    """Settings for the air: the station's number, name and keys, and its relaying for
    neighbours.
    """

    number: int
    name: str
    keys: Sequence[bytes]
    """Keys of the group; the first key tags outgoing packets."""
    relays_over: Collection[Channel]
    """Channels to the hub that neighbours may use."""
    credits_per_day: int
    """Credits per day that neighbours may use."""
    time_to_live: float
    """Seconds for which a neighbour's item waits for its channel."""
    packet_bytes: int = AIR_BYTES
    """Largest packet, in bytes."""
    hops: int = 3
    """Maximum number of radio transmissions from the sender of an SOS, or of an item for the hub,
    to the last receiver."""
    key_step: KeyStep = KeyStep.NONE
    """Step of this kit in the change of the group's key."""
    sealed: bool = False
    """True if packets are encrypted, so that only stations with the key can read them."""
    brings_down: bool = False
    """True if this kit sends the hub's messages to neighbours by radio."""
    secrets: Sequence[bytes] = ()
    """Secrets that only this kit and the hub share. The kit opens parcels with these secrets."""
    dropped: Sequence[bytes] = ()
    """Keys that the hub has removed."""
    repeats_sos: bool = True
    """True if an SOS is repeated until its end (`sos-repeat`)."""


@dataclass(frozen=True, slots=True)
class Station:
    number: int
    piggyback: RadioPiggyback
    outbox: ChannelOutbox
    reception: RadioReception
    neighbours: Neighbours
    troubles: AirTroubles
    rounds: Rounds
    repeating: ItemRepeater
    relay: Relay | None
    key_change: KeyChange
    packets: PacketReception
    parcels: Parcels

    def use_group_keys(self, group: GroupKeys, step: KeyStep) -> None:
        """Use the keys of `group` from now on. `step` is this kit's step in the change of the
        keys.
        """
        self.outbox.packing.tag_with(group.keys[0])
        self.packets.group = group
        self.key_change.set_step(step)

    def make_identification(self, callsign: str) -> bytes:
        """Return the packet that contains the callsign. The entry uses the station number 0, which
        no station has, so that receivers do not mistake the callsign for a station's name.
        """
        me = Identity("", callsign, "")
        return self.outbox.packing.encode_alone(Entry(0, Introduction(me)))

    def get_in_range(self) -> dict[int, int]:
        """Return the number of transmissions to each station that was heard within the last hour,
        directly or over other stations.
        """
        beyond = {item.station: item.hops for item in self.rounds.items.values() if item.hops}
        return beyond | dict.fromkeys(self.neighbours.list_in_range(), 1)

    def list_notices(self, date: Callable[[float], float]) -> list[str]:
        """Return the notices for people. `date` converts elapsed time to Unix time."""
        waits = self.relay.find_notice() if self.relay is not None else ""
        changes = self.key_change.find_notice()
        return [*self.troubles.list_notices(date), *(each for each in (changes, waits) if each)]


def make_piggyback(
    settings: StationSettings,
    journal: Journal,
    *,
    asks_for_relay: Callable[[], bool],
    is_battery_low: Callable[[], bool],
    clock: Callable[[], float],
) -> RadioPiggyback:
    """Build the part of the station that adds entries to packets. `is_battery_low` returns True if
    the battery is nearly empty.
    """
    me = Identity(str(settings.number), settings.name or f"station {settings.number}", "Device")
    spare = settings.packet_bytes - _compute_introduction_bytes(settings, me)
    if spare < 0:
        short = me.name.encode()[:spare].decode(errors="ignore").rstrip()
        log.warning("radio-name is too long for one packet: neighbours see %r", short)
        me = replace(me, name=short)

    def compute_relay_cost() -> int | None:
        """Return the cost of relaying to the hub in credits, or None if this kit does not relay."""
        if Channel.CELLULAR in settings.relays_over and not asks_for_relay():
            return 0
        return 1 if Channel.SATELLITE in settings.relays_over else None

    hub_routes = HubRoutes(compute_relay_cost, is_battery_low, clock, hops=settings.hops)
    text_bytes, chance = _compute_text_bytes(settings), random.Random().random
    readings = Readings(settings.number, text_bytes=text_bytes, hops=settings.hops, random=chance)
    return RadioPiggyback(
        settings.number,
        me,
        journal,
        asks_for_relay=asks_for_relay,
        hub_routes=hub_routes,
        readings=readings,
        clock=clock,
    )


def _compute_text_bytes(settings: StationSettings) -> int:
    """Return the maximum bytes of the name in a read receipt. With this limit, the receipt fits
    into one packet, even when other stations with numbers as long as ours pass it on.
    """
    number, time = settings.number, EPOCH + 2**27
    receipt_entry = Entry(2**31, Receipt(number, bytes(DIGEST_BYTES), Stage.READ, 24 * "x"), time)
    mark = Entry(0, AuthorMark(number, settings.hops), time)
    overhead = (
        len(encode([mark, receipt_entry], origin=number, key=next(iter(settings.keys), None))) - 24
    )
    return max(0, settings.packet_bytes - overhead)


def _compute_introduction_bytes(settings: StationSettings, identity: Identity) -> int:
    entry = Entry(settings.number, Introduction(identity))
    return len(encode([entry], origin=settings.number, key=next(iter(settings.keys), None)))


def set_up(
    settings: StationSettings,
    journal: Journal,
    inbox: Inbox,
    intake: Intake,
    endings: Endings,
    piggyback: RadioPiggyback,
    queue: ChannelQueue,
    link: ChannelLink,
) -> Station:
    """Build a station without starting a task. If `relays_over` is empty, the station does not
    relay to the hub.
    """
    relay = None
    if settings.relays_over:
        relay = Relay(
            settings.relays_over,
            credits_per_day=settings.credits_per_day,
            time_to_live=settings.time_to_live,
            clock=journal.clock,
        )
    key = settings.keys[0] if settings.keys else None
    packing = Packing(
        journal,
        queue,
        key=key,
        is_sealed=settings.sealed,
        station=settings.number,
        packet_bytes=settings.packet_bytes,
    )
    budget = Budget(Channel.RADIO, journal, clock=endings.clock)
    outbox = ChannelOutbox(journal, packing, budget, piggyback, endings, link)
    troubles = AirTroubles(endings.clock)
    parcels = Parcels(inbox, settings.secrets)
    packets = PacketReception(
        parcels,
        settings.number,
        keys=GroupKeys(settings.keys, settings.dropped),
        is_sealed=settings.sealed,
        relay=relay,
        troubles=troubles,
        piggyback=piggyback,
    )
    neighbours = Neighbours(endings.clock)
    rounds = Rounds(
        settings.number,
        neighbours,
        piggyback,
        hops=settings.hops,
        packet_bytes=settings.packet_bytes,
        random=random.Random().random,
        proves=lambda: bool(packets.group.keys),
    )
    reception = RadioReception(journal, packets, packing, piggyback, intake, endings, rounds)
    repeating = ItemRepeater(
        *(journal, packing, piggyback, rounds, relay, intake, parcels),
        repeats_sos=settings.repeats_sos,
    )
    return Station(
        settings.number,
        piggyback,
        outbox,
        reception,
        neighbours,
        troubles,
        rounds,
        repeating,
        relay,
        KeyChange(settings.key_step, neighbours),
        packets,
        parcels,
    )
