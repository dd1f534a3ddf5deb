"""Who is who: workspaces, members and their devices.

Each function is one operation for `Store.commit`, `read` or `once`. Raises Refused in words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access import imei_claims, secret, sessions
from fieldagent.hub.contract import Device, Revoked, Unknown, number_of
from fieldagent.hub.operator.known import DEFAULT
from fieldagent.hub.records import kit_report, lease, operator_trouble, shifts, workspace_log
from fieldagent.hub.records.audit import ADMINISTRATION, AuditLine, note, note_all
from fieldagent.hub.store.contract import Db
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.sentence import sentence
from fieldagent.wire.envelope import derive_key
from fieldagent.wire.incident_proof import proof_key

TYPES = ("User", "Device", "Integration", "Resource")

NAME_BYTES_MAX = 80
ONE_TIME_LASTS = 7 * 86_400.0
"""Seconds for which a password that somebody else has made can be used, once."""
IMEI = re.compile(r"[0-9]{15}", re.ASCII)

Row = dict[str, Any]


class Refused(Exception):
    """What was asked for cannot be; the text says why and what to do."""


SYNTHETIC = "synthetic items of the hub"
"""The workspace of `service.synthetic_item`, which is nobody's."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_name(name: str) -> None:
    """Check a name. Raises Refused for one that nobody could tell from another where it is
    shown."""
    if not name.strip() or len(name) > NAME_BYTES_MAX or _CONTROL.search(name):
        raise Refused(
            sentence("a name has 1 to {most} characters in one line", most=NAME_BYTES_MAX)
        )


def add_workspace(db: Db, name: str, *, now: float) -> int:
    """Add a workspace and return its number. Raises Refused where another has the name."""
    check_name(name)
    if _one(db, "SELECT id FROM workspace WHERE name = ?", name):
        raise Refused(sentence("there is a workspace {name} already", name=repr(name)))
    id_ = insert_row(db, "workspace", name=name, created=now)
    note(db, id_, ADMINISTRATION, "workspace add", f"{id_} {name}", now)
    return id_


def workspaces(db: Db) -> list[Row]:
    """Return all workspaces with how many members and devices each has, by number."""
    return named_rows(
        db,
        "SELECT id, name, (SELECT count(*) FROM membership WHERE workspace = workspace.id)"
        " AS members, (SELECT count(*) FROM device WHERE workspace = workspace.id) AS devices"
        " FROM workspace ORDER BY id",
        ("id", "name", "members", "devices"),
    )


def workspace_of(db: Db, named: str) -> int:
    """Return the workspace of that number or name; the only one there is, when nothing is named."""
    if not named:
        rows = db.execute("SELECT id FROM workspace WHERE name <> ? LIMIT 2", SYNTHETIC)
        if len(rows) != 1:
            raise Refused("name the workspace with --workspace; `fieldagent hub workspace list`")
        return int(rows[0][0])
    return _by_number_or(db, "workspace", "name", named)


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
    by: str = ADMINISTRATION,
) -> int:
    """Add a user to a workspace. `password` is a hash of `system.scrypt`; with `until`, for one
    sign-in until then. Its number is the userId of the push API."""
    check_name(name)
    # Whoever signs in with capitals means the same.
    email = email.lower()
    if max(len(name.encode()), len(email.encode())) > NAME_BYTES_MAX:
        raise Refused(
            sentence(
                "name and email take {most} bytes each: they travel to the field",
                most=NAME_BYTES_MAX,
            )
        )
    if email and _one(db, "SELECT id FROM member WHERE lower(email) = ?", email):
        raise Refused(
            sentence(
                "there is a user with {email} already; `fieldagent hub user join` adds them to"
                " a workspace",
                email=email,
            )
        )
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
    join(db, workspace, id_, over_satellite=over_satellite, now=now, by=by)
    note(db, workspace, by, "user add", f"{id_} {type_} {name}", now)
    return id_


