"""CoT events: encoded events can be decoded, also by other XML parsers, and invalid events are
refused.

The third-party events here have the form of ATAK and taky.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import (
    EVENT_BYTES_MAX,
    CotElement,
    CotEvent,
    CotPoint,
    EventSplitter,
    decode,
    encode,
    find_type,
)
from fieldagent.extensions.tak.events import GeoChat, TakUnit
from fieldagent.package.package import FIRST_DATE, LAST_DATE
from fieldagent.wire.errors import RemoteProtocolError

NOW = datetime(2026, 11, 25, 12, 0, 0, 250_000, tzinfo=UTC)
ADA = TakUnit("FA-1234-1", "Ada")
BRAVO = TakUnit("ANDROID-358", "BRAVO")
PROGRAM = {"device": "kit", "platform": "fieldagent", "os": "Linux", "version": "1"}

FROM_ATAK = """<?xml version='1.0' encoding='UTF-8' standalone='yes'?>
<event version='2.0' uid='GeoChat.ANDROID-358.FA-1234-1.b5f5' type='b-t-f'
 time='2026-11-25T11:59:58.101Z' start='2026-11-25T11:59:58.101Z'
 stale='2026-11-26T11:59:58.101Z' how='h-g-i-g-o' access='Undefined'>
<point lat='46.5' lon='8.1' hae='9999999.0' ce='12.5' le='9999999.0'/><detail>
<__chat parent='RootContactGroup' groupOwner='false' messageId='b5f5' chatroom='Ada'
 id='FA-1234-1' senderCallsign='BRAVO'><chatgrp uid0='ANDROID-358' uid1='FA-1234-1'
 id='FA-1234-1'/></__chat><link uid='ANDROID-358' type='a-f-G-U-C' relation='p-p'/>
<remarks source='BAO.F.ATAK.ANDROID-358' to='FA-1234-1' time='2026-11-25T11:59:58.101Z'
>rope &lt;60 m&gt; &amp; &#228; litter</remarks><__serverdestination
 destinations='10.0.0.4:4242:tcp:ANDROID-358'/></detail></event>"""


def test_atak_chat_event_is_read() -> None:
    event = decode(FROM_ATAK.encode())
    assert (event.type, event.how) == ("b-t-f", "h-g-i-g-o")
    assert event.point == CotPoint(46.5, 8.1, None, 12.5)
    assert event.stale - event.time == timedelta(days=1)
    assert tak.read_chat(event) == GeoChat(
        BRAVO, TakUnit("FA-1234-1", "Ada"), "b5f5", "rope <60 m> & ä litter"
    )
    assert not tak.is_of(event, "FA-")


TICK = """<event version="2.0" uid="b5f5" type="b-t-f-r" how="h-g-i-g-o"
 time="2026-11-25T11:59:58Z" start="2026-11-25T11:59:58Z" stale="2026-11-26T11:59:58Z">
<point lat="0.0" lon="0.0" hae="9999999" ce="9999999" le="9999999"/><detail><{name} id="FA-1234-1"
 parent="RootContactGroup" chatroom="Ada" senderCallsign="BRAVO" groupOwner="false"
 messageId="b5f5"><chatgrp id="FA-1234-1" uid0="ANDROID-358" uid1="FA-1234-1"/></{name}>{link}
