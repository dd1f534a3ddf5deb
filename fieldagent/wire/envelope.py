"""The on-air format: one envelope of CBOR (RFC 8949) with one or more entries.

`docs/reference/on-air.md` describes it byte by byte, with test vectors. For any input, `decode`
returns the readable entries and a text for each unreadable entry, or raises RemoteProtocolError.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fieldagent.package.delivery import Stage
from fieldagent.package.package import (
    CHECK_IN_MAX,
    CheckIn,
    CommandAnswer,
    Data,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Parcel,
    Person,
    Waypoint,
)
from fieldagent.package.payload import Identity
from fieldagent.package.reading import WrongValue, read_person
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.bitmap import DIGEST_BYTES, decode_bitmap, encode_bitmap
from fieldagent.wire.command import (
    RemoteCommand,
    decode_answer,
    decode_command,
    encode_answer,
    encode_command,
)
from fieldagent.wire.envelope_form import EnvelopeParts, decode_form, encode_array, encode_short
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.items import (
    decode_incident_update,
    decode_location,
    decode_position,
    decode_text,
    decode_waypoint,
    encode_incident_update,
    encode_location,
    encode_position,
    encode_text,
    is_position,
    make_location,
    make_track_fix,
)
from fieldagent.wire.kit_status import decode_version, encode_version
from fieldagent.wire.seal import find_key
from fieldagent.wire.strict_cbor import expect, is_in_range, is_int, read_bytes, read_text
from fieldagent.wire.text_code import pack, unpack
from fieldagent.wire.track import COUNT_MAX, decode_track, encode_track

EPOCH = 1_735_689_600
"""Unix time of 2025-01-01T00:00:00Z, from which all times on the air are counted."""
PACKED_BYTES = 512
"""Maximum size in bytes of an envelope with packed text. The limit keeps the decoding of a hostile
envelope short."""
MISSING_STATIONS_MAX = 8
"""Maximum number of stations that an Ack lists as missing an item."""
RADIUS_MAX_KM = 20_100
"""Maximum radius of a position in kilometres: half of the earth's circumference."""
AT_GATEWAY = 1
"""Value of the member *by hub* of an Ack if a satellite gateway has the item."""
NO_ROUTE = 255
"""Number of hops which means that the sender no longer reaches the hub."""
SOS = 0x10
"""Flag in the kind of an item that was posted as an SOS."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """One of the `count` parts of an envelope that is too large for one message."""

    index: int
    count: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """List of the arrived fragments of the peer's item `sequence`, so that the peer repeats the
    other fragments.
    """

    count: int
    arrived: frozenset[int]
    digest: bytes = b""
    """Value of `compute_fragments_digest` for the arrived fragments."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """Identity of a sender. In later envelopes, an `origin` that is equal to the entry's sequence
    means this identity.
    """

    identity: Identity


@dataclass(frozen=True, slots=True)
class Receipt:
    """Delivery stage that the peer's item `sequence` has reached at one addressee, with a time."""

    by: int = 0
    """In a receipt from the hub, the number of the addressee (as an `origin`). In a receipt to the
    hub, the station that assigned `sequence`. 0 means the hub in both cases."""
    digest: bytes = b""
    """Value of `compute_item_digest` of the item."""
    stage: Stage = Stage.STORED
    text: str = ""
    """Reader's name, forwarding service, or reason of a failure."""


@dataclass(frozen=True, slots=True)
class Ack:
    """Confirmation that the sender has stored the item `sequence` of a station, or some of its
    fragments. If `count` is 0, the Ack is a summary: of the items from `sequence` on, the sender
    has exactly those in `arrived`.
    """

    station: int
    count: int = 1
    arrived: frozenset[int] = frozenset([0])
    by_hub: bool = False
    """True if the sender of this Ack has delivered the item to the hub."""
    digest: bytes = b""
    """Value of `compute_item_digest` of a complete item, or `compute_fragments_digest` of the
    arrived fragments. Empty in a summary without items."""
    missing_at: tuple[int, ...] = ()
    """Known stations that are missing the item. The sender is not allowed to relay the item to
    them, because the item has crossed the maximum number of kits."""
    is_at_gateway: bool = False
    """True if the sender's satellite gateway has the item. The hub may not have it yet."""

    @property
    def whole(self) -> bool:
        """Return True if all fragments of the item have arrived. For a summary, return False."""
        return len(self.arrived) == self.count > 0


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """Request to a station to relay the envelope's other entries toward the hub."""

    station: int
    """Number of the station. 0 means any station, because no route to the hub is known."""


