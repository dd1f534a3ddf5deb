"""The hub's command line for SOS: contacts and their order, incidents, and the watch."""

from __future__ import annotations

from fieldagent.cli.argument_types import tries, wait, watch_hours
from fieldagent.cli.hub.action import ALARMS, action, add_listing, add_workspace, number
from fieldagent.cli.subcommand import CommandParser, Subparsers, command, count
from fieldagent.page.language import ENGLISH, LANGUAGES


def add_contact(actions: Subparsers) -> None:
    """Add `contact` to `fieldagent hub`, with actions that `cli.hub.contact` runs."""
    summary = "manage contacts, their chain and quiet hours, and the watch"
    kinds = command(actions, "contact", None, summary, group=ALARMS).add_subparsers(
        metavar="ACTION"
    )
    add = _contact_action(kinds, "add", "add a contact")
    add.add_argument("name", help="name of the person or duty; kits show it")
    add.add_argument(
        "address",
        help=(
            "an e-mail address, a telephone number such as +41791234567 (SMS), or an Apprise"
            " URL such as tgram://… (needs apprise)"
        ),
    )
    add.add_argument(
        "--after",
        type=wait,
        default=0,
        metavar="5m",
        help=(
            "time without an answer until this contact is notified, such as 30s, 5m or 2h (at"
            " once); contacts with the same time are one step"
        ),
    )
    add.add_argument(
        "--tries",
        type=tries,
        default=1,
        metavar="NUMBER",
        help="number of notifications until someone answers (1)",
    )
    add.add_argument(
        "--every", type=wait, default=300, metavar="5m", help="time between two notifications (5m)"
    )
    add.add_argument(
        "--about",
        choices=("all", "sos", "alarms"),
        default="all",
        help=(
            "events of which the contact is notified; alarms come from the hub itself, such as an"
            " overdue kit (all)"
        ),
    )
    add.add_argument(
        "--language", choices=LANGUAGES, default=ENGLISH, help="language of the notifications (en)"
    )
    _contact_action(kinds, "list", "list contacts in the order of notification")
    for name, summary in (
        ("test", "send a test to a contact"),
        ("remove", "remove a contact and everything that waits for it"),
    ):
        _contact_action(kinds, name, summary).add_argument("id", type=number)
    _add_chain(kinds)
    _add_quiet(kinds)
    _add_watch(kinds)


def _contact_action(kinds: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(kinds, name, ("cli.hub.contact", name), summary)
    add_workspace(parser)
    add_listing(parser)
    return parser


def _add_chain(contact: Subparsers) -> None:
    summary = "show or test the escalation chain"
    kinds = command(contact, "chain", None, summary).add_subparsers(metavar="ACTION")
    for name, carries_out, summary in (
        ("list", "steps", "list the steps, and those that cannot work"),
        ("test", "test_steps", "send a test to every contact, step by step"),
    ):
        parser = command(kinds, name, ("cli.hub.contact", carries_out), summary)
        add_workspace(parser)
        add_listing(parser)


def add_sos(actions: Subparsers) -> None:
    """Add `sos` to `fieldagent hub`, with actions that `cli.hub.sos` runs."""
    sos = command(
        actions, "sos", None, "answer, hand over and close SOS", group=ALARMS
    ).add_subparsers(metavar="ACTION")
    listed = _sos_action(sos, "list", "list SOS, newest first")
    listed.add_argument("--state", choices=("open", "seen", "closed"))
    listed.add_argument("--limit", type=count, default=50)
    one = _sos_action(sos, "show", "show an SOS with its timeline")
    one.add_argument("id", type=number)
    one.set_defaults(carry_out=("cli.hub.sos", "show_named"))
    for name, summary, text in (
        ("acknowledge", "acknowledge an SOS: its kit is notified and stops repeating it", "note"),
        ("take-over", "take over an SOS from another dispatcher; its kit is notified", "note"),
        ("close", "close an SOS, with a reason", "reason"),
        ("note", "add a note to an SOS", "text"),
        ("answer", "send an answer to the kit of an SOS", "text"),
    ):
        parser = _sos_action(sos, name, summary)
        parser.add_argument("id", type=number)
        parser.add_argument("text", metavar=text.upper(), nargs="?" if text == "note" else None)
        parser.add_argument(
            "--by", default="", help="dispatcher who does this (the only dispatcher)"
        )
    over = _sos_action(sos, "hand-over", "ask another dispatcher to take it over")
    over.add_argument("id", type=number)
    over.add_argument("to", help="dispatcher who should take it over")
    over.add_argument("--note", dest="text", default="", help="information for that dispatcher")
    over.add_argument("--by", default="", help="dispatcher who has it (the only dispatcher)")


def _add_quiet(contact: Subparsers) -> None:
    summary = (
        "manage quiet hours, in which alarms wait until the end; an SOS or an overdue kit never"
        " waits"
    )
    quiet = command(contact, "quiet", None, summary).add_subparsers(metavar="ACTION")
    hours = action(quiet, "set", ("cli.hub.quiet", "set"), "set quiet hours")
    hours.add_argument(
        "hours",
        metavar="22:00-06:00|none",
        help="local times; an SOS or an overdue kit notifies at once all the same",
    )
    hours.add_argument("--zone", default="UTC", help="time zone, such as Europe/Zurich (UTC)")
    hours.add_argument("--contact", type=number, help="only for this contact (the whole workspace)")
    summary = "let a contact use the workspace's quiet hours again"
    inherit = action(quiet, "inherit", ("cli.hub.quiet", "inherit"), summary)
    inherit.add_argument("contact", type=number)
    action(quiet, "list", ("cli.hub.quiet", "list"), "list quiet hours")


def _add_watch(contact: Subparsers) -> None:
    watch = command(contact, "watch", None, "manage the watch at the desk").add_subparsers(
        metavar="ACTION"
    )
    action(
        watch,
        "show",
        ("cli.hub.watch", "standing"),
        "show who is on watch, and requested hand-overs",
    )
    take = action(watch, "take", ("cli.hub.watch", "take"), "put a dispatcher on watch")
    take.add_argument("user")
    take.add_argument(
        "--for",
        dest="length",
        type=wait,
        default=28_800,
        metavar="8h",
        help="length of the watch (8h)",
    )
    over = action(
        watch,
        "hand-over",
        ("cli.hub.watch", "hand_over"),
        "request a hand-over; the watch stays until the other dispatcher accepts",
    )
    over.add_argument("user", help="dispatcher on watch")
    over.add_argument("to", help="dispatcher who should take over")
    over.add_argument("--note", default="", help="information for that dispatcher")
    end = action(watch, "end", ("cli.hub.watch", "end"), "end the watch of a dispatcher")
    end.add_argument("user")
    end.add_argument("--note", default="")
    summary = (
        "set the hours in which someone must be on watch (UTC); five minutes without anyone are"
        " an alarm"
    )
    hours = action(watch, "hours", ("cli.hub.watch", "hours"), summary)
    hours.add_argument("hours", type=watch_hours, metavar="06:00-22:00|always|none")


def _sos_action(actions: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(actions, name, ("cli.hub.sos", name.replace("-", "_")), summary)
    add_workspace(parser)
    add_listing(parser)
    return parser
