"""The description of the calls of kits, trackers and satellite operators."""

from __future__ import annotations

from fieldagent.http.openapi import (
    JSON,
    Access,
    Body,
    call,
    number,
    of_answer,
    open_record,
    problem,
    query,
    schema,
    segment,
    text,
)
from fieldagent.http.openapi_parts import MALFORMED, NO_LENGTH, OF_HTTP
from fieldagent.hub.description.common import SENDER

_LINK = Access(security=[{"bearer": []}])
_TRACKER = Access(
    answers={
        200: "The report is on disk",
        400: MALFORMED,
        404: "The address is not valid, or the tracker was not added",
        429: OF_HTTP,
    }
)
_SECRET = segment(
    "secret",
    text(pattern="^source_[A-Za-z0-9_-]{43}$"),
    "Secret of the address, as `fieldagent hub tracker source add` showed it",
)
_OSMAND = [
    _SECRET,
    query("id", text(pattern="^[!-~]{1,100}$"), "Id that the tracker sends"),
    query("lat", number(), "Degrees"),
    query("lon", number(), "Degrees"),
    query(
        "timestamp",
        text(pattern="^[0-9T:Z.+ -]*$"),
        "Unix seconds or milliseconds, or ISO 8601; now if it is missing",
    ),
    query("altitude", number(), "m"),
    query("speed", number(), "Knots"),
    query("bearing", number(), "Degrees"),
    query("alarm", text(pattern="^[A-Za-z]*$"), "Such as sos"),
]
ROCK_BLOCK = schema(
    "RockBlock", open_record({"imei": text(), "momsn": text(), "data": text(), "JWT": text()})
)

CALLS = (
    call(
        "GET /link",
        "link: Open an agent's IP link: a WebSocket, described in docs/reference/ip-link.md",
        {
            101: "The connection is now a WebSocket",
            401: problem(
                "The link token is missing or unknown",
                {"WWW-Authenticate": of_answer(text(), required=True)},
            ),
            426: "The call does not request a WebSocket",
        },
        _LINK,
    ),
    call(
        "GET /source/osmand/{secret}",
        "osmandReport: Accept a position or alarm in OsmAnd's protocol",
        {},
        _TRACKER,
        parameters=_OSMAND,
    ),
    call(
        "POST /source/osmand/{secret}",
        "osmandReportPosted: The same as a form, or as JSON of Traccar Client 9",
        {},
        _TRACKER,
        parameters=_OSMAND,
        body=Body(
            {
                JSON: {"type": "object", "description": "Format of Traccar Client"},
                "application/x-www-form-urlencoded": {"type": "object"},
            },
            required=False,
        ),
    ),
    call(
        "POST /source/traccar/{secret}",
        "traccarReport: Accept a position or event that a Traccar server forwards",
        {},
        _TRACKER,
        parameters=[_SECRET],
        body={"type": "object", "description": "device, position and event of Traccar's API"},
    ),
    call(
        "POST /source/owntracks/{secret}",
        "owntracksReport: Accept a position of OwnTracks in HTTP mode",
        {},
        _TRACKER,
        parameters=[_SECRET],
        body={
            "type": "object",
            "description": "_type and its members, as in the OwnTracks booklet",
        },
    ),
    call(
        "POST /operator/rockblock",
        "mobileOriginated: RockBLOCK's webhook: an MO message. Exists if rockblock-username is set",
        {
            200: "The report is on disk",
            401: "The JWT does not prove that RockBLOCK sent it",
            411: NO_LENGTH,
        },
        SENDER,
        # openapi-python-client writes invalid code for two kinds of a required body.
        body=Body(
            {"application/x-www-form-urlencoded": ROCK_BLOCK, JSON: ROCK_BLOCK}, required=False
        ),
    ),
)
