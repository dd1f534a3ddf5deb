"""One format for a card of build/image: a hub writes it, and a kit and Debian's programs
read it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fieldagent.kit import card, card_format
from fieldagent.system.properties import InvalidSettings
from tests.processes import MODULE, administer
from tests.signer import Signer

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA5Zb0yZ1cV3 ada@laptop"
CA = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """Return the root of a kit with the card's boot partition in it."""
    (tmp_path / "kit/boot/firmware").mkdir(parents=True)
    (tmp_path / "kit/boot/firmware/kit.txt").write_text("of build/image\n")
    (tmp_path / "kit/etc/fieldagent").mkdir(parents=True)
    return tmp_path / "kit"


def add_device_with_card(
    home: Path, boot: Path, *words: str, password: str
) -> subprocess.CompletedProcess[str]:
    database = str(home / "hub.sqlite3")
    if not Path(database).exists():
        administer(database, "init", "Alps")
        administer(database, "user", "add", "ada")
    command = [*MODULE, "hub", "device", "add", "kit-ada", "--user", "ada", "--database", database]
    command += ["--card", str(boot), "--address", "https://hub.example.org", *words]
    return subprocess.run(command, input=password, capture_output=True, text=True)


def test_kit_reads_the_card_that_the_hub_wrote(kit: Path, tmp_path: Path) -> None:
    boot = kit / "boot/firmware"
    (tmp_path / "id.pub").write_text(f"{KEY}\n")
    (tmp_path / "ca.pem").write_text(CA)
    (tmp_path / "update").write_text(Signer(tmp_path / "keys").public)
    words = ["--ssh-key", str(tmp_path / "id.pub"), "--ca-file", str(tmp_path / "ca.pem")]
    words += ["--update-key", str(tmp_path / "update"), "--time-zone", "Europe/Zurich"]
    words += ["--access-point", "camp Ädä", "--country", "CH", "--kit-address", "10.1.2.3/24"]
    done = add_device_with_card(tmp_path, boot, *words, password="four words\n")
    assert done.returncode == 0, done.stderr
    assert (boot / "authorized_keys").read_text() == f"{KEY}\n"
    settings = (boot / "fieldagent.properties").read_text()
    assert "hub-ca-file=/etc/fieldagent/hub-ca.pem" in settings
    assert "page-listen=192.168.4.0/24\npage-portal-port=9093" in settings
    assert not (boot / "user-data").exists()

    provision = [*MODULE, "provision", "--card", str(boot)]
    config = ["--config", str(kit / "etc/fieldagent/agent.properties")]
    subprocess.run([*provision, *config], check=True, capture_output=True)
    assert (kit / "etc/fieldagent/hub-ca.pem").read_text() == CA
    assert (kit / "etc/fieldagent/hub-ca.pem").stat().st_mode & 0o777 == 0o644
    assert card.store_card(kit) == ""
    assert {each.name for each in boot.iterdir()} == {
        *("kit.txt", "authorized_keys", "fieldagent-result.txt")
    }
    assert (kit / "etc/hostname").read_text() == "kit-ada\n"
    assert "Address=10.1.2.3/24" in (kit / "etc/systemd/network/70-kit-cable.network").read_text()
    access_point = kit / "etc/hostapd/hostapd.conf"
    assert access_point.stat().st_mode & 0o777 == 0o600
    assert "ssid=camp Ädä\n" in access_point.read_text()
    shown = subprocess.check_output(
        [*MODULE, "page", f"--wifi={access_point}", *config], text=True, stderr=subprocess.STDOUT
    )
    assert "four words" in shown
    assert (kit / "etc/localtime").readlink() == Path("/usr/share/zoneinfo/Europe/Zurich")
    # The next start takes it from the kit's stored settings.
    access_point.unlink()
    assert card.store_card(kit) == ""
    assert "four words" in access_point.read_text()


