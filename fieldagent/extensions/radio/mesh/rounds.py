"""Decides which items a station repeats by radio, when, and for which stations. The module sends
nothing itself.

An item that is not an SOS is repeated when a summary shows that a station is missing it. Each
station that has the item waits for a random time, which is longer if there are more stations. A
station skips its repeat if another station repeats the item first. An SOS is repeated without such
a summary. The stations on the way to the hub repeat an item that requests a relay to the hub.

| item of | reason | first after, seconds | then | ends |
|---|---|---|---|---|
| us, SOS | a station is missing it | 10 | doubling to 10 minutes | all stations have it |
| any, SOS | a station in range may not be known yet | as above | as above | after 3 or 8 times |
| others, SOS | a station is missing it | 5 to 15 | doubling to 10 minutes | all stations have it |
| us, SOS | the group has no key | as above | doubling to 3 minutes | a person or the hub has it |
| us | the hub is missing it, and a route is known | 60 | doubling to an hour | the hub has it |
| others | it requests a relay | 2 to 6 | doubling to 4 minutes | the hub has it, or 3 times |
| others | its sender must learn that the hub has it | 1 to 5 | 30, 120 | 3 times a request |
| others | the sender must learn which remote kits miss it | 1 to 5 | doubling | once or 6 times |

A repeated item keeps its sender's number. The packet also contains the repeating station and the
number of transmissions, so that the item does not cross more kits than allowed. A repeated SOS
contains the stations that are missing it, and only these answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from math import inf

from fieldagent.agent.channels.air_pace import CROWD_STATIONS, draw_backoff, scale_share
from fieldagent.agent.outbound.piggyback import RepeatedPacket
from fieldagent.extensions.radio.mesh.neighbours import Neighbours
from fieldagent.extensions.radio.mesh.radio_piggyback import RadioPiggyback
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.envelope import (
    MISSING_STATIONS_MAX,
    Ack,
    Entry,
    RelayRequest,
    Source,
    compute_item_digest,
    encode,
)

BYTES_MAX = 1_000_000
"""Maximum memory in bytes for items that can be repeated. Each item counts as its encoded size plus
`ITEM_BYTES`."""
ITEM_BYTES = 1000
LISTED_STATIONS_MAX = 8
"""Maximum number of stations that a packet lists as missing an item. Each takes about 9 bytes. If
more stations are missing the item, the packet lists none and all stations answer."""
AGAIN_MAX, HUB_AGAIN_MAX, PROD_MAX = 600.0, 3600.0, 240.0
GATHER_WAIT_PER_STATION_S, GATHER_WAIT_MIN_S = 0.5, 2.0
"""Longest wait in seconds before we repeat a missing item: the time for each station in range, and
the minimum. Other stations may repeat the item in this time."""
REDRAW_INTERVAL_S = 30.0
"""Seconds for which a station in a dense network keeps its random decision whether to repeat items.
If an item is still requested after this time, every station repeats it."""
UNCONFIRMABLE_S = 2.0
"""Seconds after the transmission of an item before any station can have confirmed it."""
PROBES_MAX = 3
STOP_NOTICES_MAX = 6
"""Number of times that the sender of an SOS is notified that the SOS is not passed on any further.
The notice is repeated because it is not confirmed."""
STOP_NOTICE_DELAY_S = 10.0
"""Seconds for which we wait whether another station delivers an item that we are not allowed to
pass on. After this time, we notify the item's sender."""
NOTICES_MAX, NOTICE_AGAIN_S = 3, 30.0
"""Number of notices to a sender that the hub has its item, and the seconds from the first to the
second. The third notice follows after four times this pause. The notices are repeated because they
are not confirmed."""
SOS_BLIND, SOS_ALONE = 3, 8
"""Number of repeats of an SOS if no station is known to be missing it. These repeats are necessary
because the hello of such a station may have been lost. The second number applies until a station
has acknowledged the SOS. If the group has no key, it always applies to our own SOS, because anyone
can forge an acknowledgement."""
UNPROVED_AGAIN_MAX = 180.0
"""Longest pause in seconds between two repeats of our own SOS if the group has no key and neither a
person nor the hub has verifiably received the SOS. The number of these repeats has no limit."""
REPEATERS_ENOUGH = 2
"""If we have heard this many other stations repeat an SOS, we skip our repeat."""
PARTS_MAX, PARTS_BYTES = 8, 1600
"""Size of the largest repeated item that is not an SOS: a number of fragments or, if packets are
small, the number of fragments that these bytes fill."""
PACKET_SPACING_S = 5.0
"""Seconds between two packets of repeated items that are not an SOS. Without this pause, a
returning station that is missing many items would block the channel."""
OTHERS_REPEAT_LIFETIME_S = 3600.0
"""Seconds after its arrival for which another station's item is repeated."""
OWN_REPEAT_LIFETIME_S = 86_400.0
"""Seconds after its acceptance for which our item is repeated."""

