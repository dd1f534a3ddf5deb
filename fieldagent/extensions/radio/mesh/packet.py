"""Processes one packet from the air: its sender, its content and its acknowledgements.

All stations in range receive every packet. In the journal, a station has a negative number, which
differs from all numbers of the hub. A packet is stored in one transaction. The result is a
`Packet`, which contains the answers and actions that must follow when the packet is on disk.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import field, replace

from fieldagent.agent.inbound.reception import ReceivedMessage, is_confirmation_of
from fieldagent.agent.journal import history, inbound, on_air, outbound
from fieldagent.agent.journal.records import DamagedPackage, StoredPackage
from fieldagent.agent.outbound.item_identity import make_entry
from fieldagent.extensions.radio.mesh.key_change import GroupKeys
from fieldagent.extensions.radio.mesh.parcels import Parcels
from fieldagent.extensions.radio.mesh.radio_piggyback import RadioPiggyback
from fieldagent.extensions.radio.mesh.relay import Relay
from fieldagent.extensions.radio.mesh.summaries import list_confirmed
from fieldagent.extensions.radio.mesh.troubles import AirTroubles, Trouble
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Channel, Item, Parcel, ToHub
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import (
    Ack,
    AuthorMark,
    Entry,
    Envelope,
    Fragment,
    Introduction,
    ItemAddition,
    JournalNumber,
    Program,
    Receipt,
    RelayRequest,
    Report,
    RouteToHub,
    Source,
    Unauthenticated,
    Unreadable,
    compute_fingerprint,
    compute_fragments_digest,
    compute_item_digest,
    decode,
    encode,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.seal import is_sealed, unseal

log = logging.getLogger(__name__)

NumberedAck = tuple[int, Ack]
"""Number of an item, and an acknowledgement of the item or of some of its fragments."""
RequestedItem = tuple[int, int]
"""A station, and the number of one of its items. A fragment of the item arrived with a request to
relay."""
REQUESTED_ITEMS_MAX = 1000
_NOT_STORED = (
    RelayRequest
    | AuthorMark
    | Program
    | Report
    | ItemAddition
    | JournalNumber
    | ToHub
    | RemoteCommand
    | Unreadable
)
_STATION_STAGES = (Stage.PROGRAMS, Stage.RADIO, Stage.READ)
"""Stages of an item that a station can report."""


@dataclass(slots=True)
class Packet:
    """Content of one packet, and the actions that must follow."""

    station: int
    received: ReceivedMessage
    relay: bool = False
    """True if the sender asks us to relay its items."""
    namesake: bool = False
    """True if the packet is from another kit that has our station number."""
    is_echo: bool = False
    """True if another station repeats our own packet."""
    acks: list[NumberedAck] = field(default_factory=list)
    """Acknowledgements that are due."""
    repeated_numbers: set[int] = field(default_factory=set)
    """Numbers of items of which a known fragment arrived again, probably because our
    acknowledgement was lost."""
    heard: list[NumberedAck] = field(default_factory=list)
    """Acknowledgements of our own items that show new receptions."""
    stopped: list[tuple[int, str]] = field(default_factory=list)
    """Numbers of our own items that a station is not allowed to pass on, each with a text that
    names the station."""
    overheard_acks: list[NumberedAck] = field(default_factory=list)
    """Acknowledgements of other stations' items."""
    relayed_items: list[StoredPackage] = field(default_factory=list)
    """Neighbours' items, and confirmations of parcels, that are in the journal and must be
    queued."""
    requested_items: set[RequestedItem] = field(default_factory=set)
    complete_items: set[RequestedItem] = field(default_factory=set)
    sender: int = 0
    """Station that transmitted the packet: the origin, or a station that repeats the packet."""
    hops: int = 1
    """Number of radio transmissions over which the packet's content reached this kit."""
    missing_at: dict[int, set[int]] = field(default_factory=dict)
    """Stations that the packet names as missing an item, by the item's number. Only these stations
    answer."""
    is_repeat_for_others: bool = False
    """True if the packet is repeated for stations that reported its items missing. Then this kit
    sends no answer."""
    summaries: list[Entry] = field(default_factory=list)
    """Summaries of the items that the packet's sender has."""
    route: RouteToHub | None = None
    items: list[Entry] = field(default_factory=list)
    """Items that are complete with this packet."""
    repeated: set[int] = field(default_factory=set)
    """Numbers of the complete items that had arrived before. The sender has not received our answer
    to them."""
    receipts: list[tuple[Entry, bool]] = field(default_factory=list)
    """Receipts for our items. The second member is True if we requested the receipt."""
    others_receipts: list[Entry] = field(default_factory=list)
    """Receipts for other stations' items, and the answers to them."""
    opened: list[ReceivedMessage] = field(default_factory=list)
    """Contents of parcels for this kit."""
    is_answer: bool = False
    """True if the packet answers one of our receipts."""


