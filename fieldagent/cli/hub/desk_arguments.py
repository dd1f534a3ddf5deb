"""The hub's command line of an SOS: who is called, in which turn, and who is on watch."""

from __future__ import annotations

from fieldagent.cli.argument_types import tries, wait, watch_hours
from fieldagent.cli.hub.action import action, add_listing, number
from fieldagent.cli.subcommand import CommandParser, Subparsers, command, count
from fieldagent.page.language import ENGLISH, LANGUAGES


def add_contact(actions: Subparsers) -> None:
    """Add `contact` to `fieldagent hub`, with the actions that `cli.hub.contact` carries out."""
    summary = "people who are told of an SOS that nobody answers"
    kinds = command(actions, "contact", None, summary).add_subparsers(metavar="ACTION")
    add = _contact_action(kinds, "add", "add a contact")
    add.add_argument("name", help="of the person or the duty; the kit is shown it")
    add.add_argument(
        "address",
        help="an e-mail address, a telephone number such as +41791234567 (SMS), or"
        " a URL of apprise such as tgram://… (extra apprise)",
    )
    add.add_argument(
        "--after",
        type=wait,
        default=0,
        metavar="5m",
        help="where nobody has answered for so long, such as 30s, 5m or 2h (at once): contacts of"
        " one time are a step",
    )
    add.add_argument(
        "--tries",
        type=tries,
        default=1,
        metavar="NUMBER",
        help="how often it is told until somebody answers (1)",
    )
    add.add_argument("--every", type=wait, default=300, metavar="5m", help="between two tries (5m)")
    add.add_argument(
        "--about",
        choices=("all", "sos", "alarms"),
        default="all",
        help="what it is told of; alarms are the hub's own: overdue, operator's account (all)",
    )
    add.add_argument(
        "--language", choices=LANGUAGES, default=ENGLISH, help="what it is told in (en)"
    )
    _contact_action(kinds, "list", "list contacts, in the order in which they are told")
    for name, summary in (
        ("test", "tell one that this is a test"),
        ("remove", "remove one with all that waits for it"),
    ):
        _contact_action(kinds, name, summary).add_argument("id", type=number)


def _contact_action(kinds: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(kinds, name, ("cli.hub.contact", name), summary)
    parser.add_argument("--workspace", default="", help="number or name, where there are several")
    add_listing(parser)
    return parser


def add_chain(actions: Subparsers) -> None:
    """Add `chain` to `fieldagent hub`, with the actions that `cli.hub.contact` carries out."""
    summary = "the steps in which contacts are told"
    kinds = command(actions, "chain", None, summary).add_subparsers(metavar="ACTION")
    for name, carries_out, summary in (
        ("list", "steps", "list the steps, and which of them cannot work"),
        ("test", "test_steps", "tell every contact, step by step, that this is a test"),
    ):
        parser = command(kinds, name, ("cli.hub.contact", carries_out), summary)
        parser.add_argument(
            "--workspace", default="", help="number or name, where there are several"
        )
        add_listing(parser)


def add_sos(actions: Subparsers) -> None:
    """Add `sos` to `fieldagent hub`, with the actions that `cli.hub.sos` carries out."""
    sos = command(actions, "sos", None, "SOS of the workspace's kits").add_subparsers(
        metavar="ACTION"
    )
    listed = _sos_action(sos, "list", "list them, the last first")
    listed.add_argument("--state", choices=("open", "seen", "closed"))
    listed.add_argument("--limit", type=count, default=50)
    one = _sos_action(sos, "show", "show one with its timeline")
    one.add_argument("id", type=number)
    one.set_defaults(carry_out=("cli.hub.sos", "show_named"))
    for name, summary, text in (
        ("acknowledge", "answer one: its kit is told who did, and repeats it no more", "note"),
        ("take-over", "have one in the place of whoever has it: its kit is told so", "note"),
        ("close", "close one, with a reason", "reason"),
        ("note", "write down what happens", "text"),
        ("answer", "send words down to its kit", "text"),
    ):
        parser = _sos_action(sos, name, summary)
        parser.add_argument("id", type=number)
        parser.add_argument("text", metavar=text.upper(), nargs="?" if text == "note" else None)
        parser.add_argument("--by", default="", help="who does (the only dispatcher)")
    over = _sos_action(sos, "hand-over", "ask another dispatcher to take it over")
    over.add_argument("id", type=number)
    over.add_argument("to", help="who is to take it")
    over.add_argument("--note", dest="text", default="", help="what they must know")
    over.add_argument("--by", default="", help="who has it (the only dispatcher)")


def add_watch(actions: Subparsers) -> None:
    """Add `watch` to `fieldagent hub`, with the actions that `cli.hub.watch` carries out."""
    watch = command(actions, "watch", None, "who is on watch at the desk").add_subparsers(
        metavar="ACTION"
    )
    action(watch, "show", ("cli.hub.watch", "standing"), "who is, and who hands over to whom")
    take = action(watch, "take", ("cli.hub.watch", "take"), "let a dispatcher be on watch")
    take.add_argument("user")
    take.add_argument(
        "--for", dest="length", type=wait, default=28_800, metavar="8h", help="how long (8h)"
    )
    over = action(
        watch,
        "hand-over",
        ("cli.hub.watch", "hand_over"),
        "ask another to take it: until they do, it stays",
    )
    over.add_argument("user", help="who is on watch")
    over.add_argument("to", help="who is to be")
    over.add_argument("--note", default="", help="what they must know")
    end = action(watch, "end", ("cli.hub.watch", "end"), "let who is on watch end it")
    end.add_argument("user")
    end.add_argument("--note", default="")
    summary = "when somebody is to be on watch (UTC): nobody for five minutes of it is an alarm"
    hours = action(watch, "hours", ("cli.hub.watch", "hours"), summary)
    hours.add_argument("hours", type=watch_hours, metavar="06:00-22:00|always|none")


def _sos_action(actions: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(actions, name, ("cli.hub.sos", name.replace("-", "_")), summary)
    parser.add_argument("--workspace", default="", help="number or name, where there are several")
    add_listing(parser)
    return parser
