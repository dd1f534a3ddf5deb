"""Arguments of `fieldagent hub device add --card` for the card, besides the agent's settings."""

from __future__ import annotations

from pathlib import Path

from fieldagent.cli.subcommand import CommandParser


def add_card(add: CommandParser) -> None:
    """Add the card's arguments to `device add`. `card_files` checks which ones the card
    supports.
    """
    files = add.add_argument_group(
        "with --card: write kit.properties on a card of build/image, or cloud-init files on"
        " another card, such as Raspberry Pi OS"
    )
    files.add_argument("--hostname", help="host name of the kit (the device's name)")
    files.add_argument(
        "--ssh-key",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="SSH public key for logins, such as ~/.ssh/id_ed25519.pub",
    )
    files.add_argument(
        "--login", default="kit", help="user name for logins (kit); root on an image"
    )
    files.add_argument(
        "--wifi", metavar="NAME", help="Wi-Fi to join; asks for its password, or reads a line"
    )
    files.add_argument(
        "--country", default="", metavar="CH", help="country whose Wi-Fi rules apply"
    )
    files.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="certificate of the hub's own authority"
    )
    key = "minisign public key for updates of the kit"
    files.add_argument("--update-key", type=Path, metavar="FILE", help=key)
    files.add_argument(
        "--access-point",
        metavar="NAME",
        help="Wi-Fi that the kit offers; asks for its password, or reads a line (images only)",
    )
    own = "address of its Ethernet port with the network, such as 192.168.1.5/24 (images only)"
    files.add_argument("--kit-address", default="", metavar="ADDRESS", help=own)
    files.add_argument("--gateway", default="", metavar="ADDRESS", help="router of that network")
    files.add_argument("--dns", default="", metavar="ADDRESS", help="name server of that network")
    zone = "time zone, such as Europe/Zurich (UTC; images only)"
    files.add_argument("--time-zone", default="", metavar="ZONE", help=zone)
