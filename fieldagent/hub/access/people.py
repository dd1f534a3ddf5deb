"""Possible recipients of an item (users, groups and kits of a workspace), and the directory that
kits get.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from fieldagent.hub.access.caller import Place
from fieldagent.hub.access.directory import (
    Refused,
    Row,
    audit_member,
    check_name,
    is_member,
    make_named_rows,
)
from fieldagent.hub.access.push import Push
from fieldagent.hub.records import kit_report
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.store.contract import Db, make_membership
from fieldagent.package.package import Person
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence
from fieldagent.wire.kit_note import DIRECTORY_MAX, Directory, DirectoryEntry

NAME_BYTES_MAX = 80
INTEGRATION = "Integration"
"""Type of a member that is not a user."""
NO_MEMBERS = 0
"""Group id of an item that no member of the workspace receives."""


class Recipient(NamedTuple):
    """Recipient of an item that the hub has found. If `reason` is not empty, the item has no
    recipient.
    """

    member: int | None = None
    team: int | None = None
    """Group of the recipient. `NO_MEMBERS` if the recipient is an address or was not found."""
    device: int | None = None
    audience: frozenset[int] = frozenset()
    """Members of the group."""
    over_satellite: bool = True
    address: str = ""
    """Email address or telephone number."""
    reason: str = ""
    """Reason why the item has no recipient, which its sender sees."""
    identity_json: str = ""
    """JSON with the known facts about the recipient: `id`, `name`, `type`."""


def find_recipient(db: Db, workspace: int, person: Person) -> Recipient:
    """Find the recipient that `person` names in a workspace. If no recipient is found, the result
    contains the reason.
    """
    kind, number, text = _split_name(person)
    if text and kind == "" and _is_address(text):
        address_kind = "E-mail" if "@" in text else "Telephone"
        address = text if "@" in text else text.replace(" ", "")
        return Recipient(
            team=NO_MEMBERS,
            address=address,
            identity_json=json.dumps({"name": text, "type": address_kind}),
        )
    searches = {"user": _find_user, "group": _find_group, "device": _find_device}
    for name, search in searches.items():
        if kind in ("", name) and (recipient := search(db, workspace, number, text)):
            return recipient
    recipient_text = text or f"{kind} {number}"
    called = {"": "nobody", "device": "no kit"}.get(kind, f"no {kind}")
    reason = (
        sentence("{called} here is called {who}", called=called, who=recipient_text)
        if text
        else sentence("{who} is not in the workspace", who=recipient_text)
    )
    return Recipient(
        team=NO_MEMBERS, reason=reason, identity_json=json.dumps({"name": recipient_text})
    )


def _split_name(person: Person) -> tuple[str, int, str]:
    """Return the kind of recipient, the id and the text. The kind is empty if it is not given. The
    id is 0 if the recipient is given by text.
    """
    if isinstance(person, int):
        return ("user" if person > 0 else "group"), abs(person), ""
    kind, colon, name = person.partition(":")
    if colon and kind in ("user", "group", "device"):
        return kind, 0, name.strip()
    return "", 0, person


def _is_address(text: str) -> bool:
    return "@" in text or _is_telephone(text)


def _is_telephone(text: str) -> bool:
    digits = text[1:].replace(" ", "")
    return text.startswith("+") and digits.isascii() and digits.isdigit() and len(digits) >= 7


def _encode_identity(number: int, name: str, type_: str) -> str:
    return json.dumps({"id": str(number), "name": name, "type": type_})


class _User(NamedTuple):
    id: int
    name: str
    type: str
    disabled: float | None
    carrier: int | None


def _find_user(db: Db, workspace: int, number: int, text: str) -> Recipient | None:
    rows = db.execute(
        f"SELECT member.id, name, type, disabled, {_CARRIER} FROM member JOIN membership"
        " ON membership.member = member.id WHERE workspace = ? AND (member.id = ? OR name = ?"
        " OR lower(name) = lower(?)) ORDER BY name = ? DESC, member.id",
        *(workspace, number, text, text, text),
    )
    users = [_User(*row) for row in rows]
    exact = [each for each in users if number or each.name == text] or users
    if not exact:
        return None
    id_, name, type_, disabled, carrier = exact[0]
    quoted = _encode_identity(id_, name, type_)
    if len(exact) > 1:
        ids = " or ".join(str(each.id) for each in exact)
        return Recipient(
            team=NO_MEMBERS,
            reason=sentence("{text} can be user {ids}: use a number", text=text, ids=ids),
            identity_json=quoted,
        )
    if disabled is not None:
        return Recipient(
            team=NO_MEMBERS,
            reason=sentence("{name} is disabled at the hub", name=name),
            identity_json=quoted,
        )
    if type_ == INTEGRATION and _is_address(name):
        # A person who has answered by email or SMS receives items at that address.
        return Recipient(team=NO_MEMBERS, address=name, identity_json=quoted)
    return Recipient(member=id_, device=carrier, identity_json=quoted)


_CARRIER = (
    "CASE WHEN EXISTS (SELECT 1 FROM handle WHERE handle.workspace = membership.workspace"
    " AND handle.member = membership.member) AND NOT EXISTS (SELECT 1 FROM device"
    " WHERE device.member = membership.member AND device.workspace = membership.workspace"
    " AND device.disabled IS NULL) THEN (SELECT source_device FROM item"
    " WHERE item.workspace = membership.workspace AND sender = membership.member"
    " AND source_device IS NOT NULL ORDER BY id DESC LIMIT 1) END"
)
"""SQL on a `membership`: the kit that relayed the member's last item, if the member has a handheld
radio but no kit. NULL for all other members."""

Carriers = Mapping[Place, int | None]
"""Maps each member of a workspace to the kit that relays items to the member's handheld radio. None
if the member has a kit or no handheld."""


def find_carriers(db: Db, pushes: Collection[Push]) -> Carriers:
    """Return those senders and targets of the pushes that are members of the workspace. Each has
    the kit that carries items to it.
    """
    member_ids = {
        each for push in pushes for each in (push.source, push.target) if each is not None
    }
    if not member_ids:
        return {}
    workspace_condition, workspaces = make_membership(db, {push.workspace for push in pushes})
    # One push has at most two members: its sender and its target.
    member_condition, members = make_membership(db, member_ids, few=2)
    rows = db.execute(
        f"SELECT workspace, member, {_CARRIER} FROM membership"
        f" WHERE workspace {workspace_condition} AND member {member_condition}",
        *workspaces,
        *members,
    )
    return {(workspace, member): carrier for workspace, member, carrier in rows}


def _find_group(db: Db, workspace: int, number: int, text: str) -> Recipient | None:
    rows = db.execute(
        "SELECT id, name, over_satellite FROM team WHERE workspace = ? AND (id = ?"
        " OR lower(name) = lower(?)) ORDER BY name = ? DESC, id LIMIT 1",
        *(workspace, number, text, text),
    )
    if not rows:
        return None
    ((id_, name, over_satellite),) = rows
    members = db.execute("SELECT member FROM team_member WHERE team = ?", id_)
    audience = frozenset(member for (member,) in members)
    reason = "" if audience else sentence("the group {name} has no members", name=name)
    quoted = _encode_identity(id_, name, "Group")
    return Recipient(
        None, id_, None, audience, bool(over_satellite), reason=reason, identity_json=quoted
    )


def _find_device(db: Db, workspace: int, number: int, text: str) -> Recipient | None:
    rows = db.execute(
        "SELECT id, member, name FROM device WHERE workspace = ? AND (id = ? OR name = ?)"
        " AND disabled IS NULL",
        *(workspace, number, text),
    )
    if not rows:
        return None
    ((id_, member, name),) = rows
    return Recipient(member=member, device=id_, identity_json=_encode_identity(id_, name, "Device"))


def add_group(
    db: Db,
    workspace: int,
    name: str,
    *,
    over_satellite: bool,
    now: float,
    actor: str = ADMINISTRATION,
) -> int:
    """Add a group and return its id. Raises Refused with the reason if the name is invalid."""
    name = " ".join(name.split())
    if not name or len(name.encode()) > NAME_BYTES_MAX or ":" in name or "@" in name:
        raise Refused(
            sentence(
                (
                    "a group's name must have 1 to {most} bytes without a colon or @, because it is"
                    " sent to kits"
                ),
                most=NAME_BYTES_MAX,
            )
        )
    check_name(name)
    if name.lstrip("-").isdigit():
        raise Refused("a group's name must not be a number, because numbers identify users")
    recipient = find_recipient(db, workspace, name)
    if recipient.member is not None or recipient.team or "may be" in recipient.reason:
        raise Refused(
            sentence("the name {name} is already used in that workspace", name=repr(name))
        )
    ((id_,),) = db.execute(
        "INSERT INTO team (workspace, name, over_satellite, created) VALUES (?, ?, ?, ?)"
        " RETURNING id",
        *(workspace, name, int(over_satellite), now),
    )
    write_line(db, workspace, actor, "group add", f"{id_} {name}", now)
    kit_report.touch_directory(db, workspace)
    return int(id_)


def find_group(db: Db, workspace: int, name_or_id: str) -> int:
    """Return the id of the group with this id or name. Raises Refused if the workspace has no such
    group.
    """
    for row in list_groups(db, workspace):
        if name_or_id == str(row["id"]) or name_or_id.casefold() == str(row["name"]).casefold():
            return int(row["id"])
    raise Refused(
        sentence(
            "no group {named} is in that workspace; see `fieldagent hub group list`",
            named=repr(name_or_id),
        )
    )


def list_groups(db: Db, workspace: int) -> list[Row]:
    """Return the groups of a workspace, each with the ids and names of its members."""
    rows = make_named_rows(
        db,
        "SELECT id, name, over_satellite FROM team WHERE workspace = ? ORDER BY name",
        ("id", "name", "overSatellite?"),
        workspace,
    )
    members: dict[int, list[Row]] = {}
    for team, member, name in db.execute(
        "SELECT team, member.id, member.name FROM team_member JOIN member ON member.id = member"
        " JOIN team ON team.id = team WHERE workspace = ? ORDER BY member.name",
        workspace,
    ):
        members.setdefault(team, []).append({"id": str(member), "name": name})
    return [{**row, "members": members.get(int(row["id"]), [])} for row in rows]


def encode_groups(db: Db, workspace: int) -> list[Row]:
    """Return the groups of a workspace in the form of the API."""
    return [
        {
            "id": str(row["id"]),
            "name": row["name"],
            "overSatellite": row["overSatellite"],
            "members": row["members"],
        }
        for row in list_groups(db, workspace)
    ]


def change_group(
    db: Db,
    workspace: int,
    group: int,
    *,
    join: frozenset[int] = frozenset(),
    leave: frozenset[int] = frozenset(),
    over_satellite: bool | None = None,
    now: float,
    actor: str = ADMINISTRATION,
) -> None:
    """Change the members of a group, or allow or forbid to send its items over satellite. Raises
    Refused if a user is in another workspace.
    """
    for member in sorted(join):
        if not is_member(db, workspace, member):
            raise Refused(sentence("user {member} is not in that workspace", member=member))
        db.execute(
            "INSERT INTO team_member (team, member) VALUES (?, ?) ON CONFLICT DO NOTHING",
            *(group, member),
        )
    for member in leave:
        db.execute("DELETE FROM team_member WHERE team = ? AND member = ?", group, member)
    if over_satellite is not None:
        db.execute("UPDATE team SET over_satellite = ? WHERE id = ?", int(over_satellite), group)
    detail = f"{group}: {sorted(join)} in, {sorted(leave)} out"
    write_line(db, workspace, actor, "group change", detail, now)
    kit_report.touch_directory(db, workspace)


def remove_group(
    db: Db, workspace: int, group: int, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Remove a group of the workspace, if it exists. Items sent to the group remain. Raises Refused
    if a fence uses the group. Without the group, the fence would apply to all kits or to no kit.
    """
    fences = db.execute(
        "SELECT name FROM fence WHERE team = ? AND workspace = ? ORDER BY id", group, workspace
    )
    if fences:
        raise Refused(
            sentence(
                (
                    "the fence {name} is for this group: first remove the fence, or draw it again"
                    " for others"
                ),
                name=repr(fences[0][0]),
            )
        )
    db.execute("DELETE FROM team WHERE id = ? AND workspace = ?", group, workspace)
    write_line(db, workspace, actor, "group remove", str(group), now)
    kit_report.touch_directory(db, workspace)


