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
        "package",
        "payload",
        "delivery",
        "queue",
        "silence",
        "progress",
        "properties",
        "settings",
        "page",
        "events",
    },
    {"wire", "track"},
    {"channels.__init__", "channels.air"},
    {"journal"},
    {
        "inbox",
        "riders",
        "burst",
        "outbox",
        "intake",
        "carrier",
        "neighbours",
        "station",
        "distress",
        "gaps",
        "signals",
        "systemd_notify",
    },
    {"channels", "inbound", "http", "ip_link", "openapi"},
    {"simulator", "api", "hub"},
    {"agent"},
    {"cli", "__main__"},
]
"""Lowest first. A module may import from its own layer and those below; data has no layer above."""

PURE = ["package", "payload", "delivery", "queue", "silence", "settings", "track", "wire"]
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


def layer_of(module: str) -> int:
    for name in (module, module.partition(".")[0]):
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


@pytest.mark.parametrize("module", [name for name in modules() if name.partition(".")[0] in PURE])
def test_protocols_and_decisions_do_no_io(module: str) -> None:
    found = {name.partition(".")[0] for name in imports(modules()[module])}
    assert not found & IMPURE


def test_a_command_that_only_talks_http_starts_without_trio() -> None:
    code = (
        "import sys, fieldagent.__main__ as m; sys.argv = ['fieldagent', 'status', '--port', '1'];"
        "code = m.main(); assert code == 69, code;"
        "bad = {'trio', 'h11', 'serial', 'cbor2', 'sqlite3'} & sys.modules.keys();"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
