"""The command line: every subcommand, its arguments, and the module that carries it out.

Modules are imported when their command runs: one that only talks HTTP starts without trio.
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
    CommandParser,
    Subparsers,
    add_called,
    add_item_arguments,
    by_name,
    command,
    count,
    duration,
    port,
    positive,
    seconds,
)
from fieldagent.extensions import places
from fieldagent.system.exit_codes import MEANINGS, USAGE
from fieldagent.system.named_object import imported

CHANNEL: dict[str, Any] = {
    "type": str.capitalize,
    "choices": ("Satellite", "Radio", "Cellular"),
}
"""In any case here; the local API takes the names as they are."""


def dispatch(words: Sequence[str]) -> int:
    """Carry out a command line and return its exit code; without a subcommand print the help, and
    return USAGE. Wrong arguments raise SystemExit, as argparse does."""
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
        arguments.parser.error("this is a kit's program, without it: fieldagent.pyz has it")
    carry_out: Callable[[argparse.Namespace], int] = getattr(implementation, function)
    return carry_out(arguments)


def build_parser(words: Sequence[str] | None = None) -> CommandParser:
    """Build it with every command, or with the one that these words call: each argument of another
    costs time at a start.

    Where they call none of ours, of the hub's all but names is left out: a kit has no use for it.
    """
    parser = CommandParser(
        prog="fieldagent",
        description="Links people and assets in the field with systems elsewhere.",
        epilog=MEANINGS,
    )
    parser.add_argument("--version", action="version", version=f"fieldagent {__version__}")
    parser.set_defaults(carry_out=None, parser=parser)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    called, *rest = words or [""]
    if called not in ELSEWHERE:
        add_called(COMMANDS, called, commands)
    for name, summary in ELSEWHERE.items():
        if called == name or called not in {*COMMANDS, *ELSEWHERE}:
            below = command(commands, name, None, summary)
            if words is None or called == name:
                _add_elsewhere(below, name, rest)
    return parser


ELSEWHERE = {
    "hub": "the cloud side: run it, and say who is who",
    "push": "push an item to the field through a hub",
}


def _add_elsewhere(parser: CommandParser, name: str, words: Sequence[str]) -> None:
    # Whoever calls another command does without that module.
    from fieldagent.cli.hub.arguments import add_hub, add_push

    if name == "hub":
        add_hub(parser, words)
    else:
        add_push(parser)


def _add_config(parser: CommandParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file")


def _add_local(parser: CommandParser) -> None:
    parser.add_argument("--port", type=port, default=9091, help="port of the agent (9091)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_run(commands: Subparsers) -> None:
    run = command(commands, "run", ("cli.kit.run", "run"), "run the agent")
    _add_config(run)
    run.add_argument("-v", "--verbose", action="store_true", help="log every step")


def _add_send(commands: Subparsers) -> None:
    send = command(commands, "send", None, "send a Package and wait for its status")
    _add_dry_run(send, default=False)
    kinds = send.add_subparsers(metavar="KIND", title="kinds")
    add_item_arguments(lambda kind, summary: _send_kind(kinds, kind, summary))


def _send_kind(kinds: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(kinds, name, ("cli.kit.send", name), summary)
    parser.add_argument("--id", type=int, help="Package id; the agent chooses a free one otherwise")
    parser.add_argument("--channel", action="append", **CHANNEL, dest="channels")
    parser.add_argument("--priority", type=int)
    parser.add_argument("--collapse-key", type=int, help="replace what waits with the same key")
    parser.add_argument("--time-to-live", type=int, metavar="SECONDS")
    parser.add_argument("--by", type=int, metavar="SECONDS", help="wait so long for a cheaper way")
    parser.add_argument(
        "--to",
        metavar="WHO",
        help="a user, a group, a kit, an e-mail address or a telephone number; everybody otherwise",
    )
    parser.add_argument(
        "--receipt",
        action="store_const",
        const="read",
        help="ask to be told when a person has read it; `show` says so",
    )
    # Before or behind the kind: what is not said there must not undo what was said before.
    _add_dry_run(parser, default=argparse.SUPPRESS)
    _add_waiting(parser)
    return parser


def _add_dry_run(parser: CommandParser, default: Any) -> None:
    parser.add_argument(
        "--dry-run",
        action="store_true",
        default=default,
        help="tell what it would cost; send none",
    )


def _add_waiting(parser: CommandParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="return once it is queued")
    _add_local(parser)


def _add_sos(commands: Subparsers) -> None:
    summary = "send an SOS: before everything else, repeated until answered"
    sos = command(commands, "sos", ("cli.kit.sos", "sos"), summary)
    sos.add_argument("content", nargs="?", help="the text (SOS)")
    sos.add_argument(
        "--position",
        nargs="+",
        metavar="PLACE",
        help="where: 47.3769 8.5417, or 32T MT 65000 47000 (the last one posted)",
    )
    what = sos.add_mutually_exclusive_group()
    what.add_argument("--cancel", action="store_true", help="call it off, and say so")
    what.add_argument(
        "--take",
        nargs=2,
        metavar=("KIT", "NUMBER"),
        help="say that you have another kit's SOS (`fieldagent status` lists them)",
    )
    what.add_argument("--until-seen", action="store_true", help="wait until a person has seen it")
    what.add_argument(
        "--answer", action="store_true", help="add the text to the open SOS, and raise none"
    )
    what.add_argument(
        "--words", action="store_true", help="list the words that take one or two bytes on the air"
    )
    sos.add_argument("--by", metavar="NAME", help="with --take: who has it")
    sos.add_argument("--yes", action="store_true", help="do not ask before sending")
    _add_waiting(sos)


def _add_check_in(commands: Subparsers) -> None:
    summary = "ask the hub to raise the alarm where nothing comes from this kit"
    check_in = command(commands, "checkin", ("cli.kit.check_in", "check_in"), summary)
    what = check_in.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--in",
        dest="within",
        type=duration,
        metavar="4h",
        help="for so long, after whatever the hub got from it last",
    )
    what.add_argument("--done", action="store_true", help="nothing is expected any more")
    _add_waiting(check_in)


def _add_track(commands: Subparsers) -> None:
    track = command(
        commands, "track", ("cli.kit.track", "track"), "post positions from gpsd until stopped"
    )
    track.add_argument(
        "--gpsd", default="127.0.0.1:2947", metavar="HOST:PORT", help="(127.0.0.1:2947)"
    )
    for name, unless, what in (
        ("interval", 1800.0, "seconds between two positions at rest"),
        ("moving-interval", 300.0, "seconds between two in motion"),
        ("distance", 500.0, "metres after which another is due"),
        ("satellite-factor", 4.0, "how many times coarser while only satellite is up"),
    ):
        track.add_argument(f"--{name}", type=positive, default=unless, help=f"{what} ({unless:g})")
    track.add_argument(
        "--collapse-key", type=int, default=2947, help="a newer position replaces (2947)"
    )
    track.add_argument(
        "--batch",
        type=count,
        metavar="SECONDS",
        help="keep every position, to 1.1 m; over satellite they wait so long to share a message,"
        " and --collapse-key and --satellite-factor do not count",
    )
    track.add_argument("--channel", action="append", **CHANNEL, dest="channels")
    track.add_argument("--time-to-live", type=int, metavar="SECONDS")
    _add_local(track)


def _add_watching(commands: Subparsers) -> None:
    cancel = command(commands, "cancel", ("cli.kit.watch", "cancel"), "cancel a Package that waits")
    cancel.add_argument("id", type=int)
    cancel.add_argument("--channel", **CHANNEL, help="on this channel only")
    _add_local(cancel)
    shown = command(
        commands, "show", ("cli.kit.watch", "show_package"), "tell the story of a Package"
    )
    shown.add_argument("id", type=int)
    _add_local(shown)
    sent = command(commands, "sent", ("cli.kit.sent", "sent"), "list what was sent, newest first")
    sent.add_argument(
        "--state",
        choices=("waiting", "Delivered", "Error", "Collapsed", "Canceled"),
        help="only what stands so",
    )
    sent.add_argument("--kind", choices=("message", "location", "waypoint", "data"))
    sent.add_argument("--limit", type=count, default=100, help="how many at most (100)")
    _add_local(sent)
    queue = command(commands, "queue", ("cli.kit.watch", "queue"), "show or clear what waits")
    queue.add_argument("--channel", **CHANNEL)
    queue.add_argument("--clear", action="store_true", help="cancel all of it but an open SOS")
    _add_local(queue)
    _add_local(
        command(commands, "status", ("cli.kit.watch", "status"), "show how the agent is doing")
    )
    _add_local(
        command(
            commands,
            "people",
            ("cli.kit.people", "people"),
            "list whom a Package may be for: users, groups and kits",
        )
    )
    _add_local(
        command(
            commands,
            "neighbours",
            ("cli.kit.neighbours", "neighbours"),
            "list the stations heard by radio: when, how well, and which reaches the hub",
        )
    )
    _add_local(
        command(
            commands,
            "commands",
            ("cli.kit.commands", "commands"),
            "list what the hub has told this kit to do, and what it answered",
        )
    )


def _add_inbound(commands: Subparsers) -> None:
    inbound = command(commands, "inbound", None, "what came in, and what became of it")
    actions = inbound.add_subparsers(metavar="ACTION", title="actions")
    listing = command(actions, "list", ("cli.kit.watch", "inbound_list"), "list inbound payloads")
    listing.add_argument("--state", choices=("waiting", "handed", "dead"))
    _add_local(listing)
    read = command(
        actions, "read", ("cli.kit.watch", "inbound_read"), "tell the sender that you have read it"
    )
    read.add_argument("request_id", metavar="REQUEST_ID")
    read.add_argument("--by", default="", metavar="NAME", help="who has read it")
    _add_local(read)
    replay = command(
        actions, "replay", ("cli.kit.watch", "inbound_replay"), "hand payloads over again"
    )
    replay.add_argument("request_id", nargs="*", metavar="REQUEST_ID")
    replay.add_argument("--dead", action="store_true", help="all that no hook would take")
    _add_local(replay)


def _add_satellite(commands: Subparsers) -> None:
    satellite = command(commands, "satellite", None, "the satellite modem")
    actions = satellite.add_subparsers(metavar="ACTION", title="actions")
    summary = "try now what waits: you see the sky"
    _add_local(command(actions, "retry", ("cli.kit.satellite", "retry"), summary))
    summary = "print what went over the serial line last, for who looks for a fault"
    traced = command(actions, "trace", ("cli.kit.satellite", "trace"), summary)
    traced.add_argument("--payloads", action="store_true", help="with what messages hold")
    traced.add_argument("--channel", **CHANNEL, default="Satellite", help="of this (Satellite)")
    _add_local(traced)


def _add_check(commands: Subparsers) -> None:
    check = command(
        commands,
        "check",
        ("cli.kit.check", "check"),
        "check settings and ports, and say what to mend",
    )
    _add_config(check)
    check.add_argument("--json", action="store_true", help="print JSON")


def _add_page(commands: Subparsers) -> None:
    summary = "tell where people of the camp find the kit's page, or set the pass phrase for it"
    page = command(commands, "page", ("cli.kit.page", "page"), summary)
    _add_config(page)
    page.add_argument(
        "--set", action="store_true", help="set the pass phrase: asked for, or a line of input"
    )
    page.add_argument("--qr", action="store_true", help="show the address as a QR code too")
    page.add_argument(
        "--wifi",
        nargs="?",
        type=Path,
        const=Path("/etc/hostapd/hostapd.conf"),
        metavar="FILE",
        help="show how phones join the kit's own network, as a QR code (/etc/hostapd/hostapd.conf)",
    )
    page.add_argument("--json", action="store_true", help="print JSON")


def _add_provision(commands: Subparsers) -> None:
    summary = "take the settings that wait on the card's boot partition"
    provision = command(commands, "provision", ("cli.kit.provision", "provision"), summary)
    provision.add_argument(
        "--card", type=Path, metavar="FOLDER", help="where they wait (/boot/firmware, /boot)"
    )
    provision.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="where they go (/etc/fieldagent/agent.properties)",
    )
    provision.add_argument("--json", action="store_true", help="print JSON")


def _add_update(commands: Subparsers) -> None:
    summary = "put a signed program in this one's place, and back where it does not work"
    update = command(commands, "update", ("cli.kit.update", "update"), summary)
    update.add_argument(
        "what",
        nargs="?",
        metavar="FILE|URL|VERSION",
        help="the program, its signature beside it; of Debian packages one of apt's versions"
        " (the newest that apt knows)",
    )
    update.add_argument("--older", action="store_true", help="also one that is no newer")
    update.add_argument("--last", action="store_true", help="how the last update ended")
    update.add_argument("--json", action="store_true", help="print how it ended as JSON")
    update.add_argument(
        "--offered",
        dest="carry_out",
        action="store_const",
        const=("cli.kit.update", "take_offer"),
        help="for the unit: take what the hub has offered",
    )
    _add_place(update, "--program", "/usr/lib/fieldagent/fieldagent.pyz", "the program to replace")
    _add_trial(update)


def _add_clock(commands: Subparsers) -> None:
    summary = (
        "set the system's clock by what the agent was told of the time, where nobody else sets it"
        " (root's unit does)"
    )
    clock = command(commands, "clock", ("cli.kit.clock", "clock"), summary)
    _add_place(clock, "--config", "/etc/fieldagent/agent.properties", "the agent's settings")
    clock.add_argument("--json", action="store_true", help="print what was done as JSON")


def _add_reboot(commands: Subparsers) -> None:
    summary = "start the machine anew, where the hub has told the agent so (root's unit does)"
    reboot = command(commands, "reboot", ("cli.kit.reboot", "reboot"), summary)
    _add_place(reboot, "--config", "/etc/fieldagent/agent.properties", "the agent's settings")
    reboot.add_argument("--json", action="store_true", help="print nothing more: it has no answer")


def _add_settings(commands: Subparsers) -> None:
    summary = "tell what became of the settings that the hub has brought last"
    settings = command(commands, "settings", ("cli.kit.settings", "settings"), summary)
    settings.add_argument("--json", action="store_true", help="print JSON")
    _add_trial(settings)


def _add_trial(parser: CommandParser) -> None:
    """What is changed as root, tried, and taken back where it does not do."""
    keys = "public keys of minisign's that are trusted"
    _add_place(parser, "--key", "/etc/fieldagent/update.pub", keys)
    _add_place(parser, "--config", "/etc/fieldagent/agent.properties", "settings of the agent")
    _add_place(parser, "--state", "/var/lib/fieldagent-update", "folder of what is tried")
    parser.add_argument(
        "--within", type=positive, default=15, metavar="MINUTES", help="for all to work again (15)"
    )
    parser.add_argument(
        "--steady", type=seconds, default=30, metavar="SECONDS", help="to run in one piece (30)"
    )
    parser.add_argument(
        "--go-on", action="store_true", help="for the unit: take what steps are left"
    )


def _add_place(parser: CommandParser, name: str, place: str, summary: str) -> None:
    text = f"{summary} ({place})"
    parser.add_argument(name, type=Path, metavar="PATH", default=Path(place), help=text)


def _add_radio(commands: Subparsers) -> None:
    radio = command(
        commands,
        "radio",
        ("cli.kit.radio", "radio"),
        "show which radio is at a port, how it is set, and what is wrong",
    )
    radio.add_argument("place", metavar="PORT", help="a serial port, or tcp://host")
    radio.add_argument("--json", action="store_true", help="print JSON")


def _add_setup(commands: Subparsers) -> None:
    summary = "look which devices are plugged in, and write the settings for them"
    setup = command(commands, "setup", ("cli.kit.setup", "setup"), summary)
    setup.add_argument(
        "places",
        nargs="*",
        metavar="PORT",
        help="a serial port, or tcp://host (all serial ports of this machine)",
    )
    setup.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="settings file (of root /etc/fieldagent/agent.properties)",
    )
    setup.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what a device needs and cannot tell, such as radio-station=7",
    )
    setup.add_argument("--yes", action="store_true", help="write without asking")
    setup.add_argument("--dry-run", action="store_true", help="show it; write nothing")
    setup.add_argument("--json", action="store_true", help="print JSON")


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting: NAME=VALUE")
    return name, value


def _add_help(commands: Subparsers) -> None:
    """Listed with the others; `dispatch` reads it as the --help of what it names."""
    asked = command(commands, "help", None, "explain a command, as its --help does")
    asked.add_argument("command", nargs="*", metavar="COMMAND", help="such as send message")
    completion = command(
        commands,
        "completion",
        ("cli.completion", "completion"),
        "print what completes our commands",
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
    )


COMMANDS = by_name(
    ("run", _add_run),
    ("send", _add_send),
    ("sos", _add_sos),
    ("checkin", _add_check_in),
    ("track", _add_track),
    ("cancel show sent queue status people neighbours commands", _add_watching),
    ("inbound", _add_inbound),
    ("satellite", _add_satellite),
    ("check", _add_check),
    ("page", _add_page),
    ("provision", _add_provision),
    ("update", _add_update),
    ("settings", _add_settings),
    ("clock", _add_clock),
    ("reboot", _add_reboot),
    ("radio", _add_radio),
    ("setup", _add_setup),
    *((name, imported(place)) for name, place in places("verbs").items()),
    ("help completion manual", _add_help),
)
"""Those of a kit, by what each is called by."""
