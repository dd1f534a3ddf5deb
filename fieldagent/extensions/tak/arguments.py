"""The arguments of `fieldagent hub user tak`."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.hub.action import action
from fieldagent.cli.subcommand import Subparsers


def add_to_user(user: Subparsers) -> None:
    """Add the verb `tak` to `fieldagent hub user`."""
    summary = "make a data package for a user's phone at the hub's TAK server; alone, list them"
    tak = action(user, "tak", ("extensions.tak.certificate_command", "tak"), summary)
    tak.add_argument("user", nargs="?")
    tak.add_argument("--out", type=Path, metavar="FILE.zip", help="(tak-NUMBER.zip here)")
    tak.add_argument(
        "--itak", action="store_true", help="in the form that iTAK takes, a file or a code"
    )
    tak.add_argument(
        "--qr",
        action="store_true",
        help="no file: a code for the phone's camera, good once, for a quarter of an hour",
    )
    tak.add_argument(
        "--trust",
        type=Path,
        metavar="FILE.zip",
        help="no user: what a phone trusts, before it scans a code of this hub's own authority",
    )
    tak.add_argument(
        "--revoke", action="store_true", help="end all of the user's, and their connections"
    )
