"""Arguments of the commands that change the radio-key of a workspace's kits."""

from __future__ import annotations

from fieldagent.cli.hub.action import action
from fieldagent.cli.subcommand import CommandParser, Subparsers, command


def add_radio_key(actions: Subparsers) -> None:
    """Add `radio-key` to `fieldagent hub`, with the actions that `cli.hub.radio_key` carries
    out."""
    summary = "another radio-key for all kits of a workspace, in three steps"
    radio_key = command(actions, "radio-key", None, summary).add_subparsers(metavar="ACTION")
    where = "cli.hub.radio_key"
    summary = "give all kits in use another key, each step once all have taken the last"
    add_key_change(action(radio_key, "change", (where, "change"), summary))
    summary = "show at which step all are, and who is behind"
    action(radio_key, "status", (where, "status"), summary)
    summary = "wait for a kit no more: once it comes it is asked for the step of the others"
    left_out = action(radio_key, "leave-out", (where, "leave_out"), summary)
    left_out.add_argument("device")
    summary = "ask a kit anew, one whose card was put back, or over satellite"
    asked = action(radio_key, "ask", (where, "ask"), summary)
    asked.add_argument("device")
    _add_agreement(asked)
    summary = "show the key, for kits that have no way to the hub"
    action(radio_key, "key", (where, "key"), summary)


def add_key_change(parser: CommandParser) -> None:
    """Add what a change of the radio-key asks for, to `radio-key change` and to `device revoke`."""
    summary = "wait for this kit not at all; may be there several times"
    parser.add_argument("--but", action="append", metavar="KIT", help=summary)
    summary = "with this key, which is asked for or read, and not one that is made here"
    parser.add_argument("--key-given", action="store_true", help=summary)
    _add_agreement(parser)


def _add_agreement(parser: CommandParser) -> None:
    summary = "over no satellite: links, and neighbours' radio"
    parser.add_argument("--by", choices=("ip",), help=summary)
    parser.add_argument("--yes", action="store_true", help="agree to what it costs over satellite")
