"""Opens the hub's database for a command, and prints results.

Administration commands open the database themselves, even while a hub runs. Secrets are shown once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.settings import HubSettings, load_settings, make_database_options
from fieldagent.hub.store.contract import Db, Store, WrongTableVersion
from fieldagent.hub.store.copies import refuse_lost_database
from fieldagent.hub.store.opening import is_postgres, open_store
from fieldagent.store.group import NOT_STORED, StoreFailed, StoreUnavailable
from fieldagent.system.as_owner import switch_to_owner_of
from fieldagent.system.exit_codes import IO_FAILED, NEWER, OK, REFUSED, UNAVAILABLE, USAGE
from fieldagent.system.log_lines import print_failure, refuse_settings
from fieldagent.system.properties import InvalidSettings
from fieldagent.system.terminal import (
    escape_line,
    format_lines,
    format_local_time,
    format_state,
    get_terminal_width,
)
from fieldagent.system.wording import describe_reason

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


SECRET_NAMES = ("apiKey", "token", "hub-token", "satellite-key", "secret")
"""Names of members that the hub shows only once."""


def run_with_store(
    arguments: argparse.Namespace,
    use: Callable[[HubSettings, Store], int],
    *,
    upgrade: bool = False,
    create: bool = False,
) -> int:
    """Open the database that the settings name, call `use`, and close it. Print errors and refusals
    to standard error, and return the exit code. If root has started the program, it continues as
    the owner of SQLite's folder. A missing SQLite file is created only if `create`, because
    otherwise its path is probably misspelt.
    """
    try:
        settings = load_settings(arguments.config, arguments.database)
    except (InvalidSettings, OSError) as error:
        return refuse_settings(error)
    try:
        if not is_postgres(settings.database):
            switch_to_owner_of(Path(settings.database).parent)
            if not create and not Path(settings.database).exists():
                refuse_lost_database(Path(settings.database))
                print_failure(
                    f"there is no database at {escape_line(settings.database)}: check --database,"
                    " or"
                    " create one with `fieldagent hub init`"
                )
                return UNAVAILABLE
        store = open_store(settings.database, make_database_options(settings, upgrade=upgrade))
    except WrongTableVersion as error:
        print_failure(str(error))
        return NEWER
    except (StoreUnavailable, StoreFailed) as error:
        print_failure(str(error))
        return IO_FAILED if isinstance(error, StoreFailed) else UNAVAILABLE
    except OSError as error:
        print_failure(describe_reason(error))
        return IO_FAILED
    try:
        return use(settings, store)
    except Refused as refused:
        print_failure(escape_line(str(refused)))
        return REFUSED
    except UnicodeEncodeError:
        # Python represents invalid UTF-8 in arguments by lone surrogates.
        print_failure("nothing was changed, because an argument is not UTF-8: see `locale`")
        return USAGE
    except NOT_STORED as error:
        print_failure(str(error))
        return IO_FAILED
    finally:
        store.close()


class Call:
    """One run of a command, within its transaction. It finds the workspace, the member and the
    device that the arguments name.
    """

    def __init__(self, arguments: argparse.Namespace, db: Db, now: float) -> None:
        self.arguments = arguments
        self.db = db
        self.now = now
        """Unix time of the transaction."""

    @cached_property
    def workspace(self) -> int:
        """Return the id of the workspace. Raises Refused if there is no such workspace."""
        return directory.find_workspace(self.db, self.arguments.workspace)

    @property
    def here(self) -> tuple[Db, int]:
        """Return the database and the workspace id. They are the first arguments of most
        operations.
        """
        return self.db, self.workspace

    @cached_property
    def member(self) -> int:
        """Return the id of the user that the arguments name, in the workspace. Raises Refused if
        there is no such user.
        """
        return directory.find_member(*self.here, self.arguments.user)

    @cached_property
    def device(self) -> int:
        """Return the id of the device that the arguments name, in the workspace. Raises Refused if
        there is no such device.
        """
        return directory.find_device_named(*self.here, self.arguments.device)


Result: TypeAlias = "int | Mapping[str, Any] | Sequence[Row]"
"""Result of a command: an exit code if the command has printed its own output, members by name, or
the rows of a table."""


def make_transaction(operation: Callable[[Call], Result]) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command that runs an operation in one transaction, and prints the
    result.
    """

    def carry_out(arguments: argparse.Namespace) -> int:
        def operate(db: Db, now: float) -> int:
            return _print_result(arguments, operation(Call(arguments, db, now)))

        return run_with_store(arguments, lambda _, store: commit_and_print(store, operate))

    return carry_out


def make_store_command(
    use: Callable[[argparse.Namespace, HubSettings, Store], Result],
) -> Callable[[argparse.Namespace], int]:
    """Return the function of a command that uses the settings and the open store, and prints the
    result.
    """

    def carry_out(arguments: argparse.Namespace) -> int:
        return run_with_store(
            arguments, lambda *both: _print_result(arguments, use(arguments, *both))
        )

    return carry_out


def _print_result(arguments: argparse.Namespace, result: Result) -> int:
    if isinstance(result, int):
        return result
    return show(arguments, result) if isinstance(result, Mapping) else show_list(arguments, result)


def commit_and_print(store: Store, operation: Callable[[Db, float], int]) -> int:
    """Run an operation in one transaction, and print its output after the commit, so that each
    printed key is in the database. Return its exit code.
    """

    def carry_out(db: Db) -> tuple[int, str, str]:
        with redirect_stdout(StringIO()) as output, redirect_stderr(StringIO()) as complained:
            code = operation(db, time.time())
        return code, output.getvalue(), complained.getvalue()

    code, output, complained = store.run_once(carry_out)
    print(output, end="")
    print(complained, end="", file=sys.stderr)
    return code


def show(
    arguments: argparse.Namespace,
    members: Mapping[str, Any],
    *,
    secret_names: Sequence[str] = SECRET_NAMES,
) -> int:
    """Print the members by name, or as JSON, and return OK. If they include any of `secret_names`,
    also print a note that these are shown only once.
    """
    if arguments.json:
        print(json.dumps(members))
        return OK
    for name, value in members.items():
        print(f"{name}: {escape_line(str(value))}")
    if any(name in members for name in secret_names):
        print("Save these values now. They are not shown again.", file=sys.stderr)
    return OK


def show_list(arguments: argparse.Namespace, rows: Sequence[Row]) -> int:
    """Print rows as a table, or as JSON, and return OK. Floats are shown as times. On a terminal, a
    table has only the columns that fit, unless --wide is set.
    """
    if arguments.json:
        print(json.dumps(rows))
        return OK
    if not rows:
        print("none")
        return OK
    cells = make_cells(rows)
    is_wide = getattr(arguments, "wide", False)
    columns = choose_fitting_columns(cells, None if is_wide else get_terminal_width())
    print(format_lines("\n".join(format_table(cells, columns))))
    if left_out := [name for name in cells[0] if name not in columns]:
        print(
            f"Columns that do not fit: {', '.join(left_out)}. --wide shows them.", file=sys.stderr
        )
    return OK
