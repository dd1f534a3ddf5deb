"""A kit that has only a satellite modem gets another program: real hub, agent, simulated sky and
signatures, and the real unit's command. Only systemd is simulated.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hub.test_command_journey import asked
from tests.hub.test_journey import IMEI, behind_directip, folder, sky
from tests.processes import administer, free_port, hub, until
from tests.shipping.update_kit import kit, rebuilt, version


@pytest.mark.full
def test_delta_sent_by_satellite_updates_the_kit(zipapp: Path, tmp_path: Path) -> None:
    mo_port, mt_port = free_port(), free_port()
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    device = administer(
        database, "device", "add", "kit", "--user", "Ada", "--imei", IMEI, "--tagged"
    )
    settings = {
        "satellite-port": str(tmp_path / "modem"),
        "satellite-key": device["satellite-key"],
        "remote-commands": "update status",
    }
    with (
        hub(folder(tmp_path / "hub"), behind_directip(database, mo_port, mt_port)),
        sky(tmp_path, mo_port, mt_port),
        kit(folder(tmp_path / "kit"), zipapp, settings) as made,
    ):
        made.systemctl("start", "fieldagent.service")
        until(lambda: made.state_of("Satellite") == "ready")
        new = rebuilt(zipapp, tmp_path / "9.6.0.pyz", version("9.6.0"))
        delta = made.signer.delta(new, zipapp)
        with pytest.raises(AssertionError, match=r"over satellite \d+ credits: \d+ messages of"):
            administer(database, "command", "kit", "update", str(delta))
        assert administer(database, "command", "kit") == []
        commands = administer(database, "command", "kit", "update", str(delta), "--yes")
        number = commands[0]["number"]
        made.take_program()

        def answer() -> tuple[str, str]:
            rows = administer(database, "command", "kit")
            row = next(each for each in rows if each["number"] == number)
            return row["outcome"], row["answer"]

        until(lambda: answer() == ("done", "9.6.0 runs"))
        assert made.version() == "9.6.0"
        # The kit itself has confirmed its delivery.
        assert "version 9.6.0" in asked(database, "status", "--yes")["answer"]


def test_invalid_delta_file_is_refused_at_the_hub(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "Ada")
    administer(database, "device", "add", "kit", "--user", "Ada")
    file = tmp_path / "a.pyz.from-1"
    for content, why in ((None, "cannot be read"), (b"a program", "the file is not a delta")):
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(AssertionError, match=why):
            administer(database, "command", "kit", "update", str(file))
    with pytest.raises(AssertionError, match="takes a file made by build/delta"):
        administer(database, "command", "kit", "update")
    assert administer(database, "command", "kit") == []
