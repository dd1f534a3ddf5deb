"""Delays the loading of modules that a library imports but does not use."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def load_lazily(name: str) -> None:
    """Load this module of a package at the first access to one of its attributes.

    Before Python 3.12, `importlib.util.LazyLoader` loads the module already at the first import.
    """
    if name in sys.modules:
        return
    stands_in: Any = ModuleType(name)
    package, _, last = name.rpartition(".")

    def load(asked: str) -> Any:
        if sys.modules.get(name) is stands_in:
            del sys.modules[name]
        return getattr(importlib.import_module(name), asked)

    stands_in.__getattr__ = load
    sys.modules[name] = stands_in
    setattr(sys.modules[package], last, stands_in)
