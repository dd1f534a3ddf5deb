"""Registry of the satellite modems. To add a modem, add a module or folder here, and a
line below.
"""

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
"""Modems by their name in `satellite-modem`. A kit loads only its own modem."""


def modem(name: str) -> SatelliteModem:
    """Load the modem with this name, or a third-party modem: `package.module:NAME`.

    Raises WrongProperty, in words that follow `satellite-modem`.
    """
    # Imported here, so that a kit without a satellite modem saves this memory.
    from fieldagent.agent.satellites.contract import SatelliteModem

    return known_object(name, MODEMS, SatelliteModem)