def join(
    db: Db,
    workspace: int,
    member: int,
    *,
    over_satellite: bool,
    now: float,
    by: str = ADMINISTRATION,
) -> None:
    """Make somebody a member, or change `over_satellite` of one who is. The devices of one who
    joins get nothing of what came before."""
    if not is_member(db, workspace, member):
        workspace_log.skip(db, workspace, member)
    db.execute(
        "INSERT INTO membership (workspace, member, over_satellite) VALUES (?, ?, ?)"
        " ON CONFLICT (workspace, member) DO UPDATE SET over_satellite = excluded.over_satellite",
        workspace,
        member,
        int(over_satellite),
    )
    note(db, workspace, by, "user join", f"{member} in workspace {workspace}", now)
    kit_report.touch_directory(db, workspace)


def leave(db: Db, workspace: int, member: int, *, now: float) -> None:
    """End a membership, and that in the groups of the workspace. What their devices here are to
    have of what came until now is lined up first."""
    owned = "SELECT id FROM device WHERE workspace = ? AND member = ?"
    for (device,) in db.execute(owned, workspace, member):
        workspace_log.catch_up_wholly(db, device, now)
    db.execute("DELETE FROM membership WHERE workspace = ? AND member = ?", workspace, member)
    db.execute(
        "DELETE FROM team_member WHERE member = ? AND team IN"
        " (SELECT id FROM team WHERE workspace = ?)",
        *(member, workspace),
    )
    note(db, workspace, ADMINISTRATION, "user leave", f"{member} in workspace {workspace}", now)
    shifts.end_of(db, member, now)
    kit_report.touch_directory(db, workspace)


def set_role(
    db: Db, workspace: int, member: int, role: str, *, now: float, by: str = ADMINISTRATION
) -> None:
    """Give a member another role; `caller.ROLES` has them."""
    if role != "member" and not is_person(db, member):
        raise Refused(
            sentence("{member} is no User: a {role} is a person", member=member, role=role)
        )
    db.execute(
        "UPDATE membership SET role = ? WHERE workspace = ? AND member = ?", role, workspace, member
    )
    note(db, workspace, by, f"user role {role}", f"{member} in workspace {workspace}", now)
    shifts.end_of(db, member, now)


def set_password(
    db: Db,
    member: int,
    hashed: str,
    *,
    until: float | None = None,
    now: float,
    by: str = ADMINISTRATION,
) -> None:
    """Set the password of a member. With `until` it is for one sign-in until then, where they
    choose their own. Another's choice takes their passkeys away: they may have lost what these are
    on."""
    if by != str(member):
        db.execute("DELETE FROM passkey WHERE member = ?", member)
    db.execute(
        "UPDATE member SET password = ?, password_until = ? WHERE id = ?", hashed, until, member
    )
    sessions.end_all_of(db, member)
    note_of_member(db, member, by, "user password", str(member), now)


def must_choose_password(db: Db, member: int) -> bool:
    """Return whether theirs is for one sign-in."""
    return _one(db, "SELECT 1 FROM member WHERE id = ? AND password_until IS NOT NULL", member)


def users(db: Db, workspace: int) -> list[Row]:
    """Return the members of a workspace by number: each with role, whether a password is set, and
    since when disabled."""
    return named_rows(
        db,
        "SELECT member.id, type, name, email, role, over_satellite, password IS NOT NULL, disabled"
        " FROM member JOIN membership ON membership.member = member.id"
        " WHERE membership.workspace = ? ORDER BY member.id",
        ("id", "type", "name", "email", "role", "overSatellite?", "password?", "disabled"),
        workspace,
    )


def must_be_here_alone(db: Db, workspace: int, member: int) -> None:
    """Check that a member is of this workspace alone. Raises Refused for one whose account is
    another workspace's as well."""
    if _one(
        db,
        "SELECT 1 FROM membership WHERE member = ? AND workspace <> ?"
        " UNION ALL SELECT 1 FROM device WHERE member = ? AND workspace <> ?",
        *(member, workspace, member, workspace),
    ):
        raise Refused(
            sentence(
                "user {member} is in another workspace too: whoever runs the hub does that,"
                " with `fieldagent hub`",
                member=member,
            )
        )