class PacketReception:
    """Decodes and stores packets from the air. `station` is our own number. `keys` contains the
    group's keys. A packet with one of these keys is accepted, whether sealed or not. A packet that
    differs from our own setting `is_sealed` is reported as a problem. `relay` is None if this agent
    does not relay for others.

    If another kit has our number, perhaps from a cloned card, its packets are stored but not
    confirmed. Otherwise, other stations could not know which of the two kits has confirmed them.
    """

    def __init__(
        self,
        parcels: Parcels,
        station: int,
        *,
        keys: GroupKeys,
        is_sealed: bool = False,
        relay: Relay | None = None,
        troubles: AirTroubles,
        piggyback: RadioPiggyback,
    ) -> None:
        self._summaries, self._readings = piggyback.summaries, piggyback.readings
        self._inbox = parcels.inbox
        self._parcels = parcels
        self.station = station
        self.group = keys
        """Keys of the group. They may change at any time."""
        self._sealed = is_sealed
        self._relay = relay
        self.troubles = troubles
        self.catching_up_until = 0.0
        """Elapsed time until which hooks receive only SOS items from stations in range."""
        self._asked_for: set[RequestedItem] = set()

    def read(self, body: bytes) -> Envelope | None:
        """Return the envelope of a packet. Return None if the packet is unusable: it is damaged, is
        from outside the group, or contains no station.
        """
        if is_sealed(body) and not self.group.keys:
            self.troubles.record(Trouble.NO_KEY)
            return None
        try:
            envelope = _decode(body, self.group.keys)
        except Unauthenticated as error:
            self._count_foreign_packet(body, error)
            return None
        except RemoteProtocolError as error:
            self.troubles.record(Trouble.UNREADABLE, f"{len(body)} bytes: {error}")
            return None
        if envelope.origin == 0:
            self.troubles.record(Trouble.UNREADABLE, "it names no station")
            return None
        if envelope.tagged and not self.group.keys:
            self.troubles.record(Trouble.NO_KEY)
        # Every kit sends its callsign unencrypted, so a packet with only a callsign does not
        # indicate a wrong setting.
        names = all(isinstance(each.content, Introduction) for each in envelope.entries)
        if self.group.keys and is_sealed(body) is not self._sealed and not names:
            self.troubles.record(Trouble.SEALED if is_sealed(body) else Trouble.NOT_SEALED)
        return envelope

    def _count_foreign_packet(self, body: bytes, error: Unauthenticated) -> None:
        if error.missing:
            self.troubles.record(Trouble.NO_TAG)
            return
        try:
            origin = _decode(body, self.group.dropped).origin if self.group.dropped else 0
        except RemoteProtocolError:
            origin = 0
        if origin:
            self.troubles.record(Trouble.DROPPED_KEY, f"of station {origin}")
        else:
            self.troubles.record(Trouble.WRONG_KEY)

    def store(self, db: sqlite3.Connection, envelope: Envelope, now: float) -> Packet:
        """Store the content of a packet in the caller's transaction, and return the result. `now`
        is elapsed time. If a station repeats our own packet, record that the station has our items.
        """
        received = ReceivedMessage(now, troubles=[*envelope.not_understood])
        if now < self.catching_up_until:
            received.not_before = self.catching_up_until
        packet = Packet(envelope.origin, received, sender=envelope.origin)
        _read_marks(envelope, packet)
        if self.station in (envelope.origin, packet.sender):
            is_own = packet.sender == self.station
            packet.namesake = is_own and _is_another_kits(db, envelope, self.station)
            packet.is_echo = not packet.namesake
            if packet.is_echo:
                self._record_repetition(db, envelope, packet)
                return packet
        packet.relay = any(self._is_asked(entry, envelope) for entry in envelope.entries)
        # Introductions are first, so that the sender is known before its items.
        for entry in sorted(envelope.entries, key=_has_no_introduction):
            self._store_entry(db, entry, packet)
        return packet

    def _is_asked(self, entry: Entry, envelope: Envelope) -> bool:
        """Return True if the entry asks us to relay the packet's items to the hub. An SOS asks
        every station that receives it.
        """
        request = entry.content
        if not isinstance(request, RelayRequest):
            return False
        sos = any(each.sos for each in envelope.entries)
        return sos or request.station in (0, self.station)

    def mark_stored(self, packet: Packet) -> None:
        """Record the requests of a packet that is now on disk, and publish its items."""
        self._asked_for |= packet.requested_items
        self._asked_for -= packet.complete_items
        while len(self._asked_for) > REQUESTED_ITEMS_MAX:
            self._asked_for.pop()
        for each in (packet.received, *packet.opened):
            self._inbox.publish(each)

    def _store_entry(self, db: sqlite3.Connection, entry: Entry, packet: Packet) -> None:
        content, station = entry.content, packet.station
        if isinstance(content, _NOT_STORED):
            return
        # If two kits use one station number (`namesake`), ignore their confirmations, so that the
        # items are sent again.
        if isinstance(content, Receipt):
            if not packet.namesake:
                self._store_receipt(db, entry, content, packet)
        elif isinstance(content, RouteToHub):
            packet.route = content
        elif isinstance(content, Ack):
            if content.count == 0:
                self._store_summary(db, entry, content, packet)
            elif content.station == self.station and not packet.namesake:
                self._record_ack(db, entry.sequence, content, packet)
            else:
                packet.overheard_acks.append((entry.sequence, content))
        elif isinstance(content, Introduction):
            if entry.sequence == station:
                inbound.store_identity(db, -station, content.identity)
        elif isinstance(content, Fragment):
            self._store_fragment(db, entry.sequence, content, packet)
        else:
            self._store_item(db, entry, packet)

    def _store_summary(
        self, db: sqlite3.Connection, entry: Entry, ack: Ack, packet: Packet
    ) -> None:
        """Process a summary. A summary of our items confirms them if its digest matches our items.
        A summary never contains an SOS. If another kit has our number, we still send it the items
        that it is missing, but its summary confirms nothing.
        """
        if packet.namesake and ack.station == self.station:
            return
        packet.summaries.append(entry)
        numbers = list_confirmed(entry)
        if packet.namesake or ack.station != self.station or not numbers:
            return
        digests = [self._find_own_digest(db, number) for number in numbers]
        known_digests = [each for each in digests if each is not None]
        if len(known_digests) < len(numbers):
            return
        if compute_fragments_digest(known_digests) != ack.digest:
            packet.received.mismatches.append(entry.sequence)
            return
        for number, digest in zip(numbers, known_digests, strict=True):
            if not on_air.has_confirmed(db, packet.station, number):
                self._record_ack(db, number, Ack(self.station, digest=digest), packet)

    def _store_receipt(
        self, db: sqlite3.Connection, entry: Entry, receipt: Receipt, packet: Packet
    ) -> None:
        """Store a receipt of a station. The receipt shows the stage of our item at the station, or
        answers our receipt for one of the station's items.
        """
        if receipt.by != self.station:
            packet.others_receipts.append(entry)
        elif receipt.stage is Stage.STORED:
            answered = self._readings.find_answered(packet.station, entry)
            if answered is not None:
                inbound.mark_station_reported(db, answered)
                packet.is_answer = True
        elif receipt.stage in _STATION_STAGES and is_confirmation_of(
            db, entry.sequence, receipt, packet.received
        ):
            stage_and_text = receipt.stage, receipt.text, float(entry.time)
            outbound.store_stage(db, entry.sequence, -packet.station, *stage_and_text)
            kept_package = outbound.read_package_in(db, entry.sequence)
            is_receipt_wanted = kept_package is not None and (
                kept_package.package.wants_receipt or kept_package.package.sos
            )
            packet.receipts.append((entry, is_receipt_wanted))

    def _find_own_digest(self, db: sqlite3.Connection, number: int) -> bytes | None:
        return self._summaries.find_digest(self.station, number) or _compute_own_digest(db, number)

    def _record_repetition(
        self, db: sqlite3.Connection, envelope: Envelope, packet: Packet
    ) -> None:
        """Record that a station has our item, because it repeats the item."""
        if packet.sender == self.station:
            return
        for entry in envelope.entries:
            if isinstance(entry.content, Item) and _is_ours(db, entry):
                at = self._inbox.date(packet.received.now)
                outbound.store_receipt(db, entry.sequence, -packet.sender, at)
                ack = Ack(self.station, digest=compute_item_digest(entry))
                packet.heard.append((entry.sequence, ack))

    def _store_item(
        self, db: sqlite3.Connection, entry: Entry, packet: Packet, *, in_parts: bool = False
    ) -> None:
        """Store a complete item, and prepare its acknowledgement. Prepare none if its fragments
        were already acknowledged, or if the packet is a repeat that only other stations answer.
        Always prepare one if the hub or a gateway is known to have the item.
        """
        duplicates_before = packet.received.duplicates
        self._inbox.store_entry(db, -packet.station, entry, packet.received)
        digest = compute_item_digest(entry)
        at_hub, is_at_hub = False, False
        if packet.relay:
            at_hub, is_at_hub = on_air.read_relay_state(db, packet.station, entry.sequence, digest)
        came_again = packet.received.duplicates > duplicates_before
        needs_no_receipt = in_parts or (came_again and self._is_silent(packet, entry.sequence))
        needs_no_receipt |= packet.is_repeat_for_others and not entry.sos
        if at_hub or is_at_hub or not needs_no_receipt:
            ack = Ack(packet.station, by_hub=at_hub, digest=digest, is_at_gateway=is_at_hub)
            packet.acks.append((entry.sequence, ack))
        packet.items.append(entry)
        if not came_again:
            # The request to relay is not stored, because the sender repeats the request.
            route = Entry(0, AuthorMark(packet.station, packet.hops), entry.time)
            envelope_bytes = encode([route, entry], origin=packet.station)
            on_air.store_item(
                db, packet.station, entry.sequence, compute_fingerprint(entry), envelope_bytes
            )
        if came_again:
            packet.repeated.add(entry.sequence)
        content = entry.content
        if isinstance(content, Parcel) and content.station == self.station and not came_again:
            now, not_before = packet.received.now, packet.received.not_before
            opened, answer = self._parcels.store_parcel(db, content, now, not_before)
            packet.opened.append(opened)
            packet.relayed_items += answer
        if packet.relay and self._relay is not None and not packet.namesake:
            accepted = self._relay.store(db, packet.station, entry, packet.received.now)
            if accepted is not None:
                packet.relayed_items.append(accepted)

    def _store_fragment(
        self, db: sqlite3.Connection, sequence: int, part: Fragment, packet: Packet
    ) -> None:
        station = packet.station
        if packet.relay:
            packet.requested_items.add((station, sequence))
        duplicates_before = packet.received.duplicates
        assembled = self._inbox.store_fragment(db, -station, sequence, part, packet.received)
        came_again = packet.received.duplicates > duplicates_before
        if came_again:
            packet.repeated_numbers.add(sequence)
        if not (came_again and self._is_silent(packet, sequence)):
            packet.acks.append((sequence, _make_fragments_ack(db, station, sequence, part)))
        if assembled is None:
            return
        packet.relay = packet.relay or (station, sequence) in self._asked_for
        packet.complete_items.add((station, sequence))
        for entry in assembled:
            self._store_item(db, entry, packet, in_parts=True)

    def _is_silent(self, packet: Packet, sequence: int) -> bool:
        """Return True if we must not answer, because the packet lists the stations that are missing
        the item and does not list ours.
        """
        return self.station not in packet.missing_at.get(sequence, {self.station})

    def _record_ack(self, db: sqlite3.Connection, sequence: int, ack: Ack, packet: Packet) -> None:
        station, now = packet.station, packet.received.now
        if not is_confirmation_of(db, sequence, ack, packet.received):
            return
        if ack.by_hub:
            text = f"station {station} relayed it to the hub"
            history.record_event(db, [sequence], Channel.RADIO, "relayed", text, now)
        elif ack.is_at_gateway:
            text = f"left by station {station}'s satellite"
            history.record_event(db, [sequence], Channel.RADIO, "left nearby", text, now)
        if ack.missing_at:
            text = on_air.describe_stop(station, ack.missing_at)
            if on_air.record_stop(db, sequence, text, now):
                packet.stopped.append((sequence, text))
        if ack.whole:
            outbound.store_receipt(db, sequence, -station, self._inbox.date(now))
        news = outbound.record_held_fragments(
            db, Channel.RADIO, sequence, station, ack.count, ack.arrived
        )
        if ack.whole or news:
            packet.heard.append((sequence, ack))


