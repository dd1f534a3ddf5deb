"""A kit is stolen, and the others get another radio-key: real agents on a simulated air, a real
hub, and its commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.lab.simulator.test_simulate_node import nodes
from tests.extensions.radio.test_radio_journey import Team
from tests.hub.test_cluster import contents
from tests.hub.test_journey import folder
from tests.processes import Agent, administer, agent, free_port, until

KEY = {"radio-key": "07" * 32, "radio-seal": "on"}


class Kits:
    """Ada's kit has a link and relays the hub's messages to neighbours. Ben's has none, and Eve's
    is stolen.
    """

    def __init__(self, team: Team, address: str) -> None:
        self.team = team
        away = f"http://127.0.0.1:{free_port()}"
        brings = {"radio-relay": "cellular", "radio-relay-down": "on"}
        self.settings = {
            "Ada": self._settings("Ada", 1, address, **brings),
            "Ben": self._settings("Ben", 2, away),
            "Eve": self._settings("Eve", 3, away),
        }

    def _settings(self, name: str, node: int, address: str, **more: str) -> dict[str, Any]:
        token = self.team.devices[name]["hub-token"]
        linked = {"hub-address": address, "hub-token": token}
        return self.team.radio(name, node, **KEY, **linked, **more)

    @contextmanager
    def on(self, name: str) -> Iterator[Agent]:
        home = folder(self.team.folder / name) if not self.home(name).exists() else self.home(name)
        with agent(home, self.settings[name]) as kit:
            kit.expect("the radio works")
            yield kit

    def home(self, name: str) -> Path:
        return self.team.folder / name


def read_status(team: Team) -> dict[str, Any]:
    report: dict[str, Any] = administer(team.database, "device", "radio-key", "status")
    return report


def read_steps(team: Team) -> dict[str, int]:
    return {
        each["name"].removeprefix("kit of "): each["step"] for each in read_status(team)["devices"]
    }


def read_radio(kit: Agent) -> dict[str, Any]:
    channel: dict[str, Any] = kit.call("GET", "/api/status").body["channels"]["Radio"]
    return channel


def send_over_radio(kit: Agent, text: str) -> None:
    body = {"message": {"content": text}, "channels": ["Radio"]}
    assert kit.call("POST", "/api/package/async", body).status == 202


def check_both_hear(ada: Agent, ben: Agent, when: str) -> None:
    """Check that they hear each other."""
    send_over_radio(ada, f"Ada {when}")
    send_over_radio(ben, f"Ben {when}")
    until(lambda: f"Ada {when}" in contents(ben))
    until(lambda: f"Ben {when}" in contents(ada))


@pytest.mark.full
def test_kits_change_the_radio_key_after_a_theft_and_hear_each_other(tmp_path: Path) -> None:
    """Ben's kit is off at the start, and reaches the hub only by Ada's radio. Both are killed
    repeatedly.
    """
    team = Team(tmp_path, "Ada", "Ben", "Eve")
    with ExitStack() as stack:
        running, _ = stack.enter_context(team.at_the_hub())
        stack.enter_context(nodes(tmp_path, "--nodes", "3", "--seed", "5"))
        kits = Kits(team, running.address)
        eve = stack.enter_context(kits.on("Eve"))
        with kits.on("Ada") as ada, kits.on("Ben") as ben:
            ada.expect("linked to the hub")
            check_both_hear(ada, ben, "before")
            until(lambda: {"Ada before", "Ben before"} <= set(contents(eve)))
            assert ben.stop() == 0
            report = administer(
                team.database, "device", "revoke", "kit of Eve", "--new-radio-key", "--why", "gone"
            )
            assert (report["revoked"], report["step"], report["pending"]) == (True, "1 of 3", 2)
            assert report["cost"] == "2 kits: 1 by link, 1 once linked, or by a neighbour"
            until(lambda: read_steps(team) == {"Ada": 1, "Ben": 0})
            assert read_radio(ada)["keyChange"]["step"] == 1
            ada.kill()
        # After a power cut at any point, they return with matching keys.
        for turn in range(3):
            with kits.on("Ada") as ada, kits.on("Ben") as ben:
                check_both_hear(ada, ben, f"at turn {turn}")
                until(lambda: min(read_steps(team).values()) > turn)  # noqa: B023
                ben.kill()
                ada.kill()
        assert read_status(team)["ended"] and read_status(team)["pending"] == 0
        with kits.on("Ada") as ada, kits.on("Ben") as ben:
            assert "keyChange" not in read_radio(ada)
            before = len(contents(eve))
            check_both_hear(ada, ben, "with the new key")
            send_over_radio(eve, "give me your position")
            until(
                lambda: (
                    read_radio(ada)["droppedKeyPackets"] and read_radio(ben)["droppedKeyPackets"]
                )
            )
            station = team.devices["Eve"]["id"]
            notices = " ".join(ada.call("GET", "/api/status").body["notices"])
            assert f"of station {station}" in notices and "by a stolen kit" in notices
            for kit in (ada, ben):
                assert "give me your position" not in contents(kit)
            assert "Ada with the new key" not in contents(eve)
            assert len(contents(eve)) == before
            until(lambda: read_radio(eve)["wrongKeyPackets"])
            # The thief's kit does not have the new key, and no kit has the key in clear text.
            (shown,) = administer(team.database, "device", "radio-key", "key")
            new = shown["radio-key"]
            for file in kits.home("Eve").rglob("*"):
                assert not file.is_file() or bytes.fromhex(new) not in file.read_bytes()
            kept = json.loads((kits.home("Ben") / "state" / "radio-keys.json").read_text())
            assert kept["keys"] == [new]
            listed = administer(team.database, "device", "list")
            assert {each["name"]: each["radioKey"] for each in listed} == {
                "kit of Ada": "step 3 of 3: done",
                "kit of Ben": "step 3 of 3: done",
                "kit of Eve": None,
            }


@pytest.mark.full
def test_command_and_answer_are_relayed_by_a_neighbour(tmp_path: Path) -> None:
    """Ada's kit is killed while it has the command, and Ben's after he has carried it out."""
    team = Team(tmp_path, "Ada", "Ben", "Eve")
    with ExitStack() as stack:
        running, _ = stack.enter_context(team.at_the_hub())
        stack.enter_context(nodes(tmp_path, "--seed", "5", "--loss", "0.1"))
        kits = Kits(team, running.address)

        def given(words: str) -> int:
            rows = administer(team.database, "command", "kit of Ben", *words.split())
            return int(rows[0]["number"])

        def row(number: int) -> dict[str, Any]:
            rows = administer(team.database, "command", "kit of Ben")
            return next(each for each in rows if each["number"] == number)

        with kits.on("Ada") as ada, kits.on("Ben") as ben:
            ada.expect("linked to the hub")
            check_both_hear(ada, ben, "first")
            number = given("status")
            until(lambda: row(number)["state"] == "answered")
            assert (row(number)["outcome"], row(number)["answeredBy"]) == ("done", "radio")
            assert "version" in row(number)["answer"]
            ben.kill()
            later = given("log")
            ada.expect("items for station")
            ada.kill()
        with kits.on("Ada") as ada, kits.on("Ben") as ben:
            until(lambda: row(later)["state"] == "answered")
            assert row(later)["answeredBy"] == "radio"
            refused = given("restart")
            until(lambda: row(refused)["state"] == "answered")
            assert row(refused)["outcome"] == "refused"
            here = ben.call("GET", "/api/commands").body["commands"]
            assert [each["number"] for each in here] == [refused, later, number]
            assert {each["state"] for each in here} == {"answered"}


def read_refusal(database: str, *words: str) -> str:
    with pytest.raises(AssertionError) as error:
        administer(database, *words)
    return str(error.value)


def test_cost_of_a_new_radio_key_is_shown_and_needs_agreement(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    for name in ("Ada", "Eve"):
        member = str(administer(database, "user", "add", name)["id"])
        administer(database, "device", "add", f"kit of {name}", "--user", member)
    administer(database, "device", "imei", "kit of Ada", "300234010000070")
    theft = ("device", "revoke", "kit of Eve", "--new-radio-key")
    message = read_refusal(database, *theft)
    assert "1 kit: 1 over satellite (12 credits at most, with all answers): use --yes to" in message
    assert [each["revoked"] for each in administer(database, "device", "list")] == [None, None]
    assert "need --new-radio-key" in read_refusal(database, *theft[:3], "--by", "ip")
    assert "no radio-key was changed here" in read_refusal(
        database, "device", "radio-key", "status"
    )
    report = administer(database, *theft, "--key-given", "--by", "ip", secret="0A" * 32 + "\n")
    assert report["cost"] == "1 kit: 1 once linked, or by a neighbour"
    assert administer(database, "device", "radio-key", "key") == [{"radio-key": "0a" * 32}]
    (kit,) = administer(database, "device", "radio-key", "status")["devices"]
    assert (kit["name"], kit["step"], kit["state"]) == ("kit of Ada", 0, "asked")
    by_hand = read_refusal(database, "command", "kit of Ada", "radio-key", "3")
    assert "a radio-key is for all kits: `fieldagent hub device radio-key`" in by_hand
    assert administer(database, "device", "radio-key", "leave-out", "kit of Ada")["ended"] is True
    no_key = read_refusal(database, "device", "radio-key", "change", "--key-given", "--by", "ip")
    assert "a radio-key has 64 hexadecimal digits" in no_key
    for line in administer(database, "audit"):
        assert "0a0a" not in str(line)
