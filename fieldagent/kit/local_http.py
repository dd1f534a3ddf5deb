"""HTTP requests to the agent on this machine."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from typing import Any

from fieldagent.http.exchange import exchange
from fieldagent.system.exit_codes import NO_PERSON, REFUSED, UNAVAILABLE
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.terminal import escape_line
from fieldagent.system.wording import describe_reason

TIMEOUT = 150.0
"""Timeout of a request in seconds. It is longer than a satellite session, because a request to
cancel a Package waits for the end of the session."""

UNKNOWN = (
    ". It is unknown whether it has done this: before you call again, check with"
    " `fieldagent status` and `fieldagent sent`"
)
_NO_AGENT = "the program at this port is not fieldagent: its answer is"


class CallFailed(Exception):
    """Error: the request failed. The message is for people, and `code` is the exit code of the
    command.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Answer(NamedTuple):
    status: int
    body: Any


def call(
    port: int,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    timeout: float = TIMEOUT,
) -> Answer:
    """Send a request to the agent. Raises CallFailed if there is no agent, if the agent refuses the
    request, or if no response arrives. If no response arrives, the agent may still have carried out
    the request.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=timeout)
    content = None if body is None and method == "GET" else json.dumps(body or {}).encode()
    headers = {"Content-Type": "application/json"} if content is not None else {}
    try:
        connection.connect()
    except OSError as error:
        raise CallFailed(
            f"no agent answers on 127.0.0.1:{port} ({describe_reason(error)}); start one with"
            " `fieldagent run` or `fieldagent demo`, or set its port with --port",
            UNAVAILABLE,
        ) from None
    try:
        reply = exchange(connection, method, path, content, headers)
    except (OSError, HTTPException) as error:
        # The agent may have carried out the request before the response was lost.
        unknown = "" if method == "GET" else UNKNOWN
        raise CallFailed(
            f"the agent on 127.0.0.1:{port} does not answer ({describe_reason(error)}): it hangs,"
            " or"
            f" has ended in the meantime{unknown}",
            UNAVAILABLE,
        ) from None
    answer = Answer(reply.status, _parse_answer(reply.body))
    if answer.status >= 400:
        raise CallFailed(_describe_answer(answer.status, answer.body), _get_exit_code(answer))
    if not 200 <= answer.status < 300 or not isinstance(answer.body, dict | list):
        raise CallFailed(f"{_NO_AGENT} of another kind (HTTP {answer.status})", UNAVAILABLE)
    return answer


def _get_exit_code(refusal: Answer) -> int:
    if isinstance(refusal.body, dict) and refusal.body.get("code") == "no-such-person":
        return NO_PERSON
    return UNAVAILABLE if refusal.status >= 500 else REFUSED


def _parse_answer(text: bytes) -> Any:
    try:
        return json.loads(text or b"null")
    except ValueError:
        raise CallFailed(f"{_NO_AGENT} not JSON", UNAVAILABLE) from None


def describe_failure(status: int, body: bytes) -> str:
    """Return the text, for people, of a problem document or of another server's response."""
    try:
        return _describe_answer(status, json.loads(body or b"null"))
    except ValueError:
        return f"HTTP {status}"


def _describe_answer(status: int, document: Any) -> str:
    problem = document if isinstance(document, dict) else {}
    lines = [str(problem.get("detail") or problem.get("title") or f"HTTP {status}")]
    faults = problem.get("errors")
    # The response may come from a proxy, in the proxy's own format.
    named_faults = (
        [each for each in faults if isinstance(each, dict)] if isinstance(faults, list) else []
    )
    lines += [
        escape_line(f"  {fault['pointer']}: {fault['detail']}")
        for fault in named_faults
        if {"pointer", "detail"} <= fault.keys()
    ]
    return "\n".join(lines)
