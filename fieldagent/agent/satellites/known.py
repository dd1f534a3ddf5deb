"""Which satellite modems there are. A new one is a module or folder beside this one, and a line
here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fieldagent.system.named_object import known_object

if TYPE_CHECKING:
    from fieldagent.agent.satellites.contract import SatelliteModem

MODEMS = {
    "sbd": "fieldagent.agent.satellites.sbd:MODEM",
    "imt": "fieldagent.agent.satellites.imt.kind:MODEM",
    "auto": "fieldagent.agent.satellites.auto:MODEM",
}
"""By what `satellite-modem` calls them. A kit loads the one that it has."""


def modem(name: str) -> SatelliteModem:
    """Load the modem of this name, or a third party's: `package.module:NAME`.

    Raises WrongProperty, in words that follow `satellite-modem`.
    """
    from fieldagent.agent.satellites.contract import SatelliteModem  # a kit without does without

    return known_object(name, MODEMS, SatelliteModem)
