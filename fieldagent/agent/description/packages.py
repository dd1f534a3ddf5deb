"""OpenAPI description of Packages and the queue."""

from __future__ import annotations

from fieldagent.agent.api.packages import PAGE_MAX, STATES
from fieldagent.agent.api.routes import LISTED
from fieldagent.agent.description.common import (
    ANSWER_FIELDS,
    BEFORE_PARAMETER,
    BUSY_ANSWER,
    CHANNEL,
    CHANNEL_NAMES,
    FAULTS_TEXT,
    FORECAST_OR_NULL,
    JOURNAL_IN_MEMORY,
    NEXT_LINK,
    NO_CHANNEL,
    NOT_ON_DISK_FIELD,
    ON_DISK_TEXT,
    PROGRESS,
    SOS_STATE,
    STATION,
    STATUS_PATH,
    STATUS_WORD,
    WRONG_QUERY,
    limit_parameter,
)
from fieldagent.agent.outbound.package_state import STEP_ORDER
from fieldagent.http.openapi import (
    NULL,
    Answers,
    answer,
    answer_header,
    any_of,
    boolean,
    call,
    constant,
    enumeration,
    extensible_record,
    header,
    integer,
    list_of,
    mapping,
    named_record,
    nullable,
    number,
    one_of,
    query,
    record,
    schema,
    segment,
    text,
)
from fieldagent.http.openapi_parts import (
    DATA_SCHEMA,
    IDEMPOTENCY_KEY,
    INT32,
    LOCATION,
    READ_RECEIPT,
    SECONDS,
    UNIX_TIME,
    WAYPOINT,
    variants,
)
from fieldagent.package.package import SOS_PRIORITY
from fieldagent.package.reading import INT32 as INT32_RANGE
from fieldagent.package.reading import ITEM_BYTES_MAX, ITEMS, NUMBER_MAX

