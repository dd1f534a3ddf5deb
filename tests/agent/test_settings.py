"""agent.properties: each key, all faults at once, and the nearest known key."""

from __future__ import annotations

from pathlib import Path

import pytest

from fieldagent.agent.channels.healing import HealingStep
from fieldagent.agent.settings import INSTALLED, KEYS, get_default_path, load, parse
from fieldagent.system.directories import find_state_directory
from fieldagent.system.properties import InvalidSettings

PATH = Path("agent.properties")
GOOD = {
    "canned-messages": "All well; Storm,  we stay ",
    "extensions": "",
    "inbound-hook": "/opt/hook.sh --now",
    "inbound-hook-deadline": "90",
    "inbound-dead-letters": "hook",
    "webhook-address": "https://example.org:8443/in?x=1",
    "webhook-secret": "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz",
    "satellite-port": "/dev/ttyUSB0",
    "satellite-baud": "19200",
    "satellite-bytes-per-day": "20000",
    "satellite-credits-per-day": "100",
    "satellite-sos-reserve": "20",
    "satellite-credit-price": "0.12 EUR",
    "satellite-mailbox-check": "12",
    "satellite-registration": "session",
    "satellite-heal": "dtr, gpio:17",
    "satellite-recovery-command": "uhubctl",
    "satellite-key": "00" * 32 + " " + "ff" * 32,
    "satellite-receipts": "at-once",
    "hub-address": "https://hub.example.org:8443/",
    "hub-token": "fal_c29tZSBieXRlcyBvZiBhIHRva2Vu",
    "hub-ca-file": "/etc/fieldagent/ca.pem",
    "cellular-interface": "wwan0",
    "cellular-ping": "120",
    "cellular-heal": "usb:1-1.2, command",
    "cellular-recovery-command": "mmcli --modem 0 --reset",
    "cellular-recovery-after": "900",
    "satellite-modem": "sbd",
    "fan-out": "cheapest",
    "fan-out-until": "heard",
    "fan-out-head-start": "300",
    "sos-repeat": "0",
    "sos-until": "hub",
    "sos-track": "300",
    "package-time-to-live": "3600",
    "state-directory": "/var/lib/kit",
    "keep-ended-count": "5",
    "keep-ended-days": "3",
    "gpsd": "[::1]:2948",
    "update-address": "https://example.org/fieldagent.pyz",
    "update-key": "/etc/fieldagent/programs.pub",
    "map-file": "/var/lib/maps/alps.mbtiles",
    "page-listen": "192.168.4.0/24 fd00::/64",
    "page-port": "8443",
    "page-portal-port": "9093",
    "remote-commands": "status restart",
    "api-port": "0",
}


def test_every_key_is_read() -> None:
    assert GOOD.keys() == {key.name for key in KEYS}
    settings = parse("".join(f"{name}={value}\n" for name, value in GOOD.items()), PATH)
    assert settings.inbound_hook == "/opt/hook.sh --now"
    assert [str(each) for each in settings.page_listen] == ["192.168.4.0/24", "fd00::/64"]
    assert settings.satellite_mailbox_check == 12 * 3600
    assert settings.satellite_receipts == "at-once"
    assert settings.satellite_key == (bytes(32), b"\xff" * 32)
    assert settings.state_directory == Path("/var/lib/kit")
    assert settings.hub_address == "https://hub.example.org:8443"
    assert settings.hub_ca_file == Path("/etc/fieldagent/ca.pem")
    assert settings.map_file == Path("/var/lib/maps/alps.mbtiles")
    assert settings.cellular_ping == 120
    assert settings.cellular_heal == (HealingStep("usb", "1-1.2"), HealingStep("command"))
    assert settings.canned_messages == ("All well", "Storm,  we stay")
    assert parse("canned-messages=none", PATH).canned_messages == ()
    assert settings.gpsd == ("::1", 2948)
    assert parse("gpsd=none", PATH).gpsd is None


def test_java_properties_syntax_is_parsed() -> None:
    text = "# a comment\n! another\ninbound-hook : echo \\\n    h\\u00e9\nsatellite-port /dev/x\n"
    settings = parse(text, PATH)
    assert settings.inbound_hook == "echo hé"
    assert settings.satellite_port == "/dev/x"


def test_empty_settings_are_valid() -> None:
    settings = parse("", PATH, {"STATE_DIRECTORY": "/var/lib/fieldagent"})
    assert settings.api_port == 9091
    assert settings.satellite_port is None
    assert settings.state_directory == Path("/var/lib/fieldagent")


