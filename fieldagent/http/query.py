"""Query of a request, and pages of lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem


def refuse_others(request: Request, known: Sequence[str]) -> None:
    """Refuse a query with a name that is not in `known`. Raises Problem 400."""
    unknown = [name for name, _ in request.query if name not in known]
    if unknown:
        raise Problem(400, detail=f"the query {unknown[0]!r} is unknown; {_list_values(known)}")


def _list_values(parameters: Sequence[str]) -> str:
    if not parameters:
        return "none is"
    names = [f"?{name}=" for name in parameters]
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names)} are"


def number(request: Request, name: str, default: int, allowed: range) -> int:
    """Return the integer of that name in the query, or the default. Raises Problem 400 if it is not
    in `allowed`.
    """
    value = dict(request.query).get(name)
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", value, re.ASCII) or int(value) not in allowed:
        raise Problem(400, detail=f"?{name}= is a number from {allowed[0]} to {allowed[-1]}")
    return int(value)


def read_one_of(request: Request, name: str, allowed: Sequence[str]) -> str | None:
    """Return the value of that name in the query, or None. Raises Problem 400 if it is not in
    `allowed`.
    """
    value = dict(request.query).get(name)
    if value is not None and value not in allowed:
        raise Problem(400, detail=f"?{name}= is one of {', '.join(allowed)}")
    return value


def make_page(
    request: Request, listed: Mapping[str, Any], cursor: str, last: int | None
) -> Response:
    """Return one page of a list, with the path of the next page. That path has the same query, with
    `cursor` set to `last`.
    """
    if last is None:
        return make_json_response({**listed, "next": None})
    asked = {**dict(request.query), cursor: last}
    follows = f"{request.path}?{urlencode(asked)}"
    return make_json_response(
        {**listed, "next": follows}, headers=(("Link", f'<{follows}>; rel="next"'),)
    )
