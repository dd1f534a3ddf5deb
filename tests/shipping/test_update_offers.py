"""A program goes to many kits in waves, and stops when one rolls back: real hub, agents, signatures
and web server, and the real unit's command. Only systemd is simulated.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.file_server import file_server
from tests.processes import MODULE, administer, hub, sky, until
from tests.shipping.test_update import MUTE
from tests.shipping.update_kit import Kit, kit, rebuilt, version
from tests.signer import Signer

pytestmark = pytest.mark.full


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a folder that a web server serves, and its address."""
    (folder := tmp_path / "served").mkdir()
    with file_server(folder) as address:
        yield folder, address


@pytest.fixture
def fleet(zipapp: Path, tmp_path: Path) -> Iterator[tuple[dict[str, Kit], str, Signer]]:
    """Yield three running kits with their hub, of which `kit-b` has a modem, its database, and the
    signer of their programs.
    """
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    signer = Signer(tmp_path / "builder")
    with ExitStack() as stack:
        cloud = stack.enter_context(hub(tmp_path, {"database": database}))
        stack.enter_context(sky(tmp_path))
        kits = {}
        for name in ("kit-a", "kit-b", "kit-c"):
            token = administer(database, "device", "add", name, "--user", "ada")["hub-token"]
            (tmp_path / name).mkdir()
            settings = {"hub-address": cloud.address, "hub-token": token}
            if name == "kit-b":
                settings["satellite-port"] = str(tmp_path / "modem")
            kits[name] = stack.enter_context(kit(tmp_path / name, zipapp, settings, signer))
            kits[name].systemctl("start", "fieldagent.service")
        for each in kits.values():
            until(partial(is_ready, each))
        yield kits, database, signer


def is_ready(kit: Kit) -> bool:
    channels = ["Cellular"]
    if "satellite-port" in kit.settings.read_text():
        channels.append("Satellite")
    return all(kit.state_of(each) == "ready" for each in channels)


def states(database: str) -> dict[str, str]:
    return {row["kit"]: row["state"] for row in administer(database, "update", "show")}


def get_offer(database: str) -> dict[str, Any]:
    offer: dict[str, Any] = administer(database, "update", "list")[0]
    return offer


def get_refusal(database: str, *words: str) -> str:
    command = [*MODULE, "hub", "update", "offer", *words, "--database", database]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 65, done.stdout + done.stderr
    return done.stderr


def test_update_waves_wait_for_each_other_and_stop_after_a_rollback(
    fleet: tuple[dict[str, Kit], str, Signer], zipapp: Path, served: tuple[Path, str]
) -> None:
    kits, database, signer = fleet
    folder, address = served
    before = kits["kit-c"].version()
    new = rebuilt(zipapp, folder / "9.0.0.pyz", version("9.0.0") | MUTE)
    url = f"{address}/9.0.0.pyz"
    named = ("--devices", "kit-a,kit-b,kit-c", "--waves", "1,1,all")
    # Before any kit gets an offer, the hub reports a program that each kit would refuse.
    assert "9.0.0.pyz.minisig cannot be read" in get_refusal(database, "9.0.0", url, *named)
    signer.sign(new)
    assert "has no kind, version and expiry" in get_refusal(database, "9.0.0", url, *named)
    signer.release(new, "--days", "-1")
    assert "the signature expired on" in get_refusal(database, "9.0.0", url, *named)
    signer.release(new)
    assert "is 9.0.0, not 9.0.1" in get_refusal(database, "9.0.1", url, *named)
    assert "hold 2 of 3 kits" in get_refusal(database, "9.0.0", url, *named[:2], "--waves", "1,1")

    administer(database, "update", "offer", "9.0.0", url, *named)
    standings = states(database)
    assert standings.pop("kit-a") in ("offered", "waiting")
    assert standings == {"kit-b": "planned", "kit-c": "planned"}
    assert "is under way" in get_refusal(database, "9.0.0", url, *named)
    kits["kit-a"].take_program()
    # The kit must be up, linked and healthy before the next one gets the offer.
    until(lambda: states(database)["kit-b"] != "planned")
    assert (kits["kit-a"].version(), states(database)["kit-a"]) == ("9.0.0", "taken")
    kits["kit-b"].take_program(within="0.15")
    until(lambda: get_offer(database)["state"] == "stopped")
    why = "kit-b fell back: Satellite was ready, and is absent"
    assert get_offer(database)["why"].startswith(why)
    assert (get_offer(database)["wave"], get_offer(database)["taken"]) == (2, 1)
    until(lambda: kits["kit-b"].version() == before)
    assert states(database) == {"kit-a": "taken", "kit-b": "back", "kit-c": "planned"}
    assert not (kits["kit-c"].home / "state/program.offer").exists()
    assert kits["kit-c"].version() == before
    lines = administer(database, "audit")
    assert any(line["action"] == "update stop" and why in line["detail"] for line in lines)


def test_offer_signed_with_an_unknown_key_is_refused_with_the_reason(
    fleet: tuple[dict[str, Kit], str, Signer],
    zipapp: Path,
    served: tuple[Path, str],
    tmp_path: Path,
) -> None:
    kits, database, _ = fleet
    folder, address = served
    new = rebuilt(zipapp, folder / "9.0.0.pyz", version("9.0.0"))
    Signer(tmp_path / "stranger").release(new)
    url = f"{address}/9.0.0.pyz"
    administer(database, "update", "offer", "9.0.0", url, "--devices", "all", "--waves", "all")
    kits["kit-a"].take_program()
    until(lambda: get_offer(database)["state"] == "stopped")
    assert get_offer(database)["why"].startswith(f"kit-a refused it: {url}.minisig: ")
    assert kits["kit-a"].program.read_bytes() == zipapp.read_bytes()
