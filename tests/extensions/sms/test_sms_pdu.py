"""Text messages in PDU mode, with vectors from other sources and a third-party decoder."""

from __future__ import annotations

from datetime import UTC, datetime
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.extensions.sms.agent.arrivals import find_arrivals
from fieldagent.extensions.sms.sms_modem import StoredMessage
from fieldagent.wire import sms_alphabet, sms_pdu
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.sms_pdu import (
    Coding,
    Content,
    Deliver,
    Part,
    ReportState,
    StatusReport,
    Submit,
)

NUMBER = "+41791234567"
AT = datetime(2026, 11, 24, 21, 7, 5, tzinfo=UTC).timestamp()
GSM = "".join(sms_alphabet.BASIC_CHARACTERS.replace("\x1b", "")) + "".join(
    sms_alphabet.EXTENSION.values()
)


def decode_by_third_party(pdu: bytes, kind: str) -> Any:
    """Decode the PDU with PyPI's smspdudecoder."""
    fields = pytest.importorskip("smspdudecoder.fields", reason="needs extra `test`")
    return getattr(fields, kind).decode(StringIO(pdu.hex().upper()))


def test_septets_are_packed_as_in_the_published_example() -> None:
    assert (
        sms_alphabet.pack(sms_alphabet.encode_septets("hellohello")).hex() == "e8329bfd4697d9ec37"
    )


def test_pdu_equals_that_of_gammu() -> None:
    """The PDU is the beginning of gammu 1.42's output to a modem for this text: 23 septets, with
    two for €.
    """
    text = "Camp reached, grüezi €"
    (content,) = sms_pdu.split(text, 0)
    pdu = sms_pdu.encode(Submit(NUMBER, content, validity=0xFF))
    assert sms_alphabet.count_units(text, sms_alphabet.Alphabet.GSM7) == 23
    assert pdu[-22:].hex().upper().startswith("17C3701B0E92")
    head = "00 31 00 0B 91 1497214365F7 00 00 FF"
    assert pdu[:-22] == bytes.fromhex(head)


@pytest.mark.parametrize("text", ["", "Camp reached", "grüezi €[]{}~^|\\", "нога 🐕", GSM[:120]])
def test_third_party_decoder_reads_submit_pdus(text: str) -> None:
    (content,) = sms_pdu.split(text, 0)
    read = decode_by_third_party(sms_pdu.encode(Submit(NUMBER, content)), "SMSSubmit")
    assert read["user_data"]["data"] == text
    assert read["recipient"]["number"] == NUMBER.removeprefix("+")
    assert read["header"]["srr"], "a report is asked for"
    assert read["validity-hours"] == 24


def test_third_party_decoder_reads_each_part_of_a_long_message() -> None:
    text = "grüezi €uro " * 40
    pieces = []
    parts = sms_pdu.split(text, 77)
    for content in parts:
        read = decode_by_third_party(sms_pdu.encode(Deliver(NUMBER, content, AT)), "SMSDeliver")
        (element,) = read["user_data"]["header"]["elements"]
        assert element["data"]["reference"] == 77
        assert element["data"]["parts_count"] == len(parts) == 4
        pieces.append((element["data"]["part_number"], read["user_data"]["data"]))
        assert read["scts"].timestamp() == AT
    assert [number for number, _ in pieces] == [1, 2, 3, 4]
    assert "".join(part for _, part in pieces) == text


DELIVERED = (
    "07911326040000F0040B911346610089F60000208062917314080CC8F71D14969741F977FD07",
    "+31641600986",
    "How are you?",
)
"""A widely quoted DELIVER: 2002-08-26 19:37:41, zero quarters of an hour from UTC."""


def test_pdu_of_a_real_network_is_read() -> None:
    pdu, number, text = DELIVERED
    read = sms_pdu.decode(bytes.fromhex(pdu))
    assert isinstance(read, Deliver)
    assert (read.number, read.content.text) == (number, text)
    assert datetime.fromtimestamp(read.at, UTC).isoformat() == "2002-08-26T19:37:41+00:00"


contents = st.one_of(
    st.text(GSM, max_size=160).filter(lambda text: sms_alphabet.count_parts(text) == 1),
    st.text(max_size=60).filter(
        lambda text: sms_alphabet.count_parts(text) == 1 and text.isprintable()
    ),
    st.binary(max_size=140),
).map(lambda content: sms_pdu.split(content, 5)[0])
numbers = st.from_regex(r"\+?[0-9]{3,15}", fullmatch=True)
moments = st.integers(946_684_800, 4_102_444_799).map(float)