_KIND = text(enum=[*ITEMS, "checkIn", "commandAnswer"])
_PACKAGE_ID = segment("id", INT32, "Package id")
_ONE_CHANNEL = query("channel", CHANNEL, "Limits the call to one channel")
MONEY_SCHEMA = text(
    "Price of these credits by satellite-credit-price, such as `0.24 EUR`; null if there are "
    "none, or no price is set"
)
ANSWER_SCHEMA = named_record("Answer", {**ANSWER_FIELDS, "status": STATUS_WORD})
MESSAGE = named_record(
    "Message",
    {
        "content": text(
            f"The text, at most {ITEM_BYTES_MAX} bytes of UTF-8", maxLength=ITEM_BYTES_MAX
        )
    },
    "A text message",
)
_NAMES = (
    "A name, `group:NAME`, `device:NAME`, an e-mail address, a telephone number, the number of a "
    "user, or the negative number of a group"
)
_MEMBER = (
    text(minLength=1, maxLength=254),
    integer(minimum=-NUMBER_MAX, maximum=NUMBER_MAX, **{"not": constant(0)}),
    NULL,
)
PACKAGE = schema(
    "Package",
    variants(
        {
            "id?": nullable(INT32),
            "channels?": nullable(
                list_of(CHANNEL, "Channels to use (all configured channels)", minItems=1)
            ),
            "collapseKey?": nullable(INT32, "Key with which this Package replaces a waiting one"),
            "priority?": nullable(INT32),
            "timeToLive?": nullable(SECONDS, "Seconds"),
            "gather?": nullable(
                SECONDS, "Seconds to wait over satellite for other Packages to share a message"
            ),
            "by?": nullable(
                SECONDS,
                "Seconds within which the Package must arrive: for that time, more expensive "
                "channels wait for cheaper ones",
            ),
            "to?": one_of(
                *_MEMBER,
                description=f"Addressee (everyone; an SOS is always for everyone). {_NAMES}",
            ),
            "receipt?": READ_RECEIPT,
            "from?": one_of(
                *_MEMBER, description=f"Person at this kit who wrote the Package. {_NAMES}"
            ),
            "workspaceId?": {"description": "Accepted and unused"},
        },
        {"data": DATA_SCHEMA, "message": MESSAGE, "location": LOCATION, "waypoint": WAYPOINT},
        "Exactly one of data, message, location, waypoint. Default priority: data and waypoint "
        f"{ITEMS['data'].priority}, message {ITEMS['message'].priority}, location "
        f"{ITEMS['location'].priority}; {SOS_PRIORITY} and above makes a message or location an "
        "SOS.",
    ),
)
UNREADABLE_SOS_SCHEMA = schema(
    "ForgivenSos",
    extensible_record(
        {"priority": integer(minimum=SOS_PRIORITY, maximum=INT32_RANGE[-1])},
        "An SOS. Parts that cannot be read are left out, and `unread` of the answer names them. "
        "An SOS is never refused for that",
    ),
)
RECEIPT = named_record(
    "Receipt",
    {
        "id": text(),
        "name": text(),
        "type": text(),
        "at": UNIX_TIME,
        "kind": text(
            "agent: the addressee's agent has stored it; hub: the hub has it", enum=["agent", "hub"]
        ),
    },
)
_STEP = named_record(
    "Step",
    {
        "at": UNIX_TIME,
        "stage": text(
            "nobody: the directory has no such name or address, or it is unreachable; "
            "handed_over: a mail or SMS service has accepted it, not yet a person",
            enum=list(STEP_ORDER),
        ),
        "who": text("Empty if the stage is about no person"),
        "text": text("Text of the stage for people"),
        "detail": text("Detail beside `who`: a person, a service or a reason"),
    },
)
_CONTENT = text("Content of a message; name and notes of a waypoint; at most 500 characters")
_POSITION = nullable(list_of(number(), "Latitude and longitude", minItems=2, maxItems=2))
_NAMED_ADDRESSEE = {
    "type": ["string", "integer", "null"],
    "description": "Addressee, as its sender named it; a number if that is known",
}
_WRITER = {
    **_NAMED_ADDRESSEE,
    "description": "Person who wrote it, as named there; a number if that is known",
}
_PROGRESS = {
    "status": nullable(STATUS_WORD),
    "reason?": text(
        "Reason of the final status; while waiting, the reason and the time of the next try"
    ),
    "nextTry?": nullable(number("Unix time of the next try, if it is known; only while waiting")),
}
_CHANNEL_PROGRESS_SCHEMA = mapping(record(_PROGRESS), "Status on each channel", keys=CHANNEL_NAMES)
_UPDATE = nullable(
    record(
        {
            "state": SOS_STATE,
            "by": nullable(text("Person who acted; null if unknown")),
            "text": nullable(text("Added words; null if there are none")),
        },
        "An incident update, of which `text` is the English sentence; null for every other Package",
    )
)
_NEXT_PAGE = nullable(text("Path of the next page; null on the last page"))
_LISTED_FIELDS = {
    "id": INT32,
    "kind": _KIND,
    "sos": boolean(),
    "priority": INT32,
    "text": nullable(_CONTENT),
    "position": _POSITION,
    "channels": _CHANNEL_PROGRESS_SCHEMA,
    "to": _NAMED_ADDRESSEE,
    "from": _WRITER,
    "receipt": enumeration("read", None),
    "incident": _UPDATE,
}
_SENT_PACKAGE = record(
    {
        **_LISTED_FIELDS,
        "relayed": boolean("True for an item of a neighbour that this kit relays"),
        "relayedFor": nullable(text("Name of its kit; null for this kit's own")),
        "accepted": UNIX_TIME,
        "ended": nullable(UNIX_TIME),
        "status": nullable(STATUS_WORD),
        "credits": number("Cost so far; a share of transmissions with several Packages", minimum=0),
        "money?": nullable(MONEY_SCHEMA),
        "receipts": list_of(RECEIPT, "Users whose agents have stored it"),
        "reached": list_of(_STEP, "Last known stage after storage on a kit's disk"),
        "toName": nullable(text("Name of the addressee")),
    }
)
SENT_LIST = named_record(
    "Sent", {"packages": list_of(_SENT_PACKAGE, maxItems=PAGE_MAX), "next": _NEXT_PAGE}
)
_EVENT = record(
    {
        "at": number("Unix time; if `times` is above 1, of the last event"),
        "event": text(),
        "channel": nullable(CHANNEL),
        "detail": text(),
        "times": integer(minimum=1),
    }
)
_UNCONFIRMED_STATION = record(
    {"station": STATION, "name": nullable(text("null until the station has sent it"))}
)
PACKAGE_STATE = named_record(
    "Standing",
    {
        "id": INT32,
        "data": record({"payload": text()}),
        "channels": mapping(
            record({**NOT_ON_DISK_FIELD, **_PROGRESS}), "Status on each channel", keys=CHANNEL_NAMES
        ),
        "status": nullable(STATUS_WORD),
        "accepted": number(),
        "receipts": list_of(RECEIPT, "Users whose agents have stored it"),
        "unconfirmed": list_of(
            _UNCONFIRMED_STATION,
            "Stations that were heard by radio within the last hour and have not confirmed it, "
            "while it is sent by radio",
        ),
        "late": boolean("True if it reached its addressee after another final status"),
        "history": list_of(_EVENT, "History of the Package, oldest first"),
        "kind?": _KIND,
        "sos?": boolean(),
        "priority?": INT32,
        "text?": nullable(text("Content of a message; name and notes of a waypoint")),
        "position?": _POSITION,
        "reason?": NO_CHANNEL,
        "reached": list_of(_STEP, "Known stages of delivery, from the first to the last"),
        "to?": _NAMED_ADDRESSEE,
        "from?": _WRITER,
        "receipt?": enumeration("read", None),
        "toName?": nullable(text()),
        "fromName?": nullable(text()),
        "incident": _UPDATE,
    },
    "`kind`, `sos`, `priority`, `text` and `position` are absent if damage to the disk destroyed "
    "them",
)
_QUEUED = record(
    {
        **_LISTED_FIELDS,
        "collapseKey": nullable(INT32),
        "accepted": number(),
        "expires": nullable(number()),
    }
)
QUEUE = named_record(
    "Queue", {"queued": integer(minimum=0), "packages": list_of(_QUEUED), "next": _NEXT_PAGE}
)

