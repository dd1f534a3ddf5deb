"""SMS through Twilio, or through a service with the same API (twilio.com/docs/messaging/api).

Incoming events are forms. The header `X-Twilio-Signature` contains the base64 of an HMAC-SHA1 with
the account's token. It covers the called URL and the members of the form in the order of their
names (twilio.com/docs/usage/security).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from fieldagent.extensions.sms.hub import service
from fieldagent.extensions.sms.hub.short_text import make_short_text
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import FORM, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.contact.contract import (
    AnswerServices,
    ContactAnswer,
    ContactHost,
    ContactKind,
    Notice,
    Own,
    Send,
)
from fieldagent.system.properties import Key, read_text, read_url
from fieldagent.webhook.delivery import HandoverResult

NAME = "twilio"
PATH = "/contact/twilio"
MESSAGE_MEMBER = "message"
"""Query parameter that contains the id of the hub's message, in the URL of a report."""
_MISSING = "set twilio-account, twilio-token and twilio-from in the hub's settings"
_EMPTY_ANSWER = b'<?xml version="1.0" encoding="UTF-8"?><Response></Response>'
"""Empty TwiML response, because the hub sends replies in separate calls."""


def compute_signature(token: str, address: str, form: Mapping[str, str]) -> str:
    """Return the expected `X-Twilio-Signature` of a form that is posted to `address`."""
    signed_text = address + "".join(name + form[name] for name in sorted(form))
    digest = hmac.new(token.encode(), signed_text.encode(), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def _make_sender(host: ContactHost) -> Send:
    own = host.own

    async def send(address: str, notice: Notice) -> HandoverResult:
        if _find_missing(own):
            return service.make_failure(_find_missing(own))
        form = {
            "To": address,
            "From": own["twilio-from"],
            "Body": make_short_text(notice, answers=_is_answered(host)),
        }
        if host.desk:
            form["StatusCallback"] = f"{host.desk}{PATH}?{MESSAGE_MEMBER}={notice.message_id}"
        account = own["twilio-account"]
        kind = ("Content-Type", "application/x-www-form-urlencoded")
        return await service.post(
            f"{own['twilio-address'].rstrip('/')}/Accounts/{account}/Messages.json",
            (kind, service.make_basic_header(account, own["twilio-token"])),
            urlencode(form).encode(),
            service="Twilio",
            reason_member="message",
        )

    return send


def _is_answered(host: ContactHost) -> bool:
    return bool(host.desk)


def _find_missing(settings: Own) -> str:
    return _MISSING if settings["twilio-account"] is None else ""


def _make_routes(inward: AnswerServices) -> list[Route]:
    token, desk = inward.host.own["twilio-token"], inward.host.desk
    if token is None or not desk:
        return []

    async def check_head(head: Request) -> None:
        """Reject unknown callers from the head of the request, before the body is read."""
        if len(head.headers.get("x-twilio-signature", "")) != 28:
            raise service.make_unsigned("X-Twilio-Signature is missing or invalid")

    async def receive_form(request: Request, caller: None) -> Response:
        form = _read_form(request)
        query = f"?{urlencode(request.query)}" if request.query else ""
        expected = compute_signature(token, f"{desk}{PATH}{query}", form)
        header = request.headers["x-twilio-signature"]
        if not hmac.compare_digest(expected.encode(), header.encode()):
            raise service.make_unsigned(
                "X-Twilio-Signature is not made with twilio-token for this address"
            )
        message_id = dict(request.query).get(MESSAGE_MEMBER)
        if message_id is not None:
            await _process_report(inward, message_id, form)
        else:
            sender, identity = (
                service.read_needed_member(form, "From"),
                service.read_needed_member(form, "MessageSid"),
            )
            answer = ContactAnswer(
                NAME, identity, service.normalise_number(sender), form.get("Body", "")[:2_000]
            )
            await inward.inbox.receive_message(answer)
        return Response(200, _EMPTY_ANSWER, "text/xml")

    return [Route("POST", PATH, receive_form, check_head, body=service.BODY, media_types=(FORM,))]


async def _process_report(inward: AnswerServices, message_id: str, form: Mapping[str, str]) -> None:
    state = form.get("MessageStatus", "")
    if state == "delivered":
        await inward.inbox.report(message_id, True)
    elif state in ("undelivered", "failed"):
        code = form.get("ErrorCode", "")[:10]
        await inward.inbox.report(message_id, False, f"{state}{', error ' + code if code else ''}")


def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of the form. Raises Problem if the body is not a form."""
    try:
        return dict(parse_qsl(get_required_body(request).decode(), keep_blank_values=True))
    except ValueError:
        raise Problem(400, "the body is not a UTF-8 form") from None


KIND = ContactKind(
    NAME,
    "by SMS",
    "Twilio",
    sender=_make_sender,
    shown=str,
    form=service.FORM,
    is_one=service.is_phone,
    keys=(
        Key(
            "twilio-address",
            read_url,
            "https://api.twilio.com/2010-04-01",
            "URL of Twilio's API, or of a compatible service (Twilio)",
        ),
        Key("twilio-account", read_text, None, "Twilio account that sends SMS to contacts: AC…"),
        Key(
            "twilio-token",
            read_text,
            None,
            "token of that account, which also signs Twilio's requests",
        ),
        Key("twilio-from", read_text, None, "sender number: +41791234567"),
    ),
    examples={"twilio-account": "AC0123456789", "twilio-from": "+41791234567"},
    together=(("twilio-account", "twilio-token"), ("twilio-account", "twilio-from")),
    missing=_find_missing,
    is_answered=_is_answered,
    routes=_make_routes,
)
