"""An alarm is never refused, silenced or hidden because another part of its message is unreadable,
missing or unproved. This covers each way in which an alarm arrives, with unusual other content.

Trackers have more cases in `tests/hub/tracker`, which also test the hub's reaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fieldagent.agent.api.sos import IncidentApi
from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import incident
from fieldagent.agent.people.contract import Spoken
from fieldagent.agent.people.meshcore import MeshcorePeople
from fieldagent.agent.people.meshtastic import MeshtasticPeople
from fieldagent.http.message import Request
from fieldagent.http.target import query_pairs
from fieldagent.hub.tracker.known import tracker_kinds
from fieldagent.package.package import Location, Message, Waypoint
from fieldagent.package.reading import InvalidPackage, parse_package
from fieldagent.wire import aprs, ax25
from fieldagent.wire.aprs import AprsEmergency, AprsMessage, AprsPosition
from fieldagent.wire.meshcore_companion import CompanionText
from fieldagent.wire.meshtastic import MeshData, MeshPacket, Port
from tests.agent.people.test_desk import bench

KIT = "HB9ABC-7"


def of_tracker(kind: str, query: str = "", body: Any = None) -> bool:
    data = b"" if body is None else json.dumps(body).encode()
    head = {"content-length": str(len(data))} if data else {}
    request = Request("POST", "/", query_pairs(query), head, data)
    report = tracker_kinds()[kind].read(request)
    return report is not None and "sos" in report.alarm.casefold()


def of_aprs(info: str, to: str = "APRS") -> bool:
    frame = ax25.Frame(ax25.read_call("N0CALL-9"), ax25.read_call(to), info.encode(), ())
    what = aprs.read(frame).what
    if isinstance(what, AprsMessage):
        return what.to == KIT and what.text.startswith("SOS")
    return isinstance(what, AprsEmergency) or (isinstance(what, AprsPosition) and what.emergency)


def of_meshtastic(data: MeshData, **packet: Any) -> bool:
    host = SimpleNamespace(facts=SimpleNamespace(number=1, channels={}))
    people = MeshtasticPeople(cast(Any, host), lambda: 0.0)
    what = people._read(MeshPacket(5, 1, decoded=data, id=7, **packet)).what
    return isinstance(what, Spoken) and (what.alert or what.text.startswith("SOS"))


def of_meshcore(text: str) -> bool:
    host = SimpleNamespace(channels={})
    people = MeshcorePeople(cast(Any, host), cast(Any, None), lambda: 0.0)
    people._hear_on_channel(CompanionText(b"", 0, 0, text))
    what = people._heard[-1].what
    return isinstance(what, Spoken) and what.text.startswith("SOS")


TWO_ALARMS = {
    "position": {
        "fixTime": "2026-11-29T09:23:18.000+00:00",
        "latitude": 46.1,
        "longitude": 7.1,
        "attributes": {"alarm": "lowBattery,sos", "batteryLevel": 4},
    },
    "device": {"uniqueId": "100000000000001"},
}


@pytest.mark.parametrize(
    "is_alarm",
    [
        lambda: of_tracker("traccar", body=TWO_ALARMS),
        lambda: of_tracker("osmand", "id=1&lat=47.1&lon=8.1&altitude=NaN&alarm=sos"),
        lambda: of_tracker("osmand", "id=1&lat=47,1&lon=8,1&alarm=sos"),
        lambda: of_tracker("osmand", "id=1&lat=x&lon=&timestamp=noon&speed=-&alarm=SOS"),
        lambda: of_tracker("osmand", body={"device_id": "1", "alarm": ["tow", "sos"]}),
        # Mic-E with an impossible longitude, latitude and length.
        lambda: of_aprs('`(_fn"Oj/', to="432105"),
        lambda: of_aprs('`\x7f\x7f\x7fn"Oj/', to="432105"),
        lambda: of_aprs('`(_fn"Oj/', to="999999"),
        lambda: of_aprs("`(", to="432105"),
        lambda: of_aprs("`(", to="4321"),
        lambda: of_aprs(f":{KIT.lower().ljust(9)}:SOS leg broken{{21"),
        lambda: of_aprs(f":{KIT.ljust(9)}:SOS leg broken{{21 "),
        lambda: of_aprs(f":{KIT.ljust(9)}:SOS leg broken{{no id at all"),
        lambda: of_meshtastic(MeshData(Port.TEXT, b"SOS \xff\xfe")),
        lambda: of_meshtastic(MeshData(Port.ALERT, b"")),
        lambda: of_meshtastic(MeshData(Port.TEXT, b"SOS"), channel=9, rx_snr=float("nan")),
        lambda: of_meshcore("SOS without a name"),
        lambda: of_meshcore(": SOS with an empty one"),
        lambda: of_meshcore("Eve: SOS on a channel that nobody knows"),
    ],
)
def test_an_alarm_is_read_in_odd_company(is_alarm: Callable[[], bool]) -> None:
    assert is_alarm()


SOS = '"priority": 100'
PACKAGES: list[tuple[str, Any]] = [
    ('{"message": {"content": "leg broken"}, "timeToLive": 0, %s}', Message("leg broken")),
    ('{"message": {"content": "x"}, "channels": ["Pigeon"], "by": [], %s}', Message("x")),
    ('{"message": {"content": "x"}, "colour": 1, "from": 0, "to": {}, %s}', Message("x")),
    ('{"message": {"content": "x", "font": 1}, "id": "one", %s}', Message("x")),
    (
        '{"location": {"latitude": 47.1, "longitude": "8,1", "altitude": "NaN"}, %s}',
        Location(47.1, 8.1),
    ),
    ('{"location": {"latitude": 147.1, "longitude": 8.1}, %s}', Message("SOS")),
    ('{"message": {"content": "x"}, "location": {"latitude": 1}, %s}', Message("x")),
    (
        '{"location": {"latitude": 1, "longitude": 2}, "message": {"content": "x"}, %s}',
        Message("x"),
    ),
    (
        '{"waypoint": {"latitude": 1, "longitude": 2, "name": "Hut", "notes": 3}, %s}',
        Waypoint(1.0, 2.0, "Hut"),
    ),
    ('{"message": {}, %s}', Message("SOS")),
    ('{"message": "x", %s}', Message("SOS")),
    ("{%s}", Message("SOS")),
]


@pytest.mark.parametrize(("body", "item"), PACKAGES)
def test_an_sos_of_a_program_goes_without_what_cannot_be_read(body: str, item: Any) -> None:
    unread: list[Any] = []
    package = parse_package((body % SOS).encode(), unread)
    assert package.sos and package.item == item
    assert unread and package.to is None
    with pytest.raises(InvalidPackage):
        parse_package((body % '"priority": 99').encode(), [])


PRESSES: list[tuple[bytes, dict[str, str], list[Any]]] = [
    (b"", {}, [Message("SOS")]),
    (b"{", {}, [Message("SOS")]),
    (b"[1]", {}, [Message("SOS")]),
    (b'"help"', {}, [Message("SOS")]),
    (b'{"text": "leg broken", "text": "x"}', {}, [Message("SOS")]),
    (b'{"text": "leg broken", "colour": 1}', {}, [Message("leg broken")]),
    (b'{"text": 7}', {}, [Message("SOS")]),
    (b'{"text": "leg broken"}', {"idempotency-key": "\xff"}, [Message("leg broken")]),
    (
        b'{"text": "x", "position": {"latitude": 46.5, "longitude": 7.25, "altitude": []}}',
        {},
        [Message("x"), Location(46.5, 7.25)],
    ),
    (
        b'{"text": "leg broken", "position": "46.5,7.25"}',
        {},
        [Message("leg broken (position: 46.5,7.25)")],
    ),
    (
        b'{"position": {"latitude": "46.5,7.25\\n", "longitude": null}}',
        {},
        [Message("SOS (position: 46.5,7.25? None)")],
    ),
]


@pytest.mark.parametrize(("body", "head", "items"), PRESSES)
async def test_a_press_is_an_sos_in_odd_company(
    tmp_path: Path, body: bytes, head: dict[str, str], items: list[Any]
) -> None:
    async with bench(tmp_path) as there:
        parts = SimpleNamespace(journal=there.kit.journal, intake=there.kit.intake)
        press = Request("POST", "/api/sos", (), head, body)
        answer = await IncidentApi(cast(Parts, parts)).raise_one(press)
        assert answer.status == 201
        assert ("unread" in json.loads(answer.body)) == bool(body)
        for item, expected in zip(there.items(), items, strict=True):
            # The kit adds the time of a position.
            dated = isinstance(item, Location)
            assert (replace(item, timestamp=None) if dated else item) == expected


@pytest.mark.parametrize("caveat", ["", "by APRS, unproved call sign"])
async def test_an_sos_over_the_internet_is_seen_and_rings_nobody(
    tmp_path: Path, caveat: str
) -> None:
    async with bench(tmp_path, caveat) as there:
        await there.say("hello", over_internet=True)
        assert there.desk.unbelieved.calls(there.kit.journal.clock.now()) == []
        await there.say("SOS", over_internet=True)
        ((_, notice),) = there.desk.unbelieved.calls(there.kit.journal.clock.now())
        assert "over the Internet" in notice
        assert there.items() == []


async def test_an_sos_that_is_marked_as_a_sign_rings(tmp_path: Path) -> None:
    async with bench(tmp_path) as there:
        await there.hear(Spoken("SOS", True, reaction=True))
        assert incident.open_one(there.kit.journal) is not None
