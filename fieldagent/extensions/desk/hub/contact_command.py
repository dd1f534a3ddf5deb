"""`fieldagent hub contact …` and `contact chain …`: manages the people whom the hub notifies of an
SOS, and the steps of the notification.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from fieldagent.cli.hub.opened_store import (
    Call,
    Result,
    make_store_command,
    make_transaction,
    show_list,
)
from fieldagent.extensions.desk.hub import chain, contacts, notice
from fieldagent.extensions.desk.hub.contacts import AlarmContact, find_kind
from fieldagent.hub.access import directory
from fieldagent.hub.access.directory import Refused, Row
from fieldagent.hub.contact.contract import ContactHost, ContactKind
from fieldagent.hub.contact.registry import ContactSenders, get_contact_kinds
from fieldagent.hub.records import sending
from fieldagent.hub.settings import HubSettings, get_default_path
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.webhook.reach import open_public
from fieldagent.system.exit_codes import OK, REFUSED
from fieldagent.system.log_lines import print_failure
from fieldagent.system.signals import run_breakable
from fieldagent.system.terminal import escape_line
from fieldagent.webhook.delivery import HandoverOutcome, HandoverResult

T = TypeVar("T")


@make_store_command
def add(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> Result:
    """Add a contact, and print its number. Its address determines its kind. The contact is not
    notified until an SOS or `test`.
    """
    kind = find_kind(arguments.address, get_contact_kinds(settings.contacts), settings.contact_own)
    if fault := kind.fault_of(arguments.address) or _find_missing_setting(
        arguments, settings, kind
    ):
        raise Refused(fault)
    new = contacts.NewContact(
        arguments.name,
        arguments.address,
        kind=kind.name,
        after=arguments.after,
        tries=arguments.tries,
        every=arguments.every,
        about=arguments.about,
        language=arguments.language,
    )

    def add_contact(db: Db) -> int:
        workspace = directory.find_workspace(db, arguments.workspace)
        return contacts.add_contact(db, workspace, new, now=time.time())

    added = {"id": store.run_once(add_contact)}
    if missing := kind.missing(settings.contact_own):
        print(
            "Without the hub's settings file (--config), it is unknown whether this contact can be"
            f" reached. If the file names no service: {escape_line(missing)}.",
            file=sys.stderr,
        )
    return added


def _find_missing_setting(
    arguments: argparse.Namespace, settings: HubSettings, kind: ContactKind
) -> str:
    """Return the name of the setting that is missing for the kind, or "". If there is no settings
    file, the hub's settings are unknown.
    """
    if arguments.config is None and not get_default_path().exists():
        return ""
    missing = kind.missing(settings.contact_own)
    return missing and f"nothing was added: {missing}"


@make_store_command
def list_contacts(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> Result:
    """List the contacts in the order of their notification. If a contact cannot be notified, show
    the reason.
    """
    kinds, own = get_contact_kinds(settings.contacts), settings.contact_own
    return store.run_once(
        lambda db: contacts.list_alarm_contacts(
            db, directory.find_workspace(db, arguments.workspace), kinds, own
        )
    )


@make_store_command
def show_steps(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> int:
    """Show the chain, with a line for each contact. Fail if a step cannot work."""
    kinds, own = get_contact_kinds(settings.contacts), settings.contact_own
    steps = store.run_once(
        lambda db: chain.list_steps(
            db, directory.find_workspace(db, arguments.workspace), kinds, own
        )
    )
    if arguments.json:
        print(json.dumps(steps))
    else:
        show_list(arguments, [_make_row(step, each) for step in steps for each in step["contacts"]])
    broken = [step["step"] for step in steps if not step["works"]]
    for number in broken:
        print_failure(f"step {number} reaches no one: check its faults, and test it")
    return REFUSED if broken else OK


def _make_row(step: Row, contact: Row) -> Row:
    return {
        "step": step["step"],
        "after": step["after"],
        "works": "yes" if step["works"] else "NO",
        "contact": f"{contact['id']} {contact['name']}",
        "kind": contact["kind"],
        "tries": contact["tries"],
        "every": contact["every"],
        "about": contact["about"],
        "language": contact["language"],
        "fault": contact["fault"],
    }


@make_store_command
def test_steps(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> int:
    """Send a test notification to the whole chain, step by step, and show the results."""

    async def hand_over(reach: ContactSenders) -> Sequence[Row]:
        async def note_end(contact: AlarmContact, reason: str) -> None:
            await store.commit(
                lambda db: contacts.record_attempt(db, contact.id, reason, time.time())
            )

        return await chain.test_contacts(recipients, reach, note_end)

    def count(db: Db) -> Sequence[tuple[AlarmContact, str]]:
        workspace = directory.find_workspace(db, arguments.workspace)
        everybody = contacts.list_all(db, workspace)
        limit = partial(
            sending.record_message_or_refuse, db, workspace, kind=sending.TEST, now=time.time()
        )
        return [(each, limit(address=each.address)) for each in everybody]

    recipients = store.run_once(count)
    results = _run_with_reach(settings, store, hand_over)
    show_list(arguments, results)
    return OK if all(each["handedOver"] for each in results) else REFUSED


def _run_with_reach(
    settings: HubSettings, store: Store, use: Callable[[ContactSenders], Awaitable[T]]
) -> T:
    """Call `use` with the notification services. During the call, they can write to the store."""
    import trio

    async def run() -> T:
        async with trio.open_nursery() as nursery:
            # Run the store, because a kind of contact may store data in the database, such as a
            # key.
            nursery.start_soon(store.run)
            result = await use(ContactSenders(host, get_contact_kinds(settings.contacts)))
            nursery.cancel_scope.cancel()
        return result

    host = ContactHost(
        store,
        settings.contact_own,
        settings.console_address or "",
        open_public(settings.webhook_allow),
        time.time,
    )
    return run_breakable(run)


@make_transaction
def remove(call: Call) -> Result:
    """Remove the contact with the given number, and its waiting notifications."""
    contacts.remove_contact(*call.here, call.arguments.id, now=call.now)
    return {"id": call.arguments.id, "removed": True}


@make_store_command
def test(arguments: argparse.Namespace, settings: HubSettings, store: Store) -> int:
    """Send a test notification to a contact, and show the result."""

    async def hand_over(reach: ContactSenders) -> HandoverResult:
        message = notice.make_test_notice(contact.name, str(uuid.uuid4()), contact.language)
        return await reach.send_notice(contact.kind, contact.address, message)

    def find(db: Db) -> tuple[AlarmContact, str]:
        workspace = directory.find_workspace(db, arguments.workspace)
        contact = contacts.find_contact(db, workspace, arguments.id)
        limit = sending.record_message_or_refuse(
            db, workspace, contact.address, sending.TEST, time.time()
        )
        return contact, limit

    contact, limit = store.run_once(find)
    if limit:
        raise Refused(limit)
    result = _run_with_reach(settings, store, hand_over)
    is_taken = result.outcome is HandoverOutcome.HANDED
    reason = "" if is_taken else result.reason
    store.run_once(lambda db: contacts.record_attempt(db, contact.id, reason, time.time()))
    if not is_taken:
        print(f"fieldagent: {contact.name}: {escape_line(reason)}", file=sys.stderr)
        return REFUSED
    print(f"{contact.name}: the service accepted the test message", file=sys.stderr)
    return OK
