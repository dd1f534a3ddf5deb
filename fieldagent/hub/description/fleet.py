"""Description of the fleet, commands to kits, and changes of the radio-key, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    NULL,
    answer,
    boolean,
    call,
    enumeration,
    extensible_record,
    integer,
    list_of,
    mapping,
    named_record,
    nullable,
    number,
    one_of,
    record,
    schema,
    text,
)
from fieldagent.http.openapi_parts import IDEMPOTENCY_KEY, NAMED_RECORD, NEXT_PAGE, UNIX_TIME
from fieldagent.hub.administration.commands import COMMAND_MAX, CREDITS_MAX
from fieldagent.hub.administration.radio_key import CREDITS_MAX as KEY_CREDITS_MAX
from fieldagent.hub.administration.radio_key import KITS_MAX
from fieldagent.hub.description.common import (
    ADMINISTRATOR,
    BEARERS,
    CHECK_IN,
    NEXT_LINK,
    NOT_THERE,
    PAGE,
    READER,
    UNIX_SECONDS,
    describe_line,
)
from fieldagent.hub.records.commands import BEARERS as COMMAND_BEARERS
from fieldagent.package.reading import INT32 as INT32_RANGE
from fieldagent.wire.kit_condition import CAUSES, THROTTLING
from fieldagent.wire.kit_status import STATES

_SIGNAL = integer(minimum=0, maximum=5)
SIGNAL = nullable(_SIGNAL, "Signal bars; null while unknown")
BEARER_SCHEMA = enumeration(
    *BEARERS,
    "tracker",
    "APRS",
    None,
    description="Bearer of its last message; radio: relayed by another device; tracker: reported "
    "by itself; APRS: heard by a kit, with an unauthenticated call sign",
)
_REPORTED = number("Time of the report; Unix time")
_STATUS = record(
    {
        "at": _REPORTED,
        "over": text(
            "Bearer of the report: ip, satellite, sms or radio; followed by `, not authenticated` "
            "if the sender is not proved"
        ),
        "diskFree": integer("Free bytes on the disk of its journal"),
        "diskUsed": integer("Percent", minimum=0, maximum=100),
        "temperature": nullable(
            integer("Processor temperature in degrees Celsius; null if not reported")
        ),
        "voltage": nullable(number("Supply or battery voltage in volts; null if not reported")),
        "booted": number("Last start of the machine, to the minute; Unix time"),
        "agentStarted": number("Last start of the agent, to the minute; Unix time"),
        "starts": integer("Number of agent starts with this journal"),
        "links": mapping(
            record({"state": enumeration(*STATES[1:]), "signal": SIGNAL}),
            "State of `satellite`, `radio` and `cellular`, if configured",
        ),
        "queued": integer("Waiting Packages"),
        "creditsToday": integer(),
        "creditsLeft": nullable(integer("Left of its own daily budget; null if there is no limit")),
        "clockFrom": nullable(text("Source of its time; null if there is none")),
        "deadLetters": integer(),
        "partsDown": integer("Failed parts of the agent"),
        "trouble": boolean("True if its disk accepts no data, or a part does not respond"),
    }
)
_THROTTLING = list_of(enumeration(*THROTTLING.values()))
_ABOUT = record(
    {
        "at": _REPORTED,
        "system": nullable(text("Such as `Debian 13.1`")),
        "bootCause": enumeration(
            *CAUSES,
            description="Cause of the machine's last start: the hub's command; power on; a reset "
            "without that, or a watchdog; an orderly stop of the agent; or an interruption of "
            "unknown cause",
        ),
        "startsOfDay": integer("Number of agent starts in the last 24 hours"),
        "throttling": one_of(
            NULL,
            record({"now": _THROTTLING, "sinceBoot": _THROTTLING}),
            description="Cause of throttling; null if not reported",
        ),
        "clockAhead": nullable(
            integer(
                "Seconds by which the system clock is ahead of the kit's time; null if the time "
                "is unknown"
            )
        ),
        "signals": mapping(
            list_of(nullable(_SIGNAL), minItems=24, maxItems=24),
            "For `satellite` and `cellular`: median bars of each of the last 24 hours, oldest "
            "first; null while unknown",
        ),
    }
)
_UNLIKE = record(
    {
        "id": text("Id of the sentence"),
        "problem": boolean("True if it is a problem in any fleet"),
        "text": text("For people"),
        "values": {"type": "object", "description": "Values in the sentence"},
    }
)
_KIT = record(
    {
        "id": integer(),
        "name": text(),
        "user": NAMED_RECORD,
        "disabled": boolean(),
        "revoked": boolean(),
        "linked": boolean("True if linked by IP now"),
        "lastContact": nullable(UNIX_TIME),
        "over": BEARER_SCHEMA,
        "nextCheckIn": one_of(
            NULL,
            CHECK_IN,
            description="Time by which the next check-in is due; null without a check-in",
        ),
        "version": nullable(text("Version of its program")),
        "credits": one_of(
            NULL,
            record({"perDay": integer(), "spent": integer()}),
            description="Budget at the hub for today; null if there is no limit",
        ),
        "status": one_of(
            NULL,
            _STATUS,
            description="Last status report, over its link or as the answer to the command "
            "`status`; null if there is none",
        ),
        "about": one_of(
            NULL, _ABOUT, description="Additional report over its link only; null if there is none"
        ),
        "findings": list_of(
            _UNLIKE,
            "Problems and unusual values, problems first; empty for a disabled or revoked kit",
        ),
    }
)
FLEET = named_record(
    "Fleet",
    {
        "kits": list_of(_KIT, "Kits with the most problems first; at most 5000"),
        "more": integer("Number of further kits, which are not compared"),
    },
)
_COMMAND = {
    "number": integer("Time of the command in Unix seconds, or one more than the last", minimum=0),
    "command": text(),
    "bearer": enumeration(
        *COMMAND_BEARERS, None, description="The only bearer to use; null for any"
    ),
    "given": UNIX_SECONDS,
    "state": enumeration(
        *("waiting", "packed", "stored", "answered", "expired"),
        description="packed: in a message to the satellite operator; stored: on the kit's disk",
    ),
    "reason": nullable(text("Reason why it waits")),
    "outcome": enumeration("done", "refused", "failed", None),
    "answer": nullable(text()),
    "answered": nullable(UNIX_SECONDS),
    "answeredBy": nullable(text("Bearer of the answer")),
}
_ORDER = {
    "command": describe_line(
        COMMAND_MAX, "Text as for `fieldagent hub command`, without `set`", examples=["status"]
    )
}
RADIO_KEY_CHANGE = schema(
    "RadioKeyChange",
    extensible_record(
        {
            "step": enumeration(
                1,
                2,
                3,
                description="1: accept the new key beside the old key; 2: send with the new key; "
                "3: use only the new key",
            ),
            "began": UNIX_SECONDS,
            "stepSince": number("Time since which all kits are asked for this step"),
            "ended": nullable(number("Time since which all kits use only the new key")),
            "bearer": enumeration("ip", None, description="ip: no satellite cost"),
            "pending": integer("Kits that have not completed this step", minimum=0),
            "kits": list_of(
                extensible_record(
                    {
                        "id": integer(),
                        "name": text(),
                        "step": enumeration(
                            0, 1, 2, 3, description="Step that the kit has reported"
                        ),
                        "state": enumeration("done", "asked", "refused", "failed", "left out"),
                        "answered": nullable(UNIX_SECONDS),
                        "answer": nullable(text("Its last answer")),
                    }
                )
            ),
        }
    ),
)

_STATE_OF_CHANGE = {
    200: answer("The state after the call", extensible_record({"change": RADIO_KEY_CHANGE})),
    409: "Nothing was changed: no change is in progress, or the device is disabled",
}

CALLS = (
    call(
        "GET /api/fleet",
        "fleet: Return the state of all kits: program, system, last start, disk, power, clock, "
        "signal by hour, budget, and the next check-in. Unusual kits come first",
        answer("The kits", FLEET),
        READER,
    ),
    call(
        "GET /api/devices/{id}/commands",
        "deviceCommands: List commands to a kit and its answers",
        answer(
            "Newest first",
            extensible_record(
                {"commands": list_of(extensible_record(_COMMAND)), "next": NEXT_PAGE}
            ),
            headers=NEXT_LINK,
        ),
        ADMINISTRATOR,
        parameters=PAGE,
    ),
    call(
        "POST /api/devices/{id}/commands",
        "orderDevice: Send a command to a kit",
        {
            202: answer(
                "The command is on its way",
                extensible_record(
                    {
                        **_COMMAND,
                        "credits": integer("Cost of command and answer over satellite", minimum=0),
                    }
                ),
            ),
            409: (
                "Nothing was sent: the command has a cost that was not accepted, or cannot reach "
                "the kit"
            ),
        },
        ADMINISTRATOR,
        parameters=[IDEMPOTENCY_KEY],
        body=record(
            {
                **_ORDER,
                "by?": enumeration(*COMMAND_BEARERS, description="Use only this bearer"),
                "credits?": integer(
                    "Maximum credits for command and answer over satellite",
                    minimum=0,
                    maximum=CREDITS_MAX,
                    default=0,
                ),
            }
        ),
        description=(
            "Over satellite only if `credits` accepts the cost of command and answer; the refusal "
            "contains the number"
        ),
    ),
    call(
        "POST /api/devices/{id}/commands/cost",
        "orderCost: Return the cost of a command",
        answer(
            "With the bearer that the command would use now",
            extensible_record(
                {
                    "linked": boolean("True if the link carries it, without cost"),
                    "reached": boolean("True if the kit has a satellite modem here"),
                    "fits": boolean("True if its modem accepts it in one message"),
                    "down": integer("Bytes of the command over satellite", minimum=0),
                    "up": integer("Bytes of the answer, the maximum or an estimate", minimum=0),
                    "credits": integer(
                        "Credits of both over satellite; 0 if bytes are paid for", minimum=0
                    ),
                    "creditsLeft": nullable(
                        integer(
                            "Left today for messages to the kit; null if there is no limit",
                            minimum=0,
                        )
                    ),
                }
            ),
        ),
        ADMINISTRATOR,
        body=record(_ORDER),
        description="Nothing is sent",
    ),
    call(
        "GET /api/radio-key",
        "radioKey: Return which kits have the new radio-key, and which are behind",
        answer(
            "Without the key",
            extensible_record(
                {
                    "change": one_of(
                        RADIO_KEY_CHANGE,
                        NULL,
                        description="The last change, in progress or ended; null if there was none",
                    ),
                    "cost": extensible_record(
                        {
                            "kits": integer(minimum=0),
                            "linked": integer(minimum=0),
                            "bySatellite": integer(minimum=0),
                            "credits": integer(
                                "Maximum credits for all three steps and answers over satellite; "
                                "0 if bytes are paid for",
                                minimum=0,
                            ),
                        },
                        "Cost of a change for all kits, with their current links",
                    ),
                }
            ),
        ),
        ADMINISTRATOR,
    ),
    call(
        "POST /api/radio-key",
        "changeRadioKey: Change the radio-key of all kits",
        {
            202: answer("The change has begun", extensible_record({"change": RADIO_KEY_CHANGE})),
            404: NOT_THERE,
            409: "Nothing was changed: the change has a cost that was not accepted, or no "
            "kit is in use",
        },
        ADMINISTRATOR,
        parameters=[IDEMPOTENCY_KEY],
        body=record(
            {
                "leftOut?": list_of(
                    integer(minimum=1, maximum=INT32_RANGE[-1]),
                    "Numbers of devices to ignore",
                    maxItems=KITS_MAX,
                ),
                "by?": enumeration(
                    "ip", description="Do not use satellite: only links and neighbours' radio"
                ),
                "credits?": integer(
                    "Most credits over satellite", minimum=0, maximum=KEY_CREDITS_MAX, default=0
                ),
            }
        ),
        description=(
            "The hub creates the key. Over satellite only if `credits` accepts the cost; the "
            "refusal contains the number"
        ),
    ),
    call(
        "POST /api/devices/{id}/radio-key/leave-out",
        "leaveOutOfRadioKey: Continue without a kit; the kit gets the key once it is back",
        _STATE_OF_CHANGE,
        ADMINISTRATOR,
    ),
    call(
        "POST /api/devices/{id}/radio-key/ask",
        "askForRadioKey: Ask a kit again, over its link or through a neighbour",
        _STATE_OF_CHANGE,
        ADMINISTRATOR,
    ),
)
