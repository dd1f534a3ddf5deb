"""Console: a web page of the hub for people who monitor kits and answer an SOS.

A user signs in with a password and can change the password in the console. A user must change a
password that an administrator has created at the first sign-in. The page consists of files and gets
its data from the read API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from fieldagent.http.guard import get_required_body
from fieldagent.http.headers import set_cookie
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route, make_redirect
from fieldagent.hub.access import directory, sessions
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import ADMINISTRATOR, Caller, Purpose
from fieldagent.hub.console import passkeys
from fieldagent.hub.console.passkeys import PasskeyRoutes
from fieldagent.hub.operator.registry import get_operators
from fieldagent.hub.part import list_console_parts, list_hub_parts
from fieldagent.hub.settings import HubSettings, is_behind_tls
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.page import files, map_tiles
from fieldagent.page.map_tiles import CarriedMap, TileServer
from fieldagent.system import scrypt
from fieldagent.system.wording import sentence

NAMES = (
    *files.CATALOGUES,
    "acts.js",
    "administration.js",
    "chart.js",
    "console.css",
    "console.js",
    "console.webmanifest",
    "desk.js",
    "devices.js",
    "figures.js",
    "fleet.js",
    "hands.js",
    "history.js",
    "hub.js",
    "icon.svg",
    "icon-180.png",
    "keys.js",
    "local.js",
    "passkey.js",
    "place.js",
    "radio_key.js",
    "receivers.js",
    "records.js",
    "ring.js",
    "rows.js",
    "talk.js",
    "trouble.js",
    "usage.js",
    "users.js",
    "webhooks.js",
    "words.js",
    "world.json",
    "write.js",
)
PAGES = (
    *("/console", "/console/sos/{id}", "/console/alarm/{id}", "/console/kit/{id}"),
    *("/console/administration", "/console/administration/{subject}"),
    *("/console/fleet", "/console/account"),
)
_SUBJECTS = ("devices", "radio", "users", "keys", "tokens", "webhooks", "letters", "audit")
"""Subjects of administration in the core. Each has a page."""
MEMBERS = ("username", "password", "workspace", "newPassword")
PASSWORD_LEAST, PASSWORD_MOST = 10, 200
"""Smallest and largest number of characters of a password that a user chooses in the console."""


def list_subjects() -> list[str]:
    """Return the subjects of administration, those of the core and of all extensions."""
    return [*_SUBJECTS, *(name for part in list_hub_parts() for name in part.console_subjects)]


class Console:
    def __init__(
        self,
        store: Store,
        authentication: Authentication,
        settings: HubSettings,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._authentication = authentication
        self._clock = clock
        self._settings = settings
        self._passkeys = passkeys.make_passkeys(store, settings, clock)

    def make_routes(self) -> list[Route]:
        """Return the routes of the console: pages, files, the map, passkeys if the hub has them,
        and sign-in.
        """
        settings, signed_in = self._settings, self._authentication.judge(Purpose.READ)
        tiles = settings.map_tiles and TileServer(
            settings.map_tiles, settings.map_attribution or ""
        )
        pictures_of = tiles.get_origin() if tiles else ""
        return [
            *files.make_page_routes(
                PAGES,
                "/console/file",
                __name__,
                NAMES,
                pictures_of,
                list_subjects(),
                extension_packages=list_console_parts(),
            ),
            *map_tiles.make_map_routes(CarriedMap(settings.map_file), signed_in, tiles or None),
            *self._make_passkey_routes(),
            Route("GET", "/", make_redirect("/console")),
            Route("GET", "/console/session", self.answer_signed_in, judge=signed_in),
            Route("POST", "/console/session", self.sign_in, body=4_096),
            Route("DELETE", "/console/session", self.sign_out),
        ]

    def _make_passkey_routes(self) -> list[Route]:
        if self._passkeys is None:
            return []
        return PasskeyRoutes(self._passkeys, self._authentication, self._enter).make_routes()

    async def answer_signed_in(self, request: Request, caller: Caller) -> Response:
        """Return the user who has signed in, the rights of the user, and the operators of the
        hub.
        """
        return make_json_response(
            {
                "id": str(caller.member),
                "name": caller.name,
                "role": caller.role,
                "workspaceId": str(caller.workspace),
                "mayPush": caller.may_push,
                "mayAnswer": caller.may_answer,
                "mayAdminister": caller.role == ADMINISTRATOR,
                "operators": list(get_operators(self._settings.operators)),
            }
        )

    async def sign_in(self, request: Request) -> Response:
        """Begin a session, and respond with status 204 and the session's cookie. Raises Problem 403
        if the request comes from another site, or if it contains a one-time password and no new
        password.
        """
        if not sessions.is_same_site(request):
            raise Problem(403, "sign in at the console itself: /console")
        members = _read_members(request)
        member = await self._authentication.find_password_owner(
            request, members["username"], members["password"]
        )
        chosen, now = members["newPassword"], self._clock()
        hashed = await _hash_chosen(chosen, members["password"]) if chosen else None

        def begin(db: Db) -> str | Problem:
            if hashed is not None:
                # A returned Problem does not roll back the transaction, so check the workspace
                # before the password is changed.
                workspace = self._choose_workspace(db, member, members["workspace"])
                if isinstance(workspace, Problem):
                    return workspace
                directory.set_password(db, member, hashed, now=now, actor=str(member))
            elif directory.must_choose_password(db, member):
                return Problem(
                    403,
                    "this password is valid for one sign-in: choose your own, as newPassword",
                    members={"choose": True},
                )
            return self._begin(db, member, members["workspace"])

        return await self._make_signed_in(request, member, begin)

    async def _enter(self, request: Request, member: int, workspace: str) -> Response:
        """Begin a session for a member whose passkey was verified."""
        await self._authentication.devices.load()
        return await self._make_signed_in(
            request, member, lambda db: self._begin(db, member, workspace)
        )

    def _begin(self, db: Db, member: int, workspace_name: str) -> str | Problem:
        workspace = self._choose_workspace(db, member, workspace_name)
        if isinstance(workspace, Problem):
            return workspace
        return sessions.begin_session(db, member, workspace, self._clock())

    def _choose_workspace(self, db: Db, member: int, workspace_name: str) -> int | Problem:
        """Return the workspace for the sign-in: the named workspace, or the only workspace of the
        member.
        """
        workspace_names = [str(each) for each in sessions.list_workspaces(db, member)]
        workspace = workspace_name or (workspace_names[0] if len(workspace_names) == 1 else "")
        if workspace in workspace_names:
            return int(workspace)
        which = (
            sentence("workspace must be one of {known}", known=", ".join(workspace_names))
            if workspace_names
            else sentence("only a user of type User may do this")
        )
        return Problem(403, sentence("you cannot sign in to that workspace: {which}", which=which))

    async def _make_signed_in(
        self, request: Request, member: int, begin: Callable[[Db], str | Problem]
    ) -> Response:
        token = await self._store.commit(begin)
        if isinstance(token, Problem):
            raise token
        secure = is_behind_tls(self._settings)
        device_cookie = self._authentication.devices.make_cookie(request, member, secure=secure)
        return Response(
            204, headers=(self._make_cookie(token, sessions.SESSION_LIFETIME_S), device_cookie)
        )

    async def sign_out(self, request: Request) -> Response:
        """End the session and delete the cookie, if the request comes from a page of the
        console.
        """
        token = sessions.read_token(request)
        if token is not None and sessions.is_same_site(request):
            await self._store.commit(lambda db: sessions.end_session(db, token))
        return Response(204, headers=(self._make_cookie("", 0),))

    def _make_cookie(self, value: str, seconds: float) -> tuple[str, str]:
        """Return the cookie header. If browsers reach the hub over TLS, they send the cookie only
        over TLS.
        """
        secure = is_behind_tls(self._settings)
        return set_cookie(sessions.COOKIE, value, seconds, secure=secure)


async def _hash_chosen(password: str, old_password: str) -> str:
    """Return the hash of a password that a user has chosen. Raises Problem if the password is too
    short, too long, or the same as before.
    """
    if not PASSWORD_LEAST <= len(password) <= PASSWORD_MOST or password == old_password:
        expected = sentence(
            "must be different, with {least} to {most} characters",
            least=PASSWORD_LEAST,
            most=PASSWORD_MOST,
        )
        members = {"choose": True}
        raise Problem(
            422,
            sentence("the new password {what}", what=expected),
            errors=[(expected, "/newPassword")],
            members=members,
        )
    return await trio.to_thread.run_sync(scrypt.hash_password, password)


def _read_members(request: Request) -> dict[str, str]:
    try:
        body: Any = load_document(get_required_body(request))
    except NotJson as error:
        raise Problem(400, str(error)) from None
    if not isinstance(body, dict) or not body.keys() <= set(MEMBERS):
        raise Problem(
            422, sentence("the body must be an object with {members}", members=", ".join(MEMBERS))
        )
    members = {name: body.get(name, "") for name in MEMBERS}
    if not all(isinstance(value, str) and value.isprintable() for value in members.values()):
        raise Problem(
            422, sentence("{members} must be text in one line", members=", ".join(MEMBERS))
        )
    return members
