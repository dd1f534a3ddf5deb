"""The on-air format with the vectors of its description, and with garbage."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package import canned
from fieldagent.package.delivery import Stage
from fieldagent.package.package import (
    CHECK_IN_MAX,
    FIRST_DATE,
    LAST_DATE,
    CheckIn,
    CommandAnswer,
    CommandOutcome,
    Data,
    IncidentState,
    IncidentUpdate,
    Location,
    Message,
    Parcel,
    PositionSource,
    Waypoint,
)
from fieldagent.package.payload import Identity
from fieldagent.wire import envelope
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import (
    EPOCH,
    Ack,
    AuthorMark,
    Contact,
    Entry,
    EstimatedPosition,
    Fragment,
    Introduction,
    JournalNumber,
    Program,
    Receipt,
    RelayRequest,
    Report,
    RouteToHub,
    Source,
    UnauthenticatedMark,
    Unreadable,
    compute_item_digest,
    decode,
    derive_key,
    encode,
)
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.fragments import find_missing_fragments, join, split
from fieldagent.wire.items import encode_location
from fieldagent.wire.parcel import DOWN, UP, wrap
from fieldagent.wire.proof import derive_command_key, derive_proof_key, prove_update
from fieldagent.wire.proof import prove_command as prove_command

TIME = 1_790_000_000
MOMENT, MINUTE = datetime.fromtimestamp(TIME, UTC), timedelta(minutes=1)
KEY, AIR_KEY = (derive_key(bytes(range(32)), direction) for direction in ("MO", "AIR"))
ADA = Identity("42", "Ada", "User", "ada@example.org", "7")

DIGEST = bytes.fromhex("a1b2c3d4")
PROOF_KEY = derive_proof_key(bytes(range(32)))
COMMAND_KEY = derive_command_key(bytes(range(32)))
CAMP = Message("Camp reached")
NOBODY = "nobody here is called dora"

DOWN_BODY = wrap([Entry(7, Message("Camp reached"), TIME)], bytes(range(32)), DOWN, origin=1)
HAS_IT = Receipt(digest=compute_item_digest(Entry(7, Message("Camp reached"), TIME)))
UP_BODY = wrap([Entry(7, HAS_IT, TIME)], bytes(range(32)), UP)
CONTENTS: dict[str, tuple[list[Entry], int, bytes | None]] = {
    "message 7": ([Entry(7, Message("Camp reached"), TIME)], 0, None),
    "SOS message 8": ([Entry(8, Message("Leg broken"), TIME, sos=True)], 0, None),
    "location 1234": (
        [Entry(1234, Location(47.3769123, -122.1234567, MOMENT, 1408, 27.9, 278), TIME)],
        0,
        None,
    ),
    "location 9": ([Entry(9, Location(-33.8568, 151.2153, MOMENT), TIME)], 0, None),
    "waypoint 10": (
        [Entry(10, Waypoint(46.5, 7.25, "Hut", MOMENT, "Water behind it"), TIME)],
        0,
        None,
    ),
    "command status of 1790000000": (
        [Entry(TIME, prove_command(TIME, RemoteCommand(1), COMMAND_KEY))],
        0,
        None,
    ),
    "command show 1234 in 100 bytes": (
        [Entry(TIME + 1, prove_command(TIME + 1, RemoteCommand(3, (1234, 100)), COMMAND_KEY))],
        0,
        None,
    ),
    "answer 31": (
        [Entry(31, CommandAnswer(TIME, CommandOutcome.REFUSED, b"\x00no"), TIME)],
        0,
        None,
    ),
    "check-in 33": ([Entry(33, CheckIn(4 * 3600), TIME)], 0, None),
    "check-in 34": ([Entry(34, CheckIn(), TIME)], 0, None),
    "data 11": ([Entry(11, Data(b"\x00\xff\x10"), TIME)], 0, None),
    "messages 12": ([Entry(12, Message("a"), TIME), Entry(13, Message("b"), TIME - 30)], 0, None),
    "fragment 1": ([Entry(14, Fragment(1, 3, b"\x01\x02"))], 0, None),
    "introduction of 1": (
        [Entry(1, Introduction(ADA), TIME), Entry(20, Message("hi"), TIME)],
        1,
        None,
    ),
    "12 of station 7": ([Entry(12, Ack(7, digest=DIGEST))], 5, None),
    "all 9 of 13 of station 7": (
        [Entry(13, Ack(7, 9, frozenset(range(9)), True, DIGEST))],
        5,
        None,
    ),
    "report on 14": ([Entry(14, Report(3, frozenset({0, 2}), DIGEST), TIME)], 0, None),
    "a message of 120 bytes could not be read, guard 1234": (
        [Entry(0, Unreadable(120, 0x1234), TIME)],
        0,
        None,
    ),
    "a message of 120 bytes could not be read": ([Entry(0, Unreadable(120), TIME)], 0, None),
    "receipt of 14": ([Entry(14, Receipt(digest=DIGEST), TIME)], 0, None),
    "receipt of 14 by 1": ([Entry(14, Receipt(1, DIGEST), TIME)], 0, None),
    "for user 12": ([Entry(7, CAMP, TIME, to=12, wants_receipt=True)], 0, None),
    "for group 3": ([Entry(7, CAMP, TIME, to=-3)], 0, None),
    'for "ada"': ([Entry(7, CAMP, TIME, to="ada")], 0, None),
    "by user 5": ([Entry(7, CAMP, TIME, author=5)], 0, None),
    "read: 14": ([Entry(14, Receipt(1, DIGEST, Stage.READ, "Ben"), TIME)], 0, None),
    "nobody: 14": ([Entry(14, Receipt(0, DIGEST, Stage.NOBODY, NOBODY), TIME)], 0, None),
    "with programs: 14": ([Entry(14, Receipt(0, DIGEST, Stage.PROGRAMS), TIME)], 0, None),
    "SOS position 12 of the incident 8": (
        [Entry(12, Location(46.5, 7.25, MOMENT), TIME, sos=True, items_back=4)],
        0,
        None,
    ),
    "the incident 8 is open": ([Entry(0, IncidentUpdate(8, IncidentState.OPEN), TIME)], 0, None),
    "the incident 8 is called off, number 13": (
        [Entry(13, prove_update(IncidentUpdate(8, IncidentState.CALLED_OFF), PROOF_KEY), TIME)],
        0,
        None,
    ),
    "Olga has seen the incident 8": (
        [
            Entry(
                0,
                prove_update(
                    IncidentUpdate(8, IncidentState.SEEN, by="Olga", text="heli"), PROOF_KEY
                ),
                TIME,
            )
        ],
        0,
        None,
    ),
    "canned words 1 as SOS message 9": ([Entry(9, Message("injury"), TIME, sos=True)], 0, None),
    "canned words 30 as SOS message 10": (
        [Entry(10, Message("bleeding"), TIME, sos=True, items_back=1)],
        0,
        None,
    ),
    "Olga has seen the incident 8, and says canned words 17": (
        [
            Entry(
                0,
                prove_update(
                    IncidentUpdate(8, IncidentState.SEEN, by="Olga", text="help is on its way"),
                    PROOF_KEY,
                ),
                TIME,
            )
        ],
        0,
        None,
    ),
    "SOS position 14 of the incident 8, by the browser": (
        [
            Entry(
                14,
                Location(46.5, 7.25, MOMENT, source=PositionSource.BROWSER),
                TIME,
                sos=True,
                items_back=6,
            )
        ],
        0,
        None,
    ),
    "Ben, at station 5, has the incident 8 of station 7": (
        [Entry(21, IncidentUpdate(8, IncidentState.SEEN, 7, "Ben"), TIME)],
        5,
        None,
    ),
    "12, 13 and 15 of station 7": (
        [Entry(12, Ack(7, 0, frozenset({0, 1, 3}), False, DIGEST))],
        5,
        None,
    ),
    "12 of station 7 goes no further": (
        [Entry(12, Ack(7, digest=DIGEST, missing_at=(9,)))],
        5,
        None,
    ),
    "the hub has 12": ([Entry(12, Ack(7, by_hub=True, digest=DIGEST))], 5, None),
    "a satellite gateway has 12": ([Entry(12, Ack(7, is_at_gateway=True, digest=DIGEST))], 5, None),
    "station 7's callsign": ([Entry(0, Introduction(Identity("", "N0CALL-7", "")))], 7, None),
    "journal 70000001": ([Entry(70_000_001, JournalNumber(wants_names=True))], 0, None),
    "SOS message 31 that nobody": (
        [Entry(31, Message("help"), TIME, sos=True), Entry(31, UnauthenticatedMark())],
        1,
        None,
    ),
    "the hub is behind two others": ([Entry(0, RouteToHub(2, 5))], 5, None),
    "the hub is behind station 5 and an empty battery": (
        [Entry(0, RouteToHub(1, 0, 0, is_battery_low=True))],
        5,
        None,
    ),
    "the program of station 5 is": ([Entry(0, Program("0.1.0+12"))], 5, None),
    "message 7 of station 7 again": (
        [Entry(0, AuthorMark(7, 1), TIME), Entry(7, Message("Camp reached"), TIME)],
        5,
        None,
    ),
    "SOS message 12 of station 7": (
        [Entry(12, Message("help"), TIME, sos=True), Entry(0, RelayRequest(0))],
        7,
        None,
    ),
    "SOS message 12, of station 7, again": (
        [
            Entry(12, Message("help"), TIME, sos=True),
            Entry(0, Source(5, 1)),
            Entry(12, Source(9, 0)),
        ],
        7,
        None,
    ),
    "SOS message 30": (
        [Entry(30, Message("help"), TIME, sos=True), Entry(30, Source(7, 12))],
        1,
        None,
    ),
    "message 31": (
        [Entry(31, Message("call me"), TIME), Entry(31, Contact("+41 79 000"))],
        1,
        None,
    ),
    "SOS message 32": (
        [Entry(32, Message("help"), TIME, sos=True), Entry(32, EstimatedPosition(46.5, 7.25, 3))],
        1,
        None,
    ),
    "parcel with message 7": ([Entry(0, Parcel(DOWN_BODY, 7, 60), TIME)], 0, None),
    "parcel 13 of station 7": ([Entry(13, Parcel(UP_BODY), TIME)], 7, None),
    "packed message 7": ([Entry(7, Message("Camp reached"), TIME)], 0, None),
    "packed waypoint 10": (
        [Entry(10, Waypoint(46.5, 7.25, "Hut", MOMENT, "Water behind it"), TIME)],
        0,
        None,
    ),
    "packed locations 40": (
        [
            Entry(
                40 + n,
                Location(46.5 + n / 1000, 7.25, datetime.fromtimestamp(TIME + 60 * n, UTC)),
                TIME + 60 * n,
            )
            for n in range(3)
        ],
        0,
        None,
    ),
    "packed messages 50000000": (
        [
            Entry(50_000_000, Message("Camp reached"), TIME),
            Entry(50_000_001, Message("Camp reached"), TIME - 30, to=12, wants_receipt=True),
            Entry(14, Receipt(digest=DIGEST), TIME),
        ],
        0,
        KEY,
    ),
    "packed message 20": (
        [Entry(1, Introduction(ADA), TIME), Entry(20, Message("hi"), TIME)],
        1,
        None,
    ),
    "packed locations 50": (
        [
            Entry(50, Location(46.5, 7.25, MOMENT, 1408, 1.3, 350), TIME),
            Entry(51, Location(46.501, 7.25, MOMENT + MINUTE, 1420, 1.1, 10), TIME + 60),
            Entry(53, Location(46.502, 7.251, MOMENT + 2 * MINUTE), TIME + 120),
        ],
        0,
        None,
    ),
    "message 7, tagged": ([Entry(7, Message("Camp reached"), TIME)], 0, KEY),
    "message 7 of station 7, tagged": ([Entry(7, Message("Camp reached"), TIME)], 7, AIR_KEY),
}


def vectors() -> dict[str, bytes]:
    text = (Path(__file__).parents[2] / "docs/reference/on-air-vectors.json").read_text()
    examples = {}
    for name, content in json.loads(text)["envelopes"].items():
        matching = [known for known in CONTENTS if name.startswith(known)]
        examples[max(matching, key=len)] = bytes.fromhex(content)
    return examples


def test_every_documented_vector_is_tested() -> None:
    assert vectors().keys() == CONTENTS.keys()


@pytest.mark.parametrize("name", CONTENTS)
def test_vectors_are_written(name: str) -> None:
    entries, origin, key = CONTENTS[name]
    packed = name.startswith("packed ")
    assert encode(entries, origin=origin, key=key, is_packed=packed) == vectors()[name]


@pytest.mark.parametrize("name", CONTENTS)
def test_vectors_are_read(name: str) -> None:
    entries, origin, key = CONTENTS[name]
    envelope = decode(vectors()[name], keys=[key] if key else [])
    untimed = (
        Introduction,
        JournalNumber,
        Fragment,
        Ack,
        RelayRequest,
        AuthorMark,
        Source,
        RouteToHub,
        UnauthenticatedMark,
        Contact,
        EstimatedPosition,
    )
    expected = [
        Entry(
            e.sequence,
            e.content,
            EPOCH if isinstance(e.content, untimed) else e.time,
            e.sos,
            e.items_back,
            e.to,
            e.wants_receipt,
            e.author,
        )
        for e in entries
    ]
    assert (list(envelope.entries), envelope.origin) == (expected, origin)
    assert not envelope.not_understood


@pytest.mark.parametrize("name", CONTENTS)
def test_packed_envelope_contains_the_same_entries(name: str) -> None:
    """A kit that cannot read a dispatcher's answer over satellite would lose it."""
    entries, origin, _key = CONTENTS[name]
    plain = decode(encode(entries, origin=origin))
    packed = decode(encode(entries, origin=origin, is_packed=True))
    assert not packed.not_understood
    assert sorted(packed.entries, key=str) == sorted(plain.entries, key=str)


