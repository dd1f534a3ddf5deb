"""Arguments of the commands that change the radio-key of a workspace's kits."""

from __future__ import annotations

from fieldagent.cli.hub.action import action
from fieldagent.cli.subcommand import CommandParser, Subparsers, command


def add_radio_key(device: Subparsers) -> None:
    """Add `radio-key` to `fieldagent hub device`, with actions that `cli.hub.radio_key` runs."""
    summary = "change the radio-key of all kits of a workspace, in three steps"
    radio_key = command(device, "radio-key", None, summary).add_subparsers(metavar="ACTION")
    where = "cli.hub.radio_key"
    summary = "begin the change; a step starts once all kits have completed the last one"
    add_key_change(action(radio_key, "change", (where, "change"), summary))
    summary = "show the current step, and the kits that are behind"
    action(radio_key, "status", (where, "status"), summary)
    summary = "continue without a kit; it catches up once it is back"
    left_out = action(radio_key, "leave-out", (where, "leave_out"), summary)
    left_out.add_argument("device")
    summary = "ask a kit again, such as one with a restored card, or over satellite"
    asked = action(radio_key, "ask", (where, "ask"), summary)
    asked.add_argument("device")
    _add_agreement(asked)
    summary = "show the key, for kits that cannot reach the hub"
    action(radio_key, "key", (where, "key"), summary)


def add_key_change(parser: CommandParser) -> None:
    """Add the arguments of a radio-key change, to `radio-key change` and to `device revoke`."""
    summary = "do not wait for this kit; can be repeated"
    parser.add_argument("--but", action="append", metavar="KIT", help=summary)
    summary = "use this key, which is asked for or read from standard input, instead of a new one"
    parser.add_argument("--key-given", action="store_true", help=summary)
    _add_agreement(parser)


def _add_agreement(parser: CommandParser) -> None:
    summary = "do not use satellite: only links and neighbours' radio"
    parser.add_argument("--by", choices=("ip",), help=summary)
    parser.add_argument("--yes", action="store_true", help="accept the satellite cost")
