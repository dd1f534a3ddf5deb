"""`fieldagent manual`: the manual page, in the macros of man(7)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from fieldagent import __version__
from fieldagent.cli.arguments import build_parser
from fieldagent.cli.command_tree import Command, Option, commands
from fieldagent.system.exit_codes import MEANINGS, OK


def manual(_: argparse.Namespace) -> int:
    """Print the page for all commands of the parser, and return OK."""
    print("\n".join(_page()))
    return OK


def _page() -> Iterator[str]:
    program, *rest = commands(build_parser())
    yield f'.TH FIELDAGENT 1 "" "fieldagent {__version__}" "User Commands"'
    yield ".SH NAME"
    yield _roff(f"fieldagent - {program.summary[0].lower()}{program.summary[1:].rstrip('.')}")
    yield ".SH SYNOPSIS"
    yield _roff(program.usage)
    yield ".SH OPTIONS"
    yield from _arguments(program)
    yield ".SH COMMANDS"
    for command in rest:
        yield f".SS {_roff(' '.join(('fieldagent', *command.words)))}"
        yield _roff(command.summary)
        if not command.subcommands:
            yield ".PP"
            yield _roff(command.usage)
        yield from _arguments(command)
        if command.epilog:
            yield ".PP"
            yield _roff(command.epilog)
    yield ".SH EXIT STATUS"
    yield _roff(MEANINGS)


def _arguments(command: Command) -> Iterator[str]:
    for option in (*command.arguments, *command.options):
        yield ".TP"
        yield _roff(_called(option))
        if option.summary:
            yield _roff(option.summary)


def _called(option: Option) -> str:
    return " ".join(filter(None, [", ".join(option.names), option.value]))


def _roff(text: str) -> str:
    """Return a line of text: hyphens do not become dashes, no macro begins, and all characters are
    ASCII, which every troff can read (groff_char(7)).
    """
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(each if each.isascii() else f"\\[u{ord(each):04X}]" for each in escaped)
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
