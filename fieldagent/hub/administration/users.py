"""API that adds and changes the users of one workspace.

A user in several workspaces has one account. Only the operator of the hub can change such an
account, for example its password.
"""

from __future__ import annotations

from typing import Any

import trio

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access import directory, people, secret
from fieldagent.hub.access.bodies import (
    make_choice_reader,
    make_line_reader,
    make_not_found,
    read_body,
    read_flag,
    read_id,
)
from fieldagent.hub.access.caller import ROLES, Caller
from fieldagent.hub.access.directory import ONE_TIME_LIFETIME_S, TYPES, Refused
from fieldagent.hub.access.subject import Subject
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.administration.deletion import delete_subject
from fieldagent.hub.api import reading
from fieldagent.hub.field import kept_letters
from fieldagent.hub.field.mobile_originated import MobileOriginatedReceiver
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import Field, WrongValue
from fieldagent.system import scrypt


def _read_radios(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongValue('must be an array of the ids of radios, such as ["!a1b2c3d4"]')
    return value


NEW_USER_FIELDS = {
    "name": Field(make_line_reader(), "name", required=True),
    "type": Field(make_choice_reader(TYPES), "type_"),
    "email": Field(make_line_reader(), "email"),
    "role": Field(make_choice_reader(ROLES), "role"),
    "overSatellite": Field(read_flag, "over_satellite"),
    "signIn": Field(read_flag, "sign_in"),
}
CHANGE = {
    "role": Field(make_choice_reader(ROLES), "role"),
    "overSatellite": Field(read_flag, "over_satellite"),
    "allPositions": Field(read_flag, "all_positions"),
    "disabled": Field(read_flag, "disabled"),
    "radios": Field(_read_radios, "radios"),
}


class UsersApi:
    def __init__(
        self, acts: AdministrationContext, mobile_originated: MobileOriginatedReceiver
    ) -> None:
        self._acts = acts
        self._mobile_originated = mobile_originated

    def make_routes(self) -> list[Route]:
        """Return the routes that change users. Only administrators can use them. `ReadApi` lists
        users.
        """
        route = self._acts.route
        return [
            route("POST", "/api/users", self.add),
            route("PATCH", "/api/users/{id}", self.change),
            route("DELETE", "/api/users/{id}", self.remove),
            route("POST", "/api/users/{id}/password", self.set_new_password),
        ]

    async def add(self, request: Request, caller: Caller) -> Response:
        """Add a user. If the body contains `signIn`, also create a password for the first
        sign-in.
        """
        refuse_others(request, ())
        body = read_body(request, NEW_USER_FIELDS)
        role, password = body.pop("role", "member"), ""
        if body.pop("sign_in", False):
            password = secret.make_password()
            body["password"] = await _hash_password(password)

        def store_user(db: Db, now: float) -> dict[str, Any]:
            actor = str(caller.member)
            until = now + ONE_TIME_LIFETIME_S if password else None
            id_ = directory.add_user(
                db, caller.workspace, **body, until=until, now=now, actor=actor
            )
            if role != "member":
                directory.set_role(db, caller.workspace, id_, role, now=now, actor=actor)
            shown_password = {"password": password, "until": until} if password else {}
            return {"id": str(id_), **shown_password}

        return make_json_response(await self._acts.carry_out(caller, store_user), 201)

    async def change(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Change everything that the body contains, or nothing. Return the user. Raises Problem
        404, 409. An administrator cannot change their own role or disable themselves.
        """
        refuse_others(request, ())
        body = read_body(request, CHANGE)

        def store_changes(db: Db, now: float) -> dict[str, Any]:
            member, actor = _find_member(db, caller, id), str(caller.member)
            if body.keys() & {"role", "disabled"}:
                _check_other(caller, member)
            if "role" in body:
                directory.set_role(db, caller.workspace, member, body["role"], now=now, actor=actor)
            if "over_satellite" in body:
                over_satellite = body["over_satellite"]
                directory.add_member(
                    db,
                    caller.workspace,
                    member,
                    over_satellite=over_satellite,
                    now=now,
                    actor=actor,
                )
            if "all_positions" in body:
                workspace, all_positions = caller.workspace, body["all_positions"]
                people.set_position_filter(
                    db, workspace, member, all_positions=all_positions, now=now, actor=actor
                )
            if "radios" in body:
                workspace, radios = caller.workspace, body["radios"]
                people.set_radios(db, workspace, member, radios, now=now, actor=actor)
            accepted_count = 0
            if "disabled" in body:
                directory.check_only_workspace(db, caller.workspace, member)
                disabled_at = now if body["disabled"] else None
                devices = directory.set_disabled(
                    db, "member", member, disabled_at, now=now, actor=actor
                )
                accepted_count = kept_letters.accept_letters(db, self._mobile_originated, devices)
            (shown_user,), _ = reading.list_users(db, caller, member + 1, 1)
            return {**shown_user, "deadLettersTaken": accepted_count}

        return make_json_response(await self._acts.carry_out(caller, store_changes))

    async def remove(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Delete a user permanently. This also deletes the user's devices, the items that the user
        sent, and the items that were only for this user.
        """
        refuse_others(request, ())

        def find(db: Db, now: float) -> Subject:
            member = _find_member(db, caller, id)
            _check_other(caller, member)
            directory.check_only_workspace(db, caller.workspace, member)
            return Subject("user", member, "")

        await delete_subject(self._acts, caller, find)
        return Response(204)

    async def set_new_password(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return a new password that is valid for one sign-in. At this sign-in, the user must
        choose another password.
        """
        refuse_others(request, ())
        password = secret.make_password()
        hashed = await _hash_password(password)

        def store_password(db: Db, now: float) -> float:
            member, until = _find_member(db, caller, id), now + ONE_TIME_LIFETIME_S
            _check_other(caller, member)
            directory.check_only_workspace(db, caller.workspace, member)
            actor = str(caller.member)
            directory.set_password(db, member, hashed, until=until, now=now, actor=actor)
            return until

        until = await self._acts.carry_out(caller, store_password)
        return make_json_response({"password": password, "until": until})


async def _hash_password(password: str) -> str:
    return await trio.to_thread.run_sync(scrypt.hash_password, password)


def _find_member(db: Db, caller: Caller, text: str) -> int:
    """Return the id of the member. Raises Problem if the member is not in the caller's
    workspace.
    """
    member = read_id(text)
    if not directory.is_member(db, caller.workspace, member):
        raise make_not_found("user", text)
    return member


def _check_other(caller: Caller, member: int) -> None:
    """Raise Refused if the member is the caller. So administrators cannot lock themselves out, and
    at least one administrator remains.
    """
    if caller.member == member:
        raise Refused(
            "you cannot change your own role or disable yourself: ask another administrator."
            " Change your password where you sign in"
        )
