"""Routes of the console for passkeys. They exist if the hub has a host name and the library is
installed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fieldagent.http.guard import get_required_body
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub.access import sessions
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.package.strict_json import NotJson, load_document

if TYPE_CHECKING:
    from fieldagent.hub.access.passkeys import Passkeys

log = logging.getLogger(__name__)

INSTALL_COMMAND = "pip install --target /usr/local/lib/fieldagent 'webauthn>=2.5,<3'"
BODY = 8_192
"""Largest number of bytes of a passkey's response. The largest response is an RSA key with an
attestation."""
Enter = Callable[[Request, int, str], Awaitable[Response]]
"""Begins a session of a member in a workspace, which is given by name."""


def make_passkeys(
    store: Store, settings: HubSettings, clock: Callable[[], float]
) -> Passkeys | None:
    """Return the passkeys of the console. Return None if no host name is configured or the library
    is missing.
    """
    if settings.console_address is None:
        return None
    if fault := find_missing_library():
        log.warning("%s", fault)
        return None
    from fieldagent.hub.access.passkeys import Passkeys

    return Passkeys(store, settings.console_address, clock)


def find_missing_library() -> str:
    """Return the reason why passkeys are off, with the fix, or "" if their library is installed."""
    try:
        import fieldagent.hub.access.passkeys  # noqa: F401
    except ImportError as error:
        return (
            f"sign-in with a passkey is off: {error}; see docs/how-to/passkeys.md, or remove"
            f" console-address. {INSTALL_COMMAND} installs it"
        )
    return ""


class PasskeyRoutes:
    def __init__(self, passkeys: Passkeys, authentication: Authentication, enter: Enter) -> None:
        self._passkeys = passkeys
        self._authentication = authentication
        self._enter = enter

    def make_routes(self) -> list[Route]:
        """Return the routes of passkeys. Everyone can use the sign-in; only signed-in users can use
        the management of passkeys.
        """
        signed_in = self._authentication.judge(Purpose.READ)
        below = "/console/passkeys"
        return [
            Route("POST", f"{below}/sign-in", self.answer_sign_in_options),
            Route("POST", f"{below}/session", self.sign_in, body=BODY),
            Route("GET", below, self.list, judge=signed_in),
            Route("POST", f"{below}/new", self.answer_creation_options, judge=signed_in),
            Route("POST", below, self.add, judge=signed_in, body=BODY),
            Route("DELETE", f"{below}/{{number}}", self.remove, judge=signed_in),
        ]

    async def answer_sign_in_options(self, request: Request) -> Response:
        """Return the options with which a browser authenticates a user (WebAuthn, section 5.5)."""
        return _make_json(await self._passkeys.sign_in_options())

    async def sign_in(self, request: Request) -> Response:
        """Begin a session for a user whose passkey was verified. Raises Problem 401, 403."""
        if not sessions.is_same_site(request):
            raise Problem(403, "sign in at the console itself: /console")
        document = _read_document(request)
        member = await self._passkeys.find_owner(document.get("credential"))
        return await self._enter(request, member, str(document.get("workspace", "")))

    async def list(self, request: Request, caller: Caller) -> Response:
        """Return the caller's own passkeys."""
        return make_json_response({"passkeys": await self._passkeys.list_passkeys(caller.member)})

    async def answer_creation_options(self, request: Request, caller: Caller) -> Response:
        """Return the options with which a browser creates a passkey (WebAuthn, section 5.4)."""
        _check_signed_in_here(caller)
        return _make_json(await self._passkeys.make_options(caller.member, caller.name))

    async def add(self, request: Request, caller: Caller) -> Response:
        """Store a passkey that a browser has created, and respond with status 201 and the passkey's
        id. Raises Problem 422 if the name is not one line of text.
        """
        _check_signed_in_here(caller)
        document = _read_document(request)
        name = str(document.get("name", ""))
        if not name.isprintable() or not name.strip():
            raise Problem(422, "name must be one line that names the device")
        number = await self._passkeys.add(caller.member, name, document.get("credential"))
        return make_json_response({"id": number}, 201)

    async def remove(self, request: Request, caller: Caller, number: str) -> Response:
        """Remove one of the caller's own passkeys. Raises Problem 404 if the caller has no such
        passkey.
        """
        _check_signed_in_here(caller)
        if not number.isascii() or not number.isdigit():
            raise Problem(404, "you have no such passkey")
        await self._passkeys.remove(caller.member, int(number[:18]))
        return Response(204)


def _check_signed_in_here(caller: Caller) -> None:
    """Raise Problem unless the caller has signed in at the console. An API key must not create a
    sign-in for a person, because many callers may share the key.
    """
    if caller.key_name != sessions.NAME:
        raise Problem(403, "passkeys are only for users who have signed in at the console")


def _read_document(request: Request) -> dict[str, Any]:
    try:
        body = load_document(get_required_body(request))
    except NotJson as error:
        raise Problem(400, str(error)) from None
    if not isinstance(body, dict):
        raise Problem(422, "the body is an object")
    return body


def _make_json(text: str) -> Response:
    return Response(200, text.encode() + b"\n")
