"""The on-air format: one envelope of CBOR (RFC 8949) around one or more entries.

Byte by byte, with test vectors, it is described in `docs/reference/on-air.md`. Whatever a peer
sends, `decode` returns what it understood, names what it did not, or raises RemoteProtocolError.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fieldagent.package.package import (
    CHECK_IN_MAX,
    CheckIn,
    CommandAnswer,
    Data,
    IncidentWord,
    Item,
    Location,
    Message,
    Parcel,
    Person,
    Waypoint,
)
from fieldagent.package.payload import Identity
from fieldagent.package.reach import Stage
from fieldagent.package.reading import WrongValue, read_person
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.bitmap import DIGEST_BYTES, read_bitmap, write_bitmap
from fieldagent.wire.command import (
    RemoteCommand,
    read_answer,
    read_command,
    write_answer,
    write_command,
)
from fieldagent.wire.envelope_form import EnvelopeParts, read_form, write_array, write_short
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.incident_word import (
    read_incident_word,
    read_words,
    write_incident_word,
    write_words,
)
from fieldagent.wire.kit_status import read_version, write_version
from fieldagent.wire.member import expect, in_range, is_int, read_bytes, read_text
from fieldagent.wire.places import (
    is_position,
    location_of,
    read_location,
    read_position,
    read_waypoint,
    track_fix,
    write_location,
    write_position,
)
from fieldagent.wire.tag import key_of
from fieldagent.wire.text_code import pack, unpack
from fieldagent.wire.track import COUNT_MAX, read_track, write_track

EPOCH = 1_735_689_600
"""2025-01-01T00:00:00Z in Unix time: the zero of every time on air, in seconds."""
PACKED_BYTES = 512
"""An envelope of more holds no packed text: reading hostile ones is not to take long."""
BEYOND_MAX = 8
"""Stations that an Ack names as lacking an item."""
RADIUS_MAX = 20_100
"""Kilometres: half of the way around the earth."""
LEFT = 1
"""The value of an Ack's *by hub* if a satellite gateway has the item."""
NO_WAY = 255
"""Hops of who does not reach the hub any more."""
SOS = 0x10
"""Added to the kind of an item that was posted as an SOS."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A slice of an envelope too large for one message; `count` slices make it whole."""

    index: int
    count: int
    slice: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """Which fragments of the peer's `sequence` have arrived: it sends the others again."""

    count: int
    arrived: frozenset[int]
    digest: bytes = b""
    """`digest_of_slices` of those that arrived."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The entry's sequence is from now on the number (the `origin`) of this identity."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Receipt:
    """How far the peer's `sequence` has come with one addressee, at that time."""

    by: int = 0
    """From the hub: the number (as an `origin`) of that addressee; 0 is the hub itself. To the hub:
    the station whose number `sequence` is; 0 is the hub, which gave it."""
    digest: bytes = b""
    """`digest_of` the item."""
    stage: Stage = Stage.STORED
    text: str = ""
    """Who has read it, by which service it goes on, or why nobody gets it."""


@dataclass(frozen=True, slots=True)
class Ack:
    """The item `sequence` of that station, or those fragments of it, is stored by the sender; with
    `count` 0, a holding: of the items from `sequence` on those that `arrived` counts, and no other.
    """

    station: int
    count: int = 1
    arrived: frozenset[int] = frozenset([0])
    by_hub: bool = False
    """The hub has it too, from the sender of this."""
    digest: bytes = b""
    """`digest_of` the item when it is whole, or else `digest_of_slices` of what arrived; of a
    holding without items there is none."""
    beyond: tuple[int, ...] = ()
    """Stations that lack it as far as the sender knows, which may not pass it on: it has crossed as
    many kits as allowed."""
    left: bool = False
    """The sender's satellite gateway has it. This does not show that the hub has it."""

    @property
    def whole(self) -> bool:
        """Return whether all fragments of the item are there; never so of a holding."""
        return len(self.arrived) == self.count > 0


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """That station is asked to bring the other entries to the hub, or nearer to it."""

    station: int
    """0: whoever hears it, as nobody is known to reach the hub."""


