"""gpsd's lines: the output of gpsd 3.22, and possible output of other versions and receivers."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.gpsd import LINE_BYTES, Fix, GpsReport, NoFix, parse_line

TPV = (
    b'{"class":"TPV","device":"/dev/pts/1","mode":3,"time":"2026-11-20T10:00:10.000Z",'
    b'"ept":0.005,"lat":47.000500000,"lon":8.000000000,"altHAE":592.3000,"altMSL":545.4000,'
    b'"alt":545.4000,"track":84.4000,"speed":15.022,"climb":0.000,"eph":17.100}'
)
SATELLITE = b'{"PRN":1,"el":14.0,"az":220.0,"ss":36.0,"used":true,"gnssid":0,"svid":1}'
TIME = 1_795_168_810.0
UNDATED = Fix(0.0, 47.0005, 8.0, 545.4, 15.022, 84.4)
"""A position from a receiver that does not know the date. An SOS leaves with it."""


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (TPV, Fix(TIME, 47.0005, 8.0, 545.4, 15.022, 84.4)),
        (TPV.replace(b'"altMSL":545.4000,', b""), Fix(TIME, 47.0005, 8.0, 545.4, 15.022, 84.4)),
        (TPV.replace(b'"mode":3', b'"mode":2'), Fix(TIME, 47.0005, 8.0, None, 15.022, 84.4)),
        (TPV.replace(b'"speed":15.022,', b""), Fix(TIME, 47.0005, 8.0, 545.4, None, 84.4)),
        (TPV.replace(b'"track":84.4000', b'"track":"n/a"'), Fix(TIME, 47.0005, 8.0, 545.4, 15.022)),
        (TPV.replace(b'"mode":3', b'"mode":1'), NoFix()),
        (TPV.replace(b'"mode":3', b'"mode":0'), NoFix()),
        (TPV.replace(b"47.000500000", b"NaN"), NoFix()),
        (TPV.replace(b"47.000500000", b"147.0"), NoFix()),
        (TPV.replace(b'"lon":8.000000000,', b""), NoFix()),
        (TPV.replace(b"2026-11-20T10:00:10.000Z", b"soon"), UNDATED),
        (TPV.replace(b'"time":"2026-11-20T10:00:10.000Z",', b""), UNDATED),
        (TPV.replace(b"47.000500000", b"1" + b"0" * 400), NoFix()),
        (TPV.replace(b"47.000500000", b"0.0").replace(b"8.000000000", b"0.0"), NoFix()),
        (TPV.replace(b"47.000500000", b"0.0"), Fix(TIME, 0.0, 8.0, 545.4, 15.022, 84.4)),
        (TPV.replace(b"10.000Z", b"10.000"), Fix(TIME, 47.0005, 8.0, 545.4, 15.022, 84.4)),
        (TPV.replace(b"47.000500000", b"0.00005").replace(b"8.000000000", b"-0.00005"), NoFix()),
        (TPV.replace(b"2026-11-20", b"0001-01-01"), UNDATED),
        (TPV.replace(b"2026-11-20T10:00:10.000Z", b"9999-12-31T23:59:59.9999999Z"), UNDATED),
        (TPV.replace(b"2026-11-20", b"2046-07-05"), UNDATED),  # 1024 weeks too late
        (b'{"class":"TPV"}', NoFix()),
        (b'{"class":"VERSION","release":"3.22"}', None),
        (b'{"class":"SKY","satellites":[]}', None),
        (b'{"class":"SKY","satellites":[' + b",".join([SATELLITE] * 140) + b"]}", None),
        (b"{}", None),
    ],
)
def test_gpsd_line_is_read_as_a_report(line: bytes, report: GpsReport) -> None:
    assert parse_line(line) == report


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"$GPGGA,1",
        b"[1]",
        b"7",
        b"\xff",
        b"[" * LINE_BYTES,
        b'{"class":' * 1800,
        b'{"class":"SKY","satellites":' + b"[" * 20 + b"]" * 20 + b"}",
        b'{"class":"ERROR","message":"no"}',
    ],
    ids=lambda line: repr(line[:20]),
)
def test_invalid_gpsd_line_raises(line: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_line(line)


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(line: bytes) -> None:
    with suppress(RemoteProtocolError):
        parse_line(line)


@given(
    st.dictionaries(
        st.sampled_from(["mode", "time", "lat", "lon", "altMSL", "speed", "track"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.just(10**400)
        | st.floats()
        | st.text(max_size=5)
        | st.datetimes().map(str),
    )
)
def test_members_of_any_type_are_read(members: dict[str, object]) -> None:
    line = json.dumps({"class": "TPV", **members}).encode()
    assert isinstance(parse_line(line), Fix | NoFix)
