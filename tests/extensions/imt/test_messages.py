from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.extensions.imt import jspr, messages
from fieldagent.extensions.imt.messages import (
    MessageKey,
    MoMessage,
    MtAssembly,
    MtEnded,
    MtSegment,
    SegmentWanted,
)
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.sbd import SessionVerdict

KEY = MessageKey(244, 5)


def read_line(text: str) -> jspr.JsprLine:
    reader = jspr.LineReader()
    reader.receive_data(text.encode() + b"\r")
    answer = reader.read_next_line()
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("body", "guard"), [(b"123456789", "31c3"), (b"hello", "c362"), (b"tst", "67d1"), (b"", "0000")]
)
def test_crc_matches_known_xmodem_values(body: bytes, guard: str) -> None:
    assert messages.compute_crc(body).hex() == guard


@given(st.binary(max_size=200))
def test_crc_equals_the_remainder_of_the_polynomial(body: bytes) -> None:
    value = 0
    for bit in (byte >> shift & 1 for byte in body + b"\0\0" for shift in range(7, -1, -1)):
        value = value << 1 | bit
        if value & 0x10000:
            value ^= 0x11021
    assert messages.compute_crc(body) == value.to_bytes(2)


@pytest.mark.parametrize(
    ("said", "event"),
    [
        (
            '299 messageOriginateSegment {"topic_id":244,"message_id":5,"segment_length":42,'
            '"segment_start":0}',
            SegmentWanted(KEY, 0, 42),
        ),
        (
            '299 messageOriginateStatus {"topic_id":244,"message_id":5,'
            '"final_mo_status":"mo_ack_received"}',
            messages.MoEnded(KEY, "mo_ack_received"),
        ),
        (
            '299 messageTerminateSegment {"topic_id":244,"message_id":30,"segment_length":5,'
            '"segment_start":0,"data":"dHN0Z9E="}',
            MtSegment(MessageKey(244, 30), 0, b"tst\x67\xd1"),
        ),
        (
            '299 messageTerminateStatus {"topic_id":244,"message_id":30,'
            '"final_mt_status":"complete"}',
            MtEnded(MessageKey(244, 30), "complete"),
        ),
        (
            '299 bootInfo {"image_type":"production","version":{"major":1,"minor":5,"patch":5}}',
            messages.ModemStarted("1.5.5"),
        ),
        (
            '299 constellationState {"constellation_visible":false}',
            messages.Constellation(False, 0),
        ),
        (
            '200 constellationState {"constellation_visible":true,"signal_bars":4,'
            '"signal_level":-111}',
            messages.Constellation(True, 4),
        ),
        (
            '299 simStatus {"card_present":true,"sim_connected":true,"iccid":"8988169"}',
            messages.SimStatus(True, True, "8988169"),
        ),
        (
            '299 operationalState {"state":"fault","reason":6}',
            messages.OperationalState("fault", 6),
        ),
        ('299 messageActivityStatus {"enabled":true,"active":false}', messages.Activity(False)),
        ('200 messageActivityStatus {"enabled":false,"active":false}', None),
        ('200 messageActivityStatus {"enabled":true}', None),
        ('299 messageTerminate {"topic_id":244,"message_id":30,"message_length_max":5}', None),
        ('299 somethingNew {"a":1}', None),
    ],
)
def test_unsolicited_report_is_read_as_an_event(said: str, event: object) -> None:
    assert messages.parse_event(read_line(said)) == event


@pytest.mark.parametrize(
    "said",
    [
        '299 messageOriginateSegment {"topic_id":244,"message_id":5,"segment_length":42}',
        '299 messageOriginateSegment {"topic_id":244,"message_id":256,"segment_length":1,'
        '"segment_start":0}',
        '299 messageOriginateSegment {"topic_id":244,"message_id":5,"segment_length":1447,'
        '"segment_start":0}',
        '299 messageOriginateStatus {"topic_id":1,"message_id":5,"final_mo_status":"x"}',
        '299 messageOriginateStatus {"topic_id":244,"message_id":5,"final_mo_status":1}',
        '299 messageTerminateSegment {"topic_id":244,"message_id":5,"segment_start":0,'
        '"data":"dHN0Z9E"}',
        '299 operationalState {"reason":0}',
    ],
)
def test_invalid_unsolicited_report_raises(said: str) -> None:
    with pytest.raises(RemoteProtocolError):
        messages.parse_event(read_line(said))