@dataclass(frozen=True, slots=True)
class RouteToHub:
    """The sender's route to the hub, directly or over other kits, as it was known `minutes` ago."""

    hops: int
    """Number of kits between the sender and the hub. 0 means a direct route, and `NO_ROUTE` that
    the hub is no longer reachable."""
    minutes: int = 0
    cost: int = 0
    """Price in credits of a short message to the hub."""
    is_battery_low: bool = False
    """True if the battery of a kit on the route, including the sender, is nearly empty."""


@dataclass(frozen=True, slots=True)
class Source:
    """Origin of the entry with the same sequence: the station that made the entry, and the number
    that this station gave the entry.
    """

    station: int
    sequence: int


@dataclass(frozen=True, slots=True)
class AuthorMark:
    """Original sender of the following entries, which are repeated for other stations."""

    station: int
    transmissions: int
    """Number of radio transmissions over which the entries reached the sender of this envelope. 0
    for the sender's own entries."""


@dataclass(frozen=True, slots=True)
class Program:
    """Version of the sender's program, such as 0.1.0+12."""

    version: str


@dataclass(frozen=True, slots=True)
class UnauthenticatedMark:
    """Marks the SOS with the same sequence as unauthenticated."""


@dataclass(frozen=True, slots=True)
class Contact:
    """Phone number and email address (or '') of the author of the message with the same sequence.

    This is a separate entry, so that a decoder that does not know its kind still gets the message.
    """

    phone: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True)
class EstimatedPosition:
    """Position that the satellite operator has estimated for the sender of the entry with the same
    sequence, which contains no position. `radius` is in kilometres.
    """

    latitude: float
    longitude: float
    radius: int


ItemAddition = Contact | EstimatedPosition | Source | UnauthenticatedMark
"""Additions to the item with the same sequence. The item is valid without them."""


@dataclass(frozen=True, slots=True)
class JournalNumber:
    """Entry whose sequence is the number of the sender's journal."""

    wants_names: bool = False
    """True if the sender is missing names, so that the hub must repeat all introductions."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Report from a kit to the hub that an unreadable message has arrived."""

    size: int
    """Size in bytes that the modem reported, or 0 if it is unknown."""
    guard: int | None = None
    """The two checksum bytes after the message, as a number. None if they were missing."""


Content = (
    Item
    | CheckIn
    | CommandAnswer
    | RemoteCommand
    | Unreadable
    | Contact
    | EstimatedPosition
    | Fragment
    | Report
    | Introduction
    | Receipt
    | Ack
    | RelayRequest
    | RouteToHub
    | Source
    | AuthorMark
    | Program
    | UnauthenticatedMark
    | JournalNumber
)


@dataclass(frozen=True, slots=True)
class Entry:
    sequence: int
    """Number that the sender gave the entry. It is the same on all channels and in all attempts."""
    content: Content
    time: int = EPOCH
    """Unix time in seconds when the position was measured, or the message or data was posted."""
    sos: bool = False
    items_back: int = 0
    """For an item of an incident, the item's number minus the number of the item that raised the
    incident. So it is 0 for the item that raised the incident."""
    to: Person | None = None
    """Addressee of an item; None means everyone."""
    wants_receipt: bool = False
    """True if the sender wants a read receipt."""
    author: Person | None = None
    """Author of the item, a person at the sender's kit. None if the item names no author."""

    @property
    def addressed(self) -> bool:
        """Return True if the entry has an addressee or an author, or wants a read receipt."""
        return self.to is not None or self.wants_receipt or self.author is not None


@dataclass(frozen=True, slots=True)
class Envelope:
    entries: tuple[Entry, ...]
    origin: int = 0
    """Number of the sender of the entries. 0 is the peer itself. Other numbers were introduced
    before."""
    not_understood: tuple[str, ...] = ()
    """Entries of unknown kind or shape, each as a sentence for the log."""
    tagged: bool = False
    """True if the envelope ends with bytes that can be a tag. The tag is checked if there are
    keys."""
    key: int | None = None
    """Index of the key that matches the tag."""
    is_packed: bool = False
    """True if the envelope has the short form, or contains packed text or a track. The sender can
    then also decode such envelopes."""


