"""Fields, parameters and responses that several modules of the description use."""

from __future__ import annotations

from typing import Any

from fieldagent.http.openapi import (
    RETRY_AFTER,
    Fields,
    answer_header,
    constant,
    enumeration,
    extensible_record,
    integer,
    list_of,
    mapping,
    named_record,
    nullable,
    number,
    problem,
    query,
    record,
    schema,
    text,
)
from fieldagent.http.openapi_parts import FAULT, INT32, INT64_MAX, UNIX_TIME, problem_schema
from fieldagent.package.package import Channel, IncidentState, Status

PROBLEM = problem_schema(
    code=text("`no-such-person`: the hub's directory does not contain the addressee")
)
NEXT_LINK = {"Link": answer_header(text(), 'The next page (`rel="next"`), if there is one')}
STATUS_PATH = {"Location": answer_header(text(), "Path of the Package's status", is_required=True)}
ON_DISK_TEXT = "The Package is on disk"
WRONG_QUERY = {400: "The query has an unknown parameter"}
FAULTS_TEXT = "The Package has faults, or the Idempotency-Key was used with another body"
BUSY_ANSWER = problem(
    "The agent is stopping, its disk has failed, or too many large bodies are in progress",
    RETRY_AFTER,
)
DISK_FULL = "The disk is full: nothing was accepted"
JOURNAL_IN_MEMORY = "The disk is full, or the journal is not on the disk: nothing was accepted"
BEFORE_PARAMETER = query(
    "before",
    integer(format="int64", minimum=1, maximum=INT64_MAX),
    "Start of the page: `next` of the page before",
)


def limit_parameter(description: str, default: int, maximum: int) -> dict[str, Any]:
    """Return the parameter that limits the length of a list, with its default and maximum."""
    return query("limit", integer(minimum=1, maximum=maximum, default=default), description)


CHANNEL_NAMES = [channel.value for channel in Channel]
CHANNEL = text(enum=CHANNEL_NAMES)
STATUS_WORD = text(enum=[status.value for status in Status])
SOS_STATE = enumeration(
    *(
        said.value
        for said in (
            IncidentState.OPEN,
            IncidentState.SEEN,
            IncidentState.CLOSED,
            IncidentState.CALLED_OFF,
        )
    )
)
_SHORT_NUMBER = text("Short number, which all kits and the desk show", pattern="^[0-9]{3}$")
STATION = integer(minimum=1)
NOT_ON_DISK_FIELD = {
    "notOnDisk?": text(
        "Reason why the Package is only in memory, and is lost if power fails; absent if it is on "
        "disk"
    )
}
_ACCEPTED_RECORD = record({**NOT_ON_DISK_FIELD, "status": nullable(STATUS_WORD), "reason?": text()})
NO_CHANNEL = text("Fault of the whole Package: no channel is configured")
UNREAD_SCHEMA = schema(
    "Unread",
    list_of(
        extensible_record(FAULT),
        "Parts of an SOS that could not be read and were left out; absent if there are none",
    ),
)
ANSWER_FIELDS: Fields = {
    "id": INT32,
    "data": record({"payload": text()}),
    "channels": mapping(_ACCEPTED_RECORD, "Status on each channel", keys=CHANNEL_NAMES),
    "reason?": NO_CHANNEL,
    "unread?": UNREAD_SCHEMA,
}
PROGRESS = named_record(
    "Progress", {**ANSWER_FIELDS, "status": nullable(STATUS_WORD), "accepted": UNIX_TIME}
)
FORECAST = named_record(
    "Forecast",
    {
        "samples": integer(
            "Earlier Packages of this channel for the estimate: of this time of day if there are "
            "ten, otherwise the newest",
            minimum=5,
            maximum=50,
        ),
        "median": nullable(
            number(
                "Seconds from the possible start of transmission until half of them were "
                "delivered; null if fewer were",
                minimum=0,
            )
        ),
        "p90": nullable(number("Seconds until nine of ten were", minimum=0)),
        "share": number(
            "Share that was delivered in the end; withdrawn, replaced or waiting Packages count "
            "as on their way until then",
            minimum=0,
            maximum=1,
        ),
        "longest": number("Seconds after which that share was reached", minimum=0),
    },
)
FORECAST_OR_NULL = nullable(FORECAST, "Null if too few Packages were sent on this channel")
_INCIDENT_STEP = named_record(
    "IncidentStep",
    {
        "state": enumeration(
            *("raised", "left", "heard by", "not passed on", "at the hub", "seen by"),
            *("closed", "called off", "open"),
        ),
        "at": UNIX_TIME,
        "channel?": text(),
        "by?": text("A person, or a kit"),
        "text?": text(),
        "unauthenticated?": constant(
            True, "True if the speaker is not authenticated: the answer changes nothing"
        ),
    },
)
_INCIDENT_ITEM = record(
    {
        "id": integer(),
        "at?": UNIX_TIME,
        "kind?": text(),
        "text?": text(),
        "position?": {"type": "object"},
        "damaged?": constant(True),
    }
)
INCIDENT = named_record(
    "Incident",
    {
        "number": integer("Number of its first item on the air"),
        "short": _SHORT_NUMBER,
        "state": SOS_STATE,
        "raised": UNIX_TIME,
        "ended": nullable(UNIX_TIME),
        "steps": list_of(_INCIDENT_STEP, "Stages in order"),
        "items": list_of(_INCIDENT_ITEM, "Its newest 50 Packages, oldest first"),
        "nextTry?": nullable(
            number(
                "Unix time of the next try; null if no channel sends it; absent in the answer to "
                "the raising, before the channels have planned it"
            )
        ),
        "unread?": UNREAD_SCHEMA,
    },
    "Complete SOS of this kit: its items and their states",
)
_HEARD_INCIDENT = named_record(
    "HeardIncident",
    {
        "station": integer(),
        "name": text(),
        "number": integer(),
        "short": _SHORT_NUMBER,
        "state": SOS_STATE,
        "raised": number("Unix time by its sender's clock"),
        "came": UNIX_TIME,
        "age": nullable(
            integer(
                "Seconds from `raised` to `came` if more than six hours: the sender's clock is "
                "slow, the SOS was delayed, or it is a recording; otherwise null, and also while "
                "this kit's clock is not trusted"
            )
        ),
        "text": text(),
        "steps": list_of(_INCIDENT_STEP),
    },
    "SOS of another kit, or of an unauthenticated handheld (station 0)",
)
SOS_STATUS = named_record(
    "SosStatus",
    {
        "active": enumeration(0, 1, description="1 while an SOS of this kit is open"),
        "incident": nullable(INCIDENT),
        "heard": list_of(_HEARD_INCIDENT),
    },
)
