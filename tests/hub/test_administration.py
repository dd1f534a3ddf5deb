"""The administration API: who may do what in which workspace, and what is written down of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fieldagent.http.message import Request, Response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import router
from fieldagent.http.target import query_pairs
from fieldagent.hub import credentials, directory
from fieldagent.hub.administration import api as administration
from fieldagent.hub.administration.acts import Acts
from fieldagent.hub.authentication import Authentication
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import Message
from tests.hub.field import Field, field_of


@dataclass
class Office:
    """Workspace 1 is Alps: Ben administers it, Cleo is a dispatcher, Ada a member. Workspace 2 is
    Andes: Dora administers it, and has a device there."""

    alps: Field
    keys: dict[str, str]
    tokens: dict[str, str]
    acts: Acts

    async def ask(self, method: str, path: str, body: Any = None, who: str = "ben") -> Response:
        target, _, query = path.partition("?")
        proof = {"x-api-key": self.keys[who], "authorization": f"Bearer {self.tokens[who]}"}
        content = b"" if body is None else json.dumps(body).encode()
        if body is not None:
            proof["content-length"] = str(len(content))
        request = Request(method, target, query_pairs(query), proof, content)
        try:
            admission = await router(administration.routes(self.acts))(request)
            return await admission.handler(request)
        except Problem as problem:
            return problem.to_response()

    async def done(self, method: str, path: str, body: Any = None, who: str = "ben") -> Any:
        answer = await self.ask(method, path, body, who)
        assert answer.status < 300, answer.body
        return json.loads(answer.body) if answer.body else None

    async def refused(
        self, method: str, path: str, body: Any = None, who: str = "ben"
    ) -> tuple[int, str]:
        answer = await self.ask(method, path, body, who)
        assert answer.status >= 400, answer.body
        return answer.status, answer.body.decode()

    async def acted(self, who: str = "ben") -> list[tuple[str, str, str]]:
        """Of the audit, the oldest first: by whom, what, and its detail."""
        listed = (await self.done("GET", "/api/audit", who=who))["audit"]
        return [
            (each["by"].get("name", each["by"]["kind"]), each["action"], each["detail"])
            for each in reversed(listed)
        ]


@asynccontextmanager
async def office(store: Store) -> AsyncIterator[Office]:
    async with field_of(store) as alps:

        def settle_in(db: Db) -> tuple[dict[str, str], dict[str, str]]:
            now = alps.now
            if store.shared:
                # Those of the field came with their numbers, which PostgreSQL would give again.
                for table in ("workspace", "member", "device"):
                    db.execute("SELECT setval(pg_get_serial_sequence(?, 'id'), 100)", table)
            andes = directory.add_workspace(db, "Andes", now=now)
            dora = directory.add_user(db, andes, "Dora", now=now)
            members = {"ada": 1, "ben": 2, "cleo": 3, "dora": dora}
            directory.set_role(db, 1, 2, "administrator", now=now)
            directory.set_role(db, 1, 3, "dispatcher", now=now)
            directory.set_role(db, andes, dora, "administrator", now=now)
            directory.add_device(db, andes, dora, "kit dora", now=now)
            _, key = credentials.add_key(db, 1, "office", scopes=["administer"], now=now)
            _, other = credentials.add_key(db, andes, "office", scopes=["administer"], now=now)
            _, pusher = credentials.add_key(db, 1, "pusher", now=now)
            keys = {name: other if name == "dora" else key for name in members}
            tokens = {
                name: credentials.add_token(db, member, name, now=now)[1]
                for name, member in members.items()
            }
            return {**keys, "by pusher": pusher}, {**tokens, "by pusher": tokens["ben"]}

        keys, tokens = await store.commit(settle_in)
        authentication = Authentication(store, clock=alps.clock)
        yield Office(alps, keys, tokens, Acts(store, authentication, clock=alps.clock))


async def test_the_audit_of_a_workspace_is_for_its_administrators(store: Store) -> None:
    async with office(store) as hub:
        await hub.alps.push(Message("nothing of a push is here"), target=3)
        assert ("shell", "user role administrator", "2 in workspace 1") in await hub.acted()
        theirs = await hub.acted("dora")
        assert [action for _, action, _ in theirs] == [
            *("workspace add", "user join", "user add", "user role administrator"),
            *("device add", "key add", "token add"),
        ]
        assert not {*theirs} & {*await hub.acted()}
        first = await hub.done("GET", "/api/audit?limit=2")
        second = await hub.done("GET", first["next"])
        found = [each["id"] for each in first["audit"] + second["audit"]]
        assert found == sorted(found, reverse=True)
        for who, why in {
            "ada": "no administrator",
            "cleo": "no administrator",
            "by pusher": "the key may not administer",
        }.items():
            status, told = await hub.refused("GET", "/api/audit", who=who)
            assert (status, why in told) == (403, True)
        assert (await hub.refused("GET", "/api/audit?limit=0"))[0] == 400
