"""The command line of the hub and of those who push to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from fieldagent.cli.argument_types import batch, minute, minutes
from fieldagent.cli.hub.action import action, add_listing, add_store, credit_count, number
from fieldagent.cli.hub.caller_arguments import add_callers
from fieldagent.cli.hub.card_arguments import add_card
from fieldagent.cli.hub.desk_arguments import add_chain, add_contact, add_sos, add_watch
from fieldagent.cli.hub.places_arguments import add_places
from fieldagent.cli.hub.radio_key_arguments import add_key_change, add_radio_key
from fieldagent.cli.subcommand import (
    CommandParser,
    Subparsers,
    add_called,
    add_item_arguments,
    by_name,
    command,
    count,
    duration,
    seconds,
)
from fieldagent.extensions import extensions
from fieldagent.system.named_object import imported
from fieldagent.wire.command import VERBS

TYPES = ("User", "Device", "Integration", "Resource")


def add_hub(hub: CommandParser, words: Sequence[str] = ()) -> None:
    """Add all its actions, or the one that these words call."""
    actions = hub.add_subparsers(metavar="ACTION", title="actions")
    add_called(ACTIONS, words[0] if words else "", actions)


def _add_run(actions: Subparsers) -> None:
    run = command(actions, "run", ("cli.hub.run", "run"), "run the hub")
    add_store(run)
    run.add_argument("-v", "--verbose", action="store_true", help="log every step")


def _add_init(actions: Subparsers) -> None:
    init = command(
        actions, "init", ("cli.hub.directory", "init"), "make the database and a first workspace"
    )
    init.add_argument("name", help="of the workspace")
    add_listing(init)


def _add_kits(actions: Subparsers) -> None:
    summary = "show how all kits are, those that are unlike the others first"
    action(actions, "fleet", ("cli.hub.fleet", "fleet"), summary)


def _add_database(actions: Subparsers) -> None:
    summary = "say that the database was put back from a copy: no number is given twice"
    restored = command(actions, "restored", ("cli.hub.database", "restored"), summary)
    restored.add_argument(
        "--post", action="store_true", help="give webhooks what kits have brought back since"
    )
    add_listing(restored)
    summary = "copy the database to FILE, whether a hub runs or not"
    backup = command(actions, "backup", ("cli.hub.database", "backup"), summary)
    backup.add_argument("file", type=Path, metavar="FILE")
    add_listing(backup)
    summary = "write all that is there of a workspace into a new folder, as JSON lines and files"
    export = command(actions, "export", ("cli.hub.export", "write"), summary)
    export.add_argument("--workspace", default="", help="number or name, where there are several")
    _add_exporting(export, "workspace")
    add_listing(export)
    summary = "make the tables in PostgreSQL, or bring them to this version"
    add_listing(command(actions, "migrate", ("cli.hub.database", "migrate"), summary))


def _add_audit(actions: Subparsers) -> None:
    log = command(
        actions, "audit", ("cli.hub.directory", "audit_list"), "show who did what, the latest first"
    )
    log.add_argument("--limit", type=count, default=100)
    log.add_argument("--workspace", default="", help="of that one alone, by number or name")
    add_listing(log)


def _add_workspace(actions: Subparsers) -> None:
    workspace = command(actions, "workspace", None, "workspaces").add_subparsers(metavar="ACTION")
    add = command(workspace, "add", ("cli.hub.directory", "workspace_add"), "add a workspace")
    add.add_argument("name")
    add_listing(add)
    add_listing(
        command(workspace, "list", ("cli.hub.directory", "workspace_list"), "list workspaces")
    )
    gone = command(
        workspace, "delete", ("cli.hub.deletion", "delete"), _DELETES.format("workspace")
    )
    _add_deleting(gone, "workspace")
    add_listing(gone)


def _add_group(actions: Subparsers) -> None:
    group = command(actions, "group", None, "groups of users").add_subparsers(metavar="ACTION")
    add = action(group, "add", ("cli.hub.people", "group_add"), "make a group")
    add.add_argument("name")
    add.add_argument("users", nargs="*", metavar="USER")
    _add_over_satellite(add)
    for verb, summary in (("join", "put users into a group"), ("leave", "take users out of one")):
        change = action(group, verb, ("cli.hub.people", f"group_{verb}"), summary)
        change.add_argument("name")
        change.add_argument("users", nargs="+", metavar="USER")
    summary = "say whether what kits send to a group reaches it over satellite too"
    rule = action(group, "satellite", ("cli.hub.people", "group_satellite"), summary)
    rule.add_argument("name")
    rule.add_argument("rule", choices=("on", "off"))
    remove = action(group, "remove", ("cli.hub.people", "group_remove"), "remove a group")
    remove.add_argument("name")
    action(group, "list", ("cli.hub.people", "group_list"), "list groups")


def _add_user(actions: Subparsers) -> None:
    user = command(actions, "user", None, "users, integrations, resources").add_subparsers(
        metavar="ACTION"
    )
    add = action(user, "add", ("cli.hub.directory", "user_add"), "add a user")
    add.add_argument("name")
    add.add_argument("--type", choices=TYPES, default="User")
    add.add_argument("--email", default="")
    add.add_argument(
        "--password", action="store_true", help="ask for one (for Basic), or read a line of it"
    )
    _add_over_satellite(add)
    join = action(
        user, "join", ("cli.hub.directory", "user_join"), "put a user into a further workspace"
    )
    join.add_argument("user", type=number)
    _add_over_satellite(join)
    leave = action(
        user, "leave", ("cli.hub.directory", "user_leave"), "take a user out of a workspace"
    )
    leave.add_argument("user")
    password = action(
        user, "password", ("cli.hub.directory", "user_password"), "set a user's password"
    )
    password.add_argument("user")
    role = action(
        user, "role", ("cli.hub.directory", "user_role"), "say what a user may do in the workspace"
    )
    role.add_argument("user")
    role.add_argument(
        "role",
        choices=("member", "observer", "dispatcher", "administrator"),
        help="an observer sees all, a dispatcher answers, an administrator says who is who",
    )
    radio = action(
        user, "radio", ("cli.hub.people", "user_radio"), "name the radios that a user carries"
    )
    radio.add_argument("user")
    radio.add_argument(
        "radios", nargs="*", metavar="RADIO", help="such as !a1b2c3d4; none takes all away"
    )
    _add_of_extensions("user", user)
    _add_disabling(user, "member", "user")
    _add_deletion(user, "user")
    summary = "write all that is there of a user into a new folder, as JSON lines and files"
    export = action(user, "export", ("cli.hub.export", "write"), summary)
    export.add_argument("named", metavar="USER")
    _add_exporting(export, "user")
    action(user, "list", ("cli.hub.directory", "user_list"), "list users")


def _add_of_extensions(noun: str, actions: Subparsers) -> None:
    """Add the verbs that extensions have for this noun."""
    for extension in extensions().values():
        if noun in extension.hub_verbs:
            imported(extension.hub_verbs[noun])(actions)


def _add_over_satellite(parser: CommandParser) -> None:
    parser.add_argument(
        "--over-satellite",
        action="store_true",
        help="what others' agents send reaches this user over satellite too",
    )


def _add_disabling(actions: Subparsers, what: str, named: str) -> None:
    for verb in ("disable", "enable"):
        parser = action(actions, verb, ("cli.hub.device", "disable"), f"{verb} a {named}")
        parser.add_argument("named", metavar=named.upper())
        parser.set_defaults(what=what, enable=verb == "enable")


def _add_exporting(parser: CommandParser, what: str) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="which is made")
    parser.set_defaults(what=what)


_DELETES = "delete a {} for good; without --yes, say what goes and what stays"


def _add_deletion(actions: Subparsers, what: str) -> None:
    parser = action(actions, "delete", ("cli.hub.deletion", "delete"), _DELETES.format(what))
    _add_deleting(parser, what)


def _add_deleting(parser: CommandParser, what: str) -> None:
    parser.add_argument("named", metavar=what.upper())
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.set_defaults(what=what)


def _add_device(actions: Subparsers) -> None:
    device = command(actions, "device", None, "agents in the field").add_subparsers(
        metavar="ACTION"
    )
    add = action(
        device, "add", ("cli.hub.device", "device_add"), "add a device; its token is shown once"
    )
    add.add_argument("name")
    add.add_argument("--user", required=True, help="whose it is")
    add.add_argument("--imei", help="15 digits of its satellite modem")
    add.add_argument("--operator", metavar="NAME", help="who carries its satellite messages")
    add.add_argument("--thing", metavar="ID", help="what Cloudloop calls it; learned otherwise")
    add.add_argument("--tagged", action="store_true", help="authenticate satellite messages")
    add.add_argument("--relay", action="store_true", help="it may bring what others sent")
    add.add_argument("--credits-per-day", type=credit_count, help="most credits to it on a UTC day")
    add.add_argument(
        "--sos-reserve", type=credit_count, default=0, help="of these, for an SOS alone (0)"
    )
    add.add_argument(
        "--card",
        type=Path,
        metavar="FOLDER",
        help="a card's boot partition: the kit's settings too",
    )
    add.add_argument(
        "--qr", action="store_true", help="show the kit's settings as a QR code, its secrets too"
    )
    address = "with --card and --qr: where the kit finds the hub"
    add.add_argument("--address", metavar="URL", help=address)
    add_card(add)
    _add_of_extensions("device", device)
    token = action(
        device, "token", ("cli.hub.device", "device_token"), "give a device a new link token"
    )
    token.add_argument("device")
    rename = action(
        device, "rename", ("cli.hub.device", "device_rename"), "give a device another name"
    )
    rename.add_argument("device")
    rename.add_argument("name")
    _add_satellite(device)
    relay = action(
        device,
        "relay",
        ("cli.hub.device", "device_relay"),
        "let a device bring what others sent, in their name",
    )
    relay.add_argument("device")
    relay.add_argument("--off", action="store_true", help="it may not any more, but an SOS")
    summary = "raise the alarm if nothing comes from a device"
    check_in = action(device, "checkin", ("cli.hub.sos", "device_checkin"), summary)
    check_in.add_argument("device")
    rule = check_in.add_mutually_exclusive_group(required=True)
    rule.add_argument("--every", type=duration, metavar="12h", help="after its last item")
    rule.add_argument("--by", type=minute, metavar="18:00", help="of each day, in UTC")
    rule.add_argument("--off", action="store_true", help="nothing is expected of it any more")
    _add_setting(device)
    _add_disabling(device, "device", "device")
    _add_revocation(device)
    _add_deletion(device, "device")
    action(device, "list", ("cli.hub.device", "device_list"), "list devices")


def _add_revocation(device: Subparsers) -> None:
    summary = "take a stolen or lost kit out: nothing that it sends is its user's word any more"
    revoke = action(device, "revoke", ("cli.hub.device", "device_revoke"), summary)
    revoke.add_argument("device")
    revoke.add_argument("--why", default="", metavar="TEXT", help="for those who administer")
    summary = "and give all others another radio-key, as `hub radio-key change` does"
    revoke.add_argument("--new-radio-key", action="store_true", help=summary)
    add_key_change(revoke)
    summary = "take a revoked kit back into use, with what it sent meanwhile"
    restore = action(device, "restore", ("cli.hub.device", "device_restore"), summary)
    restore.add_argument("device")


def _add_satellite(device: Subparsers) -> None:
    imei = action(device, "imei", ("cli.hub.device", "device_imei"), "correct the IMEI of a device")
    imei.add_argument("device")
    imei.add_argument("imei", help="15 digits of its satellite modem")
    imei.add_argument("--take", action="store_true", help="from the device that has it now")
    action(device, "contested", ("cli.hub.device", "device_contested"), "list IMEIs that two claim")
    summary = "try at once what waits to go to a device over satellite"
    again = action(device, "retry", ("cli.hub.device", "device_retry"), summary)
    again.add_argument("device")
    key = action(
        device,
        "key",
        ("cli.hub.device", "device_key"),
        "give a device a new satellite-key; shown once",
    )
    key.add_argument("device")
    which = key.add_mutually_exclusive_group()
    which.add_argument(
        "--given", action="store_true", help="ask for the one that the kit has, or read a line"
    )
    which.add_argument("--remove", action="store_true", help="its messages bear no tag any more")


def _add_setting(device: Subparsers) -> None:
    summary = "send settings to a kit over its link, which their operator has signed"
    change = action(device, "set", ("cli.hub.settings", "device_set"), summary)
    change.add_argument("device")
    change.add_argument(
        "settings", nargs="*", metavar="NAME=VALUE", help="NAME= takes the setting away"
    )
    change.add_argument(
        "--file",
        type=Path,
        help="where the text to be signed is written, or lies signed (device-NUMBER.settings)",
    )
    change.add_argument(
        "--secret-key", type=Path, metavar="FILE", help="sign it here, with this key of minisign's"
    )


def _add_command(actions: Subparsers) -> None:
    summary = "tell a kit what to do, and show what it answered"
    order = action(actions, "command", ("cli.hub.command", "command"), summary)
    order.add_argument("device", metavar="KIT")
    order.add_argument(
        "words",
        nargs="*",
        metavar="COMMAND",
        help="; ".join(f"{f'{each.name} {each.takes}'.strip()}: {each.means}" for each in VERBS)
        + "; left out: those that were given are listed",
    )
    order.add_argument(
        "--by", choices=("ip", "satellite"), help="that way alone (the link, else satellite)"
    )
    order.add_argument(
        "--secret-key", type=Path, metavar="FILE", help="of minisign's, which signs what set sets"
    )
    order.add_argument("--yes", action="store_true", help="agree to what it costs over satellite")
    order.add_argument(
        "--wait", type=seconds, default=0.0, metavar="SECONDS", help="for the answer (0)"
    )
    order.add_argument("--limit", type=count, default=20, help="of those that are listed (20)")


def _add_update(actions: Subparsers) -> None:
    summary = "a new program for the kits, in waves"
    update = command(actions, "update", None, summary).add_subparsers(metavar="ACTION")
    summary = "offer a signed program, which stops where a kit falls back"
    offer = _update_action(update, "offer", summary)
    offer.add_argument("version")
    offer.add_argument("url", help="where it is; its signature is beside it, as URL.minisig")
    offer.add_argument(
        "--devices", required=True, metavar="KITS", help="kit-a,kit-b in that order, or all"
    )
    offer.add_argument("--waves", type=_waves, default="1,10,all", help="kits in each (1,10,all)")
    offer.add_argument(
        "--within",
        type=minutes,
        default=120,
        metavar="MINUTES",
        help="for a kit that has begun to be back (120)",
    )
    listed = _update_action(update, "list", "list what was offered, the last first")
    listed.add_argument("--limit", type=count, default=20)
    one = _update_action(update, "show", "show what became of one at each kit")
    one.add_argument("number", nargs="?", type=number, help="of the offer (the last)")
    one.set_defaults(carry_out=("cli.hub.update", "show_kits"))
    _update_action(update, "stop", "tell no more kits of it; those that have begun go on")


def _update_action(actions: Subparsers, name: str, summary: str) -> CommandParser:
    return action(actions, name, ("cli.hub.update", name), summary)


def _waves(text: str) -> tuple[int | None, ...]:
    """None is all that are left, and comes last."""
    *sizes, last = text.split(",")
    return (*map(count, sizes), None if last == "all" else count(last))


_waves.__name__ = "list of numbers such as 1,10,all"


def _add_dead_letter(actions: Subparsers) -> None:
    letter = command(
        actions, "dead-letter", None, "what came from the field and could not be used"
    ).add_subparsers(metavar="ACTION")
    summary = "list them, by IMEI, with the reason"
    add_listing(command(letter, "list", ("cli.hub.dead_letters", "dead_letter_list"), summary))
    summary = "take in what can be used by now"
    add_listing(command(letter, "replay", ("cli.hub.dead_letters", "dead_letter_replay"), summary))
    summary = "give a device what its IMEI sent before it was its own"
    assign = action(letter, "assign", ("cli.hub.dead_letters", "dead_letter_assign"), summary)
    assign.add_argument("device")
    remove = command(
        letter, "remove", ("cli.hub.dead_letters", "dead_letter_remove"), "remove one for good"
    )
    remove.add_argument("id", type=number)
    add_listing(remove)


def _add_usage(actions: Subparsers) -> None:
    usage = command(
        actions, "usage", None, "what satellite messages cost, beside the operator's count"
    ).add_subparsers(metavar="ACTION")
    summary = "list kits and days, ours beside theirs, with what differs"
    listed = action(usage, "list", ("cli.hub.usage", "usage_list"), summary)
    listed.add_argument("--device", help="of this one alone")
    listed.add_argument("--since", type=_day, metavar="DAY", help="such as 2026-09-01 (31 days)")
    listed.add_argument("--until", type=_day, metavar="DAY", help="the last day (today)")
    summary = "import what an operator counted: a CSV file that holds whole days"
    taken = command(usage, "import", ("cli.hub.usage", "usage_import"), summary)
    taken.add_argument("file", type=Path, metavar="FILE")
    taken.add_argument("--operator", required=True, metavar="NAME", help="whose file it is")
    taken.add_argument(
        "--columns",
        type=_pairs,
        default=(),
        metavar="WHAT=NAME,…",
        help="what columns are called, of imei, date, credits, bytes, reference",
    )
    taken.add_argument(
        "--date-format", metavar="FORMAT", help="how dates are written, such as %%d/%%m/%%Y"
    )
    add_listing(taken)


def _day(text: str) -> str:
    return date.fromisoformat(text).isoformat()


_day.__name__ = "day such as 2026-09-21"


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = [each.split("=", 1) for each in text.split(",")]
    return tuple((what.strip(), name.strip()) for what, name in pairs)


_pairs.__name__ = "list such as imei=Device,credits=Used"


def _add_webhook(actions: Subparsers) -> None:
    webhook = command(actions, "webhook", None, "where what agents send is posted to")
    kinds = webhook.add_subparsers(metavar="ACTION")
    add = _webhook_action(kinds, "add", "try a webhook and add it")
    add.add_argument("url")
    add.add_argument(
        "--secret", action="append", default=[], help="whsec_…; one is made where none is given"
    )
    add.add_argument("--unsigned", action="store_true", help="post without a signature")
    add.add_argument("--username", help="for Basic; the password is asked for, or read")
    add.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    add.add_argument(
        "--after",
        type=minutes,
        default=0,
        metavar="MINUTES",
        help="tell it of an SOS alone, where nobody has answered for so long",
    )
    add.add_argument(
        "--batch",
        type=batch,
        default=0,
        metavar="ITEMS",
        help="post an array of as many as wait of one sender, ITEMS at most",
    )
    add.add_argument(
        "--steps", action="store_true", help="tell it how far each item comes, too, pushes as well"
    )
    add.add_argument("--untried", action="store_true", help="add it without a test call")
    _webhook_action(kinds, "list", "list webhooks")
    for name, summary in (
        ("test", "post a test message"),
        ("enable", "go on with one that was disabled"),
        ("remove", "remove it with all that waits for it"),
    ):
        _webhook_action(kinds, name, summary).add_argument("id", type=number)
    renewed = _webhook_action(kinds, "secret", "sign with another secret, and print it")
    renewed.add_argument("id", type=number)
    renewed.add_argument(
        "--secret", action="append", default=[], help="whsec_…; one is made where none is given"
    )
    renewed.add_argument(
        "--only", action="store_true", help="not with the one before beside it until the next"
    )
    _webhook_action(kinds, "dead", "list dead letters")
    replay = _webhook_action(kinds, "replay", "post dead letters again")
    replay.add_argument("request_id", nargs="?", metavar="REQUEST_ID", help="all otherwise")


def _webhook_action(kinds: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(kinds, name, ("cli.hub.webhook", name), summary)
    parser.add_argument("--workspace", default="", help="number or name, where there are several")
    add_listing(parser)
    return parser


def add_push(push: CommandParser) -> None:
    """Add `push` with a kind of item each, carried out by `cli.hub.push`."""
    kinds = push.add_subparsers(metavar="KIND", title="kinds")
    add_item_arguments(lambda kind, summary: _add_push_kind(kinds, kind, summary))


def _add_push_kind(kinds: Subparsers, kind: str, summary: str) -> CommandParser:
    parser = command(kinds, kind, ("cli.hub.push", kind), summary)
    parser.add_argument("--hub", required=True, metavar="URL", help="such as https://hub.example")
    parser.add_argument("--workspace", required=True, help="its number")
    parser.add_argument("--source", required=True, help="the number of the user who sends")
    whom = "the number of the user who gets it"
    message = kind == "message"
    target = parser.add_mutually_exclusive_group(required=message)
    target.add_argument("--target", help=whom if message else f"{whom} (the whole workspace)")
    target.add_argument("--group", help="the number or name of the group that gets it")
    parser.add_argument(
        "--receipt",
        action="store_const",
        const="read",
        help="ask to be told when a person has read it",
    )
    parser.add_argument("--priority", type=int)
    parser.add_argument("--collapse-key", type=int, help="replace what waits with the same key")
    parser.add_argument("--time-to-live", type=int, metavar="SECONDS")
    parser.add_argument("--username", help="for Basic; FIELDAGENT_TOKEN holds the password then")
    parser.add_argument("--ca-file", type=Path, help="PEM file of a private authority")
    parser.add_argument(
        "--patience", type=seconds, default=300.0, help="seconds to try again for, at most (300)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.epilog = "FIELDAGENT_API_KEY and FIELDAGENT_TOKEN hold what proves who calls."
    return parser


ACTIONS = by_name(
    ("run", _add_run),
    ("init", _add_init),
    ("workspace", _add_workspace),
    ("user", _add_user),
    ("group", _add_group),
    ("device", _add_device),
    ("fleet", _add_kits),
    ("update", _add_update),
    ("command", _add_command),
    ("radio-key", add_radio_key),
    ("dead-letter", _add_dead_letter),
    ("usage", _add_usage),
    ("key token source tracker", add_callers),
    ("webhook", _add_webhook),
    ("contact", add_contact),
    ("chain", add_chain),
    ("sos", add_sos),
    ("watch", add_watch),
    ("report fence route quiet", add_places),
    ("restored backup export migrate", _add_database),
    ("audit", _add_audit),
)
"""By what each is called by."""
