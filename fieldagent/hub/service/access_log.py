"""Access log, and the metrics of HTTP calls.

The log contains a line for each call that changes something, opens a link or is refused. It also
contains a line for each end of a link and each request to a webhook. A line contains no header, no
query and no part of a body. The number of lines about refused calls per minute is limited. If the
limit is reached, a final line contains the number of further refused calls.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import trio

from fieldagent.http.address import Network
from fieldagent.http.message import Admission, Handler, Judge, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.hub.access.caller import Caller, find_address
from fieldagent.hub.service.figures import Figures

log = logging.getLogger(__name__)

Write = Callable[[dict[str, Any]], None]

REFUSALS_PER_MINUTE_MAX = 60
PATH_MAX = 80
"""Largest number of characters of a path in the log."""

REFUSAL_NAMES = {
    400: "malformed",
    401: "credentials",
    403: "not allowed",
    404: "not found",
    409: "conflict",
    413: "too large",
    422: "content",
    426: "no upgrade",
    429: "too often",
    500: "internal error",
    503: "not now",
    507: "disk full",
}
"""Names of refusals in the metrics, by HTTP status. The name of any other status is `other`."""

_CALLS = {
    "/api/package": "push",
    "/link": "link",
    "/healthz": "probe",
    "/livez": "probe",
    "/metrics": "probe",
}


_LINKS = "/answer/"
_TRACKERS = "/source/"
_ADMINISTRATION = (
    "audit",
    "contacts",
    "dead-letters",
    "keys",
    "tokens",
    "webhook-failures",
    "webhooks",
)


def find_call_name(path: str, method: str) -> str:
    """Return the name under which the metrics count a call, from its path and method."""
    if path.startswith(("/console", _LINKS)):
        return "console"
    if path.startswith("/operator/"):
        return "operator"
    if path.startswith(_TRACKERS):
        return "tracker"
    subject = path.removeprefix("/api/").partition("/")[0] if path.startswith("/api/") else ""
    if subject in _ADMINISTRATION or (subject in ("devices", "users") and method != "GET"):
        return "administration"
    return _CALLS.get(path, "read" if path.startswith("/api/") else "other")


def _remove_secret(path: str) -> str:
    """Return the path with `…` instead of its secret. The last part of the paths of answer links,
    operators and trackers is a secret.
    """
    if path.startswith(_TRACKERS) and path.count("/") > 2:
        return f"{path[: path.index('/', len(_TRACKERS))]}/…"
    if path.startswith("/operator/") and path.count("/") > 2:
        return f"{path[: path.index('/', 10)]}/…"
    return f"{_LINKS}…" if path.startswith(_LINKS) else path


def write_to_log(line: dict[str, Any]) -> None:
    """Write a line of the access log to Python's log at INFO, as name=value pairs."""
    log.info("%s", " ".join(f"{name}={_format_value(value)}" for name, value in line.items()))


def _format_value(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or " " in text else text


def make_json_writer(emit: Callable[[str], None], clock: Callable[[], float]) -> Write:
    """Return a function that writes lines as JSON objects, with their time in Unix seconds."""
    return lambda line: emit(json.dumps({"at": round(clock(), 3), **line}, ensure_ascii=False))


class AccessLog:
    """Writes a line for each HTTP call, and counts the call in `figures`. `write` is called with
    each line.
    """

    def __init__(
        self, write: Write, figures: Figures, *, trusted_networks: Sequence[Network] = ()
    ) -> None:
        self._write = write
        self.figures = figures
        self._trusted = trusted_networks
        self._minute = 0
        self._refusal_count = 0

    def watch(self, judge: Judge) -> Judge:
        """Wrap `judge` so that each call is recorded after its response or refusal."""

        async def judge_watched(head: Request) -> Admission:
            started_at = trio.current_time()
            try:
                admission = await judge(head)
            except Problem as problem:
                self._write_line(
                    head, started_at, problem.status, reason=problem.detail, place=problem.place
                )
                raise
            handler = self._make_watched(admission.handler, started_at, admission.caller)
            return admission._replace(handler=handler)

        return judge_watched

    def _make_watched(self, handler: Handler, began: float, caller: Any) -> Handler:
        async def handle_watched(request: Request) -> Response:
            try:
                response = await handler(request)
            except Problem as problem:
                self._write_line(request, began, problem.status, caller, reason=problem.detail)
                raise
            self._write_line(request, began, response.status, caller)
            return response

        return handle_watched

    def _write_line(
        self,
        request: Request,
        began: float,
        status: int,
        caller: Any = None,
        *,
        reason: str = "",
        place: str = "",
    ) -> None:
        call, seconds = find_call_name(request.path, request.method), trio.current_time() - began
        self.figures.measure("call_seconds", seconds, call=call)
        refused = status >= 400 and call != "probe"
        if refused:
            self.figures.count("refusals", call=call, reason=REFUSAL_NAMES.get(status, "other"))
        reading = request.method in ("GET", "HEAD", "OPTIONS") and call != "link"
        if (reading and not refused) or (refused and not self._count_refusal()):
            return
        line: dict[str, Any] = {
            "event": call,
            "from": find_address(request, self._trusted),
            "method": request.method,
            "path": (place or _remove_secret(request.path))[:PATH_MAX],
            "status": status,
            "ms": round(seconds * 1000),
        }
        if isinstance(caller, Caller):
            line |= {"user": caller.member, "key": caller.key_name}
        self._write({**line, "why": reason} if reason else line)

    def _count_refusal(self) -> bool:
        """Count a refusal. Return True if the log may contain a separate line about it. In the
        first refusal of a minute, log how many refusals of earlier minutes were left out.
        """
        minute = int(trio.current_time() // 60)
        if minute != self._minute:
            if (excess := self._refusal_count - REFUSALS_PER_MINUTE_MAX) > 0:
                self._write({"event": "refusals left out", "times": excess})
            self._minute, self._refusal_count = minute, 0
        self._refusal_count += 1
        return self._refusal_count <= REFUSALS_PER_MINUTE_MAX

    def log_link_end(self, device: str, seconds: float, reason: str) -> None:
        """Write the line for the end of a link."""
        self._write(
            {"event": "link ended", "device": device, "seconds": round(seconds), "why": reason}
        )

    def log_webhook_post(
        self, webhook: int, post: str, items: int, result: str, seconds: float, reason: str
    ) -> None:
        """Write the line for a request to a webhook with `items` items. If the request is a batch,
        `post` is the id of the batch.
        """
        self.figures.count("webhook_posts", result=result)
        self.figures.measure("webhook_seconds", seconds)
        named_posts = {"item": post} if items == 1 else {"batch": post, "items": items}
        line = {"event": "webhook", "webhook": webhook, **named_posts, "result": result}
        self._write({**line, "ms": round(seconds * 1000), **({"why": reason} if reason else {})})
