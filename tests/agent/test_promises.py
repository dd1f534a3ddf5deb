"""The promises of a kit, each once with real processes and a simulated modem.

A part that is not connected can pass its own tests and still do nothing in the field.
tests/GUARANTEES.md names the promises that have such a test elsewhere.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.agent.test_agent import command
from tests.hub.test_journey import folder
from tests.processes import Agent, administer, agent, free_port, hub, sky, until


def post_async(kit: Agent, content: str, **members: object) -> int:
    body = {"message": {"content": content}, **members}
    number: int = kit.call("POST", "/api/package/async", body).body["id"]
    return number


def active(kit: Agent) -> int:
    number: int = kit.call("GET", "/api/status").body["sos"]["active"]
    return number


def steps(kit: Agent) -> list[str]:
    entries = kit.call("GET", "/api/sos").body["incident"]["steps"]
    return [each["state"] for each in entries if not each.get("unauthenticated")]


@pytest.mark.full
def test_sos_is_repeated_until_seen_after_failed_connections(
    tmp_path: Path,
) -> None:
    database, port = str(tmp_path / "hub.sqlite3"), free_port()
    administer(database, "init", "Alps")
    tokens = []
    for name in ("ada", "ben"):
        user = administer(database, "user", "add", name)["id"]
        device = administer(database, "device", "add", name, "--user", str(user))
        tokens.append(device["hub-token"])
    linked = {"hub-address": f"http://127.0.0.1:{port}"}
    adas = {**linked, "hub-token": tokens[0], "sos-repeat": "2"}
    bens = {**linked, "hub-token": tokens[1], "satellite-port": None, "inbound-hook": "cat"}
    with ExitStack() as stack:
        ada = stack.enter_context(agent(folder(tmp_path / "ada"), adas))
        for failure in ("the satellite modem is away", "no link to the hub"):
            until(lambda: any(failure in line for line in ada.output()))  # noqa: B023
        post_async(ada, "help", priority=100)
        above = stack.enter_context(sky(tmp_path / "ada"))
        for _ in range(3):
            above.expect("SOS message")
        assert active(ada) == 1
        settings = {"database": database, "port": str(port)}
        stack.enter_context(hub(folder(tmp_path / "hub"), settings))
        ben = stack.enter_context(agent(folder(tmp_path / "ben"), bens))
        ben.expect('"help"')
        # The hub has it over IP, so satellite is not necessary. A person has not seen it yet.
        until(lambda: "at the hub" in steps(ada))
        until(lambda: "heard by" in steps(ada))
        assert active(ada) == 1
        administer(database, "user", "role", "ben", "dispatcher")
        administer(database, "sos", "acknowledge", "1", "coming", "--by", "ben")
        until(lambda: "seen by" in steps(ada))
        notice = "Message from the hub  SOS seen by ben: coming"
        until(lambda: notice in command(ada, "inbound", "list").stdout)
        (sent,) = ada.call("GET", "/api/packages").body["packages"]
        assert sent["text"] == "help"


def test_sos_is_sent_on_reserve_when_budget_is_spent(tmp_path: Path) -> None:
    budget = {"satellite-credits-per-day": "3", "satellite-sos-reserve": "2"}
    with sky(tmp_path), agent(tmp_path, budget) as kit:
        assert kit.post("the only one").body["status"] == "Delivered"
        waits = post_async(kit, "too much " * 100)
        assert kit.post("help", priority=100).body["status"] == "Delivered"
        delivery = kit.call("GET", f"/api/package/{waits}").body["channels"]["Satellite"]
        assert delivery["status"] is None
        assert "2 of 3 credits, 2 of them kept for an SOS" in delivery["reason"]


def test_call_off_of_sos_is_sent_when_budget_is_spent(tmp_path: Path) -> None:
    budget = {"satellite-credits-per-day": "4", "satellite-sos-reserve": "3"}
    with sky(tmp_path) as above, agent(tmp_path, budget) as kit:
        assert kit.post("the only one").body["status"] == "Delivered"
        waits = post_async(kit, "too much " * 100, priority=99)
        assert kit.post("help", priority=100).body["status"] == "Delivered"
        done = command(kit, "sos", "--cancel")
        assert done.stdout.endswith("called off; everyone who may have received it is notified\n")
        above.expect('"state": "called off"')
        delivery = kit.call("GET", f"/api/package/{waits}").body["channels"]["Satellite"]
        assert delivery["status"] is None


def test_same_text_twice_is_delivered_as_two_messages(tmp_path: Path) -> None:
    """In both directions, only an item with the same number is recognised as a repetition."""
    with sky(tmp_path) as above, agent(tmp_path, {"inbound-hook": "cat"}) as kit:
        for _ in "12":
            assert kit.post("arrived").body["status"] == "Delivered"
            above.expect('"arrived"')
        assert not any("(again)" in line for line in above.output())
        for _ in "12":
            above.type("mt come home")
            kit.expect('"come home"')


def test_gathering_position_shows_reason_and_is_sent_with_next_message(tmp_path: Path) -> None:
    with sky(tmp_path), agent(tmp_path) as kit:
        assert kit.post("arrived").body["status"] == "Delivered"
        body = {"location": {"latitude": 46.5, "longitude": 7.25}, "gather": 3600}
        number = kit.call("POST", "/api/package/async", body).body["id"]
        delivery = kit.call("GET", f"/api/package/{number}").body["channels"]["Satellite"]
        assert delivery["status"] is None
        assert delivery["reason"].startswith("waits for other items to share a message; next try")
        assert kit.post("the bridge is out").body["status"] == "Delivered"
        assert kit.call("GET", f"/api/package/{number}").body["status"] == "Delivered"


def test_expired_package_is_never_sent(tmp_path: Path) -> None:
    with agent(tmp_path) as kit:
        short = post_async(kit, "short", timeToLive=1)
        post_async(kit, "long", timeToLive=3600)
        until(lambda: kit.call("GET", f"/api/package/{short}").body["status"] == "Error")
        with sky(tmp_path) as above:
            above.expect('"long"')
            until(lambda: kit.call("GET", "/api/queue").body["queued"] == 0)
            assert not any('"short"' in line for line in above.output())


@pytest.mark.full
def test_recovery_command_runs_while_hub_is_unreachable(tmp_path: Path) -> None:
    """The shortest possible time before recovery is a minute."""
    came = tmp_path / "came"
    settings = {
        "satellite-port": None,
        "hub-address": f"http://127.0.0.1:{free_port()}",
        "hub-token": "nobody",
        "cellular-recovery-command": f"touch {came}",
        "cellular-recovery-after": "60",
    }
    with agent(tmp_path, settings):
        until(came.exists)
