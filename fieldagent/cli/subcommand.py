"""Declaration of subcommands, and the common arguments of kinds of items."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias


class CommandParser(argparse.ArgumentParser):
    """Parser that suggests the right word for a mistyped one, and reads `-8,5417` as a number, not
    as an option.
    """

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self.is_listed = True
        self.group = ""
        self.row = ("", "")
        self._mixing = False
        self._negative_number_matcher = re.compile(r"-\d+$|-\d*[.,]\d+$", re.ASCII)

    def subcommands(self) -> dict[str, CommandParser]:
        """Return the parser of each command below this one, by its name."""
        below: dict[str, CommandParser] = {}
        # argparse has no public list of its arguments. This attribute has been the same since 2.7.
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                below |= action.choices
        return below

    def format_help(self) -> str:
        """Return the help. Commands in groups have one line each, so that all fit on a screen."""
        listed = [each for each in self.subcommands().values() if each.group]
        if not listed:
            return super().format_help()
        titles = dict.fromkeys(each.group for each in listed)
        wide = max(map(len, titles)) + 2
        names_wide = max(len(each.row[0]) for each in listed) + 2
        lines = [self.format_usage(), f"{self.description}\n\n"]
        for title in titles:
            shown = title
            for names, summary in (each.row for each in listed if each.group == title):
                lines.append(f"{shown:{wide}}{names:{names_wide}}{summary}\n")
                shown = ""
        return "".join(lines)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Check a word that must be one of several; argparse calls this."""
        if action.choices is not None and value not in action.choices:
            meant = _meant(str(value), action.choices)
            choice = meant or f"it is one of {', '.join(action.choices)}"
            raise argparse.ArgumentError(action, f"unknown value {value!r}; {choice}")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Allow options between positional arguments, which argparse before 3.12 takes from one
        place.
        """
        whole = super().parse_known_args
        last = self._get_positional_actions()[-1:]
        if self._mixing or not last or last[0].nargs not in ("*", "?", "+"):
            return whole(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False

    def refuse_unknown(self, words: Sequence[str]) -> NoReturn:
        """Refuse words that no argument of this command accepts."""
        meant = _meant(words[0].partition("=")[0], self._option_string_actions)
        self.error(f"{words[0]!r} is unknown; {meant or f'see `{self.prog} --help`'}")


def _meant(word: str, known: Iterable[str]) -> str:
    import difflib  # import here, so that a correct command starts without it

    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""


Subparsers: TypeAlias = "argparse._SubParsersAction[CommandParser]"
Adder: TypeAlias = Callable[[Subparsers], None]


def by_name(*adders: tuple[str, Adder]) -> dict[str, Adder]:
    """Return the function that adds each command; one function may add several."""
    return {name: add for names, add in adders for name in names.split()}


def add_called(adders: Mapping[str, Adder], called: str, commands: Subparsers) -> None:
    """Add the command that is called; all commands in order if it is not among them."""
    for add in [adders[called]] if called in adders else dict.fromkeys(adders.values()):
        add(commands)


def command(
    commands: Subparsers,
    name: str,
    carry_out: tuple[str, str] | None,
    summary: str,
    *,
    group: str = "",
    row: tuple[str, str] = ("", ""),
    is_listed: bool = True,
) -> CommandParser:
    """Add a command. `carry_out` names a module of `fieldagent` and a function in it. The help of
    the command above has it in this group, with its name and summary, or in a row with the names of
    several commands. It leaves out a command that is not listed, because only a systemd unit calls
    it.
    """
    listed: dict[str, Any] = {"help": summary} if is_listed else {}
    parser: CommandParser = commands.add_parser(
        name, description=summary[0].upper() + summary[1:] + ".", **listed
    )
    parser.is_listed = is_listed
    parser.group, parser.row = group, row if row[0] else (name, summary)
    parser.set_defaults(carry_out=carry_out, parser=parser)
    return parser


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of an integer from `low` to `high` inclusive; it raises ArgumentTypeError."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number from {low} to {high}")
        return number

    return read


count = whole(1, 1_000_000)
port = whole(0, 65_535)


def seconds(text: str) -> float:
    """Read a number of seconds, 0 or more. Raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e9:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a number of seconds, such as 2.5")
    return number


def positive(value: str) -> float:
    """Read a number above 0. Raises ArgumentTypeError."""
    if not 0 < float(value) < 1e12:
        raise argparse.ArgumentTypeError(f"{value!r} is not a number above 0")
    return float(value)


def decimal(text: str) -> float:
    """Read `2450.5`, or `2450,5` as in many languages. `2,450` is refused, because it is ambiguous.
    Raises ArgumentTypeError.
    """
    if match := re.fullmatch(r"([+-]?\d+),(\d{1,2})", text, re.ASCII):
        text = f"{match[1]}.{match[2]}"
    try:
        return float(text)
    except ValueError:
        what = f"{text!r} is not a number such as 2450.5 or 2450,5"
        raise argparse.ArgumentTypeError(what) from None


def duration(text: str) -> float:
    """Read 90m, 12h or 2d as seconds, at least 5 minutes. Raises ArgumentTypeError."""
    number, unit = text[:-1], {"m": 60.0, "h": 3600.0, "d": 86_400.0}.get(text[-1:])
    seconds = float(number) * unit if unit and number.replace(".", "", 1).isdecimal() else 0.0
    if not 300 <= seconds <= 366 * 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: use 90m, 12h or 2d, from 5m")
    return seconds


def add_item_arguments(add_kind: Callable[[str, str], CommandParser]) -> None:
    """Add the five kinds of items. `add_kind` makes the parser of each from its name and
    summary.
    """
    message = add_kind("message", "send a text message")
    message.add_argument("content", help="the text; - reads standard input")
    location = add_kind("location", "send a position report")
    _add_position(location)
    location.add_argument("--altitude", type=decimal, help="metres above mean sea level")
    location.add_argument("--speed", type=decimal, help="speed over ground, m/s")
    location.add_argument("--course", type=decimal, help="degrees clockwise from true north")
    waypoint = add_kind("waypoint", "send a point of interest")
    _add_position(waypoint)
    waypoint.add_argument("name")
    waypoint.add_argument("--notes")
    data = add_kind("data", "send raw bytes")
    data.add_argument("file", help="the file to send; - reads standard input")
    picture = add_kind("picture", "send a picture, as data")
    picture.add_argument("file", help="JPEG, PNG, WebP, AVIF or GIF; - reads standard input")
    picture.add_argument(
        "--bytes",
        type=whole(1, 10_000_000),
        metavar="N",
        dest="most_bytes",
        help="scale it to at most so many, as WebP; needs Pillow",
    )


def _add_position(parser: CommandParser) -> None:
    forms = (
        """47.3769 8.5417, 47,3769 8,5417 or "47° 22' 36.8\\" N" "8° 32' 30\\" E"; UTM or MGRS:"""
        " 32T 465000 5247000 or 32T MT 65000 47000; WGS84"
    )
    parser.add_argument("place", nargs="+", help=f"degrees: {forms}")
    parser.add_argument("--timestamp", help="ISO 8601; now otherwise")


def add_place(parser: CommandParser, name: str, place: str, summary: str) -> None:
    """Add an option with a path, which has a default."""
    text = f"{summary} ({place})"
    parser.add_argument(name, type=Path, metavar="PATH", default=Path(place), help=text)
