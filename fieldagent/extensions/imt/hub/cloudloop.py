"""Cloudloop, the service of Ground Control for SBD and IMT modems.

Cloudloop's webhook delivers MO messages to a secret path. Its Data API accepts MT messages, and
returns messages that the webhook has missed. Cloudloop does not sign its messages. The secret path
protects the webhook, and the kit's own key authenticates the sender. `Delivery Success` means only
that the modem has the message. The modem keeps no copy of it.
"""

from __future__ import annotations

import hmac
import json
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import trio

from fieldagent.extensions.imt.hub import lingo
from fieldagent.http.client import ConnectFailed, RequestFailed, request
from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.contract import Estimate
from fieldagent.hub.operator.contract import (
    NO_MODEM,
    FarModem,
    MoListener,
    OperatorHost,
    OperatorKind,
    Own,
    Verdict,
)
from fieldagent.hub.operator.failures import (
    NEEDS_PERSON_RETRY_S,
    Failure,
    Scope,
    make_no_answer,
    make_unreachable,
)
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system import waits
from fieldagent.system.properties import (
    Key,
    WrongProperty,
    make_integer_reader,
    read_absolute_path,
    read_text,
    read_url,
)
from fieldagent.system.text_files import read_text_file
from fieldagent.system.wording import describe_reason
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

PATH = "/operator/cloudloop/{secret}"
BODY = 262_144
"""Largest number of bytes of a request body: a message of 100 000 bytes in base64, and the text
around it."""
SECRET_LEAST = 22
"""Smallest number of characters of the secret: 128 bits in base64."""
DEADLINE_S = 30.0
"""Seconds within which a call must end."""
ANSWER_BYTES = 4 << 20
"""Largest number of bytes of a response: the history of one day."""
MARGIN_S = 3600.0
"""Seconds by which each read of the history overlaps the previous read, because of Cloudloop's
clock and of late messages."""
CATCH_UP_MAX_S = 31 * 86_400.0
"""Largest number of seconds of history that one read covers."""
SLICE_S = 86_400.0
"""Seconds of history that one call requests."""
CATCH_UP_S = 900.0
"""Seconds between two reads for messages that the webhook has missed."""
BALANCE_INTERVAL_S = 3600.0
"""Seconds between two reads of the balance."""
DELIVERY_DONE = "Delivery Success"

_A, _D, _G = Scope.ACCOUNT, Scope.DEVICE, Scope.GATEWAY
CLOUDLOOP = {
    401: Failure(
        "401",
        _A,
        "Cloudloop refuses the token: correct the file cloudloop-token",
        NEEDS_PERSON_RETRY_S,
    ),
    402: Failure(
        "402", _A, "the Cloudloop account has no credit left: buy some", NEEDS_PERSON_RETRY_S
    ),
    403: Failure(
        "403", _A, "the token may not send at Cloudloop: give it that right", NEEDS_PERSON_RETRY_S
    ),
    404: Failure(
        "404",
        _D,
        "Cloudloop does not know the device's thing on this account",
        NEEDS_PERSON_RETRY_S,
    ),
    429: Failure("429", _G, "Cloudloop is called too often", 60.0),
}
"""Failures by HTTP status, or by words in a response (`_Refused`)."""
NO_THING = Failure(
    "no thing",
    _D,
    "Cloudloop addresses a modem by its thing, which the hub learns from its first message:"
    " send one from the kit, or set it with `device add --thing`",
    NEEDS_PERSON_RETRY_S,
)
_CREDIT = re.compile(r"credit|balance|fund", re.IGNORECASE)


