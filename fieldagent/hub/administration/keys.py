"""API that creates and revokes API keys of the workspace and tokens of its members. A secret is
returned only in the response that creates it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access import credentials, directory
from fieldagent.hub.access.bodies import (
    make_choices_reader,
    make_conflict,
    make_integer_reader,
    make_line_reader,
    make_not_found,
    read_body,
    read_id,
    read_user,
)
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import ITEMS, Field

DAY_S = 86_400.0
RATE_MAX = 1_000_000
SCOPES = (*ITEMS, *(each.value for each in Purpose if each is not Purpose.PUSH))
RATE = {
    "perMinute": Field(make_integer_reader(1, RATE_MAX), "per_minute"),
    "burst": Field(make_integer_reader(1, RATE_MAX), "burst"),
}
NEW_KEY = {
    "name": Field(make_line_reader(), "name", required=True),
    "scopes": Field(make_choices_reader(SCOPES), "scopes"),
    "days": Field(make_integer_reader(1, 36_500), "days"),
    **RATE,
}
NEW_TOKEN = {
    "name": Field(make_line_reader(), "name", required=True),
    "userId": Field(read_user, "member", required=True),
    "days": Field(make_integer_reader(1, 36_500), "days"),
}


class KeysApi:
    def __init__(self, acts: AdministrationContext) -> None:
        self._acts = acts

    def make_routes(self) -> list[Route]:
        """Return the routes for API keys and tokens. Only administrators can use them."""
        route = self._acts.route
        return [
            route("GET", "/api/keys", partial(self.list, "key")),
            route("POST", "/api/keys", self.add_key),
            route("PATCH", "/api/keys/{id}", self.change_rate),
            route("DELETE", "/api/keys/{id}", partial(self.revoke, "key")),
            route("GET", "/api/tokens", partial(self.list, "token")),
            route("POST", "/api/tokens", self.add_token),
            route("DELETE", "/api/tokens/{id}", partial(self.revoke, "token")),
        ]

    async def list(self, kind: str, request: Request, caller: Caller) -> Response:
        """Return the workspace's keys or tokens, without their secrets."""
        refuse_others(request, ())
        rows = await self._acts.store.read(
            lambda db: credentials.list_credentials(db, kind, caller.workspace)
        )
        return make_json_response({f"{kind}s": [_encode_credential(kind, row) for row in rows]})

    async def add_key(self, request: Request, caller: Caller) -> Response:
        """Create an API key, and respond with status 201 and the key. The key is shown only once,
        because the hub stores only its digest. If `days` is missing, the key does not expire.
        """
        refuse_others(request, ())
        body = read_body(request, NEW_KEY)
        days = body.pop("days", None)

        def store_key(db: Db, now: float) -> dict[str, Any]:
            expires = None if days is None else now + days * DAY_S
            id_, key = credentials.add_key(
                db, caller.workspace, **body, expires=expires, now=now, actor=str(caller.member)
            )
            return {"id": id_, "apiKey": key}

        return make_json_response(await self._acts.carry_out(caller, store_key), 201)

    async def add_token(self, request: Request, caller: Caller) -> Response:
        """Add a token for the caller, or for a member that is not a person. The caller may not
        create a token for another person.
        """
        refuse_others(request, ())
        body = read_body(request, NEW_TOKEN)
        member, days = body.pop("member"), body.pop("days", None)

        def store_token(db: Db, now: float) -> dict[str, Any]:
            if not directory.is_member(db, caller.workspace, member):
                raise make_conflict("is not a user of this workspace", "userId")
            if member != caller.member and directory.is_person(db, member):
                raise Refused(
                    "you cannot create a token for another person: they must create their own"
                )
            directory.check_only_workspace(db, caller.workspace, member)
            expires = None if days is None else now + days * DAY_S
            id_, token = credentials.add_token(
                db, member, **body, expires=expires, now=now, actor=str(caller.member)
            )
            return {"id": id_, "token": token}

        return make_json_response(await self._acts.carry_out(caller, store_token), 201)

    async def change_rate(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Set the rate of a key. A value that is missing in the body is not changed. Raises Problem
        404, or 409 if the key is revoked.
        """
        refuse_others(request, ())
        rate = {"per_minute": None, "burst": None, **read_body(request, RATE)}

        def store_rate(db: Db, now: float) -> dict[str, Any]:
            key, actor = _find_credential(db, "key", caller, id)["id"], str(caller.member)
            return credentials.set_rate(db, caller.workspace, key, **rate, now=now, actor=actor)

        return make_json_response(await self._acts.carry_out(caller, store_rate))

    async def revoke(self, kind: str, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Revoke a key or token. If it is revoked already, nothing is changed."""
        refuse_others(request, ())

        def revoke_credential(db: Db, now: float) -> None:
            row, actor = _find_credential(db, kind, caller, id), str(caller.member)
            if row["id"] == caller.key:
                raise Refused("this call uses that key: revoke it with another key")
            if row["revoked"] is None:
                credentials.revoke_credential(
                    db, kind, caller.workspace, row["id"], now=now, actor=actor
                )

        await self._acts.carry_out(caller, revoke_credential)
        return Response(204)


def _find_credential(db: Db, kind: str, caller: Caller, text: str) -> dict[str, Any]:
    """Return the credential. Raises Problem if the credential is not in the caller's workspace."""
    row = credentials.find_credential(db, kind, caller.workspace, read_id(text))
    if row is None:
        raise make_not_found(kind, text)
    return row


def _encode_credential(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    answer = {name: row[name] for name in ("id", "name", "expires", "revoked")}
    if kind == "token":
        return {**answer, "userId": str(row["user"])}
    scopes = row["kinds"].split()
    return {**answer, "scopes": scopes, "perMinute": row["perMinute"], "burst": row["burst"]}
