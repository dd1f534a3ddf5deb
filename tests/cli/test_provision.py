"""From `hub device add --card` at the hub to the settings of a kit, over a card."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from functools import partial
from pathlib import Path

import pytest

from fieldagent.kit.provision import provision as provision_command
from tests.cut import cut_at, cut_everywhere
from tests.processes import MODULE, administer

NAME = "fieldagent.properties"
TAKEN = "fieldagent.taken"
RESULT = "fieldagent-result.txt"
TOKEN = "x" * 40
GOOD = f"hub-address=https://hub.example.org\nhub-token={TOKEN}\n"


@pytest.fixture
def card(tmp_path: Path) -> Path:
    folder = tmp_path / "boot"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return tmp_path / "etc/fieldagent/agent.properties"


def provision(card: Path, settings: Path, status: int = 0) -> str:
    options = ["--card", str(card), "--config", str(settings)]
    done = subprocess.run([*MODULE, "provision", *options], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def test_provision_prints_the_names_but_not_the_values_as_json(card: Path, settings: Path) -> None:
    (card / NAME).write_text(GOOD)
    command = [*MODULE, "provision", "--json", "--card", str(card), "--config", str(settings)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(output) == {"settings": str(settings), "set": ["hub-address", "hub-token"]}
    none = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(none) == {"settings": None, "set": []}


def read_card(card: Path) -> bytes:
    return b"".join(path.read_bytes() for path in card.iterdir())


def test_kit_applies_the_settings_that_the_hub_wrote_on_a_card(
    tmp_path: Path, card: Path, settings: Path
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    add = ["device", "add", "kit", "--user", "ada", "--tagged"]
    device = administer(database, *add, "--card", str(card), "--address", "https://hub.example.org")
    assert device["card"] == str(card / NAME)
    told_on_card = (card / NAME).read_text()
    assert device["hub-token"] in told_on_card
    assert device["satellite-key"] in told_on_card
    assert "hub-address, hub-token, satellite-key" in provision(card, settings)
    assert settings.read_text() == told_on_card
    assert stat.S_IMODE(settings.stat().st_mode) == 0o640
    assert device["hub-token"].encode() not in read_card(card)
    assert {path.name for path in card.iterdir()} == {RESULT}
    assert "no new settings" in provision(card, settings)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--address", "nowhere"], "https://"),
        ([], "--address is missing"),
        (["--address", "https://hub.example.org"], "already exists"),
    ],
)
def test_device_is_not_added_if_its_card_cannot_be_written(
    tmp_path: Path, card: Path, more: list[str], words: str
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    if "already" in words:
        (card / NAME).write_text("another kit's")
    add = ["device", "add", "kit", "--user", "ada", "--card", str(card), *more]
    done = subprocess.run(
        [*MODULE, "hub", *add, "--database", database], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert administer(database, "device", "list") == []


def test_mistake_on_the_card_is_reported_there_and_changes_nothing(
    card: Path, settings: Path
) -> None:
    settings.parent.mkdir(parents=True)
    settings.write_text("satellite-port=/dev/ttyUSB0\n")
    (card / NAME).write_text(GOOD + "hub-adress=https://hub.example.org\n")
    assert "hub-adress" in provision(card, settings, status=78)
    assert settings.read_text() == "satellite-port=/dev/ttyUSB0\n"
    assert "the nearest is hub-address" in (card / RESULT).read_text()
    (card / NAME).write_text(GOOD)
    provision(card, settings)
    assert settings.read_text() == GOOD
    assert settings.with_name("agent.properties.before").read_text().startswith("satellite-port")
    assert "The kit has applied" in (card / RESULT).read_text()


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_empty_card_file_removes_no_settings(card: Path, settings: Path, text: str) -> None:
    (card / NAME).write_text(text)
    assert "it sets nothing" in provision(card, settings, status=78)
    assert not settings.exists()


@pytest.mark.parametrize("name", [NAME, f"{NAME}.txt"])
def test_card_file_with_bom_and_windows_line_ends_is_read(
    card: Path, settings: Path, name: str
) -> None:
    # `check` calls the hub.
    here = GOOD.replace("hub.example.org", "127.0.0.1:9")
    (card / name).write_bytes(b"\xef\xbb\xbf" + here.replace("\n", "\r\n").encode())
    provision(card, settings)
    check = [*MODULE, "check", "--config", str(settings), "--json"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert json.loads(done.stdout)["findings"][0]["text"] == "the settings are understood"


def test_leftover_secrets_on_the_card_are_erased_at_the_next_boot(
    card: Path, settings: Path
) -> None:
    settings.parent.mkdir(parents=True)
    settings.write_text(GOOD)
    (card / TAKEN).write_text(GOOD)
    provision(card, settings)
    assert TOKEN.encode() not in read_card(card)
    assert settings.read_text() == GOOD


def test_power_cut_at_any_step_of_provisioning_loses_no_settings(tmp_path: Path) -> None:
    def run(home: Path, step: int) -> list[int]:
        card, settings = home / "boot", home / "etc/fieldagent/agent.properties"
        card.mkdir()
        (card / NAME).write_text(GOOD)
        (card / RESULT).write_text("Nothing was applied")
        take = partial(provision_command, [card], settings, as_json=False)
        calls = ((os, "open"), (os, "fsync"), (Path, "rename"), (Path, "unlink"))
        with cut_at(step, *calls) as made:
            take()
        if settings.exists():
            assert settings.read_text() == GOOD
        else:
            assert (card / NAME).read_text() == GOOD
        assert take() == 0
        assert settings.read_text() == GOOD
        assert TOKEN.encode() not in read_card(card)
        assert not (card / NAME).exists()
        assert "The kit has applied" in (card / RESULT).read_text()
        return made

    assert cut_everywhere(tmp_path, run) > 10


def test_missing_card_is_reported_as_an_error(card: Path, settings: Path) -> None:
    assert "is not a folder: mount" in provision(card / "not-mounted", settings, status=66)


def test_unwritable_settings_folder_is_reported_and_the_card_stays(
    card: Path, settings: Path
) -> None:
    (card / NAME).write_text(GOOD)
    settings.parent.parent.mkdir(parents=True)
    settings.parent.write_text("no folder")
    assert "the settings on the card were not applied" in provision(card, settings, status=74)
    assert (card / NAME).read_text() == GOOD
