"""Reads commands from a table: the words, the function, the summary and the arguments of each.

    contact [Alarms]: manage contacts
    contact add -> contact:add: add a contact
      name: name of the person; kits show it
      --after 5m wait=0: time without an answer until this contact is notified
    contact list -> contact:list @listing: list contacts
    @listing
      --json: print JSON

A line at the margin is a command: its words, `[the title]` of its group in the help of the command
above, and `->` the module and the function, with values for it such as `(what=key)`. A module
without a dot is in the table's package. The summary comes after the colon. `  = NAMES: SUMMARY` is
a row of that help for several commands. The other lines are arguments. Six blanks continue a line.

An argument without dashes is positional. At its name, `?`, `*` and `+` are those of argparse. At
the name of an option, `*` allows it several times and `!` requires it. Then come the placeholder of
the value, its type or its `(choice|choice)`, and `=` with the default. `>name` renames the value.
`$NAME` is a variable of the environment with the default. An option without these has no value.

Options after `|` exclude each other; after `|!` one of them is required. `== TITLE` begins a
section of the help. `@name` stands for the lines with that name. The help leaves out a command in
the group `[hidden]` and an argument with the text `hidden`, because only a systemd unit uses them.

A module is imported when its command runs, so that a command that only uses HTTP starts without
trio.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fieldagent.cli.argument_types import TYPES, make_integer_reader
from fieldagent.cli.command_parser import CommandParser
from fieldagent.system.lazy_named_tuple import NamedTuple

Types = Mapping[str, Callable[[str], Any]]
CONTINUATION_INDENT = " " * 6
HIDDEN = "hidden"
NARGS = "?*+!"
HELP = ("-h", "--help")
"""Words that print the help, for which the commands below are only listed."""


class Command(NamedTuple):
    words: tuple[str, ...]
    group: str
    row: list[str]
    """`NAMES: SUMMARY` of a row in the help of the command above, if that row stands for several
    commands."""
    place: str
    """`package.module:NAME` of the function. Empty if the command only has commands below it."""
    values: Mapping[str, str]
    summary: str
    arguments: list[str]
    """Lines of the table with the command's arguments."""
    endings: list[str]
    """Lines of arguments that follow, outside of any section."""
    fragments: Mapping[str, list[str]]
    types: Types


def read_table(
    text: str,
    package: str,
    *,
    types: Types = TYPES,
    above: tuple[str, ...] = (),
    ending: str = "",
) -> list[Command]:
    """Return the commands of a table. Their modules are in `package`, and their words come after
    the words `above`. A command with a function and without its own ending gets `ending`.
    """
    commands: list[Command] = []
    fragments: dict[str, list[str]] = {}
    into: list[str] = []
    for line in _format_lines(text):
        if line.startswith("  = "):
            commands[-1].row.append(line[4:])
        elif line.startswith(" "):
            into.append(line.strip())
        elif line.startswith("@"):
            into = fragments.setdefault(line, [])
        else:
            command_part, _, summary = line.partition(": ")
            command_path, _, call = command_part.partition(" -> ")
            command_path, _, group = command_path.partition(" [")
            call_name, *endings = call.split() or [""]
            call_name, _, values = call_name.partition("(")
            into = []
            commands.append(
                Command(
                    (*above, *command_path.split()),
                    group[:-1],
                    [],
                    call_name if "." in call_name else call_name and f"{package}.{call_name}",
                    dict(each.split("=") for each in values[:-1].split(",") if each),
                    summary,
                    into,
                    endings or ([ending] if call_name and ending else []),
                    fragments,
                    types,
                )
            )
    return commands