def is_person(db: Db, member: int) -> bool:
    """Return whether the member is a user; else it is a workspace or a device."""
    return _one(db, "SELECT 1 FROM member WHERE id = ? AND type = 'User'", member)


def is_known(db: Db, member: int) -> bool:
    """Return whether a user has that number, of whichever workspace."""
    return _one(db, "SELECT 1 FROM member WHERE id = ?", member)


def is_member(db: Db, workspace: int, member: int) -> bool:
    """Return whether the user is in the workspace; one that is disabled is, too."""
    return _one(
        db, "SELECT 1 FROM membership WHERE workspace = ? AND member = ?", workspace, member
    )


def member_of(db: Db, workspace: int, named: str) -> int:
    """Return the member of the workspace with this number, e-mail address or name. Capitals decide
    only between names that differ by nothing else. Raises Refused where several have it."""
    there, like = users(db, workspace), named.casefold()
    for matches in (
        [row for row in there if named == str(row["id"])],
        [row for row in there if named == row["name"] or like == row["email"].casefold()],
        [row for row in there if like == row["name"].casefold()],
    ):
        if len(matches) == 1:
            return int(matches[0]["id"])
        if matches:
            ids = " or ".join(str(row["id"]) for row in matches)
            raise Refused(
                sentence(
                    "{found} users are called {named}: say which by number, {ids}",
                    found=len(matches),
                    named=repr(named),
                    ids=ids,
                )
            )
    raise Refused(
        sentence(
            "no user {named} is in that workspace; `fieldagent hub user list` shows them",
            named=repr(named),
        )
    )


class NewDevice(NamedTuple):
    """A device as it is to be added; `Device` has what the members mean."""

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
    by: str = ADMINISTRATION,
) -> tuple[int, str]:
    """Add a `new` device, and return its number and its link token, which is shown this once. An
    IMEI that a device of another workspace has is contested: the new device is without, until the
    operator decides."""
    imei = new.imei
    contested = imei is not None and is_contested(db, imei, workspace, by=by)
    _check_device_name(db, workspace, new.name)
    token = secret.new_secret("link")
    id_ = insert_row(
        db,
        "device",
        workspace=workspace,
        member=member,
        name=new.name,
        imei=None if contested else imei,
        operator=new.operator or (DEFAULT if imei else None),
        thing=new.thing or "",
        link_token=secret.lookup(token),
        air_key=new.air_key,
        credits_per_day=new.credits_per_day,
        sos_reserve=new.sos_reserve,
        relay=int(new.relay),
        place=workspace_log.end_of(db, workspace),
        created=now,
    )
    note(db, workspace, by, "device add", f"{id_} {new.name}", now)
    kit_report.touch_directory(db, workspace)
    if imei is not None and contested:
        imei_claims.claim(db, id_, imei, now=now, by=by)
    return id_, token


def _check_device_name(db: Db, workspace: int, name: str, device: int = 0) -> None:
    """Raises Refused for one that is none, and where another than `device` has it."""
    check_name(name)
    same = "SELECT id FROM device WHERE workspace = ? AND name = ? AND id <> ?"
    if _one(db, same, workspace, name, device):
        raise Refused(
            sentence("there is a device {name} already in that workspace", name=repr(name))
        )


def rename_device(db: Db, device: int, name: str, *, now: float, by: str = ADMINISTRATION) -> None:
    """Rename a device, in the directories of kits too. Raises Refused where another of the
    workspace has the name."""
    ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
    _check_device_name(db, workspace, name, device)
    db.execute("UPDATE device SET name = ? WHERE id = ?", name, device)
    note(db, workspace, by, "device rename", f"{device} {name}", now)
    kit_report.touch_directory(db, workspace)


