"""The AT conversation byte by byte: transcripts of a real modem's dialect, faults, garbage."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire import sbd
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.sbd import (
    BARRED_WAIT_S,
    MO_STATUS,
    NEED_DATA,
    BufferStatus,
    Conversation,
    MobileTerminatedMessage,
    ModemReply,
    Ready,
    RingAlert,
    SbdEvent,
    Service,
    SessionResult,
    SessionVerdict,
    Signal,
    WriteResult,
    compute_retry_wait,
    find_mo_status,
)


def events(conversation: Conversation, pieces: list[bytes]) -> list[SbdEvent]:
    arrivals: list[SbdEvent] = []
    for piece in pieces:
        conversation.receive_data(piece)
        while not isinstance(event := conversation.next_event(), sbd.NeedData):
            arrivals.append(event)
    return arrivals


def binary(body: bytes, spoil: int = 0) -> bytes:
    guard = (sum(body) + spoil & 0xFFFF).to_bytes(2)
    return len(body).to_bytes(2) + body + guard


TRICKY = b"\r\nOK\r\nSBDRING\r\nERROR\r\n\x00\xff"

TRANSCRIPTS: list[tuple[str, bytes, list[SbdEvent]]] = [
    ("AT", b"\r\nOK\r\n", [ModemReply(True)]),
    ("AT", b"AT\r\r\nOK\r\n", [ModemReply(True, is_echoed=True)]),
    ("AT", b"\r\nERROR\r\n", [ModemReply(False)]),
    ("AT+CIER=1,1,1", b"\r\nOK\r\n\r\n+CIEV:0,3\r\n", [ModemReply(True), Signal(3)]),
    ("AT+CGSN", b"\r\n300234010000001\r\n\r\nOK\r\n", [ModemReply(True, ("300234010000001",))]),
    (
        "AT+SBDIX",
        b"\r\nSBDRING\r\n\r\n+CIEV:1,0\r\n\r\n+SBDIX: 0, 5, 1, 9, 12, 2\r\n\r\nOK\r\n",
        [RingAlert(), Service(False), ModemReply(True, ("+SBDIX: 0, 5, 1, 9, 12, 2",))],
    ),
    (
        "AT+SBDRB",
        binary(TRICKY) + b"\r\nOK\r\n",
        [MobileTerminatedMessage(TRICKY, intact=True), ModemReply(True)],
    ),
    (
        "AT+SBDRB",
        b"AT+SBDRB\r\n" + binary(b"x", spoil=1) + b"\r\nOK\r\n",
        [MobileTerminatedMessage(b"x", intact=False, guard=0x79), ModemReply(True, is_echoed=True)],
    ),
    (
        "AT+SBDRB",
        b"\r\nSBDRING\r\n" + binary(b"") + b"\r\nOK\r\n\r\n+CIEV:0,5\r\n",
        [RingAlert(), MobileTerminatedMessage(b"", intact=True), ModemReply(True), Signal(5)],
    ),
    (
        "AT+SBDRB",
        b"\0" + binary(TRICKY) + b"\r\nOK\r\n",
        [MobileTerminatedMessage(TRICKY, intact=True), ModemReply(True)],
    ),
    (
        "AT+SBDRB",
        b"\0\0\0\0\0" + binary(b"x", spoil=1) + b"\0\r\nOK\r\n",
        [MobileTerminatedMessage(b"x", intact=False, guard=0x79), ModemReply(True)],
    ),
    (
        "AT+SBDRB",
        b"\0\0" + binary(b"") + b"\r\nOK\r\n",
        [MobileTerminatedMessage(b"", intact=True), ModemReply(True)],
    ),
    (
        "AT+SBDRB",
        b"\xff\xff\xff\xff\r\nOK\r\n",
        [ModemReply(True, ("\ufffd" * 4,))],
    ),
    ("AT+SBDRB", b"\r\nERROR\r\n", [ModemReply(False)]),
    ("AT+SBDWB=2", b"\r\n3\r\n\r\nOK\r\n", [ModemReply(True, ("3",))]),
]


def splits(data: bytes) -> list[list[bytes]]:
    return [[data], [data[i : i + 1] for i in range(len(data))]]


@pytest.mark.parametrize(("command", "answer", "expected"), TRANSCRIPTS)
@pytest.mark.parametrize("noise", [b"", b"\x00\xfe~~#\r\n", b"\r\nOK\r\n", b"x" * 1000 + b"\r"])
def test_transcripts_are_read_in_any_segmentation_and_after_noise(
    command: str, answer: bytes, expected: list[SbdEvent], noise: bytes
) -> None:
    for pieces in splits(answer):
        conversation = Conversation()
        assert events(conversation, [noise]) == []
        assert conversation.send(command) == command.encode() + b"\r"
        assert events(conversation, pieces) == expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (b"\r\n0\r\n\r\nOK\r\n", WriteResult.STORED),
        (b"\r\n1\r\n", WriteResult.TIMEOUT),
        (b"\r\n2\r\n\r\nOK\r\n", WriteResult.WRONG_SUM),
        (b"\r\n3\r\n\r\nOK\r\n", WriteResult.WRONG_SIZE),
    ],
)
def test_message_is_written_after_ready_and_its_result_read(
    after: bytes, expected: WriteResult
) -> None:
    for pieces in splits(after):
        conversation = Conversation()
        conversation.send(sbd.make_write_command(3))
        assert events(conversation, [b"\r\nREADY\r\n"]) == [Ready()]
        assert conversation.send_payload(b"\xff\xff\x03") == b"\xff\xff\x03\x02\x01"
        (reply,) = events(conversation, pieces)
        assert isinstance(reply, ModemReply)
        assert sbd.parse_write(reply) is expected


def test_second_ready_does_not_request_the_payload_again() -> None:
    conversation = Conversation()
    conversation.send(sbd.make_write_command(3))
    assert events(conversation, [b"\r\nREADY\r\n\r\nREADY\r\n"]) == [Ready()]
    assert conversation.send_payload(b"\xff\xff\x03")
    (reply,) = events(conversation, [b"READY\r\n\r\n0\r\n\r\nOK\r\n"])
    assert isinstance(reply, ModemReply)
    assert sbd.parse_write(reply) is WriteResult.STORED
    assert events(conversation, [b"READY\r\n"]) == []


def test_checksum_is_truncated_to_two_bytes() -> None:
    assert sbd.compute_checksum(b"\xff" * 340) == (255 * 340 & 0xFFFF).to_bytes(2)
    assert sbd.compute_checksum(b"hello") == b"\x02\x14"


def test_received_part_of_a_truncated_mt_message_is_kept() -> None:
    conversation = Conversation()
    conversation.send(sbd.READ_BINARY)
    assert events(conversation, [b"\r\n" + binary(b"precious")[:6]]) == []
    assert conversation.abandon_command() == MobileTerminatedMessage(b"prec", intact=False)
    conversation.send("AT")
    assert events(conversation, [b"\r\nOK\r\n"]) == [ModemReply(True)]
    assert conversation.abandon_command() is None


def test_second_command_and_unrequested_payload_raise() -> None:
    conversation = Conversation()
    with pytest.raises(LocalProtocolError):
        conversation.send_payload(b"x")
    conversation.send("AT")
    with pytest.raises(LocalProtocolError):
        conversation.send("AT")
    conversation.abandon_command()
    assert events(conversation, [b"\r\nOK\r\n"]) == [], "too late: it belongs to nobody"
    conversation.send("AT")


@pytest.mark.parametrize(
    "body", [b"", b"x" * 341, b"RB0012345 payload"], ids=["empty", "too long", "routed"]
)
def test_empty_overlong_and_routed_payloads_raise(body: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        sbd.check_mo(body)


@pytest.mark.parametrize(
    "line",
    [
        "+SBDIX: 0, 5, 1, 9, 12, 2",
        "+SBDIX:0,5,1,9,12,2",
        "+SBDIX: 0 , 5 , 1 ,9 , 12, 2",
        "+SBDIXA: 0, 5, 1, 9, 12, 2",
    ],
)
def test_session_result_is_read_with_any_spacing(line: str) -> None:
    assert sbd.parse_session(ModemReply(True, (line,))) == SessionResult(0, 5, 1, 9, 12, 2)


def test_buffer_status_without_a_message_has_a_negative_mtmsn() -> None:
    reply = ModemReply(True, ("+SBDSX: 1, 65535, 0, -1, 1, 3",))
    assert sbd.parse_status(reply) == BufferStatus(1, 65535, 0, -1, 1, 3)


@pytest.mark.parametrize("lines", [(), ("+SBDIX: 0, 5, 1",), ("+SBDIX: a, b, c, d, e, f",)])
def test_malformed_answer_raises_a_remote_error(lines: tuple[str, ...]) -> None:
    for parse in (sbd.parse_session, sbd.parse_status, sbd.parse_write, sbd.parse_serial_number):
        with pytest.raises(RemoteProtocolError):
            parse(ModemReply(True, lines))


commands = st.sampled_from(["AT", "AT+SBDRB", "AT+SBDIX", "AT+SBDWB=5", None])


@given(st.lists(st.tuples(commands, st.binary(max_size=60)), max_size=8))
def test_random_bytes_do_not_raise_and_are_discarded(
    talk: list[tuple[str | None, bytes]],
) -> None:
    conversation = Conversation()
    for command, noise in talk:
        if command is not None:
            with suppress(LocalProtocolError):
                conversation.send(command)
        events(conversation, [noise])
    conversation.abandon_command()
    events(conversation, [b"\r" + b"\n" * 3000 + b"\x09" * 600 + b"\r\n"])
    conversation.send("AT")
    assert events(conversation, [b"\r\nOK\r\n"])[-1] == ModemReply(True)


@given(st.binary(max_size=270), st.lists(st.integers(1, 400), max_size=4), st.integers(0, 9))
def test_any_payload_is_read_by_its_length(body: bytes, cuts: list[int], nuls: int) -> None:
    answer = b"\0" * nuls + binary(body) + b"\r\nOK\r\n"
    edges = [0, *sorted(cut % len(answer) for cut in cuts), len(answer)]
    conversation = Conversation()
    conversation.send(sbd.READ_BINARY)
    pieces = [answer[a:b] for a, b in pairwise(edges)]
    assert events(conversation, pieces) == [
        MobileTerminatedMessage(body, intact=True),
        ModemReply(True),
    ]


VERDICTS = {
    SessionVerdict.SENT: {0, 1, 2, 3, 4},
    SessionVerdict.DOUBTFUL: {10, 13, 17, 18, 19},
    SessionVerdict.NOT_SENT: {11, 32, 35, 36, 37, 38},
    SessionVerdict.REFUSED: {12, 14},
    SessionVerdict.FAULT: {15, 16, 33, 34, 64, 65},
}


@pytest.mark.parametrize("number", range(80))
def test_mo_status_maps_to_its_verdict(number: int) -> None:
    expected = next(
        (v for v, numbers in VERDICTS.items() if number in numbers), SessionVerdict.NOT_SENT
    )
    assert find_mo_status(number).verdict is expected
    assert (number in MO_STATUS) == any(number in numbers for numbers in VERDICTS.values())


@pytest.mark.parametrize(
    ("tries", "low", "high"),
    [(0, 0, 0), (1, 0, 5), (2, 0, 5), (3, 0, 30), (4, 0, 30), (5, 225, 375), (99, 225, 375)],
)
@pytest.mark.parametrize("chance", [0.0, 0.5, 1.0])
def test_retry_wait_follows_the_vendors_schedule(
    tries: int, low: float, high: float, chance: float
) -> None:
    assert low <= compute_retry_wait(MO_STATUS[32], tries, chance, urgent=False) <= high


@given(st.sampled_from(sorted(MO_STATUS)), st.integers(0, 100), st.floats(0, 1))
def test_retry_waits_stay_within_their_bounds(number: int, tries: int, chance: float) -> None:
    status = MO_STATUS[number]
    urgent = compute_retry_wait(status, tries, chance, urgent=True)
    if number == 36:
        assert BARRED_WAIT_S <= urgent <= BARRED_WAIT_S * 1.1
    else:
        assert 0 <= urgent <= 60.0
    assert compute_retry_wait(status, tries, chance, urgent=False) >= (status.wait_s or 0)


def test_new_conversation_needs_data() -> None:
    assert Conversation().next_event() is NEED_DATA
