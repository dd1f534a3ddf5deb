"""Parses the command line with the tables of commands, and runs the function of the command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from fieldagent import __version__
from fieldagent.cli.command_parser import CommandParser
from fieldagent.cli.kit.table import COMMANDS, HELP
from fieldagent.cli.table import Command, add_commands
from fieldagent.extensions import list_places
from fieldagent.system.exit_codes import USAGE
from fieldagent.system.extension import import_own

SEPARATE_TABLES = {
    "hub": "fieldagent.cli.hub.table:COMMANDS",
    "push": "fieldagent.cli.hub.push_table:COMMANDS",
}
"""Tables that only their own command loads. The main help lists only the command itself."""


def dispatch(words: Sequence[str]) -> int:
    """Run a command line, and return its exit code. If a subcommand is missing, print the help and
    return USAGE. Wrong arguments raise SystemExit, as in argparse.
    """
    if words[:1] == ["help"] and words[1:] != ["--help"]:
        words = [*words[1:], "--help"]
    arguments, unknown = build_parser(words).parse_known_args(words)
    if unknown:
        arguments.parser.refuse_unknown(unknown)
    if not arguments.carry_out:
        arguments.parser.print_help(sys.stderr)
        return USAGE
    carry_out: Callable[..., int] = import_own(arguments.carry_out)
    return carry_out(arguments)


def build_parser(words: Sequence[str] | None = None) -> CommandParser:
    """Build the parser with all commands. If `words` is not None, include only the command that
    they name, because each argument costs time at the start. If `words` name no command, the hub's
    commands are only listed.
    """
    parser = CommandParser(
        prog="fieldagent",
        description="Send messages, positions and SOS calls by satellite, radio or cellular.",
    )
    parser.add_argument("--version", action="version", version=f"fieldagent {__version__}")
    parser.set_defaults(carry_out="", parser=parser)
    add_commands(parser, [*_list_commands(words)], words or ())
    return parser


def _list_commands(words: Sequence[str] | None) -> Iterator[Command]:
    called, noun, *_ = (*(words or ()), "", "")
    of_extensions = list_places("commands")
    names = {each.words[0] for each in (*COMMANDS, *HELP)}
    yield from COMMANDS
    yield from _read(of_extensions, called, {*of_extensions, *names})
    yield from HELP
    if words is not None and called not in SEPARATE_TABLES:
        return
    yield from (rows := [*_read(SEPARATE_TABLES, called, SEPARATE_TABLES)])
    if words is None or called == "hub":
        of_extensions = list_places("hub_commands")
        nouns = {each.words[1] for each in rows if len(each.words) > 1}
        yield from _read(of_extensions, noun, {*of_extensions, *nouns})


def _read(tables: Mapping[str, str], noun: str, table_names: Collection[str]) -> Iterator[Command]:
    """Yield the commands of the table `noun`, or of all tables if there is no such table. Exit if
    this program does not contain the table.
    """
    for name in [noun] if noun in table_names else tables:
        if name not in tables:
            continue
        try:
            yield from import_own(tables[name])
        except ModuleNotFoundError as missing:
            if missing.name != tables[name].partition(":")[0]:
                raise
            if name == noun:
                CommandParser(prog=f"fieldagent {name}").error(
                    "this program does not have that command; fieldagent.pyz has it"
                )
