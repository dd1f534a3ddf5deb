"""API that changes groups of users. A group can be the addressee of an item."""

from __future__ import annotations

from typing import Any

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access import people
from fieldagent.hub.access.bodies import (
    make_line_reader,
    make_not_found,
    read_body,
    read_flag,
    read_id,
    read_user,
)
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import Field, WrongValue
from fieldagent.system.wording import sentence

MEMBERS_MAX = 1_000


def _read_users(value: Any) -> frozenset[int]:
    if not isinstance(value, list) or len(value) > MEMBERS_MAX:
        raise WrongValue(
            sentence(
                "must be an array of at most {most} user numbers",
                most=MEMBERS_MAX,
            )
        )
    return frozenset(read_user(each) for each in value)


NEW_GROUP_FIELDS = {
    "name": Field(make_line_reader(), "name", required=True),
    "overSatellite": Field(read_flag, "over_satellite"),
    "members": Field(_read_users, "members"),
}
CHANGE = {
    "overSatellite": Field(read_flag, "over_satellite"),
    "join": Field(_read_users, "join"),
    "leave": Field(_read_users, "leave"),
}


class GroupsApi:
    def __init__(self, acts: AdministrationContext) -> None:
        self._acts = acts

    def make_routes(self) -> list[Route]:
        """Return the routes that change groups. Only administrators can use them. `ReadApi` lists
        groups.
        """
        route = self._acts.route
        return [
            route("POST", "/api/groups", self.add),
            route("PATCH", "/api/groups/{id}", self.change),
            route("DELETE", "/api/groups/{id}", self.remove),
        ]

    async def add(self, request: Request, caller: Caller) -> Response:
        """Add a group with its first members, and respond with status 201 and the group. Raises
        Problem 409 if another group has the name, or if a member is not in the workspace.
        """
        refuse_others(request, ())
        body = read_body(request, NEW_GROUP_FIELDS)

        def store_group(db: Db, now: float) -> dict[str, Any]:
            actor, rule = str(caller.member), body.get("over_satellite", False)
            add, workspace = people.add_group, caller.workspace
            group = add(db, workspace, body["name"], over_satellite=rule, now=now, actor=actor)
            join = body.get("members", frozenset())
            if join:
                people.change_group(db, workspace, group, join=join, now=now, actor=actor)
            return _encode_group(db, workspace, group)

        return make_json_response(await self._acts.carry_out(caller, store_group), 201)

    async def change(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Add or remove members of a group, or change whether its items may go over satellite.
        Return the group. Raises Problem 404, 409.
        """
        refuse_others(request, ())
        body = read_body(request, CHANGE)

        def store_changes(db: Db, now: float) -> dict[str, Any]:
            group = _find_group(db, caller, id)
            actor, workspace = str(caller.member), caller.workspace
            people.change_group(db, workspace, group, **body, now=now, actor=actor)
            return _encode_group(db, workspace, group)

        return make_json_response(await self._acts.carry_out(caller, store_changes))

    async def remove(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Remove a group. Items that were sent to the group remain."""
        refuse_others(request, ())

        def delete_group(db: Db, now: float) -> None:
            group = _find_group(db, caller, id)
            people.remove_group(db, caller.workspace, group, now=now, actor=str(caller.member))

        await self._acts.carry_out(caller, delete_group)
        return Response(204)


def _find_group(db: Db, caller: Caller, text: str) -> int:
    """Return the id of the group. Raises Problem if the group is not in the caller's workspace."""
    group = read_id(text)
    if not any(row["id"] == group for row in people.list_groups(db, caller.workspace)):
        raise make_not_found("group", text)
    return group


def _encode_group(db: Db, workspace: int, group: int) -> dict[str, Any]:
    return next(each for each in people.encode_groups(db, workspace) if each["id"] == str(group))
