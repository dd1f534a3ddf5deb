"""OpenAPI description of the agent's state: health, status, events, traces and signals."""

from __future__ import annotations

from fieldagent.agent.description.common import (
    CHANNEL_NAMES,
    FORECAST_OR_NULL,
    SOS_STATUS,
    WRONG_QUERY,
)
from fieldagent.agent.events import TOPICS
from fieldagent.http.openapi import (
    answer,
    boolean,
    call,
    constant,
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
    text,
)
from fieldagent.http.openapi_parts import (
    ALIVE_PARAMETER,
    DOWN_RECORD,
    METRICS,
    THIS_DOCUMENT,
    UNIX_TIME,
    UP_SCHEMA,
)

_SIGNAL = nullable(integer(minimum=0, maximum=5))
_CHANNEL_STATE = extensible_record(
    {
        "configured": boolean(),
        "state": nullable(text()),
        "reason": text(),
        "signal": _SIGNAL,
        "lastSuccess": nullable(number()),
        "queued": integer(),
        "bytesToday": integer(),
        "creditsToday": integer(),
        "creditsInDoubtToday": integer(
            "Additional credits that may have been paid, for copies that may have left"
        ),
        "moneyToday?": text(
            "Price of today's credits by satellite-credit-price, such as `1.44 EUR`, or a range; "
            "absent without a price"
        ),
        "creditsPerDay?": integer("Budget of a day; absent if there is none"),
        "creditsForSos?": integer("Credits that only an SOS may use"),
    },
    "Other values that the modem reports",
)
_PART_FAULT = record(
    {
        "part": text(),
        "error": text("Newest fault"),
        "at": UNIX_TIME,
        "times": integer(minimum=1),
        "down": boolean("True if the part fails again and again"),
    }
)
_LOSS = record(
    {
        "at": UNIX_TIME,
        "text": text(),
        "packages": integer(minimum=0),
        "payloads": integer(minimum=0),
    }
)
_CHECK_IN = record(
    {
        "package": nullable(integer("Package of the request")),
        "status": nullable(text()),
        "within": nullable(integer("Seconds; null to end the check-in")),
        "since": UNIX_TIME,
        "confirmed": nullable(number("Time at which the hub accepted it")),
        "due": nullable(
            number(
                "Time by which the hub must receive something; null until the hub has confirmed "
                "the request"
            )
        ),
    },
    "Last check-in request to the hub; null if there is none, or if its end has reached the hub",
)
_TAK_LAN = record(
    {
        "state": text(),
        "reason": text(),
        "came": mapping(
            integer(),
            "Received since the agent started, by result: taken, repeated, asked "
            "(for a price), own (of a kit or hub), limited, refused, unreadable, "
            "other",
        ),
        "creditsToday": integer(),
    },
    "TAK phones on the kit's network (tak-lan): state of the network, received messages by "
    "result, and today's cost; null if not configured",
)
_MQTT = record(
    {
        "state": text(),
        "reason": text(),
        "commands": mapping(
            integer(),
            "Commands since the agent started, by result: taken, refused, or dropped unread "
            "because retained, too long, or too many",
        ),
        "inboundWaiting": integer(),
        "creditsToday": integer(),
        "creditsPerDay": integer(),
    },
    "MQTT broker (mqtt-address): state of the connection, commands by result, waiting payloads, "
    "and today's cost; null if not configured",
)
STATUS = named_record(
    "Status",
    {
        "version": text(),
        "uptime": number("Seconds"),
        "channels": mapping(_CHANNEL_STATE),
        "ports": mapping(
            nullable(text()), "The ports that the agent began with, by their settings"
        ),
        "journal": record(
            {
                "commits": integer(),
                "full": boolean("True if the disk is full, and accepted work waits for space"),
                "notOnDisk": nullable(
                    text("Reason why the journal is in memory and not on the disk")
                ),
                "losses": list_of(_LOSS, "Losses through damage to the journal, newest first"),
            }
        ),
        "confirmationsRefused": integer(
            "Confirmations since the agent started that were ignored, because they belong to "
            "another item with the same number",
            minimum=0,
        ),
        "faults": list_of(
            _PART_FAULT,
            "Parts of the agent that failed since it started, because of a bug; each was restarted",
        ),
        "deadLetters": record(
            {
                "came": integer(),
                "dropped": integer("Dead letters that were deleted for newer ones"),
                "kept": integer(),
                "latest": nullable(
                    record({"channel": text(), "received": UNIX_TIME, "reason": text()})
                ),
            },
            "Messages since the journal began that could not be used",
        ),
        "notices": list_of(text(), "Problems that a person should fix, one sentence each"),
        "sos": SOS_STATUS,
        "clock": record(
            {
                "time": UNIX_TIME,
                "trusted": boolean(),
                "source": nullable(
                    text(
                        "Source of the time: the system's network or hardware clock; otherwise "
                        "GPS, satellite or hub; null if no source is trusted"
                    )
                ),
            },
            "Clock that gives dates",
        ),
        "checkIn": nullable(_CHECK_IN),
        "mesh": nullable(
            {
                "type": "object",
                "description": (
                    "People's radio (mesh-port): its state and reason, and the number of texts to "
                    "people by status; null if none is configured"
                ),
            }
        ),
        "takLan": nullable(_TAK_LAN),
        "mqtt": nullable(_MQTT),
        "track": record(
            {
                "chosenInterval": nullable(
                    integer(
                        "Seconds between two positions at rest, chosen by people; null for the "
                        "tracker's own value"
                    )
                ),
                "interval": nullable(number("Current values of the tracker")),
                "due": nullable(number("Unix time by which the next position is due")),
                "reportedAt": nullable(number("Unix time of the tracker's report")),
            }
        ),
    },
)
_FORECAST_OF = record(
    {
        "expected": FORECAST_OR_NULL,
        "accuracy": record(
            {
                "forecasts": integer(
                    "Packages among the last 100 that had a forecast of `p90` when they were "
                    "accepted",
                    minimum=0,
                    maximum=100,
                ),
                "within": integer(
                    "Number of them that were delivered within that time", minimum=0, maximum=100
                ),
            }
        ),
    }
)
_TOPICS = "|".join(TOPICS)

