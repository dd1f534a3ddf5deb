"""The arguments of `fieldagent push`, which a kit's program has, too."""

from __future__ import annotations

import os
from pathlib import Path

from fieldagent.cli.subcommand import (
    CommandParser,
    Subparsers,
    add_item_arguments,
    command,
    seconds,
)


def add_push(push: CommandParser) -> None:
    """Add `push` with its kinds of items, which `cli.hub.push` runs."""
    kinds = push.add_subparsers(metavar="KIND", title="kinds")
    add_item_arguments(lambda kind, summary: _add_push_kind(kinds, kind, summary))


def _add_push_kind(kinds: Subparsers, kind: str, summary: str) -> CommandParser:
    parser = command(kinds, kind, ("cli.hub.push", kind), summary)
    parser.add_argument("--hub", required=True, metavar="URL", help="such as https://hub.example")
    workspace = os.environ.get("FIELDAGENT_WORKSPACE")
    parser.add_argument(
        "--workspace",
        required=workspace is None,
        default=workspace,
        help="number of the workspace; otherwise FIELDAGENT_WORKSPACE",
    )
    parser.add_argument("--source", required=True, help="number of the sending user")
    whom = "number of the receiving user"
    message = kind == "message"
    target = parser.add_mutually_exclusive_group(required=message)
    target.add_argument("--target", help=whom if message else f"{whom} (the whole workspace)")
    target.add_argument("--group", help="number or name of the receiving group")
    parser.add_argument(
        "--receipt",
        action="store_const",
        const="read",
        help="request a read receipt",
    )
    parser.add_argument("--priority", type=int)
    parser.add_argument("--collapse-key", type=int, help="replace a waiting item with the same key")
    parser.add_argument("--time-to-live", type=int, metavar="SECONDS")
    parser.add_argument("--username", help="user for Basic; FIELDAGENT_TOKEN has the password")
    parser.add_argument("--ca-file", type=Path, help="PEM file of a private authority")
    parser.add_argument(
        "--patience",
        type=seconds,
        help="longest time for retries, in seconds (300; 30 if no hub answers)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = (
        "The environment variables FIELDAGENT_API_KEY and FIELDAGENT_TOKEN contain the credentials."
    )
    return parser