@dataclass(frozen=True, slots=True)
class Way:
    """The sender reaches the hub: by itself, or over so many others, as was known `minutes` ago."""

    hops: int
    """0 is by itself; `NO_WAY`: not any more."""
    minutes: int = 0
    cost: int = 0
    """The credits that it takes to bring a short message to the hub."""
    low: bool = False
    """The battery of somebody on it, the sender's too, is nearly empty."""


@dataclass(frozen=True, slots=True)
class Source:
    """The entry of the same sequence is what that station sent under a number of its own."""

    station: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SentBy:
    """The entries behind it are what that station sent, and go once more for who lacks them."""

    station: int
    transmissions: int
    """That had brought them to the sender of this; 0: they are its own."""


@dataclass(frozen=True, slots=True)
class Program:
    """The sender's program is of this version, such as 0.1.0+12."""

    version: str


@dataclass(frozen=True, slots=True)
class Unproved:
    """Nobody has proved that the entry of the same sequence, an SOS, is its sender's."""


@dataclass(frozen=True, slots=True)
class Contact:
    """Where the writer of the message of the same sequence can be reached; empty is not told.

    An entry of its own: who does not know it still has the message.
    """

    phone: str = ""
    email: str = ""


@dataclass(frozen=True, slots=True)
class SeenAt:
    """Where the satellite operator saw the sender of the entry of the same sequence, which has no
    position of its own: a guess, within `radius` kilometres."""

    latitude: float
    longitude: float
    radius: int


Beside = Contact | SeenAt | Source | Unproved
"""What is said of the item of the same sequence, which stands without it too."""


@dataclass(frozen=True, slots=True)
class JournalNumber:
    """The entry's sequence is the number of the sender's journal."""

    asks: bool = False
    """It lacks names: everybody is to be introduced to it anew."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """From a kit to the hub: a message of so many bytes came and could not be read."""

    size: int
    """As its modem told; 0 where that is not known."""
    guard: int | None = None
    """The two bytes that stood behind it to check it by, as a number; None where they lacked."""


Content = (
    Item
    | CheckIn
    | CommandAnswer
    | RemoteCommand
    | Unreadable
    | Contact
    | SeenAt
    | Fragment
    | Report
    | Introduction
    | Receipt
    | Ack
    | RelayRequest
    | Way
    | Source
    | SentBy
    | Program
    | Unproved
    | JournalNumber
)


@dataclass(frozen=True, slots=True)
class Entry:
    sequence: int
    """The number its sender gave it, the same on every channel and on every attempt."""
    content: Content
    time: int = EPOCH
    """Unix seconds: of the position, or of the posting of a message or data."""
    sos: bool = False
    back: int = 0
    """Of an item of an incident: how far the number of the item that raised it lies before its own.
    Its own number names the incident where this is 0."""
    to: Person | None = None
    """Whom an item is for; None is everybody."""
    asks: bool = False
    """Its sender wants to know when a person has read it."""
    author: Person | None = None
    """The person at its sender's kit who wrote it."""

    @property
    def addressed(self) -> bool:
        """Return whether it says for whom or by whom it is, or asks."""
        return self.to is not None or self.asks or self.author is not None


@dataclass(frozen=True, slots=True)
class Envelope:
    entries: tuple[Entry, ...]
    origin: int = 0
    """Whose entries these are: 0 is the peer itself, others were introduced before."""
    not_understood: tuple[str, ...] = ()
    """Entries of unknown kind or shape, each in a sentence for the log."""
    tagged: bool = False
    """It ends in what looks like a tag, which was checked if there were keys."""
    key: int | None = None
    """Which of the keys tagged it."""
    packed: bool = False
    """It has the short form, packed text, or a track: its sender reads such things, too."""


class Unauthenticated(RemoteProtocolError):
    """There are keys, and none of them tagged the envelope. `missing`: it bears no tag at all."""

    def __init__(self, *, missing: bool) -> None:
        super().__init__(f"the authentication tag is {'missing' if missing else 'wrong'}")
        self.missing = missing


