"""The command line: all subcommands, their arguments, and the modules that run them.

A module is imported when its command runs, so that a command that only uses HTTP starts without
trio.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fieldagent import __version__
from fieldagent.cli.subcommand import (
    Adder,
    CommandParser,
    Subparsers,
    add_called,
    add_item_arguments,
    add_place,
    by_name,
    command,
    count,
    duration,
    port,
    positive,
)
from fieldagent.extensions import places
from fieldagent.system.exit_codes import USAGE
from fieldagent.system.named_object import imported

START, ALARM, PACKAGES, DEVICES, HUB, HELP = (
    *("Start", "Alarm", "Packages", "Devices", "Hub", "Help"),
)
"""Groups of commands in the help."""
CHANNEL: dict[str, Any] = {
    "type": str.capitalize,
    "choices": ("Satellite", "Radio", "Cellular"),
}
"""Argument for a channel, in upper or lower case. The local API requires the exact names."""


def dispatch(words: Sequence[str]) -> int:
    """Run a command line and return its exit code. Without a subcommand, print the help and return
    USAGE. Wrong arguments raise SystemExit, as in argparse.
    """
    if words[:1] == ["help"] and words[1:] != ["--help"]:
        words = [*words[1:], "--help"]
    arguments, unknown = build_parser(words).parse_known_args(words)
    if unknown:
        arguments.parser.refuse_unknown(unknown)
    if arguments.carry_out is None:
        arguments.parser.print_help(sys.stderr)
        return USAGE
    module, function = arguments.carry_out
    try:
        implementation = importlib.import_module(f"fieldagent.{module}")
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("fieldagent."):
            raise
        arguments.parser.error("this program does not have that command; fieldagent.pyz has it")
    carry_out: Callable[[argparse.Namespace], int] = getattr(implementation, function)
    return carry_out(arguments)


def build_parser(words: Sequence[str] | None = None) -> CommandParser:
    """Build the parser with all commands, or only with the one that `words` name, because each
    argument costs time at a start.

    If they name none of ours, the hub's commands have only names, because a kit does not use them.
    """
    parser = CommandParser(
        prog="fieldagent",
        description="Send messages, positions and SOS calls by satellite, radio or cellular.",
    )
    parser.add_argument("--version", action="version", version=f"fieldagent {__version__}")
    parser.set_defaults(carry_out=None, parser=parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    called, *rest = words or [""]
    if called not in ELSEWHERE:
        add_called(COMMANDS, called, commands)
    for name, summary in ELSEWHERE.items():
        if called == name or called not in {*COMMANDS, *ELSEWHERE}:
            below = command(
                commands,
                name,
                None,
                summary,
                group=HUB if name == "hub" else "",
                row=("hub, push", "run and manage a hub; push an item through one"),
            )
            if words is None or called == name:
                _add_elsewhere(below, name, rest)
    return parser


ELSEWHERE = {
    "hub": "run and manage the hub (server)",
    "push": "push an item to the field through a hub",
}


def _add_elsewhere(parser: CommandParser, name: str, words: Sequence[str]) -> None:
    # Import here: other commands do not need these modules.
    if name == "push":
        from fieldagent.cli.hub.push_arguments import add_push

        add_push(parser)
        return
    try:
        from fieldagent.cli.hub.arguments import add_hub
    except ModuleNotFoundError as missing:
        if missing.name != "fieldagent.cli.hub.arguments":
            raise
        _add_absent(parser, missing.name)
    else:
        add_hub(parser, words)


def _add_config(parser: CommandParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file")


def _add_local(parser: CommandParser) -> None:
    parser.add_argument("--port", type=port, default=9091, help="port of the agent (9091)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_run(commands: Subparsers) -> None:
    run = command(commands, "run", ("cli.kit.run", "run"), "run the agent", group=START)
    _add_config(run)
    run.add_argument("-v", "--verbose", action="store_true", help="log every step")


def _add_send(commands: Subparsers) -> None:
    summary = "send a Package and wait for its status"
    send = command(commands, "send", None, summary, group=START)
    _add_dry_run(send, default=False)
    kinds = send.add_subparsers(metavar="KIND", title="kinds")
    add_item_arguments(lambda kind, summary: _send_kind(kinds, kind, summary))


def _send_kind(kinds: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(kinds, name, ("cli.kit.send", name), summary)
    parser.add_argument("--id", type=int, help="Package id (a free one)")
    parser.add_argument("--channel", action="append", **CHANNEL, dest="channels")
    parser.add_argument("--priority", type=int)
    parser.add_argument(
        "--collapse-key", type=int, help="replace a waiting Package with the same key"
    )
    parser.add_argument("--time-to-live", type=int, metavar="SECONDS")
    parser.add_argument(
        "--by", type=int, metavar="SECONDS", help="longest wait for a cheaper channel"
    )
    parser.add_argument(
        "--to",
        metavar="WHO",
        help="a user, a group, a kit, an e-mail address or a telephone number (everyone)",
    )
    parser.add_argument(
        "--receipt",
        action="store_const",
        const="read",
        help="request a read receipt; `show` prints it",
    )
    # The option is allowed before and after the kind. If it is missing after the kind, the value
    # from before must stay.
    _add_dry_run(parser, default=argparse.SUPPRESS)
    _add_waiting(parser)
    return parser


def _add_dry_run(parser: CommandParser, default: Any) -> None:
    parser.add_argument(
        "--dry-run",
        action="store_true",
        default=default,
        help="show the cost; send nothing",
    )


def _add_waiting(parser: CommandParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return once it is queued")
    _add_local(parser)


def _add_sos(commands: Subparsers) -> None:
    summary = "send an SOS, repeated until someone answers"
    sos = command(commands, "sos", ("cli.kit.sos", "sos"), summary, group=ALARM)
    sos.add_argument("content", nargs="?", help="the text (SOS)")
    sos.add_argument(
        "--position",
        nargs="+",
        metavar="PLACE",
        help="position: 47.3769 8.5417, or 32T MT 65000 47000 (the last posted position)",
    )
    what = sos.add_mutually_exclusive_group()
    what.add_argument("--cancel", action="store_true", help="cancel the SOS and notify the others")
    what.add_argument(
        "--take",
        nargs=2,
        metavar=("KIT", "NUMBER"),
        help="take another kit's SOS (`fieldagent status` lists them)",
    )
    what.add_argument("--until-seen", action="store_true", help="wait until a person has seen it")
    what.add_argument(
        "--answer", action="store_true", help="add the text to the open SOS; do not raise a new one"
    )
    what.add_argument(
        "--words",
        action="store_true",
        help="list the words that take one or two bytes by radio or satellite",
    )
    sos.add_argument("--by", metavar="NAME", help="with --take: name of the person who takes it")
    sos.add_argument("--yes", action="store_true", help="do not ask before sending")
    _add_waiting(sos)


def _add_check_in(commands: Subparsers) -> None:
    summary = "raise an alarm if nothing arrives from this kit"
    check_in = command(commands, "checkin", ("cli.kit.check_in", "check_in"), summary, group=ALARM)
    what = check_in.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--in",
        dest="within",
        type=duration,
        metavar="4h",
        help="longest time between two messages at the hub",
    )
    what.add_argument("--done", action="store_true", help="stop the check-in")
    _add_waiting(check_in)


def _add_track(commands: Subparsers) -> None:
    summary = "post positions from gpsd until stopped"
    track = command(commands, "track", ("cli.kit.track", "track"), summary, group=PACKAGES)
    track.add_argument(
        "--gpsd", default="127.0.0.1:2947", metavar="HOST:PORT", help="(127.0.0.1:2947)"
    )
    for name, unless, what in (
        ("interval", 1800.0, "seconds between two positions at rest"),
        ("moving-interval", 300.0, "seconds between two positions in motion"),
        ("distance", 500.0, "metres after which the next position is due"),
        ("satellite-factor", 4.0, "factor for these intervals while only satellite is available"),
    ):
        track.add_argument(f"--{name}", type=positive, default=unless, help=f"{what} ({unless:g})")
    track.add_argument(
        "--collapse-key",
        type=int,
        default=2947,
        help="key with which a newer position replaces an older one (2947)",
    )
    track.add_argument(
        "--batch",
        type=count,
        metavar="SECONDS",
        help=(
            "keep every position, to 1.1 m; over satellite positions wait up to this time to"
            " share a message, and --collapse-key and --satellite-factor have no effect"
        ),
    )
    track.add_argument("--channel", action="append", **CHANNEL, dest="channels")
    track.add_argument("--time-to-live", type=int, metavar="SECONDS")
    _add_local(track)


def _add_watching(commands: Subparsers) -> None:
    cancel = command(commands, "cancel", ("cli.kit.watch", "cancel"), "cancel a waiting Package")
    cancel.add_argument("id", type=int)
    cancel.add_argument("--channel", **CHANNEL, help="on this channel only")
    _add_local(cancel)
    shown = command(
        commands, "show", ("cli.kit.watch", "show_package"), "show the history of a Package"
    )
    shown.add_argument("id", type=int)
    _add_local(shown)
    sent = command(
        commands,
        "sent",
        ("cli.kit.sent", "sent"),
        "list sent Packages, newest first",
        group=PACKAGES,
        row=("sent, show", "list sent Packages; show the history of one"),
    )
    sent.add_argument(
        "--state",
        choices=("waiting", "Delivered", "Error", "Collapsed", "Canceled"),
        help="only Packages with this status",
    )
    sent.add_argument("--kind", choices=("message", "location", "waypoint", "data"))
    sent.add_argument("--limit", type=count, default=100, help="most Packages to list (100)")
    _add_local(sent)
    queue = command(
        commands,
        "queue",
        ("cli.kit.watch", "queue"),
        "show or clear waiting Packages",
        group=PACKAGES,
        row=("queue, cancel", "show, clear or cancel waiting Packages"),
    )
    queue.add_argument("--channel", **CHANNEL)
    queue.add_argument(
        "--clear", action="store_true", help="cancel all waiting Packages except an open SOS"
    )
    _add_local(queue)
    _add_local(
        command(
            commands,
            "status",
            ("cli.kit.watch", "status"),
            "show the state of the agent and its channels",
            group=START,
        )
    )
    _add_local(
        command(
            commands,
            "people",
            ("cli.kit.people", "people"),
            "list addressees: users, groups and kits",
            group=PACKAGES,
        )
    )
    _add_local(
        command(
            commands,
            "neighbours",
            ("cli.kit.neighbours", "neighbours"),
            "list stations heard by radio: time, signal, and routes to the hub",
        )
    )
    _add_local(
        command(
            commands,
            "commands",
            ("cli.kit.commands", "commands"),
            "list commands from the hub, and the answers",
            group=HUB,
        )
    )


def _add_inbound(commands: Subparsers) -> None:
    summary = "show inbound payloads and their results"
    inbound = command(commands, "inbound", None, summary, group=PACKAGES)
    actions = inbound.add_subparsers(metavar="ACTION", title="actions")
    listing = command(actions, "list", ("cli.kit.watch", "inbound_list"), "list inbound payloads")
    listing.add_argument("--state", choices=("waiting", "handed", "dead"))
    _add_local(listing)
    read = command(
        actions, "read", ("cli.kit.watch", "inbound_read"), "send a read receipt to the sender"
    )
    read.add_argument("request_id", metavar="REQUEST_ID")
    read.add_argument("--by", default="", metavar="NAME", help="name of the reader")
    _add_local(read)
    replay = command(
        actions, "replay", ("cli.kit.watch", "inbound_replay"), "pass payloads to the hooks again"
    )
    replay.add_argument("request_id", nargs="*", metavar="REQUEST_ID")
    replay.add_argument("--dead", action="store_true", help="all payloads that hooks refused")
    _add_local(replay)


def _add_satellite(commands: Subparsers) -> None:
    summary = "control the satellite modem"
    satellite = command(commands, "satellite", None, summary, group=DEVICES)
    actions = satellite.add_subparsers(metavar="ACTION", title="actions")
    summary = "try waiting messages now, with the antenna under the open sky"
    _add_local(command(actions, "retry", ("cli.kit.satellite", "retry"), summary))
    summary = "print the last traffic on the serial line, to find a fault"
    traced = command(actions, "trace", ("cli.kit.satellite", "trace"), summary)
    traced.add_argument("--payloads", action="store_true", help="include the content of messages")
    traced.add_argument("--channel", **CHANNEL, default="Satellite", help="channel (Satellite)")
    _add_local(traced)


def _add_check(commands: Subparsers) -> None:
    check = command(
        commands,
        "check",
        ("cli.kit.check", "check"),
        "check settings and ports, and show what to fix",
        group=START,
    )
    _add_config(check)
    check.add_argument("--json", action="store_true", help="print JSON")


def _add_page(commands: Subparsers) -> None:
    summary = "show the page's address, or set its passphrase"
    page = command(commands, "page", ("cli.kit.page", "page"), summary, group=DEVICES)
    _add_config(page)
    page.add_argument(
        "--set",
        action="store_true",
        help="set the passphrase: asks for it, or reads a line from standard input",
    )
    page.add_argument("--qr", action="store_true", help="show the address as a QR code, too")
    page.add_argument(
        "--wifi",
        nargs="?",
        type=Path,
        const=Path("/etc/hostapd/hostapd.conf"),
        metavar="FILE",
        help=(
            "show a QR code with which phones join the kit's own network"
            " (/etc/hostapd/hostapd.conf)"
        ),
    )
    page.add_argument("--json", action="store_true", help="print JSON")


def _add_provision(commands: Subparsers) -> None:
    summary = "read the settings from the card's boot partition"
    provision = command(
        commands, "provision", ("cli.kit.provision", "provision"), summary, is_listed=False
    )
    provision.add_argument(
        "--card",
        type=Path,
        metavar="FOLDER",
        help="folder with the new settings (/boot/firmware, /boot)",
    )
    provision.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings file to write (/etc/agent.properties)",
    )
    provision.add_argument("--json", action="store_true", help="print JSON")


def _add_clock(commands: Subparsers) -> None:
    summary = (
        "set the system clock to the agent's time, if no other service does (for the systemd unit)"
    )
    clock = command(commands, "clock", ("cli.kit.clock", "clock"), summary, is_listed=False)
    add_place(clock, "--config", "/etc/fieldagent/agent.properties", "settings file of the agent")
    clock.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_radio(commands: Subparsers) -> None:
    radio = command(
        commands,
        "radio",
        ("cli.kit.radio", "radio"),
        "show the radio at a port, its configuration and its faults",
        group=DEVICES,
        row=("radio, neighbours", "show a radio; list the stations it has heard"),
    )
    radio.add_argument("place", metavar="PORT", help="a serial port, or tcp://host")
    radio.add_argument("--json", action="store_true", help="print JSON")


def _add_setup(commands: Subparsers) -> None:
    summary = "find connected devices and write settings"
    setup = command(commands, "setup", ("cli.kit.setup", "setup"), summary, group=START)
    setup.add_argument(
        "places",
        nargs="*",
        metavar="PORT",
        help="a serial port, or tcp://host (all serial ports)",
    )
    setup.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings file (/etc/agent.properties for root)",
    )
    setup.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that the device cannot report, such as radio-station=7",
    )
    setup.add_argument("--yes", action="store_true", help="write without asking first")
    setup.add_argument(
        "--dry-run", action="store_true", help="show the settings without writing them"
    )
    setup.add_argument("--json", action="store_true", help="print JSON")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting; use NAME=VALUE")
    return name, value


def _add_help(commands: Subparsers) -> None:
    """Add the command to the list. `dispatch` treats it as the --help of the named command."""
    asked = command(commands, "help", None, "show the help of a command", group=HELP)
    asked.add_argument("command", nargs="*", metavar="COMMAND", help="such as send message")
    completion = command(
        commands,
        "completion",
        ("cli.completion", "completion"),
        "print the shell completion of this command",
    )
    completion.add_argument(
        "shell",
        choices=("bash", "zsh", "fish"),
        help="in bash and zsh: source <(fieldagent completion bash);"
        " in fish: fieldagent completion fish | source",
    )
    command(
        commands,
        "manual",
        ("cli.manual", "manual"),
        "print the manual page, for man -l - or a file",
        group=HELP,
        row=("manual, completion", "print the manual page, or a shell's completion"),
    )


def _verb_of_extension(name: str, place: str) -> Adder:
    def add(commands: Subparsers) -> None:
        try:
            add_verb = imported(place)
        except ModuleNotFoundError as missing:
            if missing.name != place.partition(":")[0]:
                raise
            absent = command(commands, name, None, "not in this program", is_listed=False)
            _add_absent(absent, missing.name)
        else:
            add_verb(commands)

    return add


def _add_absent(parser: CommandParser, module: str) -> None:
    """Accept any words for a command whose module this program does not have: `dispatch` says so
    when it cannot import that module.
    """
    parser.add_argument("words", nargs=argparse.REMAINDER)
    parser.set_defaults(carry_out=(module.removeprefix("fieldagent."), ""))


COMMANDS = by_name(
    ("setup", _add_setup),
    ("check", _add_check),
    ("run", _add_run),
    ("send", _add_send),
    ("sos", _add_sos),
    ("checkin", _add_check_in),
    ("track", _add_track),
    ("cancel show sent queue status people neighbours commands", _add_watching),
    ("inbound", _add_inbound),
    ("satellite", _add_satellite),
    ("radio", _add_radio),
    ("page", _add_page),
    ("provision", _add_provision),
    ("clock", _add_clock),
    *((name, _verb_of_extension(name, place)) for name, place in places("verbs").items()),
    ("help completion manual", _add_help),
)
"""Commands of a kit, by name."""
