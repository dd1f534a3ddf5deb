"""`fieldagent hub database …`: commands for the whole database of the hub."""

from __future__ import annotations

import argparse
import sqlite3
import sys
from pathlib import Path

from fieldagent.cli.hub.opened_store import (
    Call,
    Result,
    make_store_command,
    make_transaction,
    run_with_store,
    show,
)
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import ledger, numbering
from fieldagent.hub.settings import HubSettings, make_database_options
from fieldagent.hub.store.contract import Store
from fieldagent.hub.store.moving import NotMoved
from fieldagent.hub.store.moving import move as copy_all
from fieldagent.hub.store.opening import is_postgres, open_alone, open_store
from fieldagent.hub.store.schema import VERSION
from fieldagent.hub.store.sqlite import SqliteStore
from fieldagent.system.as_owner import switch_to_owner_of
from fieldagent.system.exit_codes import IO_FAILED, REFUSED
from fieldagent.system.log_lines import print_failure
from fieldagent.system.progress import Progress
from fieldagent.system.terminal import escape_line
from fieldagent.system.wording import describe_reason

POSTGRES = """fieldagent: PostgreSQL makes its own copies. With its address in DATABASE this does:
  pg_dump --format=custom --file={file} --dbname="$DATABASE"
and this puts it back, while no hub runs:
  pg_restore --clean --if-exists --single-transaction --dbname="$DATABASE" {file}
  fieldagent hub database restored --database "$DATABASE"
"""

MOVED_TEXT = """The hub is now also in {1}.
Set `database` in the hub's settings to the new place, then start the hub.
{0} is as it was. Start no hub on it again, and delete it when the new one works.
"""


@make_store_command
def back_up(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> Result:
    """Copy the file of the SQLite database. This is possible while a hub runs."""
    if not isinstance(store, SqliteStore):
        print(POSTGRES.format(file=arguments.file), end="", file=sys.stderr)
        return REFUSED
    try:
        with Progress(f"copying {settings.database}", "pages") as progress:
            store.back_up(arguments.file, progress.show)
    except FileExistsError:
        raise Refused(
            f"{arguments.file} already exists: use another name, or move the file"
        ) from None
    except (OSError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or error
        print_failure(f"{arguments.file} cannot be written: {reason}")
        return IO_FAILED
    size = arguments.file.stat().st_size
    return {"file": str(arguments.file), "bytes": size}


@make_store_command
def move(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> Result:
    """Copy the database of a stopped hub to `arguments.target`, which uses the other database
    engine.
    """
    origin, target = settings.database, arguments.target
    if is_postgres(origin) == is_postgres(target):
        raise Refused(
            "a move is from SQLite to PostgreSQL, or back: name the other database as "
            "TARGET. For a copy in the same kind of database, use `fieldagent hub "
            "database backup`"
        )
    store.close()
    options = make_database_options(settings, upgrade=True)
    try:
        with open_alone(origin, options) as source:
            if not is_postgres(target):
                switch_to_owner_of(Path(target).absolute().parent)
            open_store(target, options).close()  # Opening creates the tables.
            with (
                open_alone(target, options) as empty,
                Progress(f"moving to {empty.name}", "rows", at_once=True) as progress,
            ):
                moved = copy_all(source, empty, progress.show)
            names = source.name, empty.name
    except NotMoved as error:
        raise Refused(str(error)) from error
    except OSError as error:
        print_failure(f"{escape_line(target)} cannot be written: {describe_reason(error)}")
        return IO_FAILED
    print(MOVED_TEXT.format(*map(escape_line, names)), end="", file=sys.stderr)
    return moved._asdict()


@make_transaction
def record_restore(call: Call) -> Result:
    """Record that the database was restored from a copy. If --post is set, post the items that kits
    have returned since then.
    """
    if call.arguments.post:
        return {"posts": ledger.post_again(call.db, call.now)}
    return {"devices": numbering.skip_all_numbers(call.db, call.now)}


def migrate(arguments: argparse.Namespace) -> int:
    """Create the tables, or upgrade them to this version."""
    return run_with_store(
        arguments, lambda _, __: show(arguments, {"version": VERSION}), upgrade=True, create=True
    )