@pytest.mark.parametrize(
    ("listed", "newest"),
    [
        ([(1, 7, 0), (1, 6, 1), (1, 6, 0)], (1, 7, 0)),
        ([(1, 0, 1), (1, 1, 0), (1, 2, 0)], (1, 2, 0)),
        ([(1, 9, 0), (1, 10, 0)], (1, 10, 0)),
    ],
)
def test_newest_version_is_chosen_in_any_list_order(
    listed: list[tuple[int, int, int]], newest: tuple[int, int, int]
) -> None:
    names = ("major", "minor", "patch")
    versions = [dict(zip(names, each, strict=True)) for each in listed]
    chosen = messages.find_newest_version(
        jspr.JsprLine(200, "apiVersion", {"supported_versions": versions})
    )
    assert tuple(chosen.values()) == newest


@pytest.mark.parametrize("listed", [None, [], [{"major": 1}], [1], [{"major": 1, "minor": "7"}]])
def test_unreadable_version_list_raises(listed: object) -> None:
    with pytest.raises(RemoteProtocolError, match="supported_versions"):
        messages.find_newest_version(
            jspr.JsprLine(200, "apiVersion", {"supported_versions": listed})
        )


def test_topic_is_found_by_name_or_number() -> None:
    said = read_line(
        '200 messageProvisioning {"provisioning":[{"topic_id":244,"topic_name":"RAW","priority":'
        '"High"},{"topic_id":313,"topic_name":"PURPLE","priority":"Low"},{"topic_id":1},"x"]}'
    )
    topics = messages.list_provisioned(said)
    assert [topic.name for topic in topics] == ["RAW", "PURPLE"]
    assert messages.find_topic(topics, "RAW") == messages.find_topic(topics, "244") == topics[0]
    assert messages.find_topic(topics, "PINK") is None
    assert messages.list_provisioned(jspr.JsprLine(200, "messageProvisioning", {})) == []


@pytest.mark.parametrize("key", [KEY, MessageKey(64, 0), MessageKey(65_535, 255)])
def test_message_key_survives_packing(key: MessageKey) -> None:
    assert messages.unpack_key(key.pack()) == key
    assert key.pack() != messages.UNNAMED_KEY
    assert messages.unpack_key(messages.UNNAMED_KEY) is None


@given(st.binary(min_size=1, max_size=8000))
def test_segments_add_up_to_the_message_and_its_crc(body: bytes) -> None:
    message, whole, start = MoMessage(body), b"", 0
    while start < len(message):
        assert not message.last_handed_over, "before its last segment nothing can leave"
        length = min(messages.SEGMENT_BYTES, len(message) - start)
        request = message.make_segment(SegmentWanted(KEY, start, length))
        fields = read_line("200 " + request.decode().partition(" ")[2].rstrip("\r")).body
        assert (fields["segment_length"], fields["segment_start"]) == (length, start)
        whole += base64.b64decode(fields["data"])
        start += length
    assert message.last_handed_over
    assert whole == body + messages.compute_crc(body)


@pytest.mark.parametrize("size", [0, 100_001])
def test_message_of_an_invalid_size_is_refused(size: int) -> None:
    with pytest.raises(LocalProtocolError, match="1 to 100000 bytes"):
        MoMessage(bytes(size))


def test_request_for_a_segment_out_of_range_raises() -> None:
    message = MoMessage(b"abc")
    with pytest.raises(RemoteProtocolError, match="bytes 4 to 6 of 5"):
        message.make_segment(SegmentWanted(KEY, 4, 2))
    assert not message.last_handed_over


