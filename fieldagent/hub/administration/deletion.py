"""Permanent deletion of a user, a device or a workspace, in three stages.

1. `begin_deletion` takes the subject out of use: its links end and its credentials become invalid.
2. `delete_items` and `empty_device` delete the rows of large tables in batches, so that a running
   hub can work in between. If a deletion is interrupted, it can be repeated.
3. `delete_remaining_rows` deletes the rest. The next message to a kit that knows a user's name also
   asks the kit to delete the name.

Copies at kits and in other places remain. `plan_deletion` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fieldagent.hub.access import directory
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.access.directory import Refused
from fieldagent.hub.access.subject import Subject, list_devices, list_workspaces
from fieldagent.hub.administration.acts import AdministrationContext
from fieldagent.hub.field.envelope_packing import forget_name
from fieldagent.hub.records import kit_report, sos
from fieldagent.hub.records.audit import ADMINISTRATION, AuditLine, write_lines
from fieldagent.hub.records.fragments import UNAUTHENTICATED_COLUMN
from fieldagent.hub.store.contract import Db
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import sentence

ROWS_PER_STEP = 500
"""Number of rows that one transaction examines or deletes in a table."""

COPIES = "copies of the database, exports and logs, which you must find yourself"
NOT_DELETED_TEXT = "items that kits and webhooks have received"


def plan_deletion(db: Db, subject: Subject) -> dict[str, Any]:
    """Return the data that will be deleted, and the data that will remain. Raises Refused if an SOS
    of the subject is not closed.
    """
    unanswered = db.execute(
        "SELECT id, kind FROM sos WHERE state <> 'closed' AND device IN"
        f" ({subject.devices}) ORDER BY id"
    )
    if unanswered:
        numbers = ", ".join(str(number) for number, _ in unanswered)
        raise Refused(
            sentence(
                "incident {numbers} of {kind} {name} is not closed: close it first, in the console"
                " or with `fieldagent hub {command} close {unanswered} REASON`",
                numbers=numbers,
                kind=subject.kind,
                name=subject.name,
                unanswered=unanswered[0][0],
                command=sos.SOS if unanswered[0][1] == sos.SOS else sos.ALARM,
            )
        )
    deleted = {
        "devices": _list_names(db, f"SELECT name FROM device WHERE id IN ({subject.devices})")
    }
    if subject.kind == "workspace":
        deleted["users"] = _list_names(
            db,
            f"SELECT name FROM member WHERE id IN ({_SELECT_IN_NO_OTHER_WORKSPACE})",
            subject.id,
            subject.id,
        )
    stays = [NOT_DELETED_TEXT, COPIES, "lines of the audit, by number, for keep-audit-days"]
    summary: dict[str, Any] = {"id": subject.id, "name": subject.name, "deletes": deleted}
    if subject.kind == "device":
        stays.insert(0, "the items that it sent, which belong to its user")
    else:
        summary["items"] = sum(
            _count(db, f"SELECT count(*) FROM item WHERE {condition}", *parameters)
            for condition, parameters in subject.counted
        )
    if subject.kind == "user":
        summary["workspaces"] = _list_names(
            db,
            "SELECT name FROM workspace WHERE id IN"
            " (SELECT workspace FROM membership WHERE member = ?)",
            subject.id,
        )
        stays.insert(0, "their number in the timelines of others' SOS")
    of_subject = f"SELECT count(*) FROM sos WHERE device IN ({subject.devices}) AND kind"
    summary["sos"] = _count(db, f"{of_subject} = '{sos.SOS}'")
    summary["alarms"] = _count(db, f"{of_subject} <> '{sos.SOS}'")
    return {**summary, "stays": stays}


def _list_names(db: Db, sql: str, *parameters: Any) -> list[str]:
    return [str(name) for (name,) in db.execute(f"{sql} ORDER BY id", *parameters)]


def _count(db: Db, sql: str, *parameters: Any) -> int:
    return int(db.execute(sql, *parameters)[0][0])


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


LINKS_END = Pause(5.0)
"""Pause of 5 seconds, within which every hub process learns that a link must end."""

Step = Callable[[Db], Any]


def list_steps(
    subject: Subject, linked: bool, clock: Callable[[], float], actor: str = ADMINISTRATION
) -> Generator[Step | Pause, Any, None]:
    """Yield the steps after `begin_deletion`, which returned `linked`. The caller waits for a
    Pause. It runs each other step in a separate transaction, and sends its result to the generator.
    """
    if linked:
        yield LINKS_END
    place: int | None = 0
    while place is not None:
        place = yield partial(delete_items, subject=subject, after=place)
    devices = yield partial(list_devices, subject=subject)
    for device in devices:
        while (yield partial(empty_device, device=device)):
            pass
    yield lambda db: delete_remaining_rows(db, subject, clock(), actor)


def begin_deletion(db: Db, subject: Subject, now: float, actor: str = ADMINISTRATION) -> bool:
    """Take the subject out of use. Return True if a hub process still serves a link of the subject.
    Such a link ends within `LINKS_END`.
    """
    linked = bool(db.execute(f"SELECT 1 FROM lease WHERE device IN ({subject.devices}) LIMIT 1"))
    if subject.kind == "user":
        directory.set_disabled(db, "member", subject.id, now, now=now, actor=actor)
        return linked
    for (device,) in db.execute(subject.devices):
        directory.set_disabled(db, "device", device, now, now=now, actor=actor)
    if subject.kind == "workspace":
        db.execute("DELETE FROM credential WHERE workspace = ?", subject.id)
        db.execute("UPDATE webhook SET disabled = ? WHERE workspace = ?", now, subject.id)
    return linked


def delete_items(db: Db, subject: Subject, after: int) -> int | None:
    """Examine the next items after the id `after`, and delete those of the subject. Return the last
    id that was examined, or None if there are no more items.
    """
    if subject.kind == "device":
        return None
    ((last,),) = db.execute(
        "SELECT max(id) FROM (SELECT id FROM item WHERE id > ? ORDER BY id LIMIT ?) AS looked",
        after,
        ROWS_PER_STEP,
    )
    if last is None:
        return None
    condition, parameters = subject.items
    db.execute(
        f"DELETE FROM item WHERE id > ? AND id <= ? AND {condition}", after, last, *parameters
    )
    return int(last)


_OF_A_DEVICE = (
    ("delivery", "item", "1 = 1"),
    ("arrived", f"{UNAUTHENTICATED_COLUMN}, sequence, digest", "1 = 1"),
    ("receipt", "id", "state = 'waiting'"),
    ("receipt", "id", "state = 'sent'"),
    ("slice", f"{UNAUTHENTICATED_COLUMN}, sequence, count, position", "1 = 1"),
    ("mobile_terminated", "id", "1 = 1"),
    ("dead_letter", "id", "1 = 1"),
)
"""Tables in which a device can have many rows. Each has its name, further columns of its key, and a
condition on the rows that the index contains."""


def empty_device(db: Db, device: int) -> int:
    """Delete some rows of a device and return their number. Repeat the call until the number is
    0.
    """
    return sum(
        len(
            db.execute(
                f"DELETE FROM {table} WHERE device = ? AND {which} AND ({names}) IN"
                f" (SELECT {names} FROM {table} WHERE device = ? AND {which}"
                f" LIMIT {ROWS_PER_STEP}) RETURNING device",
                device,
                device,
            )
        )
        for table, names, which in _OF_A_DEVICE
    )


def delete_remaining_rows(
    db: Db, subject: Subject, now: float, actor: str = ADMINISTRATION
) -> None:
    """Delete the remaining rows of the subject, and replace its names in the audit log by ids."""
    deleted_devices, workspaces = list_devices(db, subject), list_workspaces(db, subject)
    users = [subject.id] if subject.kind == "user" else []
    if subject.kind == "workspace":
        users = [
            member
            for (member,) in db.execute(_SELECT_IN_NO_OTHER_WORKSPACE, subject.id, subject.id)
        ]
    for device in deleted_devices:
        db.execute("DELETE FROM device WHERE id = ?", device)
    _replace_names(db, ("device add", "device imei", "device rename"), deleted_devices)
    for member in users:
        forget_name(db, member)
        for (workspace,) in db.execute("SELECT workspace FROM membership WHERE member = ?", member):
            kit_report.touch_directory(db, workspace)
        # A read receipt contains the reader's name, so delete the receipts too.
        db.execute("DELETE FROM reached WHERE member = ?", member)
        db.execute("DELETE FROM member WHERE id = ?", member)
        db.execute(
            "UPDATE audit SET detail = ? WHERE action = 'token add' AND detail LIKE ?",
            f"of {member}",
            f"% of {member}",
        )
    _replace_names(db, ("user add",), users)
    if subject.kind == "workspace":
        db.execute("DELETE FROM workspace WHERE id = ?", subject.id)
        _replace_names(db, ("workspace add",), [subject.id])
    lines = [
        AuditLine(workspace, actor, f"{subject.kind} delete", str(subject.id))
        for workspace in workspaces
    ]
    write_lines(db, lines, now)


_SELECT_IN_NO_OTHER_WORKSPACE = (
    "SELECT id FROM member WHERE id IN (SELECT member FROM membership WHERE workspace = ?)"
    " AND NOT EXISTS (SELECT 1 FROM workspace AS other WHERE other.id <> ? AND (EXISTS (SELECT 1"
    " FROM membership WHERE membership.workspace = other.id AND membership.member = member.id)"
    " OR EXISTS (SELECT 1 FROM device WHERE device.workspace = other.id"
    " AND device.member = member.id) OR EXISTS (SELECT 1 FROM item"
    " WHERE item.workspace = other.id AND item.sender = member.id)))"
)
"""SQL: users who do not appear in any other workspace."""


def _replace_names(db: Db, actions: Sequence[str], ids: Sequence[int]) -> None:
    """Remove names and IMEIs from audit lines, so that only ids remain. One pass is sufficient for
    all ids.
    """
    deleted_ids = {str(id_) for id_ in ids}
    for action in actions if deleted_ids else ():
        for line, detail in db.execute("SELECT id, detail FROM audit WHERE action = ?", action):
            number, member_name, _ = detail.partition(" ")
            if member_name and number in deleted_ids:
                db.execute("UPDATE audit SET detail = ? WHERE id = ?", number, line)


async def delete_subject(
    acts: AdministrationContext, caller: Caller, find: Callable[[Db, float], Subject]
) -> None:
    """Delete the subject that `find` returns, in several transactions. If the call is interrupted,
    a repeated call continues the deletion.
    """
    actor = str(caller.member)

    def begin(db: Db, now: float) -> tuple[Subject, bool]:
        subject = find(db, now)
        plan_deletion(db, subject)
        return subject, begin_deletion(db, subject, now, actor)

    subject, linked = await acts.carry_out(caller, begin)
    steps, result = list_steps(subject, linked, acts.clock, actor), None
    with suppress(StopIteration):
        while True:
            step = steps.send(result)
            if isinstance(step, Pause):
                await waits.sleep(step.seconds)
            else:
                result = await acts.store.commit(step)
