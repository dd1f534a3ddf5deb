"""Extensions. Each folder in this package adds one subject to the core. An entry in `NAMES` enables
it.

To remove an extension, delete its folder and its line in `NAMES`. The core imports this list but
imports no extension directly. `list_places` returns the locations of the objects that extensions
add, and the core imports those objects that the settings use. A settings file can add a third-party
extension with `extensions`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from fieldagent.system.extension import Extension, import_named_object

NAMES = (
    "desk",
    "fleet",
    "imt",
    "lab",
    "mqtt",
    "people",
    "places",
    "radio",
    "rescue",
    "sms",
    "tak",
)
SETTINGS = {
    "cloudloop-": "imt",
    "imap-": "desk",
    "imt-": "imt",
    "mail-from": "desk",
    "mesh-": "people",
    "meshcore-kiss-": "radio",
    "meshtastic-": "radio",
    "mqtt-": "mqtt",
    "radio-": "radio",
    "rnode-": "radio",
    "sms-": "sms",
    "smtp-": "desk",
    "tak-": "tak",
    "twilio-": "sms",
    "udp-": "radio",
}
"""Extension of each setting, by the prefix of the setting's name. An entry remains when its
extension is deleted, so that `fieldagent check` can name the extension."""
_THIRD_PARTY: dict[str, Extension] = {}
"""Extensions that the settings file names, by their locations. A process reads only one settings
file, so it has one set of third-party extensions."""


@cache
def _get_own_extensions() -> Mapping[str, Extension]:
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in NAMES}
    return {name: module.EXTENSION for name, module in modules.items()}


def get_extensions() -> Mapping[str, Extension]:
    """Return the description of each extension, by the name of its folder or by its location."""
    return {**_get_own_extensions(), **_THIRD_PARTY}


def add_extensions(value: str) -> tuple[str, ...]:
    """Add third-party extensions and return their locations. `value` contains locations in the form
    `package.module:NAME`, separated by spaces. Raises WrongProperty if there is no extension at a
    location.
    """
    extension_names = tuple(value.split())
    _THIRD_PARTY.update(
        {
            extension_name: import_named_object(extension_name, Extension)
            for extension_name in extension_names
        }
    )
    return extension_names


def find_absent_extension(setting: str) -> str:
    """Return the name of the deleted extension to which a setting belongs, or an empty string."""
    owners = (name for beginning, name in SETTINGS.items() if setting.startswith(beginning))
    return next((name for name in owners if name not in NAMES), "")


def get_own_calls() -> list[str]:
    """Return the locations of the calls that built-in extensions add to the hub's API."""
    return [each.hub_api for each in _get_own_extensions().values() if each.hub_api]


def get_third_party_calls() -> list[str]:
    """Return the locations of the calls that third-party extensions add to the hub's API."""
    return [each.hub_api for each in _THIRD_PARTY.values() if each.hub_api]


def list_places(kind: str) -> dict[str, str]:
    """Return the locations that all extensions have in the field `kind` of `Extension`, by name."""
    place_by_name: dict[str, str] = {}
    for extension in get_extensions().values():
        place_by_name |= getattr(extension, kind)
    return place_by_name
