"""Formats the tables that the hub's commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fieldagent.system.terminal import escape_line, format_local_time, format_state

COLUMN_GAP = 2
"""Blanks between two columns."""
STATES = ("state", "status", "outcome", "result")
"""Columns whose words are coloured on a terminal."""


def choose_fitting_columns(cells: Sequence[Mapping[str, str]], width: int | None) -> list[str]:
    """Return the columns that fit into `width` characters, or all columns if `width` is None.

    Empty columns are left out first, then columns at the end. The first column always stays.
    """
    columns = list(cells[0])
    widths = {
        name: COLUMN_GAP + max(len(name), *(len(row[name]) for row in cells)) for name in columns
    }
    empty = [name for name in columns[1:] if all(row[name] == "-" for row in cells)]
    filled = [name for name in columns[1:] if name not in empty]
    for name in [*reversed(empty), *reversed(filled)]:
        if width is None or sum(map(widths.__getitem__, columns)) - COLUMN_GAP <= width:
            break
        columns.remove(name)
    return columns


def make_cells(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the values of the rows as text. A float is a Unix time."""
    return [{name: _format_cell(value) for name, value in row.items()} for row in rows]


def format_table(cells: Sequence[Mapping[str, str]], columns: Sequence[str]) -> list[str]:
    """Return the lines of a table for printing. The first line contains the names of the
    columns.
    """
    widths = {name: max(len(name), *(len(row[name]) for row in cells)) for name in columns}
    gap = " " * COLUMN_GAP
    lines = [gap.join(name.ljust(widths[name]) for name in columns)]
    for row in cells:
        shown = (
            format_state(row[name], widths[name])
            if name in STATES
            else row[name].ljust(widths[name])
            for name in columns
        )
        lines.append(gap.join(shown))
    return [line.rstrip() for line in lines]


def _format_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return format_local_time(value)
    return "-" if value in (None, "") else escape_line(str(value))
