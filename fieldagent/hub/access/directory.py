"""Directory of workspaces, members and their devices.

Each function is one operation for `Store.commit`, `read` or `once`. The functions raise Refused
with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access import imei_claims, secret, sessions
from fieldagent.hub.access.user_names import (
    NAME_CHARACTERS_MAX,
    find_form_fault,
    find_name_fault,
)
from fieldagent.hub.contract import Device, Revoked, UnknownDevice, parse_id
from fieldagent.hub.operator.registry import DEFAULT
from fieldagent.hub.records import kit_report, lease, operator_trouble, shifts, workspace_log
from fieldagent.hub.records.audit import ADMINISTRATION, AuditLine, write_line, write_lines
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

TYPES = ("User", "Device", "Integration", "Resource")

ONE_TIME_LIFETIME_S = 7 * 86_400.0
"""Seconds for which a one-time password is valid that another person has created."""
IMEI = re.compile(r"[0-9]{15}", re.ASCII)

Row = dict[str, Any]


class Refused(Exception):
    """Error: the request is refused. The text contains the reason and the fix."""


SYNTHETIC = "synthetic items of the hub"
"""Name of the workspace that `service.synthetic_item` uses. This workspace has no users."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_name(name: str) -> None:
    """Check that a name is one line of 1 to 80 visible characters. Raises Refused otherwise."""
    if not name.strip() or len(name) > NAME_CHARACTERS_MAX or _CONTROL.search(name):
        raise Refused(
            sentence(
                "a name must have 1 to {most} characters in one line", most=NAME_CHARACTERS_MAX
            )
        )


def add_workspace(db: Db, name: str, *, now: float) -> int:
    """Add a workspace and return its id. Raises Refused if the name is taken."""
    check_name(name)
    if _change_one(db, "SELECT id FROM workspace WHERE name = ?", name):
        raise Refused(sentence("workspace {name} already exists", name=repr(name)))
    id_ = insert_row(db, "workspace", name=name, created=now)
    write_line(db, id_, ADMINISTRATION, "workspace add", f"{id_} {name}", now)
    return id_


def list_workspaces(db: Db) -> list[Row]:
    """Return all workspaces, ordered by id, with the numbers of members and devices."""
    return make_named_rows(
        db,
        "SELECT id, name, (SELECT count(*) FROM membership WHERE workspace = workspace.id)"
        " AS members, (SELECT count(*) FROM device WHERE workspace = workspace.id) AS devices"
        " FROM workspace ORDER BY id",
        ("id", "name", "members", "devices"),
    )


def find_workspace(db: Db, name_or_id: str) -> int:
    """Return the id of the workspace with this id or name. If the text is empty, return the only
    workspace. Raises Refused if there is no match or, without a text, more than one workspace.
    """
    if not name_or_id:
        rows = db.execute("SELECT id FROM workspace WHERE name <> ? LIMIT 2", SYNTHETIC)
        if len(rows) != 1:
            raise Refused(
                "name the workspace with --workspace: `fieldagent hub workspace list` shows all"
            )
        return int(rows[0][0])
    return _find_by_number_or(db, "workspace", "name", name_or_id)


def add_user(
    db: Db,
    workspace: int,
    name: str,
    *,
    type_: str = "User",
    email: str = "",
    password: str | None = None,
    until: float | None = None,
    over_satellite: bool = False,
    now: float,
    actor: str = ADMINISTRATION,
) -> int:
    """Add a user to a workspace and return the user's id, which is the userId of the push API.
    `password` is a hash from `system.scrypt`. If `until` is not None, the password is valid for one
    sign-in before that Unix time.
    """
    check_name(name)
    # Users may type their address with capital letters when they sign in.
    email = email.lower()
    if fault := find_form_fault(name, email):
        raise Refused(fault)
    if email and _change_one(db, "SELECT id FROM member WHERE lower(email) = ?", email):
        raise Refused(
            sentence(
                "a user with {email} already exists; add them to a workspace with `fieldagent"
                " hub user join`",
                email=email,
            )
        )
    if type_ == "User" and (name_fault := find_name_fault(db, workspace, name)):
        raise Refused(name_fault)
    id_ = insert_row(
        db,
        "member",
        type=type_,
        name=name,
        email=email,
        password=password,
        password_until=until,
        created=now,
    )
    add_member(db, workspace, id_, over_satellite=over_satellite, now=now, actor=actor)
    write_line(db, workspace, actor, "user add", f"{id_} {type_} {name}", now)
    return id_


