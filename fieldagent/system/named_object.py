"""Objects that are named in settings, either by one of our names or by their place in Python,
`package.module:NAME`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from fieldagent.system.properties import WrongProperty

T = TypeVar("T")


def import_known_object(name: str, places: Mapping[str, str], kind: type[T]) -> T:
    """Import the object of this `kind` whose place is in `places` under `name`. If there is none,
    `name` is itself the place of a third-party object.

    Raises WrongProperty if there is no such object. The error's text follows the setting's name.
    """
    if name not in places and ":" not in name:
        raise WrongProperty(
            f"must be {', '.join(places)} or package.module:NAME of one of your own, not {name!r}"
        )
    return import_named_object(places.get(name, name), kind)


def import_own(place: str) -> Any:
    """Import the object at one of our own places, `package.module:NAME`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def import_named_object(place: str, kind: type[T]) -> T:
    """Import the object of this `kind` from a place. Raises WrongProperty if there is no such
    object. The error's text follows the setting's name.
    """
    module, colon, name = place.partition(":")
    if not colon:
        raise WrongProperty(f"must be package.module:NAME, not {place!r}")
    try:
        target = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]
        remedy = "; add the folder of this module to PYTHONPATH" if is_absent else ""
        raise WrongProperty(f"names {place}, which cannot be loaded: {error}{remedy}") from None
    if not isinstance(target, kind):
        qualified_name = f"{kind.__module__}.{kind.__qualname__}"
        raise WrongProperty(f"names {place}, which is not a {qualified_name}")
    return target
