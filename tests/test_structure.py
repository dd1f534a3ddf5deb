"""The lint steps for layers and sizes report a fault of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import layers, sizes


def tree_of(home: Path, sources: dict[str, str]) -> layers.Tree:
    """Return a tree of these modules, by dotted name, with an `__init__` in each package."""
    for name, source in sources.items():
        path = home.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(source)
    return layers.Tree(home)


@pytest.mark.parametrize(
    ("sources", "fault"),
    [
        ({"agent.a": "", "hub.b": "import fieldagent.agent.a"}, "hub.b imports agent"),
        ({"wire.a": "from fieldagent.hub import b", "hub.b": ""}, "wire.a imports hub"),
        ({"hub.hub": "", "hub.field.b": "import fieldagent.hub.hub"}, "hub.field imports"),
        (
            {"store.a": "from fieldagent.store import b", "store.b": "import fieldagent.store.a"},
            "circle",
        ),
        (
            {"extensions.a.b": "", "agent.c": "import fieldagent.extensions.a.b"},
            "agent.c imports extensions",
        ),
        (
            {"extensions.a.b": "", "extensions.c.d": "import fieldagent.extensions.a.b"},
            "extensions.c imports extensions.a",
        ),
        ({"wire.a": "import trio"}, "wire.a is pure and imports trio"),
        ({"wire.a": "stamp = datetime.now()"}, "wire.a is pure and calls now()"),
        ({"hub.b": "trio.run(main)"}, "hub.b calls trio.run"),
    ],
)
def test_each_kind_of_layer_fault_is_reported(
    tmp_path: Path, sources: dict[str, str], fault: str
) -> None:
    reports = layers.faults(tree_of(tmp_path, sources))
    assert any(fault in report for report in reports), reports


@pytest.mark.parametrize(
    "source",
    [
        "trio.sleep(rest)",
        "trio.move_on_after(self.due - trio.current_time())",
        "trio.fail_after(seconds=LIMIT - 5)",
        "trio.sleep(-1)",
        "trio.move_on_after(PATIENCE + self.on_air)",
        "trio.CancelScope(relative_deadline=rest)",
        "from trio import move_on_after as limit",
    ],
)
def test_computed_wait_is_reported(source: str) -> None:
    assert layers.waits_of_computed_length(source)


@pytest.mark.parametrize("source", ["trio.sleep(0.5)", "trio.fail_after(2 * LIMIT)"])
def test_constant_wait_is_not_reported(source: str) -> None:
    assert layers.waits_of_computed_length(source) == []


def test_each_kind_of_oversize_is_reported() -> None:
    long_function = "def f():\n" + "    pass\n" * 80
    wide_class = "class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(31))
    assert [*sizes.oversized("a.py", long_function)] == [("a.py:f", "81 lines")]
    assert [*sizes.oversized("a.py", wide_class)] == [("a.py:C", "31 methods")]
    assert [*sizes.oversized("a.py", "x = 1\n" * 701)] == [("a.py", "701 lines")]


def test_outdated_size_exception_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sizes.ACCEPTED, "a.py", "one table of the standard")
    assert sizes.faults(tmp_path) == ["ACCEPTED names a.py, which is small"]
