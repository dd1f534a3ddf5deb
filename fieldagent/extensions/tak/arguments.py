"""The arguments of `fieldagent hub user tak`."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.hub.action import action
from fieldagent.cli.subcommand import Subparsers


def add_to_user(user: Subparsers) -> None:
    """Add the verb `tak` to `fieldagent hub user`."""
    summary = (
        "make a data package for a user's phone and the hub's TAK server; without a user, list"
        " the packages"
    )
    tak = action(user, "tak", ("extensions.tak.certificate_command", "tak"), summary)
    tak.add_argument("user", nargs="?")
    tak.add_argument("--out", type=Path, metavar="FILE.zip", help="file to write (tak-NUMBER.zip)")
    tak.add_argument(
        "--itak", action="store_true", help="in the format of iTAK, as a file or a code"
    )
    tak.add_argument(
        "--qr",
        action="store_true",
        help="show a code for the phone's camera, valid once for 15 minutes, and write no file",
    )
    tak.add_argument(
        "--trust",
        type=Path,
        metavar="FILE.zip",
        help=(
            "without a user: write the trusted certificates for phones, if the hub has its own"
            " authority"
        ),
    )
    tak.add_argument(
        "--revoke",
        action="store_true",
        help="revoke all packages of the user and close their connections",
    )