def derive_key(master: bytes, direction: str) -> bytes:
    """Derive the key of one direction (`MO` or `MT`), by HKDF-SHA256 (RFC 5869) without salt."""
    extracted = hmac.digest(bytes(32), master, "sha256")
    return hmac.digest(extracted, f"fieldagent {direction}".encode() + b"\x01", "sha256")


FINGERPRINT_BYTES = 8


def fingerprint(entry: Entry) -> bytes:
    """Return the bytes that tell a number used anew, by who lost the journal, from a duplicate."""
    return hashlib.blake2b(encode([entry]), digest_size=FINGERPRINT_BYTES).digest()


def digest_of(entry: Entry) -> bytes:
    """Return what a confirmation of it bears: the start of its fingerprint."""
    return fingerprint(entry)[:DIGEST_BYTES]


def digest_of_slices(slices: Iterable[bytes]) -> bytes:
    """Return what a confirmation of some fragments bears: a digest of their slices, in order."""
    return hashlib.blake2b(b"".join(slices), digest_size=8).digest()[:DIGEST_BYTES]


def encode(
    entries: Sequence[Entry], *, origin: int = 0, key: bytes | None = None, packed: bool = False
) -> bytes:
    """Return the bytes of one envelope; times within it are told relative to its first entry's.

    With `packed` it has the short form, and texts and several positions in it take fewer bytes,
    unless it is too long for that. An SOS is told without: whoever has nothing but a CBOR reader
    reads it.
    """
    if not entries:
        raise LocalProtocolError("an envelope holds at least one entry")
    base = entries[0].time
    if packed:
        parts = EnvelopeParts(base - EPOCH, origin, _write_packed(entries, base))
        write = write_array if any(entry.sos for entry in entries) else write_short
        body = write(parts, key)
        if body is not None and len(body) <= PACKED_BYTES:
            return body
    return write_array(
        EnvelopeParts(base - EPOCH, origin, [_write_entry(e, base) for e in entries]), key
    )


def decode(body: bytes, *, keys: Sequence[bytes] = ()) -> Envelope:
    """Read one envelope. With `keys`, one of them must have tagged it.

    Raises RemoteProtocolError where nothing in it can be used: no CBOR, another version; and
    Unauthenticated.
    """
    parts = read_form(body)
    key = key_of(body, keys) if parts.tagged else None
    if keys and key is None:
        raise Unauthenticated(missing=not parts.tagged)
    may_pack = len(body) <= PACKED_BYTES
    envelope = _read_entries(parts.entries, parts.base + EPOCH, parts.origin, may_pack=may_pack)
    packed = envelope.packed or parts.short
    return replace(envelope, tagged=parts.tagged, key=key, packed=packed)


def _read_entries(entries: Sequence[Any], base: int, origin: int, *, may_pack: bool) -> Envelope:
    understood: list[Entry] = []
    not_understood, packed = [], False
    for position, entry in enumerate(entries):
        try:
            plain, *address = entry if _is_addressed(entry) else [entry]
            unpacked = _read_packed(plain, base) if may_pack else None
            parts = unpacked or [_read_entry(plain, base)]
            understood += [_address(each, *address) for each in parts] if address else parts
            packed = packed or unpacked is not None
        except RemoteProtocolError as error:
            not_understood.append(f"entry {position}: {error}")
    return Envelope(tuple(understood), origin, tuple(not_understood), packed=packed)


def _is_addressed(entry: Any) -> bool:
    return isinstance(entry, list) and 2 <= len(entry) <= 4 and isinstance(entry[0], list)


def _address(entry: Entry, to: Any, asks: Any = None, author: Any = None) -> Entry:
    if not isinstance(entry.content, Item):
        raise RemoteProtocolError("no item, and yet for somebody")
    if asks is not None and not (is_int(asks) and asks in (0, 1)):
        raise RemoteProtocolError("asks for something that is not known here")
    whom, whose = (None if each is None else _read_person(each) for each in (to, author))
    return replace(entry, to=whom, asks=bool(asks), author=whose)


