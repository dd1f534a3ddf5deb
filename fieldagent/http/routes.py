"""From a method and a path to a handler: one table, read once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from fieldagent.http.guard import METHODS
from fieldagent.http.message import Handler, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.target import segments


class Route(NamedTuple):
    """`{name}` in a pattern matches one non-empty segment, given to the handler by that name."""

    method: str
    pattern: str
    handler: Callable[..., Awaitable[Response]]


_Methods = dict[str, Callable[..., Awaitable[Response]]]


def router(table: Iterable[Route]) -> Handler:
    """A handler that finds the route, or raises 404 or 405. A literal pattern goes before a named
    segment; GET answers HEAD too; OPTIONS tells what is allowed."""
    resources: dict[tuple[str, ...], _Methods] = {}
    for route in table:
        resources.setdefault(tuple(route.pattern[1:].split("/")), {})[route.method] = route.handler
    patterns = sorted(resources, key=lambda pattern: [_is_name(part) for part in pattern])
    literal = {each: resources[each] for each in patterns if not any(map(_is_name, each))}

    async def route_request(request: Request) -> Response:
        if request.path == "*":
            return _options(METHODS)
        path = segments(request.path)
        if (methods := literal.get(path)) is not None:
            return await _answer(methods, request, {})
        for pattern in patterns:
            names = _match(pattern, path)
            if names is not None:
                return await _answer(resources[pattern], request, names)
        raise Problem(404, f"there is nothing at {request.path}")

    return route_request


async def _answer(methods: _Methods, request: Request, names: dict[str, str]) -> Response:
    method = request.method
    if method == "HEAD" and method not in methods:
        method = "GET"
    if method in methods:
        return await methods[method](request, **names)
    allowed = {*methods, "OPTIONS", *(("HEAD",) if "GET" in methods else ())}
    if method == "OPTIONS":
        return _options(allowed)
    allow = ", ".join(sorted(allowed))
    raise Problem(405, f"{request.path} takes {allow}", headers=(("Allow", allow),))


def _options(allowed: Iterable[str]) -> Response:
    return Response(204, headers=(("Allow", ", ".join(sorted(allowed))),))


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
