"""Description of devices, positions and the map, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    NULL,
    answer,
    answer_in_formats,
    boolean,
    call,
    constant,
    extensible_record,
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
    with_description,
)
from fieldagent.http.openapi_parts import HOUR, MINUTE, NAMED_RECORD, ROW, UNIX_TIME
from fieldagent.hub.access.revocation import REASON_MAX
from fieldagent.hub.administration.devices import CREDITS_MAX
from fieldagent.hub.description.common import (
    ADMINISTRATOR,
    CHECK_IN,
    HIDDEN,
    LABEL,
    MAY_NOT_READ,
    NEXT_LINK,
    OF_SENDER,
    PAGE,
    PUSHER,
    READER,
    SINCE_PARAMETER,
    TAKEN,
    UNTIL_PARAMETER,
    USER_NUMBER,
    describe_line,
    describe_page,
)
from fieldagent.hub.description.distress import REVOKED
from fieldagent.hub.description.fleet import BEARER_SCHEMA, SIGNAL
from fieldagent.hub.description.pushes import SEEN
from fieldagent.hub.operator.registry import get_operator_places
from fieldagent.package.tracks import CONTENT_TYPES
from fieldagent.page import map_description

_CREDITS = record(
    {
        "perDay": integer(),
        "sosReserve": integer("Credits that only an SOS may use"),
        "spent": integer("On this UTC day"),
    }
)
_POSITION = record(
    {
        "latitude": number(),
        "longitude": number(),
        "at": number(),
        "altitude?": number("Metres, if it is known"),
        "speedOverGround?": number("Metres per second, if it is known"),
        "courseOverGround?": number("Degrees from true north, if it is known"),
    }
)
_BATTERY = integer("Per cent; null if not available or not reported", minimum=0, maximum=100)
_MODEM = extensible_record(
    {
        "channel": text("satellite or radio"),
        "signal": SIGNAL,
        "battery": nullable(_BATTERY),
        "at": UNIX_TIME,
    }
)
_REBUILD = record(
    {
        "state": text(enum=["open", "done"]),
        "missing": integer(),
        "back": integer(),
        "gone": integer(),
    },
    "Number of its items that were returned to a restored database, for a week",
)
_DEVICE = {
    "id": integer(),
    "name": text(),
    "user": NAMED_RECORD,
    "imei": nullable(text()),
    "operator": nullable(text()),
    "disabled": boolean(),
    "revoked": REVOKED,
    "linked": boolean("True if linked by IP now"),
    "lastContact": nullable(UNIX_TIME),
    "over": BEARER_SCHEMA,
    "version": nullable(text("Version of its agent, from its last link")),
    "lastUpdate": nullable(text("Result of its last program update")),
    "settings": nullable(
        text(
            "Number and result of the settings that were sent last: offered, waiting, trial, "
            "taken, refused or back, with the reason"
        )
    ),
    "position": one_of(NULL, _POSITION),
    "modems": list_of(
        _MODEM, "Signal and batteries of its modems in the last report; empty if there is none"
    ),
    "waiting": integer("Unconfirmed deliveries, at most 1000"),
    "checkIn": one_of(NULL, CHECK_IN, description="Time by which its next item is due"),
    "trouble": nullable(text("Fault of its key")),
    "satelliteTrouble": nullable(
        text("Reason why messages to it over satellite wait, from the last call to the operator")
    ),
    "rebuild": nullable(_REBUILD),
    "relay": boolean("True if it may relay items of other kits"),
    "tagged": boolean("True if its satellite messages are authenticated"),
    "credits": one_of(
        NULL,
        _CREDITS,
        description="Credits per day for messages to it over satellite; null if there is no limit",
    ),
}
DEVICE = named_record("Device", _DEVICE)
CHANGED_DEVICE = named_record(
    "ChangedDevice",
    {**_DEVICE, "deadLettersTaken": with_description("Dead letters from before", TAKEN)},
)
DAY_COST = record(
    {
        "day": text("UTC", format="date"),
        "device": integer("Its number"),
        "name": text("The device's"),
        "unit": text("Unit of payment", enum=["credit", "byte"]),
        "mo": integer("From the kit, counted by the hub"),
        "mt": integer("To the kit, counted by the hub"),
        "hubCount": integer("The sum of both"),
        "operator": nullable(
            integer("Count of the operator; null if nothing was imported for that day")
        ),
        "difference": text("Difference, as text; empty if there is none"),
        "money?": nullable(text("Price of `here`, such as `0.24 EUR`; absent without a price")),
        "operatorMoney?": nullable(text("Price of `operator`; absent without a price")),
    }
)
_TOTAL = record(
    {
        "hubCount": integer("Counted by the hub"),
        "money": nullable(text("Price; null without a price")),
        "importedHubCount": integer("The hub's count of the imported days"),
        "importedMoney": nullable(text("Price; null without a price")),
        "operator": integer("The operator's count of these days"),
        "operatorMoney": nullable(text("Price; null without a price")),
    },
    "Totals of accounts that pay credits",
)
_IMEI = nullable(text(pattern="^[0-9]{15}$"))
_CREDITS_SET = nullable(integer(minimum=0, maximum=CREDITS_MAX))
_DAY = text(format="date", pattern="^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$")
_POSITIONS = extensible_record(
    {
        "type": constant("FeatureCollection"),
        "features": list_of({"type": "object"}),
        "next": nullable(text()),
    }
)

CALLS = (
    call(
        "GET /api/devices",
        "devices: List devices of the workspace",
        describe_page("Only an Integration and a dispatcher see the IMEI", "devices", DEVICE),
        READER,
        parameters=PAGE,
    ),
    call(
        "POST /api/devices",
        "deviceAdd: Add a device",
        {
            201: answer(
                "With the kit's secrets, which are shown only once",
                record(
                    {
                        "id": ROW,
                        "hubToken": HIDDEN,
                        "satelliteKey?": HIDDEN,
                        "contested?": text(
                            "If a device of another workspace has the IMEI, the operator of the "
                            "hub decides who gets it"
                        ),
                        "deadLettersTaken": TAKEN,
                    }
                ),
            ),
            409: "Another device has this name or IMEI, or the user does not exist",
        },
        ADMINISTRATOR,
        body=record(
            {
                "name": LABEL,
                "userId": USER_NUMBER,
                "imei?": _IMEI,
                "operator?": nullable(text(enum=list(get_operator_places()))),
                "tagged?": nullable(boolean()),
                "relay?": nullable(boolean()),
                "creditsPerDay?": _CREDITS_SET,
                "sosReserve?": _CREDITS_SET,
                "checkInEvery?": nullable(
                    integer(
                        "Seconds between two items, or the device is overdue; instead of checkInBy",
                        minimum=300,
                        maximum=366 * 86_400,
                    )
                ),
                "checkInBy?": nullable(
                    text(
                        "UTC time of each day by which an item must arrive",
                        pattern=f"^{HOUR}:{MINUTE}$",
                    )
                ),
            },
            **{
                "not": {
                    "required": ["checkInEvery", "checkInBy"],
                    "properties": {"checkInEvery": integer(), "checkInBy": text()},
                }
            },
        ),
    ),
    call(
        "PATCH /api/devices/{id}",
        "deviceChange: Change a device",
        {
            200: answer("The device after the change", CHANGED_DEVICE),
            409: "Another device has this name or IMEI, or its user is disabled",
        },
        ADMINISTRATOR,
        body=record(
            {
                "name?": nullable(LABEL),
                "imei?": _IMEI,
                "relay?": nullable(boolean()),
                "disabled?": nullable(boolean()),
                "revoked?": nullable(
                    boolean(
                        "true: the kit is stolen or lost, and its items no longer count as its "
                        "user's; its SOS still rings. false: restore the kit"
                    )
                ),
                "why?": nullable(
                    describe_line(REASON_MAX, "Reason of a revocation, for administrators")
                ),
            }
        ),
    ),
    call(
        "DELETE /api/devices/{id}",
        "deviceDelete: Delete a device for good",
        {204: "The device is deleted", 409: "An SOS of the device is not closed"},
        ADMINISTRATOR,
    ),
    call(
        "POST /api/devices/{id}/token",
        "deviceToken: Replace the link token of a device",
        answer("The old token is refused from now on", record({"hubToken": HIDDEN})),
        ADMINISTRATOR,
    ),
    call(
        "POST /api/devices/{id}/key",
        "deviceKey: Set or create the satellite-key of a device",
        answer(
            "The new key, if none was given",
            record({"satelliteKey?": HIDDEN, "deadLettersTaken": TAKEN}),
        ),
        ADMINISTRATOR,
        body=optional(record({"satelliteKey?": nullable(text(pattern="^[0-9A-Fa-f]{64}$"))})),
    ),
    call(
        "DELETE /api/devices/{id}/key",
        "deviceKeyRemove: Remove the satellite-key of a device",
        {204: "Its messages are no longer authenticated"},
        ADMINISTRATOR,
    ),
    call(
        "GET /api/devices/{id}/usage",
        "deviceUsage: Return a device's satellite cost by day, as counted here and by its operator",
        answer(
            "Oldest first, without days with a count of 0; kept for at most 400 days",
            record(
                {
                    "since": text(format="date"),
                    "until": text(format="date"),
                    "usage": list_of(DAY_COST),
                    "total": _TOTAL,
                }
            ),
        ),
        ADMINISTRATOR,
        parameters=[
            query("since", _DAY, "First day in UTC (31 days ago)"),
            query("until", _DAY, "Last day in UTC (today)"),
        ],
    ),
    call(
        "GET /api/positions",
        "positions: Return positions as GeoJSON or GPX, newest first",
        answer_in_formats(
            SEEN,
            {
                CONTENT_TYPES["geojson"]: _POSITIONS,
                CONTENT_TYPES["gpx"]: text(),
                CONTENT_TYPES["kml"]: text(),
            },
            headers=NEXT_LINK,
        ),
        READER,
        parameters=[
            OF_SENDER,
            SINCE_PARAMETER,
            UNTIL_PARAMETER,
            *PAGE,
            query(
                "format", text(enum=list(CONTENT_TYPES)), "Format (by Accept, otherwise GeoJSON)"
            ),
        ],
    ),
    *map_description.describe_calls(
        "Return the console's map (map-file or map-tiles)", PUSHER, {403: MAY_NOT_READ}
    ),
)
