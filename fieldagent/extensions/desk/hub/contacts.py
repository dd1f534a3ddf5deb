"""Contacts that the hub notifies of an SOS in addition to the console. Administrators and
dispatchers configure them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.extensions.desk.hub.browser import find_endpoint
from fieldagent.hub.access.directory import Refused, Row, check_name, insert_row
from fieldagent.hub.contact.contract import ContactKind, Own
from fieldagent.hub.contact.registry import Kinds, describe_missing_kind, get_contact_kinds
from fieldagent.hub.records.alarm import PUSH
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.store.contract import Db
from fieldagent.page.language import ENGLISH
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.span import format_span
from fieldagent.system.wording import sentence

BROWSERS_MAX = 20
"""Largest number of browsers of one dispatcher."""
CONTACTS_MAX = 200
"""Largest number of contacts that administrators can add to a workspace."""


class AlarmContact(NamedTuple):
    id: int
    workspace: int
    kind: str
    name: str
    address: str
    after: int
    """Seconds without an answer before the contact is notified; 0 if the contact is notified at
    once."""
    failing_since: float | None
    reason: str
    tries: int
    """Largest number of notifications until someone answers."""
    every: int
    """Seconds between two notifications."""
    about: str
    """Kinds of incidents that the contact is notified of, one of `alarm.INCIDENT_KINDS`."""
    quiet: str
    """The contact's own quiet hours (`records.quiet`)."""
    language: str
    """Language of the contact's notifications, one of `page.language.LANGUAGES`."""


_COLUMNS = (
    "id, workspace, kind, name, address, wait, failing_since, reason, tries, pause, about, quiet,"
    " language"
)
TRIES_MAX = 20
ATTEMPT_INTERVAL_S = 300
"""Default number of seconds between two notifications."""
WAIT_LEAST, WAIT_MOST = 10, 604_800
"""Smallest and largest number of seconds for `after` and `every`."""


class NewContact(NamedTuple):
    """A contact to add. `AlarmContact` explains the members."""

    name: str
    address: str
    kind: str = ""
    """Kind of the address. If it is empty, the address determines the kind."""
    after: int = 0
    tries: int = 1
    every: int = ATTEMPT_INTERVAL_S
    about: str = "all"
    language: str = ENGLISH


def find_kind(address: str, kinds: Kinds, settings: Own | None = None) -> ContactKind:
    """Return the kind of an address. If several kinds match, return the first kind that is
    configured in `settings`. Raises Refused if no kind matches.
    """
    fitting = [kind for kind in kinds.values() if kind.is_one(address)]
    if not fitting:
        address_forms = " nor ".join(
            dict.fromkeys(kind.form for kind in kinds.values() if kind.form)
        )
        raise Refused(
            sentence("{address} is neither {forms}", address=repr(address), forms=address_forms)
        )
    if settings is None:
        return fitting[0]
    return next((kind for kind in fitting if not kind.missing(settings)), fitting[0])


def add_contact(
    db: Db, workspace: int, new: NewContact, *, now: float, actor: str = ADMINISTRATION
) -> int:
    """Add a contact and return its id. Raises Refused with the reason if the contact is invalid, or
    if the workspace has CONTACTS_MAX contacts.
    """
    check_name(new.name)
    kind = new.kind or find_kind(new.address, get_contact_kinds()).name
    ((contact_count,),) = db.execute(
        "SELECT count(*) FROM alarm_contact WHERE workspace = ? AND kind <> ?", workspace, PUSH
    )
    if contact_count >= CONTACTS_MAX:
        raise Refused(
            sentence("a workspace can have {max} contacts at most: remove some", max=CONTACTS_MAX)
        )
    id_ = _insert(db, workspace, None, new._replace(kind=kind), now)
    write_line(db, workspace, actor, "contact add", f"{id_} {new.name} ({kind})", now)
    return id_


def _insert(db: Db, workspace: int, member: int | None, new: NewContact, now: float) -> int:
    return insert_row(
        db,
        "alarm_contact",
        workspace=workspace,
        member=member,
        kind=new.kind,
        name=new.name,
        address=new.address,
        wait=new.after,
        tries=new.tries,
        pause=new.every,
        about=new.about,
        language=new.language,
        created=now,
    )


def list_alarm_contacts(
    db: Db, workspace: int, kinds: Kinds | None = None, settings: Own | None = None
) -> list[Row]:
    """Return the contacts in the order of notification, without the secrets in their addresses. If
    `kinds` and `settings` are given, each row contains the known faults of the contact.
    """
    kinds_by_name = get_contact_kinds() if kinds is None else kinds
    return [_make_row(each, kinds_by_name, settings) for each in list_all(db, workspace)]


def _make_row(contact: AlarmContact, kinds: Kinds, settings: Own | None) -> Row:
    kind = kinds.get(contact.kind)
    return {
        "id": contact.id,
        "kind": contact.kind,
        "name": contact.name,
        "address": "" if kind is None else kind.shown(contact.address),
        "after": format_span(contact.after),
        "tries": contact.tries,
        "every": format_span(contact.every),
        "about": contact.about,
        "language": contact.language,
        "quiet": contact.quiet,
        "failingSince": contact.failing_since,
        "reason": contact.reason,
        "fault": find_fault(contact, kinds, settings),
    }