def make_packed_entries() -> Iterator[Entry]:
    """Yield each kind of item with people's text."""
    words = "Help is on its way, the helicopter comes at noon"
    yield Entry(7, Message(words), TIME)
    yield Entry(7, Message(words), TIME, sos=True)
    yield Entry(7, Waypoint(46.5, 7.25, words, MOMENT, words), TIME)
    for says in IncidentState:
        yield Entry(0, IncidentUpdate(8, says, 7, words, words), TIME)


@pytest.mark.parametrize("entry", [*make_packed_entries()], ids=str)
def test_long_texts_survive_packing(entry: Entry) -> None:
    assert decode(encode([entry], is_packed=True)).entries == (entry,)


def test_documented_entry_kinds_match_the_code() -> None:
    """The page lists each kind by its number, with or without a time."""
    text = (Path(__file__).parents[2] / "docs/reference/on-air.md").read_text()
    _, _, section = text.partition("\n## Entries\n")
    rows = re.findall(r"^\| (\d+) \S+ \| ([^|]+) \|", section.partition("\n## ")[0], re.M)
    described = {int(number): elements.startswith("time") for number, elements in rows}
    assert described == dict.fromkeys(envelope._TIMED_KINDS, True) | dict.fromkeys(
        envelope._UNTIMED_KINDS, False
    )


