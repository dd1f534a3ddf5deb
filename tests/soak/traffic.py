"""Callers that post and push: they repeat with the same key until they have an answer."""

from __future__ import annotations

import random
import threading
import time
from http.client import HTTPException

from tests.hub.test_cluster import push
from tests.hub.test_journey import message_to
from tests.processes import PATIENCE
from tests.soak.ledger import Ledger
from tests.soak.world import Kit, World


def keep_posting(
    kit: Kit, channel: str, ledger: Ledger, stop: threading.Event, pause: float
) -> None:
    """Act as one of many callers, which rests up to `pause` seconds between two posts."""
    while not stop.wait(random.uniform(0, pause)):
        text = f"{kit.name} {channel[0]} {ledger.number()}"
        ledger.accept(channel, text)
        body = _post(kit, channel, text, ledger.given_up)
        if channel == "Satellite" and body["status"] == "Delivered" and not kit.above.has(text):
            ledger.absent.append(text)
        ledger.answer(channel, text, body)


def _post(kit: Kit, channel: str, text: str, given_up: threading.Event) -> dict[str, object]:
    """Return the final answer: the agent may be killed meanwhile, any number of times."""
    body = {"message": {"content": text}, "channels": [channel]}
    failures = 0
    while True:
        try:
            kit.up.wait(PATIENCE)
            answer = kit.agent.call("POST", "/api/package", body, **{"Idempotency-Key": text})
        except (OSError, HTTPException):
            if given_up.is_set():
                return {"status": "nothing at the end", "channels": channel}
            failures += 1
            assert failures < 10 * PATIENCE, f"{kit.name} does not come back"
            time.sleep(0.1)
        else:
            assert answer.status == 200, answer
            package: dict[str, object] = answer.body
            return package


def keep_pushing(world: World, ledger: Ledger, stop: threading.Event, pause: float) -> None:
    """Push from outside to each kit in turn."""
    while not stop.wait(random.uniform(0, pause)):
        number = ledger.number()
        at = number % len(world.kits)
        text = f"push {number} to {world.kits[at].name}"
        ledger.accept(f"push to {world.kits[at].name}", text)
        push(world.front.port, world.proof, message_to(world.members[at], world.first, text))