_COST = record(
    {
        "parts": integer(
            "Messages that contain only this Package; 0 if the channel cannot carry it, for the "
            "reason in `reason`",
            minimum=0,
        ),
        "bytes": integer(minimum=0),
        "credits": integer(minimum=0),
        "creditsLeft": nullable(
            integer("Credits left today; null if there is no limit", minimum=0)
        ),
        "byBytes": boolean(
            "True if the account pays for bytes; then `bytes` is the number that it pays for"
        ),
        "bytesLeft": nullable(integer("Bytes left today; null if there is no limit", minimum=0)),
        "money?": nullable(MONEY_SCHEMA),
        "begins": number("Seconds after acceptance at which transmission may begin", minimum=0),
        "why": nullable(text("Reason for that delay, for people")),
        "expected": FORECAST_OR_NULL,
        "reason": nullable(
            text("Reason why the channel cannot carry the Package, for people; null if it can")
        ),
    }
)
_PREFERENCE_APPLIED = {
    "Preference-Applied": answer_header(text(), "`wait=N`, if Prefer requested it")
}
_REFUSED_ANSWERS: Answers = {
    409: "A waiting Package has this id and another body",
    422: FAULTS_TEXT,
    503: BUSY_ANSWER,
    507: JOURNAL_IN_MEMORY,
}
_CANCELED: Answers = {
    200: answer("The Package is canceled", ANSWER_SCHEMA),
    202: answer("A channel is transmitting the Package; the rest is canceled", PROGRESS),
    400: "The query has an unknown parameter",
    404: "No Package has that id",
    409: "The Package had already ended: the member `package` contains its status",
}
_PAGE = "Packages on a page"