def test_documented_canned_texts_match_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/on-air.md").read_text()
    _, _, section = text.partition("\n## Canned words\n")
    rows = re.findall(r"(?<=[|]) (\d+) \| ([^|]+?) (?=[|])", section.partition("\n## ")[0])
    assert {int(number): words for number, words in rows} == canned.TEXT_BY_NUMBER
    lists = (canned.SOS_REASONS, canned.KIT_TEXTS, canned.HELPER_TEXTS, canned.DESK_TEXTS)
    assert {words for each in lists for words in each} == {*canned.TEXT_BY_NUMBER.values()} - {
        "SOS"
    }


@pytest.mark.parametrize("number", range(256))
def test_canned_text_takes_one_or_two_bytes_and_survives_encoding(number: int) -> None:
    """This includes texts of a later version, which a kit passes on."""
    words = canned.get_text(number)
    entry = Entry(9, Message(words), TIME, sos=True)
    body = encode([entry])
    assert len(body) == len(encode([replace(entry, content=Message(""))])) + (number > 23)
    assert decode(body).entries == (entry,)
    assert words.lower() == words or words == "SOS"


def test_item_digest_covers_content_number_and_sos() -> None:
    one, other = Entry(7, Message("help"), TIME, sos=True), Entry(7, Message("hello"), TIME)
    assert compute_item_digest(one).hex() == "18739dab"
    assert (
        len(
            {
                compute_item_digest(one),
                compute_item_digest(other),
                compute_item_digest(replace(one, sequence=8)),
            }
        )
        == 3
    )


