"""`fieldagent setup` and `fieldagent radio` with a people's radio: real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.system.exit_codes import OK, SETTINGS, USAGE
from tests.extensions.lab.simulator.test_simulate_node import nodes
from tests.extensions.test_detection import shown
from tests.extensions.test_setup import begin, settings, setup
from tests.processes import sky


def test_companion_with_a_full_contact_list_is_reported(tmp_path: Path) -> None:
    with nodes(tmp_path, "--kind", "meshcore", "--nodes", "2", "--crowd", "120"):
        code, text = shown(tmp_path / "air" / "node-1")
        assert code == SETTINGS
        assert "BAD the radio's list of 100 contacts is full" in text


@pytest.mark.full
def test_setup_assigns_each_device_its_setting(tmp_path: Path) -> None:
    """There are two radios with one firmware, one of which is people's. The file keeps everything
    else.
    """
    begin(tmp_path, **{"satellite-port": "/dev/nothing", "radio-name": "Hut"})
    with nodes(tmp_path, "--kind", "meshtastic"), sky(tmp_path):
        one, other = (tmp_path / "air" / f"node-{number}" for number in (1, 2))
        ports = (one, tmp_path / "modem", other)
        before = (tmp_path / "agent.properties").read_text()
        code, text = setup(tmp_path, *ports, "--set", "radio-station=7", "--dry-run")
        assert code == OK
        assert f"+ satellite-port={tmp_path}/modem  (was /dev/nothing)" in text
        assert (tmp_path / "agent.properties").read_text() == before
        code, text = setup(tmp_path, *ports, "--set", "radio-station=7")
        assert code == USAGE
        assert "nothing was written; use --yes in scripts" in text
        assert (tmp_path / "agent.properties").read_text() == before
        code, text = setup(tmp_path, *ports, "--set", "radio-station=7", "--yes")
        assert code == OK, text
    assert (tmp_path / "agent.properties").read_text().startswith("# of this kit\napi-port=0\n")
    assert (tmp_path / "agent.properties.before").read_text() == before
    assert settings(tmp_path) == {
        "api-port": "0",
        "state-directory": str(tmp_path / "state"),
        "radio-name": "Hut",
        "satellite-port": str(tmp_path / "modem"),
        "mesh-port": str(one),
        "radio-port": str(other),
        "radio-protocol": "meshtastic",
        "meshtastic-channel": "Kits",
        "radio-station": "7",
    }
