"""OpenAPI description of the calls that this extension adds: contacts, their chain, quiet hours,
links in notices, web push and the watch.
"""

from __future__ import annotations

from typing import Any

from fieldagent.extensions.desk.hub.contacts import TRIES_MAX
from fieldagent.extensions.desk.hub.push_api import TEXT_MAX as PUSH_TEXT_MAX
from fieldagent.http.openapi import (
    HTML,
    NULL,
    Body,
    answer,
    any_of,
    boolean,
    call,
    enumeration,
    integer,
    list_of,
    named_record,
    nullable,
    number,
    record,
    segment,
    text,
    with_description,
)
from fieldagent.http.openapi_parts import HOUR, MALFORMED, MINUTE, NAMED_RECORD, ROW
from fieldagent.hub.api.sos_desk import TEXT_MAX as NOTE_MAX
from fieldagent.hub.description.common import (
    ADMINISTRATOR,
    DISK_FULL,
    DISPATCHER,
    LABEL,
    NOT_NOW,
    READER,
    SENDER,
    UNIX_SECONDS,
)
from fieldagent.hub.records.alarm import INCIDENT_KINDS
from fieldagent.package.reading import INT32 as INT32_RANGE
from fieldagent.page.language import LANGUAGES

_HOURS = rf"{HOUR}:{MINUTE}-{HOUR}:{MINUTE} [A-Za-z][A-Za-z0-9_+/-]{{0,63}}"
_SPANS = (
    "([1-9][0-9]{1,4}|[1-5][0-9]{5}|60[0-3][0-9]{3}|604[0-7][0-9]{2}|604800)s"
    "|([1-9][0-9]{0,3}|100[0-7][0-9]|10080)m|([1-9][0-9]?|1[0-5][0-9]|16[0-8])h"
)
"""Pattern of a duration from 10 seconds to a week."""


def _describe_quiet(about: str) -> dict[str, Any]:
    examples = ["22:00-06:00 Europe/Zurich", "none"]
    return text(about, pattern=f"^(none|{_HOURS})?$", examples=examples)


def _describe_span(about: str, pattern: str = "^[0-9]{1,6}[smh]$") -> dict[str, Any]:
    return text(about, pattern=pattern, examples=["30s", "5m"])


