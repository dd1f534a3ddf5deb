"""Who calls the hub's API, and whether they may: the key, the person behind it, and the rate.

Both are required: `x-api-key` says for which workspace, `Authorization` who calls. Decisions on
rows; what they change is committed together with the push itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fieldagent.http.address import Network, is_in
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub import secret
from fieldagent.hub.attempts import too_many
from fieldagent.hub.push import Push
from fieldagent.hub.rate import Rate
from fieldagent.hub.store.contract import Db

_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750 2.1."""
_BASIC = re.compile(r"Basic +([A-Za-z0-9+/]+=*)", re.IGNORECASE)
"""RFC 7617 2."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Neither a name nor a password holds one, says RFC 7617 2. PostgreSQL takes no NUL."""
_CHALLENGE = (
    ("WWW-Authenticate", 'Bearer realm="fieldagent"'),
    ("WWW-Authenticate", 'Basic realm="fieldagent", charset="UTF-8"'),
)


@dataclass(frozen=True, slots=True)
class Proof:
    """What a request brings to prove who calls: a token, or a name and password."""

    key: str
    token: str | None = None
    username: str = ""
    password: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    key: int
    key_name: str
    workspace: int
    scopes: frozenset[str]
    member: int
    type: str
    name: str
    role: str
    """In that workspace; empty where they are none of its members."""
    may_push: bool

    @property
    def sees_all(self) -> bool:
        """Whether also what is between others: an Integration and a dispatcher do."""
        return self.type == "Integration" or self.role == DISPATCHER


DISPATCHER = "dispatcher"
"""The role of who sees all of the workspace, and may acknowledge an SOS."""
ROLES = ("member", DISPATCHER)


class Purpose(StrEnum):
    """What a call is for. But for pushes, whose kinds a key names, it is a scope of the key."""

    PUSH = "push"
    READ = "read"
    ACKNOWLEDGE = "acknowledge"


def unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers=_CHALLENGE)


def read_proof(headers: Mapping[str, str]) -> Proof:
    """Raises Problem 401 for what is missing or of another shape."""
    key = headers.get("x-api-key", "")
    if not key:
        raise unauthorized("the header x-api-key is missing: `fieldagent hub key add` makes a key")
    authorization = headers.get("authorization", "")
    if bearer := _BEARER.fullmatch(authorization):
        return Proof(key, token=bearer[1])
    if basic := _BASIC.fullmatch(authorization):
        try:
            username, colon, password = base64.b64decode(basic[1]).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if colon and not _CONTROL.search(username + password):
            return Proof(key, username=username, password=password)
    raise unauthorized("Authorization must be Bearer TOKEN or Basic base64(username:password)")


def address_of(request: Request, trusted: Sequence[Network]) -> str:
    """Who is at the other end: what a trusted proxy says, or the connection's own address."""
    address = request.peer
    hops = [hop.strip() for hop in request.headers.get("x-forwarded-for", "").split(",")]
    while hops and hops[-1] and is_in(address, trusted):
        address = hops.pop()
    return address


def identify(db: Db, proof: Proof, proven: int | None, now: float) -> Caller | None:
    """Who calls; None when something of it is wrong. `proven` is whose password was right."""
    key = _credential(db, "key", proof.key, now)
    if proof.token is not None:
        token = _credential(db, "token", proof.token, now)
        proven = None if token is None else token["member"]
    if key is None or proven is None:
        return None
    rows = db.execute(
        "SELECT type, name, role, may_push FROM member LEFT JOIN membership"
        " ON membership.member = member.id AND membership.workspace = ?"
        " WHERE member.id = ? AND disabled IS NULL",
        key["workspace"],
        proven,
    )
    if not rows:
        return None
    type_, name, role, may_push = rows[0]
    scopes = frozenset(key["scopes"].split())
    return Caller(
        key["id"],
        key["name"],
        key["workspace"],
        scopes,
        proven,
        type_,
        name,
        role or "",
        bool(may_push),
    )


