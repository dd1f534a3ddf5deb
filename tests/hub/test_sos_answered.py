"""A person answers an SOS: the programs of both sides, from the kit's button to its status."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.request import urlopen

from fieldagent.hub.part import list_hub_parts
from tests.processes import MODULE, PATIENCE, Agent, Running, administer, agent, hub, until


def list_alert_metrics() -> set[str]:
    """Return the metrics in the example's alert rules, without those of a deleted extension."""
    rules = Path(__file__).parents[2] / "examples/hub-alerts.yml"
    metrics = set(re.findall("fieldagent_hub_[a-z_]+", rules.read_text()))
    if not any(part.read_figures for part in list_hub_parts()):
        metrics.remove("fieldagent_hub_contact_steps_broken")
    return metrics


def list_steps(kit: Agent) -> list[tuple[str, str, str]]:
    history = kit.call("GET", "/api/sos").body["incident"]["steps"]
    return [(each["state"], each.get("by", ""), each.get("text", "")) for each in history]


def test_kit_gets_the_name_of_the_person_answering_the_sos(tmp_path: Path, database: str) -> None:
    administer(database, "init", "Alps")
    for name in ("Ada", "Olga", "Ben"):
        administer(database, "user", "add", name)
    token = administer(database, "device", "add", "kit-ada", "--user", "Ada")["hub-token"]
    administer(database, "user", "role", "Olga", "dispatcher")
    with hub(tmp_path, {"database": database, "synthetic-item": "on"}) as running:
        settings = {"satellite-port": None, "hub-address": running.address, "hub-token": token}
        with agent(tmp_path, settings) as kit:
            port = ["--port", str(kit.port)]
            sos = [*MODULE, "sos", *port, "--yes", "--until-seen", "leg broken"]
            with Running(sos, "at the hub") as waiting:
                until(lambda: administer(database, "sos", "list", "--state", "open"))
                figures = urlopen(f"{running.address}/metrics", timeout=PATIENCE).read().decode()
                assert "fieldagent_hub_sos_open 1\n" in figures
                assert list_alert_metrics() <= set(
                    re.findall("^fieldagent_[a-z_]+", figures, re.MULTILINE)
                )
                answer = administer(database, "sos", "acknowledge", "1", "heli is up")
                assert answer["seen"]["by"]["name"] == "Olga"
                assert re.search(
                    '^SOS [0-9]{3} seen by Olga .*: "heli is up"$', waiting.expect("seen by")
                )
                assert waiting.wait() == 0
            standing = kit.call("GET", "/api/sos").body
            assert (standing["active"], standing["incident"]["state"]) == (1, "seen")
            status = subprocess.run(
                [*MODULE, "status", *port], capture_output=True, text=True, timeout=PATIENCE
            )
            assert "; seen by Olga " in status.stdout
            administer(database, "user", "role", "Ben", "dispatcher")
            administer(database, "sos", "take-over", "1", "my watch now", "--by", "Ben")
            until(lambda: list_steps(kit)[-1] == ("seen by", "Ben", "my watch now"))
            assert list_steps(kit)[-2] == ("seen by", "Olga", "heli is up")
            by_olga = ("--by", "Olga")
            closed = administer(database, "sos", "close", "1", "in hospital", *by_olga)
            until(lambda: kit.call("GET", "/api/sos").body["incident"]["state"] == "closed")
            assert list_steps(kit)[-1] == ("closed", "Olga", "in hospital")
        # The kit may name its incident before the item arrives. The item is then a step of its own.
        events = [each["event"] for each in closed["timeline"] if each["event"] != "item"]
        # At that hub no console was open.
        assert events == ["raised", "nobody reached", "seen", "taken over", "closed"]
