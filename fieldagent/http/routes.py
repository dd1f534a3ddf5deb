"""Maps a method and a path to a handler. The table of routes is processed only once."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any

import trio

from fieldagent.http.guard import METHODS
from fieldagent.http.message import Admission, Judge, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.query import split_path
from fieldagent.system.data_files import read_data
from fieldagent.system.extension import import_own
from fieldagent.system.lazy_named_tuple import NamedTuple


def make_description_route(package: str, extra_files: Callable[[], Iterable[str]] = tuple) -> Route:
    """Return the route `GET /openapi.json` of the API that `package.description` describes.
    `extra_files` returns places of more calls, `package.module:NAME`.
    """

    made_bytes: list[bytes] = []
    making = trio.Lock()

    async def describe(request: Request) -> Response:
        # Make the description only once, because it costs much more than other responses to
        # anonymous callers.
        async with making:
            if not made_bytes:
                make = partial(make_description, package, [*extra_files()])
                made_bytes.append(await trio.to_thread.run_sync(make))
        return Response(200, made_bytes[0])

    return Route("GET", "/openapi.json", describe)


def make_description(package: str, extra_files: Iterable[str] = ()) -> bytes:
    """Return the description of an API as JSON. `build/program.py` prepares a file with the
    description. If this file is missing, make the description from the tables. They are loaded only
    now, because few programs request the description.
    """
    places = [*extra_files]
    try:
        prepared = read_data(package, "openapi.json")
    except FileNotFoundError:
        document = import_own(f"{package}.description:describe")()
    else:
        if not places:
            return prepared
        document = json.loads(prepared)
    if places:
        import_own("fieldagent.http.openapi:add_further")(document, map(import_own, places))
    return json.dumps(document, ensure_ascii=False).encode()


_WAIT_PREFERENCE = re.compile(
    r'wait\s*=\s*(?:([0-9]{1,9})|"([0-9]{1,9})")\s*(?:;.*)?', re.IGNORECASE
)
_PREFERENCE = re.compile(r'(?:[^",]|"[^"]*(?:"|$))+')
"""Pattern of one preference in the header Prefer: the text between two commas that are not within
quotes."""


def read_preferred_wait(headers: Mapping[str, str]) -> int | None:
    """Return the seconds that the caller will wait for a response, from the header Prefer (RFC 7240
    section 4.3), or None if the header has no such value.

    If there are several values, the first is used. Unreadable values are ignored (section 2).
    """
    for preference in _PREFERENCE.findall(headers.get("prefer", "")):
        if match := _WAIT_PREFERENCE.fullmatch(preference.strip()):
            return int(match[1] or match[2])
    return None


class Route(NamedTuple):
    """A route. `{name}` in a pattern matches one non-empty segment, which the handler gets by that
    name.
    """

    method: str
    pattern: str
    handler: Callable[..., Awaitable[Response]]
    judge: Callable[[Request], Awaitable[Any]] | None = None
    """Function that checks the head, and raises Problem to refuse it. The handler gets the judge's
    result, such as the caller, as its argument `caller`."""
    body: int | None = None
    """Maximum size of the body in bytes. None means the method's limit in BODY_MAX_BY_METHOD."""
    media_types: tuple[str, ...] = ()
    """Accepted media types besides JSON."""


BODY_MAX_BY_METHOD = {"POST": 1_048_576, "PUT": 1_048_576, "PATCH": 1_048_576}
"""Maximum bytes of a body, by method."""
OTHER_BODY_MAX_BYTES = 1_024
"""Maximum bytes of a body for all other methods, for which a body has no meaning (RFC 9110 9.3)."""

UNREADABLE = "/…"
"""Text that a log contains instead of a path that cannot be decoded."""
_Methods = dict[str, Route]


def make_redirect(path: str) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that redirects a browser to the path (RFC 9110 15.4.4)."""

    async def redirect(request: Request) -> Response:
        return Response(303, headers=(("Location", path),))

    return redirect


def make_router(table: Iterable[Route]) -> Judge:
    """Return a judge that finds the route and calls its judge, or raises 404 or 405. Literal
    segments take precedence over named segments. A route for GET also handles HEAD. OPTIONS returns
    the allowed methods.
    """
    resources: dict[tuple[str, ...], _Methods] = {}
    for route in table:
        resources.setdefault(tuple(route.pattern[1:].split("/")), {})[route.method] = route
    patterns = sorted(resources, key=lambda pattern: [_is_name(part) for part in pattern])
    literal = {each: resources[each] for each in patterns if not any(map(_is_name, each))}

    async def judge(head: Request) -> Admission:
        if head.path == "*":
            return _answer_options(METHODS)
        try:
            path = split_path(head.path)
        except Problem as problem:
            problem.place = UNREADABLE
            raise
        if (methods := literal.get(path)) is not None:
            return await _admit(methods, head, {})
        for pattern in patterns:
            names = _match(pattern, path)
            if names is not None:
                return await _admit(resources[pattern], head, names)
        place = _find_known_part(patterns, path)
        raise Problem(404, f"there is nothing at {place}", place=place)

    return judge


async def _admit(methods: _Methods, head: Request, names: dict[str, str]) -> Admission:
    method = head.method
    if method == "HEAD" and method not in methods:
        method = "GET"
    if (route := methods.get(method)) is not None:
        try:
            arguments = {} if route.judge is None else {"caller": await route.judge(head)}
        except Problem:
            raise
        except Exception as error:
            error.add_note(f"{method} {route.pattern}")
            raise
        body = (
            BODY_MAX_BY_METHOD.get(method, OTHER_BODY_MAX_BYTES)
            if route.body is None
            else route.body
        )
        handler = partial(route.handler, **names, **arguments)
        return Admission(handler, body, route.media_types, arguments.get("caller"), route.pattern)
    allowed = {*methods, "OPTIONS", *(("HEAD",) if "GET" in methods else ())}
    if method == "OPTIONS":
        return _answer_options(allowed)
    allow, place = ", ".join(sorted(allowed)), next(iter(methods.values())).pattern
    raise Problem(405, f"{place} takes {allow}", headers=(("Allow", allow),), place=place)


def _answer_options(allowed_methods: Iterable[str]) -> Admission:
    answer = Response(204, headers=(("Allow", ", ".join(sorted(allowed_methods))),))

    async def respond(request: Request) -> Response:
        return answer

    return Admission(respond, OTHER_BODY_MAX_BYTES)


def _find_known_part(patterns: Iterable[tuple[str, ...]], path: tuple[str, ...]) -> str:
    """Return the longest beginning of the path that a route contains literally. The rest may be a
    secret in a misspelt address.
    """
    known_count = 0
    for pattern in patterns:
        pairs = zip(pattern, path, strict=False)
        same_segments = [
            *takewhile(lambda pair: pair[0] == pair[1] and not _is_name(pair[0]), pairs)
        ]
        known_count = max(known_count, len(same_segments))
    return "/" + "/".join([*path[:known_count], "…"] if known_count < len(path) else path)


def _match(pattern: tuple[str, ...], path: tuple[str, ...]) -> dict[str, str] | None:
    if len(pattern) != len(path):
        return None
    names = {}
    for part, segment in zip(pattern, path, strict=True):
        if _is_name(part) and segment:
            names[part[1:-1]] = segment
        elif part != segment:
            return None
    return names


def _is_name(part: str) -> bool:
    return part.startswith("{")
