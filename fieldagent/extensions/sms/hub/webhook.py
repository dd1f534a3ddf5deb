"""SMS through a third-party program that has a webhook in each direction.

Outgoing: the hub posts `{"id", "to", "text"}`, signed according to Standard Webhooks. Incoming: the
program posts `{"id", "from", "text"}` for each SMS that it received. For an SMS that it sent, it
posts `{"id", "state", "reason"}` with the state "delivered" or "failed". The program sends a token
in a header.
"""

from __future__ import annotations

import hmac
import json

from fieldagent.extensions.sms.hub import service
from fieldagent.extensions.sms.hub.short_text import make_short_text
from fieldagent.http.message import Request, Response
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
from fieldagent.webhook import signature
from fieldagent.webhook.delivery import HandoverResult

NAME = "sms"
PATH = "/contact/sms"
_MISSING = "set sms-webhook in the hub's settings"


def _make_sender(host: ContactHost) -> Send:
    own = host.own

    async def send(address: str, notice: Notice) -> HandoverResult:
        if _find_missing(own):
            return service.make_failure(_find_missing(own))
        text = make_short_text(notice, answers=_is_answered(host))
        message = {"id": notice.message_id, "to": address, "text": text}
        body = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        secrets = own["sms-webhook-secret"]
        signed = signature.make_headers(notice.message_id, body, now=host.clock(), secrets=secrets)
        headers = (("Content-Type", "application/json"), *signed)
        return await service.post(
            own["sms-webhook"], headers, body, service="sms-webhook", reason_member="detail"
        )

    return send


def _is_answered(host: ContactHost) -> bool:
    return host.own["sms-webhook-token"] is not None


def _find_missing(settings: Own) -> str:
    return _MISSING if settings["sms-webhook"] is None else ""


def _make_routes(inward: AnswerServices) -> list[Route]:
    token = inward.host.own["sms-webhook-token"]
    if token is None:
        return []

    async def check_head(head: Request) -> None:
        header = head.headers.get("authorization", "")
        if not hmac.compare_digest(f"Bearer {token}".encode(), header.encode()):
            challenge = (("WWW-Authenticate", "Bearer"),)
            raise Problem(
                401, "Authorization is not sms-webhook-token as Bearer", headers=challenge
            )

    async def receive_message(request: Request, caller: None) -> Response:
        document = service.read_json_object(request)
        id_ = service.read_needed_member(document, "id", limit=200)
        if "state" not in document:
            sender, text = (
                service.read_needed_member(document, "from"),
                service.read_needed_member(document, "text"),
            )
            await inward.inbox.receive_message(
                ContactAnswer(NAME, id_, service.normalise_number(sender), text)
            )
        elif document["state"] in ("delivered", "failed"):
            reason = document.get("reason")
            explanation = reason[:200] if isinstance(reason, str) else "it gives no reason"
            reached = document["state"] == "delivered"
            await inward.inbox.report(id_, reached, "" if reached else explanation)
        else:
            raise Problem(422, "state must be delivered or failed")
        return Response(204)

    return [Route("POST", PATH, receive_message, check_head, body=service.BODY)]


KIND = ContactKind(
    NAME,
    "by SMS",
    "the program behind sms-webhook",
    sender=_make_sender,
    shown=str,
    form=service.FORM,
    is_one=service.is_phone,
    keys=(
        Key(
            "sms-webhook",
            read_url,
            None,
            "URL of your own program that sends SMS to contacts: http://127.0.0.1:8090/send",
        ),
        Key(
            "sms-webhook-secret",
            signature.read_secrets,
            (),
            "secret that signs the posts to that program (Standard Webhooks); to "
            "rotate, set two with a space between them (none)",
        ),
        Key(
            "sms-webhook-token",
            read_text,
            None,
            f"Bearer token with which that program posts received SMS to {PATH}",
        ),
    ),
    examples={"sms-webhook": "http://127.0.0.1:8090/send"},
    faults=lambda own: (
        ["sms-webhook-token needs sms-webhook: set that too, or remove sms-webhook-token"]
        if own["sms-webhook-token"] and not own["sms-webhook"]
        else []
    ),
    missing=_find_missing,
    is_answered=_is_answered,
    routes=_make_routes,
)
