"""DirectIP byte by byte, with vectors from the interface description, and garbage."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.directip import (
    MESSAGE_MAX_BYTES,
    Confirmation,
    DirectIpMo,
    DirectIpMt,
    Flags,
    encode_message,
    encode_mo_confirmation,
    extract_message,
    parse_confirmation,
    parse_mo_confirmation,
    parse_mobile_originated,
    parse_mobile_terminated,
    salvage_payload,
)
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

IMEI = "300234010000001"
IMEI_HEX = "333030323334303130303030303031"
VECTORS: dict[str, tuple[str, Any, Callable[[bytes], Any]]] = {
    "MO with payload": (
        "010026" + "01001c" + "000004d2" + IMEI_HEX + "00" + "0007" + "0002" + "6ab3e400"
        + "020004" + "84010203",
        DirectIpMo(1234, IMEI, 0, 7, 2, 0x6AB3E400, bytes.fromhex("84010203")),
        parse_mobile_originated,
    ),
    "mailbox check": (
        "01001f" + "01001c" + "000004d2" + IMEI_HEX + "02" + "0007" + "0000" + "6ab3e400",
        DirectIpMo(1234, IMEI, 2, 7, 0, 0x6AB3E400),
        parse_mobile_originated,
    ),
    "MT, urgent": (
        "01001d" + "410015" + "00000009" + IMEI_HEX + "0010" + "420002" + "beef",
        DirectIpMt(9, IMEI, b"\xbe\xef", Flags.PRIORITY),
        parse_mobile_terminated,
    ),
    "MT queued as third": (
        "01001c" + "440019" + "00000009" + IMEI_HEX + "000000ff" + "0003",
        Confirmation(9, IMEI, 255, 3),
        parse_confirmation,
    ),
    "MT refused": (
        "01001c" + "440019" + "00000009" + IMEI_HEX + "00000000" + "fffb",
        Confirmation(9, IMEI, 0, -5),
        parse_confirmation,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_written(name: str) -> None:
    raw, message, _ = VECTORS[name]
    assert encode_message(message).hex() == raw


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_read_byte_by_byte_with_trailing_data(name: str) -> None:
    raw, message, read = VECTORS[name]
    buffer = bytearray()
    for byte in bytes.fromhex(raw)[:-1]:
        buffer.append(byte)
        assert extract_message(buffer) is None
    buffer += bytes.fromhex(raw)[-1:] + b"\x01\x00"
    elements = extract_message(buffer)
    assert elements is not None
    assert read(elements) == message
    assert buffer == b"\x01\x00"


@pytest.mark.parametrize(("taken", "raw"), [(True, "01000405000101"), (False, "01000405000100")])
def test_mo_confirmation_survives_encoding(taken: bool, raw: str) -> None:
    assert encode_mo_confirmation(taken).hex() == raw
    elements = extract_message(bytearray.fromhex(raw))
    assert elements is not None
    assert parse_mo_confirmation(elements) is taken


def test_elements_are_read_in_any_order_and_unknown_ones_skipped() -> None:
    header = "01001c" + "000004d2" + IMEI_HEX + "00" + "0007" + "0002" + "6ab3e400"
    location = "03000b" + "00" * 11
    elements = bytes.fromhex("020001" + "aa" + "770002" + "0102" + location + header)
    assert parse_mobile_originated(elements).payload == b"\xaa"


@pytest.mark.parametrize(
    ("elements", "why"),
    [
        ("", "0x01 is missing"),
        ("01", "cut short"),
        ("01001c00", "0x01 is cut short"),
        ("010001" + "00", "0x01 is 1 bytes long"),
        ("01001c" + "000004d2" + "41" * 15 + "00" + "0007" + "0002" + "6ab3e400", "is not an IMEI"),
    ],
)
def test_damaged_message_raises_with_the_reason(elements: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        parse_mobile_originated(bytes.fromhex(elements))


HEADER = "01001c" + "000004d2" + IMEI_HEX + "00" + "0007" + "0002" + "6ab3e400"
SHORT_HEADER = "010017" + "000004d2" + IMEI_HEX + "00000000"
NO_IMEI = "01001c" + "000004d2" + "41" * 15 + "00" + "0007" + "0002" + "6ab3e400"


@pytest.mark.parametrize(
    ("elements", "imei", "payload"),
    [
        ("020002" + "beef", "", "beef"),
        ("020002" + "beef" + SHORT_HEADER, IMEI, "beef"),
        (SHORT_HEADER + "020002" + "beef", IMEI, "beef"),
        (NO_IMEI + "020002" + "beef", "", "beef"),
        (HEADER + "0200ff" + "beef", IMEI, "beef"),
        ("77ffff" + "beef", "", "77ffffbeef"),
        ("be", "", "be"),
        (NO_IMEI, "", ""),
        (SHORT_HEADER + "020000", IMEI, ""),
        ("020001aa" * 900, "", "aa"),
    ],
)
def test_payload_of_a_damaged_message_is_salvaged(elements: str, imei: str, payload: str) -> None:
    assert salvage_payload(bytes.fromhex(elements)) == (imei, bytes.fromhex(payload))


def test_other_version_and_overlong_message_raise_at_once() -> None:
    with pytest.raises(RemoteProtocolError, match="begins with 71"):
        extract_message(bytearray(b"GET / HTTP/1.1"))
    with pytest.raises(RemoteProtocolError, match="are accepted"):
        extract_message(bytearray([1, *(MESSAGE_MAX_BYTES + 1).to_bytes(2, "big")]))


def test_invalid_imei_raises() -> None:
    with pytest.raises(LocalProtocolError, match="15 digits"):
        encode_message(DirectIpMt(1, "12", b""))


@given(st.binary(max_size=80))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (
        parse_mobile_originated,
        parse_mobile_terminated,
        parse_confirmation,
        parse_mo_confirmation,
    ):
        with suppress(RemoteProtocolError):
            read(data)
    with suppress(RemoteProtocolError):
        extract_message(bytearray(data))
    assert len(salvage_payload(data)[1]) <= len(data)


@given(
    st.integers(0, 2**32 - 1),
    st.text("0123456789", min_size=15, max_size=15),
    st.binary(max_size=1960),
    st.sampled_from([0, *Flags]),
)
def test_mt_message_survives_encoding(number: int, imei: str, payload: bytes, flags: int) -> None:
    message = DirectIpMt(number, imei, payload, flags)
    elements = extract_message(bytearray(encode_message(message)))
    assert elements is not None
    assert parse_mobile_terminated(elements) == message