@pytest.mark.parametrize(
    "entry",
    [
        [9, 14, 3, b"\5"],
        [11, 14, 0],
        [11, 14, 0, 1],
        [11, 14, 0, None, None, 1],
        [12, 12, 7],
        [12, 12, 7, 1, b"\1"],
        [12, 12, 7, 0, b"\3"],
        [12, 12, 7, 1, b"\1abc"],
    ],
    ids=str,
)
def test_confirmation_without_its_items_digest_is_refused(entry: list[object]) -> None:
    envelope = decode(cbor2.dumps([1, TIME, 5, entry, [1, 9, 0, "good"]]))
    assert [each.content for each in envelope.entries] == [Message("good")]
    assert len(envelope.not_understood) == 1


def test_documented_air_key_matches_the_code() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/on-air.md").read_text()
    assert f"or AIR, whose key is `{AIR_KEY.hex()}`" in text


def test_every_truncated_vector_raises() -> None:
    for body in vectors().values():
        for cut in range(len(body)):
            with pytest.raises(RemoteProtocolError):
                decode(body[:cut])


times = st.integers(0, 4_000_000_000)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)
latitudes = st.integers(-900_000_000, 900_000_000).map(lambda n: n / 1e7)
longitudes = st.integers(-1_800_000_000, 1_800_000_000).map(lambda n: n / 1e7)
locations = st.builds(
    Location,
    latitudes,
    longitudes,
    st.none(),
    st.none() | st.integers(-12_000, 100_000).map(float),
    st.none() | st.integers(0, 100_000).map(lambda n: n / 10),
    st.none() | st.integers(0, 359).map(float),
)
sourced = st.builds(replace, locations, source=st.sampled_from(PositionSource))
waypoints = st.builds(Waypoint, latitudes, longitudes, texts, st.none(), st.none() | texts)
items = st.one_of(
    st.builds(Message, texts),
    locations,
    sourced,
    waypoints,
    st.builds(Data, st.binary(max_size=400)),
)


