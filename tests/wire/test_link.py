"""The IP link with the vectors of its description, with each rule, and with garbage."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.package import Message
from fieldagent.wire.backup_note import (
    BackupSummary,
    Copies,
    Copy,
    Direction,
    HeldItem,
    Inventory,
    InventoryRequest,
    InventoryRow,
    ItemRequest,
)
from fieldagent.wire.envelope import Entry, compute_fingerprint, encode
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.kit_condition import (
    POWER,
    SINCE_BOOT,
    THROTTLED,
    UNDER_VOLTAGE,
    KitCondition,
)
from fieldagent.wire.kit_note import (
    Directory,
    DirectoryEntry,
    HasDirectory,
    KitReport,
    ModemReport,
    OfferReport,
    ProgramOffer,
    SettingsOffer,
    StationsInRange,
    UpdateReport,
    decode,
)
from fieldagent.wire.link import (
    BODY_BYTES,
    NOTES,
    OVERHEAD_BYTES,
    WINDOW,
    Acknowledged,
    IpLink,
    LinkHello,
    LinkOpened,
    MessageReceived,
    NoCommonVersion,
    NoteReceived,
)
from tests.wire.test_command import STATUS

ENVELOPE = encode([Entry(7, Message("Camp reached"), 1_790_000_000)])


def pair(ours: LinkHello = LinkHello(), theirs: LinkHello = LinkHello()) -> tuple[IpLink, IpLink]:  # noqa: B008
    """Return two ends that have exchanged hellos."""
    one, other = IpLink(ours), IpLink(theirs)
    one.receive(other.make_hello())
    other.receive(one.make_hello())
    return one, other


def third_with(link: IpLink, bodies: tuple[bytes, ...]) -> bytes:
    """Return the third message, with these bodies."""
    numbered(link, 2)
    return link.send(bodies)[1]


def numbered(link: IpLink, count: int) -> bytes:
    """Return the last of `count` messages, when all others are acknowledged."""
    for number in range(1, count):
        link.make_ping()
        link.receive(cbor2.dumps([2, number]))
    return link.make_ping()[1]


def acknowledged_after(link: IpLink, peer: IpLink, count: int) -> bytes:
    for _ in range(count):
        peer.receive(link.make_ping()[1])
    return peer.acknowledge(count)


def noted(body: bytes) -> bytes:
    return pair(LinkHello(features=NOTES), LinkHello(features=NOTES))[0].make_note(body)


FELL_BACK = KitReport(UpdateReport("9.0.1", "9.0.0", "no agent answers"))
REFUSED = KitReport(None, OfferReport(7, "refused", "it is for another kit"))
WAITS = KitReport(program=OfferReport(7, "waiting"), installed="zipapp")
PROGRAM = ProgramOffer(7, "9.0.0", "https://example.org/9.0.0.pyz")
HEARD = KitReport(modems=(ModemReport("satellite", 3, None), ModemReport("radio", 4, 87)))
CONDITION = KitCondition(
    STATUS,
    "Debian 13.1",
    POWER,
    2,
    UNDER_VOLTAGE | THROTTLED << SINCE_BOOT,
    -3,
    {"satellite": [*[None] * 20, 0, 3, None, 5]},
)
DIRECTORY = Directory(
    3,
    1,
    (
        DirectoryEntry("user", 1, "Ada", ("!a1b2c3d4",)),
        DirectoryEntry("group", 1, "rescue", (), (1, 2)),
        DirectoryEntry("device", 4, "hut"),
    ),
)
LATER = Entry(70_000_002, Message("Camp reached"), 1_790_000_000)
SUMMARY = BackupSummary(
    HeldItem(70_000_002, compute_fingerprint(LATER)[:4]), 3, HeldItem(9, b"\x01\x02\x03\x04")
)
INVENTORY = Inventory(
    Direction.SENT,
    0,
    (InventoryRow(70_000_002, 0, 70_000_002, compute_fingerprint(LATER)[:4], 1_790_000_060),),
    (70_000_001, 70_000_002),
)
COPIES = Copies(Direction.SENT, (Copy(70_000_002, encode([LATER])),))
OFFER = SettingsOffer("fieldagent settings\n", "untrusted comment\n")
VECTORS = {
    "hello of an agent that takes notes": lambda: IpLink(
        LinkHello(features=NOTES, silence=300)
    ).make_hello(),
    "note, a report of an update": lambda: noted(FELL_BACK.encode()),
    "note, a report of settings": lambda: noted(REFUSED.encode()),
    "note, a report of a zipapp": lambda: noted(WAITS.encode()),
    "note, a report of modems": lambda: noted(HEARD.encode()),
    "note, how a kit is": lambda: noted(CONDITION.encode()),
    "note, an offer of a program": lambda: noted(PROGRAM.encode()),
    "note, the stations": lambda: noted(StationsInRange({9: 2, 7: 1}).encode()),
    "note, what the hub had last": lambda: noted(SUMMARY.encode()),
    "note, a question": lambda: noted(InventoryRequest(Direction.SENT, 0).encode()),
    "note, what a kit has": lambda: noted(INVENTORY.encode()),
    "note, an order": lambda: noted(ItemRequest(Direction.SENT, (70_000_002,)).encode()),
    "note, a copy": lambda: noted(COPIES.encode()),
    "note, which directory": lambda: noted(HasDirectory(0).encode()),
    "note, the directory": lambda: noted(DIRECTORY.encode()),
    "note, an offer": lambda: noted(OFFER.encode()),
    "hello of an agent whose journal": lambda: IpLink(
        LinkHello(silence=300, journal=70_000_001)
    ).make_hello(),
    "hello of an agent": lambda: IpLink(LinkHello(silence=300)).make_hello(),
    "hello of a hub": lambda: IpLink(LinkHello(features=NOTES)).make_hello(),
    "message 1,": lambda: pair()[0].send(ENVELOPE)[1],
    "message 2,": lambda: numbered(pair()[0], 2),
    "message 3,": lambda: third_with(pair()[0], (ENVELOPE, ENVELOPE)),
    "message 24,": lambda: numbered(pair()[0], 24),
    "acknowledgement of 2": lambda: acknowledged_after(*pair(), 2),
}


def described() -> dict[str, bytes]:
    text = (Path(__file__).parents[2] / "docs/reference/ip-link-vectors.json").read_text()
    rows = json.loads(text)
    names = {name: next(known for known in VECTORS if name.startswith(known)) for name in rows}
    return {names[name]: bytes.fromhex(content) for name, content in rows.items()}


def test_every_documented_vector_is_tested() -> None:
    assert described().keys() == VECTORS.keys()


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_written(name: str) -> None:
    assert VECTORS[name]() == described()[name]


def test_vectors_are_read() -> None:
    known = described()
    link = IpLink(LinkHello())
    opened = link.receive(known["hello of an agent"])
    assert opened == LinkOpened(1, 0, BODY_BYTES, WINDOW, silence=300)
    assert link.receive(known["message 1,"]) == MessageReceived(1, (ENVELOPE,))
    assert link.receive(known["message 2,"]) == MessageReceived(2, ())
    assert link.receive(known["message 3,"]) == MessageReceived(3, (ENVELOPE, ENVELOPE))
    link.make_ping(), link.send(ENVELOPE)
    assert link.receive(known["acknowledgement of 2"]) == Acknowledged((1, 2))


@pytest.mark.parametrize(
    ("ours", "theirs", "spoken"),
    [((1, 1), (1, 1), 1), ((1, 3), (2, 2), 2), ((1, 3), (2, 9), 3), ((2, 4), (1, 2), 2)],
)
def test_highest_common_version_is_used(
    ours: tuple[int, int], theirs: tuple[int, int], spoken: int
) -> None:
    opened = IpLink(LinkHello(*ours)).receive(IpLink(LinkHello(*theirs)).make_hello())
    assert isinstance(opened, LinkOpened)
    assert opened.version == spoken


@pytest.mark.parametrize(("ours", "theirs"), [((1, 1), (2, 3)), ((3, 4), (1, 2))])
def test_peers_without_a_common_version_raise(
    ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    with pytest.raises(NoCommonVersion, match="update the older one"):
        IpLink(LinkHello(*ours)).receive(IpLink(LinkHello(*theirs)).make_hello())


def test_note_is_read_if_both_ends_support_notes_and_skipped_otherwise() -> None:
    note = noted(FELL_BACK.encode())
    one, other = pair(LinkHello(features=NOTES), LinkHello(features=NOTES))
    assert other.receive(note) == NoteReceived(FELL_BACK.encode())
    assert decode(FELL_BACK.encode()) == FELL_BACK
    # It uses no number, and no place in the window.
    assert one.free == WINDOW and one.make_ping()[0] == 1
    older, hub = pair(LinkHello(), LinkHello(features=NOTES))
    assert older.receive(note) is None
    with pytest.raises(LocalProtocolError, match="accepts no notes"):
        hub.make_note(b"")


@pytest.mark.parametrize("members", [[], [1], ["text"], [bytes(BODY_BYTES + 1)]])
def test_damaged_note_raises(members: list[Any]) -> None:
    one, _ = pair(LinkHello(features=NOTES), LinkHello(features=NOTES))
    with pytest.raises(RemoteProtocolError, match="a note has no body"):
        one.receive(cbor2.dumps([3, *members]))


def test_only_common_features_are_used() -> None:
    opened = IpLink(LinkHello(features=0b0110)).receive(
        IpLink(LinkHello(features=0b1100)).make_hello()
    )
    assert isinstance(opened, LinkOpened)
    assert opened.features == 0b0100


HELLO = [0, 1, 1, 0, BODY_BYTES, WINDOW, 0]
DAMAGE: dict[str, tuple[list[Any], str]] = {
    "no hello": ([[1, 1]], "not a hello"),
    "an acknowledgement before the hello": ([[2, 1]], "not a hello"),
    "a second hello": ([HELLO, HELLO], "second hello"),
    "a hello cut short": ([HELLO[:6]], "hello is damaged"),
    "a hello of text": ([[*HELLO[:6], "0"]], "hello is damaged"),
    "a version below zero": ([[0, -1, *HELLO[2:]]], "hello is damaged"),
    "too small a size": ([[*HELLO[:4], BODY_BYTES - 1, 4, 0]], "less than the protocol requires"),
    "no window": ([[*HELLO[:5], 0, 0]], "less than the protocol requires"),
    "a number left out": ([HELLO, [1, 2]], "message 2 where 1"),
    "a number twice": ([HELLO, [1, 1], [1, 1]], "message 1 where 2"),
    "a number that is none": ([HELLO, [1, True]], "no number"),
    "a number as text": ([HELLO, [1, "1"]], "no number"),
    "no number": ([HELLO, [1]], "no number"),
    "a body of text": ([HELLO, [1, 1, "body"]], "no body"),
    "a text among bodies": ([HELLO, [1, 1, [b"x", "y"]]], "no body"),
    "too large bodies": ([HELLO, [1, 1, [bytes(BODY_BYTES // 2)] * 2]], "no body of 102400 bytes"),
    "too many bodies": ([HELLO, [1, 1, [b"x"] * 201]], "more than 200 bodies"),
    "too large a body": ([HELLO, [1, 1, bytes(BODY_BYTES + 1)]], "no body of 102400 bytes"),
    "more than the window": ([HELLO, *([1, n] for n in range(1, 6))], "more unacknowledged"),
    "an acknowledgement of nothing": ([HELLO, [2, 1]], "does not wait for an acknowledgement"),
    "no array": ([HELLO, {1: 1}], "not an array"),
    "an empty array": ([[]], "not an array"),
    "a kind that is none": ([HELLO, [False, 1]], "not an array"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_message_raises_with_the_reason(name: str) -> None:
    messages, said = DAMAGE[name]
    link = IpLink(LinkHello())
    for message in messages[:-1]:
        link.receive(cbor2.dumps(message))
    with pytest.raises(RemoteProtocolError, match=said):
        link.receive(cbor2.dumps(messages[-1]))


def test_acknowledgements_only_advance() -> None:
    ours, theirs = pair()
    for _ in range(3):
        theirs.receive(ours.make_ping()[1])
    ours.receive(theirs.acknowledge(2))
    with pytest.raises(LocalProtocolError):
        theirs.acknowledge(2)
    with pytest.raises(LocalProtocolError):
        theirs.acknowledge(4)
    for number in (1, 2, 4):
        with pytest.raises(RemoteProtocolError):
            ours.receive(cbor2.dumps([2, number]))


def test_additions_of_a_later_version_are_skipped() -> None:
    link = IpLink(LinkHello())
    assert isinstance(link.receive(cbor2.dumps([*HELLO, "more", [1]])), LinkOpened)
    assert link.receive(cbor2.dumps([99, 1])) is None
    assert link.receive(cbor2.dumps([1, 1, b"x", "more"])) == MessageReceived(1, (b"x",))
    link.make_ping()
    assert link.receive(cbor2.dumps([2, 1, "more"])) == Acknowledged((1,))


def test_peers_window_limits_messages_in_transit() -> None:
    ours, theirs = pair(LinkHello(window=9), LinkHello(window=2))
    assert ours.free == 2
    ours.send(b"a"), ours.send(b"b")
    assert ours.free == 0
    with pytest.raises(LocalProtocolError, match="window"):
        ours.make_ping()
    with pytest.raises(LocalProtocolError, match="accepts 102400"):
        theirs.send(bytes(BODY_BYTES + 1))
    with pytest.raises(LocalProtocolError, match="accepts 102400"):
        theirs.send((bytes(BODY_BYTES // 2), bytes(BODY_BYTES // 2)))
    with pytest.raises(LocalProtocolError, match="200 at most"):
        theirs.send((b"x",) * 201)


def test_sending_before_the_peers_hello_raises() -> None:
    link = IpLink(LinkHello())
    assert link.free == 0
    with pytest.raises(LocalProtocolError):
        link.send(b"x")


def test_overhead_is_at_most_the_documented_one() -> None:
    ours, _ = pair()
    ours._sent = 2**32 - 2
    _, message = ours.send(bytes(BODY_BYTES))
    assert len(message) <= BODY_BYTES + OVERHEAD_BYTES


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=40), st.data())
def test_every_message_arrives_once_and_in_order(bodies: list[bytes], data: st.DataObject) -> None:
    """This holds for any interleaving of the two ends."""
    ours, theirs = pair()
    waiting = list(bodies)
    on_the_way: list[bytes] = []
    back: list[bytes] = []
    arrived: list[MessageReceived] = []
    settled: list[int] = []
    while len(settled) < len(bodies):
        steps = ["send"] * bool(waiting and ours.free) + ["take"] * bool(on_the_way)
        steps += ["answer"] * (len(arrived) > theirs._last_answered) + ["settle"] * bool(back)
        step = data.draw(st.sampled_from(steps))
        if step == "send":
            on_the_way.append(ours.send(waiting.pop(0))[1])
        elif step == "take":
            event = theirs.receive(on_the_way.pop(0))
            assert isinstance(event, MessageReceived)
            arrived.append(event)
        elif step == "answer":
            back.append(theirs.acknowledge(len(arrived)))
        else:
            answer = ours.receive(back.pop(0))
            assert isinstance(answer, Acknowledged)
            settled += answer.numbers
    assert [b"".join(event.bodies) for event in arrived] == bodies
    assert settled == list(range(1, len(bodies) + 1))


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_random_bytes_are_read_or_refused(messages: list[bytes]) -> None:
    link = IpLink(LinkHello())
    for message in messages:
        with suppress(RemoteProtocolError):
            link.receive(message)


_ITEM = st.one_of(st.integers(), st.none(), st.booleans(), st.text(), st.binary(), st.floats())


@given(st.lists(st.lists(_ITEM | st.integers(0, 5) | st.lists(_ITEM)), max_size=8))
def test_arrays_of_any_content_are_read_or_refused(messages: list[list[Any]]) -> None:
    link = IpLink(LinkHello())
    link.receive(cbor2.dumps(HELLO))
    for message in messages:
        with suppress(RemoteProtocolError):
            link.receive(cbor2.dumps(message))
