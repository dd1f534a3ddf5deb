"""MQTT 3.1.1 packets, compared with packets built here from the standard and with a third-party
client.
"""

from __future__ import annotations

import struct
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from fieldagent.extensions.mqtt import packets as mqtt
from fieldagent.extensions.mqtt.packets import (
    Connack,
    LastWill,
    PacketReader,
    Pingresp,
    Puback,
    Published,
    Suback,
)
from fieldagent.wire.errors import RemoteProtocolError

TEXTS = st.text(st.characters(exclude_characters="\0#+", codec="utf-8"), min_size=1, max_size=60)
NUMBERS = st.integers(1, 65_535)


def field(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def packet(first: int, rest: bytes) -> bytes:
    """Make a packet by figure 2.1 and the algorithm of 2.2.3."""
    length, size = bytearray(), len(rest)
    while True:
        digit = size % 128
        size //= 128
        length.append(digit | 128 if size > 0 else digit)
        if size == 0:
            return bytes([first]) + bytes(length) + rest


def read(data: bytes) -> list[mqtt.FromBroker]:
    return list(PacketReader().receive_data(data))


def test_connect_packet_matches_the_standard() -> None:
    will = LastWill("fieldagent/kit/online", b"offline")
    made = mqtt.encode_connect("fieldagent-kit", 60, will=will, user="kit", password="über")
    head = b"\x00\x04MQTT\x04" + bytes([0b11101100]) + b"\x00\x3c"
    fields = [b"fieldagent-kit", b"fieldagent/kit/online", b"offline", b"kit", "über".encode()]
    assert made == packet(0x10, head + b"".join(map(field, fields)))
    bare = mqtt.encode_connect("x", 60, clean=True)
    assert bare == packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x3c" + field(b"x"))


@given(TEXTS, st.binary(max_size=300), st.none() | NUMBERS, st.booleans())
def test_publish_packet_equals_that_of_a_third_party_client(
    topic: str, payload: bytes, number: int | None, retain: bool
) -> None:
    client = Client(CallbackAPIVersion.VERSION2)
    client._sock = Mock()
    sent: list[bytes] = []
    client._packet_queue = lambda command, packet, *_: sent.append(bytes(packet))  # type: ignore
    quality = 0 if number is None else 1
    client._send_publish(number or 0, topic.encode(), payload, quality, retain)
    assert sent == [mqtt.encode_publish(topic, payload, number, retain=retain)]


def test_puback_subscribe_and_ping_packets_match_the_standard() -> None:
    assert mqtt.encode_puback(258) == b"\x40\x02\x01\x02"
    wanted = field(b"a/send") + b"\x01" + field(b"a/send/+") + b"\x01"
    assert mqtt.encode_subscribe(7, ["a/send", "a/send/+"]) == packet(0x82, b"\x00\x07" + wanted)
    assert (mqtt.PINGREQ, mqtt.DISCONNECT) == (b"\xc0\x00", b"\xe0\x00")


FROM_BROKER = st.one_of(
    st.builds(
        lambda code, present: (
            packet(0x20, bytes([present, code])),
            Connack(code, bool(present)),
        ),
        st.integers(0, 255),
        st.integers(0, 1),
    ),
    NUMBERS.map(lambda number: (packet(0x40, struct.pack(">H", number)), Puback(number))),
    st.builds(
        lambda number, codes: (
            packet(0x90, struct.pack(">H", number) + bytes(codes)),
            Suback(number, tuple(codes)),
        ),
        NUMBERS,
        st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1, max_size=4),
    ),
    st.just((b"\xd0\x00", Pingresp())),
    st.builds(
        lambda topic, payload, number, retained, again: (
            packet(
                0x30 | retained | (0 if number is None else 2) | again << 3,
                field(topic.encode())
                + (b"" if number is None else struct.pack(">H", number))
                + payload,
            ),
            Published(topic, payload, number, retained, again),
        ),
        TEXTS,
        st.binary(max_size=300),
        st.none() | NUMBERS,
        st.booleans(),
        st.booleans(),
    ),
)


@given(st.lists(FROM_BROKER), st.integers(1, 50))
def test_broker_packets_are_read_from_any_segmentation(
    sent: list[tuple[bytes, mqtt.FromBroker]], size: int
) -> None:
    data = b"".join(each for each, _ in sent)
    assert read(data) == [expected for _, expected in sent]
    reader = PacketReader()
    packets: list[mqtt.FromBroker] = []
    for start in range(0, len(data), size):
        packets += reader.receive_data(data[start : start + size])
    assert packets == [expected for _, expected in sent]


@given(
    st.integers(0, 1) | st.integers(mqtt.PACKET_MAX_BYTES - 20, 3 * mqtt.PACKET_MAX_BYTES),
    st.none() | NUMBERS,
    st.sampled_from([1_000, 65_535, 10**7]),
)
def test_overlong_message_is_skipped_and_only_its_length_kept(
    size: int, number: int | None, chunk: int
) -> None:
    rest = field(b"a/send") + (b"" if number is None else struct.pack(">H", number)) + bytes(size)
    data = packet(0x30 if number is None else 0x32, rest) + b"\x40\x02\x00\x09"
    reader = PacketReader()
    packets: list[mqtt.FromBroker] = []
    for start in range(0, len(data), chunk):
        packets += reader.receive_data(data[start : start + chunk])
        assert len(reader._buffer) <= 2 * (mqtt.PACKET_MAX_BYTES + 5)
    long = len(rest) > mqtt.PACKET_MAX_BYTES
    expected = Published("a/send", b"" if long else bytes(size), number, False)
    assert packets == [expected._replace(skipped=size if long else 0), Puback(9)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x30\xff\xff\xff\xff\x01", "more than four bytes"),
        (b"\x00\x00", "makes no sense"),
        (b"\x10\x00", "makes no sense"),
        (b"\xf0\x00", "makes no sense"),
        (b"\x20\x02\x02\x00", "makes no sense"),
        (b"\x20\x03\x00\x00\x00", "makes no sense"),
        (b"\x21\x02\x00\x00", "flags 1"),
        (b"\x40\x02\x00\x00", "number 0"),
        (b"\x40\x01\x00", "makes no sense"),
        (b"\x90\x02\x00\x01", "makes no sense"),
        (b"\x90\x03\x00\x01\x03", "makes no sense"),
        (b"\xd0\x01\x00", "makes no sense"),
        (b"\x34\x05\x00\x01a\x00\x01", "QoS 2"),
        (b"\x36\x05\x00\x01a\x00\x01", "QoS 3"),
        (b"\x30\x02\x00\x00", "not a topic"),
        (b"\x30\x03\x00\x01#", "not a topic"),
        (b"\x30\x04\x00\x02\xc3\x28", "not UTF-8"),
        (b"\x30\x00", "a topic of 0 bytes"),
        (b"\x30\x03\x00\x09a", "a topic of 9 bytes"),
        (b"\x32\x04\x00\x01a\x00", "a topic of 1 bytes"),
        (b"\x32\x05\x00\x01a\x00\x00", "number 0"),
        (packet(0x30, field(b"t" * 1_025)), "a topic of 1025 bytes"),
        (b"\x40\x80\x80\x08", "131072 bytes makes no sense"),
    ],
)
def test_malformed_packet_raises(data: bytes, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said):
        read(data)