persons = st.none() | st.one_of(
    st.integers(1, 2**32 - 1),
    st.integers(-(2**32) + 1, -1),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=254),
)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    time = draw(times)
    item = draw(items)
    if isinstance(item, Location | Waypoint):
        moment = datetime.fromtimestamp(time, UTC)
        item = type(item)(**{**{n: getattr(item, n) for n in item.__slots__}, "timestamp": moment})
    whom, asks, whose = draw(persons), draw(st.booleans()), draw(persons)
    number, sos = draw(st.integers(0, 2**32 - 1)), draw(st.booleans())
    return Entry(number, item, time, sos, 0, whom, asks, whose)


@given(st.lists(entries(), min_size=1, max_size=6), st.integers(0, 1000), st.booleans())
def test_envelope_survives_encoding(sent: list[Entry], origin: int, tagged: bool) -> None:
    body = encode(sent, origin=origin, key=KEY if tagged else None)
    envelope = decode(body, keys=[bytes(32), KEY] if tagged else [])
    assert list(envelope.entries) == sent
    assert envelope.origin == origin


@given(st.binary(max_size=300))
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode(body)


@pytest.mark.parametrize(
    "address",
    [
        [0],
        [True],
        [1.5],
        [""],
        ["a" * 255],
        [b"ada"],
        [2**32],
        [12, 2],
        [12, True],
        [None, None, 0],
    ],
    ids=str,
)
def test_item_with_an_invalid_recipient_is_reported_as_not_understood(
    address: list[object],
) -> None:
    plain = [1, 7, 0, "hi"]
    for addressed in ([plain, *address], [[plain], *address], [[9, 1, 3, b"\5"], *address]):
        envelope = decode(cbor2.dumps([1, 0, 0, addressed, [1, 9, 0, "good"]]))
        assert [entry.content for entry in envelope.entries] == [Message("good")]
        assert len(envelope.not_understood) == 1


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats()
    | st.binary()
    | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=12,
)


@given(st.lists(st.lists(values, max_size=8), max_size=4))
def test_entries_of_any_shape_are_reported_without_an_error(shapes: list[list[object]]) -> None:
    good = [1, 9, 0, "good"]
    envelope = decode(cbor2.dumps([1, 0, 0, *shapes, good]))
    assert envelope.entries[-1].content == Message("good")
    assert len(envelope.entries) + len(envelope.not_understood) == len(shapes) + 1


@pytest.mark.parametrize(
    "body",
    [b"\x81" * 340, b"\xc4" * 340, bytes.fromhex("9bffffffffffffffff"), b"\x5b" + b"\xff" * 8],
    ids=["deep arrays", "deep tags", "array without end", "string without end"],
)
def test_decompression_and_nesting_bombs_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (cbor2.dumps([2, 0, 0, [1, 1, 0, "x"]]), "version 2"),
        (cbor2.dumps([1]), "time or origin"),
        (cbor2.dumps([1, 0, -1]), "time or origin"),
        (cbor2.dumps({"v": 1}), "not an envelope"),
        (b"", "not CBOR"),
    ],
)
def test_unusable_envelope_raises_with_the_reason(body: bytes, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said):
        decode(body)


