"""The webhook with a third-party server, and its signature checked by a third-party library."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from fieldagent.http.client import Reply
from fieldagent.webhook.delivery import Delivery, HandoverOutcome, HandoverResult
from fieldagent.webhook.post import judge_response, post, read_retry_after

BODY = (
    '{"requestId":"6d9d","payloads":[{"events":[{"type":"Message","content":"gr\\u00fc\\u00df"}]}]}'
)
DELIVERY = Delivery("6d9d", "ada", BODY, 0.0)
SECRETS = ["whsec_" + base64.b64encode(bytes([n]) * 24).decode() for n in range(3)]
NOON = 1_790_000_000.0
NOON_DATE = "Mon, 21 Sep 2026 14:13:20 GMT"


@dataclass
class Receiver:
    url: str
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            sent = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.append((self.command, self.path, sent, body))
            self.send_response_only(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}/inbound?kit=7")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def send(url: str, **how: Any) -> HandoverResult:
    result: HandoverResult = await post(url, DELIVERY, **{"clock": time.time, **how})
    return result


async def test_payload_is_posted_unchanged_with_its_headers() -> None:
    with receiving() as receiver:
        assert await send(receiver.url) == HandoverResult(HandoverOutcome.HANDED)
        ((method, path, headers, body),) = receiver.requests
    assert (method, path) == ("POST", "/inbound?kit=7")
    assert body == BODY.encode()
    assert json.loads(body)["requestId"] == headers["webhook-id"] == "6d9d"
    assert headers["content-type"] == "application/json"
    assert headers["user-agent"].startswith("fieldagent/")
    assert "webhook-signature" not in headers


async def test_third_party_library_verifies_the_signature_of_each_secret() -> None:
    with receiving() as receiver:
        await send(receiver.url, secrets=SECRETS[:2])
        _, _, headers, body = receiver.requests[0]
    assert len(headers["webhook-signature"].split()) == 2
    for secret in SECRETS[:2]:
        assert Webhook(secret).verify(body, headers) == json.loads(BODY)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRETS[2]).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRETS[0]).verify(body + b" ", headers)


async def test_retry_has_the_same_id_and_a_new_time_and_signature() -> None:
    with receiving() as receiver:
        await send(receiver.url, secrets=SECRETS[:1], clock=lambda: NOON)
        await send(receiver.url, secrets=SECRETS[:1], clock=lambda: NOON + 5)
        first, second = (headers for _, _, headers, _ in receiver.requests)
    assert first["webhook-id"] == second["webhook-id"]
    assert (first["webhook-timestamp"], second["webhook-timestamp"]) == ("1790000000", "1790000005")
    assert first["webhook-signature"] != second["webhook-signature"]


STATUSES = [
    (200, HandoverOutcome.HANDED, ""),
    (202, HandoverOutcome.HANDED, ""),
    (204, HandoverOutcome.HANDED, ""),
    (299, HandoverOutcome.HANDED, ""),
    (
        301,
        HandoverOutcome.FAILED,
        "a redirect to /elsewhere, which is not followed; correct webhook-addr",
    ),
    (304, HandoverOutcome.FAILED, "304 Not Modified"),
    (308, HandoverOutcome.FAILED, "308 Permanent Redirect, a redirect to /elsewhere"),
    (400, HandoverOutcome.FAILED, "the receiver answered 400 Bad Request"),
    (401, HandoverOutcome.FAILED, "401 Unauthorized"),
    (404, HandoverOutcome.FAILED, "404 Not Found"),
    (410, HandoverOutcome.GONE, "410 Gone; correct webhook-address and restart the agent"),
    (429, HandoverOutcome.FAILED, "429 Too Many Requests"),
    (500, HandoverOutcome.FAILED, "500 Internal Server Error"),
    (503, HandoverOutcome.FAILED, "503 Service Unavailable"),
    (599, HandoverOutcome.FAILED, "599"),
]


@pytest.mark.parametrize(("status", "outcome", "reason"), STATUSES)
async def test_only_2xx_is_success(status: int, outcome: HandoverOutcome, reason: str) -> None:
    with receiving() as receiver:
        receiver.status = status
        receiver.headers = {"Location": "/elsewhere", "Retry-After": "7"}
        result = await send(receiver.url)
        assert len(receiver.requests) == 1
    assert result.outcome is outcome
    assert reason in result.reason
    assert result.retry_after == (7.0 if outcome is HandoverOutcome.FAILED else 0.0)


RETRY_AFTER: list[tuple[dict[str, str], float]] = [
    ({}, 0),
    ({"retry-after": "0"}, 0),
    ({"retry-after": "120"}, 120),
    ({"retry-after": " 120 "}, 120),
    ({"retry-after": "9" * 4000}, 999_999_999),
    ({"retry-after": "-5"}, 0),
    ({"retry-after": "1.5"}, 0),
    ({"retry-after": "٣"}, 0),
    ({"retry-after": "soon"}, 0),
    ({"retry-after": "Mon, 21 Sep 2026 14:14:20 GMT"}, 60),
    ({"retry-after": "Mon, 21 Sep 2026 14:12:20 GMT"}, 0),
    ({"retry-after": "Monday, 21-Sep-26 14:14:20 GMT"}, 60),
    ({"retry-after": "Mon Sep 21 14:14:20 2026"}, 60),
    ({"retry-after": "Mon, 99 Sep 2026 14:14:20 GMT"}, 0),
    # The receiver's clock differs from ours: its own Date counts.
    ({"retry-after": "Fri, 01 Jan 2010 00:01:00 GMT", "date": "Fri, 01 Jan 2010 00:00:00 GMT"}, 60),
    ({"retry-after": "Mon, 21 Sep 2026 14:14:20 GMT", "date": "yesterday"}, 60),
    ({"retry-after": NOON_DATE, "date": NOON_DATE}, 0),
]


@pytest.mark.parametrize(("headers", "seconds"), RETRY_AFTER)
def test_retry_after_is_read_as_seconds_or_a_date(headers: dict[str, str], seconds: float) -> None:
    assert read_retry_after(headers, NOON) == seconds


@given(st.integers(200, 599), st.dictionaries(st.sampled_from(["retry-after", "date"]), st.text()))
def test_any_reply_is_judged_without_an_error(status: int, headers: dict[str, str]) -> None:
    result = judge_response(Reply(status, headers, b""), NOON)
    assert result.retry_after >= 0


@contextmanager
def closed_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


async def test_absent_receiver_is_retried() -> None:
    with closed_port() as url:
        assert await send(url) == HandoverResult(HandoverOutcome.FAILED, "connection refused")


@pytest.mark.parametrize(
    "answer",
    [None, b"", b"HTTP/1.1 2", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nA\r\n\r\n"],
)
async def test_missing_or_malformed_answer_is_a_failure(answer: bytes | None) -> None:
    """None: the receiver is connected, and silent until the deadline."""

    async def peer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if answer is None:
            await trio.sleep_forever()
        await stream.send_all(answer or b"")
        await stream.aclose()

    await with_peer(
        peer, lambda result: result.outcome is HandoverOutcome.FAILED and result.reason != ""
    )


async def test_disconnect_before_the_answer_is_reported() -> None:
    async def peer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.aclose()

    reason = "the connection was broken off before the answer"
    await with_peer(peer, lambda result: result.reason == reason)


@pytest.mark.parametrize("length", ["Content-Length: 10", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("closes", [False, True])
async def test_2xx_without_a_complete_body_is_success(length: str, closes: bool) -> None:
    """Otherwise the receiver would get the payload repeatedly, although it has confirmed it."""

    async def peer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n".encode())
        if closes:
            await stream.aclose()
        else:
            await trio.sleep_forever()

    await with_peer(peer, lambda result: result.outcome is HandoverOutcome.HANDED)


async def with_peer(
    peer: Callable[[trio.SocketStream], Any], right: Callable[[HandoverResult], bool]
) -> None:
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, peer, [listener])
        port = listener.socket.getsockname()[1]
        result = await send(f"http://127.0.0.1:{port}/", deadline=0.5)
        assert right(result), result
        nursery.cancel_scope.cancel()


async def test_endless_answer_is_not_read_to_its_end() -> None:
    async def peer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                await stream.send_all(b"400\r\n" + b"x" * 1024 + b"\r\n")
        except trio.BrokenResourceError:
            pass

    await with_peer(peer, lambda result: result.outcome is HandoverOutcome.HANDED)
