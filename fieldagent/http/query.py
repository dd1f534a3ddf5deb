"""Query of a request, and pages of lists."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem


def refuse_others(request: Request, known_names: Sequence[str]) -> None:
    """Raise Problem 400 if the query contains a name that is not in `known_names`."""
    unknown = [name for name, _ in request.query if name not in known_names]
    if unknown:
        raise Problem(
            400, detail=f"the query {unknown[0]!r} is unknown; {_list_values(known_names)}"
        )


def _list_values(parameters: Sequence[str]) -> str:
    if not parameters:
        return "none is"
    names = [f"?{name}=" for name in parameters]
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names)} are"


def read_integer(request: Request, name: str, default: int, allowed_values: range) -> int:
    """Return the integer in the query parameter `name`, or the default. Raises Problem 400 if the
    integer is not in `allowed_values`.
    """
    value = dict(request.query).get(name)
    if value is None:
        return default
    if not re.fullmatch(r"[0-9]{1,19}", value, re.ASCII) or int(value) not in allowed_values:
        raise Problem(
            400, detail=f"?{name}= is a number from {allowed_values[0]} to {allowed_values[-1]}"
        )
    return int(value)


def read_one_of(request: Request, name: str, allowed_values: Sequence[str]) -> str | None:
    """Return the value of the query parameter `name`, or None. Raises Problem 400 if the value is
    not in `allowed_values`.
    """
    value = dict(request.query).get(name)
    if value is not None and value not in allowed_values:
        raise Problem(400, detail=f"?{name}= is one of {', '.join(allowed_values)}")
    return value


def make_page(
    request: Request, items: Mapping[str, Any], cursor: str, last: int | None
) -> Response:
    """Return one page of a list, with the path of the next page. The path has the same query as the
    request, but with `cursor` set to `last`.
    """
    if last is None:
        return make_json_response({**items, "next": None})
    next_query = {**dict(request.query), cursor: last}
    follows = f"{request.path}?{urlencode(next_query)}"
    return make_json_response(
        {**items, "next": follows}, headers=(("Link", f'<{follows}>; rel="next"'),)
    )
