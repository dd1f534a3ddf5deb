"""Runs the rounds on the air: adds the repeats that are due to the next packets."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.journal import history, inbound, incident, on_air, outbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.records import DamagedPackage, StoredPackage
from fieldagent.agent.outbound.intake import Intake
from fieldagent.agent.outbound.item_identity import make_entry
from fieldagent.agent.outbound.packing import Packing
from fieldagent.agent.outbound.piggyback import RepeatedPacket
from fieldagent.extensions.radio.mesh.parcels import Parcels
from fieldagent.extensions.radio.mesh.radio_piggyback import RadioPiggyback, is_going_down
from fieldagent.extensions.radio.mesh.relay import Relay
from fieldagent.extensions.radio.mesh.rounds import (
    OTHERS_REPEAT_LIFETIME_S,
    OWN_REPEAT_LIFETIME_S,
    RepeatableItem,
    Rounds,
    is_repeated,
)
from fieldagent.package.package import Channel, IncidentState, Status
from fieldagent.package.payload import Identity
from fieldagent.wire.envelope import (
    Ack,
    AuthorMark,
    Entry,
    Introduction,
    RelayRequest,
    Source,
    compute_fingerprint,
    decode,
)
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 10.0
"""Seconds between two checks whether the hub can be reached and whether waiting items can be paid
for."""
PRESENT_FIRST, PRESENT_EVERY, HELLOS = 20.0, 3600.0, 3
"""Longest time in seconds until a station's first hello, longest time between later hellos, and the
number of early hellos. Each wait is random, and at least half of the longest time. Without hellos,
other stations would not notice a station that only listens, and would not send it the items that it
missed. A station that reaches the hub over neighbours sends several early hellos, because the hub's
items would not arrive if its only hello was lost."""


def _draw_time(seconds: float) -> float:
    """Return a random time on trio's clock. It is between half of `seconds` and `seconds` from
    now.
    """
    return trio.current_time() + seconds * (0.5 + 0.5 * random.Random().random())


class ItemRepeater:
    def __init__(
        self,
        journal: Journal,
        packing: Packing,
        piggyback: RadioPiggyback,
        rounds: Rounds,
        relay: Relay | None,
        intake: Intake,
        parcels: Parcels,
        *,
        repeats_sos: bool,
    ) -> None:
        self._station = rounds.station
        self._repeats_sos = repeats_sos
        self._clock = piggyback.clock
        self._parcels = parcels
        self._journal = journal
        self._packing = packing
        self._piggyback = piggyback
        self._rounds = rounds
        self._relay = relay
        self._intake = intake

    async def run(self) -> NoReturn:
        """Run the rounds forever. Wake when a repeat is due, when the queue changes, and at least
        every `CHECK_INTERVAL_S` seconds if this kit relays.
        """
        elapsed = self._clock()
        self._piggyback.transmitted |= on_air.list_recently_delivered(
            self._journal, start_time=elapsed - OWN_REPEAT_LIFETIME_S
        )
        self._piggyback.summaries.load(
            on_air.list_others_items(self._journal, self._station), elapsed
        )
        presents, hellos, was_carried = _draw_time(PRESENT_FIRST), 1, False
        self._add_kept(elapsed)
        while True:
            changed = self._packing.queue.changed
            self._add_ours()
            await self._repeat()
            await self._relay_affordable()
            await self._report_to_hub()
            self._piggyback.begin_beacon()
            if self._piggyback.is_worth_sending():
                self._packing.queue.wake()
                changed = self._packing.queue.changed
            if self._is_carried() and not was_carried:
                presents, hellos = min(presents, _draw_time(PRESENT_FIRST)), HELLOS
            was_carried = self._is_carried()
            if trio.current_time() >= presents:
                hellos = max(0, hellos - 1)
                presents = _draw_time(PRESENT_FIRST if hellos else PRESENT_EVERY)
                self._piggyback.introduce(is_immediate=True)
                self._packing.queue.wake()
            # Check regularly, because the start or end of a link to the hub sets no event.
            latest = trio.current_time() + CHECK_INTERVAL_S if self._relay is not None else inf
            latest = min(latest, presents, trio.current_time() + self._piggyback.compute_next_due())
            with trio.move_on_at(min(self._rounds.compute_next_due(), latest)):
                await changed.wait()

    def _add_kept(self, now_elapsed_s: float) -> None:
        """Add other stations' items that arrived before this kit restarted, for stations that were
        off at that time.
        """
        now = trio.current_time()
        for envelope, identity, arrived_at in on_air.list_stored(
            self._journal, start_time=now_elapsed_s - OTHERS_REPEAT_LIFETIME_S
        ):
            pair = _read_whole(envelope, identity)
            if pair is None:
                continue
            mark, entry = pair
            station, hops = mark.station, mark.transmissions
            if station == self._station:
                # The item is from another kit that has our number, so do not repeat it.
                continue
            parts = self._packing.split_into_parts(entry, station)
            if not (parts and entry.sos) and not is_repeated(
                len(parts), self._packing.capacity.size
            ):
                continue
            until = now + OTHERS_REPEAT_LIFETIME_S - (now_elapsed_s - arrived_at)
            self._rounds.add(RepeatableItem(station, entry, parts, until, hops=hops), now)

    def _add_ours(self) -> None:
        """Add our items that have left over radio and that at least one station has received."""
        for sequence in [
            each for each in self._piggyback.transmitted if each not in self._packing.queue
        ]:
            self._piggyback.transmitted.discard(sequence)
            try:
                package = outbound.read_kept_package(self._journal, sequence)
            except DamagedPackage:
                continue
            delivery = outbound.read_deliveries(self._journal, sequence).get(Channel.RADIO)
            if package is None or delivery is None or delivery.status is not Status.DELIVERED:
                continue
            if not package.origin:
                self._add(package)

    def _add(self, stored_package: StoredPackage) -> None:
        now, entry = trio.current_time(), make_entry(stored_package)
        seconds_left = OWN_REPEAT_LIFETIME_S
        if stored_package.expires is not None:
            seconds_left = min(seconds_left, stored_package.expires - self._clock())
        parts = self._packing.split_into_parts(entry, self._station)
        is_answer_asked = bool(parts) and entry.sos
        if seconds_left <= 0 or not (
            is_answer_asked or is_repeated(len(parts), self._packing.capacity.size)
        ):
            return
        collapse = stored_package.package.collapse_key
        if collapse is not None:
            self._rounds.supersede(collapse, sos=entry.sos)
        item = RepeatableItem(self._station, entry, parts, now + seconds_left, collapse=collapse)
        item.confirmed_by |= on_air.read_holders(self._journal, stored_package.sequence)
        item.at_hub = on_air.is_relayed(self._journal, stored_package.sequence)
        if item.at_hub or on_air.list_left_nearby(self._journal, stored_package.sequence):
            item.brought_by = self._station
        self._rounds.add(item, now)
        if not entry.sos:
            self._piggyback.add_stored_item(self._station, entry)

    def _drop_ended_sos(self) -> None:
        """Drop each SOS that is known to be closed or cancelled."""
        for item in [each for each in self._rounds.items.values() if each.entry.sos]:
            incident_station = (
                incident.OWN_STATION if item.station == self._station else item.station
            )
            if incident.is_over(
                self._journal, incident_station, item.entry.sequence - item.entry.items_back
            ):
                self._rounds.drop(item)

    def _is_unproved(self, item: RepeatableItem) -> bool:
        """Return True if an item of ours begins the open incident, and neither a person nor the hub
        has verifiably received it.
        """
        own = incident.find_open(self._journal) if item.entry.sos else None
        if own is None or (own.number, own.state) != (item.entry.sequence, IncidentState.OPEN):
            return False
        return own.number not in incident.list_at_hub(self._journal, own.number)

    async def _repeat(self) -> None:
        now = trio.current_time()
        self._drop_ended_sos()
        for item in self._rounds.list_ours():
            if min(item.due_at, item.hub_due) <= now:
                item.is_unproved = self._repeats_sos and self._is_unproved(item)
            if item.hub_due <= now:
                elsewhere = on_air.is_delivered_elsewhere(self._journal, item.entry.sequence)
                asks_for_relay = self._piggyback.is_relay_needed() and not is_going_down(item.entry)
                item.is_for_hub = asks_for_relay and not elsewhere
        repeats = self._rounds.pop_due_repeats(now)
        if not repeats:
            return
        for repeat in repeats:
            if repeat.origin == self._station and not isinstance(repeat.entries[0].content, Ack):
                await self._record_repeat(repeat)
        self._piggyback.repeat([self._add_station_name(each) for each in repeats])
        self._packing.queue.wake()

    def _add_station_name(self, repeat: RepeatedPacket) -> RepeatedPacket:
        """Add the station's name to an acknowledgement that is passed on, if it fits. Receivers out
        of the station's range know only its number.
        """
        if repeat.origin == self._station or not isinstance(repeat.entries[0].content, Ack):
            return repeat
        name = inbound.read_station_names(self._journal).get(repeat.origin)
        if name is None:
            return repeat
        identity = Identity(str(repeat.origin), name, "Device")
        return replace(repeat, optional_entries=[Entry(repeat.origin, Introduction(identity))])

    async def _record_repeat(self, repeat: RepeatedPacket) -> None:
        """Record the repeat in the history of our Package."""
        sequence, elapsed = repeat.entries[0].sequence, self._clock()
        missing_stations = [
            each.content.station
            for each in repeat.optional_entries
            if isinstance(each.content, Source) and each.content.station != self._station
        ]
        asks_hub = any(isinstance(each.content, RelayRequest) for each in repeat.entries)
        addressees = [f"station {number}" for number in missing_stations] + ["the hub"] * asks_hub
        detail = "for " + (", ".join(addressees) or "all that have not confirmed it")
        channel = Channel.RADIO
        await self._journal.persist(
            lambda db: history.record_event(db, [sequence], channel, "sent again", detail, elapsed)
        )

    async def _relay_affordable(self) -> None:
        relay, elapsed = self._relay, self._clock()
        if relay is None or not relay.can_pay(self._journal, elapsed):
            return
        for accepted in await self._journal.persist(lambda db: relay.retry(db, elapsed)):
            self._intake.queue_relayed(accepted)

    def _is_carried(self) -> bool:
        """Return True if we reach the hub over a neighbour."""
        return (
            self._piggyback.is_relay_needed()
            and self._piggyback.hub_routes.find_next_hop() is not None
        )

    async def _report_to_hub(self) -> None:
        """If we reach the hub over a neighbour, send it receipts for its items in a parcel."""
        if not (self._is_carried() and self._parcels.can_report_missing()):
            return
        if not inbound.has_pending_hub_stage(self._journal):
            return
        elapsed = self._clock()
        for accepted in await self._journal.persist(
            lambda db: self._parcels.add_receipts(db, elapsed)
        ):
            self._intake.queue_relayed(accepted)


def _read_whole(envelope: bytes, identity: bytes) -> tuple[AuthorMark, Entry] | None:
    """Return the mark and the item of a stored envelope, or None if the envelope is damaged on
    disk.
    """
    try:
        match decode(envelope).entries:
            case (Entry(content=AuthorMark() as mark), entry) if (
                compute_fingerprint(entry) == identity
            ):
                return mark, entry
    except RemoteProtocolError:
        pass
    return None