Key = tuple[int, int, bytes]
"""Station that sent the item, the item's number, and the item's digest."""


def is_repeated(parts: int, packet_bytes: int) -> bool:
    """Return True if an item of `parts` fragments is small enough to be repeated. This rule is not
    for an SOS.
    """
    return 0 < parts <= max(PARTS_MAX, PARTS_BYTES // packet_bytes)


@dataclass(slots=True)
class RepeatableItem:
    """An item that this station may repeat on the air."""

    station: int
    entry: Entry
    parts: Sequence[Entry]
    """Entries to send: the item itself, or its fragments."""
    until: float
    is_for_hub: bool = False
    """True if the item must reach the hub."""
    hops: int = 0
    """Number of radio transmissions over which the item reached this kit. 0 for our own item."""
    confirmed_by: set[int] = field(default_factory=set)
    """Stations that confirmed the item."""
    answer_count: int = 0
    """Number of stations that we knew to have the item only from their acknowledgements."""
    echoes: set[int] = field(default_factory=set)
    """Stations that repeated the item since our own last repeat."""
    brought_by: int = 0
    """Station that relayed the item to the hub or to a satellite gateway. 0 for none."""
    at_hub: bool = False
    """True if the station in `brought_by` reports that the hub has the item."""
    due_at: float = inf
    attempts: int = 0
    last_on_air: float = -inf
    """Time when the item was last on the air."""
    first_missing_at: float = -inf
    """Time of the first report since `last_on_air` that a station is missing the item."""
    asked_neighbours: set[int] = field(default_factory=set)
    """Neighbours that were asked to relay the item to the hub."""
    hub_due: float = inf
    hub_tries: int = 0
    notice_due_at: float = inf
    """Time of the next notice to the item's sender that the hub has the item."""
    notice_count: int = 0
    """Number of notices that the hub has the item, since the item's sender last requested the
    relay."""
    stopped: dict[int, set[int]] = field(default_factory=dict)
    """Stations that are missing the item, by the station that has the item but is not allowed to
    pass it on."""
    stop_due: float = inf
    """Time of the next notice to the item's sender about `stopped`."""
    stop_notice_count: int = 0
    is_unproved: bool = False
    """True if the item begins our open incident, and neither a person nor the hub has verifiably
    received it."""
    collapse: int | None = None
    """The item's collapseKey; a newer item of ours with the same key replaces this item."""


@dataclass(slots=True)
class RepeatDecision:
    """This kit's random decision whether to repeat requested items or to leave them to other
    stations.
    """

    _drawn: bool = True
    _until: float = -inf

    def decide(self, crowd: int, now: float, share: float) -> bool:
        """Return True if this kit repeats. If at most `CROWD_STATIONS` stations are in range, all
        repeat. If there are more, only a few repeat, depending on `share`, a random number from 0
        to 1.
        """
        if crowd <= CROWD_STATIONS:
            return True
        if now >= self._until:
            self._drawn, self._until = scale_share(share, crowd) < 1, now + REDRAW_INTERVAL_S
        return self._drawn


class Rounds:
    """Items that this station may repeat, and the times of the repeats.

    `piggyback` contains our entries that are sent with Packages. `packet_bytes` is the size of the
    largest packet. `hops` is the maximum number of transmissions to reach any station. `random`
    returns a number from 0 to 1. `proves` returns True if the group has a key, so that
    acknowledgements are authenticated. All times must be of the same clock.
    """

    def __init__(
        self,
        station: int,
        neighbours: Neighbours,
        piggyback: RadioPiggyback,
        *,
        hops: int,
        packet_bytes: int,
        random: Callable[[], float],
        proves: Callable[[], bool],
    ) -> None:
        self.station = station
        self._proves = proves
        self.neighbours = neighbours
        self._piggyback = piggyback
        self._hops = hops
        self._packet_bytes = packet_bytes
        self._random = random
        self.items: dict[Key, RepeatableItem] = {}
        """Items by their `Key`, the oldest first."""
        self._bytes = 0
        self._on_call = RepeatDecision()
        self._ordinary_at = -inf
        """Time when items that are not an SOS may be repeated again."""

    def add(self, item: RepeatableItem, now: float) -> None:
        """Add an item that arrived from its sender or from a repeating station, or our own item
        after its first transmission.
        """
        is_own = item.station == self.station
        item.last_on_air = now
        kept_item = self.items.setdefault(_make_key(item), item)
        if kept_item is not item:
            self._postpone_heard(kept_item, item, now)
            return
        if item.entry.sos:
            item.due_at = now + (10 if is_own else 5 + 10 * self._random())
        item.hub_due = now + (60 if is_own else 2 + 4 * self._random())
        self._bytes += ITEM_BYTES + _count_bytes(item)
        while self._bytes > BYTES_MAX:
            self.drop(min(self.items.values(), key=lambda each: (each.entry.sos, each.is_for_hub)))

    def _postpone_heard(self, item: RepeatableItem, new_item: RepeatableItem, now: float) -> None:
        item.confirmed_by |= new_item.confirmed_by
        item.last_on_air = now
        if new_item.hops > 1:
            item.echoes |= new_item.confirmed_by
        if not item.entry.sos:
            # A station that was missing the item may have received this repeat. Otherwise the
            # station reports the item missing again.
            item.due_at = inf
            self._piggyback.stop_repeating(item.station, item.entry.sequence)
            # Forget that this kit may not pass the item on. The stations that were missing the item
            # may have received this repeat from another kit.
            item.stopped.pop(self.station, None)
            if new_item.hops > 1:
                self._wait_to_gather(now)
        item.hops = min(item.hops, new_item.hops)
        if not new_item.is_for_hub:
            return
        # The packet requests a relay, because its sender does not know that the hub has the item.
        # This kit may have to relay it.
        if not item.is_for_hub:
            item.is_for_hub, item.hub_due = True, now + 2 + 4 * self._random()
        item.until = max(item.until, new_item.until)
        if item.brought_by and item.attempts + item.hub_tries:
            item.notice_count, item.notice_due_at = (
                0,
                min(item.notice_due_at, now + 1 + 4 * self._random()),
            )
        elif not item.brought_by and item.hub_tries >= PROBES_MAX and new_item.hops <= item.hops:
            # Ask neighbours again only if the request came over as few transmissions as the item.
            # Otherwise two stations would restart each other's requests forever.
            # Without a key, the sender of an SOS requests a relay about six times an hour, so one
            # request of ours is enough for each of its requests.
            is_frequent = item.entry.sos and not self._proves()
            item.hub_tries = PROBES_MAX - 1 if is_frequent else 0
            item.hub_due = now + 2 + 4 * self._random()

    def _wait_to_gather(self, now: float) -> None:
        """Delay our next packet in a dense network, because another station has just repeated
        items. In this time, more missing items can be gathered for the packet.
        """
        if self._ordinary_at <= now and len(self.neighbours.list_in_range()) > CROWD_STATIONS:
            self._ordinary_at = now + PACKET_SPACING_S * (1 + self._random())

    def record_missing(self, station: int, sequence: int, reporter: int, now: float) -> None:
        """Record that the station `reporter` is missing the item `sequence` of `station`. An SOS is
        ignored, because summaries never list an SOS.
        """
        digest = self._piggyback.summaries.find_digest(station, sequence)
        item = None if digest is None else self.items.get((station, sequence, digest))
        if item is None or item.entry.sos or now - item.last_on_air < UNCONFIRMABLE_S:
            return
        if self._can_transmit(item):
            crowd = len(self.neighbours.list_in_range())
            asked_again = _record_missing(item, now)
            if not (self._on_call.decide(crowd, now, self._random()) or asked_again):
                return
            wait = draw_backoff(
                self._random(), max(GATHER_WAIT_MIN_S, GATHER_WAIT_PER_STATION_S * crowd), crowd
            )
            item.due_at = min(item.due_at, now + wait)
        else:
            self._record_stop(item, self.station, [reporter], now + STOP_NOTICE_DELAY_S)

    def list_ours(self) -> list[RepeatableItem]:
        """Return the items of this station that may be repeated."""
        return [item for item in self.items.values() if item.station == self.station]

    def drop(self, item: RepeatableItem) -> None:
        """Remove an item and free its memory."""
        if self.items.pop(_make_key(item), None) is not None:
            self._bytes -= ITEM_BYTES + _count_bytes(item)

    def supersede(self, collapse: int, *, sos: bool) -> None:
        """Drop our items with the collapseKey `collapse`, because a newer item replaces them."""
        for item in self.list_ours():
            if item.collapse == collapse and item.entry.sos == sos:
                self.drop(item)

    def record_ack(self, sequence: int, ack: Ack, station: int, now: float) -> None:
        """Record that `station` has the item, and that the hub has the item if the Ack reports
        so.
        """
        item = self.items.get((ack.station, sequence, ack.digest))
        if item is None or not ack.whole:
            return
        item.answer_count += station not in item.confirmed_by
        item.confirmed_by.add(station)
        if ack.missing_at:
            self._record_stop(item, station, ack.missing_at, now)
        if (ack.by_hub and not item.at_hub) or (ack.is_at_gateway and not item.brought_by):
            item.brought_by, item.at_hub = station, ack.by_hub
            if item.station != self.station and item.attempts + item.hub_tries:
                # Pass the acknowledgement on, because the item's sender may not hear the station
                # that sent it.
                item.notice_due_at = now + 1 + 4 * self._random()

    def _record_stop(
        self,
        item: RepeatableItem,
        stopping_station: int,
        missing_stations: Iterable[int],
        now: float,
    ) -> None:
        """Record that the `missing_stations` are missing the item, and that `stopping_station` is
        not allowed to pass it on. Schedule a notice to the item's sender if some of them are new.
        """
        stopped_numbers = item.stopped.setdefault(stopping_station, set())
        if item.station != self.station and not stopped_numbers.issuperset(missing_stations):
            item.stop_notice_count, item.stop_due = (
                0,
                min(item.stop_due, now + 1 + 4 * self._random()),
            )
        stopped_numbers.update(missing_stations)

    def is_asked(self, station: int, item_number: int, digest: bytes) -> bool:
        """Return True if the sender of an item has requested receipts. Also return True if the item
        is an SOS, or is no longer kept for repeats.
        """
        item = self.items.get((station, item_number, digest))
        return item is None or item.entry.wants_receipt or item.entry.sos

    def schedule_for_route(self, now: float) -> None:
        """Schedule the items that waited for a route to the hub, because a route is now known."""
        for item in self.items.values():
            if item.is_for_hub and not item.brought_by:
                item.hub_due = min(item.hub_due, now + 1 + 9 * self._random())

    def schedule_sos_for_station(self, station: int, now: float) -> None:
        """Schedule each SOS for a station that is now in range and may have been away. This
        includes each SOS that the station confirmed earlier, because it may have lost its journal.
        When the station has received our summary, it requests other missing items itself.
        """
        others = len(self.neighbours.list_in_range()) - 1
        for item in self.items.values():
            if not item.entry.sos:
                continue
            if self._can_transmit(item):
                item.confirmed_by.discard(station)
            if station in self.list_missing(item):
                # Other stations may repeat the SOS too, so wait for a random time. If the returned
                # station acknowledges the SOS in this time, this kit does not repeat it.
                item.due_at = min(item.due_at, now + others * self._random())

    def compute_next_due(self) -> float:
        """Return the time of the next repeat or notice on trio's clock, or infinity if there is
        none.
        """
        moments = (
            min(each.due_at, each.hub_due, each.notice_due_at, each.stop_due)
            for each in self.items.values()
        )
        return min(moments, default=inf)

    def list_missing(self, item: RepeatableItem) -> list[int]:
        """Return the stations in range that have not confirmed the item."""
        confirmed_stations = item.confirmed_by | {item.station, self.station}
        return [
            number for number in self.neighbours.list_in_range() if number not in confirmed_stations
        ]

    def pop_due_repeats(self, now: float) -> list[RepeatedPacket]:
        """Return the repeats that are due now. Of the items that are not an SOS, return the newest
        that fit into one packet.
        """
        for item in [each for each in self.items.values() if each.until < now]:
            self.drop(item)
        repeats: list[RepeatedPacket] = []
        ordinary = [each for each in self.items.values() if not each.entry.sos]
        # If one item is due, send other items with it whose own time has not come yet.
        has_ordinary_due = now >= self._ordinary_at and any(each.due_at <= now for each in ordinary)
        capacity = self._packet_bytes if has_ordinary_due else 0
        for item in reversed(self.items.values()):
            is_due = item.due_at <= now
            if not item.entry.sos:
                is_due = capacity > 0 and item.due_at < inf
                is_due = is_due and (
                    capacity == self._packet_bytes or _count_bytes(item) <= capacity
                )
                if not is_due:
                    item.due_at = max(item.due_at, self._ordinary_at)
                item.hub_due = max(item.hub_due, self._ordinary_at)
            again = self._take_due_packets(item, now, is_packet_leaving=is_due)
            if again and not item.entry.sos:
                capacity -= _count_bytes(item)
                self._ordinary_at = now + PACKET_SPACING_S
            repeats += again
        return repeats

    def _take_due_packets(
        self, item: RepeatableItem, now: float, *, is_packet_leaving: bool
    ) -> list[RepeatedPacket]:
        repeats: list[RepeatedPacket] = []
        if item.notice_due_at <= now:
            item.notice_count += 1
            pause = self._spread(NOTICE_AGAIN_S * 4 ** (item.notice_count - 1))
            item.notice_due_at = now + pause if item.notice_count < NOTICES_MAX else inf
            repeats += self._make_notices(item)
        if item.stop_due <= now:
            item.stop_notice_count += 1
            pause = self._spread(NOTICE_AGAIN_S * 2 ** (item.stop_notice_count - 1))
            needs_stop_notice = item.entry.sos and item.stop_notice_count < STOP_NOTICES_MAX
            item.stop_due = now + pause if needs_stop_notice else inf
            repeats += self._make_stop_notices(item)
        missing_stations: list[int] = []
        if is_packet_leaving and item.entry.sos:
            is_packet_leaving, missing_stations = self._is_sos_due(item, now)
        elif is_packet_leaving:
            item.due_at, item.attempts = inf, item.attempts + 1
        asks_hub = item.hub_due <= now and self._is_asked_again(item, now)
        if is_packet_leaving or asks_hub:
            item.last_on_air = now
            repeats += self._list_repeats(item, missing_stations, asks_station=asks_hub)
        return repeats

    def _is_sos_due(self, item: RepeatableItem, now: float) -> tuple[bool, list[int]]:
        """Set the time of the next check of an SOS. Return True if the SOS is repeated now, and the
        stations that are known to be missing it.
        """
        item.due_at = inf
        missing_stations = self.list_missing(item)
        blind = not missing_stations and self._is_repeated_blindly(item)
        is_own = item.station == self.station
        if not self._can_transmit(item):
            self._record_stop(item, self.station, missing_stations, now)
            return False, []
        if not (blind or missing_stations):
            return False, []
        item.attempts += 1
        # If no station is known to be missing the SOS, keep the short interval for the first
        # SOS_BLIND repeats, and then double the interval.
        doublings = max(0, item.attempts - SOS_BLIND) if blind else item.attempts
        pause = (10 if is_own else 15) * 2 ** min(doublings, 10)
        longest = UNPROVED_AGAIN_MAX if self._can_be_forged(item) else AGAIN_MAX
        item.due_at = now + self._spread(min(longest, pause))
        enough = blind and len(item.echoes) >= REPEATERS_ENOUGH
        item.echoes = set()
        return not enough, missing_stations

    def _can_transmit(self, item: RepeatableItem) -> bool:
        """Return True if this kit is allowed to transmit the item: it is our own item, or it
        arrived over fewer transmissions than the maximum.
        """
        return item.station == self.station or item.hops < self._hops

    def _is_repeated_blindly(self, item: RepeatableItem) -> bool:
        """Return True if the SOS is repeated although no station is known to be missing it."""
        if self._can_be_forged(item):
            return True
        is_answered = item.answer_count > 0 and (item.station != self.station or self._proves())
        return item.entry.sos and item.attempts < (SOS_BLIND if is_answered else SOS_ALONE)

    def _can_be_forged(self, item: RepeatableItem) -> bool:
        """Return True if only acknowledgements that anyone can forge show that a station has our
        open SOS.
        """
        return item.is_unproved and not self._proves()

    def _is_asked_again(self, item: RepeatableItem, now: float) -> bool:
        item.hub_due = inf
        is_own = item.station == self.station
        if not item.is_for_hub or self._piggyback.hub_routes.is_relaying():
            return False
        if item.brought_by and not self._can_be_forged(item):
            return False
        if not is_own and (item.hops >= self._hops or item.hub_tries >= PROBES_MAX):
            return False
        if self._piggyback.make_relay_request(sos=item.entry.sos) is None:
            return False
        item.hub_tries += 1
        longest, first = (HUB_AGAIN_MAX, 60) if is_own else (PROD_MAX, 30)
        longest = AGAIN_MAX if self._can_be_forged(item) else longest
        item.hub_due = now + self._spread(min(longest, first * 2 ** min(item.hub_tries - 1, 10)))
        return True

    def _spread(self, pause: float) -> float:
        """Return a random time that differs from `pause` by at most 25 percent, so that stations do
        not start at the same time.
        """
        return pause * (0.75 + 0.5 * self._random())

    def _list_repeats(
        self, item: RepeatableItem, missing_stations: Sequence[int], *, asks_station: bool
    ) -> list[RepeatedPacket]:
        sos, number = item.entry.sos, item.entry.sequence
        entries: list[Entry] = []
        # Each request makes other kits ask, too. So the later repeats of an SOS whose
        # acknowledgements can be forged contain a request only if it is due.
        is_extra = self._can_be_forged(item) and item.attempts > SOS_ALONE
        if asks_station or (sos and item.is_for_hub and not (item.brought_by or is_extra)):
            request = self._piggyback.make_relay_request(
                sos=sos, excluded={item.station, *item.asked_neighbours}
            )
            if request is not None:
                assert isinstance(request.content, RelayRequest)
                entries.append(request)
                item.asked_neighbours.add(request.content.station)
        # This entry marks a repeated item, so that stations that have the item do not answer. Our
        # own SOS gets no mark.
        if item.station != self.station or not sos:
            entries.append(Entry(0, Source(self.station, item.hops)))
        with_names: list[Entry] = []
        if sos and len(missing_stations) <= LISTED_STATIONS_MAX:
            # If no station is missing the item, list ourselves, so that only stations that reach
            # the hub answer.
            with_names = [
                Entry(number, Source(each, 0)) for each in missing_stations or [self.station]
            ]
        origin, hops = item.station, item.hops
        if not sos and not asks_station and item.parts[0] == item.entry:
            return [RepeatedPacket(origin, [item.entry], hops=hops, joins=True)]
        return [
            RepeatedPacket(origin, [part, *entries], with_names, sos, hops) for part in item.parts
        ]

    def _make_notices(self, item: RepeatableItem) -> list[RepeatedPacket]:
        if item.hops >= self._hops:
            return []
        digest = compute_item_digest(item.entry)
        ack = Ack(item.station, by_hub=item.at_hub, digest=digest, is_at_gateway=not item.at_hub)
        mark = Entry(0, Source(self.station, item.hops))
        return [RepeatedPacket(item.brought_by, [Entry(item.entry.sequence, ack), mark])]

    def _make_stop_notices(self, item: RepeatableItem) -> list[RepeatedPacket]:
        """Return the notices that stations are missing the item: our own notice, and the notices
        that we pass on with the numbers of their stations.
        """
        repeats = []
        for at, beyond in item.stopped.items():
            is_own = at == self.station
            missing_stations = sorted(beyond - item.confirmed_by)[:MISSING_STATIONS_MAX]
            if missing_stations and is_own is not self._can_transmit(item):
                ack = Ack(
                    item.station,
                    digest=compute_item_digest(item.entry),
                    missing_at=tuple(missing_stations),
                )
                mark = [] if is_own else [Entry(0, Source(self.station, item.hops))]
                repeats.append(RepeatedPacket(at, [Entry(item.entry.sequence, ack), *mark]))
        return repeats


def _record_missing(item: RepeatableItem, now: float) -> bool:
    """Record that a station is missing the item. Return True if the item has been reported missing
    for REDRAW_INTERVAL_S or more without a repeat.
    """
    if item.first_missing_at <= item.last_on_air:
        item.first_missing_at = now
    return now - item.first_missing_at >= REDRAW_INTERVAL_S


def _count_bytes(item: RepeatableItem) -> int:
    return sum(len(encode([part])) for part in item.parts)


def _make_key(item: RepeatableItem) -> Key:
    return item.station, item.entry.sequence, compute_item_digest(item.entry)