class Cloudloop:
    """An `Operator` that uses the Data API at `address`. Each call reads the token from a file."""

    def __init__(self, address: str, token: Path, topic: str) -> None:
        self._address = address.rstrip("/")
        self._token = token
        self._topic = topic
        self._turn = trio.CapacityLimiter(1)
        """Allows only one call at a time, because Cloudloop does not publish its rate limit."""

    async def call(self, name: str, *, group: str = "Data", **members: str) -> Any:
        """Return the JSON of the response to a call. `group` is the part of Cloudloop's API. Raises
        _Refused, or RequestFailed (ConnectFailed if nothing was sent).
        """
        try:
            token = read_text_file(self._token).strip()
        except (OSError, ValueError) as error:
            raise _Refused(401, describe_reason(error)) from None
        body = json.dumps({"token": token, **members}).encode()
        async with self._turn:
            reply = await request(
                "POST",
                f"{self._address}/{group}/{name}",
                headers=(("Content-Type", "application/json"),),
                body=body,
                deadline=DEADLINE_S,
                max_body=ANSWER_BYTES + 1,
            )
        error_text = reply.body[: lingo.ERROR_CHARACTERS_MAX * 4].decode("utf-8", "replace")
        if len(reply.body) > ANSWER_BYTES:
            raise _AnswerTooLong(f"{name} was answered with more than {ANSWER_BYTES >> 20} MiB")
        if reply.status >= 500:
            raise RequestFailed(f"{name} was answered with {reply.status}")
        if reply.status >= 400:
            raise _Refused(402 if _CREDIT.search(error_text) else reply.status, error_text)
        try:
            answer = json.loads(reply.body)
        except ValueError:
            raise RequestFailed(f"the answer to {name} is not JSON") from None
        if isinstance(answer, dict) and answer.get("error"):
            error_text = str(answer["error"])
            raise _Refused(402 if _CREDIT.search(error_text) else 400, error_text)
        return answer

    async def send(
        self,
        imei: str,
        body: bytes,
        *,
        number: int,
        priority: bool,
        modem: FarModem = NO_MODEM,
    ) -> Verdict:
        if not modem.address:
            return Verdict(Outcome.NOT_SENT, NO_THING)
        kind = modem.kind or lingo.SBD
        try:
            # Cloudloop may have accepted the previous call, although it did not respond.
            if modem.tries and (known_message := await self._find_taken(modem, body)):
                return Verdict(Outcome.SENT, id=known_message)
            name, members = lingo.make_mt_request(modem.address, kind, body, self._topic, priority)
            answer = await self.call(name, **members)
        except _Refused as refusal:
            return Verdict(Outcome.NOT_SENT, refusal.make_failure())
        except ConnectFailed as failure:
            return Verdict(Outcome.NOT_SENT, make_unreachable(f"Cloudloop: {failure.reason}"))
        except (RequestFailed, RemoteProtocolError) as failure:
            return Verdict(Outcome.DOUBTFUL, make_no_answer(f"Cloudloop: {failure}"))
        id_ = answer.get("id") if isinstance(answer, dict) else None
        return Verdict(Outcome.SENT, id=str(id_ or ""))

    async def _find_taken(self, modem: FarModem, body: bytes) -> str:
        """Return Cloudloop's id of a message that has these bytes and is not older than the first
        call with them. Return an empty text if there is none.
        """
        for record in await self.list_records(modem.since - 60.0, inf):
            is_same = record.size == len(body) and record.start == body[: len(record.start)]
            if record.outgoing and record.thing == modem.address and is_same and record.start:
                return record.id
        return ""

    async def list_records(self, since: float, until: float) -> list[lingo.Record]:
        """Return Cloudloop's history between two Unix times, oldest first. If the period is too
        large for one response, it is split into halves.
        """
        upto = {} if until == inf else {"to": lingo.format_moment(until)}
        try:
            answer = await self.call(
                "GetMessageRecords", **{"from": lingo.format_moment(max(0.0, since)), **upto}
            )
        except _AnswerTooLong:
            until = time.time() + MARGIN_S if until == inf else until
            middle = (since + until) // 2
            if not since < middle < until:
                raise
            return await self.list_records(since, middle) + await self.list_records(middle, until)
        return lingo.parse_records(answer)

    async def fetch_state(self, id_: str) -> str:
        """Return the delivery state of an MT message from Cloudloop."""
        answer = await self.call("GetMtDeliveryStatus", message=id_)
        return str(answer.get("status") or "") if isinstance(answer, dict) else ""

    async def fetch_balance(self, now: float) -> dict[str, float]:
        """Return the amount that is left of each shared plan for this month, in the unit of the
        plan.
        """
        year, month = lingo.format_moment(now).split("-")[:2]
        answer = await self.call("GetPoolSummary", group="Sbd", year=year, month=str(int(month)))
        return lingo.parse_balance(answer)

    async def ring(self, imei: str) -> Verdict:
        return Verdict(Outcome.REFUSED, make_unreachable("only Cloudloop itself can ring"))


class _AnswerTooLong(RequestFailed):
    """Error: the response is larger than the limit."""


class _Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status

    def make_failure(self) -> Failure:
        """Return the failure with its cause and scope."""
        known_error = CLOUDLOOP.get(self.status)
        error_text = str(self)[: lingo.ERROR_CHARACTERS_MAX]
        return known_error or Failure(
            str(self.status),
            Scope.MESSAGE,
            f"Cloudloop reports: {error_text}",
            NEEDS_PERSON_RETRY_S,
        )


