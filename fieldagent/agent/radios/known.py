"""Which radios there are. A new one is a module or folder beside this one, and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fieldagent.system.named_object import known_object

if TYPE_CHECKING:
    from fieldagent.agent.radios.contract import Radio

RADIOS = {
    "node": "fieldagent.agent.radios.node:RADIO",
    "kiss": "fieldagent.agent.radios.kiss:RADIO",
    "meshcore-kiss": "fieldagent.agent.radios.meshcore_kiss:RADIO",
    "rnode": "fieldagent.agent.radios.rnode:RADIO",
    "udp": "fieldagent.agent.radios.udp:RADIO",
}
"""By what `radio-protocol` calls them. A kit loads the one that it has."""


def radio(name: str) -> Radio:
    """Load the radio of this name, or a third party's: `package.module:NAME`.

    Raises WrongProperty, in words that follow `radio-protocol`.
    """
    from fieldagent.agent.radios.contract import Radio  # a kit without does without

    return known_object(name, RADIOS, Radio)
