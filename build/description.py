"""Writes the OpenAPI descriptions as JSON files, and removes the Python tables from which they are
generated.

    PYTHON build/description.py FOLDER

A gateway then reads a file, instead of compiling the tables and keeping them in memory.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

TABLES = (
    *("fieldagent/*/description", "fieldagent/extensions/*/hub/description.py"),
    *("fieldagent/http/openapi_parts.py", "fieldagent/page/map_description.py"),
)
"""Path patterns of the Python tables and of the modules that only the tables import."""


def main(tree: Path) -> None:
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = True
    from fieldagent.http.routes import make_description

    for program in ("agent", "hub"):
        prepared = make_description(f"fieldagent.{program}")
        (tree / f"fieldagent/{program}/openapi.json").write_bytes(prepared)
    for pattern in TABLES:
        for path in tree.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
