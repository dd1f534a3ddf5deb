"""Command-line arguments of updates, settings that the hub sends, and reboots."""

from __future__ import annotations

import argparse

from fieldagent.cli.argument_types import minutes
from fieldagent.cli.hub.action import KITS, action, number
from fieldagent.cli.subcommand import (
    CommandParser,
    Subparsers,
    add_place,
    command,
    count,
    positive,
    seconds,
)


def add_update(commands: Subparsers) -> None:
    """Add `fieldagent update`."""
    summary = "install a signed update, and roll back if it fails"
    update = command(
        commands,
        "update",
        ("extensions.fleet.update_command", "update"),
        summary,
        group="Hub",
        row=("update, settings", "install an update; show the hub's last settings"),
    )
    update.add_argument(
        "what",
        nargs="?",
        metavar="FILE|URL|VERSION",
        help=(
            "the program, with its signature beside it; with Debian packages, a version that"
            " apt has (the newest)"
        ),
    )
    update.add_argument(
        "--older", action="store_true", help="install an older or the same version, too"
    )
    update.add_argument("--last", action="store_true", help="show the result of the last update")
    update.add_argument("--json", action="store_true", help="print the result as JSON")
    update.add_argument(
        "--offered",
        dest="carry_out",
        action="store_const",
        const=("extensions.fleet.update_command", "take_offer"),
        help=argparse.SUPPRESS,
    )
    add_place(update, "--program", "/usr/lib/fieldagent/fieldagent.pyz", "program to replace")
    _add_trial(update)


def add_settings(commands: Subparsers) -> None:
    """Add `fieldagent settings`."""
    summary = "show the result of the last settings that the hub sent"
    settings = command(
        commands, "settings", ("extensions.fleet.settings_command", "settings"), summary
    )
    settings.add_argument("--json", action="store_true", help="print JSON")
    _add_trial(settings)


def add_reboot(commands: Subparsers) -> None:
    """Add `fieldagent reboot`."""
    summary = "reboot the machine if the hub sent that command (for the systemd unit)"
    reboot = command(
        commands, "reboot", ("extensions.fleet.reboot_command", "reboot"), summary, is_listed=False
    )
    add_place(reboot, "--config", "/etc/fieldagent/agent.properties", "settings file of the agent")
    reboot.add_argument("--json", action="store_true", help="print nothing")


def _add_trial(parser: CommandParser) -> None:
    """Add the arguments of commands that change something as root, with a trial and a rollback."""
    keys = "file with trusted minisign public keys"
    add_place(parser, "--key", "/etc/fieldagent/update.pub", keys)
    add_place(parser, "--config", "/etc/fieldagent/agent.properties", "settings file of the agent")
    add_place(parser, "--state", "/var/lib/fieldagent-update", "folder for the trial")
    parser.add_argument(
        "--within",
        type=positive,
        default=15,
        metavar="MINUTES",
        help="minutes until everything must work again (15)",
    )
    parser.add_argument(
        "--steady",
        type=seconds,
        default=30,
        metavar="SECONDS",
        help="seconds that the program must run without a restart (30)",
    )
    parser.add_argument("--go-on", action="store_true", help=argparse.SUPPRESS)


def add_hub_update(actions: Subparsers) -> None:
    """Add `fieldagent hub update`."""
    summary = "update the program of kits, in waves"
    update = command(actions, "update", None, summary, group=KITS).add_subparsers(metavar="ACTION")
    summary = "offer a signed program; the offer stops if a kit rolls back"
    offer = _update_action(update, "offer", summary)
    offer.add_argument("version")
    offer.add_argument("url", help="URL of the program; URL.minisig is its signature")
    offer.add_argument(
        "--devices", required=True, metavar="KITS", help="kit-a,kit-b in this order, or all"
    )
    offer.add_argument(
        "--waves", type=_waves, default="1,10,all", help="number of kits in each wave (1,10,all)"
    )
    offer.add_argument(
        "--within",
        type=minutes,
        default=120,
        metavar="MINUTES",
        help="minutes until an updating kit must be back (120)",
    )
    listed = _update_action(update, "list", "list offers, newest first")
    listed.add_argument("--limit", type=count, default=20)
    one = _update_action(update, "show", "show the result of an offer at each kit")
    one.add_argument("number", nargs="?", type=number, help="number of the offer (the newest)")
    one.set_defaults(carry_out=("extensions.fleet.hub_update_command", "show_kits"))
    _update_action(update, "stop", "stop an offer; kits that have begun continue")


def _update_action(actions: Subparsers, name: str, summary: str) -> CommandParser:
    return action(actions, name, ("extensions.fleet.hub_update_command", name), summary)


def _waves(text: str) -> tuple[int | None, ...]:
    """Read sizes of waves. None means all remaining kits, and comes last."""
    *sizes, last = text.split(",")
    return (*map(count, sizes), None if last == "all" else count(last))


_waves.__name__ = "list of numbers such as 1,10,all"