</detail></event>"""
LINK = '<link uid="ANDROID-358" type="a-f-G-U-C" relation="p-p"/>'


@pytest.mark.parametrize(("name", "link"), [("__chatreceipt", LINK), ("__chat", "")])
def test_receipts_of_atak_and_wintak_are_read(name: str, link: str) -> None:
    event = decode(TICK.format(name=name, link=link).encode())
    assert tak.read_receipt(event) == tak.ChatReceipt(BRAVO, "FA-1234-1", "b5f5", True)
    assert tak.read_chat(event) is None


EVENTS = {
    "unit": tak.make_unit_event(
        ADA, tak.Sighting(CotPoint(46.5, 8.1), NOW, NOW, tak.HOW_GPS, "by radio"), NOW, PROGRAM
    ),
    "chat": tak.make_chat(GeoChat(ADA, BRAVO, "m-1", "all\nwell </event> ]]>"), NOW),
    "to all": tak.make_chat(GeoChat(ADA, tak.ALL_UNITS, "m-2", "“täglich” 🚁"), NOW),
    "delivered": tak.make_receipt(tak.ChatReceipt(ADA, BRAVO.uid, "m-3", False), BRAVO, NOW),
    "read": tak.make_receipt(tak.ChatReceipt(ADA, BRAVO.uid, "m-3", True), BRAVO, NOW),
    "alert": tak.make_alert(ADA, CotPoint(46.5, 8.1), NOW),
    "cancel": tak.make_alert(ADA, CotPoint(46.5, 8.1), NOW, cancels=True),
    "removal": tak.make_removal("FA-1234-w1", ADA, NOW),
    "marker": tak.make_marker(
        "FA-1234-w1", ADA, tak.PlacedMarker("hut", "dry", CotPoint(-46.5, -8.1), NOW, ()), NOW
    ),
    "ping": tak.make_ping("FA-1234", NOW),
}


@pytest.mark.parametrize("event", EVENTS.values(), ids=EVENTS)
def test_encoded_event_is_read_by_any_xml_parser(event: CotEvent) -> None:
    written = encode(event)
    assert decode(written) == event
    assert find_type(written) == event.type
    # A server splits at this text, and has problems with data after it.
    assert written.count(b"</event>") == 1
    assert written.endswith(b"</event>")
    other = ElementTree.fromstring(written)
    assert (other.get("uid"), other.get("version")) == (event.uid, "2.0")
    assert {"lat", "lon", "hae", "ce", "le"} == set(other.find("point").attrib)  # type: ignore[union-attr]
    for element in event.detail:
        child = other.find(f"detail/{element.name}")
        assert child is not None
        assert (child.attrib, child.text or "") == (element.attributes, element.text)


@given(st.text(), st.lists(st.integers(1, 400), max_size=8))
def test_any_text_survives_any_segmentation_of_the_stream(text: str, cuts: list[int]) -> None:
    event = tak.make_chat(GeoChat(ADA, BRAVO, "m", text), NOW)
    stream = encode(event) * 3
    splitter, events, at = EventSplitter(), [], 0
    for size in (*cuts, len(stream)):
        events += splitter.receive_data(stream[at : at + size])
        at += size
    assert len(events) == 3
    said = tak.read_chat(decode(events[2]))
    assert said is not None
    assert said.text == "".join(each for each in text if not cot._REFUSED_CHARACTERS.search(each))


def test_unit_marker_author_and_recipients_are_read_from_the_detail() -> None:
    assert tak.read_unit(EVENTS["unit"]) == ADA
    assert tak.read_unit(EVENTS["marker"]) is None
    assert tak.read_marker_author(EVENTS["marker"]) == ADA
    assert all(tak.is_of(each, "FA-") for each in EVENTS.values())
    # A person who cancels another's alert uses that alert's uid.
    cancel = replace(EVENTS["cancel"], detail=())
    assert tak.is_of(cancel, "FA-")
    assert not tak.is_passed_through(cancel, "FA-")
    assert tak.is_passed_through(EVENTS["cancel"], "FA-")
    # A message to one person goes to no other: a server reads both elements.
    assert EVENTS["chat"].find("marti") is not None
    assert EVENTS["to all"].find("marti") is None
    sent = replace(
        EVENTS["marker"],
        uid="m",
        detail=(
            CotElement("contact", {"callsign": "hut"}),
            CotElement("marti", children=(CotElement("dest", {"callsign": "Ada"}),)),
        ),
    )
    marker = tak.read_marker(sent)
    assert marker is not None
    assert (marker.name, marker.to) == ("hut", ("Ada",))
    assert tak.read_marker(EVENTS["marker"]) is None


BOMB = (
    '<!DOCTYPE event [<!ENTITY a "0123456789"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    + FROM_ATAK.partition("?>")[2].replace("rope", "&b;")
)
GOOD = FROM_ATAK.partition("?>")[2].strip()
UNIT = GOOD.replace("b-t-f", "a-f-G-U-C")


@pytest.mark.parametrize("type_", ["b-t-f", "b-a-o-tbl"])
@pytest.mark.parametrize(
    ("good", "odd"),
    [("46.5", "nan"), ("46.5", "91"), ("'8.1'", "'east'"), ("<point", "<place")],
)
def test_chat_and_alert_are_read_without_a_position(type_: str, good: str, odd: str) -> None:
    assert good in GOOD
    event = cot.decode(GOOD.replace("b-t-f", type_).replace(good, odd).encode())
    assert event.point == cot.NOWHERE
    assert event.find("remarks") is not None


@pytest.mark.parametrize("height", ["NaN", "high", "", "1e999"])
def test_invalid_height_is_read_as_unknown(height: str) -> None:
    raw = UNIT.replace("hae='9999999.0' ce='12.5'", f"hae='{height}' ce='x'")
    point = cot.decode(raw.encode()).point
    assert (point.latitude, point.height, point.error) == (46.5, None, None)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (BOMB, "undefined entity"),
        (GOOD.replace("<point", "<!DOCTYPE a [<!ENTITY b 'c'>]><point"), "not XML"),
        (GOOD.replace("rope", "&b;"), "not XML"),
        (GOOD.replace("<remarks", "<remark"), "not XML"),
        (UNIT.replace("46.5", "nan"), "lat"),
        (UNIT.replace("46.5", "91"), "at 91"),
        (UNIT.replace("'8.1'", "'east'"), "lon"),
        (GOOD.replace("2026-11-26T11", "2026-13-26T11"), "stale"),
        (GOOD.replace("uid='GeoChat", "id='GeoChat"), "without uid"),
        (UNIT.replace("<point", "<place"), "without a point"),
        (GOOD.replace("rope", "<a>" * 20 + "</a>" * 20), "too many elements"),
        (GOOD.replace("rope", "<a/>" * 5_000), "too many elements"),
        ("</event>", "not an event"),
    ],
)
def test_hostile_or_malformed_event_is_refused(raw: str, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        decode(raw.encode())


def test_overlong_event_is_skipped_and_the_next_is_read() -> None:
    """A server may send such an event, for example a drawing, again at each connection."""
    good = encode(EVENTS["chat"])
    long = b"<event>" + b"x" * EVENT_BYTES_MAX + b"</event>"
    stream = good + long + good + b"y" * 3 * EVENT_BYTES_MAX + good + good
    for size in (1, 7, 4_096, 65_536, len(stream)):
        splitter = EventSplitter()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        events = [each for piece in pieces for each in splitter.receive_data(piece)]
        assert events == [good, good, good], size
        assert splitter.too_long == 2
        assert len(splitter._rest) < 10


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("9999-12-31T23:59:59Z", LAST_DATE),
        ("0001-01-01T00:00:00+14:00", FIRST_DATE),
        ("1969-12-31T23:59:59", FIRST_DATE),
    ],
)
def test_impossible_date_is_moved_to_the_nearer_bound(text: str, date: datetime) -> None:
    """A marker that never ends has such a date."""
    raw = (
        f'<event version="2.0" uid="a" type="a-f-G" time="{text}" start="{text}" stale="{text}">'
        '<point lat="1" lon="2" hae="0" ce="1" le="1"/></event>'
    )
    event = decode(raw.encode())
    assert {event.time, event.start, event.stale} == {date}
