"""The library's `NamedTuple`, whose constructor is built when the first object of a class is made.

The library compiles each annotation, which we never read, and a constructor. This takes a fifth of
a millisecond and 8 kB for each class. An agent loads more than a hundred such classes at its start,
which took a fifth of the import time of trio.
"""

from __future__ import annotations

from _collections import _tuplegetter  # type: ignore[import-not-found]
from collections import namedtuple
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self


class _Tuple(tuple[Any, ...]):
    """Common part of all classes (`collections.namedtuple`)."""

    __slots__ = ()
    _fields: tuple[str, ...]

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        instance = tuple.__new__(cls, values)
        if len(instance) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(instance)}")
        return instance

    def _replace(self, /, **members: Any) -> Self:
        instance = self._make(map(members.pop, self._fields, self))
        if members:
            raise TypeError(f"Got unexpected field names: {list(members)!r}")
        return instance

    __replace__ = _replace

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        members = map("{}={!r}".format, self._fields, self)
        return f"{type(self).__name__}({', '.join(members)})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _TupleMaker(type):
    """Converts each class that is written with `NamedTuple` into a tuple with named members."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        getters = {field: _tuplegetter(index, None) for index, field in enumerate(fields)}
        others = tuple(base for base in bases if not isinstance(base, _TupleMaker))

        def make_first(cls: Any, /, *values: Any, **members: Any) -> Any:
            # No lock is needed, because concurrent threads get the same result.
            worked_out: Any = namedtuple(name, fields, defaults=defaults.values())  # type: ignore[misc]
            kind.__new__ = worked_out.__new__
            return worked_out.__new__(cls, *values, **members)

        body |= {
            "__slots__": (),
            "__match_args__": fields,
            "__new__": make_first,
            "_fields": fields,
            "_field_defaults": defaults,
        }
        kind: Any = type(name, (_Tuple, *others), body | getters)
        return kind


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = type.__new__(_TupleMaker, "NamedTuple", (), {})
