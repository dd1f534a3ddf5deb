"""Description of health, metrics and events, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import answer, call, header, query, text
from fieldagent.http.openapi_parts import (
    ALIVE_PARAMETER,
    DOWN_RECORD,
    METRICS,
    THIS_DOCUMENT,
    UP_SCHEMA,
)
from fieldagent.hub.description.common import READER

UP_ANSWER = answer("Ready", UP_SCHEMA)

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
)