BOUNDED: list[tuple[Entry, object]] = [
    (Entry(1, Location(1, 2, None, 100_001.0)), Location(1, 2, MOMENT)),
    (Entry(1, Location(1, 2, None, -12_001.0)), Location(1, 2, MOMENT)),
    (Entry(1, Location(1, 2, None, None, 10_000.1)), Location(1, 2, MOMENT)),
    (Entry(1, CheckIn((2**32 - 1) * 60)), CheckIn(CHECK_IN_MAX)),
    (Entry(1, EstimatedPosition(1, 2, 20_101)), None),
]
"""An entry with a value outside its limits, and its decoded content. None means no entry."""


@pytest.mark.parametrize(("sent", "read"), BOUNDED)
def test_out_of_range_value_is_omitted(sent: Entry, read: object) -> None:
    entries = decode(encode([replace(sent, time=TIME)])).entries
    assert [entry.content for entry in entries] == ([] if read is None else [read])


@pytest.mark.parametrize("time", [EPOCH - 2**32 + 1, -1, 4_291_747_200, EPOCH + 2**32 - 1])
@pytest.mark.parametrize("sos", [False, True])
def test_impossible_date_is_moved_to_the_nearer_bound(time: int, sos: bool) -> None:
    """The item stays, also an SOS, and is confirmed with the date of its sender."""
    bound = FIRST_DATE if time < 0 else LAST_DATE
    for item in (Location(1, 2), Waypoint(1, 2, "Hut")):
        sent = Entry(1, item, time, sos)
        (read,) = decode(encode([sent])).entries
        assert read.content == replace(item, timestamp=bound)
        assert compute_item_digest(read) == compute_item_digest(sent)


@pytest.mark.parametrize("bit", range(0, 34 * 8, 7))
def test_tag_detects_every_flipped_bit(bit: int) -> None:
    body = bytearray(encode([Entry(7, Message("Camp reached"), TIME)], key=KEY))
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(RemoteProtocolError):
        decode(bytes(body), keys=[KEY])


def test_untagged_message_is_refused_if_a_key_is_set() -> None:
    with pytest.raises(RemoteProtocolError, match="tag"):
        decode(encode([Entry(7, Message("x"), TIME)]), keys=[KEY])


@given(entries().filter(lambda entry: isinstance(entry.content, Location)))
def test_position_takes_no_more_bytes_than_documented(entry: Entry) -> None:
    assert isinstance(entry.content, Location)
    members = [0, *encode_location(replace(entry.content, source=None))]
    assert len(b"".join(cbor2.dumps(member) for member in members)) <= 18 + 4 * (
        (entry.content.altitude or 0) > 65535 or (entry.content.speed_over_ground or 0) > 6553
    )


@given(st.binary(min_size=1, max_size=6000), st.integers(60, 340), st.randoms())
def test_fragments_fit_and_join_in_any_order(whole: bytes, room: int, chance: object) -> None:
    parts = split(whole, room)
    for part in parts:
        assert len(encode([Entry(2**32 - 1, part)])) <= room
    shuffled = sorted(parts, key=lambda part: hash((part.index * 7919) % 13))
    assert join({part.index: part.payload for part in shuffled}) == whole


@pytest.mark.parametrize(
    ("held", "tries", "worth"),
    [
        ([], 0, [0, 1, 2, 3]),
        ([], 5, [1, 2, 3, 0]),
        ([{1, 2}], 0, [0, 3]),
        ([{0, 1}, {1, 2}], 0, [3, 0, 2]),
        ([{0, 1}, {2, 3}], 0, [0, 1, 2, 3]),
        ([{0, 1}, {2, 3}], 2, [2, 3, 0, 1]),
        ([{0, 1, 2, 3}], 3, []),
    ],
)
def test_fragments_missing_everywhere_are_sent_first(
    held: list[set[int]], tries: int, worth: list[int]
) -> None:
    assert find_missing_fragments(4, held, tries) == worth


def test_fragments_of_two_envelopes_do_not_join() -> None:
    one, other = split(b"a" * 500, 100), split(b"b" * 500, 100)
    slices = {part.index: part.payload for part in one} | {1: other[1].payload}
    with pytest.raises(RemoteProtocolError, match="CRC"):
        join(slices)


def test_too_many_fragments_and_empty_envelopes_raise_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        split(bytes(100_000), 340)
    with pytest.raises(LocalProtocolError):
        encode([])
