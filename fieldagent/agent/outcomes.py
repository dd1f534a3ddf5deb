"""What agent and root's units leave for each other: offers of the hub, and how the last changes of
this kit's program and settings ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fieldagent.system.folder import put_file
from fieldagent.wire.kit_note import KitReport, OfferReport, UpdateReport

OFFER = "settings.offer"
"""In the agent's state directory: settings that the hub has brought."""
PROGRAM_OFFER = "program.offer"
"""There too: where a program is."""
PROGRAM_DELTA = "program.delta"
"""There too: what makes it of the one that is here, where the offer brings that itself."""
REBOOT = "reboot.ask"
"""There too: in which boot the machine is to start anew, by the hub's command."""
UPDATE_TRIAL, SETTINGS_TRIAL, SYSTEM_TRIAL = "trial.json", "settings.json", "system.json"
"""In root's folder: there while a change of the program, the settings or the system is on trial."""
UPDATE = "result.json"
SETTINGS = "settings-result.json"
PROGRAM = "offer-result.json"
SOS_IN_MEMORY = (
    "an SOS is open that memory alone has ({}), and to stop the agent would lose it: see to the"
    " disk, or wait until the SOS has ended"
)
"""Why neither a unit of root's nor a command of the hub's stops the agent."""


def folder_of(state_directory: Path) -> Path:
    """Return root's folder, beside the agent's own: /var/lib/fieldagent-update of the unit."""
    return state_directory.with_name(f"{state_directory.name}-update")


def read(state_directory: Path) -> KitReport:
    """Read what became of changes; nothing of what cannot be read: an earlier version let nobody
    but root in."""
    folder = folder_of(state_directory)
    return KitReport(
        _update(folder / UPDATE), of_offer(folder / SETTINGS), of_offer(folder / PROGRAM)
    )


def at_work(state_directory: Path) -> bool:
    """Return whether a change is on trial, whose end will be told here."""
    folder = folder_of(state_directory)
    return any((folder / each).exists() for each in (UPDATE_TRIAL, SETTINGS_TRIAL, SYSTEM_TRIAL))


def _update(path: Path) -> UpdateReport | None:
    values = _found(path, version=str, previous_version=str, why=str)
    return None if values is None else UpdateReport(*values)


def of_offer(path: Path) -> OfferReport | None:
    """Return what became of the offered update; None where the file is not there or damaged."""
    values = _found(path, number=int, state=str, why=str)
    return None if values is None else OfferReport(*values)


def leave(path: Path, number: int, state: str, why: str = "") -> None:
    """Write down what became of an offer. Root does: the agent reads it, and the hub lists it."""
    result = {"number": number, "state": state, "why": why}
    put_file(path, json.dumps(result).encode(), mode=0o644)


def _found(path: Path, **members: type) -> list[Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict):
        return None
    values = [document.get(name) for name in members]
    return values if list(map(type, values)) == list(members.values()) else None
