"""OpenAPI description of received payloads, people, commands and neighbours."""

from __future__ import annotations

from fieldagent.agent.api.packages import PAGE_MAX
from fieldagent.agent.description.common import (
    BEFORE_PARAMETER,
    NEXT_LINK,
    WRONG_QUERY,
    limit_parameter,
)
from fieldagent.http.openapi import (
    answer,
    boolean,
    call,
    enumeration,
    extensible_record,
    integer,
    list_of,
    nullable,
    number,
    optional,
    query,
    record,
    segment,
    text,
)
from fieldagent.http.openapi_parts import NEXT_PAGE, UNIX_TIME

_PAYLOAD_ID = segment("id", text(format="uuid"), "requestId of the payload")
_DEAD_LETTER = record(
    {
        "number": integer(minimum=1),
        "channel": text(),
        "received": UNIX_TIME,
        "reason": text(),
        "payload": text("base64"),
        "text": nullable(text("The same as text, if it is text")),
    }
)
_NEIGHBOUR = record(
    {
        "station": integer(minimum=1),
        "name": nullable(text("null until the station has sent it")),
        "version": nullable(
            text("Version of its program, such as 0.1.0+12; null until the station has sent it")
        ),
        "hops": nullable(
            integer(
                "Hops from that station: 1 if it is in range; null if "
                "nothing has arrived within the hour",
                minimum=1,
            )
        ),
        "callsign": nullable(
            text("null until the station has sent it; a kit without radio-callsign sends none")
        ),
        "lastHeard": UNIX_TIME,
        "inRange": boolean("True if it was heard within the last hour"),
        "rssi": nullable(
            integer("Signal of the last packet in dBm; null if the radio does not report it")
        ),
        "snr": nullable(
            integer(
                "Signal-to-noise ratio of the last packet in dB; null if the radio does not "
                "report it"
            )
        ),
        "hub": nullable(
            boolean(
                "True if the station relays to the hub itself, false if through others, null if "
                "it reports no route"
            )
        ),
        "hopsToHub": nullable(
            integer(
                "Number of other stations on its route to the hub; null if it reports no route",
                minimum=0,
            )
        ),
        "routeBatteryLow": nullable(
            boolean("True if a battery on that route is nearly empty; null if it reports no route")
        ),
        "missing": list_of(
            integer(),
            "At most 8 Packages of this kit, repeated by radio, that the station has not "
            "confirmed, newest first",
        ),
        "radioKey": nullable(
            text(
                "Key of its last packet while radio-key is being changed here", enum=["old", "new"]
            )
        ),
    }
)
_REMOTE_STATION = record(
    {
        "station": integer(minimum=1),
        "name": nullable(text("null until it is known")),
        "hops": integer("Hops from that station", minimum=2),
    }
)
_COMMAND = extensible_record(
    {
        "number": integer(minimum=0),
        "command": text(),
        "channel": text("Channel of its first arrival, which the answer uses"),
        "came": UNIX_TIME,
        "state": enumeration(
            "accepted", "begun", "owed", "answered", description="answered: the answer is a Package"
        ),
        "outcome": enumeration("done", "refused", "failed", None),
        "answer": nullable(text()),
        "answered": nullable(UNIX_TIME),
    }
)
_ADDRESSEE = record(
    {
        "to": {"type": ["string", "integer"], "description": "Value for a Package's `to`"},
        "name": text(),
        "kind": text(enum=["user", "group", "device"]),
        "radios": list_of(text(), "The user's own names for it, by id"),
    }
)
_POSITION = extensible_record(
    {
        "latitude": number(),
        "longitude": number(),
        "altitude": nullable(number()),
        "at": nullable(UNIX_TIME),
        "blurred": boolean("True if the radio reduces the precision of its position"),
    }
)
_PERSON = record(
    {
        "handle": text("Id of the radio in its firmware, such as !a1b2c3d4"),
        "name": text("Name, or the handle if the person has sent no name"),
        "known": boolean("false: a guest, who can only raise an SOS"),
        "caveat": text(
            "Caveat to show with each of its messages if the sender is not authenticated, as with "
            "APRS; otherwise empty"
        ),
        "keyChanged": boolean("True if its public key differs from the first one that it sent"),
        "namesakeOf": nullable(
            text(
                "Handle of a known person whose name this unknown radio uses: a new radio of that "
                "person, or another person's radio"
            )
        ),
        "heard": nullable(number("Unix time; null if this kit did not hear it directly")),
        "rssi": nullable(integer("dBm")),
        "snr": nullable(number("dB")),
        "hops": nullable(integer("Radios that repeated it")),
        "battery": nullable(integer("Per cent")),
        "position": nullable(_POSITION),
    }
)

