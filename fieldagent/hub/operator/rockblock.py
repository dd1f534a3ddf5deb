"""RockBLOCK's web services: a webhook that delivers MO messages, and a service that accepts MT
messages.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

from fieldagent.http.client import ConnectFailed, RequestFailed, request
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import FORM, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import (
    NO_MODEM,
    CountSession,
    FarModem,
    MessageReceiver,
    OperatorHost,
    OperatorKind,
    Own,
    Verdict,
    count_nothing,
)
from fieldagent.hub.operator.failures import (
    NEEDS_PERSON_RETRY_S,
    Failure,
    Scope,
    make_no_answer,
    make_unknown,
    make_unreachable,
)
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.system.properties import Key, read_absolute_path, read_text, read_url
from fieldagent.system.text_files import read_text_file
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.jwt import PublicKey, parse_public_key
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.rockblock import (
    PUBLIC_KEY,
    make_mobile_terminated_form,
    parse_answer,
    parse_mobile_originated,
    parse_position,
    verify_token,
)

_M, _D, _A, _G = Scope.MESSAGE, Scope.DEVICE, Scope.ACCOUNT, Scope.GATEWAY
ROCKBLOCK = {
    10: Failure(
        "10",
        _A,
        "RockBLOCK refuses rockblock-username or rockblock-password: correct them",
        NEEDS_PERSON_RETRY_S,
    ),
    11: Failure(
        "11",
        _D,
        "RockBLOCK does not know the IMEI on this account: add it there",
        NEEDS_PERSON_RETRY_S,
    ),
    12: Failure("12", _D, "the RockBLOCK has no line rental: renew it", NEEDS_PERSON_RETRY_S),
    13: Failure(
        "13", _A, "the RockBLOCK account has no credits left: buy some", NEEDS_PERSON_RETRY_S
    ),
    14: Failure("14", _M, "RockBLOCK could not read the data", NEEDS_PERSON_RETRY_S),
    15: Failure("15", _M, "the message is too long for RockBLOCK", NEEDS_PERSON_RETRY_S),
    16: Failure("16", _M, "RockBLOCK saw no data", NEEDS_PERSON_RETRY_S),
    99: Failure("99", _G, "RockBLOCK has an internal error"),
}
"""Failures by the code of a FAILED response (docs.groundcontrol.com, RockBLOCK web services)."""

PATH = "/operator/rockblock"
BODY = 16_384
"""Largest number of bytes of a request body: 340 bytes in hexadecimal, a token and some text. Only
the token authenticates the caller."""
_FAULT_CHARACTERS_MAX = 200
"""Largest number of characters of RockBLOCK's error text that the hub shows."""
DEADLINE_S = 30.0
"""Seconds within which a call must end."""


def make_mo_route(
    take_in: MessageReceiver,
    key: PublicKey,
    *,
    clock: Callable[[], float],
    count_session: CountSession = count_nothing,
) -> Route:
    """Return the route for MO messages. It responds with status 200 after the message is on disk.
    After any other response, RockBLOCK sends the message again.

    The hub stores data that RockBLOCK's token authenticates, even if the rest of the request is
    wrong.
    """

    async def receive_message(request: Request) -> Response:
        form = _read_form(request)
        try:
            signed = verify_token(form, key)
        except RemoteProtocolError as error:
            raise Problem(401, f"JWT: {error}", headers=(("WWW-Authenticate", "JWT"),)) from None
        message = parse_mobile_originated(signed, now=clock())
        if message.data:
            position = parse_position(signed)
            estimate = None if position is None else Estimate(*position)
            unusable = "; ".join(message.faults)
            await take_in(message.imei, message.data, estimate, unusable=unusable)
        session = f"{form.get('momsn', '')} {form.get('transmit_time', '')}"
        await count_session(message.imei, session, len(message.data))
        return Response(200)

    return Route("POST", PATH, receive_message, body=BODY, media_types=(FORM,))


def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form or of a JSON object. The settings of the RockBLOCK account
    determine the format.
    """
    body = get_required_body(request)
    try:
        if request.headers.get("content-type", "").startswith("application/json"):
            document = load_document(body)
            if not isinstance(document, dict):
                raise NotJson("it has other content")
            return {name: str(value) for name, value in document.items()}
        if not body.isascii():
            raise NotJson("not all of it is ASCII")
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
    except (NotJson, ValueError) as error:
        fault_text = str(error)[:_FAULT_CHARACTERS_MAX]
        raise Problem(400, f"the body is neither a form nor a JSON object: {fault_text}") from None


class RockBlock:
    """An `Operator` that uses RockBLOCK's MT service at `address`."""

    def __init__(self, address: str, username: str, password: str) -> None:
        self._address = address
        self._username = username
        self._password = password

    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        form = make_mobile_terminated_form(imei, self._username, self._password, body)
        try:
            reply = await request(
                "POST",
                self._address,
                headers=(("Content-Type", "application/x-www-form-urlencoded"),),
                body=urlencode(form).encode(),
                deadline=DEADLINE_S,
            )
            answer = parse_answer(reply.body)
        except ConnectFailed as failure:
            return Verdict(Outcome.NOT_SENT, make_unreachable(f"RockBLOCK: {failure.reason}"))
        except (RequestFailed, RemoteProtocolError) as failure:
            # RockBLOCK may have accepted the message. The hub cannot check this, because the
            # requests of RockBLOCK have no id.
            return Verdict(Outcome.DOUBTFUL, make_no_answer(f"RockBLOCK: {failure}"))
        if answer.code is None:
            return Verdict(Outcome.SENT)
        known_error = ROCKBLOCK.get(answer.code) or make_unknown(
            f"{answer.code}, {answer.text[:_FAULT_CHARACTERS_MAX]}"
        )
        return Verdict(Outcome.NOT_SENT, known_error)

    async def ring(self, imei: str) -> Verdict:
        return Verdict(Outcome.REFUSED, make_unreachable("only RockBLOCK itself can ring"))


def _make_caller(settings: Own) -> RockBlock | None:
    name, password = settings["rockblock-username"], settings["rockblock-password"]
    if name is None or password is None:
        return None
    return RockBlock(settings["rockblock-address"], name, password)


def _make_routes(settings: Own, host: OperatorHost) -> list[Route]:
    if settings["rockblock-username"] is None:
        return []
    counting = host.count_session
    return [
        make_mo_route(
            host.take_in, make_public_key(settings), clock=host.clock, count_session=counting
        )
    ]


def make_public_key(settings: Own) -> PublicKey:
    """Return the key that verifies RockBLOCK's tokens: the configured key, or else the published
    key.
    """
    path = settings["rockblock-public-key"]
    return PUBLIC_KEY if path is None else parse_public_key(read_text_file(path))


KIND = OperatorKind(
    "rockblock",
    "RockBLOCK",
    "RockBLOCK's web services, of Ground Control",
    keys=(
        Key(
            "rockblock-address",
            read_url,
            "https://rockblock.rock7.com/rockblock/MT",
            "URL of the RockBLOCK MT service",
        ),
        Key("rockblock-username", read_text, None, "user name at RockBLOCK"),
        Key("rockblock-password", read_text, None, "password at RockBLOCK"),
        Key(
            "rockblock-public-key",
            read_absolute_path,
            None,
            "PEM file with RockBLOCK's public key, to check the JWT of MO messages",
        ),
    ),
    caller=_make_caller,
    failures=ROCKBLOCK,
    examples={
        "rockblock-username": "me@example.org",
        "rockblock-public-key": "/etc/fieldagent/rockblock.pem",
    },
    together=(("rockblock-username", "rockblock-password"),),
    routes=_make_routes,
)
