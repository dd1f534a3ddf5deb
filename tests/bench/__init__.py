"""What it all costs. Each benchmark is a module that prints its rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Programs of peers, such as uvicorn, stand beside this Python.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
# Without its compiled code a start takes twice as long, and what compiled it stays in memory.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
