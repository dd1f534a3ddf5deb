"""Description of pushes, items and deliveries, in OpenAPI."""

from __future__ import annotations

from typing import Any

from fieldagent.http.openapi import (
    NULL,
    Answers,
    answer,
    answer_header,
    boolean,
    call,
    enumeration,
    integer,
    list_of,
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
    ROW,
    SECONDS,
    TIMESTAMP,
    UNIX_TIME,
    USED_KEY_TEXT,
    WAYPOINT,
    variants,
)
from fieldagent.hub.access.push import EMAIL_MAX, GROUP_MAX, PHONE_MAX
from fieldagent.hub.api.read_api import DELIVERY_STATES
from fieldagent.hub.contract import NUMBER_MAX
from fieldagent.hub.description.common import (
    ADDRESSEE,
    BEARERS,
    DISPATCHER,
    ITEM,
    ITEM_FIELDS,
    NOTHING_ACCEPTED,
    OF_SENDER,
    PAGE,
    PUSHER,
    REACHED_STAGES,
    READER,
    SINCE_PARAMETER,
    STATE,
    UNTIL_PARAMETER,
    describe_page,
)
from fieldagent.package.reading import ITEM_BYTES_MAX

_UUID = text(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_ITEM_ID = segment("id", _UUID, "requestId of the item")
_WRITER = "Address of the writer, in the event that the addressee gets"
# `maxLength` counts characters, but the hub limits the bytes. A character has up to four bytes.
MESSAGE = named_record(
    "Message",
    {
        "content": text("The text", maxLength=ITEM_BYTES_MAX),
        "phone?": nullable(text(_WRITER, maxLength=PHONE_MAX // 4)),
        "email?": nullable(text(_WRITER, maxLength=EMAIL_MAX // 4)),
        "timestamp?": nullable(TIMESTAMP),
    },
    "A text message for one user",
)
_AN_ID = integer(minimum=1, maximum=NUMBER_MAX)
_MEMBER = (_AN_ID, text(pattern="^0{0,3}[1-9][0-9]{0,8}$"))
_MEMBER_SAYS: Any = {"description": "Number of a user or workspace", "examples": ["12"]}


def _describe_needs(target: str) -> dict[str, Any]:
    return {"required": [target], "properties": {target: {"not": NULL}}}


PUSH = schema(
    "Push",
    variants(
        {
            "sourceUserId": one_of(*_MEMBER, **_MEMBER_SAYS),
            "workspaceId": one_of(*_MEMBER, **_MEMBER_SAYS),
            "priority?": nullable(INT32),
            "collapseKey?": nullable(INT32),
            "timeToLive?": nullable(SECONDS, "Seconds"),
            "targetUserId?": one_of(*_MEMBER, NULL, **_MEMBER_SAYS),
            "targetGroup?": one_of(
                _AN_ID,
                text(minLength=1, maxLength=GROUP_MAX),
                NULL,
                description="Number or name of a group of the workspace, in addition to "
                "targetUserId or instead of it",
                examples=["rescue"],
            ),
            "receipt?": READ_RECEIPT,
        },
        {"data": DATA_SCHEMA, "message": MESSAGE, "location": LOCATION, "waypoint": WAYPOINT},
        "Exactly one of data, message, location, waypoint. A message goes to targetUserId or "
        "targetGroup. The others go there too if it is set, otherwise to the workspace except the "
        "sender.",
        message={"anyOf": [_describe_needs("targetUserId"), _describe_needs("targetGroup")]},
    ),
)
FORECAST = named_record(
    "Forecast",
    {
        "samples": integer(
            "Earlier messages to this kit for the estimate: of this time of day if there are ten, "
            "otherwise the newest",
            minimum=5,
            maximum=50,
        ),
        "median": nullable(
            number(
                "Seconds from acceptance until half of them were on the kit's disk; null if fewer "
                "arrived",
                minimum=0,
            )
        ),
        "p90": nullable(number("Seconds until nine of ten were", minimum=0)),
        "share": number(
            "Share that arrived in the end; replaced, expired or waiting messages count as on "
            "their way until then",
            minimum=0,
            maximum=1,
        ),
        "longest": number("Seconds after which that share was reached", minimum=0),
    },
)

_DEVICES = list_of(
    record(
        {
            "id": integer(),
            "name": text(),
            "userId": text(),
            "state": text(
                "on its way: accepted by the satellite operator; stored: on the kit's disk; "
                "collapsed: replaced by a newer item",
                enum=list(DELIVERY_STATES),
            ),
            "over": nullable(text("Bearer of the confirmation", enum=BEARERS)),
            "ended": nullable(UNIX_TIME),
            "reason": text(),
        }
    )
)
PUSH_STANDING = named_record(
    "PushStanding",
    {
        "id": text(),
        "sourceUserId": text(),
        "targetUserId": nullable(text("null for the whole workspace except the sender")),
        "accepted": UNIX_TIME,
        "expires": nullable(number("Unix time; an SOS never expires")),
        "devices": _DEVICES,
        "to": ADDRESSEE,
        "reached": REACHED_STAGES,
    },
)
PUSHED_ITEM = named_record(
    "PushedItem", {**ITEM_FIELDS, "standing": text("Path of its status for each device")}
)
_OF_WEBHOOK = record(
    {
        "webhook": integer(),
        "state": enumeration("waiting", "handed", "dead"),
        "attempts": integer(),
        "reason": text(),
    }
)
ITEM_DELIVERIES = named_record(
    "ItemDeliveries", {**ITEM_FIELDS, "devices": _DEVICES, "webhooks": list_of(_OF_WEBHOOK)}
)
_KINDS = ("message", "location", "waypoint", "data")
DELIVERY = named_record(
    "Delivery",
    {
        "item": text("requestId of the item"),
        "kind": enumeration(*_KINDS, None),
        "sos": boolean(),
        "accepted": number(),
        "state": STATE,
        "over": enumeration(*BEARERS, None),
        "ended": nullable(UNIX_TIME),
        "reason": text(),
    },
)
_COST = record(
    {
        "parts": integer("Messages that contain only this item", minimum=0),
        "bytes": integer(minimum=0),
        "credits": integer(minimum=0),
        "creditsLeft": nullable(integer("Credits left today; null if there is no limit")),
    }
)
_COSTS = record(
    {
        "id": integer(),
        "name": text(),
        "userId": text(),
        "linked": boolean("True if it is linked by IP now"),
        "satellite": one_of(
            NULL, _COST, description="null if the hub cannot reach a satellite modem of the device"
        ),
        "expected": nullable(
            FORECAST,
            "Earlier delivery times to that kit's disk; null if there are too few, or for several "
            "devices",
        ),
    }
)
_LOCATION_OF_PUSH = answer_header(
    text(pattern="^/api/push/[0-9a-f-]{36}$"),
    "Path of the push's status; for a repeated Idempotency-Key, that of the first push",
)
_STANDING_LINK = {
    "operationId": "pushStanding",
    "parameters": {"id": "$response.header.Location#regex:/api/push/(.+)"},
}
_REFUSED: Answers = {
    403: "The caller may not push this item, in this name, or to this target",
    422: USED_KEY_TEXT,
}
SEEN = (
    "Users see items for everyone, for them, and from them; an Integration and a dispatcher see "
    "all items of the workspace"
)
_NO_ITEM = "No item that the caller may see has this id, or it was deleted"

CALLS = (
    call(
        "POST /api/package",
        "push: Push one item to a user or a workspace",
        {
            **_REFUSED,
            200: answer(
                "The item is on disk and will be delivered; the body is empty",
                headers={"Location": _LOCATION_OF_PUSH},
                links={"standing": _STANDING_LINK},
            ),
            507: NOTHING_ACCEPTED,
        },
        PUSHER,
        parameters=[IDEMPOTENCY_KEY],
        body=PUSH,
    ),
    call(
        "POST /api/package/cost",
        "pushCost: Return the cost of a push for each device; nothing is stored",
        {
            **_REFUSED,
            200: answer(
                "Each addressed device; a linked device costs nothing",
                record({"devices": list_of(_COSTS)}),
            ),
        },
        PUSHER,
        body=PUSH,
    ),
    call(
        "GET /api/push/{id}",
        "pushStanding: Return the status of a push for each addressed device",
        {
            200: answer(
                "Users see their own pushes; an Integration or Resource sees those of the "
                "workspace",
                PUSH_STANDING,
            ),
            403: "The caller may not push to the workspace of the key",
            404: "The caller has no push with this id, or it was deleted after its end",
        },
        PUSHER,
        parameters=[segment("id", _UUID, "Id from the Location header")],
    ),
    call(
        "GET /api/pushes",
        "pushes: List pushes, newest first",
        describe_page("Users see their own pushes", "pushes", PUSHED_ITEM),
        READER,
        parameters=[SINCE_PARAMETER, UNTIL_PARAMETER, *PAGE],
    ),
    call(
        "GET /api/items",
        "items: List items, newest first",
        describe_page(SEEN, "items", ITEM),
        READER,
        parameters=[
            query(
                "text",
                text(pattern="^[^\u0000-\u001f]*$"),
                "Text in the first 1000 characters of a message, or of a waypoint's name and "
                "notes, in any case",
            ),
            OF_SENDER,
            query("device", ROW, "Items from or to this device, by number"),
            query("kind", text(enum=list(_KINDS)), "Kind of item"),
            query("sos", text(enum=["true", "false"]), "true: only SOS; false: no SOS"),
            SINCE_PARAMETER,
            UNTIL_PARAMETER,
            *PAGE,
        ],
    ),
    call(
        "GET /api/items/{id}",
        "item: Return an item with its deliveries",
        {200: answer(SEEN, ITEM_DELIVERIES), 404: _NO_ITEM},
        READER,
        parameters=[_ITEM_ID],
    ),
    call(
        "POST /api/items/{id}/read",
        "itemRead: Send a read receipt for an item",
        {
            200: answer(
                "The sender is notified, in the caller's name",
                record({"id": text(), "reached": REACHED_STAGES}),
            ),
            404: _NO_ITEM,
        },
        DISPATCHER,
        parameters=[_ITEM_ID],
    ),
    call(
        "GET /api/deliveries",
        "deliveries: List deliveries to a device, newest first",
        {
            200: describe_page(SEEN, "deliveries", DELIVERY),
            404: "No device of the workspace has that number",
        },
        READER,
        parameters=[
            query("device", ROW, "Number of the device", is_required=True),
            query("state", text(enum=list(DELIVERY_STATES)), "Only deliveries in this state"),
            *PAGE,
        ],
    ),
)
