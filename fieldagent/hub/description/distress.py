"""The description of the SOS desk and its watch."""

from __future__ import annotations

from fieldagent.http.openapi import (
    NULL,
    answer,
    any_of,
    boolean,
    call,
    in_formats,
    integer,
    listed,
    named_record,
    number,
    of_answer,
    one_of,
    optional,
    or_null,
    query,
    record,
    text,
    words,
)
from fieldagent.http.openapi_parts import IDEMPOTENCY_KEY, NAMED, UNIX_TIME
from fieldagent.hub.api.sos_api import KINDS, LISTED, LISTED_MAX, TEXT_MAX
from fieldagent.hub.api.sos_desk import TEXT_MAX as NOTE_MAX
from fieldagent.hub.description.common import (
    BEFORE,
    DEVICE_NAMED,
    DISPATCHER,
    ITEM,
    PLACE,
    READER,
    UNIX_SECONDS,
    describe_line,
    describe_page,
    limit,
)
from fieldagent.hub.records.sos import SosState
from fieldagent.package.reading import INT32 as INT32_RANGE

THREAD_STEP = named_record(
    "ThreadStep",
    {
        "at": UNIX_TIME,
        "event": text("said (by its kit), answered (text to its kit), or a step of the timeline"),
        "by": one_of(NULL, record({"id": or_null(text()), "name": text()})),
        "detail": text(),
        "count": integer(
            "If above 1, the step stands for this many of its kind, and is the newest", minimum=1
        ),
        "item": or_null(ITEM),
        "reached": listed(
            record({"device": text(), "state": text(), "ended": or_null(number())}),
            "Progress of a text to a kit, for each device",
        ),
    },
)

_STATES = [state.value for state in SosState]
REVOKED = or_null(
    record(
        {"since": number(), "why": text("Empty for callers who may not see it")},
        "Revocation of a stolen or lost kit by an administrator",
    )
)
_PERSON = record({"id": or_null(text("null for a contact, who has no account")), "name": text()})
_SOS = {
    "id": integer(),
    "number": or_null(integer("Number at its kit; null for an alarm")),
    "short": text(
        "Number that people see: the last three digits of `number`, or the id of an alarm",
        pattern="^[0-9]+$",
    ),
    "kind": words("sos", "overdue", "operator", "watch", "fence"),
    "state": words(*_STATES),
    "raised": UNIX_TIME,
    "device": DEVICE_NAMED,
    "item": or_null(ITEM),
    "items": listed(ITEM, "Items of its kit, oldest first, the newest 50"),
    "unauthenticated": boolean("True if none of it is authenticated as its kit's"),
    "revoked": REVOKED,
    "position": one_of(NULL, PLACE, about="Last position of the device"),
    "calledOff": or_null(
        number("Unix time at which its kit cancelled it; its state stays until a person closes it")
    ),
    "seen": one_of(NULL, record({"at": number(), "by": _PERSON})),
    "closed": or_null(UNIX_TIME),
    "thread": listed(
        THREAD_STEP,
        "Texts in both directions, notifications and acts, in order: the newest 50 texts, 50 "
        "positions and 100 steps of people. More than 3 machine steps of one kind are one step "
        "with a `count`",
    ),
    "askedToTakeOver": one_of(
        NULL, NAMED, about="Person who is asked to take it over; until they do, it stays"
    ),
}
SOS = named_record("Sos", _SOS)
_EVENT = words(
    *("raised", "item", "webhook", "escalated", "heard by", "heard", "called off", "seen"),
    *("seen at a kit", "note", "closed", "notified", "not notified", "nobody reached"),
    *("taken over", "handed over", "answered", "answer on the kit"),
)
_EVENTS = listed(
    record({"at": number(), "event": _EVENT, "by": one_of(NULL, _PERSON), "detail": text()})
)
SOS_TIMELINE = named_record("SosTimeline", {**_SOS, "timeline": _EVENTS})
_HEADERS = {
    "fieldagent-sos": of_answer(text(), "`1` for an SOS"),
    "fieldagent-alarm": of_answer(text(), "Kind of an alarm of the hub, which is no SOS"),
}
_NOW = answer("The SOS as it is now", SOS_TIMELINE, headers=_HEADERS)
_OVER = "The SOS is closed, or another person has acknowledged it: `sos` shows its state"
_FILTERS = (
    query("kind", text(enum=list(KINDS)), "Only SOS, or only alarms of the hub"),
    query("state", text(enum=_STATES), "Only those in this state"),
    query(
        "text",
        describe_line(TEXT_MAX, least=0),
        "Text in the timeline, or in the name of the device or user",
    ),
)
_NOTE = text(maxLength=NOTE_MAX)
_OPTIONAL_NOTE = optional(record({"note?": _NOTE}))
_SOME_TEXT = {**_NOTE, "minLength": 1}
_HAND_OVER = record(
    {"to": text("The number of a user", pattern="^[0-9]{1,18}$"), "note?": or_null(_NOTE)}
)
_ON_WATCH = record(
    {
        "user": NAMED,
        "since": UNIX_SECONDS,
        "until": UNIX_SECONDS,
        "handsOverTo": any_of(
            NAMED,
            NULL,
            about="Dispatcher who is asked to take over; until they do, the watch stays",
        ),
        "note": text("Information for that dispatcher"),
    }
)
_WAS_ON_WATCH = record(
    {"user": NAMED, "since": UNIX_SECONDS, "ended": UNIX_SECONDS, "note": text()}
)
WATCH = named_record(
    "Watch",
    {
        "onWatch": listed(_ON_WATCH),
        "before": listed(_WAS_ON_WATCH, "The last ten"),
        "hours": or_null(
            text("Hours in which someone must be on watch, such as 06:00 to 22:00 UTC, or always")
        ),
        "nobodySince": or_null(
            number("Unix time since which no one has been on watch in those hours")
        ),
    },
)
_CHANGED = {
    200: answer("The watch after the change", WATCH),
    409: "Nothing was changed: `detail` has the reason",
}

