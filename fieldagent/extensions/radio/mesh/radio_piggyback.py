"""Adds entries for other kits to Packages on the air. The entries are acknowledgements of the kits'
items, our name, and requests to relay our items to the hub.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Collection, Iterable
from math import inf

from fieldagent import __version__
from fieldagent.agent.channels.air_pace import compute_lone_wait
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.piggyback import Draft, PiggybackEntries, RepeatedPacket
from fieldagent.extensions.radio.mesh.hub_routes import HubRoutes
from fieldagent.extensions.radio.mesh.read_receipts import Readings, ReadReceipt
from fieldagent.extensions.radio.mesh.summaries import Summaries, list_confirmed, list_numbers
from fieldagent.package.package import Item, Parcel
from fieldagent.package.payload import Identity
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import (
    Ack,
    AuthorMark,
    Entry,
    Fragment,
    Introduction,
    Program,
    RelayRequest,
    Report,
    compute_item_digest,
)

ACKS_MAX = 256
"""Maximum number of waiting acknowledgements. If an acknowledgement is dropped, the item arrives
again and is acknowledged again."""
INTRODUCE_INTERVAL_S = 3600.0
"""Seconds between two introductions."""
PROGRAM = Entry(0, Program(__version__))
"""Our version. A packet with our name also contains this entry if there is space."""
HELLO_SPACING_S = 10.0
"""Shortest time in seconds between two hellos. Without it, kits that are switched on together would
keep answering each other's hellos."""


def is_going_down(entry: Entry) -> bool:
    """Return True if the entry comes from the hub, so that it need not be relayed to the hub."""
    return isinstance(entry.content, Parcel) and entry.content.station > 0


@dataclass(slots=True)
class _DueAck:
    ack: Ack
    together: bool
    """True if a summary also confirms the item, and another station's summary may confirm it
    instead."""
    twice: bool
    """True if the Ack is sent in two consecutive packets."""
    alone: bool
    """True if the Ack is also sent separately, even if a summary confirms the item."""
    due_at: float
    """Time when the Ack is sent."""


