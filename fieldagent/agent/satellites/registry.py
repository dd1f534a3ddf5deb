"""Registry of the satellite modems. To add a modem of the core, add a module or folder here, and a
line below. An extension adds its modem with `Extension.satellite_modems`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fieldagent.extensions import list_places
from fieldagent.system.extension import import_known_object
from fieldagent.system.properties import WrongProperty

if TYPE_CHECKING:
    from fieldagent.agent.satellites.contract import SatelliteModem
    from fieldagent.system.properties import Key

MODEMS = {"sbd": "fieldagent.agent.satellites.sbd:MODEM"}
"""Import paths (`package.module:NAME`) of the core's modems, by name in `satellite-modem`. The
agent imports only the configured modem."""
AUTO = "auto"
"""Value of `satellite-modem` for any kind that answers at the port."""


def get_modems() -> dict[str, str]:
    """Return the import path (`package.module:NAME`) of each modem of the core and of all
    extensions, by its name in `satellite-modem`.
    """
    return {
        **MODEMS,
        **list_places("satellite_modems"),
        AUTO: "fieldagent.agent.satellites.auto:MODEM",
    }


def load_modem(name: str) -> SatelliteModem:
    """Load the modem `name`, which may be a third-party modem: `package.module:NAME`.

    Raises WrongProperty, with a text that follows `satellite-modem`, if the modem cannot be loaded.
    """
    # Import this module here, so that a kit without a satellite modem saves this memory.
    from fieldagent.agent.satellites.contract import SatelliteModem

    return import_known_object(name, get_modems(), SatelliteModem)


def list_own_keys(pairs: Mapping[str, str]) -> Sequence[Key]:
    """Return the keys of the configured modem, and of each modem for which `pairs`, the settings in
    the file, contains a setting. (A user may keep settings while trying another modem.) A modem
    that cannot be loaded has no keys, because the error of `satellite-modem` shows the reason.
    """
    modem_name = pairs.get("satellite-modem", "")
    other_modems = {*get_modems()} - {*MODEMS, AUTO}
    modem_names = [
        name
        for name in other_modems | {modem_name} - {*MODEMS, AUTO, ""}
        if name == modem_name
        or modem_name == AUTO
        or any(key.startswith(f"{name}-") for key in pairs)
    ]
    keys: list[Key] = []
    for name in sorted(modem_names):
        try:
            keys += load_modem(name).keys
        except WrongProperty:
            continue
    return keys
