"""Checks the kit's radio for handhelds, for `fieldagent check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fieldagent.agent.channels.serial_check import check_serial_port
from fieldagent.extensions.people.settings import PeopleSettings
from fieldagent.system.finding import Finding


def check(
    settings: PeopleSettings, mesh: Mapping[str, Any] | None, folder: Path
) -> Iterator[Finding]:
    """Yield the state of the radio, from the running agent's status or from the radio's port. If no
    agent runs, a radio at a TCP address is not checked.
    """
    port = settings.port or ""
    if mesh:
        text = f"people's radio at {port}: {mesh['reason'] or mesh['state']}"
        yield Finding(mesh["state"] == "ready", text)
    elif port.startswith("tcp://"):
        yield Finding(True, f"people's radio: {port} is reached once the agent runs")
    else:
        yield check_serial_port(Path(port))
