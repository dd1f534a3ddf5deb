"""Description of the SOS desk, in OpenAPI."""

from __future__ import annotations

from functools import partial

from fieldagent.http.openapi import (
    NULL,
    Call,
    answer,
    answer_header,
    answer_in_formats,
    boolean,
    call,
    enumeration,
    integer,
    list_of,
    named_record,
    nullable,
    number,
    one_of,
    optional,
    query,
    record,
    text,
)
from fieldagent.http.openapi_parts import IDEMPOTENCY_KEY, NAMED_RECORD, UNIX_TIME
from fieldagent.hub.api.sos_api import LISTED, LISTED_MAX, TEXT_MAX
from fieldagent.hub.api.sos_desk import TEXT_MAX as NOTE_MAX
from fieldagent.hub.description.common import (
    BEFORE_PARAMETER,
    DEVICE_NAMED,
    DISPATCHER,
    ITEM,
    PLACE,
    READER,
    describe_line,
    describe_page,
    limit,
)
from fieldagent.hub.records.sos import SosState

THREAD_STEP = named_record(
    "ThreadStep",
    {
        "at": UNIX_TIME,
        "event": text("said (by its kit), answered (text to its kit), or a step of the timeline"),
        "by": one_of(NULL, record({"id": nullable(text()), "name": text()})),
        "detail": text(),
        "count": integer(
            "If above 1, the step stands for this many of its kind, and is the newest", minimum=1
        ),
        "item": nullable(ITEM),
        "reached": list_of(
            record({"device": text(), "state": text(), "ended": nullable(number())}),
            "Progress of a text to a kit, for each device",
        ),
    },
)

_STATES = [state.value for state in SosState]
REVOKED = nullable(
    record(
        {"since": number(), "why": text("Empty for callers who may not see it")},
        "Revocation of a stolen or lost kit by an administrator",
    )
)
_PERSON = record({"id": nullable(text("null for a contact, who has no account")), "name": text()})
_SOS = {
    "id": integer(),
    "number": nullable(integer("Number at its kit; null for an alarm")),
    "short": text(
        "Number that people see: the last three digits of `number`, or the id of an alarm",
        pattern="^[0-9]+$",
    ),
    "kind": enumeration("sos", "overdue", "operator", "watch", "fence"),
    "state": enumeration(*_STATES),
    "raised": UNIX_TIME,
    "device": DEVICE_NAMED,
    "item": nullable(ITEM),
    "items": list_of(ITEM, "Items of its kit, oldest first, the newest 50"),
    "unauthenticated": boolean("True if none of it is authenticated as its kit's"),
    "revoked": REVOKED,
    "position": one_of(NULL, PLACE, description="Last position of the device"),
    "calledOff": nullable(
        number("Unix time at which its kit cancelled it; its state stays until a person closes it")
    ),
    "seen": one_of(NULL, record({"at": number(), "by": _PERSON})),
    "closed": nullable(UNIX_TIME),
    "thread": list_of(
        THREAD_STEP,
        "Texts in both directions, notifications and acts, in order: the newest 50 texts, 50 "
        "positions and 100 steps of people. More than 3 machine steps of one kind are one step "
        "with a `count`",
    ),
    "askedToTakeOver": one_of(
        NULL, NAMED_RECORD, description="Person who is asked to take over, and has not answered yet"
    ),
}
SOS = named_record("Sos", _SOS)
_EVENT = enumeration(
    *("raised", "item", "webhook", "escalated", "heard by", "heard", "called off", "seen"),
    *("seen at a kit", "note", "closed", "notified", "not notified", "nobody reached"),
    *("taken over", "handed over", "answered", "answer on the kit"),
)
_EVENTS = list_of(
    record({"at": number(), "event": _EVENT, "by": one_of(NULL, _PERSON), "detail": text()})
)
SOS_TIMELINE = named_record("SosTimeline", {**_SOS, "timeline": _EVENTS})
_HEADERS = {
    "fieldagent-sos": answer_header(text(), "`1` for an SOS"),
    "fieldagent-alarm": answer_header(text(), "Kind of an alarm of the hub, which is no SOS"),
}
_NOW = answer(
    "The state after the act. The kit of an SOS is notified", SOS_TIMELINE, headers=_HEADERS
)
_FILTERS = (
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
    {"to": text("The number of a user", pattern="^[0-9]{1,18}$"), "note?": nullable(_NOTE)}
)