def test_wifi_passphrase_is_stored_on_the_card_as_its_hash_only(kit: Path, tmp_path: Path) -> None:
    boot = kit / "boot/firmware"
    done = add_device_with_card(
        tmp_path, boot, "--wifi", "IEEE", "--country", "CH", password="password\n"
    )
    assert done.returncode == 0, done.stderr
    text = (boot / "kit.properties").read_text()
    # IEEE 802.11-2020, J.4.2, test vector 1.
    assert "f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e" in text
    assert "=password\n" not in text
    card.store_card(kit)
    joined = (kit / "etc/wpa_supplicant/wpa_supplicant-wlan0.conf").read_text()
    assert "ssid=49454545" in joined
    assert card_format.list_units(card.read_kept_settings(kit)) == ["wpa_supplicant@wlan0.service"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("hostname=Kit Ada", "hostname must be a host name"),
        ("address=10.0.0.1", "address must be an address with its network"),
        ("gateway=10.0.0.1", "gateway needs address"),
        ("wifi=HUT", "wifi needs country"),
        ("country=CH\naccess-point=camp", "access-point needs access-point-password"),
        ("country=Ch", "country must be a country in two capitals"),
        ("time-zone=../../etc/shadow", "time-zone must be a time zone"),
        ("wfi=HUT", "'wfi' is not a setting; the nearest is wifi"),
        (
            "country=CH\nwifi=HUT\naccess-point=camp\naccess-point-password=four words",
            "one adapter does one of them",
        ),
    ],
)
def test_faulty_card_settings_are_reported_and_change_nothing(
    kit: Path, text: str, fault: str
) -> None:
    (kit / "etc/fieldagent/kit.properties").write_text("hostname=before\n")
    (kit / "boot/firmware/kit.properties").write_text(f"{text}\n")
    assert fault in card.store_card(kit)
    assert (kit / "boot/firmware/kit.properties").exists()
    assert (kit / "etc/hostname").read_text() == "before\n"


def test_line_break_in_a_card_value_is_rejected(kit: Path) -> None:
    """A value in kit.properties never becomes a second line in another program's file."""
    text = "country=CH\naccess-point=camp\\nignore_broadcast_ssid=1\naccess-point-password=12345678"
    with pytest.raises(InvalidSettings, match="must be a Wi-Fi name"):
        card_format.parse(text, kit / "kit.properties")


def test_access_point_is_refused_for_a_card_of_another_image(tmp_path: Path) -> None:
    (boot := tmp_path / "bootfs").mkdir()
    words = ("--access-point", "camp", "--country", "CH")
    done = add_device_with_card(tmp_path, boot, *words, password="four words\n")
    assert done.returncode == 65
    assert "this card has no kit.txt" in done.stderr
    assert list(boot.iterdir()) == []


@pytest.mark.parametrize("option", ["--gateway", "--dns"])
def test_gateway_and_dns_without_an_address_are_refused(
    kit: Path, tmp_path: Path, option: str
) -> None:
    done = add_device_with_card(tmp_path, kit / "boot/firmware", option, "10.0.0.1", password="")
    assert done.returncode == 65
    assert f"{option[2:]} needs address" in done.stderr


def test_result_file_on_the_card_lists_working_and_failed_settings(kit: Path) -> None:
    problems = {"address": "", "wifi": "HUT was not joined"}
    report = card.describe_result({"hostname": "kit-ada"}, problems, "")
    assert report == "This is kit-ada.\naddress: works\nwifi: HUT was not joined\n"


def test_card_file_with_the_name_and_encoding_of_notepad_is_read(kit: Path) -> None:
    (kit / "boot/firmware/kit.properties.txt").write_text("\ufeffhostname=of-a-laptop\r\n")
    assert card.store_card(kit) == ""
    assert (kit / "etc/hostname").read_text() == "of-a-laptop\n"
    assert not (kit / "boot/firmware/kit.properties.txt").exists()
