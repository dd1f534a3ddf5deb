"""Captive portal of the kit's own network. It shows the address of the kit's page to phones that
join.

A phone's system checks over plain HTTP whether a network that it joins leads to the internet. If
the response is not the expected one, the phone opens a sign-in window. In this window the portal
shows the address of the page and the certificate's fingerprint. The page itself cannot open in the
window, because the window refuses a self-signed certificate. If a person decides to stay in the
network, the phone gets the expected response from then on, so that it does not leave the network by
itself.

The API of a captive portal (RFC 8908, announced by DHCP option 114, RFC 8910) needs a certificate
that phones trust. A kit without a domain name cannot have one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from html import escape
from string import Template

from fieldagent.http.headers import choose_language
from fieldagent.http.message import FORM, Admission, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.page.language import LANGUAGES
from fieldagent.system.data_files import read_data
from fieldagent.system.lazy_named_tuple import NamedTuple

PHONE_ANSWER_S = 12 * 3600.0
"""Seconds for which a phone's internet checks get the expected response, after its user has chosen
to stay in the network."""
PHONES_MAX = 1_000
"""Maximum number of phones that get the expected response at the same time."""
PAGE, KEEP_PATH, STYLE = "/portal", "/portal/keep", "/portal/portal.css"
NO_STORE_HEADERS = (("Cache-Control", "no-store"),)
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none';"
    " base-uri 'none'"
)


class ProbeAnswer(NamedTuple):
    """Response to an internet check that a phone's system accepts as proof of internet access."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain"


APPLE = ProbeAnswer(
    200, b"<HTML><HEAD><TITLE>Success</TITLE></HEAD><BODY>Success</BODY></HTML>\n", "text/html"
)
PROBES = {
    # Paths that Android and ChromeOS request to detect a portal.
    "/generate_204": ProbeAnswer(204),
    "/gen_204": ProbeAnswer(204),
    # Paths that iOS and macOS request.
    "/hotspot-detect.html": APPLE,
    "/library/test/success.html": APPLE,
    # Paths that Windows requests.
    "/connecttest.txt": ProbeAnswer(200, b"Microsoft Connect Test"),
    "/ncsi.txt": ProbeAnswer(200, b"Microsoft NCSI"),
    # Path that Firefox requests.
    "/canonical.html": ProbeAnswer(
        200,
        b'<meta http-equiv="refresh" content="0;'
        b'url=https://support.mozilla.org/kb/captive-portal"/>',
        "text/html",
    ),
    "/success.txt": ProbeAnswer(200, b"success\n"),
    # Paths that GNOME and Debian's NetworkManager request.
    "/check_network_status.txt": ProbeAnswer(200, b"NetworkManager is online\n"),
    "/nm": ProbeAnswer(200, b"NetworkManager is online\n"),
}


class Portal:
    """Captive portal. `page_at` is called with a caller's address, and returns the page's address
    in the caller's network. `clock` is a monotonic clock in seconds.
    """

    def __init__(
        self, page_at: Callable[[str], str], fingerprint: str, clock: Callable[[], float]
    ) -> None:
        self._page_at = page_at
        self._fingerprint = fingerprint
        self._clock = clock
        self._stays: dict[str, float] = {}
        """Time until which a phone gets the expected response, by the phone's address."""

    async def judge(self, head: Request) -> Admission:
        """Admit GET and HEAD for any path, and the form that a user sends to stay in the network.
        Raises Problem 404 for other requests.
        """
        if head.method in ("GET", "HEAD"):
            return Admission(self._answer)
        if (head.method, head.path) == ("POST", KEEP_PATH):
            return Admission(self._confirm_phone, body=1_024, media_types=(FORM,))
        raise Problem(404, f"GET {PAGE} shows the address of the kit's page")

    async def _answer(self, request: Request) -> Response:
        stays = self._stays.get(request.peer, 0.0) > self._clock()
        if request.path == STYLE:
            return Response(200, read_data(__name__, "portal.css"), "text/css; charset=utf-8")
        if request.path == PAGE:
            return self._serve_page(request, is_kept=stays)
        if stays and (probe_answer := PROBES.get(request.path)) is not None:
            return Response(*probe_answer, NO_STORE_HEADERS)
        return Response(302, headers=(("Location", PAGE), *NO_STORE_HEADERS))

    def _serve_page(self, request: Request, *, is_kept: bool) -> Response:
        language = choose_language(request.headers.get("accept-language", ""), LANGUAGES)
        texts = {name: escape(text) for name, text in _read_texts()[language].items()}
        page = Template(read_data(__name__, "portal.html").decode()).substitute(
            texts,
            language=language,
            address=escape(self._page_at(request.peer)),
            fingerprint=escape(self._fingerprint),
            staying="" if is_kept else "hidden",
            asking="hidden" if is_kept else "",
        )
        policy = (("Content-Security-Policy", CONTENT_SECURITY_POLICY), ("Vary", "Accept-Language"))
        return Response(
            200, page.encode(), "text/html; charset=utf-8", (*NO_STORE_HEADERS, *policy)
        )

    async def _confirm_phone(self, request: Request) -> Response:
        now = self._clock()
        self._stays = {each: until for each, until in self._stays.items() if until > now}
        if len(self._stays) < PHONES_MAX:
            self._stays[request.peer] = now + PHONE_ANSWER_S
        return Response(303, headers=(("Location", PAGE), *NO_STORE_HEADERS))


@cache
def _read_texts() -> dict[str, dict[str, str]]:
    texts_by_language: dict[str, dict[str, str]] = json.loads(read_data(__name__, "words.json"))
    return texts_by_language