@given(numbers, contents, st.booleans(), st.integers(0, 255), st.integers(0, 255))
def test_submit_pdu_survives_encoding(
    number: str, content: Content, report: bool, validity: int, reference: int
) -> None:
    message = Submit(number, content, report, validity, reference)
    assert sms_pdu.decode(sms_pdu.encode(message), is_sent=True) == message


@given(numbers, contents, moments)
def test_deliver_pdu_survives_encoding(number: str, content: Content, at: float) -> None:
    message = Deliver(number, content, at)
    assert sms_pdu.decode(sms_pdu.encode(message)) == message


@given(numbers, moments, moments, st.integers(0, 255), st.integers(0, 255))
def test_status_report_pdu_survives_encoding(
    number: str, at: float, ended: float, of: int, status: int
) -> None:
    message = StatusReport(of, number, at, ended, status)
    assert sms_pdu.decode(sms_pdu.encode(message)) == message


@given(
    st.one_of(st.text(GSM, max_size=1_500), st.text(max_size=500), st.binary(max_size=2_000)),
    st.randoms(),
)
def test_parts_are_joined_in_any_order(content: str | bytes, order: Any) -> None:
    parts = sms_pdu.split(content, 9)
    read = [sms_pdu.decode(sms_pdu.encode(Deliver(NUMBER, part, AT))) for part in parts]
    order.shuffle(read)
    stored = [StoredMessage(place, message) for place, message in enumerate(read)]
    assert find_arrivals(stored[:-1]).whole == []
    (arrival,) = find_arrivals(stored).whole
    assert isinstance(arrival.message, Deliver)
    whole = arrival.message.content
    if isinstance(content, bytes):
        assert whole.body == content
    else:
        assert whole.text == content.encode("utf-16-be", "replace").decode("utf-16-be")


def test_parts_have_the_sizes_of_the_standard() -> None:
    for content, sizes in (
        ("x" * 160, [160]),
        ("x" * 161, [153, 8]),
        ("€" * 80, [160]),
        ("€" * 81, [152, 10]),
        ("я" * 70, [140]),
        ("я" * 71, [134, 8]),
        ("🐕" * 36, [132, 12]),
        (bytes(140), [140]),
        (bytes(141), [134, 7]),
    ):
        assert [len(part.body) for part in sms_pdu.split(content, 0)] == sizes


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (0x00, ReportState.DELIVERED),
        (0x01, ReportState.UNCONFIRMED),
        (0x1F, ReportState.UNCONFIRMED),
        (0x20, ReportState.TRYING),
        (0x3F, ReportState.TRYING),
        (0x40, ReportState.FAILED),
        (0x7F, ReportState.FAILED),
    ],
)
def test_status_code_of_a_report_maps_to_its_state(status: int, state: ReportState) -> None:
    assert StatusReport(1, NUMBER, AT, AT, status).state is state


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_read_or_refused(noise: bytes, sent: bool) -> None:
    try:
        read = sms_pdu.decode(noise, is_sent=sent)
    except RemoteProtocolError as error:
        assert str(error)
    else:
        assert isinstance(read, Submit | Deliver | StatusReport)


def test_content_beyond_the_limits_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="is not a telephone number"):
        sms_pdu.encode(Submit("Olga", Content(Coding.DATA, b"")))
    with pytest.raises(LocalProtocolError, match="141 octets"):
        sms_pdu.encode(Submit(NUMBER, Content(Coding.DATA, bytes(141))))
    with pytest.raises(LocalProtocolError, match="161 septets"):
        sms_pdu.encode(Submit(NUMBER, Content(Coding.GSM7, bytes(161))))
    with pytest.raises(LocalProtocolError, match="the maximum is 255"):
        sms_pdu.split(bytes(256 * 134), 1)


def test_alphanumeric_sender_and_16_bit_reference_are_read() -> None:
    name = sms_alphabet.pack(sms_alphabet.encode_septets("KPN"))
    header = bytes((6, 8, 4, 1, 2, 3, 1))
    rest = bytes((0, 4)) + sms_pdu.encode(StatusReport(0, "1", AT, AT, 0))[6:13]
    user = bytes((len(header) + 2,)) + header + b"hi"
    pdu = bytes((0, 0x44, 6, 0xD0)) + name + rest + user
    read = sms_pdu.decode(pdu)
    assert isinstance(read, Deliver)
    assert read.number == "KPN"
    assert read.content == Content(Coding.DATA, b"hi", Part(0x0102, 3, 1))
