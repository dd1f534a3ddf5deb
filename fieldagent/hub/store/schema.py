"""Versions of the hub's tables. The tables are in the `.sql` files beside this module.

In them, `{id}`, `{int}`, `{real}` and `{blob}` are the types of the engine. Times are Unix seconds,
and a truth value is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.store.schema import Schema
from fieldagent.system.data_files import read_data

VERSION = 40
TABLES = ("directory", "exchange", "operators", "kits", "desk", "webhooks", "bridges")
"""Files in the order of creation: each refers only to earlier ones."""
STEPS: Mapping[int, str] = {
    38: """
ALTER TABLE sos ADD COLUMN latitude {real};
ALTER TABLE sos ADD COLUMN longitude {real};
ALTER TABLE sos ADD COLUMN position_at {real};
CREATE TABLE sending (
    workspace {int} NOT NULL REFERENCES workspace ON DELETE CASCADE,
    address TEXT NOT NULL,
    what TEXT NOT NULL,
    at {real} NOT NULL
);
CREATE INDEX sending_of_workspace ON sending (workspace);
CREATE INDEX sending_at ON sending (at);
""",
    39: """
ALTER TABLE contact ADD COLUMN altitude {real};
ALTER TABLE contact ADD COLUMN speed {real};
ALTER TABLE contact ADD COLUMN course {real};
""",
}
"""SQL from each version to the next; a test keeps 38. Put the additions of a step into the files,
too, because a new database is made from them. A step adds tables, indexes, and columns with a
default."""


def hub_schema(types: Mapping[str, str]) -> Schema:
    """Return the hub's tables and upgrade steps for an engine. `types` maps id, int, real and blob
    to the engine's types.
    """
    files = (read_data("fieldagent.hub.store", f"{name}.sql").decode() for name in TABLES)
    of_engine = {at: step.format_map(types) for at, step in STEPS.items()}
    return Schema(VERSION, "\n".join(files).format_map(types), of_engine)
