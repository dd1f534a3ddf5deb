"""What the arguments of every `fieldagent hub` command share."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.subcommand import CommandParser, Subparsers, command

KINDS = ("message", "location", "waypoint", "data")


def add_store(parser: CommandParser) -> None:
    """Add the arguments that say which database a command uses."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file")
    parser.add_argument(
        "--database", metavar="WHERE", help="postgresql://… or the path of an SQLite file"
    )


def add_listing(parser: CommandParser) -> None:
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def action(
    actions: Subparsers, name: str, carry_out: tuple[str, str], summary: str
) -> CommandParser:
    """Add an action that works in one workspace and prints a result. `carry_out` is as `command`
    has it."""
    parser = command(actions, name, carry_out, summary)
    parser.add_argument("--workspace", default="", help="number or name, where there are several")
    add_listing(parser)
    return parser


def number(text: str) -> int:
    """Return the number of a row: no database takes more than 64 bits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError
    return int(text)


number.__name__ = "number of those that `list` shows"