class _Webhook:
    """HTTP route to which Cloudloop delivers MO messages. The secret at the end of the path
    authenticates Cloudloop.
    """

    def __init__(self, secrets: Sequence[str], topic: str, host: OperatorHost) -> None:
        self._secrets = [each.encode() for each in secrets]
        self._topic = topic
        self._host = host

    async def judge(self, head: Request) -> str:
        """Return `cloudloop` as the name of the caller if the path ends with a valid secret. Raises
        Problem 404 otherwise. Called with the head of the request, before the body is read.
        """
        secret = head.path.rpartition("/")[2].encode()
        matches = [hmac.compare_digest(secret, each) for each in self._secrets]
        if not any(matches):
            raise Problem(404, "not found")
        return "cloudloop"

    async def receive_message(self, request: Request, *, secret: str, caller: str) -> Response:
        """Respond with status 200 after the message is on disk. After any other response, Cloudloop
        sends the message again.
        """
        body = get_required_body(request)
        try:
            message = lingo.parse_lingo(load_document(body))
        except (NotJson, RemoteProtocolError) as fault:
            await self._host.take_in("", body, None, unusable=f"from Cloudloop: {fault}")
            return Response(200)
        await store_lingo(message, self._topic, self._host)
        return Response(200)


async def store_lingo(message: lingo.Lingo, topic: str, host: OperatorHost) -> None:
    """Store an MO message, unless it was delivered before."""
    assert host.book is not None
    if message.id and await host.book.has_message(message.id):
        return
    fault = message.fault
    if message.kind == lingo.IMT and message.topic not in ("", topic):
        fault = f"it arrived over the topic {message.topic}, but cloudloop-topic is {topic}"
    await host.book.store_modem(message.imei, message.kind, message.thing)
    if message.body:
        estimate = None if message.location is None else Estimate(*message.location)
        await host.take_in(message.imei, message.body, estimate, unusable=fault)
    await host.record_modem_session(message.imei, fetched=False)
    if message.id:
        await host.count_session(message.imei, message.id, len(message.body))
        await host.book.record_message(message.id)


class _Fetch:
    """Fetches MO messages that the webhook has missed. If there is no webhook, it fetches all MO
    messages.
    """

    def __init__(
        self, api: Cloudloop, host: OperatorHost, interval_s: float, balance_below: int
    ) -> None:
        assert host.book is not None
        self._api, self._host, self._book, self._interval_s = api, host, host.book, interval_s
        self._balance_below = balance_below

    async def run(self) -> None:
        """Fetch regularly until cancelled. Failures are logged, and the fetch is tried again."""
        async with trio.open_nursery() as nursery:
            if self._balance_below:
                nursery.start_soon(
                    self._fetch_again, self._fetch_balance, BALANCE_INTERVAL_S, "balance"
                )
            await self._fetch_again(self._fetch_new_records, self._interval_s, "history")

    async def _fetch_again(
        self, operation: Callable[[], Awaitable[None]], interval_s: float, what: str
    ) -> None:
        last_trouble = ""
        while True:
            try:
                await operation()
                last_trouble = ""
            except StoreUnavailable:
                pass  # The store logs the outage itself.
            except (StoreFailed, StoreFull):
                raise
            except (_Refused, RequestFailed, RemoteProtocolError) as trouble:
                if str(trouble) != last_trouble:
                    log.error("Cloudloop's %s cannot be queried: %s", what, trouble)
                last_trouble = str(trouble)
            await waits.sleep(interval_s)

    async def _fetch_new_records(self) -> None:
        await self._fetch_missed()
        await self._update_states()

    async def _fetch_balance(self) -> None:
        balance = await self._api.fetch_balance(self._host.clock())
        await self._book.record_balance(balance, below=self._balance_below)

    async def _fetch_missed(self) -> None:
        now = self._host.clock()
        fetched = await self._book.read_fetched()
        # If a clock was fast once, the next fetch must not wait until that time.
        since = (
            now - MARGIN_S
            if fetched is None
            else max(min(fetched, now) - MARGIN_S, now - CATCH_UP_MAX_S)
        )
        while since < now:
            until = min(now, since + SLICE_S)
            for record in await self._api.list_records(since, until):
                if not record.outgoing:
                    await self._process_record(record)
            await self._book.record_fetched_until(until)
            since = until

    async def _process_record(self, record: lingo.Record) -> None:
        """Process a record of the history. A record identifies the modem only by its address
        (`thing`). If the message is long, the record contains only the first bytes of the message.
        """
        if await self._book.has_message(record.id):
            return
        imei = await self._book.find_imei(record.thing)
        fault = ""
        if imei is None:
            fault = f"Cloudloop's history names the thing {record.thing}, which no device has"
        elif not record.whole:
            fault = (
                f"Cloudloop's history holds the first {len(record.start)} of its {record.size}"
                " bytes: if it did not arrive, have Cloudloop deliver it again"
            )
        if record.start:
            await self._host.take_in(imei or "", record.start, None, unusable=fault)
        if imei is not None:
            # This includes mailbox checks, which have no bytes but cost a credit.
            await self._host.count_session(imei, record.id, record.size)
        await self._book.record_message(record.id)

    async def _update_states(self) -> None:
        """Update the states of messages that were handed over. If Cloudloop refuses to report on a
        message, continue with the next messages.
        """
        refused: _Refused | None = None
        for each in await self._book.list_under_way():
            try:
                state = await self._api.fetch_state(each.id)
            except _Refused as refusal:
                if refusal.make_failure().scope in (Scope.ACCOUNT, Scope.GATEWAY):
                    raise
                refused = refusal
                continue
            if state and state != each.state:
                log.info("an MT message, by Cloudloop's report: %s", state)
                await self._book.record_state(each.id, state, is_final=state == DELIVERY_DONE)
        if refused is not None:
            raise refused


