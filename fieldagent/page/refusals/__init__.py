"""Errors of an API in the caller's language, by `Accept-Language`.

The key of each text is its English form, as in the catalogues of the pages. Errors of both programs
are in the catalogues beside this file. Errors of one program or extension are in its own
catalogues. Callers that accept none of our languages get English.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fieldagent.http.headers import choose_language
from fieldagent.http.message import Admission, Handler, Judge, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.page.language import ENGLISH, LANGUAGES, read_catalogue
from fieldagent.system.wording import translate_text


def translate_problems(judge: Judge, *packages: str) -> Judge:
    """Return a judge that works like `judge`, but translates problems of the judge and its handlers
    for the caller. `packages` contain further catalogues.
    """

    async def judge_translated(head: Request) -> Admission:
        try:
            admission = await judge(head)
        except Problem as problem:
            raise _translate_problem(problem, head, packages) from None
        return admission._replace(handler=_wrap_handler(admission.handler, packages))

    return judge_translated


def _wrap_handler(handler: Handler, packages: tuple[str, ...]) -> Handler:
    async def handle_translated(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            raise _translate_problem(problem, request, packages) from None

    return handle_translated


def _translate_problem(problem: Problem, request: Request, packages: tuple[str, ...]) -> Problem:
    language = choose_language(request.headers.get("accept-language", ""), LANGUAGES)
    if language == ENGLISH:
        return problem
    translation = problem.translate(
        partial(translate_text, catalogue=read_common_catalogue(language, *packages))
    )
    translation.headers += (("Content-Language", language), ("Vary", "Accept-Language"))
    return translation


def read_common_catalogue(language: str, *packages: str) -> Mapping[str, str]:
    """Return the translations of common errors and of the errors of `packages`, by their English
    form.
    """
    catalogue: dict[str, str] = {}
    for package in (__name__, *packages):
        catalogue |= read_catalogue(package, language)
    return catalogue
