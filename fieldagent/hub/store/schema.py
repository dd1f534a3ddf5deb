"""Versions of the hub's tables. The tables are defined in the `.sql` files in this folder.

In these files, `{id}`, `{int}`, `{real}` and `{blob}` stand for the types of the engine. Times are
Unix seconds, and a truth value is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Mapping

from fieldagent.store.schema import Schema
from fieldagent.system.data_files import read_data

VERSION = 41
TABLES = ("directory", "exchange", "operators", "kits", "desk", "webhooks", "bridges")
"""The `.sql` files in the order in which their tables are created. The tables in a file refer only
to tables in the same or earlier files."""
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
    40: """
ALTER TABLE workspace ADD COLUMN tracked {int} NOT NULL DEFAULT 0;
ALTER TABLE membership ADD COLUMN all_positions {int} NOT NULL DEFAULT 0;
CREATE INDEX membership_over_satellite ON membership (workspace, member) WHERE over_satellite = 1;
CREATE INDEX membership_all_positions ON membership (workspace, member) WHERE all_positions = 1;
ALTER TABLE device ADD COLUMN tracked {int} NOT NULL DEFAULT 0;
CREATE TABLE newest (
    device {int} NOT NULL REFERENCES device ON DELETE CASCADE,
    sender {int} NOT NULL,
    workspace {int} NOT NULL,
    place {int} NOT NULL,
    item {int} NOT NULL,
    at {real} NOT NULL,
    PRIMARY KEY (device, sender)
);
CREATE INDEX newest_place ON newest (workspace, place);
ALTER TABLE kit_sms ADD COLUMN workspace {int} NOT NULL DEFAULT 0;
UPDATE kit_sms SET workspace = (SELECT workspace FROM device WHERE device.id = kit_sms.device);
CREATE INDEX kit_sms_of_workspace ON kit_sms (workspace);
""",
}
"""SQL that upgrades each version to the next version. A test keeps the tables of version 38.
Everything that a step adds must also be in the files, because new databases are created from the
files. A step adds tables, indexes, and columns with a default."""


def make_hub_schema(types: Mapping[str, str]) -> Schema:
    """Return the hub's tables and upgrade steps for an engine. `types` maps id, int, real and blob
    to the engine's types.
    """
    files = (read_data("fieldagent.hub.store", f"{name}.sql").decode() for name in TABLES)
    of_engine = {at: step.format_map(types) for at, step in STEPS.items()}
    return Schema(VERSION, "\n".join(files).format_map(types), of_engine)