class Unauthenticated(RemoteProtocolError):
    """No key matches the tag of the envelope. `missing` is True if the envelope has no tag."""

    def __init__(self, *, missing: bool) -> None:
        super().__init__(f"the authentication tag is {'missing' if missing else 'wrong'}")
        self.missing = missing


def derive_key(master: bytes, direction: str) -> bytes:
    """Derive the key of one direction, such as `MO`, with HKDF-SHA256 (RFC 5869) without salt."""
    extracted = hmac.digest(bytes(32), master, "sha256")
    return hmac.digest(extracted, f"fieldagent {direction}".encode() + b"\x01", "sha256")


FINGERPRINT_BYTES = 8


def compute_fingerprint(entry: Entry) -> bytes:
    """Return a digest of an item. It shows whether a received item is a duplicate, or another item
    that has the same number because the sender lost its journal.
    """
    return hashlib.blake2b(encode([entry]), digest_size=FINGERPRINT_BYTES).digest()


def compute_item_digest(entry: Entry) -> bytes:
    """Return the digest for a confirmation of the item: the first bytes of its fingerprint."""
    return compute_fingerprint(entry)[:DIGEST_BYTES]


def compute_fragments_digest(slices: Iterable[bytes]) -> bytes:
    """Return the digest for a confirmation of fragments, of the fragments' payloads in order."""
    return hashlib.blake2b(b"".join(slices), digest_size=8).digest()[:DIGEST_BYTES]


def encode(
    entries: Sequence[Entry], *, origin: int = 0, key: bytes | None = None, is_packed: bool = False
) -> bytes:
    """Encode one envelope. Its times are relative to the time of its first entry.

    If `is_packed`, the envelope has the short form, with compressed texts and tracks, unless it is
    too long. Texts of an SOS are not compressed, so that any CBOR reader can read them.
    """
    if not entries:
        raise LocalProtocolError("an envelope holds at least one entry")
    base = entries[0].time
    if is_packed:
        parts = EnvelopeParts(base - EPOCH, origin, _encode_packed(entries, base))
        write = encode_array if any(entry.sos for entry in entries) else encode_short
        body = write(parts, key)
        if body is not None and len(body) <= PACKED_BYTES:
            return body
    return encode_array(
        EnvelopeParts(base - EPOCH, origin, [_encode_entry(e, base) for e in entries]), key
    )


def decode(body: bytes, *, keys: Sequence[bytes] = ()) -> Envelope:
    """Decode one envelope. If there are `keys`, its tag must match one of them.

    Raises Unauthenticated if no key matches, and RemoteProtocolError if the envelope is not CBOR or
    has another version.
    """
    parts = decode_form(body)
    key = find_key(body, keys) if parts.tagged else None
    if keys and key is None:
        raise Unauthenticated(missing=not parts.tagged)
    may_pack = len(body) <= PACKED_BYTES
    envelope = _read_entries(parts.entries, parts.base + EPOCH, parts.origin, may_pack=may_pack)
    packed = envelope.is_packed or parts.short
    return replace(envelope, tagged=parts.tagged, key=key, is_packed=packed)


def _read_entries(entries: Sequence[Any], base: int, origin: int, *, may_pack: bool) -> Envelope:
    understood: list[Entry] = []
    not_understood, packed = [], False
    for position, entry in enumerate(entries):
        try:
            plain, *address = entry if _is_addressed(entry) else [entry]
            unpacked = _read_packed(plain, base) if may_pack else None
            parts = unpacked or [_read_entry(plain, base)]
            understood += (
                [_read_addressed_entry(each, *address) for each in parts] if address else parts
            )
            packed = packed or unpacked is not None
        except RemoteProtocolError as error:
            not_understood.append(f"entry {position}: {error}")
    return Envelope(tuple(understood), origin, tuple(not_understood), is_packed=packed)


def _is_addressed(entry: Any) -> bool:
    return isinstance(entry, list) and 2 <= len(entry) <= 4 and isinstance(entry[0], list)


def _read_addressed_entry(entry: Entry, target: Any, flag: Any = None, author: Any = None) -> Entry:
    if not isinstance(entry.content, Item):
        raise RemoteProtocolError("an entry without an item has an addressee")
    if flag is not None and not (is_int(flag) and flag in (0, 1)):
        raise RemoteProtocolError("asks for an unknown receipt")
    target_person, author_person = (
        None if each is None else _read_person(each) for each in (target, author)
    )
    return replace(entry, to=target_person, wants_receipt=bool(flag), author=author_person)


