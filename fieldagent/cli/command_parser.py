"""Parser of a command line. It shows the commands in groups, and suggests the correct word for a
mistyped one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

COMMON_OPTIONS = ("-h", "--help", "--version")
"""Options that the help of commands leaves out."""


class CommandParser(argparse.ArgumentParser):
    """Parser that suggests the correct word for a mistyped one, and reads `-8,5417` as a number,
    not as an option.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.is_listed = True
        self.group = ""
        self.row = ("", "")
        self.deeper: Sequence[Sequence[str]] = ()
        """Words of all commands below the command of this parser."""
        self._mixing = False
        self._negative_number_matcher = re.compile(r"-\d+$|-\d*[.,]\d+$", re.ASCII)

    def get_subcommands(self) -> dict[str, CommandParser]:
        """Return the parsers of the commands below the command of this parser, by name."""
        below: dict[str, CommandParser] = {}
        # argparse has no public list of its arguments. This attribute has been the same since 2.7.
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                below |= action.choices
        return below

    def format_help(self) -> str:
        """Return the help. Commands have one line each if possible, so that all fit on a screen."""
        below = [each for each in self.get_subcommands().values() if each.is_listed]
        listed_commands = [each for each in below if each.group]
        # A command without a group is in the row of another command, or an extension added it.
        command_names = {name for each in listed_commands for name in each.row[0].split(", ")}
        listed_commands += [
            each for each in below if not each.group and each.row[0] not in command_names
        ]
        options = {name for name in self._option_string_actions if name not in COMMON_OPTIONS}
        if not listed_commands or options:
            return super().format_help()
        import textwrap  # Import it only here, because other commands do not need it.

        other = "Other" if any(each.group for each in listed_commands) else ""
        titles = dict.fromkeys(each.group or other for each in listed_commands)
        wide = max(map(len, titles)) + 2
        names_wide = max(len(each.row[0]) for each in listed_commands) + 2
        lines = [self.format_usage(), f"{textwrap.fill(self.description or '', 80)}\n\n"]
        for title in titles:
            shown_title = title
            for names, summary in (
                each.row for each in listed_commands if (each.group or other) == title
            ):
                start = f"{shown_title:{wide}}{names:{names_wide}}"
                row = textwrap.fill(f"{start}{summary}", 80, subsequent_indent=" " * len(start))
                lines.append(f"{row}\n")
                shown_title = ""
        return "".join(lines)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Parse a value. argparse calls this method."""
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as refused:
            if not isinstance(refused.__context__, ValueError):
                raise
            valid = getattr(action.type, "__name__", "another value")
            raise argparse.ArgumentError(action, f"{arg_string!r} is wrong; use {valid}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check a word that must be one of several. argparse calls this method."""
        if action.choices is not None and value not in action.choices:
            suggestion = self._find_deeper(value) or _find_meant(str(value), action.choices)
            choice = suggestion or f"it is one of {', '.join(action.choices)}"
            raise argparse.ArgumentError(action, f"unknown value {value!r}; {choice}")

    def _find_deeper(self, word: str) -> str:
        """Return a hint with the full names of the commands at lower levels that are called `word`.
        Return an empty text if there is none, or if there are more than three.
        """
        paths = {" ".join(each[: each.index(word) + 1]) for each in self.deeper if word in each[1:]}
        path_names = " or ".join(repr(each) for each in sorted(paths))
        return f"did you mean {path_names}?" if 0 < len(paths) < 4 else ""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Allow options between positional arguments. Before Python 3.12, argparse accepts
        positional arguments only in one place.
        """
        parse_known = super().parse_known_args
        last = self._get_positional_actions()[-1:]
        if self._mixing or not last or last[0].nargs not in ("*", "?", "+"):
            return parse_known(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False

    def refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        """Report words that no argument of this command accepts, and exit."""
        suggestion = _find_meant(words[0].partition("=")[0], self._option_string_actions)
        self.error(f"{words[0]!r} is unknown; {suggestion or f'see `{self.prog} --help`'}")


def _find_meant(word: str, words: Iterable[str]) -> str:
    import difflib  # Import it only here, so that a correct command starts without it.

    close = difflib.get_close_matches(word, words, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
