"""All Debian packages that tests use are installed before the tests run."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parent
BUILD = TESTS.parent / "build"
LISTS = ("debian-packages", "image-packages", "full-packages")


def installed() -> set[str]:
    """Return the names in the lists that `tests/run` installs."""
    lines = "\n".join((BUILD / name).read_text() for name in LISTS).splitlines()
    return {line.partition("#")[0].strip() for line in lines} - {""}


def used() -> dict[str, str]:
    """Map each package that a call of `tool` names to the file that names it first."""
    packages: dict[str, str] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="tool"), args=[_, ast.Constant(value=str(names))]):
                    for name in names.split():
                        packages.setdefault(name, str(path.relative_to(TESTS)))
    return packages


def test_debian_packages_used_by_tests_are_installed_before() -> None:
    there = installed()
    lacking = {package: file for package, file in used().items() if package not in there}
    assert lacking == {}, "these tests need what build/debian-packages lacks"
