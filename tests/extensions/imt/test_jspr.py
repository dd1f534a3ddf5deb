from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.extensions.imt import jspr
from fieldagent.extensions.imt.jspr import JsprLine, LineReader
from fieldagent.wire.errors import RemoteProtocolError

BOOT = (
    b'299 bootInfo {"image_type":"production","version":{"major":1,"minor":5,"patch":5,'
    b'"build_info":"SX-1"},"boot_source":"primary"}\r'
)


def read_lines(*pieces: bytes) -> list[JsprLine]:
    reader, lines = LineReader(), []
    for piece in pieces:
        reader.receive_data(piece)
        while (line := reader.read_next_line()) is not None:
            lines.append(line)
    return lines


def test_request_json_has_a_space_after_each_comma_and_colon() -> None:
    """Fully compact JSON is refused with 407. Only `{}` stays as it is."""
    assert jspr.encode_get("apiVersion") == b"GET apiVersion {}\r"
    asked = jspr.encode_put(
        "messageOriginate", topic_id=244, message_length=42, request_reference=1
    )
    wanted = b'{"topic_id": 244, "message_length": 42, "request_reference": 1}'
    assert asked == b"PUT messageOriginate " + wanted + b"\r"
    version = jspr.encode_put("apiVersion", active_version={"major": 1, "minor": 7, "patch": 0})
    assert version == b'PUT apiVersion {"active_version": {"major": 1, "minor": 7, "patch": 0}}\r'


@pytest.mark.parametrize(
    ("said", "code", "target"),
    [
        (b"405 MALFORMED {}\r", 405, "MALFORMED"),
        (b'200 simConfig {"interface":"none"}\r', 200, "simConfig"),
        (b'299 constellationState {"constellation_visible":false}\r', 299, "constellationState"),
        (b"\0\0\0\x11" + BOOT, 299, "bootInfo"),
        (b"\n\n200 hwInfo {}\r\n", 200, "hwInfo"),
        (b'gnment":1}299 bootInfo {"a":1}\r', 299, "bootInfo"),
        (b'40200 hwInfo {}\r299 hwInfo {"a":"299 x {}"}\r', 299, "hwInfo"),
    ],
)
def test_response_line_is_found_after_noise(said: bytes, code: int, target: str) -> None:
    (line,) = read_lines(said)
    assert (line.code, line.target) == (code, target)


@pytest.mark.parametrize(
    "said",
    [
        b"\r\r",
        b"OK\r",
        b"200 hwInfo\r",
        b"200 hwInfo []\r",
        b"200 hwInfo {broken}\r",
        b"501 hwInfo {}\r",
        b"200 hwInfo " + b"[" * 5000 + b"\r",
        b'200 hwInfo {"a":' + b"[" * 5000 + b"}\r",
        b"\xff\xfe200 hw\xffInfo {}\r",
        b"200 " + b"a" * 30 + b" {}\r",
    ],
)
def test_invalid_line_is_dropped_and_counted(said: bytes) -> None:
    reader = LineReader()
    reader.receive_data(said + b"200 simConfig {}\r")
    line = reader.read_next_line()
    assert line is not None
    assert line.target == "simConfig"
    assert reader.noise == len(said.replace(b"\r", b""))


def test_overlong_line_is_dropped_up_to_its_end() -> None:
    lines = read_lines(b"x" * 9000, b"200 hwInfo {}", b"\r200 simConfig {}\r")
    assert [line.target for line in lines] == ["simConfig"]


@given(st.lists(st.integers(1, 40), max_size=12))
def test_line_is_read_from_any_segmentation(sizes: list[int]) -> None:
    said, pieces = BOOT + b"405 MALFORMED {}\r" + BOOT, []
    for size in sizes:
        pieces.append(said[:size])
        said = said[size:]
    assert [line.code for line in read_lines(*pieces, said)] == [299, 405, 299]


@given(st.binary(max_size=300))
def test_noise_does_not_hide_the_next_line(noise: bytes) -> None:
    lines = read_lines(noise, b"\r", BOOT)
    assert lines[-1].target == "bootInfo"


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=20), max_size=4))
def test_any_json_body_of_a_modem_is_read(body: dict[str, object]) -> None:
    text = json.dumps(body, separators=(",", ":")).encode()
    (line,) = read_lines(b"200 someTarget " + text + b"\r")
    assert line.body == body


def test_missing_or_invalid_member_is_reported_by_name() -> None:
    line = JsprLine(299, "messageTerminate", {"topic_id": True, "word": 5})
    with pytest.raises(RemoteProtocolError, match="messageTerminate has topic_id=True"):
        jspr.read_integer(line, "topic_id", 64, 65_535)
    with pytest.raises(RemoteProtocolError, match="message_id=None, not 0 to 255"):
        jspr.read_integer(line, "message_id", 0, 255)
    with pytest.raises(RemoteProtocolError, match="word=5, which is not a text"):
        jspr.read_text(line, "word")


def test_refusal_code_has_a_description() -> None:
    assert JsprLine(418, "x", {}).describe_refusal().startswith("418, the topic is not provisioned")
    assert JsprLine(499, "x", {}).describe_refusal() == "499, for a reason that is not documented"