def add_member(
    db: Db,
    workspace: int,
    member: int,
    *,
    over_satellite: bool,
    now: float,
    actor: str = ADMINISTRATION,
) -> None:
    """Add a member, or change `over_satellite` of a member. The devices of a new member do not get
    earlier items.
    """
    if not is_member(db, workspace, member):
        workspace_log.skip_to_end(db, workspace, member)
    db.execute(
        "INSERT INTO membership (workspace, member, over_satellite) VALUES (?, ?, ?)"
        " ON CONFLICT (workspace, member) DO UPDATE SET over_satellite = excluded.over_satellite",
        workspace,
        member,
        int(over_satellite),
    )
    write_line(db, workspace, actor, "user join", f"{member} in workspace {workspace}", now)
    kit_report.touch_directory(db, workspace)


def remove_member(db: Db, workspace: int, member: int, *, now: float) -> None:
    """Remove a member from a workspace and its groups. Items that the member's devices have not
    fetched yet remain deliverable to them.
    """
    owned = "SELECT id FROM device WHERE workspace = ? AND member = ?"
    for (device,) in db.execute(owned, workspace, member):
        workspace_log.create_all_rows(db, device, now)
    db.execute("DELETE FROM membership WHERE workspace = ? AND member = ?", workspace, member)
    db.execute(
        "DELETE FROM team_member WHERE member = ? AND team IN"
        " (SELECT id FROM team WHERE workspace = ?)",
        *(member, workspace),
    )
    write_line(
        db, workspace, ADMINISTRATION, "user leave", f"{member} in workspace {workspace}", now
    )
    shifts.end_member_shifts(db, member, now)
    kit_report.touch_directory(db, workspace)


