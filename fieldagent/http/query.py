"""Targets of requests (RFC 9112 3.2, RFC 3986): strict percent-decoding, the query, and pages of
lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ESCAPE = re.compile(rb"%(..)")
_AFTER_AUTHORITY = re.compile(r"([/?]|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def decode(text: str) -> str:
    """Decode one percent-encoded component. Raises Problem 400 if the result is not printable
    UTF-8.
    """
    if "%" not in text:
        return text
    if _BAD_ESCAPE.search(text):
        raise Problem(400, "the request target holds % without two hex digits behind it")
    octets = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode("ascii"))
    try:
        decoded = octets.decode("utf-8")
    except UnicodeDecodeError:
        raise Problem(400, "the request target is not UTF-8") from None
    if _CONTROL.search(decoded):
        raise Problem(400, "the request target holds a control character")
    return decoded


def convert_to_origin_form(target: str, host: str, options: bool) -> str:
    """Return the origin-form of an absolute-form (RFC 9112 3.2.2). Raises Problem 400 if the target
    names another server.
    """
    authority, slash, rest = _AFTER_AUTHORITY.split(target.partition("://")[2], maxsplit=1)
    if not host or authority.lower() != host.lower():
        # Leave target and host out of the text, because the target can contain a password.
        raise Problem(400, "the request target and Host name different servers")
    if slash == "/":
        return "/" + rest
    return "/?" + rest if slash else "*" if options else "/"


def split_path(path: str) -> tuple[str, ...]:
    """Return the decoded segments of an absolute path. An encoded slash stays within its
    segment."""
    return tuple(decode(segment) for segment in path[1:].split("/"))


def query_pairs(query: str) -> tuple[tuple[str, str], ...]:
    """Parse `a=1&b` as (("a", "1"), ("b", "")). A plus sign is a space, as in forms."""
    pairs = (pair.partition("=") for pair in query.replace("+", " ").split("&") if pair)
    return tuple((decode(name), decode(value)) for name, _, value in pairs)


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
