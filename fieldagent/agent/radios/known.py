"""Which radios there are. A new one is a module or folder beside this one, and a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fieldagent.system.java_properties import NoProperties, pairs
from fieldagent.system.named_object import known_object
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
"""By what `radio-protocol` calls them. A kit loads the one that it has."""


def radio(name: str) -> Radio:
    """Load the radio of this name, or a third party's: `package.module:NAME`.

    Raises WrongProperty, in words that follow `radio-protocol`.
    """
    from fieldagent.agent.radios.contract import Radio  # a kit without does without

    return known_object(name, RADIOS, Radio)


def own_keys(text: str) -> Sequence[Key]:
    """Return the settings that the radio brings which a settings file names; of one that cannot be
    loaded none, as its key tells why."""
    try:
        named = dict(pairs(text)).get("radio-protocol")
        return () if named is None else radio(named).keys
    except (NoProperties, WrongProperty):
        return ()


def unfit(settings: Mapping[str, str]) -> list[str]:
    """Return what the radio that the file names cannot do without, and does not have."""
    try:
        kind = radio(settings["radio-protocol"])
    except (KeyError, WrongProperty):
        return []
    named = f"radio-protocol={kind.name}"
    known = {*settings}
    if "radio-region" in settings:
        # It tells what a share would.
        known.add(f"{kind.name}-share")
    return [f"{named} needs {name}: set that too" for name in kind.needs if name not in known]
