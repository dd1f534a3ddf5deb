"""What somebody before the kit sees: the SOS first, what was sent, and why it waits."""

from __future__ import annotations

from pathlib import Path

from tests.agent.test_agent import command
from tests.processes import agent, sky, until


def test_an_sos_is_the_first_that_is_seen(tmp_path: Path) -> None:
    with sky(tmp_path), agent(tmp_path, {"sos-repeat": "600"}) as kit:
        assert command(kit, "status").stdout.startswith("fieldagent ")
        assert "fieldagent_sos_active 0\n" in kit.call("GET", "/metrics").body
        kit.post("hello")
        assert command(kit, "sos", "--yes", "Leg broken").returncode == 0
        told = kit.call("GET", "/api/status").body["sos"]
        assert told["active"] == 1
        (sos,) = told["packages"]
        assert (sos["id"], sos["confirmedBy"]) == (2, [])
        assert 0 < sos["nextTry"] - sos["since"] <= 600 + 60
        first = command(kit, "status").stdout.splitlines()[0]
        assert first.startswith("SOS 2, sent ")
        assert "NOBODY HAS CONFIRMED IT YET; next try " in first
        assert "fieldagent_sos_active 1\n" in kit.call("GET", "/metrics").body
        command(kit, "sos", "--cancel")
        assert kit.call("GET", "/api/status").body["sos"] == {"active": 0, "packages": []}


def test_an_sos_that_nothing_takes_says_so(tmp_path: Path) -> None:
    with agent(tmp_path, {"satellite-port": None}) as kit:
        assert command(kit, "sos", "--yes").returncode != 0
        (sos,) = kit.call("GET", "/api/status").body["sos"]["packages"]
        assert sos["nextTry"] is None
        assert "no channel goes on" in command(kit, "status").stdout.splitlines()[0]
    with agent(tmp_path, {"satellite-port": str(tmp_path / "nobody")}) as kit:
        kit.call("POST", "/api/package/async", {"message": {"content": "x"}, "priority": 100})
        until(lambda: kit.call("GET", "/api/status").body["sos"]["active"] == 2)
