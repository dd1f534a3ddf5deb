"""`fieldagent hub contact …`: who is told of an SOS beside the console."""

from __future__ import annotations

import argparse
import sys
import time
import uuid

from fieldagent.cli.hub.opened_store import once, show, show_list, with_store
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.escalation import contacts, notice
from fieldagent.hub.escalation.contract import ContactHost
from fieldagent.hub.escalation.known import contact_kinds, kind_of
from fieldagent.hub.settings import HubSettings
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.webhook.reach import open_public
from fieldagent.system.exit_codes import OK, REFUSED
from fieldagent.system.terminal import escaped
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult


def add(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        if fault := kind_of(given.address).fault_of(given.address):
            raise Refused(fault)
        id_ = contacts.add(db, workspace, given.name, given.address, after=given.after, now=now)
        return show(given, {"id": id_})

    return once(given, change)


def list(given: argparse.Namespace) -> int:  # noqa: A001
    def look(db: Db, now: float) -> int:
        return show_list(given, contacts.listing(db, directory.workspace_of(db, given.workspace)))

    return once(given, look)


def remove(given: argparse.Namespace) -> int:
    def change(db: Db, now: float) -> int:
        workspace = directory.workspace_of(db, given.workspace)
        contacts.remove(db, workspace, given.id, now=now)
        return show(given, {"id": given.id, "removed": True})

    return once(given, change)


def test(given: argparse.Namespace) -> int:
    """Tell it that this is a test, and show how that went."""

    def call(settings: HubSettings, store: Store) -> int:
        import trio

        async def hand_over() -> HandoverResult:
            async with trio.open_nursery() as nursery:
                # A kind may keep something of its own in the database, such as a key.
                nursery.start_soon(store.run)
                result = await send(contact.address, told)
                nursery.cancel_scope.cancel()
            return result

        workspace = store.once(lambda db: directory.workspace_of(db, given.workspace))
        contact = store.once(lambda db: contacts.named(db, workspace, given.id))
        host = ContactHost(store, settings, open_public(settings.webhook_allow), time.time)
        send = contact_kinds()[contact.kind].sender(host)
        told = notice.test(contact.name, str(uuid.uuid4()))
        result = trio.run(hand_over)
        taken = result.outcome is HandoverOutcome.HANDED
        reason = "" if taken else result.reason
        store.once(lambda db: contacts.note_end(db, contact.id, reason, time.time()))
        if not taken:
            print(f"fieldagent: {contact.name}: {escaped(reason)}", file=sys.stderr)
            return REFUSED
        print(f"{contact.name}: the test message was handed over", file=sys.stderr)
        return OK

    return with_store(given, call)
