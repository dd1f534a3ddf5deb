"""Files that the agent and root's units exchange: offers of the hub, and the results of the last
changes of the kit's program and settings.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fieldagent.system.folder import replace_file
from fieldagent.wire.kit_note import KitReport, OfferReport, UpdateReport

OFFER = "settings.offer"
"""File in the agent's state directory with settings from the hub."""
PROGRAM_OFFER = "program.offer"
"""File in the agent's state directory with the URL of a program."""
PROGRAM_DELTA = "program.delta"
"""File in the agent's state directory with the delta that makes the offered program, if the offer
includes a delta."""
REBOOT = "reboot.ask"
"""File in the agent's state directory with the id of the boot in which a command of the hub ordered
a reboot."""
UPDATE_TRIAL, SETTINGS_TRIAL, SYSTEM_TRIAL = "trial.json", "settings.json", "system.json"
"""Files in root's folder. Each exists while a change of the program, the settings or the system is
tried."""
UPDATE = "result.json"
SETTINGS = "settings-result.json"
PROGRAM = "offer-result.json"
SOS_IN_MEMORY = (
    "an open SOS is only in memory ({}), and a stop of the agent would lose it: repair the"
    " disk, or wait until the SOS has ended"
)
"""Reason why neither root's units nor a command of the hub may stop the agent."""


def find_root_folder(state_directory: Path) -> Path:
    """Return root's folder, which is next to the agent's state directory. For the systemd unit it
    is /var/lib/fieldagent-update.
    """
    return state_directory.with_name(f"{state_directory.name}-update")


def read(state_directory: Path) -> KitReport:
    """Return the results of the last changes. Results that cannot be read are left out, because an
    earlier version allowed only root to read them.
    """
    folder = find_root_folder(state_directory)
    return KitReport(
        _read_update_report(folder / UPDATE),
        read_offer_report(folder / SETTINGS),
        read_offer_report(folder / PROGRAM),
    )


def is_at_work(state_directory: Path) -> bool:
    """Return True if a change is being tried, so that its result will be written later."""
    folder = find_root_folder(state_directory)
    return any((folder / each).exists() for each in (UPDATE_TRIAL, SETTINGS_TRIAL, SYSTEM_TRIAL))


def _read_update_report(path: Path) -> UpdateReport | None:
    values = _read_outcomes(path, version=str, previous_version=str, why=str)
    return None if values is None else UpdateReport(*values)


def read_offer_report(path: Path) -> OfferReport | None:
    """Return the result of an offer, or None if the file is missing or damaged."""
    values = _read_outcomes(path, number=int, state=str, why=str)
    return None if values is None else OfferReport(*values)


def write_outcome(path: Path, offer_number: int, state: str, reason: str = "") -> None:
    """Write the result of an offer. Root calls this function, the agent reads the result, and the
    hub lists it.
    """
    result = {"number": offer_number, "state": state, "why": reason}
    replace_file(path, json.dumps(result).encode(), mode=0o644)


def _read_outcomes(path: Path, **members: type) -> list[Any] | None:
    """Return the values of these members of a JSON file, or None if the file cannot be read or a
    value has another type.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    values = [document.get(name) for name in members]
    return values if list(map(type, values)) == list(members.values()) else None
