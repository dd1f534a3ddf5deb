"""cloud-init's files on a card, next to the settings, match its own schema."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fieldagent.kit.cloud_init import (
    UnfitValue,
    format_files,
    make_network_config,
    make_user_data,
    read_public_keys,
    write,
)
from tests.processes import MODULE, administer

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA5Zb0yZ1cV3 ada@laptop"
PASSWORD, SSID = "password", "IEEE"
PSK = "f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e"
"""IEEE 802.11-2020, J.4.2, test vector 1."""


@pytest.fixture
def card(tmp_path: Path) -> Path:
    (made := tmp_path / "bootfs").mkdir()
    (made / "user-data").write_text("#cloud-config\n# a template\n")
    (tmp_path / "id.pub").write_text(f"{KEY}\n")
    return made


def add(database: str, card: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*MODULE, "hub", "device", "add", "kit-ada", "--user", "ada", "--database", database]
    command += ["--card", str(card), "--address", "https://hub.example.org", *words]
    return subprocess.run(command, input=f"{PASSWORD}\n", capture_output=True, text=True)


def read(card: Path, name: str) -> Any:
    return json.loads((card / name).read_text().removeprefix("#cloud-config\n"))


def test_device_is_added_only_if_its_cloud_init_files_are_written(
    card: Path, tmp_path: Path
) -> None:
    database = str(tmp_path / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    wifi = ("--wifi", SSID, "--country", "CH")
    refused = add(database, card, *wifi, "--ssh-key", str(tmp_path / "nowhere.pub"))
    assert (refused.returncode, administer(database, "device", "list")) == (65, [])
    assert "no device was added" in refused.stderr and "nowhere.pub" in refused.stderr
    assert [file.name for file in card.iterdir()] == ["user-data"]

    done = add(database, card, *wifi, "--ssh-key", str(tmp_path / "id.pub"))
    assert done.returncode == 0, done.stderr
    assert "cloudInit: user-data, network-config, meta-data" in done.stdout
    assert (card / "user-data").read_text().startswith("#cloud-config\n{")
    assert (card / "user-data.before").read_text() == "#cloud-config\n# a template\n"
    user = read(card, "user-data")
    assert user["hostname"] == "kit-ada"
    assert user["users"][0]["name"] == "kit"
    assert user["users"][0]["ssh_authorized_keys"] == [KEY]
    point = {SSID: {"password": PSK}}
    assert read(card, "network-config")["wifis"]["wlan0"]["access-points"] == point
    assert PASSWORD not in (card / "network-config").read_text().replace('"password"', "")


def test_rewritten_card_gets_a_new_instance_id_and_keeps_the_first_file(card: Path) -> None:
    instances = set()
    for host in ("kit-1", "kit-2"):
        write(card, format_files(make_user_data(host, "kit", []), None))
        instances.add(read(card, "meta-data")["instance-id"])
        assert read(card, "user-data") == {"hostname": host, "manage_etc_hosts": True}
    assert len(instances) == 2
    assert "a template" in (card / "user-data.before").read_text()
    assert not (card / "network-config").exists()


def test_cloud_init_accepts_the_written_files(card: Path) -> None:
    network = make_network_config(SSID, PASSWORD, "CH")
    write(card, format_files(make_user_data("kit-ada", "kit", [KEY]), network))
    if shutil.which("cloud-init") is None:
        pytest.skip("no cloud-init: it is for a machine that may be set up by it")
    inputs = ["--network-data", str(card / "network-config"), "--kind", "yaml"]
    written = ["--directory", str(card.parent / "netplan"), "--distro", "debian"]
    for command in (
        ["schema", "--config-file", str(card / "user-data")],
        ["devel", "net-convert", *inputs, *written, "--output-kind", "netplan"],
    ):
        done = subprocess.run(["cloud-init", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_user_data("Kit Ada", "kit", []), "is not a host name"),
        (lambda: make_user_data("kit-", "kit", []), "is not a host name"),
        (lambda: make_user_data("kit", "root", [KEY]), "is not a login name"),
        (lambda: make_network_config("Hut", "short", "CH"), "8 to 63 ASCII characters"),
        (lambda: make_network_config("Hut", "long enough", ""), "--country CH"),
        (lambda: make_network_config("x" * 33, "long enough", "CH"), "1 to 32 bytes"),
        (lambda: read_public_keys(Path(__file__)), "is not an SSH public key"),
    ],
)
def test_invalid_host_user_key_or_wifi_is_rejected(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(UnfitValue, match=message):
        make()
