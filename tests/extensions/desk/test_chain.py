"""The steps of contacts: the check which of them work, and the test of all of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fieldagent.system.exit_codes import OK, REFUSED
from tests.hub.raising import changed
from tests.processes import MODULE, PATIENCE, administer, administer_from_shell


def chain(config: Path, action: str) -> tuple[int, Any, str]:
    done = subprocess.run(
        [*MODULE, "hub", "contact", "chain", action, "--config", str(config), "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def written(config: Path, settings: dict[str, str]) -> Path:
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return config


PIGEONS = """
from fieldagent.hub.contact.contract import ContactKind
from fieldagent.system.extension import Extension
from fieldagent.system.properties import Key, read_absolute_path
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult


def _sender(host):
    async def send(address, notice):
        (host.own["pigeon-loft"] / address).write_text(notice.text)
        return HandoverResult(HandoverOutcome.HANDED)

    return send


KIND = ContactKind(
    "pigeon",
    "by pigeon",
    "the pigeon",
    sender=_sender,
    shown=str,
    form="a pigeon",
    is_one=lambda address: address.startswith("pigeon-"),
    keys=(Key("pigeon-loft", read_absolute_path, None, "where pigeons start"),),
    missing=lambda own: "" if own["pigeon-loft"] else "set pigeon-loft",
)
EXTENSION = Extension("pigeons", contact_kinds={"pigeon": f"{__name__}:KIND"})
"""


def test_extension_adds_a_kind_of_contact_with_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, config = str(tmp_path / "hub.sqlite3"), tmp_path / "hub.properties"
    (tmp_path / "pigeons.py").write_text(PIGEONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    administer(database, "init", "Alps")
    brings = {"extensions": "pigeons:EXTENSION", "pigeon-loft": str(tmp_path)}
    written(config, {"database": database, **brings})
    added = ("contact", "add", "Duty", "pigeon-7", "--config", str(config))
    administer_from_shell(database, *added)
    assert chain(config, "test")[0] == OK
    assert (tmp_path / "pigeon-7").read_text().startswith("TEST. ")


def test_third_party_kind_of_contact_is_loaded_from_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, config = str(tmp_path / "hub.sqlite3"), tmp_path / "hub.properties"
    (tmp_path / "pigeons.py").write_text(PIGEONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    administer(database, "init", "Alps")
    settings = {"database": database, "contacts": "pigeons:KIND", "pigeon-loft": str(tmp_path)}
    written(config, settings)
    added = ("contact", "add", "Duty", "pigeon-7", "--config", str(config))
    administer_from_shell(database, *added)
    assert chain(config, "test")[0] == OK
    assert (tmp_path / "pigeon-7").read_text().startswith("TEST. ")
    # Without this kind, the hub starts and shows that the contact gets no messages.
    written(config, {"database": database})
    code, steps, _ = chain(config, "list")
    assert (code, steps[0]["works"]) == (REFUSED, False)
    assert "no contacts of kind pigeon" in steps[0]["contacts"][0]["fault"]
    written(config, {"database": database, "contacts": "pigeons:NOTHING"})
    done = subprocess.run(
        [*MODULE, "hub", "contact", "chain", "list", "--config", str(config)],
        capture_output=True,
        text=True,
    )
    assert "contacts names pigeons:NOTHING, which cannot be loaded" in done.stderr


@pytest.mark.parametrize(
    ("duration", "seconds", "shown"),
    [
        ("10s", 10, "10s"),
        ("90s", 90, "90s"),
        ("300s", 300, "5m"),
        ("10", 600, "10m"),
        ("90m", 5_400, "90m"),
        ("168h", 604_800, "168h"),
    ],
)
def test_contact_wait_is_stored_and_shown_exactly(
    tmp_path: Path, duration: str, seconds: int, shown: str
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    wait = ("--after", duration, "--every", duration)
    administer(database, "contact", "add", "Duty", "duty@example.org", *wait)
    (contact,) = administer(database, "contact", "list")
    assert (contact["after"], contact["every"]) == (shown, shown)
    assert changed(database, "SELECT wait, pause FROM alarm_contact") == [(seconds, seconds)]


@pytest.mark.parametrize("duration", ["9s", "0", "0s", "1d", "-5m", "5 m", "169h", "", "½m"])
def test_invalid_contact_wait_is_rejected_with_valid_examples(
    tmp_path: Path, duration: str
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    with pytest.raises(AssertionError, match="time such as 30s, 5m or 2h, from 10s to 168h"):
        administer(database, "contact", "add", "Duty", "duty@example.org", f"--after={duration}")
