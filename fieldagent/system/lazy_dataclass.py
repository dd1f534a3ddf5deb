"""The library's `dataclass` with slots, worked out when the first of a class is made.

The library writes six functions for each class as text and compiles them, half a millisecond
together. An agent loads some ninety such classes at its start, which took a third of what it takes
to import trio, and makes something of a few of them until it listens.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any


def _slotted(plain: type[Any] | None = None, /, **options: Any) -> Any:
    """As `dataclass`, which type checkers take it for; no base may have members.
    `dataclasses.replace` and the like take what was made of it, and not the class."""
    if plain is None:
        return partial(_slotted, **options)
    if not options.get("slots"):
        # It may have more than its members.
        return dataclasses.dataclass(plain, **options)
    kind: Any = type(plain)
    attributes = {name: value for name, value in vars(plain).items() if name not in _OF_PLAIN}
    attributes["__qualname__"] = plain.__qualname__
    names = [name for name, text in plain.__annotations__.items() if "ClassVar" not in text]
    # What stands there under a member's name is its default.
    body = {name: value for name, value in attributes.items() if name not in names}
    slotted = kind(plain.__name__, plain.__bases__, {**body, "__slots__": tuple(names)})

    # It names `slotted` alone: `plain` has done its work and goes.
    def first(self: Any, *values: Any, **members: Any) -> None:
        # Of its own for each thread that comes here at one moment: they find the same.
        worked_out = kind(slotted.__name__, slotted.__bases__, dict(attributes))
        # Else the library works out a text of the signature.
        worked_out.__doc__ = slotted.__doc__ or slotted.__name__
        dataclasses.dataclass(worked_out, **{**options, "slots": False})
        kept = (attributes.keys() | _OF_PLAIN) - {"__hash__"}
        for name, value in vars(worked_out).items():
            if name not in kept:
                setattr(slotted, name, value)
        slotted.__init__(self, *values, **members)

    slotted.__init__ = first
    return slotted


_OF_PLAIN = {"__dict__", "__weakref__"}

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _slotted