def _read_person(value: Any) -> Person:
    try:
        return read_person(value)
    except WrongValue as wrong:
        raise RemoteProtocolError(f"a person {wrong}") from None


def _read_packed(entry: Any, base: int) -> list[Entry] | None:
    """Return what an entry with packed text, or a track, says; None of any other."""
    match entry:
        case [2, sequence, time, bytes(body)] if not is_position(body):
            try:
                expect(in_range(sequence, low=0) and in_range(time), "number and time")
                fixes = read_track(sequence, base + time, body)
                return [Entry(fix.sequence, location_of(fix), fix.time) for fix in fixes]
            except (ValueError, OverflowError) as error:
                raise RemoteProtocolError(f"a track is damaged: {error}") from error
        case [int(kind), *_] if any(isinstance(e, bytes) for e in entry[_TEXTS.get(kind, 99) :]):
            texts = entry[_TEXTS[kind] :]
            plain = [unpack(each) if isinstance(each, bytes) else each for each in texts]
            return [_read_entry([*entry[: _TEXTS[kind]], *plain], base)]
    return None


def _write_packed(entries: Sequence[Entry], base: int) -> list[list[Any]]:
    """With their texts packed, and several positions as one track."""
    fixes = {
        at: fix
        for at, entry in enumerate(entries)
        if isinstance(entry.content, Location)
        and not (entry.sos or entry.addressed)
        and (fix := track_fix(entry.sequence, entry.time, entry.content))
    }
    several = 1 < len(fixes) <= COUNT_MAX
    ordered = sorted(fixes.items(), key=lambda each: (each[1].sequence, each[1].time))
    track = dict(ordered) if several else {}
    written = []
    for at, entry in enumerate(entries):
        if at not in track:
            written.append(_write_entry(entry, base, packed=not entry.sos))
        elif at == next(iter(fixes)):
            first, *_ = together = [*track.values()]
            members = [first.sequence, first.time - base, write_track(together)]
            written.append([2, *members])
    return written


def _write_entry(entry: Entry, base: int, *, packed: bool = False) -> list[Any]:
    plain = _write_plain(entry, base, packed=packed)
    if not entry.addressed:
        return plain
    return _trimmed([plain, entry.to, int(entry.asks) or None, entry.author])


def _write_plain(entry: Entry, base: int, *, packed: bool) -> list[Any]:
    content = entry.content
    kind = _KIND_OF[type(content)]
    if kind in _UNTIMED:
        return _trimmed([kind, entry.sequence, *_UNTIMED[kind][2](content)])
    head = [kind | (SOS if entry.sos else 0), entry.sequence, entry.time - base]
    if entry.sos:
        head.append(entry.back)
    members = _TIMED[kind][2](content)
    if packed and kind in _TEXTS:
        members = [pack(each) if isinstance(each, str) else each for each in members]
    return _trimmed([*head, *members])


def _read_entry(entry: Any, base: int) -> Entry:
    if not isinstance(entry, list) or len(entry) < 3 or not in_range(entry[0], low=0):
        raise RemoteProtocolError("has no kind")
    kind, sequence, *rest = entry
    if not in_range(sequence, low=0):
        raise RemoteProtocolError("has no sequence number")
    try:
        if kind in _UNTIMED:
            said = _UNTIMED[kind][1](*rest)
            # That of a Report tells it from an earlier one of the same words.
            return Entry(sequence, said, base if isinstance(said, Report) else EPOCH)
        if kind & ~SOS not in _TIMED:
            raise RemoteProtocolError(f"kind {kind} is not known here")
        delta, *members = rest
        expect(in_range(delta), "a time")
        read = _TIMED[kind & ~SOS][1]
        if not kind & SOS:
            return Entry(sequence, read(base + delta, *members), base + delta)
        back, *members = members
        expect(in_range(back, low=0), "number of the incident")
        return Entry(sequence, read(base + delta, *members), base + delta, True, back)
    except (TypeError, ValueError, OverflowError) as error:
        raise RemoteProtocolError(f"kind {kind} is damaged: {error}") from error


