"""How the last update of this kit ended, as root's unit has left it for the agent to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fieldagent.wire.kit_note import KitReport, UpdateReport

UPDATE = "result.json"


def folder_of(state_directory: Path) -> Path:
    """Root's, beside the agent's own: /var/lib/fieldagent-update of the unit."""
    return state_directory.with_name(f"{state_directory.name}-update")


def read(state_directory: Path) -> KitReport:
    """Nothing of what cannot be read: an earlier version let nobody but root in."""
    folder = folder_of(state_directory)
    update = _found(folder / UPDATE)
    try:
        return KitReport(
            update and UpdateReport(update["version"], update["previous_version"], update["why"])
        )
    except (KeyError, TypeError):
        return KitReport()


def _found(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