CONTACT = named_record(
    "Contact",
    {
        "id": ROW,
        "kind": text(
            "email, apprise, sms-gate, twilio, sms, or a third party's kind; push is a "
            "dispatcher's browser that rings while its page is closed"
        ),
        "name": text(),
        "address": text("Without secrets"),
        "after": _describe_span("Time without an answer to an SOS; 0s: at once"),
        "tries": integer("Number of notifications until someone answers", minimum=1),
        "every": _describe_span("Time between two notifications"),
        "about": enumeration(
            *INCIDENT_KINDS,
            description="What the contact is notified of; alarms come from the hub itself",
        ),
        "language": enumeration(*LANGUAGES, description="Language of the notifications"),
        "quiet": _describe_quiet(
            "Its own quiet hours for the hub's own alarms; empty: those of the workspace"
        ),
        "failingSince": nullable(number("Unix time since which no notification was handed over")),
        "reason": text("Reason of a failure"),
        "fault": text(
            "Reason why it cannot notify anyone now, as far as is known: a missing setting, or "
            "the last failure"
        ),
    },
)
_HOURS_SET = answer(
    "For all contacts without hours of their own",
    record({"quiet": _describe_quiet("Local hours with a time zone; none: no quiet hours")}),
)
_STEP = {"step": integer(minimum=1), "after": _describe_span("Time without an answer")}
_CHAIN_STEP = record(
    {
        **_STEP,
        "works": boolean("True if one of its contacts can be notified, as far as is known"),
        "contacts": list_of(CONTACT),
    }
)
_RESULT = record(
    {
        **_STEP,
        "contact": integer(),
        "name": text(),
        "handedOver": boolean(
            "True if its service accepted the test; this does not show that a person has read it"
        ),
        "reason": text("Reason of a failure"),
    }
)
_LINK = segment("token", text(pattern="^[A-Za-z0-9._-]{1,60}$"))
_OVER = {
    404: answer("The hub has not created this link", text(), HTML),
    409: answer("Someone has already answered", text(), HTML),
    410: answer("The link was used, or has expired", text(), HTML),
}
_NOTE = text(maxLength=NOTE_MAX)
_HAND_OVER = record(
    {"to": text("The number of a user", pattern="^[0-9]{1,18}$"), "note?": nullable(_NOTE)}
)
_ON_WATCH = record(
    {
        "user": NAMED_RECORD,
        "since": UNIX_SECONDS,
        "until": UNIX_SECONDS,
        "handsOverTo": any_of(
            NAMED_RECORD,
            NULL,
            description="Dispatcher who is asked to take over; until they do, the watch stays",
        ),
        "note": text("Information for that dispatcher"),
    }
)
_WAS_ON_WATCH = record(
    {"user": NAMED_RECORD, "since": UNIX_SECONDS, "ended": UNIX_SECONDS, "note": text()}
)
WATCH = named_record(
    "Watch",
    {
        "onWatch": list_of(_ON_WATCH),
        "before": list_of(_WAS_ON_WATCH, "The last ten"),
        "hours": nullable(
            text("Hours in which someone must be on watch, such as 06:00 to 22:00 UTC, or always")
        ),
        "unattendedSince": nullable(
            number("Unix time since which no one has been on watch in those hours")
        ),
    },
)
_CHANGED = {
    200: answer("The watch after the change", WATCH),
    409: "Nothing was changed: `detail` has the reason",
}
_PUSH_TEXT = text(minLength=1, maxLength=PUSH_TEXT_MAX)
_NO_OPERATOR = "No setting names the operator of the hub, and push services would refuse it"
_PUSH = DISPATCHER._replace(
    answers={
        **DISPATCHER.answers,
        404: "A library for web push is missing at the hub",
        503: NOT_NOW,
        507: DISK_FULL,
    },
    other={400: MALFORMED},
    get={400: MALFORMED},
    body={**DISPATCHER.body, 413: "Larger than 4 KiB", 422: "The body is not a push subscription"},
)

