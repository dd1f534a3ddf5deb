"""The command line for callers of the hub: keys of programs, tokens of people, trackers."""

from __future__ import annotations

from fieldagent.cli.argument_types import wait
from fieldagent.cli.hub.action import KINDS, PROGRAMS, action, days, number
from fieldagent.cli.subcommand import Subparsers, command, count


def add_key(actions: Subparsers) -> None:
    """Add `key` to `fieldagent hub`."""
    key = command(
        actions, "key", None, "manage keys of the push API", group=PROGRAMS
    ).add_subparsers(metavar="ACTION")
    add = action(key, "add", ("cli.hub.credentials", "key_add"), "add a key; it is shown once")
    add.add_argument("name")
    add.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        help="kinds that the key may push (all, unless it may read)",
    )
    add.add_argument(
        "--read", action="store_true", help="the key may read items, devices and positions"
    )
    add.add_argument(
        "--acknowledge", action="store_true", help="dispatchers may acknowledge an SOS with the key"
    )
    add.add_argument(
        "--administer",
        action="store_true",
        help="administrators may manage users and devices with the key",
    )
    add.add_argument("--per-minute", type=count, default=60, help="calls per minute (60)")
    add.add_argument("--burst", type=count, default=60, help="most calls in a burst (60)")
    add.add_argument("--days", type=days, help="days until the key expires (never)")
    rate = action(
        key, "rate", ("cli.hub.credentials", "key_rate"), "change the rate limit of a key"
    )
    rate.add_argument("id", type=number)
    rate.add_argument("--per-minute", type=count, help="calls per minute")
    rate.add_argument("--burst", type=count, help="most calls in a burst")
    _add_credential(key, "key")


def add_token(user: Subparsers) -> None:
    """Add `token` to `fieldagent hub user`."""
    token = command(user, "token", None, "manage Bearer tokens of users").add_subparsers(
        metavar="ACTION"
    )
    add = action(
        token, "add", ("cli.hub.credentials", "token_add"), "add a token; it is shown once"
    )
    add.add_argument("name")
    add.add_argument("--user", required=True, help="user of the token")
    add.add_argument("--days", type=days, help="days until the token expires (never)")
    _add_credential(token, "token")


def _add_source(tracker: Subparsers) -> None:
    summary = "manage addresses to which third-party trackers report"
    source = command(tracker, "source", None, summary).add_subparsers(metavar="ACTION")
    summary = "add an address; it is shown once"
    add = action(source, "add", ("cli.hub.tracker", "source_add"), summary)
    add.add_argument("name", help="name for people, such as the owner of the trackers")
    _add_credential(source, "source")


def add_tracker(actions: Subparsers) -> None:
    """Add `tracker` to `fieldagent hub`."""
    summary = "manage third-party trackers of people without a kit"
    tracker = command(actions, "tracker", None, summary, group=PROGRAMS).add_subparsers(
        metavar="ACTION"
    )
    add = action(tracker, "add", ("cli.hub.tracker", "add"), "add a tracker of a user")
    add.add_argument("name", help="name for people")
    add.add_argument(
        "--id", required=True, help="id that the tracker sends: an IMEI, USER/DEVICE, …"
    )
    add.add_argument("--user", required=True, help="user who carries it")
    add.add_argument(
        "--every",
        type=wait,
        default=60,
        metavar="1m",
        help="shortest time between two positions in the conversation (1m); the map shows all",
    )
    action(tracker, "list", ("cli.hub.tracker", "listing"), "list trackers")
    _add_source(tracker)


def _add_credential(actions: Subparsers, what: str) -> None:
    action(
        actions, "list", ("cli.hub.credentials", "credential_list"), f"list {what}s"
    ).set_defaults(what=what)
    revoke = action(actions, "revoke", ("cli.hub.credentials", "revoke"), f"revoke a {what}")
    revoke.add_argument("id", type=number)
    revoke.set_defaults(what=what)
