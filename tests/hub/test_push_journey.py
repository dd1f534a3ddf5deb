"""A push through a real hub to a real kit: its author's details arrive, and its address shows when
it is stored.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.hub.test_journey import folder, message_to
from tests.processes import PATIENCE, administer, agent, hub, until


def test_push_reaches_a_real_kit_with_contact_and_shows_its_state(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    first = administer(database, "init", "Alps")
    ada = administer(database, "user", "add", "Ada")["id"]
    device = administer(database, "device", "add", "kit", "--user", "Ada")
    proof = {"x-api-key": first["apiKey"], "Authorization": f"Bearer {first['token']}"}
    contact = {"phone": "+41 79 000", "email": "ben@example.org"}
    body = message_to(ada, first, "call me")
    body["message"] |= contact
    with hub(folder(tmp_path / "hub"), {"database": database}) as running:
        calls = HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)

        def call(method: str, path: str, content: Any = None) -> tuple[int, str | None, bytes]:
            kind = {} if content is None else {"Content-Type": "application/json"}
            text = None if content is None else json.dumps(content)
            calls.request(method, path, text, {**proof, **kind})
            answer = calls.getresponse()
            return answer.status, answer.getheader("Location"), answer.read()

        def states() -> list[str]:
            assert place is not None
            return [each["state"] for each in json.loads(call("GET", place)[2])["devices"]]

        status, place, nothing = call("POST", "/api/package", body)
        assert (status, nothing, states()) == (200, b"", ["waiting"])
        linked: dict[str, str | None] = {
            "satellite-port": None,
            "hub-address": running.address,
            "hub-token": device["hub-token"],
            "inbound-hook": "cat",
        }
        with agent(folder(tmp_path / "kit"), linked) as kit:
            payload = json.loads(kit.expect('"content":"call me"'))
            (event,) = payload["payloads"][0]["events"]
            assert {name: event.get(name) for name in contact} == contact
            until(lambda: states() == ["stored"])
        calls.close()
