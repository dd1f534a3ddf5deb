"""What a public function says of itself begins with what it does, and is there."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TypeAlias, TypeGuard

ROOT = Path(__file__).parents[1] / "fieldagent"
VERBS = frozenset(
    """
    Accept Acknowledge Add Agree Announce Answer Append Ask Assemble Be Begin Book Borrow Bound
    Break Bring Build Call Cancel Carry Change Charge Check Choose Clear Close Code Commit
    Compact Connect Copy Count Cut Decide Decode Delete Derive Describe Disable Do Drop
    Encode End Enter Escape Exchange Expect Feed Fetch Fill Find Finish Fix Forget Free Give Go
    Greet Hand Have Hear Hold Implement Import Insert Install Join Judge Keep Know Launch Learn
    Leave Let Limit Line Link List Listen Load Log Look Make Mark Measure Move Narrow Note Obey
    Offer Open Overwrite Owe Pack Parse Pay Post Print Publish Push Put Queue Raise Read
    Receive Record Refuse Remove Rename Repeat Replace Report Rest Restart Return Revoke Ring
    Roll Run Salvage Say See Seed Send Serve Set Settle Show Sign Silence Simulate Sleep Split
    Spool Start Stop Store Stream Subscribe Suspect Switch Tag Take Talk Tell Transmit Try Turn
    Unpack Wait Wake Warn Withdraw Work Write Yield
    """.split()  # noqa: SIM905 - it is text to be read
)
"""Those that begin one so far: a new one is added here, and no noun."""
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def verbless(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
            words = (ast.get_docstring(node) or "").split()
            if words and words[0].rstrip(",.;:") not in VERBS:
                yield f"{node.name}: {words[0]}"


def test_each_public_docstring_begins_with_a_verb() -> None:
    offenders = {path: [*verbless(path.read_text())] for path in ROOT.rglob("*.py")}
    assert {path: names for path, names in offenders.items() if names} == {}


def test_one_that_does_not_is_found() -> None:
    assert [*verbless('def bars():\n    """How well it hears."""')] == ["bars: How"]
    assert [*verbless('def bars():\n    """The bars, 0 to 5."""')] == ["bars: The"]
    assert [*verbless('def bars():\n    """Return how well it hears."""')] == []
    assert [*verbless('def _bars():\n    """How well it hears."""')] == []


def undescribed(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if _is_public_function(node) and not ast.get_docstring(node):
            yield node.name


def methods(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, Function]]:
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef):
            yield from ((owner, each) for each in owner.body if _is_public_function(each))


def undescribed_methods(tree: ast.Module, described: Collection[str]) -> Iterator[str]:
    """One that a Protocol describes under the same name, or its base, is described there."""
    said = {(owner.name, each.name) for owner, each in methods(tree) if ast.get_docstring(each)}
    for owner, method in methods(tree):
        places = (owner.name, *map(ast.unparse, owner.bases))
        known = method.name in described or any((each, method.name) in said for each in places)
        sets = any(isinstance(by, ast.Attribute) for by in method.decorator_list)
        if owner.name[0] != "_" and not known and not sets:
            yield f"{owner.name}.{method.name}"


def described_by_contracts(tree: ast.Module) -> Iterator[str]:
    for owner, method in methods(tree):
        bases = {ast.unparse(base).partition("[")[0] for base in owner.bases}
        if bases & {"Protocol", "ABC"} and ast.get_docstring(method):
            yield method.name


def _is_public_function(node: ast.stmt) -> TypeGuard[Function]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_"


def test_each_public_function_and_method_is_described() -> None:
    trees = {path: ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    described = {name for tree in trees.values() for name in described_by_contracts(tree)}
    offenders = {
        path: [*undescribed(tree), *undescribed_methods(tree, described)]
        for path, tree in trees.items()
    }
    assert {path: names for path, names in offenders.items() if names} == {}


def test_one_without_is_found() -> None:
    said = '"""Return the bars, 0 to 5."""'
    assert [*undescribed(ast.parse("def bars():\n    return ask()"))] == ["bars"]
    assert [*undescribed(ast.parse("async def bars(\n    modem,\n):\n    return 1"))] == ["bars"]
    assert [*undescribed(ast.parse(f"def bars():\n    {said}"))] == []
    assert [*undescribed(ast.parse("def _bars():\n    return ask()"))] == []
    modem = ast.parse("class Modem:\n    def bars(self):\n        return 5")
    assert [*undescribed_methods(modem, ())] == ["Modem.bars"]
    assert [*undescribed_methods(modem, {"bars"})] == []
