"""The behaviour of the standard `dataclass` with slots, without its cost before the first use."""

from __future__ import annotations

import ast
import dataclasses
import gc
import threading
import weakref
from pathlib import Path
from typing import Any, ClassVar

import pytest

from fieldagent.system.lazy_dataclass import dataclass

PROGRAM = Path(__file__).parents[2] / "fieldagent"


def make_class(decorate: Any, **options: Any) -> Any:
    @decorate(**options)
    class Fix:
        """A position."""

        latitude: float
        name: str = "camp"
        heard: list[int] = dataclasses.field(default_factory=list, compare=False)
        source: ClassVar[str] = "gps"

        def __post_init__(self) -> None:
            self.heard.append(7)

        def moved(self, by: float) -> Any:
            this: Any = self
            return dataclasses.replace(this, latitude=self.latitude + by)

    return Fix


OPTIONS: list[dict[str, bool]] = [
    {"frozen": True},
    {},
    {"eq": False},
    {"frozen": True, "order": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_lazy_dataclass_behaves_like_the_standard_one(options: dict[str, bool]) -> None:
    def told(fix: Any) -> list[Any]:
        one = fix(47.0)
        other = fix(latitude=47.0, name="camp", heard=[1])
        facts: list[Any] = [repr(one), one == other, one != fix(47.5), one == 47.0, one.source]
        facts += [repr(other.moved(1)), dataclasses.asdict(other), dataclasses.astuple(one)]
        facts += [[each.name for each in dataclasses.fields(fix)], fix.__match_args__, fix.__doc__]
        facts += [fix.__qualname__, fix.__slots__, hasattr(one, "__dict__")]
        for act in (
            lambda: fix(),
            lambda: fix(47.0, height=3),
            lambda: setattr(one, "latitude", 1.0),
            lambda: hash(one) == hash(other),
            lambda: one < fix(48.0),
            lambda: setattr(one, "height", 3),
        ):
            try:
                facts.append(act())
            except (TypeError, AttributeError) as error:
                facts.append(AttributeError if isinstance(error, AttributeError) else str(error))
        return facts

    lazy = told(make_class(dataclass, slots=True, **options))
    eager = told(make_class(dataclasses.dataclass, slots=True, **options))
    assert lazy == eager


def test_methods_are_generated_at_the_first_instance() -> None:
    fix = make_class(dataclass, frozen=True, slots=True)
    assert not dataclasses.is_dataclass(fix)
    fix(1.0)
    assert dataclasses.is_dataclass(fix)


def test_original_class_is_garbage_collected() -> None:
    class Fix:
        latitude: float

    written = weakref.ref(Fix)
    slotted = dataclass(slots=True)(Fix)
    del Fix
    gc.collect()
    assert written() is None
    assert slotted(1.0).latitude == 1.0  # type: ignore[call-arg]


def test_dataclass_without_slots_is_the_standard_one() -> None:
    fix = make_class(dataclass)(1.0)
    fix.height = 3
    assert vars(fix) == {"latitude": 1.0, "name": "camp", "heard": [7], "height": 3}


def test_first_instance_is_thread_safe() -> None:
    for _ in range(50):
        fix = make_class(dataclass, frozen=True, slots=True)
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


def test_program_uses_no_standard_dataclass() -> None:
    others = []
    for file in PROGRAM.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
                others += [file.name for name in node.names if name.name == "dataclass"]
    # Type checkers treat one as the other.
    assert others == ["lazy_dataclass.py"]
