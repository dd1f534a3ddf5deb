"""Errors of an API in the language of who reads them: whom it refuses, by `Accept-Language`.

The English is the name of each text, as in the catalogues of the pages. What both programs refuse
is in the catalogues beside this file, what one of them does in its own. Programs that name no
language of ours get English.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from functools import cache, partial

from fieldagent.http.languages import preferred
from fieldagent.http.message import Admission, Handler, Judge, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.page.language import ENGLISH, LANGUAGES
from fieldagent.system.data_files import read_data
from fieldagent.system.sentence import translated

log = logging.getLogger(__name__)


def in_their_language(judge: Judge, package: str) -> Judge:
    """Return the same judge and handlers, whose problems are in the language of who is refused.
    `package` holds the program's own catalogues."""

    async def judged(head: Request) -> Admission:
        try:
            admission = await judge(head)
        except Problem as problem:
            raise _told(problem, head, package) from None
        return admission._replace(handler=_telling(admission.handler, package))

    return judged


def _telling(handler: Handler, package: str) -> Handler:
    async def handled(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            raise _told(problem, request, package) from None

    return handled


def _told(problem: Problem, request: Request, package: str) -> Problem:
    language = preferred(request.headers.get("accept-language", ""), LANGUAGES)
    if language == ENGLISH:
        return problem
    translation = problem.said(partial(translated, catalogue=catalogue(package, language)))
    translation.headers += (("Content-Language", language), ("Vary", "Accept-Language"))
    return translation


@cache
def catalogue(package: str, language: str) -> Mapping[str, str]:
    """Return what both programs refuse and what `package` does, by the English form of each."""
    return _loaded(__name__, language) | _loaded(package, language)


def _loaded(package: str, language: str) -> dict[str, str]:
    """Where a file is not there, or spoilt, people are told in English rather than not at all."""
    try:
        loaded: dict[str, str] = json.loads(read_data(package, f"{language}.json"))
    except (OSError, ValueError) as error:
        log.error("the errors in %s cannot be read, English is said: %s", language, error)
        return {}
    return loaded
