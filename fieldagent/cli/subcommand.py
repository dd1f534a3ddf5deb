"""How a subcommand is declared, and the arguments that kinds of items share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def command(
    commands: Subparsers,
    name: str,
    carry_out: tuple[str, str] | None,
    summary: str,
) -> argparse.ArgumentParser:
    """`carry_out` names a module of `fieldagent.cli` and a function in it."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=summary[0].upper() + summary[1:] + "."
    )
    parser.set_defaults(carry_out=carry_out, parser=parser)
    return parser


def add_item_arguments(add_kind: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """The four kinds; `add_kind` makes the parser of each from its name and summary."""
    message = add_kind("message", "send a text message")
    message.add_argument("content", help="the text; - reads standard input")
    location = add_kind("location", "send a position report")
    _add_position(location)
    location.add_argument("--altitude", type=float, help="metres above mean sea level")
    location.add_argument("--speed", type=float, help="speed over ground, m/s")
    location.add_argument("--course", type=float, help="degrees clockwise from true north")
    waypoint = add_kind("waypoint", "send a point of interest")
    _add_position(waypoint)
    waypoint.add_argument("name")
    waypoint.add_argument("--notes")
    data = add_kind("data", "send raw bytes")
    data.add_argument("file", help="the file to send; - reads standard input")


def _add_position(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("latitude", help="decimal degrees, WGS84")
    parser.add_argument("longitude", help="decimal degrees, WGS84")
    parser.add_argument("--timestamp", help="ISO 8601; now otherwise")