def _decode(body: bytes, keys: Sequence[bytes]) -> Envelope:
    """Return the envelope of a packet. Raises RemoteProtocolError, and Unauthenticated if the
    packet matches none of the keys.
    """
    if not is_sealed(body):
        return decode(body, keys=keys)
    unsealed = unseal(body, keys)
    if unsealed is None:
        raise Unauthenticated(missing=False)
    plain, key = unsealed
    return replace(decode(plain), tagged=True, key=key)


def _make_fragments_ack(db: sqlite3.Connection, station: int, sequence: int, part: Fragment) -> Ack:
    """Return the Ack of all stored fragments of the item."""
    slices = inbound.read_fragments(db, inbound.FragmentedItem(-station, sequence, part.count))
    if slices:
        digest = compute_fragments_digest(slices.values())
        return Ack(station, part.count, frozenset(slices), digest=digest)
    digest = inbound.find_item_digest(
        db, -station, sequence, compute_fingerprint(Entry(sequence, part))
    )
    return Ack(station, part.count, frozenset(range(part.count)), digest=digest)


def _read_marks(envelope: Envelope, packet: Packet) -> None:
    """Read the Source entries of an envelope into `packet`. A Source with the number 0 contains the
    station that repeats the packet, and the number of transmissions before its repeat. A Source
    with another number contains a station that is missing the item with this number.
    """
    for entry in envelope.entries:
        if not isinstance(entry.content, Source):
            continue
        if entry.sequence == 0:
            parts = any(isinstance(each.content, Fragment) for each in envelope.entries)
            if entry.content.station != packet.station:
                packet.sender, packet.hops = entry.content.station, entry.content.sequence + 1
                packet.is_repeat_for_others = True
            else:
                # In a packet with a fragment, such a Source does not mark a repeat. It contains the
                # number of fragments that follow.
                packet.is_repeat_for_others = not parts
        else:
            packet.missing_at.setdefault(entry.sequence, set()).add(entry.content.station)


