"""SMS services with each adapter. The services are stand-ins, made from their documentation."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode

import pytest

from fieldagent.extensions.sms.hub import service as sms
from fieldagent.extensions.sms.hub.short_text import PARTS_BY_ALPHABET, make_short_text
from fieldagent.extensions.sms.hub.twilio import compute_signature
from fieldagent.hub.contact.contract import Notice
from fieldagent.wire import sms_alphabet
from tests.hub.push_service import Pushed, push_service
from tests.hub.raising import ADDRESS, BEHIND, settle_in
from tests.processes import Hub, hub

PHONE = "+41791234567"
KEY = "signing key"


class Call(NamedTuple):
    """A call of a service to the hub."""

    path: str
    headers: dict[str, str]
    body: bytes


class Adapter(NamedTuple):
    settings: Callable[[str], dict[str, str]]
    """Settings for the service at that address."""
    read: Callable[[Pushed], tuple[str, str, str]]
    """Identity, number and text of the hub's SMS."""
    came: Callable[[str, str], Call]
    """Makes the call for an SMS with this identity and text from PHONE."""
    reported: Callable[[str, bool], Call]
    """Makes the call with the result of the hub's message with this identity."""
    service: str


def make_gate_call(event: str, payload: Mapping[str, object]) -> Call:
    body = json.dumps({"event": event, "id": "e1", "deviceId": "d", "payload": payload}).encode()
    moment = str(int(time.time()))
    signed = hmac.new(KEY.encode(), body + moment.encode(), hashlib.sha256).hexdigest()
    headers = {"Content-Type": "application/json", "X-Timestamp": moment, "X-Signature": signed}
    return Call("/contact/sms-gate", headers, body)


def read_gate_message(pushed: Pushed) -> tuple[str, str, str]:
    assert pushed.path == "/messages"
    pair = base64.b64decode(pushed.headers["Authorization"].removeprefix("Basic "))
    assert pair == b"sms:s3cret"
    body = json.loads(pushed.body)
    assert body["withDeliveryReport"] is True
    (number,) = body["phoneNumbers"]
    return body["id"], number, body["textMessage"]["text"]


def twilio(path: str, form: Mapping[str, str]) -> Call:
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Twilio-Signature": compute_signature(KEY, ADDRESS + path, form),
    }
    return Call(path, headers, urlencode(form).encode())


def twilio_read(pushed: Pushed) -> tuple[str, str, str]:
    assert pushed.path == "/Accounts/AC1/Messages.json"
    form = {name: value for name, (value,) in parse_qs(pushed.body.decode()).items()}
    assert form["From"] == "+15005550006"
    callback = form["StatusCallback"]
    assert callback.startswith(f"{ADDRESS}/contact/twilio?message=")
    return callback.partition("=")[2], form["To"], form["Body"]


def generic(document: Mapping[str, object]) -> Call:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    return Call("/contact/sms", headers, json.dumps(document).encode())


def generic_read(pushed: Pushed) -> tuple[str, str, str]:
    standardwebhooks = pytest.importorskip("standardwebhooks", reason="needs extra `test`")
    headers = {name.lower(): value for name, value in pushed.headers.items()}
    body = standardwebhooks.Webhook(WHSEC).verify(pushed.body, headers)
    return body["id"], body["to"], body["text"]