def _read_person(value: Any) -> Person:
    try:
        return read_person(value)
    except WrongValue as wrong:
        raise RemoteProtocolError(f"a person {wrong}") from None


def _read_packed(entry: Any, base: int) -> list[Entry] | None:
    """Return the entries in a packed text or a track. Return None for any other entry."""
    match entry:
        case [2, sequence, time, bytes(body)] if not is_position(body):
            try:
                expect(is_in_range(sequence, minimum=0) and is_in_range(time), "number and time")
                fixes = decode_track(sequence, base + time, body)
                return [Entry(fix.sequence, make_location(fix), fix.time) for fix in fixes]
            except (ValueError, OverflowError) as error:
                raise RemoteProtocolError(f"a track is damaged: {error}") from error
        case [int(kind), *_] if any(isinstance(e, bytes) for e in entry[_TEXTS.get(kind, 99) :]):
            texts = entry[_TEXTS[kind] :]
            plain = [unpack(each) if isinstance(each, bytes) else each for each in texts]
            return [_read_entry([*entry[: _TEXTS[kind]], *plain], base)]
    return None


def _encode_packed(entries: Sequence[Entry], base: int) -> list[list[Any]]:
    """Encode the entries with packed texts, and several positions as one track."""
    fixes = {
        at: fix
        for at, entry in enumerate(entries)
        if isinstance(entry.content, Location)
        and not (entry.sos or entry.addressed)
        and (fix := make_track_fix(entry.sequence, entry.time, entry.content))
    }
    several = 1 < len(fixes) <= COUNT_MAX
    ordered = sorted(fixes.items(), key=lambda each: (each[1].sequence, each[1].time))
    track = dict(ordered) if several else {}
    packed_fields = []
    for at, entry in enumerate(entries):
        if at not in track:
            packed_fields.append(_encode_entry(entry, base, is_packed=not entry.sos))
        elif at == next(iter(fixes)):
            first, *_ = together = [*track.values()]
            members = [first.sequence, first.time - base, encode_track(together)]
            packed_fields.append([2, *members])
    return packed_fields


def _encode_entry(entry: Entry, base: int, *, is_packed: bool = False) -> list[Any]:
    plain = _encode_plain(entry, base, is_packed=is_packed)
    if not entry.addressed:
        return plain
    return _trim([plain, entry.to, int(entry.wants_receipt) or None, entry.author])


def _encode_plain(entry: Entry, base: int, *, is_packed: bool) -> list[Any]:
    content = entry.content
    kind = _KIND_OF[type(content)]
    if kind in _UNTIMED_KINDS:
        return _trim([kind, entry.sequence, *_UNTIMED_KINDS[kind][2](content)])
    plain_head = [kind | (SOS if entry.sos else 0), entry.sequence, entry.time - base]
    if entry.sos:
        plain_head.append(entry.items_back)
    members = _TIMED_KINDS[kind][2](content)
    if is_packed and kind in _TEXTS:
        members = [pack(each) if isinstance(each, str) else each for each in members]
    return _trim([*plain_head, *members])


def _read_entry(entry: Any, base: int) -> Entry:
    if not isinstance(entry, list) or len(entry) < 3 or not is_in_range(entry[0], minimum=0):
        raise RemoteProtocolError("has no kind")
    kind, sequence, *rest = entry
    if not is_in_range(sequence, minimum=0):
        raise RemoteProtocolError("has no sequence number")
    try:
        if kind in _UNTIMED_KINDS:
            content = _UNTIMED_KINDS[kind][1](*rest)
            # The time distinguishes a Report from an earlier Report with the same contents.
            return Entry(sequence, content, base if isinstance(content, Report) else EPOCH)
        if kind & ~SOS not in _TIMED_KINDS:
            raise RemoteProtocolError(f"kind {kind} is unknown")
        delta, *members = rest
        expect(is_in_range(delta), "a time")
        read_content = _TIMED_KINDS[kind & ~SOS][1]
        if not kind & SOS:
            return Entry(sequence, read_content(base + delta, *members), base + delta)
        items_back, *members = members
        expect(is_in_range(items_back, minimum=0), "number of the incident")
        return Entry(sequence, read_content(base + delta, *members), base + delta, True, items_back)
    except (TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"kind {kind} is damaged: {error}") from error