HANDLE_MAX = 64


def set_radios(
    db: Db,
    workspace: int,
    member: int,
    handles: list[str],
    *,
    now: float,
    actor: str = ADMINISTRATION,
) -> None:
    """Replace the handheld radios of a member. Raises Refused if another member has one of these
    radios.
    """
    for handle in handles:
        if not handle.isprintable() or " " in handle or not 0 < len(handle) <= HANDLE_MAX:
            raise Refused(
                sentence(
                    "a radio's id must have 1 to {most} characters without spaces",
                    most=HANDLE_MAX,
                )
            )
        other = db.execute(
            "SELECT member FROM handle WHERE workspace = ? AND handle = ? AND member <> ?",
            *(workspace, handle.lower(), member),
        )
        if other:
            raise Refused(
                sentence(
                    "the radio {handle} already belongs to user {other}",
                    handle=handle,
                    other=other[0][0],
                )
            )
    db.execute("DELETE FROM handle WHERE workspace = ? AND member = ?", workspace, member)
    for handle in dict.fromkeys(each.lower() for each in handles):
        db.execute(
            "INSERT INTO handle (workspace, handle, member) VALUES (?, ?, ?)",
            *(workspace, handle, member),
        )
    audit_member(db, member, actor, "user radio", f"{member} {' '.join(handles)}", now)
    kit_report.touch_directory(db, workspace)


