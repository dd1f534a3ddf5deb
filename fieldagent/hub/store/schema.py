"""Versions of the hub's tables. What they are stands in the `.sql` files beside this one.

There `{id}`, `{int}`, `{real}` and `{blob}` are each engine's own types, times are Unix seconds,
and whether-or-not is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.store.schema import Schema
from fieldagent.system.data_files import read_data

VERSION = 38
TABLES = ("directory", "exchange", "operators", "kits", "desk", "webhooks", "bridges")
"""In the order in which they are made: each refers to earlier ones alone."""
STEPS: Mapping[int, str] = {}
"""SQL from each version to the next; 0.1.0 has 38. What a step adds stands in the files, too: they
are what a new database is made of. A step adds tables, indexes, and columns with a default."""


def hub_schema(types: Mapping[str, str]) -> Schema:
    """Return the hub's tables and steps for an engine; `types` are its own for id, int, real and
    blob."""
    files = (read_data("fieldagent.hub.store", f"{name}.sql").decode() for name in TABLES)
    of_engine = {at: step.format_map(types) for at, step in STEPS.items()}
    return Schema(VERSION, "\n".join(files).format_map(types), of_engine)
