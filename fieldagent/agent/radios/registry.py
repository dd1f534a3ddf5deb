"""Registry of the radios. To add a radio, add a module or folder here, and a line below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fieldagent.system.java_properties import NoProperties, read_pairs
from fieldagent.system.named_object import import_known_object
from fieldagent.system.properties import WrongProperty

if TYPE_CHECKING:
    from fieldagent.agent.radios.contract import Radio
    from fieldagent.system.properties import Key

RADIOS = {
    "node": "fieldagent.agent.radios.node:RADIO",
    "kiss": "fieldagent.agent.radios.kiss:RADIO",
    "meshcore-kiss": "fieldagent.agent.radios.meshcore_kiss:RADIO",
    "rnode": "fieldagent.agent.radios.rnode:RADIO",
    "meshtastic": "fieldagent.agent.radios.meshtastic:RADIO",
    "udp": "fieldagent.agent.radios.udp:RADIO",
}
"""Radios by their name in `radio-protocol`. The agent loads only the radio of its settings."""


def load_radio(name: str) -> Radio:
    """Load the radio `name`, which may be a third-party radio: `package.module:NAME`.

    Raises WrongProperty, with a text that follows `radio-protocol`, if the radio cannot be loaded.
    """
    # Import this module here, so that a kit without a radio saves this memory.
    from fieldagent.agent.radios.contract import Radio

    return import_known_object(name, RADIOS, Radio)


def list_own_keys(text: str) -> Sequence[Key]:
    """Return the settings that the configured radio adds. If the radio cannot be loaded, return
    none: the error of `radio-protocol` then shows the reason.
    """
    try:
        protocol = dict(read_pairs(text)).get("radio-protocol")
        return () if protocol is None else load_radio(protocol).keys
    except (NoProperties, WrongProperty):
        return ()


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
