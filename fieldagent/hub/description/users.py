"""Description of users, groups, keys, tokens and the audit log, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    answer,
    boolean,
    call,
    integer,
    list_of,
    named_record,
    nullable,
    number,
    record,
    text,
    with_description,
)
from fieldagent.http.openapi_parts import NAMED_RECORD, ROW
from fieldagent.hub.access.people import HANDLE_MAX
from fieldagent.hub.administration.keys import RATE_MAX, SCOPES
from fieldagent.hub.description.common import (
    ADMINISTRATOR,
    HIDDEN,
    LABEL,
    PAGE,
    READER,
    ROLE,
    TAKEN,
    UNIX_SECONDS,
    USER_NUMBER,
    USER_TYPE,
    describe_page,
)

_USERS = list_of(text(pattern="^0{0,3}[1-9][0-9]{0,8}$"), "Numbers of users")
_RATE = nullable(integer(minimum=1, maximum=RATE_MAX))
_RATES = {"perMinute?": _RATE, "burst?": _RATE}
_DAYS = nullable(integer(minimum=1, maximum=36_500))
_ALL_POSITIONS = boolean(
    "True if the user's kits get every position of other kits, false if only the newest of each "
    "sender"
)
_UNTIL = number("Time until which it can be used, for one sign-in")
_USER = {
    "id": text(),
    "name": text(),
    "type": USER_TYPE,
    "role": ROLE,
    "disabled": boolean(),
    "devices": integer("Those in use", minimum=0),
    "email": nullable(text("Only for administrators")),
    "overSatellite": boolean("True if items of other kits reach the user over satellite, too"),
    "allPositions": _ALL_POSITIONS,
}
USER = named_record("User", _USER)
CHANGED_USER = named_record(
    "ChangedUser",
    {**_USER, "deadLettersTaken": with_description("Dead letters from before", TAKEN)},
)
GROUP = named_record(
    "Group",
    {
        "id": text(),
        "name": text(),
        "overSatellite": boolean("True if items from kits reach its members over satellite, too"),
        "members": list_of(NAMED_RECORD),
    },
)
_KEY = {
    "id": ROW,
    "name": text(),
    "expires": nullable(number()),
    "revoked": nullable(number("Unix time; null while it is valid")),
}
_LIMITS = {"perMinute": ROW, "burst": ROW}
KEY = named_record("Key", {**_KEY, **_LIMITS, "scopes": list_of(text())})
TOKEN = named_record("Token", {**_KEY, "userId": text()})
AUDIT_LINE = named_record(
    "AuditLine",
    {
        "id": ROW,
        "at": UNIX_SECONDS,
        "by": record(
            {
                "kind": text(
                    "A user of the workspace, `fieldagent hub` on the hub's machine, the hub "
                    "itself, or a contact through a link",
                    enum=["user", "shell", "hub", "contact"],
                ),
                "id?": text(),
                "name?": text("Empty for a deleted user"),
            }
        ),
        "action": text(),
        "detail": text(),
    },
)

CALLS = (
    call(
        "GET /api/users",
        "users: List members of the workspace",
        describe_page("Newest first", "users", USER),
        READER,
        parameters=PAGE,
    ),
    call(
        "POST /api/users",
        "userAdd: Add a user",
        {
            201: answer(
                "With the password, if it was requested",
                record({"id": text(), "password?": HIDDEN, "until?": _UNTIL}),
            ),
            409: "Another user has that e-mail address, or the role is for a User",
        },
        ADMINISTRATOR,
        body=record(
            {
                "name": LABEL,
                "type?": nullable(USER_TYPE),
                "email?": nullable(LABEL),
                "role?": nullable(ROLE),
                "overSatellite?": nullable(boolean()),
                "signIn?": nullable(boolean("True to create a password for the first sign-in")),
            }
        ),
    ),
    call(
        "PATCH /api/users/{id}",
        "userChange: Change a user",
        {
            200: answer("The user after the change", CHANGED_USER),
            409: (
                "The user is the caller, or is in another workspace too, or the role is for a User"
            ),
        },
        ADMINISTRATOR,
        body=record(
            {
                "role?": nullable(ROLE),
                "overSatellite?": nullable(boolean()),
                "allPositions?": nullable(_ALL_POSITIONS),
                "disabled?": nullable(boolean()),
                "radios?": nullable(
                    list_of(
                        text(minLength=1, maxLength=HANDLE_MAX),
                        "Ids of the user's radios, which replace the old ones",
                    )
                ),
            }
        ),
    ),
    call(
        "DELETE /api/users/{id}",
        "userDelete: Delete a user for good, with devices and sent items",
        {
            204: "The user is deleted",
            409: (
                "The user is the caller, or is in another workspace too, or an SOS of the user is "
                "not closed"
            ),
        },
        ADMINISTRATOR,
    ),
    call(
        "POST /api/users/{id}/password",
        "userPassword: Create a password for the next sign-in",
        {
            200: answer(
                "The old password is no longer valid", record({"password": HIDDEN, "until": _UNTIL})
            ),
            409: "The user is the caller, or is in another workspace too",
        },
        ADMINISTRATOR,
    ),
    call(
        "GET /api/groups",
        "groups: List groups of the workspace",
        answer("All groups", record({"groups": list_of(GROUP)})),
        READER,
    ),
    call(
        "POST /api/groups",
        "groupAdd: Add a group",
        {201: answer("The group is added", GROUP), 409: "The name is already used"},
        ADMINISTRATOR,
        body=record(
            {"name": LABEL, "overSatellite?": nullable(boolean()), "members?": nullable(_USERS)}
        ),
    ),
    call(
        "PATCH /api/groups/{id}",
        "groupChange: Change a group",
        {200: answer("The group after the change", GROUP), 409: "A user is in another workspace"},
        ADMINISTRATOR,
        body=record(
            {
                "overSatellite?": nullable(boolean()),
                "join?": nullable(_USERS),
                "leave?": nullable(_USERS),
            }
        ),
    ),
    call(
        "DELETE /api/groups/{id}",
        "groupDelete: Remove a group; items sent to it stay",
        {204: "The group is removed", 409: "A fence uses the group"},
        ADMINISTRATOR,
    ),
    call(
        "GET /api/keys",
        "keys: List API keys of the workspace",
        answer("Oldest first", record({"keys": list_of(KEY)})),
        ADMINISTRATOR,
    ),
    call(
        "POST /api/keys",
        "keyAdd: Add an API key",
        {201: answer("Shown only once", record({"id": ROW, "apiKey": HIDDEN}))},
        ADMINISTRATOR,
        body=record(
            {
                "name": LABEL,
                "scopes?": nullable(list_of(text(enum=list(SCOPES)), minItems=1, maxItems=20)),
                **_RATES,
                "days?": _DAYS,
            }
        ),
    ),
    call(
        "PATCH /api/keys/{id}",
        "keyRate: Change the rate limit of a key",
        {
            200: answer("The rate limit after the change", record({"id": ROW, **_LIMITS})),
            409: "The key is revoked",
        },
        ADMINISTRATOR,
        body=record(_RATES),
    ),
    call(
        "DELETE /api/keys/{id}",
        "keyRevoke: Revoke a key",
        {204: "The key is no longer valid", 409: "The call uses this key"},
        ADMINISTRATOR,
    ),
    call(
        "GET /api/tokens",
        "tokens: List tokens of the workspace's users",
        answer("Oldest first", record({"tokens": list_of(TOKEN)})),
        ADMINISTRATOR,
    ),
    call(
        "POST /api/tokens",
        "tokenAdd: Add a token of an Integration, a Resource, a Device, or your own",
        {
            201: answer("Shown only once", record({"id": ROW, "token": HIDDEN})),
            409: "The user does not exist, or is another person, or is in another workspace too",
        },
        ADMINISTRATOR,
        body=record({"name": LABEL, "userId": USER_NUMBER, "days?": _DAYS}),
    ),
    call(
        "DELETE /api/tokens/{id}",
        "tokenRevoke: Revoke a token",
        {204: "The token is no longer valid", 409: "The call uses this token"},
        ADMINISTRATOR,
    ),
    call(
        "GET /api/audit",
        "audit: Return the audit log of the workspace",
        describe_page(
            "Newest first, without pushes, which are in `/api/pushes`", "audit", AUDIT_LINE
        ),
        ADMINISTRATOR,
        parameters=PAGE,
    ),
)