WHSEC = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ADAPTERS = {
    "sms-gate": Adapter(
        lambda address: {
            "sms-gate-address": address,
            "sms-gate-user": "sms",
            "sms-gate-password": "s3cret",
            "sms-gate-key": KEY,
        },
        read_gate_message,
        lambda id_, text: make_gate_call(
            "sms:received", {"phoneNumber": PHONE, "message": text, "receivedAt": id_}
        ),
        lambda id_, reached: make_gate_call(
            "sms:delivered" if reached else "sms:failed", {"messageId": id_, "reason": "no credit"}
        ),
        "the telephone sms-gate",
    ),
    "twilio": Adapter(
        lambda address: {
            "twilio-address": address,
            "twilio-account": "AC1",
            "twilio-token": KEY,
            "twilio-from": "+15005550006",
        },
        twilio_read,
        lambda id_, text: twilio(
            "/contact/twilio", {"MessageSid": id_, "From": PHONE, "To": "+1", "Body": text}
        ),
        lambda id_, reached: twilio(
            f"/contact/twilio?message={id_}",
            {"MessageStatus": "delivered" if reached else "undelivered", "ErrorCode": "30003"},
        ),
        "Twilio",
    ),
    "sms": Adapter(
        lambda address: {
            "sms-webhook": f"{address}/send",
            "sms-webhook-secret": WHSEC,
            "sms-webhook-token": KEY,
        },
        generic_read,
        lambda id_, text: generic({"id": id_, "from": PHONE, "text": text}),
        lambda id_, reached: generic(
            {"id": id_, "state": "delivered" if reached else "failed", "reason": "no network"}
        ),
        "the program behind sms-webhook",
    ),
}


def post(running: Hub, call: Call) -> int:
    with closing(HTTPConnection("127.0.0.1", running.port, timeout=20)) as line:
        line.request("POST", call.path, call.body, call.headers)
        answer = line.getresponse()
        answer.read()
        return answer.status


def replace_headers(call: Call, **headers: str) -> Call:
    return call._replace(headers={**call.headers, **headers})


@pytest.mark.parametrize("name", ADAPTERS)
def test_unsigned_or_altered_webhook_call_is_refused(tmp_path: Path, name: str) -> None:
    adapter, database = ADAPTERS[name], str(tmp_path / "hub.sqlite3")
    settle_in(database)
    settings = {"database": database, **BEHIND, **adapter.settings("http://127.0.0.1:9")}
    with hub(tmp_path, settings) as running:
        true = adapter.came("1", "hello")
        assert post(running, true) in (200, 204), "strangers are told nothing, and taken"
        bare = Call(true.path, {"Content-Type": true.headers["Content-Type"]}, true.body)
        assert post(running, bare) == 401
        other = true._replace(body=true.body.replace(b"hello", b"hullo"))
        if name == "sms":
            other = replace_headers(true, Authorization="Bearer other")
        assert post(running, other) == 401
        large = true._replace(body=true.body.ljust(sms.BODY + 1))
        assert post(running, large) == 413
        if name == "sms-gate":
            assert post(running, replace_headers(true, **{"X-Timestamp": "1000"})) == 401


@pytest.mark.parametrize(
    ("status", "untaken"), [(201, False), (401, True), (429, True), (500, False), (504, False)]
)
async def test_refusal_by_the_service_counts_as_not_accepted(status: int, untaken: bool) -> None:
    with push_service(None) as service:
        service.answers.append(status)
        result = await sms.post(service.address, (), b"{}", service="it", reason_member="message")
        assert result.is_untaken is untaken
    if status == 201:
        result = await sms.post(service.address, (), b"{}", service="it", reason_member="message")
        assert result.is_untaken, "it is not there any more"


@pytest.mark.parametrize("sender", [PHONE, "0041791234567", "+41 (79) 123-45-67"])
def test_phone_number_is_recognised_in_any_notation(sender: str) -> None:
    assert sms.normalise_number(sender) == PHONE


@pytest.mark.parametrize("said", ["leg broken " * 40, "нога сломана " * 40, "", "€[]" * 100])
@pytest.mark.parametrize("place", ["", "https://osm.org/?mlat=-46.50000&mlon=-107.25000"])
def test_notice_fits_two_sms_and_explains_how_to_answer(said: str, place: str) -> None:
    notice = Notice(
        "id", "SOS 12 of kit", "whole", 12, "kit", said, "", "https://h/answer/1", "123456", place
    )
    for answers in (True, False):
        text = make_short_text(notice, answers=answers)
        assert (
            sms_alphabet.count_parts(text) <= PARTS_BY_ALPHABET[sms_alphabet.choose_alphabet(text)]
        )
        assert text.startswith("SOS 12 of kit")
        assert ("OK 123456" in text) == answers
        assert ("https://h/answer/1" in text) != answers
        assert place in text
        assert said[:12] in text