def _encode_bitmap(content: Report | Ack) -> bytes:
    return encode_bitmap(content.arrived, content.count, content.digest)


def _encode_ack(content: Ack) -> list[Any]:
    stations = [*content.missing_at] or None
    reach = True if content.by_hub else AT_GATEWAY if content.is_at_gateway else None
    return [content.station, content.count, _encode_bitmap(content), reach, stations]


def _encode_introduction(content: Introduction) -> list[Any]:
    identity = content.identity
    return [identity.id, identity.name, identity.type, identity.email, identity.account]


def _trim(members: list[Any]) -> list[Any]:
    while members[-1] is None:
        members.pop()
    return members


def _read_fragment(index: Any, count: Any, piece: Any) -> Fragment:
    expect(is_in_range(count, minimum=1, maximum=255), "count of fragments")
    expect(is_in_range(index, minimum=0, maximum=count - 1), "index of a fragment")
    return Fragment(index, count, read_bytes(piece))


def _read_report(count: Any, bitmap: Any) -> Report:
    expect(is_in_range(count, minimum=1, maximum=255), "count of fragments")
    return Report(count, *decode_bitmap(read_bytes(bitmap), count))


def _read_ack(station: Any, count: Any, bitmap: Any, reach: Any = None, missing: Any = None) -> Ack:
    expect(is_in_range(station, minimum=1), "station")
    expect(reach in (None, False, True, AT_GATEWAY), "word of the hub")
    stations = [] if missing is None else missing
    expect(isinstance(stations, list) and len(stations) <= MISSING_STATIONS_MAX, "stations beyond")
    expect(all(is_in_range(each, minimum=1) for each in stations), "stations beyond")
    if is_int(count) and count == 0:
        arrived_offsets, digest = decode_bitmap(read_bytes(bitmap), 0)
        return Ack(station, 0, arrived_offsets, digest=digest)
    report = _read_report(count, bitmap)
    # Check the type, because in Python True equals 1, the value of AT_GATEWAY.
    by_hub = reach is True
    details = by_hub, report.digest, tuple(stations), reach == AT_GATEWAY and not by_hub
    return Ack(station, report.count, report.arrived, *details)


def _read_relay_request(station: Any) -> RelayRequest:
    expect(is_in_range(station, minimum=0), "station")
    return RelayRequest(station)


def _read_route(hops: Any, minutes: Any = None, cost: Any = None, flag: Any = None) -> RouteToHub:
    expect(is_in_range(hops, minimum=0, maximum=NO_ROUTE), "hops to the hub")
    expect(minutes is None or is_in_range(minutes, minimum=0), "age of a way")
    expect(cost is None or is_in_range(cost, minimum=0), "cost of a way")
    expect(flag is None or (is_int(flag) and flag in (0, 1)), "state of a battery known here")
    return RouteToHub(hops, minutes or 0, cost or 0, bool(flag))


def _read_source(station: Any, sequence: Any) -> Source:
    expect(
        is_in_range(station, minimum=1) and is_in_range(sequence, minimum=0), "station and number"
    )
    return Source(station, sequence)


def _read_author_mark(station: Any, transmissions: Any) -> AuthorMark:
    expect(
        is_in_range(station, minimum=1) and is_in_range(transmissions, minimum=0), "station and way"
    )
    return AuthorMark(station, transmissions)


def _read_estimated_position(position: Any, radius: Any) -> EstimatedPosition:
    expect(is_in_range(radius, minimum=0, maximum=RADIUS_MAX_KM), "radius in kilometres")
    return EstimatedPosition(*decode_position(position), radius)


def _read_journal_number(flag: Any) -> JournalNumber:
    expect(is_int(flag) and flag in (0, 1), "question known here")
    return JournalNumber(bool(flag))


def _read_unauthenticated_mark(proof: Any) -> UnauthenticatedMark:
    expect(is_int(proof) and proof == 0, "kind of proof known here")
    return UnauthenticatedMark()


def _read_receipt(station: Any, digest: Any, stage: Any = None, text: Any = None) -> Receipt:
    station = 0 if station is None else station
    expect(is_in_range(station, minimum=0), "number of the station that has it")
    expect(len(read_bytes(digest)) == DIGEST_BYTES, "digest of 4 bytes")
    expect(stage is None or is_in_range(stage, minimum=0, maximum=max(Stage)), "stage known here")
    return Receipt(station, digest, Stage(stage or 0), "" if text is None else read_text(text))


