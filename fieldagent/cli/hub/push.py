"""`fieldagent push`: sends an item to the field through a hub's push API. Does not use trio.

If a push gets no response, it is repeated with the same Idempotency-Key, so that the hub accepts it
only once.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
import time
import uuid
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from fieldagent.cli.item import make_item
from fieldagent.cli.kit.answer import make_calling, show
from fieldagent.http import tls
from fieldagent.http.exchange import RawAnswer, exchange
from fieldagent.http.headers import parse_delay
from fieldagent.kit.local_http import CallFailed, describe_failure
from fieldagent.system.exit_codes import OK, REFUSED, UNAVAILABLE, USAGE
from fieldagent.system.properties import WrongProperty, read_url
from fieldagent.system.terminal import escape_line, escape_lines
from fieldagent.system.wording import describe_reason, format_count

TIMEOUT_S = 30.0
"""Timeout of one attempt in seconds."""
RETRY_TIMES_S, PATIENCE_UNREACHED = 300.0, 30.0
"""Defaults of `--patience` in seconds. The first applies if the hub has responded before, the
second if no hub has responded at this address."""
RETRY_PAUSE_S = 5.0
"""Seconds before the next attempt, unless the hub's response contains a Retry-After."""


@make_calling
def push(arguments: argparse.Namespace) -> int:
    """Push an item of `arguments.kind`, and retry until the hub has it or `--patience` is over."""
    body = {
        "sourceUserId": arguments.source,
        "workspaceId": arguments.workspace,
        "targetUserId": arguments.target,
        "targetGroup": arguments.group,
        "receipt": arguments.receipt,
        **make_item(arguments),
        "priority": arguments.priority,
        "collapseKey": arguments.collapse_key,
        "timeToLive": arguments.time_to_live,
    }
    content = json.dumps({name: value for name, value in body.items() if value is not None})
    headers = _make_headers(arguments)
    _check_address(arguments.hub)
    attempts, location = _send_until_accepted(arguments, content.encode(), headers)
    result = {
        "accepted": True,
        "attempts": attempts,
        "idempotencyKey": headers["Idempotency-Key"],
        "location": location,
    }
    show(arguments, result, "accepted")
    return OK


def _check_address(hub: str) -> None:
    try:
        read_url(hub)
    except WrongProperty:
        must_be = "must be https://HOST or https://HOST:PORT"
        raise CallFailed(escape_line(f"--hub {must_be}, not {hub!r}"), USAGE) from None


def _make_headers(arguments: argparse.Namespace) -> dict[str, str]:
    try:
        key, token = os.environ["FIELDAGENT_API_KEY"], os.environ["FIELDAGENT_TOKEN"]
    except KeyError as missing:
        raise CallFailed(
            f"set {missing.args[0]} in the environment; create its value with `fieldagent hub"
            " key add` or `hub user token add`",
            USAGE,
        ) from None
    authorization = f"Bearer {token}"
    if arguments.username is not None:
        pair = base64.b64encode(f"{arguments.username}:{token}".encode()).decode()
        authorization = f"Basic {pair}"
    for name, value in (("FIELDAGENT_API_KEY", key), ("FIELDAGENT_TOKEN", authorization)):
        if not (value.isascii() and value.isprintable()):
            raise CallFailed(
                f"{name} has a character that is not allowed in a header, such as a line end:"
                " copy it again",
                USAGE,
            )
    return {
        "Content-Type": "application/json",
        "x-api-key": key,
        "Authorization": authorization,
        "Idempotency-Key": str(uuid.uuid4()),
    }


class _AttemptFailed(Exception):
    """Error: an attempt failed, but another attempt may succeed."""

    def __init__(self, reason: str, wait: float | None = None, *, unreached: bool = False) -> None:
        super().__init__(reason)
        self.wait = RETRY_PAUSE_S if wait is None else wait
        self.unreached = unreached


def _send_until_accepted(
    arguments: argparse.Namespace, body: bytes, headers: dict[str, str]
) -> tuple[int, str]:
    """Send a push. While the hub requests a retry or cannot be reached, retry until the patience is
    over. Return the number of attempts, and the path of the push's status. Each error is printed
    only once. After that, only the number of attempts is printed.
    """
    started_at = time.monotonic()
    attempts, announced, has_responded = 0, "", False
    try:
        while True:
            attempts += 1
            try:
                return attempts, _attempt(arguments, body, headers)
            except _AttemptFailed as trouble:
                reason, wait = str(trouble), trouble.wait
                has_responded = has_responded or not trouble.unreached
            patience = arguments.patience
            if patience is None:
                patience = RETRY_TIMES_S if has_responded else PATIENCE_UNREACHED
            if time.monotonic() + wait > started_at + patience:
                raise CallFailed(
                    f"{reason}; stopped after {format_count(attempts, 'attempt')}: push again"
                    " later, or wait longer with --patience",
                    UNAVAILABLE,
                )
            if reason != announced:
                announced = reason
                _print_progress(
                    f"fieldagent: {escape_lines(reason)}; trying again in {wait:.0f} s\n"
                )
            elif sys.stderr.isatty():
                _print_progress(f"{attempts} attempts failed; the next in {wait:.0f} s")
            time.sleep(wait)
    finally:
        _print_progress("")


def _print_progress(line: str) -> None:
    """Print a line. On a terminal, a counter stays on one line, which the next text replaces."""
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{clear}{line}", end="", file=sys.stderr, flush=True)


def _attempt(arguments: argparse.Namespace, body: bytes, headers: dict[str, str]) -> str:
    try:
        answer = _post(arguments, body, headers)
    except (OSError, HTTPException) as error:
        reason = tls.describe_fault(error, "--ca-file") or describe_reason(error)
        raise _AttemptFailed(
            f"no hub answers at {arguments.hub} ({reason}): check that it runs, and check --hub",
            unreached=True,
        ) from None
    if answer.status == 200:
        # The sign-in page for guests, or a page of another server, also has status 200.
        if location := answer.headers.get("Location"):
            return location
        raise _AttemptFailed(
            f"the server at {arguments.hub} is not a hub: check --hub, and check whether this"
            " network needs a sign-in"
        )
    failure = describe_failure(answer.status, answer.body)
    if answer.status != 429 and answer.status < 500:
        raise CallFailed(failure, REFUSED)
    raise _AttemptFailed(failure, parse_delay(answer.headers.get("Retry-After", "")))


def _post(arguments: argparse.Namespace, body: bytes, headers: dict[str, str]) -> RawAnswer:
    url = urlsplit(arguments.hub)
    assert url.hostname
    connection: HTTPConnection
    if url.scheme == "http":
        connection = HTTPConnection(url.hostname, url.port, timeout=TIMEOUT_S)
    else:
        try:
            trust = tls.trust(arguments.ca_file)
        except tls.UnusableTrust as unusable:
            raise CallFailed(f"--ca-file {unusable}", USAGE) from None
        connection = HTTPSConnection(url.hostname, url.port, timeout=TIMEOUT_S, context=trust)
    return exchange(connection, "POST", url.path.rstrip("/") + "/api/package", body, headers)
