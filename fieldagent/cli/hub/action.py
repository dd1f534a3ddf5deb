"""Common arguments of all `fieldagent hub` commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fieldagent.cli.subcommand import CommandParser, Subparsers, command

SERVICE, PEOPLE, KITS, ALARMS, PROGRAMS = "Service", "People", "Kits", "Alarms", "Programs"
"""Groups of nouns in the help, in this order."""
KINDS = ("message", "location", "waypoint", "data")
TABLES = ("list", "fleet", "audit", "contested", "dead", "show")
"""Actions that print a table."""
DAYS_MAX = 36_500
"""Maximum days for which a key is valid: a hundred years."""


def add_store(parser: CommandParser) -> None:
    """Add the arguments that select the database."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file")
    parser.add_argument(
        "--database", metavar="WHERE", help="postgresql://… or the path of an SQLite file"
    )


def add_listing(parser: CommandParser) -> None:
    """Add the database's arguments and the form of the output."""
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(wide=False)
    if parser.prog.rpartition(" ")[2] in TABLES:
        parser.add_argument(
            "--wide", action="store_true", help="all columns, also if they do not fit"
        )


def add_workspace(parser: CommandParser) -> None:
    """Add the argument that selects the workspace. The environment can have its default."""
    parser.add_argument(
        "--workspace",
        default=os.environ.get("FIELDAGENT_WORKSPACE", ""),
        help="number or name, if there are several; otherwise FIELDAGENT_WORKSPACE",
    )


def action(
    actions: Subparsers, name: str, carry_out: tuple[str, str], summary: str, *, group: str = ""
) -> CommandParser:
    """Add an action that works in one workspace and prints a result. `carry_out` is the same as in
    `command`.
    """
    parser = command(actions, name, carry_out, summary, group=group)
    add_workspace(parser)
    add_listing(parser)
    return parser


def number(text: str) -> int:
    """Read the id of a row, which has at most 64 bits in any database."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError
    return int(text)


number.__name__ = "number of those that `list` shows"


def credit_count(text: str) -> int:
    """Read a number of credits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise ValueError
    return int(text)


credit_count.__name__ = "number of credits, from 0 on"


def days(text: str) -> float:
    """Read the number of days for which a key is valid. Raises ArgumentTypeError."""
    if not 0 < float(text) <= DAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, {DAYS_MAX} at most")
    return float(text)


days.__name__ = "number of days"
