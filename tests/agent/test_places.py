"""Positions of this kit and of others, for a map or a receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.request import urlopen
from xml.etree import ElementTree

import pytest

from tests.processes import PATIENCE, Agent, agent, sky, until

GPX = "{http://www.topografix.com/GPX/1/1}"
KML = "{http://www.opengis.net/kml/2.2}"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """Yield a kit that was at two places, has marked one, and knows the position of
    another person.
    """
    home = tmp_path_factory.mktemp("kit")
    with sky(home, 0) as above, agent(home, {"inbound-hook": "cat >/dev/null"}) as running:
        for minute, latitude in enumerate((47.1, 47.2)):
            time = f"2026-05-04T10:0{minute}:00Z"
            place = {"latitude": latitude, "longitude": 8.5, "altitude": 400, "timestamp": time}
            running.call("POST", "/api/package", {"location": place})
        hut = {"latitude": 47.3, "longitude": 8.6, "name": "<Hut & Co>", "notes": "cold"}
        running.call("POST", "/api/package", {"waypoint": hut})
        running.post('not a "location":{ at all')
        above.type("mt-location 46.5 7.25")
        until(lambda: running.call("GET", "/api/inbound").body["payloads"])
        yield running


def features(kit: Agent, query: str = "") -> list[tuple[str, list[float], str | None]]:
    address = f"http://127.0.0.1:{kit.port}/api/positions{query}"
    with urlopen(address, timeout=PATIENCE) as answer:
        assert answer.headers["content-type"] == "application/geo+json"
        positions = json.load(answer)["features"]
    return [
        (
            each["properties"]["name"],
            each["geometry"]["coordinates"],
            each["properties"].get("waypoint"),
        )
        for each in positions
    ]


def test_geojson_contains_own_and_others_positions(kit: Agent) -> None:
    own: list[tuple[str, list[float], str | None]] = [
        ("this kit", [8.6, 47.3], "<Hut & Co>"),
        ("this kit", [8.5, 47.2, 400.0], None),
        ("this kit", [8.5, 47.1, 400.0], None),
    ]
    *first, (name, place, _) = features(kit)
    assert (first, place) == (own, [7.25, 46.5])
    assert name != "this kit"
    assert features(kit, "?of=own") == own
    assert features(kit, "?of=own&limit=1") == own[:1]
    assert [place for _, place, _ in features(kit, "?of=others")] == [[7.25, 46.5]]


def test_gpx_contains_track_and_waypoints(kit: Agent) -> None:
    address = f"http://127.0.0.1:{kit.port}/api/positions?of=own&format=gpx"
    with urlopen(address, timeout=PATIENCE) as answer:
        assert answer.headers["content-type"] == "application/gpx+xml"
        assert 'filename="fieldagent.gpx"' in answer.headers["content-disposition"]
        gpx = ElementTree.fromstring(answer.read())
    assert [each.get("lat") for each in gpx.iter(f"{GPX}trkpt")] == ["47.1000000", "47.2000000"]
    (mark,) = gpx.iter(f"{GPX}wpt")
    assert (mark.findtext(f"{GPX}name"), mark.findtext(f"{GPX}desc")) == ("<Hut & Co>", "cold")
    times = [each.text for each in gpx.iter(f"{GPX}time")]
    assert times[1:] == ["2026-05-04T10:00:00Z", "2026-05-04T10:01:00Z"]


def test_kml_contains_track_and_last_position(kit: Agent) -> None:
    answer = kit.call("GET", "/api/positions?of=own&format=kml")
    assert answer.headers["content-type"] == "application/vnd.google-earth.kml+xml"
    kml = ElementTree.fromstring(answer.body)
    mark, line, last = kml.iter(f"{KML}Placemark")
    assert mark.findtext(f"{KML}name") == "<Hut & Co>"
    assert mark.findtext(f"{KML}Point/{KML}coordinates") == "8.6000000,47.3000000"
    assert line.findtext(f"{KML}LineString/{KML}coordinates") == (
        "8.5000000,47.1000000,400.0 8.5000000,47.2000000,400.0"
    )
    assert line.findtext(f"{KML}TimeSpan/{KML}begin") == "2026-05-04T10:00:00Z"
    assert last.findtext(f"{KML}Point/{KML}coordinates") == "8.5000000,47.2000000,400.0"
    assert last.findtext(f"{KML}TimeStamp/{KML}when") == "2026-05-04T10:01:00Z"


@pytest.mark.parametrize("query", ["format=shp", "of=nobody", "limit=0", "since=1"])
def test_unknown_query_value_is_rejected_with_parameter_name(kit: Agent, query: str) -> None:
    refused = kit.call("GET", f"/api/positions?{query}")
    assert refused.status == 400
    assert query.partition("=")[0] in refused.body["detail"]
