"""APRS, compared with aprslib, which is independent code."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import aprslib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.extensions.people import aprs_wire as aprs
from fieldagent.extensions.people.aprs_wire import (
    AprsAnswer,
    AprsHeard,
    AprsMessage,
    AprsObject,
    AprsPosition,
)
from fieldagent.wire.ax25 import Callsign, Frame, parse_callsign
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from tests.public_data import fetch_debian_source, read_files

KNOT = 1852 / 3600


def read_tnc2_line(line: str) -> AprsHeard:
    """Decode a line such as `N0CALL>APRS,WIDE1-1:!4722.61N/...` with our decoder."""
    head, _, info = line.partition(":")
    source, _, path = head.partition(">")
    to, *via = (parse_callsign(each.rstrip("*")) for each in path.split(","))
    return aprs.parse_frame(Frame(parse_callsign(source), to, info.encode("latin-1"), tuple(via)))


def position(line: str) -> AprsPosition:
    what = read_tnc2_line(line).what
    assert isinstance(what, AprsPosition)
    return what


def check_agrees_with_aprslib(line: str) -> AprsPosition:
    """Check that aprslib reads the same from the line."""
    ours, theirs = position(line), aprslib.parse(line)
    assert ours.latitude == pytest.approx(theirs["latitude"], abs=1e-6)
    assert ours.longitude == pytest.approx(theirs["longitude"], abs=1e-6)
    assert ours.ambiguity == theirs.get("posambiguity", 0)
    _check_agree(ours.altitude, theirs.get("altitude"))
    _check_agree(ours.speed, theirs["speed"] / 3.6 if "speed" in theirs else None)
    _check_agree(ours.course, theirs.get("course"))
    return ours


def _check_agree(ours: float | None, theirs: Any) -> None:
    # For an unknown course, aprslib returns 0 and 360.
    if ours is not None and theirs is not None:
        assert ours == pytest.approx(theirs, rel=1e-3, abs=0.01)
    assert ours is None or theirs is not None


@pytest.mark.parametrize(
    "line",
    [
        "N0CALL-9>APRS,WIDE1-1:!4722.61N/00832.50E>088/036/A=001640 text",
        "N0CALL-9>APRS:=4722.61S/00832.50W-",
        "N0CALL-9>APRS:/092345z4903.50N/07201.75W>088/036",
        "N0CALL-9>APRS:@092345z4903.50N/07201.75W>Test",
        "N0CALL-9>APRS:!4722.6 N/00832.5 E>",
        "N0CALL-9>APRS:!4722.  N/00832.  E>",
        "N0CALL-9>APRS:!472 .  N/0083 .  E>",
        "N0CALL-9>APRS:!47  .  N/008  .  E>",
        "N0CALL-9>APRS:=/5L!!<*e7>7P[",
        "N0CALL-9>APRS:=/5L!!<*e7OS]S",
        "N0CALL-9>APRS:=/5L!!<*e7> sT",
        'N0CALL-9>S32U6T:`(_fn"Oj/',
        'N0CALL-9>S32U6T:`(_fn"Oj/"4T}',
        'N0CALL-9>T7SYWP:`(_fn"Oj/Hello',
    ],
)
def test_positions_are_read_as_by_aprslib(line: str) -> None:
    check_agrees_with_aprslib(line)


PUBLIC_LINE = re.compile(
    r"[\"\n ]([A-Z0-9]{3,6}(?:-\d{1,2})?>[A-Z0-9]{3,6}(?:,[A-Z0-9]+(?:-\d{1,2})?\*?)*"
    r":[^\"\\\r\n]+)[\"\n]"
)
"""A line of APRS in a source or a document, without escapes of C."""


@pytest.mark.full
def test_lines_in_the_sources_of_dire_wolf_are_read_as_by_aprslib() -> None:
    """Positions and messages are compared. The other lines are of types that we ignore, or of none,
    such as lines of Dire Wolf's tests for digipeaters.
    """
    files = read_files(fetch_debian_source("direwolf", "bookworm"), r"\.(c|txt|1)$")
    lines = {
        line for each in files.values() for line in PUBLIC_LINE.findall(each.decode("latin-1"))
    }
    counts: Counter[str] = Counter()
    for line in sorted(lines):
        try:
            theirs = aprslib.parse(line)
        except (aprslib.ParseError, aprslib.UnknownFormat):
            counts["not read by aprslib"] += 1
            continue
        if theirs["format"] in ("uncompressed", "compressed", "mic-e"):
            check_agrees_with_aprslib(line)
        elif theirs["format"] == "message" and "message_text" in theirs:
            what = read_tnc2_line(line).what
            assert isinstance(what, AprsMessage), line
            assert (what.to, what.text) == (theirs["addresse"], theirs["message_text"]), line
        counts[theirs["format"]] += 1
    assert (counts["uncompressed"], counts["mic-e"], counts["message"]) == (16, 13, 7), counts


def test_course_speed_and_altitude_are_read() -> None:
    there = position("N0CALL-9>APRS:!4722.61N/00832.50E>088/036/A=001640 text")
    assert there.course == 88
    assert there.speed == pytest.approx(36 * KNOT)
    assert there.altitude == pytest.approx(1640 * 0.3048)
    assert there.comment == "text"


def test_wind_direction_is_not_read_as_a_course() -> None:
    there = position("N0CALL>APRS:!4722.61N/00832.50E_220/004g005t077")
    assert (there.course, there.speed) == (None, None)


@pytest.mark.parametrize(
    ("destination", "is_emergency"),
    [("432105", True), ("43210L", True), ("S32U6T", False), ("43RU6T", False), ("4C2U6T", False)],
)
def test_mic_e_emergency_is_recognised(destination: str, is_emergency: bool) -> None:
    assert position(f'N0CALL-9>{destination}:`(_fn"Oj/').emergency is is_emergency


@given(
    st.integers(0, 89),
    st.integers(0, 5999),
    st.integers(0, 179),
    st.integers(0, 5999),
    st.sampled_from("NS"),
    st.sampled_from("EW"),
    st.integers(0, 4),
)
def test_any_uncompressed_position_is_read_as_by_aprslib(
    north: int, minutes: int, east: int, more: int, ns: str, ew: str, ambiguity: int
) -> None:
    def blurred(value: int) -> str:
        digits = f"{value:04d}"
        digits = digits[: 4 - ambiguity] + " " * ambiguity
        return f"{digits[:2]}.{digits[2:]}"

    line = f"N0CALL>APRS:!{north:02d}{blurred(minutes)}{ns}/{east:03d}{blurred(more)}{ew}>"
    check_agrees_with_aprslib(line)


@given(st.lists(st.integers(33, 123), min_size=8, max_size=8))
def test_any_compressed_position_is_read_as_by_aprslib(characters: list[int]) -> None:
    line = f"N0CALL>APRS:!/{''.join(map(chr, characters))}> sT"
    try:
        there = position(line)
    except RemoteProtocolError:
        return
    theirs = aprslib.parse(line)
    assert there.latitude == pytest.approx(theirs["latitude"], abs=1e-6)
    assert there.longitude == pytest.approx(theirs["longitude"], abs=1e-6)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (":HB9ABC-9 :Camp reached{12", AprsMessage("HB9ABC-9", "Camp reached", "12")),
        (":HB9ABC-9 :Camp reached", AprsMessage("HB9ABC-9", "Camp reached")),
        (":hb9abc-9 :Camp reached{12", AprsMessage("HB9ABC-9", "Camp reached", "12")),
        (":HB9ABC-9 :Camp reached{12 ", AprsMessage("HB9ABC-9", "Camp reached", "12")),
        (":HB9ABC-9 :Camp reached{12\0\r\n", AprsMessage("HB9ABC-9", "Camp reached", "12")),
        (":hb9abc-9 :ack12 ", AprsAnswer("HB9ABC-9", "12", True)),
        (":HB9ABC-9 :Yes{34}12", AprsMessage("HB9ABC-9", "Yes", "34", "12")),
        (":HB9ABC-9 :Yes{34}", AprsMessage("HB9ABC-9", "Yes", "34")),
        (":HB9ABC-9 :a {b{c1", AprsMessage("HB9ABC-9", "a {b", "c1")),
        (":HB9ABC-9 :ack12", AprsAnswer("HB9ABC-9", "12", True)),
        (":HB9ABC-9 :rej12", AprsAnswer("HB9ABC-9", "12", False)),
        (":BLN1     :Snow above 2000 m", AprsMessage("BLN1", "Snow above 2000 m")),
        (":HB9:too short", None),
        (">A status", None),
    ],
)
def test_messages_acknowledgements_and_bulletins_are_read(line: str, what: object) -> None:
    assert read_tnc2_line(f"N0CALL>APRS:{line}") == AprsHeard("N0CALL", what)  # type: ignore[arg-type]


@given(st.text(st.characters(codec="utf-8", exclude_characters="|~{\r\n"), max_size=16))
def test_written_message_is_read_unchanged(text: str) -> None:
    info = aprs.encode_message("HB9ABC-9", text, "7")
    frame = Frame(Callsign("N0CALL"), Callsign("APZFLD"), info)
    what = aprs.parse_frame(frame).what
    assert what == AprsMessage("HB9ABC-9", text, "7")


def test_aprslib_reads_written_messages_and_answers() -> None:
    info = aprs.encode_message("HB9ABC-9", "Camp reached", "7").decode()
    theirs = aprslib.parse(f"N0CALL>APZFLD:{info}")
    assert (theirs["addresse"], theirs["message_text"]) == ("HB9ABC-9", "Camp reached")
    assert theirs["msgNo"] == "7"
    info = aprs.encode_ack_or_reject("HB9ABC-9", "7", is_accepted=False).decode()
    assert aprslib.parse(f"N0CALL>APZFLD:{info}")["response"] == "rej"


@pytest.mark.parametrize(("text", "number"), [("a" * 68, "1"), ("a|b", "1"), ("a", "123456")])
def test_invalid_message_text_or_number_raises(text: str, number: str) -> None:
    with pytest.raises(LocalProtocolError):
        aprs.encode_message("HB9ABC-9", text, number)


def test_third_party_packet_is_read_with_its_origin() -> None:
    line = "HB9GW>APRS:}N0CALL-9>APRS,TCPIP,HB9GW*::HB9ABC-9 :Hello{1"
    assert read_tnc2_line(line) == AprsHeard(
        "N0CALL-9", AprsMessage("HB9ABC-9", "Hello", "1"), True
    )
    assert read_tnc2_line("N0CALL>APRS,TCPIP*:>x").over_internet


@pytest.mark.parametrize(
    "line",
    [
        "N0CALL>APRS:!47 2.61N/00832.50E>",
        "N0CALL>APRS:!4760.00N/00832.50E>",
        "N0CALL>APRS:!9922.00N/00832.50E>",
        "N0CALL>APRS:!",
        "N0CALL>APRS:=/5L!!",
        "N0CALL>APRS:`(_f",
        'N0CALL>APRS12:`(_\xffn"Oj/',
        "N0CALL>APRS:}nobody",
        "N0CALL>APRS:;CREVASSE *092345z",
        "N0CALL>APRS:)A!4903.50N/07201.75WA",
        "N0CALL>APRS:}N0CALL>APRS:}N1CALL>APRS:>x",
    ],
)
def test_malformed_packet_raises(line: str) -> None:
    with pytest.raises(RemoteProtocolError):
        read_tnc2_line(line)


@given(st.sampled_from(b"!=/@:`'};)\x1c"), st.binary(max_size=60), st.text("0LPKZA3", max_size=6))
def test_any_packet_is_read_or_raises_a_protocol_error(kind: int, rest: bytes, name: str) -> None:
    frame = Frame(Callsign("N0CALL"), Callsign(name or "APRS"), bytes([kind]) + rest)
    try:
        aprs.parse_frame(frame)
    except RemoteProtocolError:
        return


def test_object_is_read_as_by_aprslib() -> None:
    line = "N0CALL>APRS:;CREVASSE *092345z4722.61N/00832.50E!mind it"
    what, theirs = read_tnc2_line(line).what, aprslib.parse(line)
    assert isinstance(what, AprsObject)
    assert (what.name, what.is_alive) == (theirs["object_name"].strip(), theirs["alive"])
    assert what.there.latitude == pytest.approx(theirs["latitude"], abs=1e-6)
    assert (what.there.when, what.there.comment) == (theirs["raw_timestamp"], "mind it")
    gone = read_tnc2_line(line.replace("*", "_")).what
    assert isinstance(gone, AprsObject) and not gone.is_alive


def test_item_report_is_read() -> None:
    # aprslib reads no items. This one is from chapter 11.
    what = read_tnc2_line("N0CALL>APRS:)AID #2!4903.50N/07201.75WA").what
    assert isinstance(what, AprsObject)
    assert (what.name, what.is_alive, round(what.there.latitude, 4)) == ("AID #2", True, 49.0583)


@pytest.mark.parametrize(
    ("when", "moment"),
    [
        ("010545z", datetime(2026, 3, 1, 5, 45, tzinfo=UTC)),
        ("282359z", datetime(2026, 2, 28, 23, 59, tzinfo=UTC)),
        ("055900h", datetime(2026, 3, 1, 5, 59, tzinfo=UTC)),
        ("235900h", datetime(2026, 2, 28, 23, 59, tzinfo=UTC)),
        ("010545/", None),
        ("310545z", None),
        ("996699z", None),
        ("", None),
    ],
)
def test_timestamp_is_the_latest_past_moment(when: str, moment: datetime | None) -> None:
    assert aprs.parse_date(when, datetime(2026, 3, 1, 6, 0, tzinfo=UTC)) == moment
