"""What Python imports first in each process that a test starts (site(3)): `tests/offline.py`.

pip is let go: it fetches what a build is made of, by its hash.
"""

import importlib.util
import sys
from pathlib import Path

if "pip" not in sys.orig_argv[1:3]:
    _place = Path(__file__).resolve().parents[1] / "offline.py"
    _found = importlib.util.spec_from_file_location("started", _place)
    assert _found is not None and _found.loader is not None
    _offline = importlib.util.module_from_spec(_found)
    _found.loader.exec_module(_offline)
    _offline.install()

# `tests/breaking.py` changes a program so, and Debian has one of its own.
for _folder in map(Path, sys.path):
    _next = _folder / "sitecustomize.py"
    if _next.is_file() and not _next.samefile(__file__):
        exec(compile(_next.read_text(), str(_next), "exec"), {"__file__": str(_next)})
        break
