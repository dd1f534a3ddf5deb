"""Extensions. Each folder here adds one subject to the core, and an entry in `NAMES` turns it on.

To remove an extension, delete its folder and its line in `NAMES`. The core imports this list and
no extension: it asks `places` which objects there are, and imports those that the settings use.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache

from fieldagent.system.extension import Extension

NAMES = (
    "lab",
    "mqtt",
    "tak",
)
SETTINGS = {"mqtt-": "mqtt", "tak-": "tak"}
"""The extension of each setting, by the beginning of the setting's name. An entry stays if the
extension is deleted, so that `fieldagent check` can name it."""


@cache
def extensions() -> Mapping[str, Extension]:
    """Return the description of each extension by the name of its folder."""
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in NAMES}
    return {name: module.EXTENSION for name, module in modules.items()}


def absent_extension(setting: str) -> str:
    """Return the deleted extension that a setting belongs to, or an empty string."""
    owners = (name for beginning, name in SETTINGS.items() if setting.startswith(beginning))
    return next((name for name in owners if name not in NAMES), "")


def places(kind: str) -> dict[str, str]:
    """Return the places that all extensions have in the field `kind` of `Extension`, by name."""
    found: dict[str, str] = {}
    for extension in extensions().values():
        found |= getattr(extension, kind)
    return found
