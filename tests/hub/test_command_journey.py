"""A command from the hub's shell to a kit and its answer: real hub, real agent, simulated modem."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fieldagent.agent import outcomes
from fieldagent.system.minisign import parse_keys, parse_signature, verify
from fieldagent.wire.command import VERB_BY_NAME, VERBS
from fieldagent.wire.kit_note import SettingsOffer, decode
from fieldagent.wire.settings_change import parse_change
from tests.hub.alps import Alps
from tests.hub.test_journey import IMEI, behind_directip, folder, sky
from tests.processes import Agent, administer, agent, free_port, hub, until
from tests.signer import Signer
from tests.wire.test_command import example

EVERYTHING = " ".join(VERB_BY_NAME)
"""Value of remote-commands."""


def asked(database: str, words: str, *how: str) -> dict[str, Any]:
    """Give the command and wait for the answer."""
    number = administer(database, "command", "kit", *words.split(), *how)[0]["number"]
    answers: list[dict[str, Any]] = []

    def is_answered() -> bool:
        rows = administer(database, "command", "kit")
        answers[:] = [row for row in rows if row["number"] == number and row["state"] == "answered"]
        return bool(answers)

    until(is_answered)
    return answers[0]


OVER_IP = {
    "status": ("done", "version 0.1.0"),
    "log": ("done", ""),
    "show": ("refused", "no Package has the id 1234"),
    "trace": ("refused", "no satellite modem is configured"),
    "retry": ("refused", "no satellite modem is configured"),
    "heal": ("refused", "no satellite modem is configured"),
    "hold": ("refused", "no satellite modem is configured"),
    "resume": ("refused", "no satellite modem is configured"),
    "restart": ("refused", "systemd has not started this agent"),
}
"""Answers of a kit that has only a link and no unit to start it again. `reboot` is tested below,
and `set`, which needs root's unit, in `tests/agent/test_remote_commands.py`."""


def read_command_states(kit: Agent) -> set[str]:
    return {each["state"] for each in kit.call("GET", "/api/commands").body["commands"]}


