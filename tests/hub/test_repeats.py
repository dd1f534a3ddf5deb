"""A repeated request with its Idempotency-Key, after the hub's answer was lost: it is carried out
once and gets the first answer.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fieldagent.hub.store.contract import Store
from tests.hub.test_administration import office
from tests.hub.test_sos_desk import HELP, desk

DEEDS = {
    "acknowledge": ({"note": "heli is up"}, "seen"),
    "take-over": ({"note": "my watch"}, "taken over"),
    "hand-over": ({"to": "3", "note": "heli at 14:00"}, "handed over"),
    "note": ({"text": "two are with her"}, "note"),
    "answer": ({"text": "stay where you are"}, "answered"),
    "close": ({"reason": "in hospital"}, "closed"),
}


@pytest.mark.parametrize("deed", DEEDS)
async def test_repeated_sos_request_is_carried_out_once(store: Store, deed: str) -> None:
    body, event = DEEDS[deed]
    path = f"/api/sos/1/{deed}"
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        if deed in ("take-over", "hand-over"):
            await hub.told("POST", "/api/sos/1/acknowledge", who=3 if deed == "take-over" else 2)
        first = await hub.told("POST", path, body, key="a1")
        hub.alps.now += 60
        assert await hub.told("POST", path, body, key="a1") == first
        assert (await hub.events()).count(event) == 1
        written = await hub.alps.rows("SELECT * FROM item WHERE source_device IS NULL")
        assert len(written) == (deed == "answer")
        # A caller cannot use that key for another request. Another caller's key is independent.
        refused = await hub.call("POST", "/api/sos/1/note", {"text": "another"}, key="a1")
        assert refused.status == 422 and b"Idempotency-Key 'a1' had another body" in refused.body
        assert (await hub.call("POST", path, body, key="x" * 300)).status == 400
        await hub.told("POST", "/api/sos/1/note", {"text": "of Cleo's"}, who=3, key="a1")


async def test_rejected_request_can_be_repeated_with_the_same_key(store: Store) -> None:
    async with desk(store) as hub:
        await hub.alps.sends(1, HELP)
        await hub.told("POST", "/api/sos/1/acknowledge", who=3)
        over = {"to": "3", "note": ""}
        assert (await hub.call("POST", "/api/sos/1/hand-over", over, key="a")).status == 409
        await hub.told("POST", "/api/sos/1/take-over")
        incident = await hub.told("POST", "/api/sos/1/hand-over", over, key="a")
        assert incident["askedToTakeOver"]["name"] == "Cleo"


async def test_repeated_command_and_key_change_are_ordered_once(store: Store) -> None:
    async with office(store) as hub:

        async def asked(path: str, body: Any, key: str) -> Any:
            answer = await hub.ask("POST", path, body, key=key)
            assert answer.status == 202, answer.body
            return json.loads(answer.body)

        await hub.done("POST", "/api/devices/1/token")
        status = {"command": "status", "credits": 3}
        first = await asked("/api/devices/1/commands", status, "a")
        hub.alps.now += 60
        assert await asked("/api/devices/1/commands", status, "a") == first
        assert await asked("/api/devices/1/commands", status, "b") != first
        assert len(await hub.alps.rows("SELECT * FROM command")) == 2
        change = await asked("/api/radio-key", {"by": "ip"}, "c")
        hub.alps.now += 60
        assert await asked("/api/radio-key", {"by": "ip"}, "c") == change
        assert [action for _, action, _ in await hub.acted()].count("radio-key change") == 1
        again = await asked("/api/radio-key", {"by": "ip"}, "d")
        assert again["change"]["began"] == hub.alps.now
