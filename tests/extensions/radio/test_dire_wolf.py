"""Agents that reach each other through real Dire Wolf TNCs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fieldagent.agent.channels.air_pace import AGAIN_MAX
from tests.dire_wolf import PORTS, Wolves, wolves
from tests.processes import PATIENCE, started, until

pytestmark = pytest.mark.full

SETTINGS = """
radio-port=tcp://127.0.0.1:{tnc}
radio-protocol=kiss
radio-callsign=N0CALL-{number}
radio-station={number}
radio-name=Kit {number}
api-port={port}
state-directory={folder}
inbound-hook=cat
"""


@contextmanager
def kit(folder: Path, number: int, inside: list[str]) -> Iterator[int]:
    """Start an agent in the TNCs' network, and yield its port."""
    home, port = folder / f"kit-{number}", 9300 + number
    home.mkdir()
    settings = home / "agent.properties"
    settings.write_text(
        SETTINGS.format(tnc=PORTS[number - 1], number=number, port=port, folder=home)
    )
    with (home / "log").open("w") as log:
        command = [*inside, sys.executable, "-m", "fieldagent", "run", "--config", str(settings)]
        with started(command, stdout=log, stderr=log):
            until(lambda: cli(inside, port, "status").returncode == 0)
            yield port


def cli(inside: list[str], port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command. It waits as long as a Package may rest on the air, and longer."""
    command = [*inside, sys.executable, "-m", "fieldagent", *arguments, "--port", str(port)]
    patience = AGAIN_MAX + PATIENCE
    return subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)


def contents(air: Wolves, port: int) -> list[str]:
    listed = json.loads(cli(air.inside, port, "inbound", "list", "--json").stdout)["payloads"]
    events = [each["body"]["payloads"][0]["events"][0] for each in reversed(listed)]
    return [event.get("content") or event["payload"] for event in events]


def test_packages_of_all_sizes_are_delivered_through_dire_wolf(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(bytes(range(256)) * 3)
    with (
        wolves(tmp_path) as air,
        kit(tmp_path, 1, air.inside) as ada,
        kit(tmp_path, 2, air.inside) as ben,
    ):
        done = cli(air.inside, ada, "send", "message", "Anybody on this frequency?")
        assert done.stdout == "Package 1: Delivered\n", done
        done = cli(air.inside, ben, "send", "data", str(tmp_path / "blob"))
        assert done.stdout == "Package 1: Delivered\n", done
        for number in range(8):
            cli(air.inside, ada, "send", "message", f"burst {number}", "--no-wait")
        assert cli(air.inside, ada, "send", "message", "last").returncode == 0
        until(lambda: not json.loads(cli(air.inside, ada, "queue", "--json").stdout)["queued"])
        said = contents(air, ben)
        assert said[0] == "Anybody on this frequency?"
        assert sorted(said[1:]) == sorted([*(f"burst {number}" for number in range(8)), "last"])
        assert len(contents(air, ada)) == 1
        shown = cli(air.inside, ada, "show", "1").stdout
        assert "confirmed: stored by Kit 2" in shown


def test_three_kits_exchange_all_messages_through_dire_wolf(tmp_path: Path) -> None:
    """Each kit posts some messages, and one posts an SOS."""
    with (
        wolves(tmp_path, 3) as air,
        kit(tmp_path, 1, air.inside) as ada,
        kit(tmp_path, 2, air.inside) as ben,
        kit(tmp_path, 3, air.inside) as cid,
    ):
        kits = {"ada": ada, "ben": ben, "cid": cid}
        send = ("send", "message", "--no-wait")
        for number in range(3):
            for name, port in kits.items():
                assert cli(air.inside, port, *send, f"{name} {number}").returncode == 0
        assert cli(air.inside, cid, *send, "cid is hurt", "--priority", "100").returncode == 0
        posted = {f"{name} {number}" for name in kits for number in range(3)} | {"cid is hurt"}
        for name, port in kits.items():
            of_others = sorted(each for each in posted if not each.startswith(name))
            until(lambda port=port, texts=of_others: sorted(contents(air, port)) == texts)  # type: ignore[misc]
