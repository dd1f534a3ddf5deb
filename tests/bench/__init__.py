"""Cost measurements. Each benchmark is a module that prints its rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Programs of peers, such as uvicorn, are in the same folder as this Python.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Without compiled code, a start takes twice as long, and the compiler's memory stays in use.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
