"""Registry of the radios. To add a radio, add a module or folder to `radios/`, and a line to
`RADIOS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fieldagent.system.extension import import_known_object
from fieldagent.system.properties import WrongProperty

if TYPE_CHECKING:
    from fieldagent.agent.channels.recognition import Recognition
    from fieldagent.extensions.radio.contract import Radio

_HOME = "fieldagent.extensions.radio.radios"
RADIOS = {
    "node": f"{_HOME}.node:RADIO",
    "kiss": f"{_HOME}.kiss:RADIO",
    "meshcore-kiss": f"{_HOME}.meshcore_kiss:RADIO",
    "rnode": f"{_HOME}.rnode:RADIO",
    "meshtastic": f"{_HOME}.meshtastic:RADIO",
    "udp": f"{_HOME}.udp:RADIO",
}
"""Radios by their name in `radio-protocol`. The agent loads only the radio of its settings."""


def load_radio(name: str) -> Radio:
    """Load the radio `name`, which may be a third-party radio: `package.module:NAME`.

    Raises WrongProperty, with a text that follows `radio-protocol`, if the radio cannot be loaded.
    """
    # Import this module here, so that a kit without a radio saves this memory.
    from fieldagent.extensions.radio.contract import Radio

    return import_known_object(name, RADIOS, Radio)


def list_recognitions() -> list[Recognition]:
    """Return the recognition of each kind of radio that can be recognised."""
    makers = [load_radio(name).recognition for name in RADIOS]
    return [make_recognition() for make_recognition in makers if make_recognition]


def find_missing_settings(settings: Mapping[str, str]) -> list[str]:
    """Return an error for each missing setting that the configured radio requires."""
    try:
        kind = load_radio(settings["radio-protocol"])
    except (KeyError, WrongProperty):
        return []
    setting = f"radio-protocol={kind.name}"
    known_names = {*settings}
    if "radio-region" in settings:
        # The region determines the share, so the setting for it is not required.
        known_names.add(f"{kind.name}-share")
    return [
        f"{setting} needs {name}: set that too" for name in kind.needs if name not in known_names
    ]
