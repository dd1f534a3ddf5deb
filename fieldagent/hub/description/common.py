"""Fields, parameters and responses that several tables of the hub use."""

from __future__ import annotations

from typing import Any

from fieldagent.http.openapi import (
    RETRY_AFTER,
    Access,
    NamedPart,
    Schema,
    Security,
    answer,
    answer_header,
    any_of,
    boolean,
    enumeration,
    integer,
    list_of,
    named_problem,
    named_record,
    nullable,
    number,
    query,
    record,
    segment,
    text,
)
from fieldagent.http.openapi_parts import (
    LARGER_THAN_1_MIB,
    MALFORMED,
    NEXT_PAGE,
    NO_LENGTH,
    NOT_JSON,
    READ_RECEIPT,
    ROW,
    UNIX_TIME,
    problem_schema,
)
from fieldagent.hub.access.caller import ROLES
from fieldagent.hub.access.directory import TYPES
from fieldagent.hub.access.user_names import NAME_CHARACTERS_MAX
from fieldagent.hub.administration.acts import LISTED, LISTED_MAX
from fieldagent.hub.api.read_api import DELIVERY_STATES
from fieldagent.hub.contract import Bearer
from fieldagent.package.delivery import Stage

PROBLEM = problem_schema()
UNAUTHORIZED = named_problem(
    "Unauthorized",
    "The credentials are missing, wrong, expired or revoked",
    {"WWW-Authenticate": answer_header(text(), is_required=True)},
)
TOO_OFTEN = named_problem(
    "TooOften", "The key was used too often, or this address failed too often", RETRY_AFTER
)
MAY_NOT_READ = named_problem(
    "MayNotRead", "The key may not read, or the user is not in its workspace"
)
NO_ADMINISTRATOR = named_problem(
    "NoAdministrator",
    "The key may not administer, or the user is not an administrator of its workspace",
)
NO_DISPATCHER = named_problem(
    "NoDispatcher", "The key may not acknowledge, or the user is not a dispatcher"
)
WRONG_QUERY = named_problem("WrongQuery", "The query has an unknown or wrong parameter")
FAULTS = named_problem("Faults", "The body has faults")
LARGER_THAN_16_KIB = named_problem("LargerThan16KiB", "The body is larger than 16 KiB")
NO_SUCH_SOS = named_problem("NoSuchSos", "The workspace has no SOS with this number")
NOT_THERE = named_problem("NotThere", "The workspace has no entry with this number")
NOT_NOW = named_problem("NotNow", "The database is unavailable", RETRY_AFTER)
_BUSY_TEXT = "The database is unavailable, or too many large bodies are in progress:"
LOOK_AND_DO_IT_AGAIN = named_problem(
    "LookAndDoItAgain", f"{_BUSY_TEXT} check the state, and try again", RETRY_AFTER
)
PUSH_AGAIN = named_problem(
    "PushAgain", f"{_BUSY_TEXT} push again with the same Idempotency-Key", RETRY_AFTER
)
DISK_FULL = named_problem("DiskFull", "The disk is full: nothing was changed")
NOTHING_ACCEPTED = named_problem("NothingAccepted", "The disk is full: nothing was accepted")

_CREDENTIALS: Security = ({"key": [], "bearer": []}, {"key": [], "basic": []})
_CALLER = {401: UNAUTHORIZED, 429: TOO_OFTEN}
_READING = {400: WRONG_QUERY, 503: NOT_NOW}
_BODY = {411: NO_LENGTH, 413: LARGER_THAN_1_MIB, 415: NOT_JSON}
SENDER = Access(answers={400: MALFORMED}, body=_BODY)
"""Access of a third-party service, such as a satellite operator, which authenticates in its own
way."""
READER = Access(
    security=_CREDENTIALS,
    answers={**_CALLER, 403: MAY_NOT_READ},
    get=_READING,
    segment={404: NO_SUCH_SOS},
)
PUSHER = Access(
    security=_CREDENTIALS,
    answers=_CALLER,
    get={503: NOT_NOW},
    other={400: MALFORMED, 503: PUSH_AGAIN},
    body=_BODY,
)
DISPATCHER = Access(
    security=_CREDENTIALS,
    answers={**_CALLER, 403: NO_DISPATCHER},
    other={400: MALFORMED, 503: PUSH_AGAIN, 507: NOTHING_ACCEPTED},
    body={**_BODY, 422: FAULTS},
    segment={404: NO_SUCH_SOS},
)
ADMINISTRATOR = Access(
    security=_CREDENTIALS,
    answers={**_CALLER, 403: NO_ADMINISTRATOR},
    get=_READING,
    other={400: MALFORMED, 503: LOOK_AND_DO_IT_AGAIN, 507: DISK_FULL},
    body={**_BODY, 413: LARGER_THAN_16_KIB, 422: FAULTS},
    segment={404: NOT_THERE},
)