CALLS = (
    call(
        "GET /api/health",
        "health: Return the health of the agent",
        {
            200: answer(
                "The agent works. DEGRADED: a channel has been down for an hour; `reason` names "
                "the channel and the cause",
                one_of(UP_SCHEMA, record({"status": constant("DEGRADED"), "reason": text()})),
            ),
            503: answer("The agent does not work", DOWN_RECORD),
        },
    ),
    call(
        "GET /api/status",
        "status: Return version, channels, queue and cost",
        answer("The current state", STATUS),
    ),
    call(
        "GET /api/events",
        "listen: Server-sent events",
        {
            200: answer("An endless stream", text(), "text/event-stream"),
            400: "?topics= has an unknown topic, or ?alive= is not from 1 to 60",
        },
        parameters=[
            query(
                "topics",
                text(pattern=f"^({_TOPICS})(,({_TOPICS}))*$"),
                f"Topics: {', '.join(TOPICS)}, separated by commas (all)",
            ),
            ALIVE_PARAMETER,
            header(
                "Last-Event-ID",
                text(),
                "Id of the last received event: the stream continues after it. If that is too "
                "long ago, it begins with an event `lost`",
            ),
        ],
    ),
    call("GET /metrics", "metrics: Return metrics for Prometheus", {200: METRICS}),
    call("GET /openapi.json", "describe: Return this document", {200: THIS_DOCUMENT}),
    call(
        "GET /api/trace",
        "trace: Return the last traffic on a channel's serial line: what was stored at a fault, "
        "and what is in memory",
        {
            200: answer(
                "Lines of the trace",
                extensible_record(
                    {
                        "kept": text(
                            "From the file on disk, without payloads; empty if there was no fault"
                        ),
                        "memory": text(),
                    }
                ),
            ),
            **WRONG_QUERY,
            409: "The channel is not configured",
        },
        parameters=[
            query("channel", text(enum=CHANNEL_NAMES, default=CHANNEL_NAMES[0])),
            query(
                "payloads",
                text(enum=["0", "1"], default="0"),
                "1: traffic in memory, with the content of messages",
            ),
        ],
    ),
    call(
        "POST /api/satellite/retry",
        "retrySatellite: Let the satellite modem try waiting messages now, because a person sees "
        "the open sky",
        {
            202: answer(
                "The modem tries, unless the network has asked it to wait",
                record({"queued": integer("Packages that wait for the modem", minimum=0)}),
            ),
            409: "No satellite modem is configured",
        },
    ),
    call(
        "GET /api/forecast",
        "forecasts: Return the expected delivery time of each channel, and how good such "
        "forecasts were",
        answer(
            "Each configured channel",
            record({"channels": mapping(_FORECAST_OF, keys=CHANNEL_NAMES)}),
        ),
    ),
    call(
        "GET /api/signals",
        "signals: Return the signal of each link since the agent started",
        answer(
            "Each configured channel, oldest value first; a value lasts until the next one, the "
            "last until now",
            mapping(list_of(record({"at": UNIX_TIME, "signal": _SIGNAL}), maxItems=240)),
        ),
    ),
)