CALLS = (
    call(
        "GET /api/inbound",
        "inbound: List inbound payloads and their results",
        {
            200: answer(
                "A page of inbound payloads, newest first",
                record(
                    {
                        "payloads": list_of({"type": "object"}),
                        "deadLetters": list_of(
                            _DEAD_LETTER,
                            "Dead letters: messages that could not be used completely, newest "
                            "first. They are on the first page without ?state=, and with "
                            "?state=dead",
                        ),
                        "next": NEXT_PAGE,
                    }
                ),
                headers=NEXT_LINK,
            ),
            **WRONG_QUERY,
        },
        parameters=[
            query("state", text(enum=["waiting", "handed", "dead"])),
            BEFORE_PARAMETER,
            limit_parameter("Payloads on a page", PAGE_MAX, PAGE_MAX),
        ],
    ),
    call(
        "POST /api/inbound/{id}/replay",
        "replay: Pass a payload to the hooks again",
        {
            202: answer(
                "The payload waits for the hooks",
                record({"requestId": text(), "hooks": list_of(text())}),
            ),
            404: "No payload has that requestId",
            409: "No hook is configured",
        },
        parameters=[_PAYLOAD_ID],
    ),
    call(
        "POST /api/inbound/{id}/read",
        "read: Send a read receipt for a payload",
        {
            200: answer(
                "The receipt is on disk, and is sent with the next message to the hub",
                record({"requestId": text(), "readBy": text()}),
            ),
            400: "The body is not JSON",
            404: "No payload has that requestId",
            422: "The body has faults",
            503: "Nothing is accepted, because the disk failed",
            507: "Nothing is accepted, because the disk is full",
        },
        parameters=[_PAYLOAD_ID],
        body=optional(record({"by?": nullable(text("Name of the reader"))})),
    ),
    call(
        "GET /api/messages/canned",
        "cannedMessages: Return the messages that can be sent with one press (`canned-messages`)",
        answer(
            "In the order of the setting",
            record({"messages": list_of(text(minLength=1, maxLength=160), maxItems=20)}),
        ),
    ),
    call(
        "GET /api/people",
        "people: List possible addressees of a Package",
        answer(
            "Users, groups and kits that the hub has reported",
            record(
                {
                    "owner": nullable(integer("User of this kit")),
                    "complete": boolean(
                        "True if the hub's directory is complete; otherwise, the list has those "
                        "who were named before"
                    ),
                    "people": list_of(_ADDRESSEE),
                }
            ),
        ),
    ),
    call(
        "GET /api/commands",
        "commands: List commands from the hub, and this kit's answers",
        answer(
            "Newest first",
            extensible_record(
                {
                    "allowed": list_of(text(), "Value of remote-commands"),
                    "commands": list_of(_COMMAND),
                }
            ),
        ),
    ),
    call(
        "GET /api/neighbours",
        "neighbours: List stations that this kit has heard by radio since the agent started",
        answer(
            "Most recently heard first",
            record(
                {
                    "station": nullable(
                        integer("Number of this station; null if no radio is configured")
                    ),
                    "neighbours": list_of(_NEIGHBOUR),
                    "remoteStations": list_of(
                        _REMOTE_STATION,
                        "Stations whose packets others in range have repeated within the hour",
                    ),
                }
            ),
        ),
    ),
    call(
        "GET /api/mesh",
        "mesh: List people with handhelds in range of the kit's people's radio (mesh-port)",
        answer("Most recently heard first", extensible_record({"people": list_of(_PERSON)})),
    ),
)
