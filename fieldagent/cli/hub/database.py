"""`fieldagent hub backup|restored|migrate`: commands for the whole database of the hub."""

from __future__ import annotations

import argparse
import sqlite3
import sys

from fieldagent.cli.hub.opened_store import once, show, with_store
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import ledger, numbering
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.store.schema import VERSION
from fieldagent.hub.store.sqlite import SqliteStore
from fieldagent.system.exit_codes import IO_FAILED, REFUSED
from fieldagent.system.log_lines import complain

POSTGRES = """fieldagent: PostgreSQL makes its own copies. With its address in DATABASE this does:
  pg_dump --format=custom --file={file} --dbname="$DATABASE"
and this puts it back, while no hub runs:
  pg_restore --clean --if-exists --single-transaction --dbname="$DATABASE" {file}
  fieldagent hub restored --database "$DATABASE"
"""


def backup(arguments: argparse.Namespace) -> int:
    """Copy SQLite's file, also while a hub runs."""

    def copy(_: HubSettings, store: Store) -> int:
        if not isinstance(store, SqliteStore):
            print(POSTGRES.format(file=arguments.file), end="", file=sys.stderr)
            return REFUSED
        try:
            store.back_up(arguments.file)
        except FileExistsError:
            raise Refused(
                f"{arguments.file} already exists: use another name, or move the file"
            ) from None
        except (OSError, sqlite3.Error) as error:
            why = getattr(error, "strerror", None) or error
            complain(f"{arguments.file} cannot be written: {why}")
            return IO_FAILED
        size = arguments.file.stat().st_size
        return show(arguments, {"file": str(arguments.file), "bytes": size})

    return with_store(arguments, copy)


def restored(arguments: argparse.Namespace) -> int:
    """Record that the database was restored from a copy. With --post, post the items that have come
    back since.
    """

    def note(db: Db, now: float) -> int:
        if arguments.post:
            return show(arguments, {"posts": ledger.post_again(db, now)})
        return show(arguments, {"devices": numbering.leave_out(db, now)})

    return once(arguments, note)


def migrate(arguments: argparse.Namespace) -> int:
    """Make the tables, or upgrade them to this version."""
    return with_store(
        arguments, lambda _, __: show(arguments, {"version": VERSION}), upgrade=True, create=True
    )