def is_contested(db: Db, imei: str, workspace: int, device: int = 0, *, by: str) -> bool:
    """Return whether a device of another workspace has it. Raises Refused where one of this
    workspace has, and for the operator, who decides."""
    if not IMEI.fullmatch(imei):
        raise Refused(sentence("an IMEI has 15 digits, {imei} has not", imei=repr(imei)))
    if (holder := imei_claims.holder(db, imei, device)) is None:
        return False
    if by == ADMINISTRATION:
        raise Refused(
            sentence(
                "device {device} of workspace {workspace} has the IMEI {imei} already: take it"
                " from there with `fieldagent hub device imei NAME IMEI --take`",
                device=holder.device,
                workspace=holder.workspace,
                imei=imei,
            )
        )
    if holder.workspace == workspace:
        raise Refused(sentence("there is a device with the IMEI {imei} already", imei=imei))
    return True


def set_air_key(
    db: Db, device: int, key: bytes | None, *, now: float, by: str = ADMINISTRATION
) -> None:
    """Set the satellite-key of a device, or remove it by None. What was wrong with the key before
    is forgotten."""
    db.execute("UPDATE device SET air_key = ?, key_trouble = '' WHERE id = ?", key, device)
    state = "removed" if key is None else "set"
    note_of_device(db, device, by, "device key", f"{device} {state}", now)


def set_relay(db: Db, device: int, allowed: bool, *, now: float, by: str = ADMINISTRATION) -> None:
    """Set whether it may bring what others of its workspace have sent, in their name."""
    db.execute("UPDATE device SET relay = ? WHERE id = ?", int(allowed), device)
    action = f"device relay {'on' if allowed else 'off'}"
    note_of_device(db, device, by, action, str(device), now)


def new_link_token(db: Db, device: int, *, now: float, by: str = ADMINISTRATION) -> str:
    """Make a new link token and return it, the only time that it is known: the hub keeps its
    digest. The old one and a link by it end."""
    token = secret.new_secret("link")
    db.execute(
        "UPDATE device SET link_token = ?, place = CASE WHEN link_token IS NULL THEN"
        " (SELECT posted FROM workspace WHERE workspace.id = device.workspace) ELSE place END"
        " WHERE id = ?",
        *(secret.lookup(token), device),
    )
    lease.end(db, device)
    note_of_device(db, device, by, "device token", str(device), now)
    return token


def devices(db: Db, workspace: int, now: float) -> list[Row]:
    """Return the devices of a workspace by number, with how each stands `now` (Unix time): link,
    what waits, dead letters, troubles."""
    return named_rows(
        db,
        "SELECT device.id, device.name, device.member, member.name, imei, operator,"
        " air_key IS NOT NULL, relay = 1, credits_per_day, sos_reserve, device.disabled,"
        " device.revoked, device.revoked_why,"
        f" {lease.IS_LINKED},"
        " (SELECT count(*) FROM delivery WHERE delivery.device = device.id"
        " AND delivery.state IN ('waiting', 'packed'))"
        f" + (SELECT count(*) FROM ({workspace_log.AWAITED}) AS awaited),"
        " (SELECT count(*) FROM dead_letter WHERE dead_letter.device = device.id), key_trouble,"
        f" {operator_trouble.OF_DEVICE}, {imei_claims.CONTESTED},"
        f" contact.at, contact.version, contact.last_update, {kit_report.SETTINGS} FROM device"
        " JOIN member ON member.id = device.member"
        " LEFT JOIN contact ON contact.device = device.id WHERE device.workspace = ?"
        " ORDER BY device.id",
        (
            "id",
            "name",
            "user",
            "userName",
            "imei",
            "operator",
            "tagged?",
            "relay?",
            "creditsPerDay",
            "sosReserve",
            "disabled",
            "revoked",
            "revokedWhy",
            "linked?",
            "waiting",
            "deadLetters",
            "keyTrouble",
            "satelliteTrouble",
            "contested",
            "lastContact",
            "version",
            "lastUpdate",
            "settings",
        ),
        now,
        now,
        workspace,
    )