def _desk(member: str, name: str, one: str, several: str) -> tuple[Call, ...]:
    """Return the descriptions of the desk's calls for SOS or for alarms. Their operation ids begin
    with `name`.
    """
    path = f"/api/{member}"
    ended_fields = (
        f"The incident is closed, or another person has acknowledged it: `{name}` shows its state"
    )
    act = partial(call, access=DISPATCHER, parameters=[IDEMPOTENCY_KEY])
    return (
        call(
            f"GET {path}",
            f"{name}List: List {several} of the workspace, newest first",
            describe_page("For everyone in the workspace", member, SOS),
            READER,
            parameters=[*_FILTERS, BEFORE_PARAMETER, limit(LISTED, LISTED_MAX)],
        ),
        call(
            f"GET {path}/{{id}}",
            f"{name}: Return {one} with its timeline",
            answer("For everyone in the workspace", SOS_TIMELINE, headers=_HEADERS),
            READER,
        ),
        act(
            f"POST {path}/{{id}}/acknowledge",
            f"{name}Acknowledge: Acknowledge {one}",
            {200: _NOW, 409: ended_fields},
            body=_OPTIONAL_NOTE,
        ),
        act(
            f"POST {path}/{{id}}/take-over",
            f"{name}TakeOver: Take over {one} from another person",
            {200: _NOW, 409: f"The incident is closed: `{name}` shows its state"},
            body=_OPTIONAL_NOTE,
        ),
        act(
            f"POST {path}/{{id}}/hand-over",
            f"{name}HandOver: Ask another dispatcher to take over {one}; it stays with you until "
            "they do",
            {
                200: _NOW,
                409: "Another person is responsible, or the other user is not a dispatcher",
            },
            body=_HAND_OVER,
        ),
        act(
            f"POST {path}/{{id}}/answer",
            f"{name}Answer: Send a text to the kit of {one}; it appears in the thread",
            {200: _NOW, 409: "The kit is disabled"},
            body=record({"text": _SOME_TEXT}),
        ),
        act(
            f"POST {path}/{{id}}/note",
            f"{name}Note: Add a note to {one}",
            {200: _NOW},
            body=record({"text": _SOME_TEXT}),
        ),
        act(
            f"POST {path}/{{id}}/close",
            f"{name}Close: Close {one}",
            {200: _NOW, 409: ended_fields},
            body=record({"reason": _SOME_TEXT}),
        ),
        call(
            f"GET {path}/export",
            f"{name}Export: Return the history of {several} for download: the newest 5 000",
            answer_in_formats(
                "JSON with each thread and timeline, or a CSV table",
                {
                    "application/json": record({member: list_of(SOS_TIMELINE)}),
                    "text/csv; charset=utf-8": text(),
                },
            ),
            READER,
            parameters=[*_FILTERS, query("format", enumeration("json", "csv"))],
        ),
    )


CALLS = (
    *_desk("sos", "sos", "an SOS", "SOS"),
    *_desk("alarms", "alarm", "an alarm of the hub", "alarms of the hub"),
    call(
        "GET /api/sos/words",
        "deskWords: Return the standard texts of dispatchers, which take one or two bytes on the "
        "air",
        answer("The texts", record({"fromDesk": list_of(text(), "Texts of a dispatcher")})),
        READER,
        description="Exact texts for a message to a kit, or the note of an acknowledgement.",
    ),
)