def test_each_command_over_ip_is_answered_and_recorded(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    settings: dict[str, str | None] = {
        "satellite-port": None,
        "hub-token": alps.token,
        "remote-commands": EVERYTHING,
    }
    with hub(tmp_path, {"database": database}) as running:
        settings["hub-address"] = running.address
        home = folder(tmp_path / "kit")
        with agent(home, settings) as kit:
            kit.expect("linked to the hub")
            for verb in VERBS:
                if verb.name not in OVER_IP:
                    continue
                row = asked(database, " ".join(example(verb)), "--by", "ip")
                outcome, text = OVER_IP[verb.name]
                assert row["outcome"] == outcome and text in row["answer"], row
                assert row["answeredBy"] == "ip"
            here = kit.call("GET", "/api/commands").body
            assert len(here["commands"]) == len(OVER_IP)
            # The hub's acknowledgement of the last answer may still be on its way.
            until(lambda: read_command_states(kit) == {"answered"})
            # A command that ends the agent is answered by the next one.
            numbers = {each["number"] for each in here["commands"]}
            administer(database, "command", "kit", "reboot", "--by", "ip")
            left = home / "state" / "reboot.ask"
            until(left.exists)
            kit.kill()
        left.unlink()
        _simulate_reboot(home)
        with agent(home, {**settings, "remote-commands": "none"}) as kit:
            until(lambda: _read_answer(database, "reboot") == ("done", "the machine has restarted"))
            assert not left.exists()
            # A command that is no longer allowed is refused and has no effect.
            row = asked(database, "status", "--by", "ip")
            assert row["outcome"] == "refused" and "remote-commands" in row["answer"]
            packages = kit.call("GET", "/api/packages?kind=commandAnswer").body["packages"]
            assert len(packages) == len(numbers) + 2
    lines = [each for each in administer(database, "audit") if each["action"].startswith("command")]
    assert len(lines) == 2 * (len(numbers) + 2)


def _read_answer(database: str, words: str) -> tuple[str, str] | None:
    row = next(each for each in administer(database, "command", "kit") if each["command"] == words)
    return None if row["outcome"] is None else (row["outcome"], row["answer"])


def _simulate_reboot(home: Path) -> None:
    with closing(sqlite3.connect(home / "state" / "journal.sqlite3")) as db, db:
        db.execute("UPDATE command SET boot = 'the one before' WHERE state = 'begun'")


def test_restart_command_is_answered_by_the_restarted_agent(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    alps = Alps(database)
    settings: dict[str, str | None] = {
        "satellite-port": None,
        "hub-token": alps.token,
        "remote-commands": "restart status",
    }
    with hub(tmp_path, {"database": database}) as running:
        settings["hub-address"] = running.address
        home = folder(tmp_path / "kit")
        with agent(home, settings, INVOCATION_ID="systemd's") as kit:
            kit.expect("linked to the hub")
            administer(database, "command", "kit", "restart")
            assert kit.wait() == 0
        with agent(home, settings, INVOCATION_ID="systemd's"):
            until(lambda: _read_answer(database, "restart") == ("done", "the agent has restarted"))
            assert "2 starts of the agent" in asked(database, "status")["answer"]


@pytest.mark.full
@pytest.mark.parametrize("tagged", [True, False])
def test_command_over_satellite_needs_agreement_to_its_price(tmp_path: Path, tagged: bool) -> None:
    signer = Signer(tmp_path / "operator")
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    flags = ["--tagged"] if tagged else []
    device = administer(database, "device", "add", "kit", "--user", "Ada", "--imei", IMEI, *flags)
    settings: dict[str, str | None] = {
        "satellite-port": str(tmp_path / "modem"),
        "satellite-key": device.get("satellite-key"),
        "hub-token": device["hub-token"],
        "hub-address": f"http://127.0.0.1:{free_port()}",
        "remote-commands": EVERYTHING,
    }
    with (
        hub(folder(tmp_path / "hub"), behind_directip(database, mo_port, mt_port)),
        sky(tmp_path, mo_port, mt_port),
        agent(folder(tmp_path / "kit"), settings) as kit,
    ):
        with pytest.raises(AssertionError, match=r"2 credits|3 credits"):
            administer(database, "command", "kit", "status")
        assert administer(database, "command", "kit") == []
        row = asked(database, "status", "--by", "satellite", "--yes")
        assert row["outcome"] == "done" and "satellite ready" in row["answer"], row
        assert row["answeredBy"] == ("satellite" if tagged else "satellite, not authenticated")
        traced = asked(database, "trace 300", "--by", "satellite", "--yes")["answer"]
        assert "+SBDIX" in traced or "AT" in traced
        assert asked(database, "retry satellite", "--yes")["outcome"] == "done"
        healed = asked(database, "heal satellite", "--yes")
        assert healed["outcome"] == "refused" and "the modem answers" in healed["answer"]
        secret = str(tmp_path / "operator/secret")
        words = ["set", "sos-repeat=900", "--secret-key", secret, "--yes"]
        number = administer(database, "command", "kit", *words)[0]["number"]
        state = tmp_path / "kit/state"
        until((state / outcomes.OFFER).exists)
        offer = decode((state / outcomes.OFFER).read_bytes())
        assert isinstance(offer, SettingsOffer) and offer.by_satellite
        keys = parse_keys(signer.public)
        verify(offer.text.encode(), parse_signature(offer.signature), keys)
        assert parse_change(offer.text).pairs == (("sos-repeat", "900"),)
        # As root's unit reports it.
        result = outcomes.find_root_folder(state) / outcomes.SETTINGS
        result.parent.mkdir()
        outcomes.write_outcome(result, number, "taken")
        until(lambda: _read_answer(database, "set sos-repeat=900") == ("done", "they are in force"))
        deliveries = _list_answer_channels(kit)
        assert len(deliveries) == 5 and all(each == {"Satellite"} for each in deliveries)


def _list_answer_channels(kit: Agent) -> list[set[str]]:
    packages = kit.call("GET", "/api/packages?kind=commandAnswer").body["packages"]
    return [
        set(kit.call("GET", f"/api/package/{each['id']}").body["channels"]) for each in packages
    ]


def test_invalid_command_is_rejected_at_the_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    Alps(database)
    for words, why in (
        ("explode", "is not a command: use status"),
        ("log 5", "20 to 1500"),
        ("status --by satellite --yes", "no satellite modem"),
        ("set sos-repeat=900", "--secret-key FILE"),
    ):
        with pytest.raises(AssertionError, match=why):
            administer(database, "command", "kit", *words.split())
    assert json.dumps(administer(database, "command", "kit")) == "[]"
