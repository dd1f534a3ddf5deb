"""Writes the output of each benchmark's last run to `docs/reference/performance.md`."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from inspect import cleandoc
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/performance.md"
HEAD = """\
# Performance

For operators and developers. `tests/run bench` measures these figures and writes this page. Each
section shows the last run of one benchmark. It begins with the case that would flatter the program;
the rows have other cases too. `NOT MET` marks a figure that misses its goal.

All programs, the database and the emulated kits shared one machine. For another
machine, ratios and processor times are better estimates than seconds.
[Scale](../explain/scale.md) shows what the figures mean for a hub with many kits.
"""


def write_section(
    name: str, about: str, lines: Sequence[str], load: float, order: Sequence[str]
) -> None:
    """Replace the section of the benchmark `name` and keep the others, in this order of names.

    `about` is the docstring of the benchmark, whose first paragraph the page shows. `load` is the
    machine's load before the run.
    """
    sections = read_sections(PAGE.read_text()) if PAGE.exists() else {}
    first = textwrap.fill(cleandoc(about).split("\n\n")[0], 100)
    table = "\n".join(f"    {line}".rstrip() for line in lines)
    sections[name] = f"{first}\n\n{_describe_run(load)}\n\n{table}\n"
    kept = [each for each in order if each in sections]
    PAGE.write_text("\n".join([HEAD, *(f"## {each}\n\n{sections[each]}" for each in kept)]))


def read_sections(text: str) -> dict[str, str]:
    """Return the text of each section of the page by the name of its benchmark."""
    _, *parts = re.split(r"^## (\w+)\n\n", text, flags=re.MULTILINE)
    return {
        name: body.rstrip("\n") + "\n" for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _describe_run(load: float) -> str:
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    version = platform.python_version()
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, commit {commit}, Python {version}, {os.cpu_count()}"
        f" processors ({platform.machine()}), load {load:.1f} before the run."
    )
