"""Description of the console: its page, sign-in and passkeys, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    HTML,
    answer,
    answer_in_formats,
    boolean,
    call,
    enumeration,
    extensible_record,
    integer,
    list_of,
    nullable,
    number,
    record,
    segment,
    text,
)
from fieldagent.http.openapi_parts import UNIX_TIME
from fieldagent.hub.access.caller import ROLES
from fieldagent.hub.console import NAMES, PASSWORD_MOST, list_subjects
from fieldagent.hub.description.common import (
    DISPATCHER,
    FAULTS,
    LARGER_THAN_16_KIB,
    MAY_NOT_READ,
    NOT_NOW,
    NOTHING_ACCEPTED,
    PUSH_AGAIN,
    PUSHER,
    READER,
    SENDER,
    TOO_OFTEN,
)
from fieldagent.hub.part import list_console_parts
from fieldagent.page.files import PARTS, SHARED_FILES

_CREDENTIAL = {
    "type": "object",
    "description": "The browser's PublicKeyCredential, from its toJSON()",
}
_UNCHANGED = "The browser has this version"
_PAGE = {200: answer("A file of the page", text(), HTML), 304: _UNCHANGED}
_NEEDS = "Passkeys need `console-address` and the library webauthn; otherwise 404"
_NOT_SIGNED_IN = (
    "The call uses a key or comes from another site; passkeys need a sign-in at the console"
)
_NOT_IN_ONE = "Another site sent the request, or the user is in no workspace, or in several"
_PASSKEY = record(
    {
        "id": integer(),
        "name": text(),
        "created": UNIX_TIME,
        "used": nullable(number("Unix time of the last sign-in")),
    }
)
_SCRIPTS = [f"{name}.js" for name in list_console_parts()]

CALLS = (
    call("GET /", "toTheConsole: Redirect a browser to the console", {303: "Redirect to /console"}),
    call(
        "GET /console", "console: Return the console: a page to watch kits and answer an SOS", _PAGE
    ),
    call(
        "GET /console/sos/{id}",
        "consoleOfSos: The same page, showing an SOS",
        _PAGE,
        parameters=[segment("id", integer(minimum=0))],
    ),
    call(
        "GET /console/alarm/{id}",
        "consoleOfAlarm: The same page, showing an alarm",
        _PAGE,
        parameters=[segment("id", integer(minimum=0))],
    ),
    call(
        "GET /console/kit/{id}",
        "consoleOfKit: The same page, showing a kit by its number",
        _PAGE,
        parameters=[segment("id", integer(minimum=0))],
    ),
    call(
        "GET /console/administration",
        "consoleOfAdministration: The same page, showing administration",
        _PAGE,
    ),
    call(
        "GET /console/administration/{subject}",
        "consoleOfSubject: The same page, showing one of these subjects",
        _PAGE,
        parameters=[segment("subject", enumeration(*list_subjects()))],
    ),
    call("GET /console/account", "consoleOfAccount: The same page, showing your passkeys", _PAGE),
    call("GET /console/fleet", "consoleOfFleet: The same page, showing the fleet", _PAGE),
    call(
        "GET /console/file/{name}",
        "consoleFile: Return a file of the console",
        {
            200: answer_in_formats(
                "A file of the page",
                {
                    "text/css; charset=utf-8": text(),
                    "text/javascript; charset=utf-8": text(),
                    "application/json": {"type": "object"},
                    "image/png": {},
                    "application/manifest+json": {"type": "object"},
                    "image/svg+xml": text(),
                },
            ),
            304: _UNCHANGED,
            404: "The console has no such file",
        },
        parameters=[segment("name", text(enum=sorted({*SHARED_FILES, *NAMES, PARTS, *_SCRIPTS})))],
    ),
    call(
        "GET /console/session",
        "consoleUser: Return the signed-in user",
        {
            200: answer(
                "By cookie or key",
                record(
                    {
                        "id": text(),
                        "name": text(),
                        "role": enumeration(*ROLES),
                        "workspaceId": text(),
                        "mayPush": boolean(),
                        "mayAnswer": boolean(),
                        "mayAdminister": boolean(),
                        "operators": list_of(
                            text(), "Satellite operators that devices can use here"
                        ),
                    }
                ),
            ),
            403: MAY_NOT_READ,
        },
        PUSHER,
    ),
    call(
        "POST /console/session",
        "consoleSignIn: Sign in: the cookie of the answer is valid for GET /api and for answering "
        "an SOS",
        {
            204: "Signed in for 12 hours, or until the password changes",
            401: "Name or password is wrong",
            403: _NOT_IN_ONE,
            422: FAULTS,
            429: TOO_OFTEN,
            503: PUSH_AGAIN,
            507: NOTHING_ACCEPTED,
        },
        SENDER,
        body=record(
            {
                "username": text(),
                "password": text(),
                "workspace?": text(),
                "newPassword?": text(
                    "New password, at least 10 characters, which replaces the current one",
                    maxLength=PASSWORD_MOST,
                ),
            }
        ),
    ),
    call(
        "DELETE /console/session",
        "consoleSignOut: Sign out",
        {204: "The cookie is no longer valid", 503: NOT_NOW},
    ),
    call(
        "POST /console/passkeys/sign-in",
        "passkeyQuestion: Return the challenge for a passkey",
        {
            200: answer(
                "Options for navigator.credentials.get (Web Authentication)",
                extensible_record({"challenge": text()}),
            ),
            429: TOO_OFTEN,
            503: NOT_NOW,
        },
        description=_NEEDS,
    ),
    call(
        "POST /console/passkeys/session",
        "passkeySignIn: Sign in with a passkey",
        {
            204: "Signed in for 12 hours",
            401: "The passkey is unknown here, or its answer was too late",
            403: _NOT_IN_ONE,
            413: LARGER_THAN_16_KIB,
            429: TOO_OFTEN,
            503: PUSH_AGAIN,
            507: NOTHING_ACCEPTED,
        },
        SENDER,
        body=record({"credential": _CREDENTIAL, "workspace?": text()}),
        description=_NEEDS,
    ),
    call(
        "GET /console/passkeys",
        "passkeys: List your passkeys",
        {200: answer("Oldest first", record({"passkeys": list_of(_PASSKEY)})), 403: MAY_NOT_READ},
        PUSHER,
        description=_NEEDS,
    ),
    call(
        "POST /console/passkeys",
        "addPasskey: Add a passkey that the browser has created",
        {
            201: answer("The passkey can be used to sign in", record({"id": integer()})),
            403: _NOT_SIGNED_IN,
            409: "The passkey is already registered, or you have 20",
            413: LARGER_THAN_16_KIB,
            422: "The passkey has no name, or cannot be used",
        },
        DISPATCHER,
        body=record({"name": text("Name of its device"), "credential": _CREDENTIAL}),
        description=_NEEDS,
    ),
    call(
        "POST /console/passkeys/new",
        "newPasskeyQuestion: Return the options to create a passkey",
        {
            200: answer(
                "Options for navigator.credentials.create (Web Authentication)",
                extensible_record({"challenge": text()}),
            ),
            403: _NOT_SIGNED_IN,
            503: NOT_NOW,
        },
        READER,
        description=_NEEDS,
    ),
    call(
        "DELETE /console/passkeys/{number}",
        "removePasskey: Remove one of your passkeys",
        {
            204: "The passkey can no longer be used to sign in",
            403: _NOT_SIGNED_IN,
            404: "You have no such passkey",
            503: PUSH_AGAIN,
            507: NOTHING_ACCEPTED,
        },
        READER,
        parameters=[segment("number", integer(minimum=1))],
        description=_NEEDS,
    ),
)