def device_named(db: Db, workspace: int, named: str) -> int:
    """Return the number of the device of a workspace with this number, name or IMEI. Raises
    Refused."""
    of_workspace = "SELECT id, name, imei FROM device WHERE workspace = ? ORDER BY id"
    there = db.execute(of_workspace, workspace)
    # A number is a number first, though another device may be called so.
    for column in range(3):
        for row in there:
            if row[column] is not None and named == str(row[column]):
                return int(row[0])
    raise Refused(
        sentence(
            "no device {named} is in that workspace; `fieldagent hub device list`",
            named=repr(named),
        )
    )


def set_disabled(
    db: Db,
    table: str,
    id_: int,
    when: float | None,
    *,
    now: float,
    by: str = ADMINISTRATION,
) -> list[int]:
    """Take a `member` or `device` out of use, or (None) back into it; the devices that this
    changed. Those of a member go out of use with them, and come back unless they were before."""
    assert table in ("member", "device")
    if table == "device":
        devices = _disable_device(db, id_, when, now)
    else:
        devices = _disable_devices_of(db, id_, when, now)
        db.execute("UPDATE member SET disabled = ? WHERE id = ?", when, id_)
        sessions.end_all_of(db, id_)
        shifts.end_of(db, id_, now)
    for device in devices:
        lease.end(db, device)
    note_it = note_of_device if table == "device" else note_of_member
    note_it(db, id_, by, f"{table} {'enable' if when is None else 'disable'}", str(id_), now)
    return devices


def _disable_device(db: Db, device: int, when: float | None, now: float) -> list[int]:
    if when is None and (
        whose := db.execute(
            "SELECT member.id FROM member JOIN device ON device.member = member.id"
            " WHERE device.id = ? AND member.disabled IS NOT NULL",
            device,
        )
    ):
        raise Refused(
            sentence(
                "its user is disabled, and their devices with them: enable the user, here or by"
                " `fieldagent hub user enable {whose}`",
                whose=whose[0][0],
            )
        )
    revoked = "SELECT 1 FROM device WHERE id = ? AND revoked IS NOT NULL"
    if when is None and _one(db, revoked, device):
        raise Refused(
            sentence(
                "device {device} is revoked, and out of use by that: `fieldagent hub device"
                " restore {device}` takes it back into use",
                device=device,
            )
        )
    if when is None:
        workspace_log.come_back(db, device, now)
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
            workspace_log.come_back(db, device, now)
    changed = db.execute(
        f"UPDATE device SET disabled = ? WHERE member = ? AND {which} RETURNING id", when, member
    )
    return [device for (device,) in changed]


def note_of_device(db: Db, device: int, by: str, action: str, detail: str, now: float) -> None:
    """Write into the audit of its workspace what was done to a device, and have kits told where the
    directory changes by it."""
    ((workspace,),) = db.execute("SELECT workspace FROM device WHERE id = ?", device)
    note(db, workspace, by, action, detail, now)
    if action in CHANGES_DIRECTORY:
        kit_report.touch_directory(db, workspace)


CHANGES_DIRECTORY = (
    *("device disable", "device enable", "device revoke", "device restore"),
    *("member disable", "member enable"),
)
"""Of deeds to a device or a member that are noted here."""


def note_of_member(db: Db, member: int, by: str, action: str, detail: str, now: float) -> None:
    """Write a line of the audit in each of their workspaces: it changes who they are there."""
    rows = db.execute("SELECT workspace FROM membership WHERE member = ?", member)
    lines = [AuditLine(workspace, by, action, detail) for (workspace,) in rows or [(None,)]]
    note_all(db, lines, now)
    if action in CHANGES_DIRECTORY:
        for (workspace,) in rows:
            kit_report.touch_directory(db, workspace)


# For the ways to devices.

_DEVICE = "SELECT id, workspace, member, name, imei FROM device WHERE "
HEARD = "(device.disabled IS NULL OR device.revoked IS NOT NULL)"
"""SQL: whether what comes from a `device` is looked at. Of one that is revoked an SOS alone counts
(`access.revocation`)."""