def set_position_filter(
    db: Db,
    workspace: int,
    member: int,
    *,
    all_positions: bool,
    now: float,
    actor: str = ADMINISTRATION,
) -> None:
    """Choose the positions that a user's kits get: every position of other kits, or only the newest
    position of each sender.
    """
    db.execute(
        "UPDATE membership SET all_positions = ? WHERE workspace = ? AND member = ?",
        *(int(all_positions), workspace, member),
    )
    position_choice = "all" if all_positions else "newest"
    audit_member(db, member, actor, "user positions", f"{member} {position_choice}", now)


def read_version(db: Db, workspace: int) -> int:
    """Return the version of the workspace's directory. It starts at 0 and increases with each
    change.
    """
    rows = db.execute("SELECT directory FROM workspace WHERE id = ?", workspace)
    return int(rows[0][0]) if rows else 0


def make_directory(db: Db, workspace: int, owner: int) -> Directory:
    """Return the directory for a kit of the user `owner`."""
    handles: dict[int, list[str]] = {}
    for handle, member in db.execute(
        "SELECT handle, member FROM handle WHERE workspace = ? ORDER BY handle", workspace
    ):
        handles.setdefault(member, []).append(handle)
    people = [
        DirectoryEntry("user", id_, name, tuple(handles.get(id_, ())))
        for id_, name in db.execute(
            "SELECT member.id, name FROM member JOIN membership ON membership.member = member.id"
            " WHERE workspace = ? AND type = 'User' AND disabled IS NULL ORDER BY member.id"
            " LIMIT ?",
            *(workspace, DIRECTORY_MAX),
        )
    ]
    teams: dict[int, list[int]] = {}
    for team, member in db.execute(
        "SELECT team, member FROM team_member JOIN team ON team.id = team WHERE workspace = ?"
        " ORDER BY team, member",
        workspace,
    ):
        teams.setdefault(team, []).append(member)
    people += [
        DirectoryEntry("group", id_, name, (), tuple(teams.get(id_, ())))
        for id_, name in db.execute(
            "SELECT id, name FROM team WHERE workspace = ? ORDER BY id LIMIT ?",
            *(workspace, DIRECTORY_MAX),
        )
    ]
    people += [
        DirectoryEntry("device", id_, name)
        for id_, name in db.execute(
            "SELECT id, name FROM device WHERE workspace = ? AND disabled IS NULL ORDER BY id"
            " LIMIT ?",
            *(workspace, DIRECTORY_MAX),
        )
    ]
    return Directory(read_version(db, workspace), owner, tuple(people[:DIRECTORY_MAX]))