class RadioPiggyback:
    """Builds acknowledgements of received items, summaries and read receipts, our name, our route
    to the hub, and requests to relay.

    A lost acknowledgement is sent again when the item arrives again. `asks_for_relay` returns True
    if we reach the hub only over neighbours; `hub_routes` contains the routes over neighbours.
    """

    def __init__(
        self,
        station: int,
        identity: Identity,
        journal: Journal,
        *,
        asks_for_relay: Callable[[], bool],
        hub_routes: HubRoutes,
        readings: Readings,
        clock: Callable[[], float],
    ) -> None:
        self._random = random.Random().random
        self.summaries = Summaries(station, self._random)
        self.readings = readings
        self._journal = journal
        self._introduction = Entry(station, Introduction(identity))
        self._asks_for_relay = asks_for_relay
        self.hub_routes = hub_routes
        self.clock = clock
        self._introduced = -INTRODUCE_INTERVAL_S
        self._introduced_alone_at = -inf
        self._presents_itself = False
        self._acks: dict[tuple[int, int], _DueAck] = {}
        """Waiting acknowledgements, by the item's station and number."""
        self._repeats: list[RepeatedPacket] = []
        self.transmitted: set[int] = set()
        """Numbers of our items that were sent on the air."""
        self.load_entries()

    def repeat(self, repeats: Iterable[RepeatedPacket]) -> None:
        """Repeat these items, an SOS first. An item that already waits is not added again."""
        kept_repeats = {(each.origin, each.entries[0]) for each in self._repeats}
        self._repeats += [
            each for each in repeats if (each.origin, each.entries[0]) not in kept_repeats
        ]
        self._repeats.sort(key=lambda each: not each.sos)

    def stop_repeating(self, origin: int, sequence: int) -> None:
        """Cancel the waiting repeat of an item, unless it is an SOS, because another station has
        repeated the item.
        """
        self._repeats = [
            each
            for each in self._repeats
            if not each.joins or (each.origin, each.entries[0].sequence) != (origin, sequence)
        ]

    def find_next_repeat(self, *, is_busy: bool | None) -> RepeatedPacket | None:
        if not self._repeats or is_busy is None or (is_busy and not self._repeats[0].sos):
            return None
        return self._repeats.pop(0)

    def find_joining(self) -> RepeatedPacket | None:
        return next((each for each in self._repeats if each.joins), None)

    def mark_joined(self, repeat: RepeatedPacket) -> None:
        self._repeats.remove(repeat)

    def is_relay_needed(self) -> bool:
        """Return True if neighbours must relay our items to the hub."""
        return self._asks_for_relay()

    def make_relay_request(
        self, *, sos: bool = False, excluded: Collection[int] = ()
    ) -> Entry | None:
        """Return an entry that asks a neighbour to relay to the hub, or None if there is no
        suitable neighbour. If no route is known, an SOS asks every station.
        """
        hop = self.hub_routes.find_next_hop(excluded)
        if hop is None and not sos:
            return None
        return Entry(0, RelayRequest(hop or 0))

    def introduce(self, *, is_immediate: bool = False) -> None:
        """Send our name to a station that may not know it. The name is sent in the next packet. If
        `is_immediate`, the name gets its own packet, unless it was sent recently.
        """
        self._introduced = -INTRODUCE_INTERVAL_S
        self._presents_itself |= (
            is_immediate and self.clock() - self._introduced_alone_at >= HELLO_SPACING_S
        )

    def acknowledge(
        self,
        sequence: int,
        ack: Ack,
        *,
        in_summary: bool = False,
        in_two_packets: bool = False,
        is_alone: bool = False,
        crowd: int = 1,
    ) -> None:
        """Acknowledge an item. If `in_summary`, a summary confirms the item, and one of the `crowd`
        stations in range sends the summary. If `in_two_packets`, send the acknowledgement twice,
        because an earlier one was lost. If `is_alone`, also send the acknowledgement separately,
        because a station that has forgotten one of several items cannot verify the summary.
        """
        key = ack.station, sequence
        if (before := self._acks.get(key)) is not None:
            in_two_packets, is_alone = in_two_packets or before.twice, is_alone or before.alone
        wait = 0.0
        if in_summary and crowd > 1:
            wait = compute_lone_wait(self._random(), crowd)
        self._acks[key] = _DueAck(ack, in_summary, in_two_packets, is_alone, self.clock() + wait)
        while len(self._acks) > ACKS_MAX:
            del self._acks[next(iter(self._acks))]

    def compute_next_due(self) -> float:
        """Return the seconds until the next beacon, receipt or acknowledgement must be sent."""
        now = self.clock()
        waits = (due.due_at for due in self._acks.values() if due.due_at > now)
        next_due = min(self.summaries.compute_due_time(), self.readings.compute_next_due(now))
        return min(next_due, min(waits, default=inf)) - now

    def begin_beacon(self) -> None:
        """If a beacon is due, begin it with the summaries that it must list."""
        if self.summaries.compute_due_time() <= self.clock():
            self.summaries.begin(self.clock())

    def add_stored_item(self, station: int, item: Entry, *, is_listed: bool = True) -> None:
        """Record that an item, which is not an SOS, is on disk. If `is_listed` is False, summaries
        do not list the item.
        """
        if not is_listed:
            self.summaries.hide_item(station, item.sequence)
            return
        self.summaries.record_item(station, item.sequence, compute_item_digest(item), self.clock())

    def repeat_for_returned_station(self, *, crowd: int) -> None:
        """Send our summaries and route soon to a station that has returned. If another station
        sends the same summaries first, ours are not sent.
        """
        self.summaries.repeat_for_returned_station(self.clock(), 2.0 + crowd)
        self.hub_routes.make_announcement_due()

    def process_summary(self, summary: Entry) -> list[int]:
        """Process another station's summary. Return the numbers of the items that the other station
        is missing and this kit has.
        """
        assert isinstance(summary.content, Ack)
        for number in list_numbers(summary):
            due = self._acks.get((summary.content.station, number))
            if due is not None and due.together and not due.alone:
                del self._acks[summary.content.station, number]
        return self.summaries.process_summary(summary, self.clock())

    def drop_covered_acknowledgement(self, sequence: int, ack: Ack) -> None:
        """Drop our waiting acknowledgement if another station's `ack` confirms at least the same
        fragments of the item.
        """
        key = ack.station, sequence
        due = self._acks.get(key)
        if due is None:
            return
        own_ack = due.ack
        if own_ack.whole and ack.whole and due.together:
            del self._acks[key]
        elif not own_ack.whole and own_ack.count == ack.count:
            other = own_ack.arrived == ack.arrived and own_ack.digest != ack.digest
            if own_ack.arrived <= ack.arrived and not other:
                del self._acks[key]

    def load_entries(self) -> None:
        """Load the receipts that other stations have not yet received for their items."""
        self.readings.replace_own_receipts(
            inbound.list_pending_station_stages(self._journal), self.clock()
        )

    def report(self, origin: int, report: Entry) -> None:
        receipt = report.content
        assert isinstance(receipt, Report)
        ack = Ack(-origin, receipt.count, receipt.arrived, digest=receipt.digest)
        self.acknowledge(report.sequence, ack)

    def ask_names(self) -> None:
        pass

    def is_worth_sending(self) -> bool:
        acks = any(due.due_at <= self.clock() for due in self._acks.values())
        has_content = acks or self._repeats or self._presents_itself
        has_content = has_content or self.readings.is_due(self.clock())
        due_stations = self.summaries.list_due_stations(
            self.clock(), has_other_content=False
        ) or self.hub_routes.find_route_to_announce(has_other_content=False)
        return bool(has_content or due_stations)

    def fill(self, draft: Draft, capacity: int) -> PiggybackEntries:
        piggybacked = PiggybackEntries()
        if not draft.entries and not self.is_worth_sending():
            return piggybacked
        items = [each for each in draft.entries if isinstance(each.content, Item | Fragment)]
        self.transmitted |= {each.sequence for each in items}
        has_sos = any(each.sos for each in items)
        goes_up = any(not is_going_down(each) for each in items)
        request = (
            self.make_relay_request(sos=has_sos) if goes_up and self.is_relay_needed() else None
        )
        if request is not None:
            draft.add(request, capacity)
        if abs(self.clock() - self._introduced) >= INTRODUCE_INTERVAL_S:
            has_entries = bool(draft.entries)
            piggybacked.has_introduction = draft.add(self._introduction, capacity)
            if piggybacked.has_introduction:
                draft.add(PROGRAM, capacity)
            # If the name does not fit beside other entries, send it in a packet of its own.
            self._presents_itself = has_entries and not piggybacked.has_introduction
            if piggybacked.has_introduction:
                self._introduced_alone_at = self.clock()
        route = self.hub_routes.find_route_to_announce(has_other_content=bool(draft.entries))
        if route is not None and draft.add(Entry(0, route), capacity):
            self.hub_routes.record_announced(route)
        self._add_acks(draft, capacity)
        has_entries = not has_sos and bool(items or piggybacked.has_introduction)
        for station in self.summaries.list_due_stations(
            self.clock(), has_other_content=has_entries
        ):
            self._fill_summary(station, draft, capacity)
        if not has_sos:
            _fill_readings(self.readings, self._journal, draft, capacity, self.clock())
        return piggybacked

    def _add_acks(self, draft: Draft, capacity: int) -> None:
        for key, due in list(self._acks.items()):
            if key not in self._acks:
                continue
            if due.together and not self._fill_summary(key[0], draft, capacity):
                continue
            if key in self._acks and draft.add(Entry(key[1], due.ack), capacity):
                if due.twice:
                    due.twice = False
                else:
                    del self._acks[key]

    def _fill_summary(self, station: int, draft: Draft, capacity: int) -> bool:
        """Add the summary of a station. Return True if the draft now contains the summary, or if
        there is none to send.
        """
        summary = self.summaries.make_summary(station)
        if summary is None or summary in draft.entries:
            return True
        if not draft.add(summary, capacity):
            return False
        self.summaries.mark_sent(station, self.clock())
        for number in list_confirmed(summary):
            due = self._acks.get((station, number))
            if due is not None and due.together and not due.alone:
                del self._acks[station, number]
        return True

    def record(self, db: sqlite3.Connection, entries: PiggybackEntries) -> None:
        pass

    def mark_settled(
        self, entries: PiggybackEntries, *, is_sent: bool, beside_packages: bool
    ) -> None:
        if entries.has_introduction and is_sent:
            self._introduced = self.clock()


