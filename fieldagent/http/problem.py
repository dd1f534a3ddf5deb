"""Problem details, RFC 9457: the one shape of every error answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fieldagent.http.message import Response, json_response

_TITLES = {413: "Content Too Large", 414: "URI Too Long", 422: "Unprocessable Content"}
"""RFC 9110's names where older Pythons have RFC 2616's."""


ERRORS_MAX = 20


class Problem(Exception):
    """Raised by a handler or guard; the server answers it.

    `detail` tells this caller what to do; `errors` are pairs of detail and JSON pointer, one for
    each fault, of which the first ERRORS_MAX are told; `headers` go along (`Allow`,
    `Retry-After`), `members` extend the document (section 3.2).
    """

    def __init__(
        self,
        status: int,
        detail: str = "",
        *,
        title: str = "",
        errors: Sequence[tuple[str, str]] = (),
        headers: tuple[tuple[str, str], ...] = (),
        members: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.title = title or _TITLES.get(status) or HTTPStatus(status).phrase
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = headers
        self.members = members or {}

    def to_response(self) -> Response:
        document: dict[str, Any] = {"title": self.title, "status": self.status, **self.members}
        if self.detail:
            document["detail"] = self.detail
        if self.errors:
            shown = list(self.errors[:ERRORS_MAX])
            if (more := len(self.errors) - ERRORS_MAX) > 0:
                shown.append((f"and {more} more", ""))
            document["errors"] = [
                {"detail": detail, "pointer": pointer} for detail, pointer in shown
            ]
        answer = json_response(document, self.status, self.headers)
        return answer._replace(content_type="application/problem+json")


def too_large(limit: int) -> Problem:
    return Problem(413, f"the body is larger than {limit} bytes")
