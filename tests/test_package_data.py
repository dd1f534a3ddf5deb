"""A wheel contains the data files next to the code."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_setup_names_every_data_file() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = {
        path
        for package, patterns in setup["options.package_data"].items()
        for pattern in patterns.replace("\n", ",").split(",")
        if pattern.strip()
        for path in (ROOT / package.replace(".", "/")).glob(pattern.strip())
    }
    there = {
        path
        for path in (ROOT / "fieldagent").rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert there - named == set()
