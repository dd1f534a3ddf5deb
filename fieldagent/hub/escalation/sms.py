"""What the adapters for SMS have in common: numbers, the text of a notice, and how a service's
answer and its reports are read."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fieldagent.http.client import NotReached, Reply, RequestFailed, request
from fieldagent.http.guard import required_body
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.escalation.contract import Notice
from fieldagent.hub.escalation.language import say
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult
from fieldagent.wire import sms_alphabet
from fieldagent.wire.sms_alphabet import Alphabet

PHONE = re.compile(r"\+[1-9][0-9]{5,14}", re.ASCII)
"""ITU-T E.164: a plus sign and 6 to 15 digits."""
FORM = "a telephone number such as +41791234567"
PARTS = {Alphabet.GSM7: 2, Alphabet.UCS2: 3}
"""Messages that one notice takes at most: of 160 characters, or of 70."""
BODY = 16_384
"""Bytes of what a service brings: a text has at most 1 600 characters."""
DEADLINE = 30.0
"""Seconds for a call."""
_SHOWN = 200
"""Characters of what a service says."""


def is_phone(address: str) -> bool:
    """Return whether it is a telephone number in the form +41791234567."""
    return PHONE.fullmatch(address) is not None


def number_of(sender: str) -> str:
    """Return a number as contacts have it: services write spaces in it, or 00 for the plus sign."""
    bare = re.sub(r"[\s()./-]", "", sender)
    return f"+{bare[2:]}" if bare.startswith("00") else bare


def text_of(notice: Notice, *, answers: bool) -> str:
    """Return what fits a few messages: who, what was said, where on the map, and how to answer.
    With `answers`, an SMS that comes back reaches the hub."""
    language = notice.language
    if notice.whole:
        return notice.text
    if not notice.link and not notice.code:
        return _cut(notice.text, lambda text: text)
    lines = [notice.place] if notice.place else [say(language, "No position is known.")]
    if answers and notice.code:
        lines.append(say(language, "If you have it, answer: OK {code}", code=notice.code))
    elif notice.link:
        lines.append(say(language, "If you have it: {link}", link=notice.link))
    elif notice.desk:
        lines.append(notice.desk)

    def whole(said: str) -> str:
        head = f"{notice.subject}{': ' if said else ''}{said}"
        return "\n".join([head, *lines])

    if answers and notice.code:
        full = f"{whole(notice.said)}. {say(language, 'Other words go to the kit.')}"
        if _fits(full):
            return full
    return _cut(notice.said, whole)


def _fits(text: str) -> bool:
    return sms_alphabet.parts(text) <= PARTS[sms_alphabet.alphabet_of(text)]


def _cut(text: str, whole: Callable[[str], str]) -> str:
    """Return `whole` of as much of `text` as fits."""
    if _fits(whole(text)):
        return whole(text)
    while text and not _fits(whole(text + "...")):
        text = text[:-1]
    return whole(text + "..." if text else "")


async def post(
    address: str, headers: Sequence[tuple[str, str]], body: bytes, *, service: str, says: str
) -> HandoverResult:
    """Post a message to a service, and return how that ended: any 2xx is taken, which says nothing
    of the handset. `says` names the member in which it tells why it refuses one."""
    try:
        reply = await request("POST", address, headers=tuple(headers), body=body, deadline=DEADLINE)
    except RequestFailed as failure:
        return failed(f"{service}: {failure.reason}", untaken=isinstance(failure, NotReached))
    if 200 <= reply.status < 300:
        return HandoverResult(HandoverOutcome.HANDED)
    said = " ".join(_member_of(reply, says).split())[:_SHOWN]
    # What answers 5xx may have passed it on before.
    untaken = 400 <= reply.status < 500
    return failed(f"{service} answered {reply.status}{': ' if said else ''}{said}", untaken=untaken)


def failed(reason: str, *, untaken: bool = True) -> HandoverResult:
    """Return a failure; `untaken` says that the service has surely not taken it."""
    return HandoverResult(HandoverOutcome.FAILED, reason, untaken=untaken)


def basic(user: str, password: str) -> tuple[str, str]:
    """Return the header of RFC 7617."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return "Authorization", f"Basic {pair}"


def _member_of(reply: Reply, name: str) -> str:
    """Return one text of an answer in JSON, or nothing where it has none."""
    try:
        document = load_document(reply.body)
    except NotJson:
        return ""
    value = document.get(name) if isinstance(document, dict) else None
    return value if isinstance(value, str) else ""


def json_object(request: Request) -> dict[str, Any]:
    """Read a body that is a JSON object. Raises Problem."""
    try:
        document = load_document(required_body(request))
    except NotJson as error:
        raise Problem(400, f"the body is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise Problem(400, "the body is no JSON object")
    return document


def needed(document: Mapping[str, Any], *names: str, most: int = 2_000) -> str:
    """Return the first of these members that is a text. Raises Problem where none is."""
    for name in names:
        value = document.get(name)
        if isinstance(value, str) and value:
            return value[:most]
    raise Problem(422, f"{' or '.join(names)} is missing, or is no text")


def unsigned(detail: str) -> Problem:
    """Return the answer 401 to a call whose signature is missing or wrong."""
    return Problem(401, detail, headers=(("WWW-Authenticate", "Signature"),))


def identity(*parts: str) -> str:
    """Return an identity of what a service may bring twice, made of what does not change then."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