@pytest.mark.parametrize("word", messages.FINAL)
def test_only_mo_ack_received_counts_as_sent(word: str) -> None:
    sent = messages.find_mo_status(word).verdict is SessionVerdict.SENT
    assert sent == (word == "mo_ack_received")


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("message_cancelled_pre_transit", SessionVerdict.NOT_SENT),
        ("segment_not_supplied", SessionVerdict.NOT_SENT),
        ("message_discarded_on_overflow", SessionVerdict.NOT_SENT),
        ("subscription_invalid", SessionVerdict.FAULT),
        ("message_cancelled_in_transit", SessionVerdict.DOUBTFUL),
        ("network_error", SessionVerdict.DOUBTFUL),
        ("message_expired", SessionVerdict.DOUBTFUL),
        ("a_word_of_next_year", SessionVerdict.DOUBTFUL),
        ("", SessionVerdict.DOUBTFUL),
    ],
)
def test_final_mo_status_maps_to_its_verdict(word: str, verdict: SessionVerdict) -> None:
    assert messages.find_mo_status(word).verdict is verdict


def test_refused_message_counts_as_not_sent() -> None:
    for word in (*messages.FINAL, "418, not ready", "mo_ack_received"):
        verdict = messages.find_refusal_status(word).verdict
        assert verdict in (SessionVerdict.NOT_SENT, SessionVerdict.FAULT)


def assemble(body: bytes, *, damage: bytes = b"", skip: int = -1) -> messages.MtMessage | None:
    whole, assembly = body + (damage or messages.compute_crc(body)), MtAssembly()
    for number, start in enumerate(range(0, len(whole), 1446)):
        if number != skip:
            assembly.add(MtSegment(KEY, start, whole[start : start + 1446]))
    return assembly.finish_message(MtEnded(KEY, "complete"))


@given(st.binary(min_size=1, max_size=6000))
def test_mt_message_is_reassembled(body: bytes) -> None:
    assert assemble(body) == messages.MtMessage(244, body, "")


def test_repeated_and_reordered_segments_are_reassembled() -> None:
    body = bytes(range(256)) * 12
    whole, assembly = body + messages.compute_crc(body), MtAssembly()
    for start in (1446, 0, 2892, 1446):
        assembly.add(MtSegment(KEY, start, whole[start : start + 1446]))
        assembly.add(MtSegment(MessageKey(244, 9), 0, b"another"))
    assert assembly.finish_message(MtEnded(KEY, "complete")) == messages.MtMessage(244, body, "")


def test_damaged_mt_message_is_reported_with_its_bytes() -> None:
    garbled = assemble(b"hello", damage=b"\0\0")
    assert garbled is not None
    assert garbled == messages.MtMessage(244, b"hello", "its CRC is wrong", guard=0)
    holed = assemble(bytes(4000), skip=1)
    assert holed is not None
    assert holed.damage == "1446 bytes of it did not arrive"
    assert (len(holed.body), holed.guard) == (4000, None)


@pytest.mark.parametrize(
    "word", ["message_timed_out", "message_cancelled", "crc_error_in_transfer"]
)
def test_aborted_mt_message_is_dropped(word: str) -> None:
    assembly = MtAssembly()
    assembly.add(MtSegment(KEY, 0, b"tst\x67\xd1"))
    assert assembly.finish_message(MtEnded(KEY, word)) is None
    assert assembly.finish_message(MtEnded(KEY, "complete")) is None, "and forgotten"


def test_oldest_unfinished_mt_messages_are_dropped() -> None:
    assembly = MtAssembly()
    for number in range(256):
        assembly.add(MtSegment(MessageKey(244, number), 0, bytes(1446)))
    assert assembly.finish_message(MtEnded(MessageKey(244, 0), "complete")) is None
    assert assembly.finish_message(MtEnded(MessageKey(244, 255), "complete")) is not None
