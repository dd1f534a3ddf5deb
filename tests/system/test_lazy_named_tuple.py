"""The behaviour of the standard `NamedTuple`, without its cost before the first use."""

from __future__ import annotations

import ast
import pickle
import threading
import typing
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

from fieldagent.system import lazy_named_tuple

PROGRAM = Path(__file__).parents[2] / "fieldagent"

KINDS: list[Any] = [typing.NamedTuple, lazy_named_tuple.NamedTuple]
LIBRARYS, LAZY = KINDS
Carried = TypeVar("Carried")


def make_class(named_tuple: Any) -> Any:
    class Fix(named_tuple):  # type: ignore[misc]
        """A position."""

        latitude: float
        name: str = "camp"
        """Name for people."""
        height: float | None = None

        def moved(self, by: float) -> Any:
            return self._replace(latitude=self.latitude + by)

        @property
        def north(self) -> bool:
            return bool(self.latitude > 0)

    return Fix


def get_result_or_error(act: Any) -> Any:
    try:
        return act()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def test_lazy_named_tuple_behaves_like_the_standard_one() -> None:
    def found(fix: Any) -> list[Any]:
        one, other = fix(47.0), fix(height=3.0, latitude=47.0)
        return [
            *(repr(one), tuple(one), one == fix(47.0), one == other, hash(one) == hash((*one,))),
            *(one.name, other.height, one.north, one.moved(1), one._asdict(), one < fix(48.0)),
            *(fix._fields, fix._field_defaults, fix.__match_args__, fix.__doc__, fix.__slots__),
            *(fix.__qualname__, fix.__module__, isinstance(one, tuple), hasattr(one, "__dict__")),
            fix._make([1.0, "hut", 2.0]),
            *map(
                get_result_or_error,
                [
                    lambda: fix(),
                    lambda: fix(1.0, depth=3),
                    lambda: fix(1.0, "hut", 2.0, 4),
                    lambda: fix._make([1.0]),
                    lambda: setattr(one, "depth", 1.0),
                ],
            ),
        ]

    assert found(make_class(LAZY)) == found(make_class(LIBRARYS))


@pytest.mark.parametrize("named_tuple", KINDS)
def test_make_works_before_the_first_instance(named_tuple: Any) -> None:
    assert make_class(named_tuple)._make([1.0, "hut", None]) == (1.0, "hut", None)


@pytest.mark.parametrize("named_tuple", KINDS)
def test_replace_with_an_unknown_field_raises(named_tuple: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"unexpected field names: \['depth'\]"):
        make_class(named_tuple)(1.0)._replace(depth=1.0)


@pytest.mark.parametrize("named_tuple", KINDS)
def test_lazy_named_tuple_supports_pattern_matching(named_tuple: Any) -> None:
    fix = make_class(named_tuple)
    match fix(1.0, "hut"):
        case fix(latitude, "hut", height=None):
            assert latitude == 1.0
        case other:
            raise AssertionError(other)


@pytest.mark.parametrize("named_tuple", KINDS)
def test_lazy_named_tuple_can_be_combined_with_generic_and_subclassed(named_tuple: Any) -> None:
    class Kept(named_tuple, Generic[Carried]):  # type: ignore[misc]
        carried: Carried

    class Last(Kept[Any]):
        def first(self) -> Any:
            return self.carried[0]

    assert Last("abc").first() == "a"
    assert type(Last("abc")._replace(carried="b")) is Last
    assert Kept[int](3).carried == 3


class Numbered(lazy_named_tuple.NamedTuple):
    number: int


def test_lazy_named_tuple_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Numbered(3))) == Numbered(3)


def test_methods_are_generated_at_the_first_instance() -> None:
    fix = make_class(LAZY)
    before = fix.__new__
    fix(1.0)
    after = fix.__new__
    fix(2.0)
    assert before is not after
    assert fix.__new__ is after


def test_first_instance_is_thread_safe() -> None:
    for _ in range(50):
        fix = make_class(LAZY)
        begin = threading.Barrier(4)
        seen: list[Any] = []

        def make(fix: Any = fix, begin: Any = begin, seen: Any = seen) -> None:
            begin.wait()
            seen.append(fix(1.0))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert seen == [fix(1.0)] * 4


def test_program_uses_no_standard_named_tuple() -> None:
    others = []
    for file in PROGRAM.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "typing":
                others += [file.name for name in node.names if name.name == "NamedTuple"]
    # Type checkers treat one as the other.
    assert others == ["lazy_named_tuple.py"]
