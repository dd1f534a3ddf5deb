"""Posts one delivery to a webhook, as Standard Webhooks 1.0.0 defines it."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from http import HTTPStatus

import trio

from fieldagent import __version__
from fieldagent.http.client import KeptConnections, Opener, Reply, RequestFailed, request
from fieldagent.http.headers import parse_delay
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.webhook.signature import make_headers

REMEDY = "correct webhook-address and restart the agent"

DEADLINE_S = 20.0
"""Longest time in seconds for one attempt. The specification recommends 15 to 30."""


async def post(
    url: str,
    delivery: Delivery,
    *,
    secrets: Sequence[str] = (),
    clock: Callable[[], float],
    deadline: float = DEADLINE_S,
    ssl_context: ssl.SSLContext | None = None,
    extra: tuple[tuple[str, str], ...] = (),
    open_stream: Opener = trio.open_tcp_stream,
    remedy: str = REMEDY,
    kept_connections: KeptConnections | None = None,
) -> HandoverResult:
    """Post `delivery` to `url`. `clock` returns Unix time, and `extra` contains further headers. An
    SOS has the header `fieldagent-sos: 1`, and also `fieldagent-unauthenticated: 1` if its sender
    is not authenticated. An alarm of the hub itself has the header `fieldagent-alarm` with the
    alarm's kind, such as `fence`.

    `remedy` is the advice for people if the URL itself is wrong. `kept_connections` contains
    connections of earlier posts.
    """
    body = delivery.body.encode("utf-8", "backslashreplace")
    try:
        reply = await request(
            "POST",
            url,
            headers=(
                ("Content-Type", "application/json"),
                ("User-Agent", f"fieldagent/{__version__}"),
                *((("fieldagent-sos", "1"),) if delivery.sos else ()),
                *((("fieldagent-alarm", delivery.alarm),) if delivery.alarm else ()),
                *((("fieldagent-unauthenticated", "1"),) if delivery.unauthenticated else ()),
                *extra,
                *make_headers(delivery.request_id, body, now=clock(), secrets=secrets),
            ),
            body=body,
            deadline=deadline,
            ssl_context=ssl_context,
            max_body=0,
            open_stream=open_stream,
            kept_connections=kept_connections,
        )
    except RequestFailed as failure:
        return HandoverResult(HandoverOutcome.FAILED, failure.reason)
    return judge_response(reply, clock(), remedy)


def judge_response(reply: Reply, now: float, remedy: str = REMEDY) -> HandoverResult:
    """Return the result that follows from a response. Only a status 2xx is a success. With 410, the
    receiver ends all deliveries.
    """
    if 200 <= reply.status < 300:
        return HandoverResult(HandoverOutcome.HANDED)
    answer = f"the receiver answered {_read_name(reply.status)}"
    if reply.status == HTTPStatus.GONE:
        return HandoverResult(HandoverOutcome.GONE, f"{answer}; {remedy}")
    if 300 <= reply.status < 400:
        target = reply.headers.get("location", "nowhere")[:200]
        answer += f", a redirect to {target}, which is not followed; {remedy}"
    return HandoverResult(HandoverOutcome.FAILED, answer, read_retry_after(reply.headers, now))


def read_retry_after(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3), or 0 if it is missing or invalid.

    A date is compared with the receiver's own `Date`, because this machine's clock may be wrong by
    years.
    """
    value = headers.get("retry-after", "").strip()
    if (seconds := parse_delay(value)) is not None:
        return seconds
    until = _read_moment(value)
    if until is None:
        return 0.0
    return max(until - (_read_moment(headers.get("date", "")) or now), 0.0)


def _read_moment(date: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(date)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _read_name(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