def split_by_origin(envelope: Envelope) -> list[Envelope]:
    """Split a packet with repeated items into one envelope per origin, each marked with the
    repeating station.
    """
    groups: list[list[Entry]] = [[]]
    origin_key = [envelope.origin]
    for entry in envelope.entries:
        if isinstance(entry.content, AuthorMark):
            mark = Source(envelope.origin, entry.content.transmissions)
            groups.append([Entry(0, mark)])
            origin_key.append(entry.content.station)
        else:
            groups[-1].append(entry)
    alone = zip(origin_key, groups, strict=True)
    parts = [
        replace(envelope, origin=origin, entries=tuple(each)) for origin, each in alone if each
    ]
    # Report unreadable parts only once.
    return parts[:1] + [replace(each, not_understood=()) for each in parts[1:]]


def _is_another_kits(db: sqlite3.Connection, envelope: Envelope, own_station: int) -> bool:
    """Return True if an envelope with our station number comes from another kit. Return False for
    an echo or a recording of items that we sent or repeated.
    """
    origin = envelope.origin
    items = [entry for entry in envelope.entries if isinstance(entry.content, Item)]
    if origin == own_station:
        return not items or not all(_is_ours(db, entry) for entry in items)
    return not all(
        inbound.has_arrived(db, -origin, entry.sequence, compute_fingerprint(entry))
        for entry in items
    )


def _is_ours(db: sqlite3.Connection, entry: Entry) -> bool:
    try:
        package = outbound.read_package_in(db, entry.sequence)
    except DamagedPackage:
        return True
    return package is not None and compute_item_digest(make_entry(package)) == compute_item_digest(
        entry
    )


def _compute_own_digest(db: sqlite3.Connection, number: int) -> bytes | None:
    try:
        package = outbound.read_package_in(db, number)
    except DamagedPackage:
        return None
    return None if package is None else compute_item_digest(make_entry(package))


def _has_no_introduction(entry: Entry) -> bool:
    return not isinstance(entry.content, Introduction)
