"""What a phone is told that joins the kit's own network: where the page is.

A system asks over plain HTTP whether there is internet behind a network that it joins. Any other
answer than the one that it waits for opens a window for signing in, which shows what is here: the
address of the page, and the certificate's fingerprint. The page itself does not open in there: that
window refuses a certificate that nobody has signed. Whoever decides to stay gets, from then on, the
answer that the system waits for, and the phone does not leave by itself.

The API of a captive portal (RFC 8908, told by DHCP's option 114, RFC 8910) needs a certificate that
phones trust, which no kit without a name has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from html import escape
from string import Template

from fieldagent.http.languages import preferred
from fieldagent.http.message import FORM, Admission, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.page.language import LANGUAGES
from fieldagent.system.data_files import read_data
from fieldagent.system.lazy_named_tuple import NamedTuple

STAYS = 12 * 3600.0
"""Seconds for which a phone is told that all is well."""
MOST = 1_000
"""Phones that are remembered."""
PAGE, KEEP, STYLE = "/portal", "/portal/keep", "/portal/portal.css"
NOT_KEPT = (("Cache-Control", "no-store"),)
POLICY = (
    "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'"
)


class ProbeAnswer(NamedTuple):
    """The answer that a system takes for the internet."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain"


APPLE = ProbeAnswer(
    200, b"<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>\n", "text/html"
)
PROBES = {
    # Android, ChromeOS
    "/generate_204": ProbeAnswer(204),
    "/gen_204": ProbeAnswer(204),
    # iOS, macOS
    "/hotspot-detect.html": APPLE,
    "/library/test/success.html": APPLE,
    # Windows
    "/connecttest.txt": ProbeAnswer(200, b"Microsoft Connect Test"),
    "/ncsi.txt": ProbeAnswer(200, b"Microsoft NCSI"),
    # Firefox
    "/canonical.html": ProbeAnswer(
        200,
        b'<meta http-equiv="refresh" content="0;'
        b'url=https://support.mozilla.org/kb/captive-portal"/>',
        "text/html",
    ),
    "/success.txt": ProbeAnswer(200, b"success\n"),
    # GNOME, Debian's NetworkManager
    "/check_network_status.txt": ProbeAnswer(200, b"NetworkManager is online\n"),
    "/nm": ProbeAnswer(200, b"NetworkManager is online\n"),
}


class Portal:
    """`page_at` is given the address of whoever calls, and returns the page's there. `clock` is one
    that nobody sets, in seconds."""

    def __init__(
        self, page_at: Callable[[str], str], fingerprint: str, clock: Callable[[], float]
    ) -> None:
        self._page_at = page_at
        self._fingerprint = fingerprint
        self._clock = clock
        self._stays: dict[str, float] = {}
        """Until when, by the phone's address."""

    async def judge(self, head: Request) -> Admission:
        """Let in who asks where the page is; all else is refused. Raises Problem 404."""
        if head.method in ("GET", "HEAD"):
            return Admission(self._answer)
        if (head.method, head.path) == ("POST", KEEP):
            return Admission(self._keep, body=1_024, takes=(FORM,))
        raise Problem(404, f"here people are told where the kit's page is: GET {PAGE}")

    async def _answer(self, request: Request) -> Response:
        stays = self._stays.get(request.peer, 0.0) > self._clock()
        if request.path == STYLE:
            return Response(200, read_data(__name__, "portal.css"), "text/css; charset=utf-8")
        if request.path == PAGE:
            return self._page(request, stays=stays)
        if stays and (wanted := PROBES.get(request.path)) is not None:
            return Response(*wanted, NOT_KEPT)
        return Response(302, headers=(("Location", PAGE), *NOT_KEPT))

    def _page(self, request: Request, *, stays: bool) -> Response:
        language = preferred(request.headers.get("accept-language", ""), LANGUAGES)
        texts = {name: escape(text) for name, text in _words()[language].items()}
        page = Template(read_data(__name__, "portal.html").decode()).substitute(
            texts,
            language=language,
            address=escape(self._page_at(request.peer)),
            fingerprint=escape(self._fingerprint),
            staying="" if stays else "hidden",
            asking="hidden" if stays else "",
        )
        policy = (("Content-Security-Policy", POLICY), ("Vary", "Accept-Language"))
        return Response(200, page.encode(), "text/html; charset=utf-8", (*NOT_KEPT, *policy))

    async def _keep(self, request: Request) -> Response:
        now = self._clock()
        self._stays = {each: until for each, until in self._stays.items() if until > now}
        if len(self._stays) < MOST:
            self._stays[request.peer] = now + STAYS
        return Response(303, headers=(("Location", PAGE), *NOT_KEPT))


@cache
def _words() -> dict[str, dict[str, str]]:
    words: dict[str, dict[str, str]] = json.loads(read_data(__name__, "words.json"))
    return words
