"""RockBLOCK's web services: their webhook brings MO messages, a call takes MT messages."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode

from fieldagent.http.client import NotReached, RequestFailed, request
from fieldagent.http.guard import required_body
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import TakeIn, Verdict
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.jwt import PublicKey
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.rockblock import (
    check_token,
    mobile_terminated,
    read_answer,
    read_mobile_originated,
    read_position,
)

PATH = "/operator/rockblock"
BODY = 16_384
"""Bytes at most: 340 in hexadecimal, a token, some words. Only they tell who brings them."""
_SHOWN = 200
"""Characters of what is wrong with it."""
DEADLINE = 30.0
"""Seconds for a call."""
LATER = 3600.0
"""Seconds after which people may have mended an account."""

CODES: dict[int, tuple[Outcome, str, float]] = {
    10: (Outcome.NOT_SENT, "RockBLOCK refuses rockblock-username or rockblock-password", LATER),
    11: (Outcome.REFUSED, "RockBLOCK does not know the IMEI on this account", 0.0),
    12: (Outcome.NOT_SENT, "the RockBLOCK has no line rental", LATER),
    13: (Outcome.NOT_SENT, "the RockBLOCK account has no credits left", LATER),
    14: (Outcome.REFUSED, "RockBLOCK could not read the data", 0.0),
    15: (Outcome.REFUSED, "the message is too long for RockBLOCK", 0.0),
    16: (Outcome.REFUSED, "RockBLOCK saw no data", 0.0),
    99: (Outcome.NOT_SENT, "RockBLOCK has trouble of its own", 0.0),
}
"""Of a FAILED answer: how the call ended, why, and the seconds until another has a chance."""


def mo_route(take_in: TakeIn, key: PublicKey, *, clock: Callable[[], float]) -> Route:
    """Answers 200 once the message is on disk; whatever else they get, they bring it again."""

    async def take(asked: Request) -> Response:
        form = _form(asked)
        try:
            signed = check_token(form, key, now=clock())
        except RemoteProtocolError as error:
            raise Problem(401, f"JWT: {error}", headers=(("WWW-Authenticate", "JWT"),)) from None
        try:
            message = read_mobile_originated(form)
        except RemoteProtocolError as error:
            raise Problem(400, str(error)) from None
        if message.data:
            where = read_position(signed)
            estimate = None if where is None else Estimate(*where)
            await take_in(message.imei, message.data, estimate)
        return Response(200)

    return Route("POST", PATH, take, body=BODY, forms=True)


def _form(asked: Request) -> dict[str, str]:
    """As a form or as JSON: their account says which."""
    body = required_body(asked)
    try:
        if asked.headers.get("content-type", "").startswith("application/json"):
            document = load_document(body)
            if not isinstance(document, dict):
                raise NotJson("it holds something else")
            return {name: str(value) for name, value in document.items()}
        if not body.isascii():
            raise NotJson("not all of it is ASCII")
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
    except (NotJson, ValueError) as error:
        why = str(error)[:_SHOWN]
        raise Problem(400, f"the body is neither a form nor a JSON object: {why}") from None


class RockBlock:
    """`Operator` by their MT service at `address`."""

    def __init__(self, address: str, username: str, password: str) -> None:
        self._address = address
        self._username = username
        self._password = password

    async def send(self, imei: str, body: bytes, *, number: int, priority: bool) -> Verdict:
        form = mobile_terminated(imei, self._username, self._password, body)
        try:
            reply = await request(
                "POST",
                self._address,
                headers=(("Content-Type", "application/x-www-form-urlencoded"),),
                body=urlencode(form).encode(),
                deadline=DEADLINE,
            )
            answer = read_answer(reply.body)
        except NotReached as failure:
            return Verdict(Outcome.NOT_SENT, f"RockBLOCK: {failure.reason}")
        except (RequestFailed, RemoteProtocolError) as failure:
            # They know no identity of a call: it may have been taken.
            return Verdict(Outcome.DOUBTFUL, f"RockBLOCK: {failure}")
        if answer.code is None:
            return Verdict(Outcome.SENT)
        unknown = (Outcome.NOT_SENT, f"RockBLOCK answered {answer.code}, {answer.text}", 0.0)
        return Verdict(*CODES.get(answer.code, unknown))

    async def ring(self, imei: str) -> Verdict:
        return Verdict(Outcome.REFUSED, "RockBLOCK rings by itself alone")
