"""Lists all commands of a parser with their options, for the generators of the completion and the
manual page.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fieldagent.cli.command_parser import CommandParser
from fieldagent.system.lazy_named_tuple import NamedTuple


class Option(NamedTuple):
    names: tuple[str, ...]
    value: str
    """Placeholder of the option's value. Empty if the option has no value."""
    choices: tuple[str, ...]
    summary: str


class Command(NamedTuple):
    words: tuple[str, ...]
    """Words of the command, without the program's name."""
    summary: str
    usage: str
    subcommands: tuple[str, ...]
    arguments: tuple[Option, ...]
    options: tuple[Option, ...]
    epilog: str


def list_commands(parser: CommandParser, words: tuple[str, ...] = ()) -> Iterator[Command]:
    """Yield the parser itself, then its subcommands, in the order of --help."""
    below = parser.get_subcommands()
    actions = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction) and action.help != argparse.SUPPRESS
    ]
    yield Command(
        words,
        parser.description or "",
        " ".join(parser.format_usage().split()[1:]),
        tuple(name for name, each in below.items() if each.is_listed),
        tuple(_make_option(action) for action in actions if not action.option_strings),
        tuple(_make_option(action) for action in actions if action.option_strings),
        parser.epilog or "",
    )
    for name, subparser in below.items():
        yield from list_commands(subparser, (*words, name))


def _make_option(action: argparse.Action) -> Option:
    choices = tuple(str(choice) for choice in action.choices or ())
    metavar = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    metavar_text = metavar if isinstance(metavar, str) else " ".join(metavar)
    value = "|".join(choices) or metavar_text
    return Option(
        tuple(action.option_strings),
        "" if action.nargs == 0 else value,
        choices,
        (action.help or "").replace("%%", "%"),
    )