def _format_lines(text: str) -> list[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(CONTINUATION_INDENT):
            lines[-1] += line[len(CONTINUATION_INDENT) - 1 :]
        elif line:
            lines.append(line)
    return lines


def add_commands(
    parser: CommandParser,
    commands: Sequence[Command],
    words: Sequence[str] = (),
    depth: int = 0,
    known_names: frozenset[str] = frozenset(),
) -> None:
    """Add commands below a parser: only the command with which `words` begin or, if there is none,
    all commands. Fewer commands save time, because each argument costs time at the start.
    `known_names` are the names of arguments that the parsers above have.
    """
    below: dict[str, list[Command]] = {}
    for each in commands:
        if len(each.words) > depth:
            below.setdefault(each.words[depth], []).append(each)
    if not below:
        return
    parser.deeper = [each.words[depth:] for each in commands]
    called = words[0] if words and words[0] in below else ""
    subparsers = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name in [called] if called else below:
        *_, own = (each for each in below[name] if len(each.words) == depth + 1)
        is_listed = own.group != HIDDEN
        summary = own.summary.replace("%", "%%")
        parser_options: dict[str, Any] = {"help": summary} if is_listed else {}
        description = f"{summary[0].upper()}{summary[1:]}."
        child: CommandParser = subparsers.add_parser(
            name, description=description, **parser_options
        )
        child.is_listed, child.group = is_listed, own.group if is_listed else ""
        names, _, summary = own.row[0].partition(": ") if own.row else (name, "", own.summary)
        child.row = (names, summary)
        child.set_defaults(carry_out=own.place, parser=child, **own.values)
        if words and words[0] in HELP:
            continue
        _add_arguments(child, own, known_names)
        names_here = frozenset(action.dest for action in child._actions)
        add_commands(
            child, below[name], words[1:] if called else (), depth + 1, known_names | names_here
        )


def _add_arguments(parser: CommandParser, command: Command, known_names: frozenset[str]) -> None:
    section: argparse._ActionsContainer = parser
    exclusive: argparse._ActionsContainer | None = None
    for line in _expand([*command.arguments, "==", *command.endings], command.fragments):
        if line.startswith("=="):
            section = parser.add_argument_group(line[3:]) if line[3:] else parser
            continue
        mark, argument = line.split(" ", 1) if line.startswith("|") else ("", line)
        if mark and exclusive is None:
            exclusive = parser.add_mutually_exclusive_group(required=mark == "|!")
        elif not mark:
            exclusive = None
        names, options = read_argument(argument, command.types)
        if names[-1].lstrip("-").replace("-", "_") in known_names:
            # This argument is allowed before and after the command. If it is missing after the
            # command, the value from before must stay.
            options["default"] = argparse.SUPPRESS
        (exclusive or section).add_argument(*names, **options)


def _expand(lines: Sequence[str], fragments: Mapping[str, list[str]]) -> Iterator[str]:
    for line in lines:
        if line.startswith("@"):
            yield from _expand(fragments[line], fragments)
        else:
            yield line


def read_argument(line: str, types: Types) -> tuple[list[str], dict[str, Any]]:
    """Return the names of an argument and its options for argparse. Raises KeyError if its type is
    unknown.
    """
    argument_part, _, text = line.partition(": ")
    name, *tokens = argument_part.split()
    marks = name[len(name.rstrip(NARGS)) :]
    names = name.rstrip(NARGS).split(",")
    is_option = name.startswith("-")
    options: dict[str, Any] = {}
    placeholder: list[str] = []
    for token in tokens:
        kind, has_default, default = token.partition("=")
        if token.startswith(">"):
            options["dest"] = token[1:]
        elif token.startswith("$"):
            options["variable"] = token[1:]
        elif kind == "const":
            options["const"] = options["type"](default)
        elif ".." in kind:
            options["type"] = make_integer_reader(*map(int, kind.split("..")))
        elif kind.isidentifier() and kind.islower():
            options["type"] = types[kind]
        elif kind.startswith("("):
            options["choices"] = tuple(kind[1:-1].split("|"))
        elif kind:
            placeholder.append(token)
            continue
        if has_default and kind != "const":
            is_number = "type" in options and default.isdigit()
            options["default"] = int(default) if is_number else [] if default == "[]" else default
    if placeholder:
        options["metavar"] = placeholder[0] if len(placeholder) == 1 else tuple(placeholder)
        if len(placeholder) > 1:
            options["nargs"] = len(placeholder)
    if is_option and not {"metavar", "type", "choices"} & options.keys():
        has_value = "default" in options
        options["action"] = "store_const" if has_value else "store_true"
        options |= {"const": options.pop("default")} if has_value else {}
    for mark in marks:
        if mark == "!":
            options["required"] = True
        elif mark == "*" and is_option:
            options["action"] = "append"
        else:
            options["nargs"] = mark
    if (variable := options.pop("variable", "")) in os.environ:
        options |= {"default": os.environ[variable], "required": False}
    if text:
        options["help"] = argparse.SUPPRESS if text == HIDDEN else text.replace("%", "%%")
    return names, options
