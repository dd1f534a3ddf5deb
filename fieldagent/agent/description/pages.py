"""OpenAPI description of the page, the handbook, the map and the track."""

from __future__ import annotations

from fieldagent.agent.api.track import DAY_S, DEFAULT_COUNT, NEWEST_MAX
from fieldagent.agent.description.common import CHANNEL_NAMES, WRONG_QUERY, limit_parameter
from fieldagent.agent.handbook import NAMES as HANDBOOK
from fieldagent.agent.page import NAMES
from fieldagent.http.openapi import (
    HTML,
    Answers,
    answer,
    answer_header,
    answer_in_formats,
    boolean,
    call,
    constant,
    extensible_record,
    integer,
    list_of,
    mapping,
    nullable,
    number,
    query,
    record,
    segment,
    text,
)
from fieldagent.http.openapi_parts import UNIX_TIME
from fieldagent.package.tracks import CONTENT_TYPES
from fieldagent.page import map_description
from fieldagent.page.files import SHARED_FILES

CHOSEN_INTERVAL_FIELDS = {
    "chosenInterval": nullable(
        integer(
            "Seconds between two positions at rest, chosen by people; null for the tracker's own "
            "value"
        )
    )
}
_TRACKER = record(
    {
        "interval": number("Seconds between two positions at rest"),
        "movingInterval": number(),
        "satelliteFactor": number("Factor of the interval while only satellite is available"),
        "batch": nullable(number("Seconds that positions wait to share a message")),
        "costly": boolean("True while only satellite is available"),
        "moving": boolean(),
        "due": nullable(number("Unix time by which the next position is due")),
        "reportedAt": number("Unix time of this report"),
    },
    "Last report of `fieldagent track`; null before the first one",
)
_COST = record(
    {"positions": integer(), "bytes": integer(), "credits": integer(), "money": nullable(text())}
)
_POSITIVE = number(minimum=0.001, exclusiveMaximum=10_000_000_000)
_FEATURE = {"type": "object", "required": ["type", "id", "geometry", "properties"]}
_POSITIONS = record({"type": constant("FeatureCollection"), "features": list_of(_FEATURE)})
_UNCHANGED = "The client has this version (If-None-Match)"
_PAGE: Answers = {200: answer("HTML", text(), HTML), 304: _UNCHANGED}
_DISK = {507: "The disk does not accept the interval"}

