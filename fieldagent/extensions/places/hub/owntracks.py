"""OwnTracks in HTTP mode, in which the app sends positions as JSON (OwnTracks Booklet, chapters
"JSON" and "HTTP").
"""

from __future__ import annotations

from fieldagent.extensions.places.hub.tracker_kind import (
    KMH,
    TrackerKind,
    convert_speed,
    make_place,
    parse_accuracy,
    parse_document,
    parse_ident,
    parse_number,
    parse_optional_number,
    parse_time,
)
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.field.trackers import TrackerReport


def parse_report(request: Request) -> TrackerReport | None:
    """Return the report of a position. Return None for other messages of the app, such as the empty
    message when a friend is deleted. The tracker's id is `USER/DEVICE`, from `?u=USER&d=DEVICE` in
    the URL, as for OwnTracks Recorder, or from the app's settings. Raises Problem 400 if the report
    is invalid.
    """
    if not request.body:
        return None
    document = parse_document(request.body)
    if not isinstance(document, dict):
        raise Problem(400, "the body must be a JSON object, as OwnTracks sends it")
    if document.get("_type") == "encrypted":
        raise Problem(400, "the position is encrypted: remove the encryption key in OwnTracks")
    if document.get("_type") != "location":
        return None
    topic, query = document.get("topic"), dict(request.query)
    user, device = (request.headers.get(f"x-limit-{part}", "") for part in "ud")
    if query.get("u") and query.get("d"):
        user, device = query["u"], query["d"]
    elif isinstance(topic, str) and topic.count("/") >= 2:
        user, device = topic.split("/")[1:3]
    ident = f"{user}/{device}" if user and device else document.get("tid")
    return TrackerReport(
        parse_ident(ident, "user and device from the settings of OwnTracks"),
        parse_time(document.get("tst"), "tst"),
        make_place(
            {
                "latitude": parse_number(document.get("lat"), "lat"),
                "longitude": parse_number(document.get("lon"), "lon"),
                "altitude": parse_optional_number(document.get("alt")),
                "speedOverGround": convert_speed(parse_optional_number(document.get("vel")), KMH),
                "courseOverGround": parse_optional_number(document.get("cog")),
            }
        ),
        accuracy=parse_accuracy(document.get("acc")),
    )


KIND = TrackerKind("owntracks", "OwnTracks", ("POST",), parse_report, answer=b"[]")
