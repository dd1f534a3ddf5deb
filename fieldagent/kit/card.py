"""Applies `kit.properties` from a memory card that `build/image` made. At each start of the system,
this module moves a new file from the boot partition and configures Debian's programs. It reports
the results on the partition.

    python3 -m fieldagent.kit.card take     before the network
    python3 -m fieldagent.kit.card check    once all has started
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fieldagent.agent.settings import INSTALLED
from fieldagent.kit import card_format, kit_health
from fieldagent.kit.card_format import ADAPTER, CAMP
from fieldagent.kit.provision import erase
from fieldagent.system.folder import replace_file
from fieldagent.system.log_lines import print_failure
from fieldagent.system.properties import InvalidSettings, read_file
from fieldagent.system.wording import describe_reason

BOOT = Path("boot/firmware")
NAMES = (card_format.NAME, f"{card_format.NAME}.txt")
"""Possible names of the file. Windows' Notepad adds the ending `.txt`, and Windows hides it."""
KEPT_CARD_FILE = Path("etc/fieldagent") / card_format.NAME
RESULT = "kit-result.txt"
TIMEOUT_S = 120.0
"""Longest time in seconds until all settings must work."""
CHECK_INTERVAL_S = 10.0
"""Seconds between two checks. The checks are rare because a slow board is busy at a start."""


def store_card(root: Path) -> str:
    """Move the file from the card to the system, and return ''. If the file is invalid, return the
    reason. The file then stays on the card, and the earlier settings stay valid. Raises OSError.
    """
    wrong = ""
    if waiting := _find_waiting_card(root):
        try:
            replace_file(root / KEPT_CARD_FILE, _read(waiting).encode())
            erase(waiting)
        except InvalidSettings as faults:
            wrong = str(faults)
        except OSError as error:
            # Continue without the file. Otherwise, a damaged boot partition would prevent the setup
            # of the network.
            wrong = f"{waiting}: {describe_reason(error)}"
    kept_settings = read_kept_settings(root)
    for name, content in card_format.make_files(kept_settings).items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        secret = "hostapd" in name or "wpa_supplicant" in name
        replace_file(target, content.encode(), mode=0o600 if secret else 0o644)
    if zone := kept_settings.get("time-zone"):
        localtime = root / "etc/localtime"
        localtime.unlink(missing_ok=True)
        localtime.symlink_to(f"/usr/share/zoneinfo/{zone}")
    return wrong


def _find_waiting_card(root: Path) -> Path | None:
    return next((each for name in NAMES if (each := root / BOOT / name).is_file()), None)


def _read(path: Path) -> str:
    """Read and check the file. Raises InvalidSettings with all errors in the file."""
    text = read_file(path, is_required=True)
    card_format.parse(text, path)
    return text


def read_kept_settings(root: Path) -> dict[str, str]:
    """Return the last valid settings from the card, by name. The result is empty if there were
    none, or if the copy of them is unreadable.
    """
    try:
        return card_format.parse(
            read_file(root / KEPT_CARD_FILE, is_required=True), root / KEPT_CARD_FILE
        )
    except (InvalidSettings, OSError) as wrong:
        if (root / KEPT_CARD_FILE).exists():
            print_failure(str(wrong))
        return {}


def start(card_settings: Mapping[str, str]) -> None:
    """Set the host name of the running system, and let systemd start the needed units, without
    waiting for them. Raises OSError.
    """
    if host := card_settings.get("hostname"):
        Path("/proc/sys/kernel/hostname").write_text(host)
    for unit in card_format.list_units(card_settings):
        kit_health.call_systemctl("start", "--no-block", unit)


def check_settings(card_settings: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return for each setting the reason why it does not work, or '' if it works."""
    reasons = {}
    addresses = _read_addresses()
    if "time-zone" in card_settings:
        is_known_zone = (root / "usr/share/zoneinfo" / card_settings["time-zone"]).is_file()
        reasons["time-zone"] = (
            "" if is_known_zone else f"unknown time zone {card_settings['time-zone']}"
        )
    if own := card_settings.get("address"):
        adapters = [name for name, each in addresses.items() if own in each and name != ADAPTER]
        reasons["address"] = "" if adapters else f"no Ethernet adapter has {own}"
    if name := card_settings.get("wifi"):
        own = ", ".join(addresses.get(ADAPTER, []))
        reasons["wifi"] = "" if own else _find_adapter(addresses) or f"{name} was not joined"
    if "access-point" in card_settings:
        running = all(map(_is_active, card_format.list_units(card_settings)))
        works = running and CAMP in addresses.get(ADAPTER, [])
        reasons["access-point"] = "" if works else _find_adapter(addresses) or "it does not run"
    status = kit_health.fetch_status(root / INSTALLED.relative_to("/"))
    reasons["agent"] = "" if status else "it does not answer: fieldagent.properties on the card"
    if status and status["channels"]["Cellular"]["configured"]:
        cellular = status["channels"]["Cellular"]
        works = cellular["state"] in kit_health.WORKING_STATES
        reasons["hub"] = "" if works else f"{cellular['state']}: {cellular['reason']}"
    return reasons


def _find_adapter(addresses: Mapping[str, list[str]]) -> str:
    return "" if ADAPTER in addresses else f"adapter {ADAPTER} not found"


def _read_addresses() -> dict[str, list[str]]:
    """Return the IPv4 and IPv6 addresses of each interface."""
    output = subprocess.run(["ip", "-json", "address"], capture_output=True).stdout
    links: list[dict[str, Any]] = json.loads(output or b"[]")
    return {
        each["ifname"]: [
            f"{own['local']}/{own['prefixlen']}"
            for own in each["addr_info"]
            if own["scope"] == "global"
        ]
        for each in links
    }


def _is_active(unit: str) -> bool:
    return subprocess.run(["systemctl", "is-active", "--quiet", unit]).returncode == 0


def describe_result(
    card_settings: Mapping[str, str], reasons: Mapping[str, str], fault_text: str
) -> str:
    """Return the result as a text for the card, which people read on a laptop. The text contains no
    secrets.
    """
    lines = [f"Not applied: {fault_text}"] if fault_text else []
    lines += [f"{name}: {reason or 'works'}" for name, reason in reasons.items()]
    host = card_settings.get("hostname")
    return "\n".join([f"This is {host}." if host else "This kit has no name.", *lines, ""])


def check(root: Path) -> None:
    """Check the settings until they all work, or for `TIMEOUT_S`. Write the result to the card if
    it has changed. Raises OSError.
    """
    kept_settings, until = read_kept_settings(root), time.monotonic() + TIMEOUT_S
    while (
        any((reasons := check_settings(kept_settings, root)).values()) and time.monotonic() < until
    ):
        time.sleep(CHECK_INTERVAL_S)
    wrong = ""
    if waiting := _find_waiting_card(root):
        try:
            _read(waiting)
            wrong = f"{waiting.name} waits for the next start"
        except InvalidSettings as faults:
            wrong = "; ".join(faults.faults)
    text, target = describe_result(kept_settings, reasons, wrong).encode(), root / BOOT / RESULT
    if not target.exists() or target.read_bytes() != text:
        replace_file(target, text)


def main() -> int:
    """Take the settings, configure the system and start the needed units. With the argument
    `check`, write the results to the card.
    """
    root = Path("/")
    if sys.argv[1:] == ["check"]:
        check(root)
        return 0
    if wrong := store_card(root):
        print_failure(wrong)
    start(read_kept_settings(root))
    return 0


if __name__ == "__main__":
    sys.exit(main())