def _read_contact(phone: Any = None, email: Any = None) -> Contact:
    return Contact(*("" if value is None else read_text(value) for value in (phone, email)))


def _read_introduction(*members: Any) -> Introduction:
    return Introduction(Identity(*(read_text(member) for member in members)))


def _read_check_in(time: int, minutes: Any = None) -> CheckIn:
    expect(minutes is None or is_in_range(minutes, minimum=1), "minutes")
    return CheckIn(minutes and min(minutes * 60, CHECK_IN_MAX))


def _read_parcel(time: int, station: Any, body: Any, minutes: Any = None) -> Parcel:
    expect(station is None or is_in_range(station, minimum=1), "station")
    expect(minutes is None or is_in_range(minutes, minimum=0), "minutes")
    return Parcel(read_bytes(body), station or 0, minutes)


def _read_unreadable(time: int, size: Any, guard: Any = None) -> Unreadable:
    expect(is_in_range(size, minimum=0), "size in bytes")
    expect(guard is None or is_in_range(guard, minimum=0, maximum=0xFFFF), "guard of 16 bits")
    return Unreadable(size, guard)


Kinds = dict[int, tuple[type[Content], Callable[..., Content], Callable[[Any], list[Any]]]]
"""Kinds of entries by number (docs/reference/on-air.md, "Entries"): type, reader and writer. The
reader raises ValueError. Both functions handle the elements after number and sequence."""

_TIMED_KINDS: Kinds = {
    0: (CheckIn, _read_check_in, lambda item: [item.within_s and item.within_s // 60]),
    1: (
        Message,
        lambda time, content: Message(decode_text(content)),
        lambda item: [encode_text(item.content)],
    ),
    2: (Location, decode_location, encode_location),
    3: (
        Waypoint,
        decode_waypoint,
        lambda item: [encode_position(item.latitude, item.longitude), item.name, item.notes],
    ),
    4: (Data, lambda time, payload: Data(read_bytes(payload)), lambda item: [item.payload]),
    11: (
        Receipt,
        lambda time, by, digest, *reach: _read_receipt(by, digest, *reach),
        lambda said: [said.by or None, said.digest, said.stage or None, said.text or None],
    ),
    32: (IncidentUpdate, decode_incident_update, encode_incident_update),
    35: (Unreadable, _read_unreadable, lambda said: [said.size, said.guard]),
    37: (CommandAnswer, decode_answer, encode_answer),
    38: (Parcel, _read_parcel, lambda item: [item.station or None, item.body, item.minutes]),
}
"""Kinds with a time, which a reader gets first, as Unix time."""

_UNTIMED_KINDS: Kinds = {
    5: (Contact, _read_contact, lambda who: [who.phone or None, who.email or None]),
    6: (
        EstimatedPosition,
        _read_estimated_position,
        lambda seen: [encode_position(seen.latitude, seen.longitude), seen.radius],
    ),
    7: (JournalNumber, _read_journal_number, lambda number: [int(number.wants_names)]),
    8: (Fragment, _read_fragment, lambda part: [part.index, part.count, part.payload]),
    9: (Report, _read_report, lambda said: [said.count, _encode_bitmap(said)]),
    10: (Introduction, _read_introduction, _encode_introduction),
    12: (Ack, _read_ack, _encode_ack),
    13: (RelayRequest, _read_relay_request, lambda asked: [asked.station]),
    14: (Source, _read_source, lambda said: [said.station, said.sequence]),
    15: (UnauthenticatedMark, _read_unauthenticated_mark, lambda said: [0]),
    33: (
        RouteToHub,
        _read_route,
        lambda way: [
            way.hops,
            way.minutes or None,
            way.cost or None,
            int(way.is_battery_low) or None,
        ],
    ),
    34: (AuthorMark, _read_author_mark, lambda said: [said.station, said.transmissions]),
    36: (RemoteCommand, decode_command, encode_command),
    39: (
        Program,
        lambda version: Program(decode_version(read_bytes(version))),
        lambda own: [encode_version(own.version)],
    ),
}

_TEXTS = {1: 3, 3: 4}
"""For each kind of entry with texts, the index of the first text element, which may be packed."""

_KIND_OF = {row[0]: kind for kind, row in (*_TIMED_KINDS.items(), *_UNTIMED_KINDS.items())}