def _bitmap(said: Report | Ack) -> bytes:
    return write_bitmap(said.arrived, said.count, said.digest)


def _write_ack(said: Ack) -> list[Any]:
    stations = [*said.beyond] or None
    reach = True if said.by_hub else LEFT if said.left else None
    return [said.station, said.count, _bitmap(said), reach, stations]


def _write_introduction(said: Introduction) -> list[Any]:
    who = said.identity
    return [who.id, who.name, who.type, who.email, who.account]


def _trimmed(members: list[Any]) -> list[Any]:
    while members[-1] is None:
        members.pop()
    return members


def _read_fragment(index: Any, count: Any, piece: Any) -> Fragment:
    expect(in_range(count, low=1, high=255), "count of fragments")
    expect(in_range(index, low=0, high=count - 1), "index of a fragment")
    return Fragment(index, count, read_bytes(piece))


def _read_report(count: Any, bitmap: Any) -> Report:
    expect(in_range(count, low=1, high=255), "count of fragments")
    return Report(count, *read_bitmap(read_bytes(bitmap), count))


def _read_ack(station: Any, count: Any, bitmap: Any, reach: Any = None, beyond: Any = None) -> Ack:
    expect(in_range(station, low=1), "station")
    expect(reach in (None, False, True, LEFT), "word of the hub")
    stations = [] if beyond is None else beyond
    expect(isinstance(stations, list) and len(stations) <= BEYOND_MAX, "stations beyond")
    expect(all(in_range(each, low=1) for each in stations), "stations beyond")
    if is_int(count) and count == 0:
        arrived, digest = read_bitmap(read_bytes(bitmap), 0)
        return Ack(station, 0, arrived, digest=digest)
    report = _read_report(count, bitmap)
    # Python takes True for 1, the value of LEFT.
    by_hub = reach is True
    details = by_hub, report.digest, tuple(stations), reach == LEFT and not by_hub
    return Ack(station, report.count, report.arrived, *details)


def _read_relay_request(station: Any) -> RelayRequest:
    expect(in_range(station, low=0), "station")
    return RelayRequest(station)


def _read_way(hops: Any, minutes: Any = None, cost: Any = None, low: Any = None) -> Way:
    expect(in_range(hops, low=0, high=NO_WAY), "hops to the hub")
    expect(minutes is None or in_range(minutes, low=0), "age of a way")
    expect(cost is None or in_range(cost, low=0), "cost of a way")
    expect(low is None or (is_int(low) and low in (0, 1)), "state of a battery known here")
    return Way(hops, minutes or 0, cost or 0, bool(low))


def _read_source(station: Any, sequence: Any) -> Source:
    expect(in_range(station, low=1) and in_range(sequence, low=0), "station and number")
    return Source(station, sequence)


def _read_sent_by(station: Any, transmissions: Any) -> SentBy:
    expect(in_range(station, low=1) and in_range(transmissions, low=0), "station and way")
    return SentBy(station, transmissions)


def _read_seen_at(position: Any, radius: Any) -> SeenAt:
    expect(in_range(radius, low=0, high=RADIUS_MAX), "radius in kilometres")
    return SeenAt(*read_position(position), radius)


def _read_journal(asks: Any) -> JournalNumber:
    expect(is_int(asks) and asks in (0, 1), "question known here")
    return JournalNumber(bool(asks))


def _read_unproved(proof: Any) -> Unproved:
    expect(is_int(proof) and proof == 0, "kind of proof known here")
    return Unproved()


def _read_receipt(by: Any, digest: Any, stage: Any = None, text: Any = None) -> Receipt:
    by = 0 if by is None else by
    expect(in_range(by, low=0), "number of who has it")
    expect(len(read_bytes(digest)) == DIGEST_BYTES, "digest of 4 bytes")
    expect(stage is None or in_range(stage, low=0, high=max(Stage)), "stage known here")
    return Receipt(by, digest, Stage(stage or 0), "" if text is None else read_text(text))


