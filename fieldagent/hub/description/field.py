"""Description of the calls of kits and satellite operators, in OpenAPI."""

from __future__ import annotations

from fieldagent.http.openapi import (
    JSON,
    Access,
    Body,
    answer_header,
    call,
    extensible_record,
    problem,
    schema,
    text,
)
from fieldagent.http.openapi_parts import NO_LENGTH
from fieldagent.hub.description.common import SENDER

_LINK = Access(security=[{"bearer": []}])
ROCK_BLOCK = schema(
    "RockBlock", extensible_record({"imei": text(), "momsn": text(), "data": text(), "JWT": text()})
)

CALLS = (
    call(
        "GET /link",
        "link: Open an agent's IP link: a WebSocket, described in docs/reference/ip-link.md",
        {
            101: "The connection is now a WebSocket",
            401: problem(
                "The link token is missing or unknown",
                {"WWW-Authenticate": answer_header(text(), is_required=True)},
            ),
            426: "The call does not request a WebSocket",
        },
        _LINK,
    ),
    call(
        "POST /operator/rockblock",
        "mobileOriginated: RockBLOCK's webhook: an MO message. Exists if rockblock-username is set",
        {
            200: "The report is on disk",
            401: "The JWT does not prove that RockBLOCK sent it",
            411: NO_LENGTH,
        },
        SENDER,
        # openapi-python-client writes invalid code for a required body with two content types.
        body=Body(
            {"application/x-www-form-urlencoded": ROCK_BLOCK, JSON: ROCK_BLOCK}, required=False
        ),
    ),
)