def _get_secrets(value: str) -> tuple[str, ...]:
    secrets = tuple(value.split())
    fits = all(re.fullmatch(rf"[A-Za-z0-9_-]{{{SECRET_LEAST},128}}", each) for each in secrets)
    if not 1 <= len(secrets) <= 2 or not fits:
        raise WrongProperty(
            f"must be at least {SECRET_LEAST} random letters and digits, such as `openssl rand"
            " -hex 16` prints; to rotate, set two with a space between them"
        )
    return secrets


def _make_api(settings: Own) -> Cloudloop | None:
    if settings["cloudloop-token"] is None:
        return None
    return Cloudloop(
        settings["cloudloop-address"], settings["cloudloop-token"], settings["cloudloop-topic"]
    )


def _make_routes(settings: Own, host: OperatorHost) -> list[Route]:
    if not settings["cloudloop-secret"]:
        return []
    door = _Webhook(settings["cloudloop-secret"], settings["cloudloop-topic"], host)
    return [Route("POST", PATH, door.receive_message, judge=door.judge, body=BODY)]


def _listen(settings: Own) -> MoListener | None:
    api = _make_api(settings)
    poll = settings["cloudloop-poll"]
    if api is None:
        return None
    poll_interval = float(poll) if poll else CATCH_UP_S

    async def serve(sockets: Sequence[socket.socket], host: OperatorHost) -> None:
        await _Fetch(api, host, poll_interval, settings["cloudloop-balance-below"]).run()

    return MoListener((), serve)


KIND = OperatorKind(
    "cloudloop",
    "Cloudloop",
    "Cloudloop of Ground Control, for SBD and IMT modems",
    keys=(
        Key(
            "cloudloop-secret",
            _get_secrets,
            (),
            "secret end of the URL to which Cloudloop posts Lingo JSON,"
            " https://…/operator/cloudloop/SECRET; to rotate, set two with a space between them",
        ),
        Key(
            "cloudloop-token",
            read_absolute_path,
            None,
            "file with the token of the Data API, for MT messages and missed MO messages",
        ),
        Key(
            "cloudloop-poll",
            make_integer_reader(0, 86_400, "seconds; 0 for the webhook alone"),
            0,
            "seconds between two polls for MO messages, if no webhook reaches the hub; 0: every"
            " 900 s, for messages that the webhook missed (0)",
        ),
        Key(
            "cloudloop-balance-below",
            make_integer_reader(0, 10**9, "in the plan's own unit; 0 asks for no balance"),
            0,
            "balance of a plan, in its own unit, below which an alarm is raised; checked each"
            " hour (0: never)",
        ),
        Key("cloudloop-topic", read_text, "RAW", "IMT topic of the kits' messages (RAW)"),
        Key("cloudloop-address", read_url, "https://api.cloudloop.com", "URL of the Data API"),
    ),
    caller=_make_api,
    failures=CLOUDLOOP,
    examples={"cloudloop-token": "/etc/fieldagent/cloudloop.token", "cloudloop-poll": "60"},
    routes=_make_routes,
    listen=_listen,
)
