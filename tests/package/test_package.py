"""The members of a Package in the local API, and the refusals."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.package import Channel, Data, Location, Message, Waypoint
from fieldagent.package.reading import InvalidPackage, parse_package, read_package
from fieldagent.package.strict_json import NotJson
from fieldagent.package.writing import encode_package

PLACE = {"latitude": "47.3769", "longitude": "8.5417"}


def parse(document: Any) -> Any:
    return parse_package(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("document", "priority"),
    [
        ({"data": {"payload": "AP8="}}, 11),
        ({"message": {"content": "hi"}}, 12),
        ({"location": PLACE}, 10),
        ({"waypoint": {**PLACE, "name": "Hut"}}, 11),
    ],
)
def test_each_item_kind_has_its_default_priority(document: Any, priority: int) -> None:
    package = parse(document)
    assert package.priority == priority
    assert package.channels is None
    assert not package.sos


def test_every_member_of_a_package_is_read() -> None:
    package = parse(
        {
            "id": -5,
            "channels": ["Radio", "Satellite"],
            "collapseKey": 2147483647,
            "priority": 100,
            "timeToLive": 60,
            "workspaceId": "12",
            "location": {
                "latitude": 47.5,
                "longitude": "-8.25",
                "timestamp": "2026-05-04T12:00:00+02:00",
                "altitude": 408,
                "speedOverGround": 1.5,
                "courseOverGround": 360,
            },
        }
    )
    assert package.id == -5
    assert package.channels == {Channel.RADIO, Channel.SATELLITE}
    assert package.sos
    assert isinstance(package.item, Location)
    assert package.item.timestamp is not None
    assert package.item.timestamp.isoformat() == "2026-05-04T10:00:00+00:00"


def test_timestamp_without_offset_is_utc() -> None:
    item = parse({"waypoint": {**PLACE, "name": "x", "timestamp": "2026-05-04T10:00:00"}}).item
    assert isinstance(item, Waypoint)
    assert item.timestamp is not None
    assert item.timestamp.utcoffset() is not None


def test_null_member_is_treated_as_absent() -> None:
    assert parse({"message": {"content": "x"}, "data": None, "id": None}).item == Message("x")


FAULTS: list[tuple[Any, list[str]]] = [
    ([], [""]),
    ("text", [""]),
    ({}, [""]),
    ({"data": None}, [""]),
    ({"message": {"content": "x"}, "data": {"payload": ""}}, ["/data", "/message"]),
    ({"message": {}}, ["/message/content"]),
    ({"message": []}, ["/message"]),
    ({"message": {"content": 5}}, ["/message/content"]),
    ({"message": {"content": "x", "phone": "1"}}, ["/message/phone"]),
    ({"message": {"content": "x" * 100_001}}, ["/message/content"]),
    ({"message": {"content": "\ud800"}}, ["/message/content"]),
    ({"data": {"payload": "####"}}, ["/data/payload"]),
    ({"data": {"payload": "AP8"}}, ["/data/payload"]),
    ({"message": {"content": "x"}, "id": 2**31}, ["/id"]),
    ({"message": {"content": "x"}, "id": -(2**31) - 1}, ["/id"]),
    ({"message": {"content": "x"}, "id": 1.5}, ["/id"]),
    ({"message": {"content": "x"}, "id": True}, ["/id"]),
    ({"message": {"content": "x"}, "id": "7"}, ["/id"]),
    ({"message": {"content": "x"}, "priority": 10**400}, ["/priority"]),
    ({"message": {"content": "x"}, "colapseKey": 1}, ["/colapseKey"]),
    ({"message": {"content": "x"}, "a/b~c": 1}, ["/a~1b~0c"]),
    ({"message": {"content": "x"}, "timeToLive": 0}, ["/timeToLive"]),
    ({"message": {"content": "x"}, "channels": []}, ["/channels"]),
    ({"message": {"content": "x"}, "channels": "Radio"}, ["/channels"]),
    ({"message": {"content": "x"}, "channels": ["radio"]}, ["/channels"]),
    ({"message": {"content": "x"}, "channels": [{}]}, ["/channels"]),
    ({"location": {"latitude": 90.1, "longitude": 0}}, ["/location/latitude"]),
    ({"location": {"latitude": "9e1", "longitude": 0}}, ["/location/latitude"]),
    ({"location": {"latitude": "9 Ost", "longitude": 0}}, ["/location/latitude"]),
    ({"location": {"latitude": "٩", "longitude": 0}}, ["/location/latitude"]),
    ({"location": {"latitude": True, "longitude": 0}}, ["/location/latitude"]),
    (
        {"location": {"latitude": "NaN", "longitude": -180.5}},
        ["/location/latitude", "/location/longitude"],
    ),
    ({"location": {**PLACE, "timestamp": "yesterday"}}, ["/location/timestamp"]),
    ({"location": {**PLACE, "timestamp": 1_790_000_000}}, ["/location/timestamp"]),
    ({"location": {**PLACE, "timestamp": "0001-01-01T00:00:00+14:00"}}, ["/location/timestamp"]),
    ({"location": {**PLACE, "altitude": "408"}}, ["/location/altitude"]),
    ({"location": {**PLACE, "speedOverGround": -1}}, ["/location/speedOverGround"]),
    ({"location": {**PLACE, "courseOverGround": 361}}, ["/location/courseOverGround"]),
    ({"waypoint": PLACE}, ["/waypoint/name"]),
    (
        {"waypoint": {"latitude": 91, "name": 3}, "priority": "x", "channels": 1},
        ["/priority", "/channels", "/waypoint/latitude", "/waypoint/name", "/waypoint/longitude"],
    ),
]


@pytest.mark.parametrize(("document", "pointers"), FAULTS)
def test_every_fault_is_reported_at_once_with_its_pointer(
    document: Any, pointers: list[str]
) -> None:
    with pytest.raises(InvalidPackage) as caught:
        parse(document)
    assert [fault.pointer for fault in caught.value.faults] == pointers
    assert all(fault.detail for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "line 1"),
        (b'{"message": {"content": "x"},}', "column"),
        (b'{"id": 1, "id": 2}', '"id" occurs more than once'),
        (b'{"location": {"latitude": NaN}}', "NaN is not a JSON number"),
        (b'{"location": {"latitude": -Infinity}}', "Infinity"),
        (b'{"message": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested deeper than 16 at line 1, column 17"),
        (b'{"id": ' + b"9" * 5000 + b"}", "usable JSON"),
    ],
)
def test_invalid_json_is_reported_with_its_place(body: bytes, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        parse_package(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(NotJson, InvalidPackage):
        parse_package(body)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "latitude", "name", "x"]), children, max_size=3
        )
    ),
    max_leaves=8,
)
names = st.sampled_from(
    ["id", "channels", "priority", "message", "location", "data", "waypoint", "y"]
)


@given(st.dictionaries(names, values, max_size=5))
def test_any_document_is_refused_or_survives_encoding(document: dict[str, Any]) -> None:
    try:
        package = read_package(document)
    except InvalidPackage as invalid:
        assert invalid.faults
    else:
        assert read_package(encode_package(package)) == replace(package, id=None)


@given(st.binary(max_size=300), st.none() | st.integers(-(2**31), 2**31 - 1))
def test_data_survives_encoding_for_the_journal(payload: bytes, collapse_key: int | None) -> None:
    package = read_package(encode_package(parse({"data": {"payload": ""}})))
    again = read_package(
        encode_package(type(package)(Data(payload), collapse_key=collapse_key, priority=3))
    )
    assert again.item == Data(payload)
    assert again.collapse_key == collapse_key
