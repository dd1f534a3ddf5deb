"""The view of a person at the kit: the SOS first, sent messages, and the reason of each wait."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_agent import command
from tests.processes import MODULE, Agent, Running, administer, agent, hub, sky, until


def test_status_shows_sos_first(tmp_path: Path) -> None:
    with sky(tmp_path), agent(tmp_path, {"sos-repeat": "600"}) as kit:
        assert command(kit, "status").stdout.startswith("fieldagent ")
        assert "fieldagent_sos_active 0\n" in kit.call("GET", "/metrics").body
        kit.post("hello")
        for host, status in (("localhost:8000", 200), ("kit.example:8000", 403)):
            # These are the headers behind `ssh -L 8000:127.0.0.1:9091`.
            assert kit.call("GET", "/", Host=host).status == status
        assert command(kit, "sos", "--yes", "Leg broken").returncode == 0
        state = kit.call("GET", "/api/status").body["sos"]
        assert state["active"] == 1
        sos = state["incident"]
        assert [(each["id"], each["text"]) for each in sos["items"]] == [(2, "Leg broken")]
        assert 0 < sos["nextTry"] - sos["raised"] <= 600 + 60
        first = command(kit, "status").stdout.splitlines()[0]
        assert re.match("SOS [0-9]{3} raised [^;]+; left by Satellite [^;]+; next try ", first)
        assert "fieldagent_sos_active 1\n" in kit.call("GET", "/metrics").body
        command(kit, "sos", "--cancel")
        state = kit.call("GET", "/api/status").body["sos"]
        assert (state["active"], state["incident"]["nextTry"]) == (0, None)


def test_status_reports_sos_that_no_channel_can_send(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        assert command(kit, "sos", "--yes").returncode != 0
        sos = kit.call("GET", "/api/status").body["sos"]["incident"]
        assert sos["nextTry"] is None
        assert "no channel can send it" in command(kit, "status").stdout.splitlines()[0]
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        kit.call("POST", "/api/package/async", {"message": {"content": "x"}, "priority": 100})
        until(lambda: kit.call("GET", "/api/status").body["sos"]["incident"]["nextTry"])
        sos = kit.call("GET", "/api/sos").body["incident"]
        assert [each["state"] for each in sos["steps"]] == ["raised"], (
            "the SOS has not left the kit"
        )
        assert len(sos["items"]) == 2, "one incident"


def has_packages(kit: Agent) -> bool:
    return bool(kit.call("GET", "/api/packages").body["packages"])


def test_command_reports_accepted_package_when_agent_dies(tmp_path: Path) -> None:
    """A person who repeats the command would send the item twice."""
    waits: dict[str, str | None] = {"satellite-port": str(tmp_path / "nobody")}
    for words, known in (
        (("send", "message", "hello"), "Package 1 was accepted: `fieldagent show 1` shows its"),
        (("sos", "--yes", "--until-seen", "leg broken"), "the SOS is raised, and the agent"),
    ):
        home = tmp_path / words[0]
        home.mkdir()
        with agent(home, waits) as kit:
            with Running([*MODULE, *words, "--port", str(kit.port)]) as waiting:
                until(partial(has_packages, kit))
                # By then the previous request was answered.
                kit.call("GET", "/api/status")
                kit.kill()
                line = waiting.expect("fieldagent: ")
            assert line.startswith(f"fieldagent: {known}") and "answer" in line


def test_sent_packages_are_listed_newest_first(tmp_path: Path) -> None:
    place = {"latitude": 47.1, "longitude": 8.2}
    with sky(tmp_path), agent(tmp_path) as kit:
        kit.post("first\x1b[2J<b>")
        kit.call("POST", "/api/package", {"location": place, "priority": 100})
        kit.call("POST", "/api/package", {"waypoint": {**place, "name": "Hut", "notes": "cold"}})
        kit.post("nowhere", channels=["Radio"])
        kit.call("POST", "/api/package", {"data": {"payload": "AAE="}})
        packages = kit.call("GET", "/api/packages").body["packages"]
        assert [each["id"] for each in packages] == [5, 4, 3, 2, 1]
        assert [each["kind"] for each in packages] == [
            "data",
            "message",
            "waypoint",
            "location",
            "message",
        ]
        assert [each["text"] for each in packages] == [
            None,
            "nowhere",
            "Hut: cold",
            None,
            "first\x1b[2J<b>",
        ]
        assert packages[3]["position"] == [47.1, 8.2]
        assert [each["sos"] for each in packages] == [False, False, False, True, False]
        assert packages[1]["status"] == "Error"
        assert packages[1]["channels"] == {"Radio": {"status": "Error", "reason": "not configured"}}
        spent = kit.call("GET", "/api/status").body["channels"]["Satellite"]["creditsToday"]
        assert sum(each["credits"] for each in packages) == spent > 0
        shown = command(kit, "sent").stdout
        assert "first\\x1b[2J<b>" in shown
        assert "SOS location  47.1 8.2" in shown
        assert "Radio Error (not configured)" in shown
        assert "SOS location  47.1 8.2" in command(kit, "show", "2").stdout
        assert "nowhere" in command(kit, "sent", "--state", "Error", "--limit", "1").stdout
        assert "nothing of that kind" in command(kit, "sent", "--state", "waiting").stdout
        assert command(kit, "sent", "--limit", "0").returncode == 2


WRONG = {
    "state=gone": "?state= is one of waiting, Delivered",
    "kind=sos": "?kind= is one of data, message",
    "limit=0": "?limit= is a number from 1 to 1000",
    "limit=1001": "?limit= is a number",
    "before=0": "?before= is a number from 1",
    "before=x": "?before= is a number",
    "after=1": "'after' is unknown",
}


def test_pages_of_sent_packages_contain_each_package_once(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        for number in range(120):
            item = {"message": {"content": str(number)}}
            if number % 60 == 0:
                item = {"data": {"payload": "AA=="}}
            assert kit.call("POST", "/api/package", item).body["status"] == "Error"
        whole = kit.call("GET", "/api/packages?limit=1000").body
        assert (len(whole["packages"]), whole["next"]) == (120, None)
        for query in ("limit=50", "limit=60&state=Error", "limit=1&kind=data", "limit=7"):
            listed, path = [], f"/api/packages?{query}"
            while path is not None:
                page = kit.call("GET", path)
                listed += page.body["packages"]
                path = page.body["next"]
                assert page.headers.get("link") == (path and f'<{path}>; rel="next"')
            wanted = [each for each in whole["packages"] if each["kind"] == "data"]
            assert listed == (wanted if "kind" in query else whole["packages"])
        assert len(command(kit, "sent", "--limit", "110").stdout.splitlines()) == 220
        for query, said in WRONG.items():
            answer = kit.call("GET", f"/api/packages?{query}")
            assert (answer.status, said in answer.body["detail"]) == (400, True), answer.body


def waits(kit: Agent, id_: int, channel: str = "Satellite") -> dict[str, Any]:
    """Return the reason from the queue. A look at the Package shows the same text."""
    (delivery,) = [
        each["channels"][channel]
        for each in kit.call("GET", "/api/queue").body["packages"]
        if each["id"] == id_
    ]
    return dict(delivery)


def queue(kit: Agent, content: str, **members: object) -> int:
    body = {"message": {"content": content}, **members}
    return int(kit.call("POST", "/api/package/async", body).body["id"])


def test_wait_for_modem_is_shown_with_next_try(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        number = queue(kit, "x")
        until(lambda: waits(kit, number).get("nextTry"))
        delivery = waits(kit, number)
        assert "nobody" in delivery["reason"]
        assert "; next try " in delivery["reason"]
        assert (
            delivery["nextTry"] - kit.call("GET", f"/api/package/{number}").body["accepted"] < 120
        )
        for shown in ("queue", "sent", f"show {number}"):
            output = command(kit, *shown.split()).stdout
            assert "nobody" in output, shown
            assert "next try " in output, shown


def test_next_try_of_sos_equals_next_try_of_channel(tmp_path: Path) -> None:
    budget = {"satellite-credits-per-day": "1", "satellite-sos-reserve": "0", "sos-repeat": "0"}
    with sky(tmp_path), agent(tmp_path, budget) as kit:
        kit.post("a")
        assert kit.post("the first transmission always goes", priority=100).status == 200
        number = queue(kit, "b", priority=100)
        status = kit.call("GET", "/api/status").body
        sos = status["sos"]["incident"]
        assert sos["nextTry"] == pytest.approx(waits(kit, number)["nextTry"], abs=1)
        spent = "the budget of today is spent: "
        assert status["channels"]["Satellite"]["reason"].startswith(spent)
        assert spent in command(kit, "status").stdout


def test_wait_after_doubtful_session_is_shown_with_reason(tmp_path: Path) -> None:
    """After a session with an unknown result, the link pauses, or the modem is gone."""
    with sky(tmp_path, 0) as above, agent(tmp_path) as kit:
        for _ in range(8):
            above.type("status 18")
        number = queue(kit, "x")
        until(lambda: waits(kit, number)["reason"].startswith("the connection was lost; next try"))
        above.type("unplug")
        until(lambda: "; next try " in waits(kit, number)["reason"])
        until(lambda: str(tmp_path) in waits(kit, number)["reason"])


def test_wait_for_credits_is_shown_with_reason(tmp_path: Path) -> None:
    budget = {"satellite-credits-per-day": "1", "satellite-sos-reserve": "0"}
    with sky(tmp_path), agent(tmp_path, budget) as kit:
        kit.post("a")
        number = queue(kit, "b")
        delivery = waits(kit, number)
        assert delivery["reason"].startswith("the budget of today is spent: 1 of 1 credits")
        assert (delivery["nextTry"] + 1) % 86_400 < 2
        assert ", 1 of 1 credit\n" in command(kit, "status").stdout


def test_status_shows_payloads_that_hook_rejected(tmp_path: Path) -> None:
    hook = "grep -q later && exit 75; exit 3"
    with sky(tmp_path, 0) as above, agent(tmp_path, {"inbound-hook": hook}) as kit:

        def notices() -> str:
            return "\n".join(kit.call("GET", "/api/status").body["notices"])

        assert notices() == ""
        above.type("mt one")
        until(lambda: "the script did not accept 1 payload: inbound-hook failed" in notices())
        above.type("mt later")
        until(lambda: "the script is tried again with 1 payload: inbound-hook asked" in notices())
        assert "`fieldagent inbound replay --dead`" in command(kit, "status").stdout


def test_status_shows_used_credits_and_sos_reserve(tmp_path: Path) -> None:
    budget = {"satellite-credits-per-day": "50", "satellite-sos-reserve": "10"}
    with sky(tmp_path), agent(tmp_path, budget) as kit:
        kit.post("a")
        assert (
            ", 1 of 50 credits, 10 of them reserved for an SOS\n" in command(kit, "status").stdout
        )


def test_wait_for_hub_that_rejects_token_is_shown_with_reason(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    with hub(tmp_path, {"database": database}) as cloud:
        settings = {
            "satellite-port": None,
            "hub-address": cloud.address,
            "hub-token": "nobodys",
        }
        with agent(tmp_path, settings) as kit:
            number = queue(kit, "x")
            until(lambda: "token" in waits(kit, number, "Cellular")["reason"])
            assert waits(kit, number, "Cellular")["nextTry"]


def test_package_without_channel_fails_at_once_with_reason(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        answer = kit.post("x").body
        assert (answer["status"], answer["reason"][:24]) == ("Error", "no channel is configured")
        assert "set satellite-port" in command(kit, "send", "message", "x").stdout
        assert "set satellite-port" in command(kit, "show", "1").stdout


def test_received_payloads_are_listed_in_pages(tmp_path: Path) -> None:
    with sky(tmp_path, 0) as above, agent(tmp_path, {"inbound-hook": "cat >/dev/null"}) as kit:
        for number in range(7):
            above.type(f"mt {number}")

        def handed() -> list[Any]:
            return list(kit.call("GET", "/api/inbound?state=handed").body["payloads"])

        until(lambda: len(handed()) == 7)
        for limit in (1, 3, 7):
            listed, path = [], f"/api/inbound?limit={limit}&state=handed"
            while path is not None:
                page = kit.call("GET", path)
                assert len(page.body["payloads"]) <= limit
                listed += page.body["payloads"]
                path = page.body["next"]
                assert page.headers.get("link") == (path and f'<{path}>; rel="next"')
            assert listed == handed()
        assert len(command(kit, "inbound", "list").stdout.splitlines()) == 14
        for query in ("state=lost", "limit=0", "before=x", "after=1"):
            assert kit.call("GET", f"/api/inbound?{query}").status == 400, query
