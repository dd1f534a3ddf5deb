"""Sign-in to the kit's page with the kit's passphrase."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import trio

from fieldagent.http.address import find_source
from fieldagent.http.guard import get_required_body
from fieldagent.http.headers import read_cookie, set_cookie
from fieldagent.http.limits import check_in_thread
from fieldagent.http.message import Admission, Judge, Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route, make_redirect, make_router
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.page import files
from fieldagent.system.rate import Rate, format_retry_after
from fieldagent.system.scrypt import SCRYPT_SECONDS, check_password
from fieldagent.system.wording import sentence

NAMES = ("enter.css", "enter.js", *files.CATALOGUES)
COOKIE = "fieldagent-page"
SESSION_LIFETIME_S = 43_200.0
"""Seconds for which a person stays signed in."""
SIGNED_IN_MAX = 256
PASSPHRASE_RATE = Rate(per_minute=6, burst=12)
"""Limit on wrong passphrases from one address."""
MISTYPING_RATE = Rate(per_minute=0.05, burst=3)
"""Rate of wrong passphrases from one address that mistyping can explain. Addresses with a higher
rate are treated separately."""
PASSPHRASE_RATE_LIMIT = Rate(per_minute=60, burst=60)
"""Limit on wrong passphrases from all addresses below MISTYPING_RATE together, and from all other
addresses together, because each check takes processor time. Because the limits are separate,
guesses from many addresses cannot lock people out."""
WAITING_MAX, GUESSES_WAITING_MAX = 4, 2
"""Maximum number of waiting checks, and the maximum for addresses with many wrong passphrases."""

Version = tuple[int, int]
"""Version of the passphrase's file: its inode and its modification time in nanoseconds."""
_Account = tuple[Rate, str]
"""A limit, and the callers to which it applies: one address, or `guesses` or an empty text for all
addresses of that kind together."""


class Entrance:
    """Signs people in with the passphrase. Sessions are kept in memory, so a restart ends them.
    `clock` is a monotonic clock in seconds.
    """

    def __init__(self, pass_phrase: Path, clock: Callable[[], float]) -> None:
        self._pass_phrase = pass_phrase
        self._clock = clock
        self._signed_in: dict[bytes, tuple[float, Version]] = {}
        """Sessions by the hash of the cookie: the end time, and the version of the passphrase."""
        self._tats: dict[_Account, float] = {}
        self._limiter = trio.CapacityLimiter(1)

    def guard(self, judge: Judge) -> Judge:
        """Return a judge that passes requests of signed-in people to `judge`, and allows other
        people only to sign in.
        """
        outside = make_router(self.make_routes())

        async def judge_caller(head: Request) -> Admission:
            if head.path == "/enter" or head.path.startswith("/enter/"):
                return await outside(head)
            if self._is_known(head):
                return (await judge(head))._replace(caller=COOKIE)
            if head.method == "GET" and head.path in ("/", "/track"):
                return Admission(make_redirect("/enter"))
            raise Problem(401, "sign in first, at /enter")

        return judge_caller

    def make_routes(self) -> list[Route]:
        """Return the routes for signing in and out."""
        return [
            *files.make_page_routes(("/enter",), "/enter/file", __name__, NAMES),
            Route("POST", "/enter/session", self._sign_in, body=2_048),
            Route("DELETE", "/enter/session", self._sign_out),
        ]

    def _is_known(self, head: Request) -> bool:
        until, version = self._signed_in.get(_digest_cookie(head), (0.0, None))
        return self._clock() < until and version == _read_version(self._pass_phrase)

    async def _sign_in(self, request: Request) -> Response:
        pass_phrase = _read_pass_phrase(request)
        version = _read_version(self._pass_phrase)
        if version is None:
            raise Problem(403, "this kit has no passphrase yet: run `fieldagent page --set` on it")
        accounts = self._charge_attempt(find_source(request.peer))
        stored = await trio.to_thread.run_sync(self._pass_phrase.read_text)
        matches = partial(check_password, pass_phrase, stored.strip())
        if not await check_in_thread(matches, self._limiter, SCRYPT_SECONDS):
            raise Problem(401, "the passphrase is wrong")
        for each in accounts:
            if each in self._tats:
                self._tats[each] -= 60.0 / each[0].per_minute
        cookie = secrets.token_urlsafe(32)
        now = self._clock()
        signed_in = {key: each for key, each in self._signed_in.items() if each[0] > now}
        newest = sorted(signed_in, key=lambda key: signed_in[key][0])[-SIGNED_IN_MAX + 1 :]
        self._signed_in = {key: signed_in[key] for key in newest}
        self._signed_in[_digest(cookie)] = (now + SESSION_LIFETIME_S, version)
        return Response(204, headers=(set_cookie(COOKIE, cookie, SESSION_LIFETIME_S, secure=True),))

    async def _sign_out(self, request: Request) -> Response:
        self._signed_in.pop(_digest_cookie(request), None)
        return Response(204, headers=(set_cookie(COOKIE, "", 0, secure=True),))

    def _charge_attempt(self, source: str) -> list[_Account]:
        """Charge an attempt before it is made, so that simultaneous attempts cannot exceed the
        limits. Return the charged accounts. If the passphrase is right, the caller refunds the
        attempt to these accounts. Raises Problem 429 if a limit is exceeded or too many checks
        wait.
        """
        now = self._clock()
        self._tats = {account: tat for account, tat in self._tats.items() if tat > now}
        few = MISTYPING_RATE, source
        tat, wait = MISTYPING_RATE.admit(self._tats.get(few, 0.0), now)
        guesses = wait > 0
        accounts: list[_Account] = [
            (PASSPHRASE_RATE, source),
            (PASSPHRASE_RATE_LIMIT, "guesses" if guesses else ""),
        ]
        waiting = self._limiter.statistics().tasks_waiting
        if waiting >= (GUESSES_WAITING_MAX if guesses else WAITING_MAX):
            raise _make_too_many(1)
        booked = {} if guesses else {few: tat}
        for account in accounts:
            booked[account], wait = account[0].admit(self._tats.get(account, 0.0), now)
            if wait:
                raise _make_too_many(wait)
        self._tats |= booked
        return [*booked]


def _make_too_many(wait: float) -> Problem:
    seconds = format_retry_after(wait)
    return Problem(
        429,
        sentence("too many attempts; try again in {seconds} s", seconds=seconds),
        headers=(("Retry-After", seconds),),
    )


def _read_version(path: Path) -> Version | None:
    """Return the version of the passphrase's file, or None if the file does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _read_pass_phrase(request: Request) -> str:
    try:
        body: Any = load_document(get_required_body(request))
    except NotJson as error:
        raise Problem(400, str(error)) from None
    pass_phrase = body.get("passPhrase") if isinstance(body, dict) and len(body) == 1 else None
    if not isinstance(pass_phrase, str):
        raise Problem(422, "the body must be an object with passPhrase, a text")
    return pass_phrase


def _digest(cookie: str) -> bytes:
    """Return the hash of a cookie. Comparing hashes avoids a timing side channel."""
    return sha256(cookie.encode("utf-8", "replace")).digest()


def _digest_cookie(request: Request) -> bytes:
    return _digest(read_cookie(request, COOKIE) or "")
