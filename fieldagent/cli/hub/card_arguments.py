"""What `fieldagent hub device add --card` may tell a card beside the agent's settings."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.subcommand import CommandParser


def add_card(add: CommandParser) -> None:
    """Add to `device add` what a card may be told; what goes on which card is checked in
    `card_files`."""
    files = add.add_argument_group(
        "with --card, who the kit is: kit.properties on a card of build/image, cloud-init's files"
        " on another, such as Raspberry Pi OS reads"
    )
    files.add_argument("--hostname", help="of the kit (the device's name)")
    files.add_argument(
        "--ssh-key",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="who may log in, such as ~/.ssh/id_ed25519.pub",
    )
    files.add_argument("--login", default="kit", help="by this name (kit); an image's is root")
    files.add_argument("--wifi", metavar="NAME", help="whose password is asked for, or read")
    files.add_argument("--country", default="", metavar="CH", help="whose rules the Wi-Fi keeps")
    files.add_argument("--ca-file", type=Path, metavar="FILE", help="of the hub's own authority")
    key = "minisign's public key of who builds the kit's programs"
    files.add_argument("--update-key", type=Path, metavar="FILE", help=key)
    files.add_argument(
        "--access-point",
        metavar="NAME",
        help="the Wi-Fi that the kit gives, whose password is asked for, or read (an image's)",
    )
    own = "of its cable, with the network, such as 192.168.1.5/24 (an image's)"
    files.add_argument("--kit-address", default="", metavar="ADDRESS", help=own)
    files.add_argument("--gateway", default="", metavar="ADDRESS", help="of that network")
    files.add_argument("--dns", default="", metavar="ADDRESS", help="of that network")
    zone = "such as Europe/Zurich (UTC; an image's)"
    files.add_argument("--time-zone", default="", metavar="ZONE", help=zone)
