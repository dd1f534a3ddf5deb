"""Imports point one way, and what is pure stays pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "fieldagent"

LAYERS = [
    {
        "__init__",
        "agent.__init__",
        "hub.__init__",
        "package",
        "system",
        "agent.outbound.queue",
        "agent.outbound.idle_time",
    },
    {"agent.progress", "agent.settings", "agent.events", "agent.api.page"},
    {"wire"},
    {"agent.channels.contract", "agent.channels.radio_modem"},
    {"store", "agent.journal"},
    {"agent.inbound.reception", "agent.outbound", "agent.mesh"},
    {"http", "webhook", "agent.channels", "agent.inbound"},
    {"hub", "agent.api"},
    {"simulator", "agent.agent"},
    {"cli", "__main__"},
]
"""Lowest first. A module may import from its own layer and those below; data has no layer above."""

PURE = [
    "package",
    "wire",
    "agent.outbound.queue",
    "agent.outbound.idle_time",
    "agent.settings",
    "cli.track_policy",
]
IMPURE = {"trio", "time", "socket", "select", "threading", "random", "sqlite3", "serial"}


def modules() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(ROOT.rglob("*.py"))
    }


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def named(module: str) -> list[str]:
    """The module, then the packages around it from within."""
    parts = module.split(".")
    return [".".join(parts[:size]) for size in range(len(parts), 0, -1)]


def layer_of(module: str) -> int:
    for name in named(module):
        for depth, layer in enumerate(LAYERS):
            if name in layer:
                return depth
    raise AssertionError(f"{module} has no layer: give it one")


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    known = modules()
    for name in imports(known[module]):
        if not name.startswith("fieldagent."):
            continue
        target = name.removeprefix("fieldagent.")
        if target not in known:
            target += ".__init__"
        if target in known:
            assert layer_of(target) <= layer_of(module), f"{module} imports {target}"


@pytest.mark.parametrize("module", [name for name in modules() if set(PURE) & set(named(name))])
def test_protocols_and_decisions_do_no_io(module: str) -> None:
    found = {name.partition(".")[0] for name in imports(modules()[module])}
    assert not found & IMPURE


LENGTHS = {"sleep", "move_on_after", "fail_after"}
"""What of trio takes a length, and refuses one below zero."""


def is_constant(length: ast.expr) -> bool:
    """Numbers and module constants, which people chose; nothing is subtracted from them."""
    match length:
        case ast.Constant(value=int() | float()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult() | ast.Div(), right=right):
            return is_constant(left) and is_constant(right)
        case ast.IfExp(body=body, orelse=orelse):
            return is_constant(body) and is_constant(orelse)
    return False


def computed_lengths(source: str) -> list[str]:
    """The waits in it whose length is computed where they stand."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="trio"):
                # By another name they would pass unseen.
                found += [each.name for each in node.names if each.name in LENGTHS]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="trio"), attr=name)):
                lengths = [*node.args, *(each.value for each in node.keywords)]
                relative = any(each.arg == "relative_deadline" for each in node.keywords)
                if relative or (name in LENGTHS and not all(map(is_constant, lengths))):
                    found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("module", [name for name in modules() if name != "system.waits"])
def test_no_wait_can_be_negative(module: str) -> None:
    assert not computed_lengths(modules()[module].read_text()), "this goes through `waits`"


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
def test_a_computed_wait_is_seen(source: str) -> None:
    assert computed_lengths(source)


def test_a_command_that_only_talks_http_starts_without_trio() -> None:
    code = (
        "import sys, fieldagent.__main__ as m; sys.argv = ['fieldagent', 'status', '--port', '1'];"
        "code = m.main(); assert code == 69, code;"
        "bad = {'trio', 'h11', 'serial', 'cbor2', 'sqlite3'} & sys.modules.keys();"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
