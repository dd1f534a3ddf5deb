"""An observer sees the whole workspace and answers nothing, on each route for answers."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from fieldagent.hub.access.caller import ROLES, Caller, Purpose
from fieldagent.hub.api.sos_api import SosApi
from fieldagent.hub.part import list_hub_parts
from fieldagent.hub.records.sos import ALARM
from tests.hub.raising import kit_of
from tests.hub.test_console import call, settle_in, sign_in
from tests.processes import administer, agent, hub, until


def list_answer_calls() -> list[tuple[str, str]]:
    """Return the calls that only a dispatcher may make, including new ones, as method and path."""
    asked: dict[object, Purpose] = {}

    def judge(purpose: Purpose) -> object:
        token = object()
        asked[token] = purpose
        return token

    authentication = Mock(judge=judge)
    host = Mock(authentication=authentication)
    routes = [
        *SosApi(Mock(), authentication, clock=lambda: 0.0).make_routes(),
        *SosApi(Mock(), authentication, clock=lambda: 0.0, kind=ALARM).make_routes(),
        *(route for part in list_hub_parts() for route in part.routes(host)),
    ]
    return [
        (route.method, route.pattern.replace("{id}", "1"))
        for route in routes
        if asked.get(route.judge) is Purpose.ACKNOWLEDGE
    ]


@pytest.mark.parametrize("role", ROLES)
def test_role_determines_view_and_answer_permissions(role: str) -> None:
    caller = Caller(1, "", 1, frozenset(), 2, "User", "Ben", role, True)
    assert (caller.sees_all, caller.may_answer) == {
        "member": (False, False),
        "observer": (True, False),
        "dispatcher": (True, True),
        "administrator": (True, True),
    }[role]


def test_observer_sees_an_sos_but_cannot_answer(tmp_path: Path, database: str) -> None:
    token = settle_in(database)
    administer(database, "user", "role", "Olga", "observer")
    with hub(tmp_path, {"database": database}) as running:
        _, headers, _ = sign_in(running, "olga@example.org")
        mine = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Origin": running.address}
        with agent(tmp_path, kit_of(running, token)) as kit:
            kit.call("POST", "/api/sos", {"text": "leg broken"})
            until(lambda: administer(database, "sos", "list"))
        status, _, body = call(running, "GET", "/api/sos/1", **mine)
        assert status == 200 and json.loads(body)["state"] == "open"
        assert b"leg broken" in call(running, "GET", "/api/items", **mine)[2]
        calls = list_answer_calls()
        assert len(calls) >= 8
        for method, path in calls:
            status, _, body = call(running, method, path, {}, **mine)
            assert status == 403, (method, path, body)
        (incident,) = administer(database, "sos", "list")
        assert incident["state"] == "open"
