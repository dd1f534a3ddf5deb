"""The command line of the hub."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from fieldagent.cli.argument_types import batch, minute, minutes
from fieldagent.cli.hub.action import (
    KITS,
    PEOPLE,
    PROGRAMS,
    SERVICE,
    action,
    add_listing,
    add_store,
    add_workspace,
    credit_count,
    number,
)
from fieldagent.cli.hub.caller_arguments import add_key, add_token, add_tracker
from fieldagent.cli.hub.card_arguments import add_card
from fieldagent.cli.hub.desk_arguments import add_contact, add_sos
from fieldagent.cli.hub.places_arguments import add_fence, add_report, add_route
from fieldagent.cli.hub.radio_key_arguments import add_key_change, add_radio_key
from fieldagent.cli.subcommand import (
    CommandParser,
    Subparsers,
    add_called,
    by_name,
    command,
    count,
    duration,
    seconds,
)
from fieldagent.extensions import extensions, places
from fieldagent.system.named_object import imported
from fieldagent.wire.command import VERBS

TYPES = ("User", "Device", "Integration", "Resource")


def add_hub(hub: CommandParser, words: Sequence[str] = ()) -> None:
    """Add all actions, or only the one that `words` name."""
    actions = hub.add_subparsers(metavar="ACTION", title="actions")
    add_called(ACTIONS, words[0] if words else "", actions)


def _add_run(actions: Subparsers) -> None:
    run = command(actions, "run", ("cli.hub.run", "run"), "run the hub", group=SERVICE)
    add_store(run)
    run.add_argument("-v", "--verbose", action="store_true", help="log every step")


def _add_init(actions: Subparsers) -> None:
    init = command(
        actions,
        "init",
        ("cli.hub.directory", "init"),
        "create the database and the first workspace",
        group=SERVICE,
    )
    init.add_argument("name", help="name of the workspace")
    init.add_argument(
        "--administrator",
        metavar="EMAIL",
        help="also add an administrator, and print a link for the first sign-in, valid for 7 days",
    )
    init.add_argument("--once", action="store_true", help="do nothing if a workspace exists")
    add_listing(init)


def _add_kits(actions: Subparsers) -> None:
    summary = "show the state of all kits, unusual ones first"
    action(actions, "fleet", ("cli.hub.fleet", "fleet"), summary, group=KITS)


def _add_database(actions: Subparsers) -> None:
    summary = "copy, restore, move or upgrade the database"
    database = command(actions, "database", None, summary, group=SERVICE)
    actions = database.add_subparsers(metavar="ACTION")
    summary = "record that the database is a restored backup, so that no number is used twice"
    restored = command(actions, "restored", ("cli.hub.database", "restored"), summary)
    restored.add_argument(
        "--post",
        action="store_true",
        help="post the items that kits have returned since then to webhooks, too",
    )
    add_listing(restored)
    summary = "copy the database to FILE, also while a hub runs"
    backup = command(actions, "backup", ("cli.hub.database", "backup"), summary)
    backup.add_argument("file", type=Path, metavar="FILE")
    add_listing(backup)
    summary = "copy the database of a stopped hub from SQLite to PostgreSQL, or back"
    move = command(actions, "move", ("cli.hub.database", "move"), summary)
    move.add_argument(
        "target", metavar="TARGET", help="postgresql://… or the path of a new SQLite file"
    )
    add_listing(move)
    summary = "create the tables in PostgreSQL, or upgrade them to this version"
    add_listing(command(actions, "migrate", ("cli.hub.database", "migrate"), summary))


def _add_audit(actions: Subparsers) -> None:
    log = command(
        actions,
        "audit",
        ("cli.hub.directory", "audit_list"),
        "show the audit log, newest first",
        group=SERVICE,
    )
    log.add_argument("--limit", type=count, default=100)
    log.add_argument("--workspace", default="", help="only of this workspace, by number or name")
    add_listing(log)


def _add_workspace(actions: Subparsers) -> None:
    workspace = command(
        actions, "workspace", None, "manage workspaces, and export their data", group=PEOPLE
    ).add_subparsers(metavar="ACTION")
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
    summary = "export all data of a workspace into a new folder, as JSON lines and files"
    _add_exporting(action(workspace, "export", ("cli.hub.export", "write"), summary), "workspace")


def _add_group(actions: Subparsers) -> None:
    group = command(actions, "group", None, "manage groups of users", group=PEOPLE).add_subparsers(
        metavar="ACTION"
    )
    add = action(group, "add", ("cli.hub.people", "group_add"), "add a group")
    add.add_argument("name")
    add.add_argument("users", nargs="*", metavar="USER")
    _add_over_satellite(add)
    for verb, summary in (("join", "add users to a group"), ("leave", "remove users from a group")):
        change = action(group, verb, ("cli.hub.people", f"group_{verb}"), summary)
        change.add_argument("name")
        change.add_argument("users", nargs="+", metavar="USER")
    summary = "set whether items from kits reach a group over satellite, too"
    rule = action(group, "satellite", ("cli.hub.people", "group_satellite"), summary)
    rule.add_argument("name")
    rule.add_argument("rule", choices=("on", "off"))
    remove = action(group, "remove", ("cli.hub.people", "group_remove"), "remove a group")
    remove.add_argument("name")
    action(group, "list", ("cli.hub.people", "group_list"), "list groups")


def _add_user(actions: Subparsers) -> None:
    user = command(
        actions, "user", None, "manage users, their roles, radios and tokens", group=PEOPLE
    ).add_subparsers(metavar="ACTION")
    add = action(user, "add", ("cli.hub.directory", "user_add"), "add a user")
    add.add_argument("name")
    add.add_argument("--type", choices=TYPES, default="User")
    add.add_argument("--email", default="")
    add.add_argument(
        "--password",
        action="store_true",
        help="ask for a password (for Basic), or read a line from standard input",
    )
    _add_over_satellite(add)
    join = action(
        user, "join", ("cli.hub.directory", "user_join"), "add a user to another workspace"
    )
    join.add_argument("user", type=number)
    _add_over_satellite(join)
    summary = "set whether a user's kits get every position of other kits, or only the newest"
    rule = action(user, "positions", ("cli.hub.people", "user_positions"), summary)
    rule.add_argument("user")
    rule.add_argument("rule", choices=("all", "newest"))
    leave = action(
        user, "leave", ("cli.hub.directory", "user_leave"), "remove a user from a workspace"
    )
    leave.add_argument("user")
    password = action(
        user, "password", ("cli.hub.directory", "user_password"), "set a user's password"
    )
    password.add_argument("user")
    role = action(
        user, "role", ("cli.hub.directory", "user_role"), "set the role of a user in the workspace"
    )
    role.add_argument("user")
    role.add_argument(
        "role",
        choices=("member", "observer", "dispatcher", "administrator"),
        help=(
            "an observer reads everything, a dispatcher also answers, an administrator also"
            " manages users and devices"
        ),
    )
    radio = action(
        user, "radio", ("cli.hub.people", "user_radio"), "set the handheld radios of a user"
    )
    radio.add_argument("user")
    radio.add_argument(
        "radios", nargs="*", metavar="RADIO", help="such as !a1b2c3d4; without one, all are removed"
    )
    _add_of_extensions("user", user)
    add_token(user)
    _add_disabling(user, "member", "user")
    _add_deletion(user, "user")
    summary = "export all data of a user into a new folder, as JSON lines and files"
    export = action(user, "export", ("cli.hub.export", "write"), summary)
    export.add_argument("named", metavar="USER")
    _add_exporting(export, "user")
    action(user, "list", ("cli.hub.directory", "user_list"), "list users")


def _add_of_extensions(noun: str, actions: Subparsers) -> None:
    """Add the verbs of extensions for this noun."""
    for extension in extensions().values():
        if noun in extension.hub_verbs:
            imported(extension.hub_verbs[noun])(actions)


def _add_over_satellite(parser: CommandParser) -> None:
    parser.add_argument(
        "--over-satellite",
        action="store_true",
        help="items from other kits reach this user over satellite, too",
    )


def _add_disabling(actions: Subparsers, what: str, named: str) -> None:
    for verb in ("disable", "enable"):
        parser = action(actions, verb, ("cli.hub.device", "disable"), f"{verb} a {named}")
        parser.add_argument("named", metavar=named.upper())
        parser.set_defaults(what=what, enable=verb == "enable")


def _add_exporting(parser: CommandParser, what: str) -> None:
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder to create")
    parser.set_defaults(what=what)


_DELETES = "delete a {} for good; without --yes, only list the consequences"


def _add_deletion(actions: Subparsers, what: str) -> None:
    parser = action(actions, "delete", ("cli.hub.deletion", "delete"), _DELETES.format(what))
    _add_deleting(parser, what)


def _add_deleting(parser: CommandParser, what: str) -> None:
    parser.add_argument("named", metavar=what.upper())
    parser.add_argument("--yes", action="store_true", help="delete")
    parser.set_defaults(what=what)


def _add_device(actions: Subparsers) -> None:
    device = command(
        actions, "device", None, "manage kits: settings, keys, dead letters", group=KITS
    ).add_subparsers(metavar="ACTION")
    add = action(
        device, "add", ("cli.hub.device", "device_add"), "add a device; its token is shown once"
    )
    add.add_argument("name")
    add.add_argument("--user", required=True, help="user of the device")
    add.add_argument("--imei", help="IMEI of its satellite modem, 15 digits")
    add.add_argument("--operator", metavar="NAME", help="satellite operator")
    add.add_argument(
        "--thing",
        metavar="ID",
        help="its id at the operator, which the hub learns from its first message",
    )
    add.add_argument("--tagged", action="store_true", help="authenticate satellite messages")
    add.add_argument(
        "--relay", action="store_true", help="the device may relay items of other kits"
    )
    add.add_argument(
        "--credits-per-day", type=credit_count, help="most credits for messages to it on a UTC day"
    )
    add.add_argument(
        "--sos-reserve",
        type=credit_count,
        default=0,
        help="part of them that only an SOS may use (0)",
    )
    add.add_argument(
        "--card",
        type=Path,
        metavar="FOLDER",
        help="boot partition of a card; writes the kit's settings there, too",
    )
    add.add_argument(
        "--qr", action="store_true", help="show the kit's settings, with secrets, as a QR code"
    )
    address = "with --card and --qr: address of the hub for the kit"
    add.add_argument("--address", metavar="URL", help=address)
    add_card(add)
    _add_of_extensions("device", device)
    token = action(
        device, "token", ("cli.hub.device", "device_token"), "replace the link token of a device"
    )
    token.add_argument("device")
    rename = action(device, "rename", ("cli.hub.device", "device_rename"), "rename a device")
    rename.add_argument("device")
    rename.add_argument("name")
    _add_satellite(device)
    relay = action(
        device,
        "relay",
        ("cli.hub.device", "device_relay"),
        "let a device relay items of other kits in their name",
    )
    relay.add_argument("device")
    relay.add_argument("--off", action="store_true", help="stop relaying, except for an SOS")
    summary = "raise an alarm if nothing arrives from a device"
    check_in = action(device, "checkin", ("cli.hub.sos", "device_checkin"), summary)
    check_in.add_argument("device")
    rule = check_in.add_mutually_exclusive_group(required=True)
    rule.add_argument("--every", type=duration, metavar="12h", help="time after its last item")
    rule.add_argument("--by", type=minute, metavar="18:00", help="time of each day, in UTC")
    rule.add_argument("--off", action="store_true", help="stop the check-in of the device")
    _add_setting(device)
    _add_disabling(device, "device", "device")
    _add_revocation(device)
    add_radio_key(device)
    _add_dead_letter(device)
    _add_deletion(device, "device")
    action(device, "list", ("cli.hub.device", "device_list"), "list devices")


def _add_revocation(device: Subparsers) -> None:
    summary = "revoke a stolen or lost kit: its items no longer count as its user's"
    revoke = action(device, "revoke", ("cli.hub.device", "device_revoke"), summary)
    revoke.add_argument("device")
    revoke.add_argument("--why", default="", metavar="TEXT", help="reason, for administrators")
    summary = "and change the radio-key of all other kits, as `hub device radio-key change` does"
    revoke.add_argument("--new-radio-key", action="store_true", help=summary)
    add_key_change(revoke)
    summary = "restore a revoked kit, with the items that it sent in the meantime"
    restore = action(device, "restore", ("cli.hub.device", "device_restore"), summary)
    restore.add_argument("device")


def _add_satellite(device: Subparsers) -> None:
    imei = action(device, "imei", ("cli.hub.device", "device_imei"), "correct the IMEI of a device")
    imei.add_argument("device")
    imei.add_argument("imei", help="IMEI of its satellite modem, 15 digits")
    imei.add_argument(
        "--take", action="store_true", help="move the IMEI from the device that has it now"
    )
    action(
        device,
        "contested",
        ("cli.hub.device", "device_contested"),
        "list IMEIs that two devices claim",
    )
    summary = "retry messages that wait for a device over satellite now"
    again = action(device, "retry", ("cli.hub.device", "device_retry"), summary)
    again.add_argument("device")
    key = action(
        device,
        "key",
        ("cli.hub.device", "device_key"),
        "replace the satellite-key of a device; it is shown once",
    )
    key.add_argument("device")
    which = key.add_mutually_exclusive_group()
    which.add_argument(
        "--given",
        action="store_true",
        help="ask for the key that the kit has, or read a line from standard input",
    )
    which.add_argument(
        "--remove",
        action="store_true",
        help="remove the key; messages of the device are no longer authenticated",
    )


def _add_setting(device: Subparsers) -> None:
    summary = "send settings, signed by their operator, to a kit over its link"
    change = action(device, "set", ("cli.hub.settings", "device_set"), summary)
    change.add_argument("device")
    change.add_argument(
        "settings", nargs="*", metavar="NAME=VALUE", help="NAME= removes the setting"
    )
    change.add_argument(
        "--file",
        type=Path,
        help="file for the text to sign, or with the signed text (device-NUMBER.settings)",
    )
    change.add_argument(
        "--secret-key", type=Path, metavar="FILE", help="sign it here with this minisign key"
    )


def _add_command(actions: Subparsers) -> None:
    summary = "send a command to a kit, and show its answer"
    order = action(actions, "command", ("cli.hub.command", "command"), summary, group=KITS)
    order.add_argument("device", metavar="KIT")
    order.add_argument(
        "words",
        nargs="*",
        metavar="COMMAND",
        help="; ".join(f"{f'{each.name} {each.takes}'.strip()}: {each.means}" for each in VERBS)
        + "; without a command, list the commands that were sent",
    )
    order.add_argument(
        "--by",
        choices=("ip", "satellite"),
        help="use only this bearer (the link, otherwise satellite)",
    )
    order.add_argument(
        "--secret-key",
        type=Path,
        metavar="FILE",
        help="minisign key that signs the settings of `set`",
    )
    order.add_argument("--yes", action="store_true", help="accept the satellite cost")
    order.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="seconds to wait for the answer (0)",
    )
    order.add_argument("--limit", type=count, default=20, help="most commands to list (20)")


def _add_dead_letter(device: Subparsers) -> None:
    letter = command(
        device,
        "dead-letter",
        None,
        "manage dead letters: messages from the field that could not be used",
    ).add_subparsers(metavar="ACTION")
    summary = "list dead letters by IMEI, with the reason"
    add_listing(command(letter, "list", ("cli.hub.dead_letters", "dead_letter_list"), summary))
    summary = "process dead letters that can be used now"
    add_listing(command(letter, "replay", ("cli.hub.dead_letters", "dead_letter_replay"), summary))
    summary = "assign the dead letters of an IMEI to a device"
    assign = action(letter, "assign", ("cli.hub.dead_letters", "dead_letter_assign"), summary)
    assign.add_argument("device")
    remove = command(
        letter,
        "remove",
        ("cli.hub.dead_letters", "dead_letter_remove"),
        "delete a dead letter for good",
    )
    remove.add_argument("id", type=number)
    add_listing(remove)


def _add_usage(actions: Subparsers) -> None:
    usage = command(
        actions, "usage", None, "compare satellite costs with the operator's bill", group=KITS
    ).add_subparsers(metavar="ACTION")
    summary = "list our count and the operator's for each kit and day"
    listed = action(usage, "list", ("cli.hub.usage", "usage_list"), summary)
    listed.add_argument("--device", help="only this device")
    listed.add_argument(
        "--since", type=_day, metavar="DAY", help="first day, such as 2026-09-01 (31 days ago)"
    )
    listed.add_argument("--until", type=_day, metavar="DAY", help="last day (today)")
    summary = "import an operator's count: a CSV file with whole days"
    taken = command(usage, "import", ("cli.hub.usage", "usage_import"), summary)
    taken.add_argument("file", type=Path, metavar="FILE")
    taken.add_argument("--operator", required=True, metavar="NAME", help="operator of the file")
    taken.add_argument(
        "--columns",
        type=_pairs,
        default=(),
        metavar="WHAT=NAME,…",
        help="names of the columns for imei, date, credits, bytes, reference",
    )
    taken.add_argument(
        "--date-format", metavar="FORMAT", help="format of dates, such as %%d/%%m/%%Y"
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
    summary = "manage webhooks, which get the items from agents"
    webhook = command(actions, "webhook", None, summary, group=PROGRAMS)
    kinds = webhook.add_subparsers(metavar="ACTION")
    add = _webhook_action(kinds, "add", "test a webhook and add it")
    add.add_argument("url")
    add.add_argument("--secret", action="append", default=[], help="whsec_… (a new secret)")
    add.add_argument("--unsigned", action="store_true", help="post without a signature")
    add.add_argument("--username", help="user for Basic; asks for the password, or reads a line")
    add.add_argument("--header", action="append", default=[], metavar="NAME:VALUE")
    add.add_argument(
        "--after",
        type=minutes,
        default=0,
        metavar="MINUTES",
        help="post only an SOS that has had no answer for this time",
    )
    add.add_argument(
        "--batch",
        type=batch,
        default=0,
        metavar="ITEMS",
        help="post waiting items of one sender as an array of at most ITEMS",
    )
    add.add_argument(
        "--steps", action="store_true", help="post the progress of each item, too, also of pushes"
    )
    add.add_argument("--untried", action="store_true", help="add it without a test post")
    _webhook_action(kinds, "list", "list webhooks")
    for name, summary in (
        ("test", "post a test message"),
        ("enable", "enable a disabled webhook"),
        ("remove", "remove a webhook and everything that waits for it"),
    ):
        _webhook_action(kinds, name, summary).add_argument("id", type=number)
    renewed = _webhook_action(
        kinds, "secret", "replace the secret of a webhook, and print the new one"
    )
    renewed.add_argument("id", type=number)
    renewed.add_argument("--secret", action="append", default=[], help="whsec_… (a new secret)")
    renewed.add_argument(
        "--only", action="store_true", help="stop signing with the old secret at once"
    )
    _webhook_action(kinds, "dead", "list dead letters")
    replay = _webhook_action(kinds, "replay", "post dead letters again")
    replay.add_argument(
        "request_id", nargs="?", metavar="REQUEST_ID", help="numbers of dead letters (all)"
    )


def _webhook_action(kinds: Subparsers, name: str, summary: str) -> CommandParser:
    parser = command(kinds, name, ("cli.hub.webhook", name), summary)
    add_workspace(parser)
    add_listing(parser)
    return parser


ACTIONS = by_name(
    ("run", _add_run),
    ("init", _add_init),
    ("database", _add_database),
    ("audit", _add_audit),
    ("workspace", _add_workspace),
    ("user", _add_user),
    ("group", _add_group),
    ("device", _add_device),
    ("fleet", _add_kits),
    *((noun, imported(place)) for noun, place in places("hub_nouns").items()),
    ("command", _add_command),
    ("usage", _add_usage),
    ("report", add_report),
    ("sos", add_sos),
    ("contact", add_contact),
    ("fence", add_fence),
    ("route", add_route),
    ("key", add_key),
    ("webhook", _add_webhook),
    ("tracker", add_tracker),
)
"""Actions of the hub, by name."""