CALLS = (
    call(
        "GET /api/contacts",
        "contacts: List contacts for an SOS, in the order of notification",
        answer(
            "Mail and other services, and dispatchers' browsers",
            record({"contacts": list_of(CONTACT)}),
        ),
        ADMINISTRATOR,
    ),
    call(
        "POST /api/contacts",
        "contactAdd: Add a contact for mail or SMS",
        {
            201: answer("Its number", record({"id": ROW})),
            409: "The workspace has the most contacts allowed",
        },
        ADMINISTRATOR,
        body=record(
            {
                "name": with_description("Name of the person or duty; kits show it", LABEL),
                "address": text(
                    "An e-mail address, or a telephone number; `fieldagent hub contact add` also "
                    "accepts an Apprise URL",
                    maxLength=320,
                    pattern="^([!#-'*+./0-9=?A-Z^_`a-z{|}~-]+@[A-Za-z0-9.-]+|\\+[1-9][0-9]{5,14})$",
                ),
                "after?": nullable(
                    _describe_span(
                        "Time without an answer until the contact is notified, 10s to 168h; 0s: "
                        "at once",
                        f"^(0s|{_SPANS})$",
                    )
                ),
                "tries?": nullable(
                    integer(
                        "Number of notifications until someone answers (1)",
                        minimum=1,
                        maximum=TRIES_MAX,
                    )
                ),
                "every?": nullable(
                    _describe_span(
                        "Time between two notifications, 10s to 168h (5m)", f"^({_SPANS})$"
                    )
                ),
                "about?": enumeration(
                    *INCIDENT_KINDS, None, description="What the contact is notified of (all)"
                ),
                "language?": enumeration(
                    *LANGUAGES, None, description="Language of the notifications (en)"
                ),
            }
        ),
    ),
    call(
        "DELETE /api/contacts/{id}",
        "contactRemove: Remove a contact and everything that waits for it",
        {204: "The contact is removed"},
        ADMINISTRATOR,
    ),
    call(
        "PATCH /api/contacts/{id}",
        "contactChange: Set a contact's quiet hours, in which the hub's own alarms wait; an SOS "
        "or an overdue kit never waits",
        {204: "The hours are set", 409: "The hours or the time zone cannot be used"},
        ADMINISTRATOR,
        body=record(
            {
                "quiet": _describe_quiet(
                    "Local hours with a time zone; none: no quiet hours; empty: those of the "
                    "workspace"
                )
            }
        ),
    ),
    call(
        "POST /api/contacts/{id}/test",
        "contactTest: Send a test to a contact",
        {
            204: "The test was handed over",
            422: "The service of the contact refused the test, for this reason",
        },
        ADMINISTRATOR,
    ),
    call(
        "GET /api/chain",
        "chain: Return the escalation chain, and the steps that cannot work",
        answer("In order", record({"steps": list_of(_CHAIN_STEP)})),
        ADMINISTRATOR,
    ),
    call(
        "POST /api/chain/test",
        "chainTest: Send a test to every contact, step by step",
        answer("Result for each contact", record({"results": list_of(_RESULT)})),
        ADMINISTRATOR,
    ),
    call(
        "GET /api/quiet",
        "quiet: Return the quiet hours, in which the hub's own alarms wait",
        {200: _HOURS_SET},
        ADMINISTRATOR,
    ),
    call(
        "PATCH /api/quiet",
        "quietChange: Set the quiet hours, in which the hub's own alarms wait; an SOS or an "
        "overdue kit never waits",
        {200: _HOURS_SET, 409: "The hours or the time zone cannot be used"},
        ADMINISTRATOR,
        body=record(
            {
                "quiet": _describe_quiet(
                    "Local hours with a time zone; none or empty: no quiet hours"
                )
            }
        ),
    ),
    call(
        "GET /answer/{token}",
        "answerPage: Return the page of a contact's link: the SOS and a button to acknowledge it. "
        "It changes nothing",
        {
            200: answer("A page", text(), HTML),
            **_OVER,
            503: "The database is unavailable: try again",
        },
        SENDER,
        parameters=[_LINK],
    ),
    call(
        "POST /answer/{token}",
        "answer: Acknowledge the SOS as the contact of the link; works once",
        {
            200: answer("A page that confirms the acknowledgement", text(), HTML),
            **_OVER,
            413: "Larger than 4 KiB",
            503: answer("The acknowledgement could not be stored: try again", text(), HTML),
        },
        SENDER,
        parameters=[_LINK],
        body=Body(
            {
                "application/x-www-form-urlencoded": record(
                    {"text?": text("Text for the kit", maxLength=120)}
                )
            },
            required=False,
        ),
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
        body=record({"note?": nullable(_NOTE)}),
    ),
    call(
        "GET /console/worker.js",
        "consoleWorker: Return the console's service worker, which shows push notifications",
        {
            200: answer("A script", text(), "text/javascript; charset=utf-8"),
            304: "The browser has this version",
        },
    ),
    call(
        "GET /console/push",
        "consolePushKey: Return the hub's public key for push services (RFC 8292)",
        {200: answer("For `applicationServerKey`", record({"key": text()})), 409: _NO_OPERATOR},
        _PUSH,
    ),
    call(
        "POST /console/push",
        "consolePushSubscribe: Let this browser ring while its page is closed",
        {
            201: answer("Number of the browser among the contacts", record({"id": ROW})),
            409: _NO_OPERATOR,
        },
        _PUSH,
        body=record(
            {
                "endpoint": _PUSH_TEXT,
                "p256dh": _PUSH_TEXT,
                "auth": _PUSH_TEXT,
                "language?": enumeration(
                    *LANGUAGES, description="Language of the notifications (en)"
                ),
            }
        ),
    ),
    call(
        "DELETE /console/push",
        "consolePushUnsubscribe: End the notifications of this browser",
        {204: "The browser is no longer notified"},
        _PUSH,
        body=record({"endpoint": _PUSH_TEXT}),
    ),
)
