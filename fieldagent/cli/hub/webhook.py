"""`fieldagent hub webhook …`: webhooks that get the items of agents."""

from __future__ import annotations

import argparse
import sys
import time

from fieldagent.cli.ask_password import ask_password
from fieldagent.cli.hub.opened_store import (
    Call,
    Result,
    make_store_command,
    make_transaction,
    run_with_store,
    show,
)
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.records import sending
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Store
from fieldagent.hub.webhook import webhook_directory, webhooks
from fieldagent.hub.webhook.reach import open_public
from fieldagent.hub.webhook.webhook_directory import Webhook
from fieldagent.system.exit_codes import OK, REFUSED, USAGE
from fieldagent.system.properties import WrongProperty
from fieldagent.system.signals import run_breakable
from fieldagent.system.terminal import escape_line
from fieldagent.webhook.delivery import HandoverOutcome


def add(arguments: argparse.Namespace) -> int:
    """Add a webhook and print its secret. Unless --untried is set, test the webhook first, and do
    not add it if the test fails.
    """
    try:
        webhook = _read(arguments)
    except WrongProperty as wrong:
        print(f"fieldagent: {wrong}", file=sys.stderr)
        return USAGE

    def store_webhook(settings: HubSettings, store: Store) -> int:
        workspace = store.run_once(lambda db: directory.find_workspace(db, arguments.workspace))
        if not arguments.untried and not _try(settings, store, workspace, webhook):
            print(
                "fieldagent: nothing was added. Correct the fault above, or add the webhook "
                "without a test with --untried. If the receiver has a secret of its own, set "
                "it with --secret",
                file=sys.stderr,
            )
            return REFUSED
        id_ = store.run_once(
            lambda db: webhook_directory.add_webhook(db, workspace, webhook, now=time.time())
        )
        return show(arguments, {"id": id_, "secret": " ".join(webhook.secrets)})

    return run_with_store(arguments, store_webhook)


def _read(arguments: argparse.Namespace) -> Webhook:
    """Return the webhook that the arguments describe. Raises WrongProperty if one of the arguments
    is invalid.
    """
    headers = {}
    for header in arguments.header:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not header.isprintable():
            raise WrongProperty(f"--header must be NAME:VALUE, not {header!r}")
        headers[name.strip()] = value.strip()
    return webhook_directory.make_webhook(
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
    """Send a test delivery to the webhook, and print the result. Raises Refused if the daily limit
    is reached.
    """
    now = time.time()
    if limit := store.run_once(
        lambda db: sending.record_webhook_test(db, workspace, webhook.url, now)
    ):
        raise Refused(limit)
    open_stream = open_public(settings.webhook_allow)

    async def call() -> bool:
        result = await webhooks.test_call(webhook, clock=time.time, open_stream=open_stream)
        if result.outcome is HandoverOutcome.HANDED:
            print(f"{webhook.url} took the test message", file=sys.stderr)
            return True
        print(f"fieldagent: {webhook.url}: {escape_line(result.reason)}", file=sys.stderr)
        return False

    return run_breakable(call)


@make_store_command
def test(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> int:
    """Send a test delivery to a webhook. Return REFUSED if the test fails."""
    workspace = store.run_once(lambda db: directory.find_workspace(db, arguments.workspace))
    webhook = store.run_once(lambda db: webhook_directory.find_webhook(db, workspace, arguments.id))
    return OK if _try(settings, store, workspace, webhook) else REFUSED


@make_transaction
def list_webhooks(call: Call) -> Result:
    """List the webhooks of a workspace, without their secrets."""
    return webhook_directory.list_webhooks(*call.here)


@make_transaction
def enable(call: Call) -> Result:
    """Enable a webhook, and make its failed deliveries due immediately."""
    webhook_directory.enable_webhook(*call.here, call.arguments.id, now=call.now)
    return {"id": call.arguments.id, "enabled": True}


def set_secret(arguments: argparse.Namespace) -> int:
    """Sign with a new secret from now on, and print it."""
    try:
        signing = webhook_directory.read_or_make_secrets(" ".join(arguments.secret))
    except WrongProperty as wrong:
        print(f"fieldagent: --secret {wrong}", file=sys.stderr)
        return USAGE

    @make_transaction
    def change(call: Call) -> Result:
        number, only = arguments.id, arguments.only
        webhook_directory.sign_with(*call.here, number, signing, only=only, now=call.now)
        return {"id": number, "secret": " ".join(signing)}

    return change(arguments)


@make_transaction
def remove(call: Call) -> Result:
    """Remove a webhook with its waiting deliveries."""
    webhook_directory.remove_webhook(*call.here, call.arguments.id, now=call.now)
    return {"id": call.arguments.id, "removed": True}


@make_transaction
def list_dead(call: Call) -> Result:
    """List the dead letters of webhooks, the newest first."""
    return webhook_directory.list_dead_letters(*call.here)[0]


@make_transaction
def replay(call: Call) -> Result:
    """Post the dead letters of webhooks again, all or only those of one item, and print their
    number. Raises Refused if there are none.
    """
    count = webhook_directory.replay_dead_letters(
        *call.here, call.arguments.request_id, now=call.now
    )
    return {"replayed": count}
