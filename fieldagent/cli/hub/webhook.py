"""`fieldagent hub webhook …`: webhooks that get the items of agents."""

from __future__ import annotations

import argparse
import sys
import time

from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.hub.opened_store import once, show, show_list, with_store
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import sending
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.webhook import webhook_directory, webhooks
from fieldagent.hub.webhook.reach import open_public
from fieldagent.hub.webhook.webhook import Webhook
from fieldagent.system.exit_codes import OK, REFUSED, USAGE
from fieldagent.system.properties import WrongProperty
from fieldagent.system.signals import run_breakable
from fieldagent.system.terminal import escaped
from fieldagent.webhook.delivery import HandoverOutcome


def add(arguments: argparse.Namespace) -> int:
    """Add a webhook and print its secret. It is tested first, unless with --untried, and not added
    if the test fails.
    """
    try:
        webhook = _read(arguments)
    except WrongProperty as wrong:
        print(f"fieldagent: {wrong}", file=sys.stderr)
        return USAGE

    def keep(settings: HubSettings, store: Store) -> int:
        workspace = store.once(lambda db: directory.workspace_of(db, arguments.workspace))
        if not arguments.untried and not _try(settings, store, workspace, webhook):
            print(
                "fieldagent: nothing was added; if the receiver checks signatures, choose its"
                " secret with --secret; or add it untested with --untried",
                file=sys.stderr,
            )
            return REFUSED
        id_ = store.once(lambda db: webhook_directory.add(db, workspace, webhook, now=time.time()))
        text = {"id": id_, "secret": " ".join(webhook.secrets)}
        return show(arguments, text, secret_names=("secret",))

    return with_store(arguments, keep)


def _read(arguments: argparse.Namespace) -> Webhook:
    """Return the webhook of the arguments. Raises WrongProperty."""
    headers = {}
    for header in arguments.header:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not header.isprintable():
            raise WrongProperty(f"--header must be NAME:VALUE, not {header!r}")
        headers[name.strip()] = value.strip()
    return webhook_directory.new(
        arguments.url,
        " ".join(arguments.secret),
        unsigned=arguments.unsigned,
        username=arguments.username,
        password=ask_password() if arguments.username is not None else None,
        headers=headers,
        after=arguments.after,
        batch=arguments.batch,
        steps=arguments.steps,
    )


def _try(settings: HubSettings, store: Store, workspace: int, webhook: Webhook) -> bool:
    """Send a test, and print the result. Raises Refused if the limit of a day is reached."""
    now = time.time()
    if limit := store.once(lambda db: sending.test_of_webhook(db, workspace, webhook.url, now)):
        raise Refused(limit)
    open_stream = open_public(settings.webhook_allow)

    async def call() -> bool:
        result = await webhooks.test_call(webhook, clock=time.time, open_stream=open_stream)
        if result.outcome is HandoverOutcome.HANDED:
            print(f"{webhook.url} took the test message", file=sys.stderr)
            return True
        print(f"fieldagent: {webhook.url}: {escaped(result.reason)}", file=sys.stderr)
        return False

    return run_breakable(call)


def test(arguments: argparse.Namespace) -> int:
    """Send a test to a webhook. Returns REFUSED if it fails."""

    def call(settings: HubSettings, store: Store) -> int:
        workspace = store.once(lambda db: directory.workspace_of(db, arguments.workspace))
        webhook = store.once(lambda db: webhook_directory.named(db, workspace, arguments.id))
        return OK if _try(settings, store, workspace, webhook) else REFUSED

    return with_store(arguments, call)


def list(arguments: argparse.Namespace) -> int:  # noqa: A001
    """List the webhooks of a workspace, without their secrets."""

    def look(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        return show_list(arguments, webhook_directory.listing(db, workspace))

    return once(arguments, look)


def enable(arguments: argparse.Namespace) -> int:
    """Enable a webhook, and make its failed deliveries due at once."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        webhook_directory.enable(db, workspace, arguments.id, now=now)
        return show(arguments, {"id": arguments.id, "enabled": True})

    return once(arguments, change)


def secret(arguments: argparse.Namespace) -> int:
    """Sign with a new secret from now on, and print it."""
    try:
        signing = webhook_directory.new_secrets(" ".join(arguments.secret))
    except WrongProperty as wrong:
        print(f"fieldagent: --secret {wrong}", file=sys.stderr)
        return USAGE

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        webhook_directory.sign_with(
            db, workspace, arguments.id, signing, only=arguments.only, now=now
        )
        text = {"id": arguments.id, "secret": " ".join(signing)}
        return show(arguments, text, secret_names=("secret",))

    return once(arguments, change)


def remove(arguments: argparse.Namespace) -> int:
    """Remove a webhook with its waiting deliveries."""

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        webhook_directory.remove(db, workspace, arguments.id, now=now)
        return show(arguments, {"id": arguments.id, "removed": True})

    return once(arguments, change)


def dead(arguments: argparse.Namespace) -> int:
    """List the dead letters of webhooks, the newest first."""

    def look(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        return show_list(arguments, webhook_directory.dead_letters(db, workspace)[0])

    return once(arguments, look)


def replay(arguments: argparse.Namespace) -> int:
    """Post dead letters of webhooks again, one item or all, and print their number. Refused if
    there are none.
    """

    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, arguments.workspace)
        count = webhook_directory.replay(db, workspace, arguments.request_id, now=now)
        return show(arguments, {"replayed": count})

    return once(arguments, change)
