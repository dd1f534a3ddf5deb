"""`fieldagent manual`: prints the manual page, in the macros of man(7)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fieldagent import __version__
from fieldagent.cli.arguments import build_parser
from fieldagent.cli.command_tree import Command, Option, list_commands
from fieldagent.system.exit_codes import MEANINGS, OK


def print_manual(_: argparse.Namespace) -> int:
    """Print the manual page for all commands of the parser, and return OK."""
    print("\n".join(_format_page()))
    return OK


def _format_page() -> Iterator[str]:
    program, *rest = list_commands(build_parser())
    yield f'.TH FIELDAGENT 1 "" "fieldagent {__version__}" "User Commands"'
    yield ".SH NAME"
    yield _escape_roff(
        f"fieldagent - {program.summary[0].lower()}{program.summary[1:].rstrip('.')}"
    )
    yield ".SH SYNOPSIS"
    yield _escape_roff(program.usage)
    yield ".SH OPTIONS"
    yield from _format_arguments(program)
    yield ".SH COMMANDS"
    for command in rest:
        yield f".SS {_escape_roff(' '.join(('fieldagent', *command.words)))}"
        yield _escape_roff(command.summary)
        if not command.subcommands:
            yield ".PP"
            yield _escape_roff(command.usage)
        yield from _format_arguments(command)
        if command.epilog:
            yield ".PP"
            yield _escape_roff(command.epilog)
    yield ".SH EXIT STATUS"
    yield _escape_roff(MEANINGS)


def _format_arguments(command: Command) -> Iterator[str]:
    for option in (*command.arguments, *command.options):
        yield ".TP"
        yield _escape_roff(_find_name(option))
        if option.summary:
            yield _escape_roff(option.summary)


def _find_name(option: Option) -> str:
    return " ".join(filter(None, [", ".join(option.names), option.value]))


def _escape_roff(text: str) -> str:
    """Escape a line of text, so that hyphens do not become dashes, no macro begins, and all
    characters are ASCII, which every troff can read (groff_char(7)).
    """
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
