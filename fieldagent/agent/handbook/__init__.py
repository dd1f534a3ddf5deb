"""Handbook for people with a kit, at `/help`. It needs no internet connection and no JavaScript.

`build/handbook.py` writes its pages from `docs/handbook/`.
"""

from __future__ import annotations

from fieldagent.http.headers import choose_language
from fieldagent.http.message import Request, Response
from fieldagent.http.routes import Route
from fieldagent.page import files
from fieldagent.page.language import LANGUAGES

NAMES = (*(f"{language}.html" for language in LANGUAGES), "handbook.css")


def make_routes() -> list[Route]:
    """Return `GET /help`, which redirects to the page in the browser's language, and the pages."""
    return [
        Route("GET", "/help", _redirect_to_help),
        files.make_folder_route("/help", __name__, NAMES),
    ]


async def _redirect_to_help(request: Request) -> Response:
    language = choose_language(request.headers.get("accept-language", ""), LANGUAGES)
    return Response(
        303, headers=(("Location", f"/help/{language}.html"), ("Vary", "Accept-Language"))
    )