def knows_key(db: Db, proof: Proof, now: float) -> bool:
    return _credential(db, "key", proof.key, now) is not None


def _credential(db: Db, kind: str, presented: str, now: float) -> dict[str, Any] | None:
    # Found by its hash: the time that takes tells nothing of the secret.
    rows = db.execute(
        "SELECT id, name, workspace, member, scopes FROM credential WHERE lookup = ?"
        " AND kind = ? AND revoked IS NULL AND (expires IS NULL OR expires > ?)",
        secret.lookup(presented),
        kind,
        now,
    )
    names = ("id", "name", "workspace", "member", "scopes")
    return dict(zip(names, rows[0], strict=True)) if rows else None


def admitted(
    db: Db, proof: Proof, proven: int | None, now: float, purpose: Purpose
) -> Caller | Problem | None:
    """Who may send a body, or what stands against it whatever that holds; None for a stranger."""
    caller = identify(db, proof, proven, now)
    if caller is None:
        return None
    _, problem = _rate(db, caller, now)
    return problem or stands_against(caller, purpose) or caller


_WHERE = {
    Purpose.PUSH: "to workspace",
    Purpose.READ: "what is of workspace",
    Purpose.ACKNOWLEDGE: "an SOS of workspace",
}


def stands_against(caller: Caller, purpose: Purpose) -> Problem | None:
    if not caller.role or (purpose is Purpose.PUSH and not caller.may_push):
        return Problem(
            403, f"user {caller.member} may not {purpose} {_WHERE[purpose]} {caller.workspace}"
        )
    if purpose is not Purpose.PUSH and purpose not in caller.scopes:
        return Problem(
            403, f"the key may not {purpose}: `fieldagent hub key add NAME --{purpose}` makes one"
        )
    if purpose is Purpose.ACKNOWLEDGE and caller.type != "User":
        return Problem(403, f"a person acknowledges an SOS: {caller.member} is a {caller.type}")
    if purpose is Purpose.ACKNOWLEDGE and caller.role != DISPATCHER:
        return Problem(
            403,
            f"user {caller.member} is no dispatcher: `fieldagent hub user role {caller.member}"
            " dispatcher` makes them one",
        )
    return None


def over_rate(db: Db, caller: Caller, now: float) -> Problem | None:
    """Count this call of the key; every hub process counts in the same place."""
    tat, problem = _rate(db, caller, now, locked=db.for_update)
    if problem is not None:
        return problem
    db.execute("UPDATE credential SET tat = ? WHERE id = ?", tat, caller.key)
    return None


def _rate(db: Db, caller: Caller, now: float, *, locked: str = "") -> tuple[float, Problem | None]:
    """The `tat` of the key after one more call, or why that may not be yet."""
    ((per_minute, burst, tat),) = db.execute(
        "SELECT per_minute, burst, tat FROM credential WHERE id = ?" + locked, caller.key
    )
    tat, wait = Rate(per_minute, burst).admit(tat, now)
    return tat, too_many("this key has been used too often", wait) if wait else None


def not_allowed(db: Db, caller: Caller, push: Push) -> Problem | None:
    """Whether somebody who was `admitted` may push this item, in that name, to that target."""
    if push.workspace != caller.workspace:
        return Problem(403, f"the key is not for workspace {push.workspace}")
    if push.kind not in caller.scopes:
        return Problem(403, f"the key may not push a {push.kind}")
    target = push.source if push.target is None else push.target
    rows = db.execute(
        "SELECT member FROM membership WHERE workspace = ? AND member IN (?, ?)",
        push.workspace,
        push.source,
        target,
    )
    members = {member for (member,) in rows}
    if push.source != caller.member and caller.type == "User":
        return Problem(403, "a User pushes in their own name: sourceUserId must be their number")
    if push.source not in members:
        return Problem(403, f"the source {push.source} is not in workspace {push.workspace}")
    if target not in members:
        return Problem(403, f"the target {push.target} is not in workspace {push.workspace}")
    return None