CALLS = (
    call(
        "POST /api/package",
        "send: Send a Package and wait for its terminal status",
        {
            200: answer("The Package has ended", ANSWER_SCHEMA, headers=_PREFERENCE_APPLIED),
            202: answer(
                "The Package is still waiting after the seconds of Prefer",
                PROGRESS,
                headers={**STATUS_PATH, **_PREFERENCE_APPLIED},
            ),
            **_REFUSED_ANSWERS,
        },
        parameters=[
            IDEMPOTENCY_KEY,
            header(
                "Prefer",
                text(),
                "`wait=N` (RFC 7240): the answer comes after at most N seconds, and the Package "
                "continues; other preferences are ignored",
            ),
        ],
        body=any_of(PACKAGE, UNREADABLE_SOS_SCHEMA),
    ),
    call(
        "POST /api/package/async",
        "enqueue: Accept a Package and return",
        {202: answer(ON_DISK_TEXT, PROGRESS, headers=STATUS_PATH), **_REFUSED_ANSWERS},
        parameters=[IDEMPOTENCY_KEY],
        body=any_of(PACKAGE, UNREADABLE_SOS_SCHEMA),
    ),
    call(
        "POST /api/package/cost",
        "cost: Return the cost of a Package on each channel; nothing is queued",
        {
            200: answer(
                "Each configured channel that is not excluded",
                record({"channels": mapping(_COST, keys=CHANNEL_NAMES)}),
            ),
            422: FAULTS_TEXT,
        },
        body=PACKAGE,
    ),
    call(
        "GET /api/packages",
        "packages: List sent Packages",
        {
            200: answer(
                "A page of sent Packages, newest first. With filters, a page can be short or "
                "empty and still have a next page",
                SENT_LIST,
                headers=NEXT_LINK,
            ),
            **WRONG_QUERY,
        },
        parameters=[
            query("state", text(enum=list(STATES)), "Only Packages with this status"),
            query("kind", _KIND, "Only items of this kind"),
            BEFORE_PARAMETER,
            limit_parameter(_PAGE, LISTED, PAGE_MAX),
        ],
    ),
    call(
        "GET /api/package/{id}",
        "look: Return the status of a Package",
        {200: answer("The Package", PACKAGE_STATE), 404: "No Package has that id"},
        parameters=[_PACKAGE_ID],
    ),
    call(
        "DELETE /api/package/{id}",
        "withdraw: Cancel the Package, as `cancel` does",
        _CANCELED,
        parameters=[_PACKAGE_ID, _ONE_CHANNEL],
    ),
    call(
        "POST /api/package/{id}/cancel",
        "cancel: Cancel a waiting Package",
        {**_CANCELED, 400: "The query has an unknown parameter, or there is a body"},
        parameters=[_PACKAGE_ID, _ONE_CHANNEL],
    ),
    call(
        "GET /api/queue",
        "queue: List waiting Packages",
        {
            200: answer("A page of waiting Packages, oldest first", QUEUE, headers=NEXT_LINK),
            **WRONG_QUERY,
        },
        parameters=[
            _ONE_CHANNEL,
            limit_parameter(_PAGE, PAGE_MAX, PAGE_MAX),
            query(
                "after",
                integer(format="int64", minimum=0, default=0),
                "Start of the page: `next` of the page before",
            ),
        ],
    ),
    call(
        "DELETE /api/queue",
        "clear: Cancel all waiting Packages except an open SOS",
        {
            200: answer("Number of canceled Packages", record({"deleted": integer(minimum=0)})),
            **WRONG_QUERY,
        },
        parameters=[_ONE_CHANNEL],
    ),
)