def find_fault(contact: AlarmContact, kinds: Kinds, settings: Own | None) -> str:
    """Return the reason why the contact could not be notified now, as far as known, or an empty
    string. `settings` are the settings of the kinds.
    """
    kind = kinds.get(contact.kind)
    if kind is None:
        return describe_missing_kind(contact.kind)
    missing = "" if settings is None else kind.missing(settings)
    return missing or contact.reason


def list_all(db: Db, workspace: int) -> list[AlarmContact]:
    """Return the contacts in the order of notification."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM alarm_contact WHERE workspace = ? ORDER BY wait, id", workspace
    )
    return [AlarmContact(*row) for row in rows]


def find_contact(db: Db, workspace: int, contact: int) -> AlarmContact:
    """Return the contact with this id. Raises Refused if the workspace has no such contact."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM alarm_contact WHERE id = ? AND workspace = ?", contact, workspace
    )
    if not rows:
        raise Refused(
            sentence(
                "no contact {contact} is in that workspace; see `fieldagent hub contact list`",
                contact=contact,
            )
        )
    return AlarmContact(*rows[0])


def remove_contact(
    db: Db, workspace: int, contact: int, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Remove a contact and everything that waits for the contact. Raises Refused if the workspace
    has no such contact.
    """
    entry = find_contact(db, workspace, contact)
    delete_contact(db, entry.id)
    write_line(db, workspace, actor, "contact remove", f"{entry.id} {entry.name}", now)


def delete_contact(db: Db, contact: int) -> None:
    """Delete a contact and everything that waits for the contact."""
    db.execute("DELETE FROM alarm_contact WHERE id = ?", contact)


def set_workspace_hours(
    db: Db, workspace: int, hours: str, now: float, *, actor: str = ADMINISTRATION
) -> None:
    """Set the quiet hours of a workspace, which apply to all contacts without their own quiet
    hours. An empty text removes the hours.
    """
    db.execute("UPDATE workspace SET quiet = ? WHERE id = ?", hours, workspace)
    write_line(db, workspace, actor, "quiet hours", hours or "none", now)


def set_contact_hours(
    db: Db, workspace: int, contact: int, hours: str, now: float, *, actor: str = ADMINISTRATION
) -> None:
    """Set the quiet hours of a contact. `NO_QUIET_HOURS`: the contact has none. An empty text: the
    hours of the workspace apply.
    """
    db.execute("UPDATE alarm_contact SET quiet = ? WHERE id = ?", hours, contact)
    detail = f"contact {contact}: {hours or 'as the workspace'}"
    write_line(db, workspace, actor, "quiet hours", detail, now)


def read_workspace_hours(db: Db, workspace: int) -> str:
    """Return the quiet hours of a workspace, or an empty text if it has none."""
    ((hours,),) = db.execute("SELECT quiet FROM workspace WHERE id = ?", workspace)
    return str(hours)


def record_attempt(db: Db, contact: int, reason: str, now: float) -> None:
    """Record the result of the last attempt to notify the contact. An empty `reason` means
    success.
    """
    since = "coalesce(failing_since, ?)" if reason else "NULL"
    db.execute(
        f"UPDATE alarm_contact SET failing_since = {since}, reason = ? WHERE id = ?",
        *([now] if reason else []),
        reason,
        contact,
    )


def add_browser(
    db: Db,
    workspace: int,
    member: int,
    name: str,
    subscription: str,
    *,
    now: float,
    language: str = ENGLISH,
) -> int:
    """Add a dispatcher's browser with its `subscription` (JSON), and return its id. If the browser
    exists already, change only its language. A dispatcher keeps only the newest BROWSERS_MAX
    browsers.
    """
    known_rows = db.execute(
        "SELECT id, workspace, member FROM alarm_contact WHERE kind = ? AND address = ?",
        *(PUSH, subscription),
    )
    for id_, *whose in known_rows:
        if whose == [workspace, member]:
            db.execute("UPDATE alarm_contact SET language = ? WHERE id = ?", language, id_)
            return int(id_)
        # Another user has signed in with this browser since then, so the old subscription is no
        # longer valid.
        delete_contact(db, id_)
    db.execute(
        "DELETE FROM alarm_contact WHERE id IN (SELECT id FROM alarm_contact WHERE member = ?"
        " AND kind = ? ORDER BY id DESC LIMIT 1000 OFFSET ?)",
        *(member, PUSH, BROWSERS_MAX - 1),
    )
    new = NewContact(name, subscription, PUSH, language=language)
    return _insert(db, workspace, member, new, now)


def list_subscriptions(db: Db, workspace: int, member: int) -> Sequence[tuple[int, Any]]:
    """Return the ids and endpoints of a member's browsers."""
    rows = db.execute(
        "SELECT id, address FROM alarm_contact WHERE workspace = ? AND member = ? AND kind = ?",
        *(workspace, member, PUSH),
    )
    browsers = [(id_, find_endpoint(address)) for id_, address in rows]
    return [(id_, endpoint) for id_, endpoint in browsers if endpoint]


def remove_browser(db: Db, workspace: int, member: int, endpoint: str) -> None:
    """Remove the member's browser with this endpoint, if there is one."""
    for id_, subscription in list_subscriptions(db, workspace, member):
        if subscription == endpoint:
            delete_contact(db, id_)