@pytest.mark.parametrize("unit", [{}, {"STATE_DIRECTORY": "/var/lib/fieldagent-update"}])
def test_installed_settings_use_state_directory_of_agent_in_each_unit(unit: dict[str, str]) -> None:
    """systemd gives root's units their shared folder, where the agent stores nothing."""
    assert parse("", INSTALLED, unit).state_directory == Path("/var/lib/fieldagent")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("satelite-port=/dev/ttyUSB0", "nearest is satellite-port"),
        ("webhook-adress=http://x", "nearest is webhook-address"),
        ("port=9091", "nearest are .*api-port"),
        ("satellite-baud=fast", "satellite-baud must be a whole number"),
        ("satellite-baud=٩٦٠٠", "satellite-baud must be"),
        ("api-port=70000", "from 0 to 65535"),
        ("canned-messages=All well;;Arrived", "must be none, or at most 20 texts"),
        (f"canned-messages={'x' * 161}", "texts of 1 to 160 characters"),
        (f"canned-messages={';'.join('x' * 21)}", "at most 20 texts"),
        ("fan-out=all", "fan-out must be every, first or cheapest, not 'all'"),
        ("package-time-to-live=0", "from 1 to"),
        ("webhook-address=ftp://example.org", "must be a URL"),
        ("webhook-address=http://", "must be a URL"),
        ("webhook-address=http://a:b:c/", "not a URL"),
        ("webhook-secret=whsec_short", "whsec_"),
        ("satellite-key=abc", "64 hexadecimal digits"),
        ("satellite-credit-price=0,12 EUR", "such as 0.12 EUR, not '0,12 EUR'"),
        ("satellite-receipts=never", "must be ride or at-once"),
        ("inbound-hook=", "is empty"),
        ("hub-address=http://hub.example.org", "must be https://"),
        ("hub-address=https://hub.example.org/path", "a host, with an optional port"),
        ("hub-address=https://user@hub.example.org", "a host, with an optional port"),
        ("hub-address=hub.example.org", "must be a URL"),
        ("hub-address=https://hub.example.org", "hub-address needs hub-token"),
        ("hub-token=abc", "hub-token needs hub-address"),
        ("hub-token=a b", "without blanks"),
        ("hub-ca-file=ca.pem", "begins with /"),
        ("cellular-interface=much-too-long-a-name", "such as wwan0"),
        ("cellular-interface=wwan 0", "such as wwan0"),
        ("cellular-interface=wwan0", "cellular-interface needs hub-address"),
        ("cellular-ping=2", "from 5 to 86400"),
        ("cellular-recovery-after=9", "from 60 to"),
        ("cellular-heal=dtr", "a link by IP has no serial port"),
        ("cellular-heal=usb", "usb:DEVICE such as usb:1-1.2"),
        ("x=\\u12", "u"),
    ],
)
def test_fault_of_setting_names_key_and_remedy(line: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said) as caught:
        parse(line, PATH)
    assert "agent.properties" in str(caught.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]:8080"])
def test_hub_on_same_machine_needs_no_tls(host: str) -> None:
    settings = parse(f"hub-address=http://{host}\nhub-token=t\ncellular-ping=0\n", PATH)
    assert settings.hub_address == f"http://{host}"
    assert settings.cellular_ping == 0


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidSettings) as caught:
        parse("api-port=x\nsatelite-port=/dev/x\nkeep-ended-days=-1\n", PATH)
    assert len(caught.value.faults) == 3


def test_only_default_settings_file_may_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.properties")
    assert load(None, {"XDG_CONFIG_HOME": str(tmp_path)}).api_port == 9091
    (tmp_path / "latin.properties").write_bytes(b"inbound-hook=\xe9")
    with pytest.raises(InvalidSettings, match="UTF-8"):
        load(tmp_path / "latin.properties")


def test_directories_follow_xdg() -> None:
    assert get_default_path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/fieldagent/agent.properties")
    home = Path.home()
    assert get_default_path({"XDG_CONFIG_HOME": "relative"}).is_relative_to(home / ".config")
    assert find_state_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/fieldagent")


def test_root_with_installed_settings_uses_state_directory_of_unit() -> None:
    installed = Path("/etc/fieldagent/agent.properties")
    assert parse("", installed, {"HOME": "/root"}).state_directory == Path("/var/lib/fieldagent")


def test_duplicate_setting_is_rejected() -> None:
    with pytest.raises(InvalidSettings, match="satellite-port is set 2 times: keep one"):
        parse("satellite-port=/dev/a\napi-port=0\nsatellite-port=/dev/b\n", PATH)