def _read_contact(phone: Any = None, email: Any = None) -> Contact:
    return Contact(*("" if value is None else read_text(value) for value in (phone, email)))


def _read_introduction(*members: Any) -> Introduction:
    return Introduction(Identity(*(read_text(member) for member in members)))


def _read_check_in(time: int, minutes: Any = None) -> CheckIn:
    expect(minutes is None or in_range(minutes, low=1), "minutes")
    return CheckIn(minutes and min(minutes * 60, CHECK_IN_MAX))


def _read_parcel(time: int, station: Any, body: Any, minutes: Any = None) -> Parcel:
    expect(station is None or in_range(station, low=1), "station")
    expect(minutes is None or in_range(minutes, low=0), "minutes")
    return Parcel(read_bytes(body), station or 0, minutes)


def _read_unreadable(time: int, size: Any, guard: Any = None) -> Unreadable:
    expect(in_range(size, low=0), "size in bytes")
    expect(guard is None or in_range(guard, low=0, high=0xFFFF), "guard of 16 bits")
    return Unreadable(size, guard)


Kinds = dict[int, tuple[type[Content], Callable[..., Content], Callable[[Any], list[Any]]]]
"""By its number each kind of entry (docs/reference/on-air.md, "Entries"): its type, its reader,
which raises ValueError, and its writer. Both know the elements behind number and sequence."""

_TIMED: Kinds = {
    0: (CheckIn, _read_check_in, lambda item: [item.within and item.within // 60]),
    1: (
        Message,
        lambda time, content: Message(read_words(content)),
        lambda item: [write_words(item.content)],
    ),
    2: (Location, read_location, write_location),
    3: (
        Waypoint,
        read_waypoint,
        lambda item: [write_position(item.latitude, item.longitude), item.name, item.notes],
    ),
    4: (Data, lambda time, payload: Data(read_bytes(payload)), lambda item: [item.payload]),
    11: (
        Receipt,
        lambda time, by, digest, *reach: _read_receipt(by, digest, *reach),
        lambda said: [said.by or None, said.digest, said.stage or None, said.text or None],
    ),
    32: (IncidentWord, read_incident_word, write_incident_word),
    35: (Unreadable, _read_unreadable, lambda said: [said.size, said.guard]),
    37: (CommandAnswer, read_answer, write_answer),
    38: (Parcel, _read_parcel, lambda item: [item.station or None, item.body, item.minutes]),
}
"""Those with a time, which a reader takes first, as Unix time."""

_UNTIMED: Kinds = {
    5: (Contact, _read_contact, lambda who: [who.phone or None, who.email or None]),
    6: (
        SeenAt,
        _read_seen_at,
        lambda seen: [write_position(seen.latitude, seen.longitude), seen.radius],
    ),
    7: (JournalNumber, _read_journal, lambda number: [int(number.asks)]),
    8: (Fragment, _read_fragment, lambda part: [part.index, part.count, part.slice]),
    9: (Report, _read_report, lambda said: [said.count, _bitmap(said)]),
    10: (Introduction, _read_introduction, _write_introduction),
    12: (Ack, _read_ack, _write_ack),
    13: (RelayRequest, _read_relay_request, lambda asked: [asked.station]),
    14: (Source, _read_source, lambda said: [said.station, said.sequence]),
    15: (Unproved, _read_unproved, lambda said: [0]),
    33: (
        Way,
        _read_way,
        lambda way: [way.hops, way.minutes or None, way.cost or None, int(way.low) or None],
    ),
    34: (SentBy, _read_sent_by, lambda said: [said.station, said.transmissions]),
    36: (RemoteCommand, read_command, write_command),
    39: (
        Program,
        lambda version: Program(read_version(read_bytes(version))),
        lambda own: [write_version(own.version)],
    ),
}

_TEXTS = {1: 3, 3: 4}
"""Kind of entry: from which element on it is texts, which may be packed."""

_KIND_OF = {row[0]: kind for kind, row in (*_TIMED.items(), *_UNTIMED.items())}
