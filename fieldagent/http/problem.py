"""Problem details (RFC 9457), the form of all error responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fieldagent.http.message import Response, make_json_response
from fieldagent.system.wording import sentence

_TITLES = {413: "Content Too Large", 414: "URI Too Long", 422: "Unprocessable Content"}
"""Titles of RFC 9110, because older versions of Python have the titles of RFC 2616."""


ERRORS_MAX = 20


class Problem(Exception):
    """Error that a handler or guard raises. The server converts it into a response.

    `detail` explains to the caller what to do. `errors` contains a pair of detail and JSON pointer
    for each fault. The response contains the first ERRORS_MAX of them. `headers` contains further
    headers of the response (`Allow`, `Retry-After`), and `members` further members of the document
    (section 3.2). `place` is the form of the path that a log may contain. It is empty if a log may
    contain the path itself.
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
        place: str = "",
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.title = title or _TITLES.get(status) or HTTPStatus(status).phrase
        self.detail = detail
        self.errors = _limit_errors(errors)
        self.headers = headers
        self.members = members or {}
        self.place = place

    def translate(self, translate_text: Callable[[str], str]) -> Problem:
        """Return the same Problem in another language. `translate_text` translates its title, its
        detail, and the details of its errors.
        """
        return Problem(
            self.status,
            translate_text(self.detail),
            title=translate_text(self.title),
            errors=[(translate_text(detail), pointer) for detail, pointer in self.errors],
            headers=self.headers,
            members=self.members,
            place=self.place,
        )

    def make_response(self) -> Response:
        """Return the response as application/problem+json, with the headers of the Problem."""
        document: dict[str, Any] = {"title": self.title, "status": self.status, **self.members}
        if self.detail:
            document["detail"] = self.detail
        if self.errors:
            document["errors"] = [
                {"detail": detail, "pointer": pointer} for detail, pointer in self.errors
            ]
        answer = make_json_response(document, self.status, self.headers)
        return answer._replace(content_type="application/problem+json")


def _limit_errors(errors: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the first errors, and the number of further errors. If there is only one further
    error, include it instead of the number.
    """
    more_count = len(errors) - ERRORS_MAX
    rest = (sentence("and {more} more", more=more_count), "")
    return (*errors[:ERRORS_MAX], rest) if more_count > 1 else tuple(errors)


def make_too_large(limit: int) -> Problem:
    """Return the Problem 413 for a body of more than `limit` bytes."""
    return Problem(413, sentence("the body is larger than {limit} bytes", limit=limit))