def set_role(
    db: Db, workspace: int, member: int, role: str, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Change the role of a member (see `caller.ROLES`)."""
    if role != "member" and not is_person(db, member):
        raise Refused(
            sentence("{member} is not a User: a {role} must be a person", member=member, role=role)
        )
    db.execute(
        "UPDATE membership SET role = ? WHERE workspace = ? AND member = ?", role, workspace, member
    )
    write_line(db, workspace, actor, f"user role {role}", f"{member} in workspace {workspace}", now)
    shifts.end_member_shifts(db, member, now)


def set_password(
    db: Db,
    member: int,
    password_hash: str,
    *,
    until: float | None = None,
    now: float,
    actor: str = ADMINISTRATION,
) -> None:
    """Set the password of a member. If `until` is not None, the password is valid for one sign-in
    before that Unix time, after which the member chooses another password. If another person sets
    the password, the member's passkeys are deleted, because the member may have lost the device
    with the passkeys.
    """
    if actor != str(member):
        db.execute("DELETE FROM passkey WHERE member = ?", member)
    db.execute(
        "UPDATE member SET password = ?, password_until = ? WHERE id = ?",
        password_hash,
        until,
        member,
    )
    sessions.end_all_sessions(db, member)
    audit_member(db, member, actor, "user password", str(member), now)


def must_choose_password(db: Db, member: int) -> bool:
    """Return True if the member's password is valid for one sign-in only."""
    return _change_one(
        db, "SELECT 1 FROM member WHERE id = ? AND password_until IS NOT NULL", member
    )


def list_users(db: Db, workspace: int) -> list[Row]:
    """Return the members of a workspace in the order of their ids. `disabled` is the Unix time when
    the member was disabled, or None.
    """
    return make_named_rows(
        db,
        "SELECT member.id, type, name, email, role, over_satellite, password IS NOT NULL, disabled"
        " FROM member JOIN membership ON membership.member = member.id"
        " WHERE membership.workspace = ? ORDER BY member.id",
        ("id", "type", "name", "email", "role", "overSatellite?", "password?", "disabled"),
        workspace,
    )


def check_only_workspace(db: Db, workspace: int, member: int) -> None:
    """Raise Refused if the member also belongs to another workspace."""
    if _change_one(
        db,
        "SELECT 1 FROM membership WHERE member = ? AND workspace <> ?"
        " UNION ALL SELECT 1 FROM device WHERE member = ? AND workspace <> ?",
        *(member, workspace, member, workspace),
    ):
        raise Refused(
            sentence(
                "user {member} is also in another workspace: only the operator of the hub can"
                " do that, with `fieldagent hub`",
                member=member,
            )
        )


def is_person(db: Db, member: int) -> bool:
    """Return True if the member is a User, not an Integration, a Device or a Resource."""
    return _change_one(db, "SELECT 1 FROM member WHERE id = ? AND type = 'User'", member)


def is_known(db: Db, member: int) -> bool:
    """Return True if a user with this id exists in any workspace."""
    return _change_one(db, "SELECT 1 FROM member WHERE id = ?", member)


def is_member(db: Db, workspace: int, member: int) -> bool:
    """Return True if the user is in the workspace. The user may be disabled."""
    return _change_one(
        db, "SELECT 1 FROM membership WHERE workspace = ? AND member = ?", workspace, member
    )


def find_member(db: Db, workspace: int, name_or_id: str) -> int:
    """Return the member of the workspace with this id, email address or name. Upper and lower case
    matter only if several names are otherwise equal. Raises Refused if several members match.
    """
    users, like = list_users(db, workspace), name_or_id.casefold()
    for matches in (
        [row for row in users if name_or_id == str(row["id"])],
        [row for row in users if name_or_id == row["name"] or like == row["email"].casefold()],
        [row for row in users if like == row["name"].casefold()],
    ):
        if len(matches) == 1:
            return int(matches[0]["id"])
        if matches:
            ids = " or ".join(str(row["id"]) for row in matches)
            raise Refused(
                sentence(
                    "{found} users have the name {named}: use a number, {ids}",
                    found=len(matches),
                    named=repr(name_or_id),
                    ids=ids,
                )
            )
    raise Refused(
        sentence(
            "no user {named} is in that workspace; see `fieldagent hub user list`",
            named=repr(name_or_id),
        )
    )


class NewDevice(NamedTuple):
    """Values of a device to add, as in `Device`."""

    name: str
    imei: str | None = None
    operator: str | None = None
    thing: str | None = None
    air_key: bytes | None = None
    credits_per_day: int | None = None
    sos_reserve: int = 0
    relay: bool = False


def add_device(
    db: Db,
    workspace: int,
    member: int,
    new: NewDevice,
    *,
    now: float,
    actor: str = ADMINISTRATION,
) -> tuple[int, str]:
    """Add a device. Return its id and its link token, which is shown only once. If a device of
    another workspace has the IMEI, the IMEI is contested. The new device then has no IMEI until the
    operator decides.
    """
    imei = new.imei
    contested = imei is not None and is_contested(db, imei, workspace, actor=actor)
    _check_device_name(db, workspace, new.name)
    token = secret.make_secret("link")
    id_ = insert_row(
        db,
        "device",
        workspace=workspace,
        member=member,
        name=new.name,
        imei=None if contested else imei,
        operator=new.operator or (DEFAULT if imei else None),
        thing=new.thing or "",
        link_token=secret.hash_for_lookup(token),
        air_key=new.air_key,
        credits_per_day=new.credits_per_day,
        sos_reserve=new.sos_reserve,
        relay=int(new.relay),
        **workspace_log.read_ends(db, workspace),
        created=now,
    )
    write_line(db, workspace, actor, "device add", f"{id_} {new.name}", now)
    kit_report.touch_directory(db, workspace)
    if imei is not None and contested:
        imei_claims.store_claim(db, id_, imei, now=now, actor=actor)
    return id_, token


def _check_device_name(db: Db, workspace: int, name: str, device: int = 0) -> None:
    """Raise Refused if the name is invalid, or if a device other than `device` has it."""
    check_name(name)
    same_name_query = "SELECT id FROM device WHERE workspace = ? AND name = ? AND id <> ?"
    if _change_one(db, same_name_query, workspace, name, device):
        raise Refused(sentence("a device {name} is already in that workspace", name=repr(name)))


def rename_device(
    db: Db, device: int, name: str, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Rename a device, also in kits' directories. Raises Refused if the name is taken."""
    ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
    _check_device_name(db, workspace, name, device)
    db.execute("UPDATE device SET name = ? WHERE id = ?", name, device)
    write_line(db, workspace, actor, "device rename", f"{device} {name}", now)
    kit_report.touch_directory(db, workspace)


def is_contested(db: Db, imei: str, workspace: int, device: int = 0, *, actor: str) -> bool:
    """Return True if a device of another workspace has the IMEI. Raises Refused if the IMEI is
    invalid or a device of this workspace has it. If the actor is the hub's operator, who decides
    about a contested IMEI, raise Refused instead of returning True.
    """
    if not IMEI.fullmatch(imei):
        raise Refused(sentence("{imei} is not an IMEI: an IMEI has 15 digits", imei=repr(imei)))
    if (holder := imei_claims.find_holder(db, imei, device)) is None:
        return False
    if actor == ADMINISTRATION:
        raise Refused(
            sentence(
                "device {device} of workspace {workspace} already has the IMEI {imei}: move it"
                " with `fieldagent hub device imei NAME IMEI --take`",
                device=holder.device,
                workspace=holder.workspace,
                imei=imei,
            )
        )
    if holder.workspace == workspace:
        raise Refused(sentence("another device already has the IMEI {imei}", imei=imei))
    return True


def set_air_key(
    db: Db, device: int, key: bytes | None, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Set the device's satellite key (None: remove it). Clear a recorded problem with the key."""
    db.execute("UPDATE device SET air_key = ?, key_trouble = '' WHERE id = ?", key, device)
    state = "removed" if key is None else "set"
    audit_device(db, device, actor, "device key", f"{device} {state}", now)


def set_relay(
    db: Db, device: int, is_allowed: bool, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Allow or forbid a device to relay items of other members of its workspace."""
    db.execute("UPDATE device SET relay = ? WHERE id = ?", int(is_allowed), device)
    action = f"device relay {'on' if is_allowed else 'off'}"
    audit_device(db, device, actor, action, str(device), now)


def make_link_token(db: Db, device: int, *, now: float, actor: str = ADMINISTRATION) -> str:
    """Create a link token and return it. The token is shown only once. The old token becomes
    invalid, and the link that uses it ends.
    """
    token = secret.make_secret("link")
    db.execute(
        "UPDATE device SET link_token = ?, place = CASE WHEN link_token IS NULL THEN"
        " (SELECT posted FROM workspace WHERE workspace.id = device.workspace) ELSE place END,"
        " tracked = CASE WHEN link_token IS NULL THEN"
        " (SELECT tracked FROM workspace WHERE workspace.id = device.workspace) ELSE tracked END"
        " WHERE id = ?",
        *(secret.hash_for_lookup(token), device),
    )
    lease.remove_lease(db, device)
    audit_device(db, device, actor, "device token", str(device), now)
    return token


_DEVICE_COLUMNS = {
    "id": "device.id",
    "name": "device.name",
    "user": "device.member",
    "userName": "member.name",
    "linked?": lease.IS_LINKED,
    "lastContact": "contact.at",
    "waiting": "(SELECT count(*) FROM delivery WHERE delivery.device = device.id"
    " AND delivery.state IN ('waiting', 'packed'))"
    f" + (SELECT count(*) FROM ({workspace_log.SELECT_AWAITED}) AS awaited)",
    "deadLetters": "(SELECT count(*) FROM dead_letter WHERE dead_letter.device = device.id)",
    "disabled": "device.disabled",
    "revoked": "device.revoked",
    "revokedWhy": "device.revoked_why",
    "keyTrouble": "key_trouble",
    "satelliteTrouble": operator_trouble.DEVICE_REASON_SQL,
    "contested": imei_claims.CONTESTED_TEXT,
    "version": "contact.version",
    "imei": "imei",
    "operator": "operator",
    "tagged?": "air_key IS NOT NULL",
    "relay?": "relay = 1",
    "creditsPerDay": "credits_per_day",
    "sosReserve": "sos_reserve",
    "lastUpdate": "contact.last_update",
    "settings": kit_report.SETTINGS,
}
"""SQL of each column of `list_devices`. On a narrow terminal, only the first columns are shown."""


def list_devices(db: Db, workspace: int, now: float) -> list[Row]:
    """Return the devices of a workspace, ordered by id, with their state at time `now`."""
    return make_named_rows(
        db,
        f"SELECT {', '.join(_DEVICE_COLUMNS.values())} FROM device"
        " JOIN member ON member.id = device.member"
        " LEFT JOIN contact ON contact.device = device.id WHERE device.workspace = ?"
        " ORDER BY device.id",
        tuple(_DEVICE_COLUMNS),
        now,
        now,
        workspace,
    )


def find_device_named(db: Db, workspace: int, name_or_id: str) -> int:
    """Return the id of the device with this id, name or IMEI in a workspace. Raises Refused if no
    device matches.
    """
    of_workspace = "SELECT id, name, imei FROM device WHERE workspace = ? ORDER BY id"
    devices = db.execute(of_workspace, workspace)
    # Try a number as an id first, even if it is also the name of another device.
    ids = {str(id_): id_ for id_, _, _ in reversed(devices)}
    ids_by_name = {name: id_ for id_, name, _ in reversed(devices)}
    ids_by_imei = {imei: id_ for id_, _, imei in reversed(devices)}
    for ids_by_key in (ids, ids_by_name, ids_by_imei):
        if name_or_id in ids_by_key:
            return int(ids_by_key[name_or_id])
    raise Refused(
        sentence(
            "no device {named} is in that workspace; see `fieldagent hub device list`",
            named=repr(name_or_id),
        )
    )


def set_disabled(
    db: Db,
    table: str,
    id_: int,
    when: float | None,
    *,
    now: float,
    actor: str = ADMINISTRATION,
) -> list[int]:
    """Disable a `member` or `device` at the Unix time `when`, or enable it if `when` is None.
    Return the devices that changed. The devices of a member are disabled and enabled together with
    the member. Devices that were disabled before stay disabled.
    """
    assert table in ("member", "device")
    if table == "device":
        devices = _disable_device(db, id_, when, now)
    else:
        devices = _disable_devices_of(db, id_, when, now)
        db.execute("UPDATE member SET disabled = ? WHERE id = ?", when, id_)
        sessions.end_all_sessions(db, id_)
        shifts.end_member_shifts(db, id_, now)
    for device in devices:
        lease.remove_lease(db, device)
    note_it = audit_device if table == "device" else audit_member
    note_it(db, id_, actor, f"{table} {'enable' if when is None else 'disable'}", str(id_), now)
    return devices


def _disable_device(db: Db, device: int, when: float | None, now: float) -> list[int]:
    if when is None and (
        disabled_rows := db.execute(
            "SELECT member.id FROM member JOIN device ON device.member = member.id"
            " WHERE device.id = ? AND member.disabled IS NOT NULL",
            device,
        )
    ):
        raise Refused(
            sentence(
                "the user of this device is disabled, and so are the user's devices: "
                "enable the user, here or with"
                " `fieldagent hub user enable {whose}`",
                whose=disabled_rows[0][0],
            )
        )
    revoked = "SELECT 1 FROM device WHERE id = ? AND revoked IS NOT NULL"
    if when is None and _change_one(db, revoked, device):
        raise Refused(
            sentence(
                "device {device} is revoked and therefore disabled: restore it with `fieldagent"
                " hub device restore {device}`",
                device=device,
            )
        )
    if when is None:
        workspace_log.create_rows_until_disabled(db, device, now)
    db.execute("UPDATE device SET disabled = ? WHERE id = ?", when, device)
    return [device]


def _disable_devices_of(db: Db, member: int, when: float | None, now: float) -> list[int]:
    which = (
        "disabled IS NULL"
        if when is not None
        else "revoked IS NULL"
        " AND disabled = (SELECT disabled FROM member WHERE member.id = device.member)"
    )
    if when is None:
        for (device,) in db.execute(f"SELECT id FROM device WHERE member = ? AND {which}", member):
            workspace_log.create_rows_until_disabled(db, device, now)
    changed = db.execute(
        f"UPDATE device SET disabled = ? WHERE member = ? AND {which} RETURNING id", when, member
    )
    return [device for (device,) in changed]


def audit_device(db: Db, device: int, actor: str, action: str, detail: str, now: float) -> None:
    """Write an audit line about a device. If the directory changes, notify kits."""
    ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
    write_line(db, workspace, actor, action, detail, now)
    if action in CHANGES_DIRECTORY:
        kit_report.touch_directory(db, workspace)


CHANGES_DIRECTORY = (
    *("device disable", "device enable", "device revoke", "device restore"),
    *("member disable", "member enable"),
)
"""Actions on a device or a member that change the directory."""


def audit_member(db: Db, member: int, actor: str, action: str, detail: str, now: float) -> None:
    """Write an audit line in each workspace of a member, because the action affects them all."""
    rows = db.execute("SELECT workspace FROM membership WHERE member = ?", member)
    lines = [AuditLine(workspace, actor, action, detail) for (workspace,) in rows or [(None,)]]
    write_lines(db, lines, now)
    if action in CHANGES_DIRECTORY:
        for (workspace,) in rows:
            kit_report.touch_directory(db, workspace)


_DEVICE = "SELECT id, workspace, member, name, imei FROM device WHERE "
IS_ACCEPTED = "(device.disabled IS NULL OR device.revoked IS NOT NULL)"
"""SQL condition: the hub processes messages from the `device`. From a revoked device, the hub
accepts only an SOS (`access.revocation`)."""


def find_device_of_token(db: Db, token: str) -> Device:
    """Return the device with this link token. Raises UnknownDevice, or Revoked if its kit is
    revoked.
    """
    lookup = secret.hash_for_lookup(token)
    try:
        return _read_device(db, "link_token = ?", lookup)
    except UnknownDevice:
        if _change_one(
            db, "SELECT 1 FROM device WHERE link_token = ? AND revoked IS NOT NULL", lookup
        ):
            raise Revoked from None
        raise


def find_device_of_imei(db: Db, imei: str) -> Device:
    """Return the enabled or revoked device with this IMEI. Raises UnknownDevice."""
    return _read_device(db, "imei = ?", imei, state_condition=IS_ACCEPTED)


def find_accepted_device(db: Db, device: int) -> Device:
    """Return the enabled or revoked device with this id. Raises UnknownDevice."""
    return _read_device(db, "id = ?", device, state_condition=IS_ACCEPTED)


def find_disabled_device(db: Db, imei: str) -> int | None:
    """Return the id of the disabled device with this IMEI, or None if there is none."""
    rows = db.execute("SELECT id FROM device WHERE imei = ? AND disabled IS NOT NULL", imei)
    return rows[0][0] if rows else None


def find_device(db: Db, id_: int) -> Device:
    """Return the enabled device with this id. Raises UnknownDevice."""
    return _read_device(db, "id = ?", id_)


def _read_device(
    db: Db, condition: str, value: str | int, *, state_condition: str = "disabled IS NULL"
) -> Device:
    rows = db.execute(f"{_DEVICE}{state_condition} AND {condition}", value)
    if not rows:
        raise UnknownDevice
    return Device(*rows[0])


def insert_row(db: Db, table: str, **values: Any) -> int:
    """Insert a row and return its id. Table and column names become part of the SQL unchanged."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    ((id_,),) = db.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id", *values.values()
    )
    return int(id_)


def _change_one(db: Db, sql: str, *parameters: Any) -> bool:
    return bool(db.execute(sql, *parameters))


def make_named_rows(db: Db, sql: str, names: Sequence[str], *parameters: Any) -> list[Row]:
    """Run an SQL query, and return each row as a dictionary by `names`. If a name ends in `?`, its
    value becomes a bool, because the database engines represent truth values differently.
    """
    return [
        {
            name.rstrip("?"): bool(value) if name.endswith("?") else value
            for name, value in zip(names, row, strict=True)
        }
        for row in db.execute(sql, *parameters)
    ]


def _find_by_number_or(db: Db, table: str, column: str, name_or_id: str) -> int:
    number = parse_id(name_or_id) or -1
    either = f"SELECT id FROM {table} WHERE {column} = ? OR id = ? ORDER BY CASE id WHEN ? THEN 0"
    rows = db.execute(f"{either} ELSE 1 END", name_or_id, number, number)
    if not rows:
        raise Refused(
            sentence(
                "no {table} {named} exists; see `fieldagent hub {table} list`",
                table=table,
                named=repr(name_or_id),
            )
        )
    return int(rows[0][0])
