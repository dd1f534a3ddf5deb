"""OpenAPI description of the calls of SMS services."""

from __future__ import annotations

from fieldagent.http.openapi import Body, call, enumeration, extensible_record, text
from fieldagent.hub.description.common import SENDER

CALLS = (
    call(
        "POST /contact/sms-gate",
        "smsGate: Webhook of SMS Gateway for Android: a received SMS or a delivery report. Exists "
        "if sms-gate-key is set",
        {
            204: "The report is on disk",
            401: "X-Signature does not prove that the telephone sent it",
        },
        SENDER,
        body={"type": "object"},
    ),
    call(
        "POST /contact/twilio",
        "twilio: Twilio's webhook: a received SMS or a delivery report. Exists if twilio-account "
        "and console-address are set",
        {
            200: "The report is on disk",
            401: "X-Twilio-Signature does not prove that Twilio sent it",
        },
        SENDER,
        body=Body({"application/x-www-form-urlencoded": {"type": "object"}}),
    ),
    call(
        "POST /contact/sms",
        "smsWebhook: A received SMS or a delivery report from your own program. Exists if "
        "sms-webhook-token is set",
        {204: "The report is on disk", 401: "The token is not sms-webhook-token"},
        SENDER,
        body=extensible_record(
            {
                "id": text(),
                "from?": text(),
                "text?": text(),
                "state?": enumeration("delivered", "failed"),
                "reason?": text(),
            }
        ),
    ),
)
