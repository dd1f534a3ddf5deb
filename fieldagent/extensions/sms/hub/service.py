"""Common parts of the SMS adapters: telephone numbers, and functions that parse the responses and
reports of a service.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent.http.client import ConnectFailed, Reply, RequestFailed, request
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

PHONE = re.compile(r"\+[1-9][0-9]{5,14}", re.ASCII)
"""Pattern of a telephone number (ITU-T E.164): a plus sign and 6 to 15 digits."""
FORM = "a telephone number such as +41791234567"
BODY = 16_384
"""Largest number of bytes of a service's request. A text has at most 1600 characters."""
DEADLINE_S = 30.0
"""Seconds within which a call to a service must end."""
_MESSAGE_CHARACTERS_MAX = 200
"""Largest number of characters that are shown of a service's message."""


def is_phone(address: str) -> bool:
    """Return True if the address is a telephone number in the form +41791234567."""
    return PHONE.fullmatch(address) is not None


def normalise_number(sender: str) -> str:
    """Return a number in the form that contacts' addresses have. Some services write spaces in
    numbers, or 00 instead of the plus sign.
    """
    digits = re.sub(r"[\s()./-]", "", sender)
    return f"+{digits[2:]}" if digits.startswith("00") else digits


async def post(
    address: str,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    service: str,
    reason_member: str,
) -> HandoverResult:
    """Send a message to a service and return the result. Any 2xx status is success, which does not
    mean that the handset has the message. `reason_member` is the JSON member that contains the
    reason of a refusal.
    """
    try:
        reply = await request(
            "POST", address, headers=tuple(headers), body=body, deadline=DEADLINE_S
        )
    except RequestFailed as failure:
        return make_failure(
            f"{service}: {failure.reason}", untaken=isinstance(failure, ConnectFailed)
        )
    if 200 <= reply.status < 300:
        return HandoverResult(HandoverOutcome.HANDED)
    reason = " ".join(_read_member(reply, reason_member).split())[:_MESSAGE_CHARACTERS_MAX]
    # A service that responds with a 5xx status may have sent the message before.
    untaken = 400 <= reply.status < 500
    return make_failure(
        f"{service} answered {reply.status}{': ' if reason else ''}{reason}", untaken=untaken
    )


def make_failure(reason: str, *, untaken: bool = True) -> HandoverResult:
    """Return the result of a failed call. `untaken` is True if the service certainly did not accept
    the message.
    """
    return HandoverResult(HandoverOutcome.FAILED, reason, is_untaken=untaken)


def make_basic_header(user: str, password: str) -> tuple[str, str]:
    """Return the Authorization header of RFC 7617."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return "Authorization", f"Basic {pair}"


def _read_member(reply: Reply, name: str) -> str:
    """Return a text member of a JSON response, or an empty string."""
    try:
        document = load_document(reply.body)
    except NotJson:
        return ""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def read_json_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a body. Raises Problem if the body is not a JSON object."""
    try:
        document = load_document(get_required_body(request))
    except NotJson as error:
        raise Problem(400, str(error)) from None
    if not isinstance(document, dict):
        raise Problem(400, "the body is not a JSON object")
    return document


def read_needed_member(document: Mapping[str, Any], *names: str, limit: int = 2_000) -> str:
    """Return the first of the members `names` that is a text. Raises Problem if there is none."""
    for name in names:
        value = document.get(name)
        if isinstance(value, str) and value:
            return value[:limit]
    raise Problem(422, f"{' or '.join(names)} is missing or not text")


def make_unsigned(detail: str) -> Problem:
    """Return the Problem 401 for a call with a missing or wrong signature."""
    return Problem(401, detail, headers=(("WWW-Authenticate", "Signature"),))


def make_identity(*parts: str) -> str:
    """Return an id for an event that a service may repeat. The id is computed from the parts of the
    event that do not change.
    """
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
