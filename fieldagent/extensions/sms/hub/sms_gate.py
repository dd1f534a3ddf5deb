"""SMS through an Android telephone with the app SMS Gateway for Android (sms-gate.app), in the
local network or through the app's cloud.

The hub sends messages to `…/messages`. The telephone sends events to the hub, signed by HMAC-SHA256
of the body and the header `X-Timestamp` (docs.sms-gate.app, Webhooks). The telephone may repeat an
event, and the `messageId` of a received SMS is not unique. So the hub identifies an event by its
content.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from fieldagent.extensions.sms.hub import service
from fieldagent.extensions.sms.hub.short_text import make_short_text
from fieldagent.http.message import Request, Response
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

NAME = "sms-gate"
PATH = "/contact/sms-gate"
EVENT_AGE_MAX_S = 86_400.0
"""Largest age of an event in seconds. A telephone without a network delivers its events later."""
TIME_TO_LIVE_S = 1_800
"""Seconds within which the telephone must send a message. After this time, the hub has notified
other contacts."""
_MISSING = "set sms-gate-address, sms-gate-user and sms-gate-password in the hub's settings"


def _make_sender(host: ContactHost) -> Send:
    own = host.own

    async def send(address: str, notice: Notice) -> HandoverResult:
        if _find_missing(own):
            return service.make_failure(_find_missing(own))
        message = {
            "id": notice.message_id,
            "textMessage": {"text": make_short_text(notice, answers=_is_answered(host))},
            "phoneNumbers": [address],
            "withDeliveryReport": True,
            "ttl": TIME_TO_LIVE_S,
            # A priority of 100 or more bypasses the limits that are configured on the telephone.
            "priority": 100,
        }
        credentials = service.make_basic_header(own["sms-gate-user"], own["sms-gate-password"])
        return await service.post(
            f"{own['sms-gate-address'].rstrip('/')}/messages",
            (("Content-Type", "application/json"), credentials),
            json.dumps(message).encode(),
            service=NAME,
            reason_member="message",
        )

    return send


def _is_answered(host: ContactHost) -> bool:
    return host.own["sms-gate-key"] is not None


def _find_missing(settings: Own) -> str:
    return _MISSING if settings["sms-gate-address"] is None else ""


def _make_routes(inward: AnswerServices) -> list[Route]:
    key = inward.host.own["sms-gate-key"]
    if key is None:
        return []

    async def check_head(head: Request) -> None:
        """Check the time in the head, and the form of the signature, before the body is read.
        Raises Problem 401.
        """
        moment, signature = (head.headers.get(name, "") for name in ("x-timestamp", "x-signature"))
        if not moment.isascii() or not moment.isdigit() or len(signature) != 64:
            raise service.make_unsigned("X-Timestamp and X-Signature are missing or invalid")
        if abs(inward.host.clock() - int(moment[:12])) > EVENT_AGE_MAX_S:
            raise service.make_unsigned(f"X-Timestamp is more than {EVENT_AGE_MAX_S:.0f} s off")

    async def receive_event(request: Request, caller: None) -> Response:
        document = service.read_json_object(request)
        signed = request.body + request.headers["x-timestamp"].encode()
        expected = hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), request.headers["x-signature"].encode()):
            raise service.make_unsigned("X-Signature is not made with sms-gate-key")
        payload = document.get("payload")
        await _process_event(inward, document.get("event"), payload)
        return Response(204)

    return [Route("POST", PATH, receive_event, check_head, body=service.BODY)]


async def _process_event(inward: AnswerServices, event: object, payload: object) -> None:
    """Process an event. Accept events that the hub does not use, because the telephone would
    otherwise repeat them.
    """
    if not isinstance(payload, dict):
        return
    if event == "sms:received":
        # Newer versions use `sender` instead of `phoneNumber`.
        sender = service.read_needed_member(payload, "phoneNumber", "sender")
        text, at = (
            service.read_needed_member(payload, "message"),
            str(payload.get("receivedAt", "")),
        )
        identity = service.make_identity(sender, text, at)
        await inward.inbox.receive_message(
            ContactAnswer(NAME, identity, service.normalise_number(sender), text)
        )
    elif event == "sms:delivered":
        await inward.inbox.report(service.read_needed_member(payload, "messageId"), True)
    elif event == "sms:failed":
        reason = str(payload.get("reason") or "it gives no reason")[:200]
        await inward.inbox.report(service.read_needed_member(payload, "messageId"), False, reason)


KIND = ContactKind(
    NAME,
    "by SMS",
    "the telephone sms-gate",
    sender=_make_sender,
    shown=str,
    form=service.FORM,
    is_one=service.is_phone,
    keys=(
        Key(
            "sms-gate-address",
            read_url,
            None,
            "URL of an Android telephone with SMS Gateway (sms-gate.app), or of its cloud, that"
            " sends SMS to contacts: http://192.168.1.20:8080",
        ),
        Key("sms-gate-user", read_text, None, "user name at that gateway"),
        Key("sms-gate-password", read_text, None, "password at that gateway"),
        Key(
            "sms-gate-key",
            read_text,
            None,
            f"signing key of that gateway, which posts received SMS and delivery reports to {PATH}",
        ),
    ),
    examples={"sms-gate-address": "http://192.168.1.20:8080", "sms-gate-user": "sms"},
    together=(
        ("sms-gate-address", "sms-gate-user"),
        ("sms-gate-user", "sms-gate-password"),
    ),
    faults=lambda own: (
        ["sms-gate-key needs sms-gate-address: set that too, or remove sms-gate-key"]
        if own["sms-gate-key"] and not own["sms-gate-address"]
        else []
    ),
    missing=_find_missing,
    is_answered=_is_answered,
    routes=_make_routes,
)
