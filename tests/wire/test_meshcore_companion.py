"""MeshCore's companion frames, compared with the parser of its project's own client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshcore.events import Event, EventDispatcher
from meshcore.reader import MessageReader

from fieldagent.wire import meshcore_companion as wire
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.meshcore_companion import (
    CompanionChannel,
    CompanionContact,
    CompanionDeframer,
    CompanionDevice,
    CompanionMessage,
    CompanionSelf,
    CompanionSent,
    CompanionText,
)

KEY = bytes(range(32))
CONTACT = CompanionContact(
    KEY, 1, "Ada ✓", 1_790_000_000, 46_547_500, -7_985_000, 1_790_000_100, 1, 2, b"\x11\x22"
)


def read_by_official_client(content: bytes) -> Any:
    """Return their reader's result for a frame's content."""

    async def read() -> Any:
        events: list[Event] = []
        dispatcher = EventDispatcher()

        async def note(event: Event) -> None:
            events.append(event)

        dispatcher.dispatch = note
        await MessageReader(dispatcher).handle_rx(bytearray(content))
        return events[0].payload

    return asyncio.run(read())


def test_self_info_is_read_as_by_the_official_client() -> None:
    said = CompanionSelf(KEY, "Kit", 1, 46_547_500, 7_985_000, True, 910_525, 62_500, 7, 5, 20)
    content = wire.encode_self(said)
    assert wire.decode_self(content) == said
    read = read_by_official_client(content)
    assert (read["name"], read["public_key"]) == ("Kit", KEY.hex())
    assert (read["adv_lat"], read["adv_lon"]) == (46.5475, 7.985)
    assert (read["radio_freq"], read["radio_bw"]) == (910.525, 62.5)
    assert (read["radio_sf"], read["radio_cr"], read["manual_add_contacts"]) == (7, 5, True)


def test_device_info_is_read_as_by_the_official_client() -> None:
    said = CompanionDevice(8, 100, 8, "v1.12", "Heltec")
    content = wire.encode_device(said)
    assert wire.decode_device(content) == said
    read = read_by_official_client(content)
    assert (read["max_contacts"], read["max_channels"]) == (100, 8)
    assert (read["model"], read["ver"]) == ("Heltec", "v1.12")
    assert wire.decode_device(b"\x0d\x02") == CompanionDevice(2, 0, 0, "", "")


def test_new_advert_is_read_as_by_the_official_client() -> None:
    content = bytes([CompanionMessage.NEW_ADVERT]) + wire.encode_contact(CONTACT)
    assert wire.decode_contact(content) == CONTACT
    read = read_by_official_client(content)
    assert (read["public_key"], read["adv_name"], read["type"]) == (KEY.hex(), "Ada ✓", 1)
    assert (read["adv_lat"], read["adv_lon"]) == (46.5475, -7.985)
    assert (read["last_advert"], read["lastmod"]) == (1_790_000_000, 1_790_000_100)


@pytest.mark.parametrize(
    "said",
    [
        CompanionText(KEY[:6], None, 1_790_000_000, "hut reached ✓", 0, 2, 6.25),
        CompanionText(KEY[:6], None, 1_790_000_000, "by a path", 0, None, -7.5),
        CompanionText(b"", 1, 1_790_000_000, "Ada: @hub hello", 0, 0, 6.0),
    ],
)
def test_text_is_read_as_by_the_official_client(said: CompanionText) -> None:
    content = wire.encode_text(said)
    assert wire.decode_text(content) == said
    read = read_by_official_client(content)
    assert (read["text"], read["sender_timestamp"], read["SNR"]) == (said.text, said.time, said.snr)
    if said.channel is None:
        assert read["pubkey_prefix"] == said.sender.hex()
    else:
        assert read["channel_idx"] == said.channel


def test_sent_and_ack_are_read_as_by_the_official_client() -> None:
    sent = CompanionSent(True, b"\1\2\3\4", 2.5)
    read = read_by_official_client(wire.encode_sent(sent))
    assert wire.decode_sent(wire.encode_sent(sent)) == sent
    assert (read["expected_ack"], read["suggested_timeout"]) == (b"\1\2\3\4", 2500)
    ack = bytes([CompanionMessage.ACK]) + b"\1\2\3\4" + bytes(4)
    assert wire.decode_ack(ack).hex() == read_by_official_client(ack)["code"]


def test_channel_is_read_as_by_the_official_client() -> None:
    channel = CompanionChannel(1, "Kits", KEY[:16])
    content = bytes([CompanionMessage.CHANNEL]) + wire.encode_channel(channel)
    assert wire.decode_channel(content) == channel
    read = read_by_official_client(content)
    assert (read["channel_idx"], read["channel_name"]) == (1, "Kits")
    assert read["channel_secret"] == KEY[:16]


@pytest.mark.parametrize(
    ("name", "key", "private"),
    [
        ("Kits", KEY[:16], True),
        ("Public", wire.PUBLIC_KEY, False),
        ("Kits", bytes(16), False),
        ("#test", bytes.fromhex("9cd8fcf22a47333b591d96a2b848b73f"), False),
    ],
)
def test_well_known_channel_key_is_not_private(name: str, key: bytes, private: bool) -> None:
    assert wire.is_private(CompanionChannel(1, name, key)) is private


@given(st.binary(max_size=400), st.lists(st.binary(min_size=1, max_size=300), max_size=4))
def test_frames_are_found_after_noise_in_any_segmentation(
    noise: bytes, contents: list[bytes]
) -> None:
    noise = noise.replace(b">", b"")
    stream = noise + b"".join(wire.make_frame(each, wire.FROM_RADIO) for each in contents)
    whole, single = CompanionDeframer(), CompanionDeframer()
    assert list(whole.receive_data(stream)) == contents
    each_byte = (bytes([byte]) for byte in stream)
    assert [content for byte in each_byte for content in single.receive_data(byte)] == contents
    assert not whole.is_within


def test_false_length_loses_no_other_frame() -> None:
    deframer = CompanionDeframer()
    good = wire.make_frame(b"\x83", wire.FROM_RADIO)
    assert list(deframer.receive_data(b">\xff\xff" + good)) == [b"\x83"]
    assert deframer.damaged == 1
    assert list(deframer.receive_data(b">\x40\0ab")) == []
    assert deframer.is_within
    deframer.discard_incomplete()
    assert list(deframer.receive_data(good)) == [b"\x83"]


def test_overlong_frame_and_truncated_content_raise() -> None:
    with pytest.raises(LocalProtocolError):
        wire.make_frame(bytes(301))
    readers = (
        wire.decode_self,
        wire.decode_contact,
        wire.decode_text,
        wire.decode_sent,
        wire.decode_ack,
    )
    for read in (*readers, wire.decode_advert, wire.decode_time, wire.decode_telemetry):
        for content in (
            b"",
            b"\xff",
            bytes([CompanionMessage.TEXT]),
            bytes([CompanionMessage.SENT, 1]),
        ):
            with pytest.raises(RemoteProtocolError):
                read(content)
