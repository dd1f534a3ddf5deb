"""Describes health, metrics, events, and the calls of kits and satellite operators, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    JSON,
    Access,
    Body,
    answer,
    answer_header,
    call,
    extensible_record,
    header,
    problem,
    query,
    schema,
    text,
)
from fieldagent.http.openapi_parts import (
    ALIVE_PARAMETER,
    DOWN_RECORD,
    METRICS,
    NO_LENGTH,
    THIS_DOCUMENT,
    UP_SCHEMA,
)
from fieldagent.hub.description.common import READER, SENDER

UP_ANSWER = answer("Ready", UP_SCHEMA)
_LINK = Access(security=[{"bearer": []}])
ROCK_BLOCK = schema(
    "RockBlock", extensible_record({"imei": text(), "momsn": text(), "data": text(), "JWT": text()})
)

CALLS = (
    call(
        "GET /healthz",
        "health: Return the readiness of this hub: its database answers, its parts run, and it is "
        "not stopping",
        {200: UP_ANSWER, 503: answer("Not ready", DOWN_RECORD)},
    ),
    call(
        "GET /livez",
        "liveness: Return the liveness of the process, without the database",
        {200: UP_ANSWER},
    ),
    call("GET /metrics", "metrics: Return metrics for Prometheus", {200: METRICS}),
    call("GET /openapi.json", "describe: Return this document", {200: THIS_DOCUMENT}),
    call(
        "GET /api/events",
        "events: Server-sent events: new items, and changes of an SOS or alarm",
        answer(
            "`item` is as in /api/items, `sos` as in /api/sos and `alarm` as in /api/alarms, each "
            "with its latest `event`; `lost`: "
            "the Last-Event-ID is unknown. The stream ends after 15 minutes: reconnect with "
            "Last-Event-ID",
            text(),
            "text/event-stream",
        ),
        READER,
        parameters=[
            query(
                "topics",
                text(pattern="^(item|sos|alarm)(,(item|sos|alarm))*$"),
                "Topics: item, sos, alarm, separated by commas (all)",
            ),
            ALIVE_PARAMETER,
            header(
                "Last-Event-ID",
                text(),
                "Id of the last received event: the stream continues after it",
            ),
        ],
    ),
    call(
        "GET /link",
        "link: Open an agent's IP link: a WebSocket, described in docs/reference/ip-link.md",
        {
            101: "The connection is now a WebSocket",
            401: problem(
                "The link token is missing or unknown",
                {"WWW-Authenticate": answer_header(text(), is_required=True)},
            ),
            426: "The call does not request a WebSocket",
        },
        _LINK,
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
        # openapi-python-client writes invalid code for a required body with two content types.
        body=Body(
            {"application/x-www-form-urlencoded": ROCK_BLOCK, JSON: ROCK_BLOCK}, required=False
        ),
    ),
)