def _fill_readings(
    readings: Readings, journal: Journal, draft: Draft, capacity: int, now: float
) -> None:
    """Add read receipts to the draft. Called last, because entries after an AuthorMark belong to
    another station.
    """
    for receipt in readings.list_to_send(now, has_other_content=bool(draft.entries)):
        entries = [receipt.entry]
        if receipt.hops:
            entries.insert(
                0, Entry(0, AuthorMark(receipt.origin, receipt.hops), receipt.entry.time)
            )
        entries_with_names = [*entries, *_find_name_entries(receipt, journal)]
        # Mark a receipt as sent even if it fits into no packet, so that it is not tried forever.
        if (
            draft.add_all(entries_with_names, capacity)
            or draft.add_all(entries, capacity)
            or not draft.entries
        ):
            readings.mark_sent(receipt, now)


def _find_name_entries(receipt: ReadReceipt, journal: Journal) -> list[Entry]:
    """Return the entries with the names in a receipt of another station that is passed on, because
    receivers may know only the station's number.
    """
    if not receipt.hops or receipt.is_answer:
        return []
    name = inbound.read_station_names(journal).get(receipt.origin)
    identity = Identity(str(receipt.origin), name or "", "Device")
    return [Entry(receipt.origin, Introduction(identity))] if name else []
