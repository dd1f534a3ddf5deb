"""Credentials for the API: keys of a workspace, tokens of its members, and addresses of trackers.

Each function is one operation for `Store.commit`, `read` or `once`. The functions raise Refused
with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fieldagent.hub.access import secret
from fieldagent.hub.access.directory import (
    Refused,
    Row,
    audit_member,
    check_name,
    insert_row,
    make_named_rows,
)
from fieldagent.hub.records.audit import ADMINISTRATION, write_line
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import ITEMS
from fieldagent.system.wording import sentence


def add_key(
    db: Db,
    workspace: int,
    name: str,
    *,
    scopes: Sequence[str] = (),
    per_minute: int = 60,
    burst: int = 60,
    expires: float | None = None,
    now: float,
    actor: str = ADMINISTRATION,
) -> tuple[int, str]:
    """Add an `x-api-key`. Return its id and the key, which is shown only once.

    `scopes` contains the kinds of items that the key may push, and `read` or `acknowledge`. If
    `scopes` is empty, the key may push all kinds.
    """
    id_, key = _add(
        db,
        "key",
        name,
        now,
        workspace=workspace,
        scopes=" ".join(scopes or ITEMS),
        per_minute=per_minute,
        burst=burst,
        expires=expires,
    )
    write_line(db, workspace, actor, "key add", f"{id_} {name}", now)
    return id_, key


def add_token(
    db: Db,
    member: int,
    name: str,
    *,
    expires: float | None = None,
    now: float,
    actor: str = ADMINISTRATION,
) -> tuple[int, str]:
    """Add a Bearer token that identifies a caller. Return its id and the token, which is shown only
    once.
    """
    id_, token = _add(db, "token", name, now, member=member, expires=expires)
    audit_member(db, member, actor, "token add", f"{id_} {name} of {member}", now)
    return id_, token


def add_source(
    db: Db, workspace: int, name: str, *, now: float, actor: str = ADMINISTRATION
) -> tuple[int, str]:
    """Add an address to which trackers report. Return its id and the secret part of the address,
    which is shown only once.
    """
    id_, new_secret = _add(db, "source", name, now, workspace=workspace)
    write_line(db, workspace, actor, "source add", f"{id_} {name}", now)
    return id_, new_secret


def _add(db: Db, kind: str, name: str, now: float, **columns: Any) -> tuple[int, str]:
    check_name(name)
    new_secret = secret.make_secret(kind)
    columns |= {
        "kind": kind,
        "lookup": secret.hash_for_lookup(new_secret),
        "name": name,
        "created": now,
    }
    return insert_row(db, "credential", **columns), new_secret


def list_credentials(db: Db, kind: str, workspace: int) -> list[Row]:
    """Return the credentials of a workspace. `kind` is `key`, `token` or `source`."""
    return _find_rows(db, kind, workspace, "")


def find_credential(db: Db, kind: str, workspace: int, id_: int) -> Row | None:
    """Return the credential with this id, or None if it does not exist or belongs to another
    workspace.
    """
    rows = _find_rows(db, kind, workspace, " AND id = ?", id_)
    return rows[0] if rows else None


def _find_rows(db: Db, kind: str, workspace: int, condition: str, *parameters: int) -> list[Row]:
    return make_named_rows(
        db,
        "SELECT id, name, member, scopes, per_minute, burst, expires, revoked FROM credential"
        " WHERE kind = ? AND (workspace = ? OR member IN"
        f" (SELECT member FROM membership WHERE membership.workspace = ?)){condition} ORDER BY id",
        ("id", "name", "user", "kinds", "perMinute", "burst", "expires", "revoked"),
        kind,
        workspace,
        workspace,
        *parameters,
    )


def revoke_credential(
    db: Db, kind: str, workspace: int, id_: int, *, now: float, actor: str = ADMINISTRATION
) -> None:
    """Revoke a credential permanently. Raises Refused if the workspace has no valid credential of
    this kind with this id.
    """
    _check_in_force(db, kind, workspace, id_)
    db.execute("UPDATE credential SET revoked = ? WHERE id = ?", now, id_)
    write_line(db, workspace, actor, f"{kind} revoke", str(id_), now)


def set_rate(
    db: Db,
    workspace: int,
    id_: int,
    *,
    per_minute: int | None,
    burst: int | None,
    now: float,
    actor: str = ADMINISTRATION,
) -> Row:
    """Set the number of calls that a key may make. None keeps the current value. Recent calls still
    count.
    """
    _check_in_force(db, "key", workspace, id_)
    ((per_minute, burst),) = db.execute(
        "UPDATE credential SET per_minute = coalesce(?, per_minute), burst = coalesce(?, burst)"
        " WHERE id = ? RETURNING per_minute, burst",
        per_minute,
        burst,
        id_,
    )
    write_line(
        db, workspace, actor, "key rate", f"{id_}: {per_minute} a minute, {burst} at once", now
    )
    return {"id": id_, "perMinute": per_minute, "burst": burst}


def _check_in_force(db: Db, kind: str, workspace: int, id_: int) -> None:
    row = find_credential(db, kind, workspace, id_)
    if row is None or row["revoked"] is not None:
        raise Refused(
            sentence(
                "no {kind} {id} is active in that workspace; see `fieldagent hub {kind} list`",
                kind=kind,
                id=id_,
            )
        )
