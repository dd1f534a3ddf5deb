"""OpenAPI description of SOS calls and check-ins."""

from __future__ import annotations

from fieldagent.agent.description.common import (
    BUSY_ANSWER,
    DISK_FULL,
    FAULTS_TEXT,
    INCIDENT,
    JOURNAL_IN_MEMORY,
    ON_DISK_TEXT,
    PROGRESS,
    SOS_STATUS,
    STATUS_PATH,
)
from fieldagent.http.openapi import (
    answer,
    boolean,
    call,
    header,
    integer,
    list_of,
    nullable,
    optional,
    query,
    record,
    segment,
    text,
)
from fieldagent.http.openapi_parts import NO_LENGTH, ROW, SAFE_INTEGER_MAX
from fieldagent.package.package import CHECK_IN_MAX, CHECK_IN_MIN

CALLS = (
    call(
        "POST /api/sos",
        "raiseSos: Raise an SOS, or add to the open one",
        {
            200: answer("An SOS was already open", INCIDENT),
            201: answer("The SOS is raised and on disk", INCIDENT),
            411: NO_LENGTH,
            422: FAULTS_TEXT,
            503: BUSY_ANSWER,
            507: DISK_FULL,
        },
        parameters=[
            header(
                "Idempotency-Key",
                text(),
                "Makes a repeated call count once; with or without quotes, 1 to 255 printable "
                "ASCII characters; other values are ignored",
            )
        ],
        body=optional(
            {
                "description": (
                    "An object with the optional members `text`, a string of at most 100000 "
                    "bytes, and `position`, a Location"
                ),
                "examples": [
                    {"text": "leg broken", "position": {"latitude": 47.3769, "longitude": 8.5417}}
                ],
            }
        ),
        description="A kit has at most one open SOS; text and position are added to it. Without a "
        "position, the last position that this kit posted is used, with its own time. An SOS "
        "is never refused: unreadable members are ignored and named in `unread` of the "
        "answer. An unreadable position is sent with the text.",
    ),
    call(
        "GET /api/sos",
        "distress: Return this kit's SOS with its stages, and those of other kits",
        answer("The SOS and their states", SOS_STATUS),
    ),
    call(
        "DELETE /api/sos",
        "callOff: Cancel this kit's SOS",
        answer(
            "The incident, and `othersNotified`: true if others may have it and are notified",
            record({"incident": nullable(INCIDENT), "othersNotified": boolean()}),
        ),
        parameters=[
            query(
                "number",
                ROW,
                "Number of the incident to cancel; another incident is not canceled, and the "
                "answer shows its state. Repeat the number if the answer was lost",
            )
        ],
    ),
    call(
        "GET /api/sos/words",
        "sosWords: Return the texts that take one or two bytes on the air",
        answer(
            "Texts by speaker",
            record(
                {
                    "raised": list_of(text(), "Kinds of emergency"),
                    "fromKit": list_of(text(), "Answers of people in distress"),
                    "fromHelpers": list_of(text(), "Answers of a person at another kit"),
                }
            ),
        ),
        description="Exact texts for an SOS or an answer.",
    ),
    call(
        "POST /api/sos/{station}/{number}/take",
        "takeSos: Report that a person here takes another kit's SOS or, with station 0, the SOS "
        "of an unknown handheld",
        {
            202: answer("The report is on its way to that kit", SOS_STATUS),
            404: "This kit has received no such SOS",
            422: "`by` is missing or wrong, or the body has an unknown member",
            503: BUSY_ANSWER,
            507: DISK_FULL,
        },
        parameters=[
            segment("station", integer(minimum=0, maximum=SAFE_INTEGER_MAX)),
            segment("number", integer(minimum=1, maximum=SAFE_INTEGER_MAX)),
        ],
        body=record(
            {
                "by": text("Name of that person", minLength=1, maxLength=200, pattern="^[A-Za-z]"),
                "text?": nullable(text()),
            }
        ),
    ),
    call(
        "POST /api/check-in",
        "askForCheckIn: Have the hub raise an alarm if it receives nothing from this kit for this "
        "time",
        {
            202: answer(ON_DISK_TEXT, PROGRESS, headers=STATUS_PATH),
            409: "No channel leads to the hub",
            422: "`within` is missing or wrong, or the body has an unknown member",
            503: BUSY_ANSWER,
            507: JOURNAL_IN_MEMORY,
        },
        body=record(
            {
                "within": integer(
                    "Seconds after the last message of this kit at the hub, whole minutes",
                    minimum=CHECK_IN_MIN,
                    maximum=CHECK_IN_MAX,
                    multipleOf=60,
                )
            }
        ),
    ),
    call(
        "DELETE /api/check-in",
        "endCheckIn: End the check-in of this kit",
        {
            202: answer(ON_DISK_TEXT, PROGRESS, headers=STATUS_PATH),
            409: "No channel leads to the hub",
            503: BUSY_ANSWER,
            507: JOURNAL_IN_MEMORY,
        },
    ),
)
