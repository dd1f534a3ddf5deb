"""The library's `dataclass` with slots, built when the first object of a class is made.

The library writes and compiles six functions for each class, in about half a millisecond. An agent
loads about ninety such classes at its start, but uses only a few of them before it listens.
Building all of them took a third of the import time of trio.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any


def _make_slotted(cls: type[Any] | None = None, /, **options: Any) -> Any:
    """Replacement for `dataclass`; type checkers see the original. Base classes must not have
    members. `dataclasses.replace` and similar functions accept objects, but not the class.
    """
    if cls is None:
        return partial(_make_slotted, **options)
    if not options.get("slots"):
        # Build a class without `slots` at once, because its objects may have other attributes.
        return dataclasses.dataclass(cls, **options)
    kind: Any = type(cls)
    attributes = {
        name: value for name, value in vars(cls).items() if name not in _PLAIN_CLASS_NAMES
    }
    attributes["__qualname__"] = cls.__qualname__
    names = [name for name, text in cls.__annotations__.items() if "ClassVar" not in text]
    # A class attribute with a member's name is that member's default.
    body = {name: value for name, value in attributes.items() if name not in names}
    slotted = kind(cls.__name__, cls.__bases__, {**body, "__slots__": tuple(names)})

    # The closure refers only to `slotted`, so that `plain` is freed after its use.
    def decorate_later(self: Any, *values: Any, **members: Any) -> None:
        # No lock is needed: concurrent threads may each build the class, with the same result.
        worked_out = kind(slotted.__name__, slotted.__bases__, dict(attributes))
        # Set the signature here, because otherwise the library builds the signature's text.
        worked_out.__doc__ = slotted.__doc__ or slotted.__name__
        dataclasses.dataclass(worked_out, **{**options, "slots": False})
        removed_names = (attributes.keys() | _PLAIN_CLASS_NAMES) - {"__hash__"}
        for name, value in vars(worked_out).items():
            if name not in removed_names:
                setattr(slotted, name, value)
        slotted.__init__(self, *values, **members)

    slotted.__init__ = decorate_later
    return slotted


_PLAIN_CLASS_NAMES = {"__dict__", "__weakref__"}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _make_slotted