CALLS = (
    call("GET /", "page: Return the kit's page, for a browser on the gateway", _PAGE),
    call(
        "GET /page/{name}",
        "pageFile: Return a file of the page",
        {
            200: answer_in_formats(
                "A style sheet, a script, a picture or a catalogue of texts",
                {
                    "text/css; charset=utf-8": text(),
                    "text/javascript; charset=utf-8": text(),
                    "image/png": text(),
                    "image/svg+xml": text(),
                    "application/manifest+json": {"type": "object"},
                    "application/json": {"type": "object"},
                },
            ),
            304: _UNCHANGED,
            404: "The page has no such file",
        },
        parameters=[segment("name", text(enum=sorted({*SHARED_FILES, *NAMES})))],
    ),
    call(
        "GET /help",
        "handbook: Redirect to the handbook in the browser's language",
        {303: answer("Redirect", headers={"Location": answer_header(text(), is_required=True)})},
    ),
    call(
        "GET /help/{name}",
        "handbookFile: Return a page or a style sheet of the handbook",
        {
            200: answer_in_formats(
                "A page in one language, a style sheet",
                {"text/html; charset=utf-8": text(), "text/css; charset=utf-8": text()},
            ),
            304: _UNCHANGED,
            404: "The handbook has no such page",
        },
        parameters=[segment("name", text(enum=sorted(HANDBOOK)))],
    ),
    call(
        "GET /worker.js",
        "pageWorker: Return the page's service worker, which opens the page while the agent does "
        "not run",
        {200: answer("JavaScript", text(), "text/javascript; charset=utf-8"), 304: _UNCHANGED},
    ),
    call(
        "GET /api/positions",
        "positions: Return the positions of this kit and of others, and this kit's waypoints",
        {
            200: answer_in_formats(
                "Newest first, this kit's before those of others",
                {
                    CONTENT_TYPES["geojson"]: _POSITIONS,
                    CONTENT_TYPES["gpx"]: text(),
                    CONTENT_TYPES["kml"]: text(),
                },
                headers={"Content-Disposition": answer_header(text(), "File name for saving")},
            ),
            **WRONG_QUERY,
        },
        parameters=[
            query(
                "format", text(enum=list(CONTENT_TYPES), default="geojson"), "GeoJSON, or GPX 1.1"
            ),
            query("of", text(enum=["own", "others"]), "Only these kinds"),
            limit_parameter("Maximum number of items of each kind", DEFAULT_COUNT, NEWEST_MAX),
        ],
    ),
    *map_description.describe_calls("Return the map of the kit (map-file)"),
    call(
        "GET /api/track",
        "track: Return the track of a day, its gaps, and the time of the next position",
        {
            200: answer(
                "The day",
                record(
                    {
                        "day": text(),
                        "days": list_of(text(), "Days with positions"),
                        "pause": number(
                            "Seconds without a position that count as a gap: twice the interval"
                        ),
                        "positions": list_of(
                            record({"at": UNIX_TIME, "latitude": number(), "longitude": number()})
                        ),
                        "gaps": list_of(
                            record({"from": number(), "until": nullable(number())}),
                            "Gaps of that day, complete; `until` is null while the gap lasts",
                        ),
                        **CHOSEN_INTERVAL_FIELDS,
                        "tracker": nullable(_TRACKER),
                    }
                ),
            ),
            **WRONG_QUERY,
        },
        parameters=[
            query(
                "day",
                text(format="date", pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
                "Day in UTC (today)",
            )
        ],
    ),
    call(
        "GET /api/track/cost",
        "trackCost: Return the daily cost of an interval on each channel, at rest and in motion",
        {
            200: answer(
                "Cost if each position is a message of its own",
                record(
                    {
                        "interval": integer(),
                        "channels": mapping(
                            record({"rest": _COST, "motion": _COST}), keys=CHANNEL_NAMES
                        ),
                    }
                ),
            ),
            **WRONG_QUERY,
            409: "No tracker has reported its intervals",
        },
        parameters=[query("interval", integer(minimum=60, maximum=DAY_S), is_required=True)],
    ),
    call(
        "POST /api/track/interval",
        "chooseTrackInterval: Set the interval of the tracker; the tracker uses it within a "
        "minute and after a restart",
        {
            200: answer("The interval is on disk", record(CHOSEN_INTERVAL_FIELDS)),
            422: "`interval` is missing or wrong",
            **_DISK,
        },
        body=record(
            {
                "interval": integer(
                    "Seconds at rest; the tracker's other values change in proportion",
                    minimum=60,
                    maximum=DAY_S,
                )
            }
        ),
    ),
    call(
        "DELETE /api/track/interval",
        "leaveTrackInterval: Reset the interval to the tracker's own options",
        {
            200: answer("The interval is on disk", record(CHOSEN_INTERVAL_FIELDS)),
            **WRONG_QUERY,
            **_DISK,
        },
    ),
    call(
        "POST /api/track/tracker",
        "tellTrackPace: For `fieldagent track`: report the intervals; the answer has the chosen "
        "interval",
        {
            200: answer(
                "The page shows it until the agent restarts", record(CHOSEN_INTERVAL_FIELDS)
            ),
            422: "A member is missing or wrong",
        },
        body=extensible_record(
            {
                "interval": _POSITIVE,
                "movingInterval": _POSITIVE,
                "satelliteFactor": _POSITIVE,
                "batch?": nullable(_POSITIVE),
                "costly": boolean(),
                "moving": boolean(),
                "due?": nullable(_POSITIVE),
            }
        ),
    ),
    call("GET /track", "trackPage: Return the kit's page with the track of the day", _PAGE),
)