CALLS = (
    call(
        "GET /api/sos",
        "sosList: List SOS and alarms of the workspace, newest first",
        describe_page("For everyone in the workspace", "sos", SOS),
        READER,
        parameters=[*_FILTERS, BEFORE, limit(LISTED, LISTED_MAX)],
    ),
    call(
        "GET /api/sos/{id}",
        "sos: Return an SOS with its timeline",
        answer("For everyone in the workspace", SOS_TIMELINE, headers=_HEADERS),
        READER,
    ),
    call(
        "POST /api/sos/{id}/acknowledge",
        "sosAcknowledge: Acknowledge an SOS; its kit is notified",
        {200: _NOW, 409: _OVER},
        DISPATCHER,
        parameters=[IDEMPOTENCY_KEY],
        body=_OPTIONAL_NOTE,
    ),
    call(
        "POST /api/sos/{id}/take-over",
        "sosTakeOver: Take an SOS over from another person; its kit is notified",
        {200: _NOW, 409: "The SOS is closed: `sos` shows its state"},
        DISPATCHER,
        parameters=[IDEMPOTENCY_KEY],
        body=_OPTIONAL_NOTE,
    ),
    call(
        "POST /api/sos/{id}/hand-over",
        "sosHandOver: Ask another dispatcher to take an SOS over; until they do, it stays with you",
        {200: _NOW, 409: "You do not have this SOS, or the other user is not a dispatcher"},
        DISPATCHER,
        parameters=[IDEMPOTENCY_KEY],
        body=_HAND_OVER,
    ),
    call(
        "POST /api/sos/{id}/answer",
        "sosAnswer: Send a text to the kit of an SOS; it appears in the thread",
        {200: _NOW, 409: "The kit is disabled"},
        DISPATCHER,
        parameters=[IDEMPOTENCY_KEY],
        body=record({"text": _SOME_TEXT}),
    ),
    call(
        "POST /api/sos/{id}/note",
        "sosNote: Add a note to an SOS",
        {200: _NOW},
        DISPATCHER,
        parameters=[IDEMPOTENCY_KEY],
        body=record({"text": _SOME_TEXT}),
    ),
    call(
        "POST /api/sos/{id}/close",
        "sosClose: Close an SOS",
        {200: _NOW, 409: _OVER},
        DISPATCHER,
        parameters=[IDEMPOTENCY_KEY],
        body=record({"reason": _SOME_TEXT}),
    ),
    call(
        "GET /api/sos/export",
        "sosExport: Return the history of SOS and alarms for download: the newest 5 000",
        in_formats(
            "JSON with each thread and timeline, or a CSV table",
            {
                "application/json": record({"sos": listed(SOS_TIMELINE)}),
                "text/csv; charset=utf-8": text(),
            },
        ),
        READER,
        parameters=[*_FILTERS, query("format", words("json", "csv"))],
    ),
    call(
        "GET /api/sos/words",
        "deskWords: Return the standard texts of dispatchers, which take one or two bytes on the "
        "air",
        answer("The texts", record({"fromDesk": listed(text(), "Texts of a dispatcher")})),
        READER,
        about="Exact texts for a message to a kit, or the note of an acknowledgement.",
    ),
    call(
        "GET /api/watch",
        "watch: Return who is and was on watch at the desk",
        answer("The watch", WATCH),
        READER,
    ),
    call(
        "POST /api/watch/take",
        "takeWatch: Go on watch for this time, or accept a hand-over",
        _CHANGED,
        DISPATCHER,
        body=record({"seconds": integer("At most a week", minimum=1, maximum=INT32_RANGE[-1])}),
    ),
    call(
        "POST /api/watch/hand-over",
        "handOverWatch: Ask another dispatcher to take over the watch; until they do, it stays "
        "with you",
        _CHANGED,
        DISPATCHER,
        body=_HAND_OVER,
    ),
    call(
        "POST /api/watch/end",
        "endWatch: End your watch",
        _CHANGED,
        DISPATCHER,
        body=record({"note?": or_null(_NOTE)}),
    ),
)