def device_of_token(db: Db, token: str) -> Device:
    """Return the device with that link token. Raises Unknown; Revoked where its kit is."""
    lookup = secret.lookup(token)
    try:
        return _device(db, "link_token = ?", lookup)
    except Unknown:
        if _one(db, "SELECT 1 FROM device WHERE link_token = ? AND revoked IS NOT NULL", lookup):
            raise Revoked from None
        raise


def device_of_imei(db: Db, imei: str) -> Device:
    """Return the device in use, or revoked, that has this IMEI. Raises Unknown."""
    return _device(db, "imei = ?", imei, heard=HEARD)


def device_heard(db: Db, device: int) -> Device:
    """Return the device in use, or revoked, of that number. Raises Unknown."""
    return _device(db, "id = ?", device, heard=HEARD)


def device_by_id(db: Db, device: int) -> Device:
    """Return the device of that number. Raises Unknown."""
    return _device(db, "id = ?", device)


def disabled_device(db: Db, imei: str) -> int | None:
    """Return the device out of use that has this IMEI."""
    rows = db.execute("SELECT id FROM device WHERE imei = ? AND disabled IS NOT NULL", imei)
    return rows[0][0] if rows else None


def device_of(db: Db, id_: int) -> Device:
    """Return the device of that number. Raises Unknown."""
    return _device(db, "id = ?", id_)


def mo_keys_of(db: Db, device: int) -> list[bytes]:
    """Return the keys that may have tagged its satellite messages; empty where they bear no tag."""
    master = air_key_of(db, device)
    return [] if master is None else [derive_key(master, "MO")]


def proof_keys_of(db: Db, device: int) -> list[bytes]:
    """Return the keys by which this kit and the hub prove words about its incidents to each other:
    of its satellite-key, then of its link token."""
    return [proof_key(secret) for secret in secrets_of(db, device)]


def secrets_of(db: Db, device: int) -> list[bytes]:
    """Return what this kit and the hub alone share: its satellite-key, then its link token's
    SHA-256."""
    rows = db.execute("SELECT air_key, link_token FROM device WHERE id = ?", device)
    secrets = [bytes(key) for key, _ in rows if key is not None]
    return [*secrets, *(bytes.fromhex(token) for _, token in rows if token)]


def air_key_of(db: Db, device: int) -> bytes | None:
    """Return the device's satellite-key; None where it has none."""
    rows = db.execute("SELECT air_key FROM device WHERE id = ?", device)
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None


def _device(db: Db, condition: str, value: str | int, *, heard: str = "disabled IS NULL") -> Device:
    rows = db.execute(f"{_DEVICE}{heard} AND {condition}", value)
    if not rows:
        raise Unknown
    return Device(*rows[0])


def insert_row(db: Db, table: str, **values: Any) -> int:
    """Insert one row of values by column, and return its id. `table` and the names go into the SQL
    as they are."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    ((id_,),) = db.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id", *values.values()
    )
    return int(id_)


def _one(db: Db, sql: str, *parameters: Any) -> bool:
    return bool(db.execute(sql, *parameters))


def named_rows(db: Db, sql: str, names: Sequence[str], *parameters: Any) -> list[Row]:
    """Return each row by name; one that ends in ? is a yes or no, which the engines tell
    differently."""
    return [
        {
            name.rstrip("?"): bool(value) if name.endswith("?") else value
            for name, value in zip(names, row, strict=True)
        }
        for row in db.execute(sql, *parameters)
    ]


def _by_number_or(db: Db, table: str, column: str, named: str) -> int:
    number = number_of(named) or -1
    either = f"SELECT id FROM {table} WHERE {column} = ? OR id = ? ORDER BY CASE id WHEN ? THEN 0"
    rows = db.execute(f"{either} ELSE 1 END", named, number, number)
    if not rows:
        raise Refused(
            sentence(
                "there is no {table} {named}; `fieldagent hub {table} list` shows them",
                table=table,
                named=repr(named),
            )
        )
    return int(rows[0][0])