NUMBER = NamedPart(
    "parameters", "Number", segment("id", text(pattern="^[0-9]{1,18}$"), "Its number")
)
BEFORE_PARAMETER = NamedPart(
    "parameters", "Before", query("before", ROW, "Start of the page: `next` of the page before")
)


def limit(default: int, most: int) -> dict[str, Any]:
    """Return the parameter that limits the length of a list, with its default and its maximum."""
    return query(
        "limit",
        integer(minimum=1, maximum=most, default=default),
        "Maximum number of entries on a page; a page may have fewer and still have a `next`",
    )


LIMIT = NamedPart("parameters", "Limit", limit(LISTED, LISTED_MAX))
PAGE = (BEFORE_PARAMETER, LIMIT)
_TIME_SCHEMA = any_of(text(format="date-time"), text(pattern=r"^[0-9]{1,12}(\.[0-9]{1,6})?$"))
SINCE_PARAMETER = query(
    "since", _TIME_SCHEMA, "Accepted at this time or later; Unix seconds are allowed"
)
UNTIL_PARAMETER = query(
    "until", _TIME_SCHEMA, "Accepted at this time or earlier; Unix seconds are allowed"
)
OF_SENDER = query("sender", text(pattern="^[1-9][0-9]{0,8}$"), "Number of a user")
NEXT_LINK = {"Link": answer_header(text(), "The next page, if there is one")}


def describe_page(about: str, name: str, item: Schema) -> dict[str, Any]:
    """Return the schema of a response with one page of a list: the member `name` with the entries,
    and the place of the next page.
    """
    return answer(about, record({name: list_of(item), "next": NEXT_PAGE}), headers=NEXT_LINK)


def describe_line(
    limit: int = NAME_CHARACTERS_MAX, about: str = "", least: int = 1, **more: Any
) -> dict[str, Any]:
    """Return the schema of a one-line text of `least` to `limit` characters, without control
    characters.
    """
    more = {"maxLength": limit, "pattern": r"^[^\u0000-\u001f\u007f]*$", **more}
    return text(about, **({"minLength": least} if least else {}), **more)


LABEL = describe_line()
HIDDEN = text("Shown only once")
UNIX_SECONDS = number("Unix seconds")
USER_NUMBER = text("The number of a user of the workspace", pattern="^[1-9][0-9]{0,8}$")
USER_TYPE = text(enum=list(TYPES))
ROLE = text(enum=list(ROLES))
TAKEN = integer(minimum=0, maximum=1_000_000_000)
COUNT = integer(minimum=0, maximum=2**53)
STATE = enumeration(*DELIVERY_STATES)
BEARERS = [bearer.value for bearer in Bearer]
PLACE = record({"latitude": number(), "longitude": number(), "at": number()})
DEVICE_NAMED = record({"id": integer(), "name": text()})
CHECK_IN = record(
    {"rule": text(), "due": number(), "state": enumeration("in time", "late", "overdue")}
)
STEP = named_record(
    "Step",
    {
        "at": UNIX_TIME,
        "stage": text(
            "stored: on their kit's disk; programs: passed to a program; read: a person has read "
            "it; handed_over: accepted by a mail or SMS service, not yet by a person; nobody: the "
            "directory has no such name or address, or it is unreachable; radio: confirmed by "
            "their own radio",
            enum=[stage.name.lower() for stage in Stage],
        ),
        "who": text("Empty if it is not a user"),
        "detail": text("Person, service or reason, for a translation of the stage"),
        "text": text("Text of the stage for people, in English"),
    },
)
REACHED_STAGES = list_of(
    STEP, "Known stages of delivery for each person, from the first to the last"
)
ADDRESSEE = nullable(
    record(
        {
            "id?": text(),
            "name": text(),
            "type?": text("User, Group, Device, E-mail, Telephone, or another type of member"),
        },
        "Addressees, as far as known; null for an item to everyone",
    )
)
ITEM_FIELDS = {
    "id": text(),
    "sender": record({"id": text(), "name": text(), "type": text()}),
    "device": nullable(text()),
    "targetUserId": nullable(text()),
    "accepted": UNIX_TIME,
    "sos": boolean(),
    "alarm": boolean("True for the hub's own alarm, such as a fence or a check-in; not an SOS"),
    "unauthenticated": boolean("True for an SOS whose sender is not authenticated"),
    "revokedSince": nullable(
        number("For an SOS: time since which its kit, or the kit that relayed it, is revoked")
    ),
    "restored": boolean("True if a kit returned it to a restored database that had lost it"),
    "event": {"type": "object", "description": "The item as webhooks get it"},
    "to": ADDRESSEE,
    "receipt": READ_RECEIPT,
    "reached": REACHED_STAGES,
}
ITEM = named_record("Item", ITEM_FIELDS)
