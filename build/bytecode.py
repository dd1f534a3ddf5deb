"""Compiles each source in a folder and its subfolders, for the Python that runs this script.

    PYTHON -X no_debug_ranges build/bytecode.py FOLDER [TARGET]

The default TARGET is TAG/ in that folder. TAG is that Python's tag, such as `cpython-311`.

Docstrings and types of arguments are removed. They are a quarter of the size, and a running agent
does not use them; the sources beside it have them. Assertions stay. The result contains no place or
time of the build.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import sys
from collections.abc import Iterator
from pathlib import Path

UNCHECKED_HASH = (1).to_bytes(4, "little")
"""Flags field of a .pyc file (PEP 552): Python does not compare the file with its source, which is
in another folder."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)

OFTEN = (
    *(
        f"fieldagent/cli/{name}.py"
        for name in (
            *("__init__", "argument_types", "arguments", "command_parser"),
            *("items_table", "table"),
        )
    ),
    *(f"fieldagent/extensions/{name}/__init__.py" for name in ("fleet", "lab")),
    "fieldagent/extensions/rescue/__init__.py",
    *(f"fieldagent/extensions/tak/server/{name}.py" for name in ("__init__", "kind")),
    *(f"fieldagent/cli/kit/{name}.py" for name in ("__init__", "plain_run", "run", "table")),
    *(f"fieldagent/cli/kit/{name}.py" for name in ("track", "track_policy")),
    "fieldagent/cli/hub/__init__.py",
    *(f"fieldagent/kit/{name}.py" for name in ("__init__", "local_http")),
)
"""Modules in the folders of `SELDOM` that are compiled anyway, because each agent or command loads
them at its start."""
SELDOM = (
    *("fieldagent/cli/", "fieldagent/kit/", "fieldagent/extensions/lab/"),
    "fieldagent/extensions/fleet/",
    *(
        f"fieldagent/extensions/tak/{name}.py"
        for name in ("certificate_command", "certificate_request", "enroll_command")
    ),
    "fieldagent/extensions/tak/server/",
    *("fieldagent/extensions/tak/hub_table.py", "fieldagent/extensions/places/hub/table.py"),
    *(
        f"fieldagent/extensions/places/hub/{name}_command.py"
        for name in ("fence", "report", "route", "tracker")
    ),
    *(
        f"fieldagent/extensions/desk/hub/{name}.py"
        for name in ("contact_command", "quiet_command", "table", "watch_command", "web_push")
    ),
    "fieldagent/hub/access/passkeys.py",
    *("fieldagent/agent/journal/carry_over.py", "fieldagent/agent/journal/repair.py"),
    "fieldagent/system/as_owner.py",
    *("fieldagent/extensions/rescue/", "fieldagent/hub/administration/export.py"),
    "fieldagent/hub/store/postgres",
    "fieldagent/http/openapi.py",
)
"""Modules that a running agent or hub does not load: commands, root's work on a kit, the simulator,
the rescue of damaged journals, the descriptions of the APIs. Also code only for a hub with
PostgreSQL, passkeys, web push or TAK phones, which all need native libraries. They are compiled
from source on demand."""
FROM_SOURCE = b"""\
import sys
place, _, name = __file__.rpartition(sys.implementation.cache_tag + "/")
exec(compile(__loader__.get_data(place + name[:-1]), place + name[:-1], "exec"))
"""


def main(tree: Path, target: Path) -> None:
    for source in sorted(tree.rglob("*.py")):
        name = source.relative_to(tree)
        compiled = target / name.with_suffix(".pyc")
        compiled.parent.mkdir(parents=True, exist_ok=True)
        seldom = name.as_posix().startswith(SELDOM) and name.as_posix() not in OFTEN
        text = FROM_SOURCE if seldom else source.read_bytes()
        compiled.write_bytes(compile_one(text, name.as_posix()))


def compile_one(source: bytes, name: str) -> bytes:
    syntax = ast.parse(source, name)
    forget_documentation(syntax)
    forget_types(syntax)
    code = compile(syntax, name, "exec", dont_inherit=True, optimize=0)
    head = importlib.util.MAGIC_NUMBER + UNCHECKED_HASH + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


def forget_documentation(syntax: ast.Module) -> None:
    for node in blocks(syntax):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
            if not node.body:
                node.body.append(ast.Pass())
                ast.fix_missing_locations(node)


def forget_types(syntax: ast.Module) -> None:
    """Remove types from functions only, because types of a class's members define the class."""
    for node in blocks(syntax):
        if isinstance(node, FUNCTIONS):
            node.returns = None
            for argument in arguments(node):
                argument.annotation = None


def blocks(syntax: ast.Module) -> Iterator[ast.AST]:
    """Yield the module and all statements. Expressions are skipped: they contain no statements and
    are 90 % of the nodes.
    """
    waiting: list[ast.AST] = [syntax]
    while waiting:
        yield (node := waiting.pop())
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, name, ())


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.arg]:
    said = function.args
    yield from (*said.posonlyargs, *said.args, *said.kwonlyargs)
    yield from (each for each in (said.vararg, said.kwarg) if each)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    named = sys.argv[2] if sys.argv[2:] else str(folder / str(sys.implementation.cache_tag))
    main(folder, Path(named))
