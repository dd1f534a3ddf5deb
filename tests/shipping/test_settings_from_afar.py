"""Settings go from the hub to a kit and are rolled back: real hub, agent and signatures, and the
real unit's command. Only systemd is simulated.
"""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.processes import MODULE, administer, until
from tests.shipping.update_kit import Kit, linked_kit


class RemoteSettingsKit:
    """A running kit with its hub."""

    def __init__(self, made: Kit, database: str, folder: Path) -> None:
        self.kit, self.database, self.folder = made, database, folder

    def set(self, *words: str) -> Any:
        file = self.folder / "change"
        named = ["device", "set", "kit-ada"]
        administer(self.database, *named, *words, "--file", str(file))
        self.kit.signer.sign(file)
        return administer(self.database, *named, "--file", str(file))

    def listed(self) -> str:
        (device,) = administer(self.database, "device", "list")
        return str(device["settings"])

    def ends(self, number: int, how: str) -> None:
        until(lambda: self.state() not in ("offered", "waiting", "trial"))
        assert self.listed().startswith(f"{number} {how}")

    def state(self) -> str:
        with closing(sqlite3.connect(self.database)) as db:
            ((state,),) = db.execute("SELECT state FROM settings_offer")
        return str(state)

    def setting(self, name: str) -> str:
        values = [
            line.partition("=")[2]
            for line in self.kit.settings.read_text().splitlines()
            if line.startswith(f"{name}=")
        ]
        return values[0] if values else ""


@pytest.fixture
def remote(zipapp: Path, tmp_path: Path) -> Iterator[RemoteSettingsKit]:
    with linked_kit(tmp_path, zipapp) as (made, database):
        yield RemoteSettingsKit(made, database, tmp_path)


@pytest.mark.full
def test_remote_settings_are_applied_and_rolled_back_without_a_link(
    remote: RemoteSettingsKit,
) -> None:
    number = remote.set("sos-repeat=900")["number"]
    remote.kit.take_settings()
    remote.ends(number, "taken")
    assert remote.setting("sos-repeat") == "900"
    until(lambda: remote.kit.state_of("Cellular") == "ready")
    # A waiting satellite message is not lost.
    sent = remote.kit.call("POST", "/api/package", {"message": {"content": "after"}})
    assert remote.kit.call("GET", f"/api/package/{sent['id']}")["status"] == "Delivered"

    number = remote.set("cellular-interface=nosuch0", "sos-repeat=")["number"]
    remote.kit.take_settings(within="0.1")
    remote.ends(number, "back: Cellular was ready, and is absent (interface nosuch0 not found")
    assert (remote.setting("cellular-interface"), remote.setting("sos-repeat")) == ("", "900")
    until(lambda: remote.kit.state_of("Cellular") == "ready")

    (remote.folder / "kit/update.pub").write_text("another's")
    number = remote.set("sos-repeat=300")["number"]
    remote.kit.take_settings()
    remote.ends(number, "refused: ")
    assert remote.setting("sos-repeat") == "900"


def get_refusal(database: str, *words: str | Path) -> str:
    command = [*MODULE, "hub", "device", "set", *words, "--database", database]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 65, done.stdout + done.stderr
    return done.stderr


def test_mistyped_setting_is_reported_at_the_hub(tmp_path: Path) -> None:
    database, file = str(tmp_path / "hub.sqlite3"), tmp_path / "change"
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    administer(database, "device", "add", "kit-ada", "--user", "ada")
    for words, fault in (
        (["sos-repaet=5"], "'sos-repaet' is not a setting; the nearest is sos-repeat"),
        (["sos-repeat=soon"], "sos-repeat must be a whole number"),
        (["inbound-hook=rm"], "inbound-hook can only be set on the kit: the kit runs the value"),
    ):
        assert fault in get_refusal(database, "kit-ada", *words, "--file", file)
        assert not file.exists()
    answer = administer(database, "device", "set", "kit-ada", "sos-repeat=5", "--file", str(file))
    assert answer["file"] == str(file) and "minisign -Sm" in answer["next"]
    assert file.read_text().splitlines()[1::3] == ["device: kit-ada", "sos-repeat=5"]
    assert "signs it" in get_refusal(database, "kit-ada", "--file", file)
