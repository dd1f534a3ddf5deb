"""Who calls the hub's API, and whether they may: the key, the person behind it, and the rate.

Both are required: `x-api-key` says for which workspace, `Authorization` who calls. Decisions on
rows; what they change is committed together with the push itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from fieldagent.http.address import Network, is_in
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.access import secret
from fieldagent.hub.access.attempts import too_many
from fieldagent.hub.access.push import Push
from fieldagent.hub.store.contract import Db, marks
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.rate import Rate

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
    signed_in: bool = False
    """At the console."""

    @property
    def rings(self) -> bool:
        """Whether their listening is a dispatcher's, before whom an SOS rings."""
        return self.signed_in and self.may_answer

    @property
    def sees_all(self) -> bool:
        """Whether also what is between others: an Integration, an observer and a dispatcher do."""
        return self.type == "Integration" or self.role == OBSERVER or self.may_answer

    @property
    def may_answer(self) -> bool:
        return self.role in ANSWERING


OBSERVER = "observer"
"""The role of who sees all of the workspace, and answers nothing."""
DISPATCHER = "dispatcher"
"""The role of who sees all of the workspace, and may acknowledge an SOS."""
ADMINISTRATOR = "administrator"
"""The role of who may do all that a dispatcher may, and administers the workspace."""
ROLES = ("member", OBSERVER, DISPATCHER, ADMINISTRATOR)
ANSWERING = (DISPATCHER, ADMINISTRATOR)
"""The roles of who answers an SOS."""


class Purpose(StrEnum):
    """What a call is for. But for pushes, whose kinds a key names, it is a scope of the key."""

    PUSH = "push"
    READ = "read"
    ACKNOWLEDGE = "acknowledge"
    ADMINISTER = "administer"


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
    if basic := basic_of(headers):
        username, password = basic
        return Proof(key, username=username, password=password)
    raise unauthorized("Authorization must be Bearer TOKEN or Basic base64(username:password)")


def basic_of(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the name and password that a request brings as Basic; None where it brings none."""
    basic = _BASIC.fullmatch(headers.get("authorization", ""))
    if basic is None:
        return None
    try:
        username, colon, password = base64.b64decode(basic[1]).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (username, password) if colon and not _CONTROL.search(username + password) else None


def address_of(request: Request, trusted: Sequence[Network]) -> str:
    """Who is at the other end: what a trusted proxy says, or the connection's own address. By a
    Unix socket, which has none, nobody else comes than who may open its file."""
    address = request.peer
    hops = [hop.strip() for hop in request.headers.get("x-forwarded-for", "").split(",")]
    while hops and hops[-1] and (not address or is_in(address, trusted)):
        address = hops.pop()
    return address


class Call(NamedTuple):
    """One that is to be let in, or not."""

    proof: Proof
    proven: int | None
    """Whose password was right."""
    now: float
    purpose: Purpose


class _Credential(NamedTuple):
    kind: str
    id: int
    name: str
    workspace: int | None
    member: int | None
    scopes: str
    expires: float | None
    per_minute: int
    burst: int
    tat: float


def knows_key(db: Db, proof: Proof, now: float) -> bool:
    return _in_force(_credentials(db, [proof.key]), "key", proof.key, now) is not None


def _credentials(db: Db, presented: Collection[str]) -> dict[str, _Credential]:
    # Found by their hashes: the time that takes tells nothing of the secret.
    secrets = {secret.lookup(each): each for each in presented}
    rows = db.execute(
        "SELECT lookup, kind, id, name, workspace, member, scopes, expires, per_minute, burst, tat"
        f" FROM credential WHERE lookup IN ({marks(secrets)}) AND revoked IS NULL",
        *secrets,
    )
    return {secrets[lookup]: _Credential(*row) for lookup, *row in rows}


def _in_force(
    known: Mapping[str, _Credential], kind: str, presented: str, now: float
) -> _Credential | None:
    found = known.get(presented)
    if found is None or found.kind != kind or (found.expires is not None and found.expires <= now):
        return None
    return found


def admitted(db: Db, calls: Sequence[Call]) -> list[Caller | Problem | None]:
    """Of each call who may send a body, or what stands against it whatever that holds; None for a
    stranger, where something of the proof is wrong. By two statements, however many they are."""
    known = _credentials(
        db, {each for call in calls for each in (call.proof.key, call.proof.token) if each}
    )
    keys, whose = [], []
    for proof, proven, now, _ in calls:
        key = _in_force(known, "key", proof.key, now)
        if proof.token is not None:
            token = _in_force(known, "token", proof.token, now)
            proven = None if token is None else token.member
        keys.append(key)
        whose.append((0, 0) if key is None else (key.workspace or 0, proven or 0))
    members = _members(db, set(whose) - {(0, 0)})
    return [
        None if key is None or where not in members else _admitted(key, where, members[where], call)
        for key, where, call in zip(keys, whose, calls, strict=True)
    ]


_Member = tuple[str, str, str | None, int | None]
"""Type and name; role and right to push, where they are a member of the workspace."""


def _members(db: Db, wanted: Collection[tuple[int, int]]) -> dict[tuple[int, int], _Member]:
    """By workspace and member."""
    if not wanted:
        return {}
    workspaces, members = ({pair[place] for pair in wanted} for place in (0, 1))
    rows = db.execute(
        "SELECT workspace.id, member.id, member.type, member.name, role, may_push"
        " FROM workspace CROSS JOIN member LEFT JOIN membership"
        " ON membership.member = member.id AND membership.workspace = workspace.id"
        f" WHERE workspace.id IN ({marks(workspaces)}) AND member.id IN ({marks(members)})"
        " AND disabled IS NULL",
        *workspaces,
        *members,
    )
    return {(workspace, member): tuple(told) for workspace, member, *told in rows}


def _admitted(
    key: _Credential, where: tuple[int, int], member: _Member, call: Call
) -> Caller | Problem:
    type_, name, role, may_push = member
    scopes = frozenset(key.scopes.split())
    caller = Caller(
        key.id, key.name, where[0], scopes, where[1], type_, name, role or "", bool(may_push)
    )
    _, problem = _rate(key.per_minute, key.burst, key.tat, call.now)
    return problem or stands_against(caller, call.purpose) or caller


_WHERE = {
    Purpose.PUSH: "to workspace",
    Purpose.READ: "what is of workspace",
    Purpose.ACKNOWLEDGE: "an SOS of workspace",
    Purpose.ADMINISTER: "workspace",
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
    if purpose is Purpose.ACKNOWLEDGE and not caller.may_answer:
        return Problem(
            403,
            f"user {caller.member} is no dispatcher: `fieldagent hub user role {caller.member}"
            " dispatcher` makes them one",
        )
    if purpose is Purpose.ADMINISTER and caller.role != ADMINISTRATOR:
        return Problem(
            403,
            f"user {caller.member} is no administrator: another of the workspace makes them one,"
            f" or `fieldagent hub user role {caller.member} administrator`",
        )
    return None


def over_rate(db: Db, callers: Sequence[Caller], now: float) -> list[Problem | None]:
    """Count these calls of their keys, one after the other; every hub process counts in the same
    place. Keys are locked in the order of their numbers."""
    keys = sorted({caller.key for caller in callers})
    rows = db.execute(
        f"SELECT id, per_minute, burst, tat FROM credential WHERE id IN ({marks(keys)})"
        f" ORDER BY id{db.for_update}",
        *keys,
    )
    rates = {id_: (per_minute, burst) for id_, per_minute, burst, _ in rows}
    before = {id_: tat for id_, _, _, tat in rows}
    tats, problems = dict(before), []
    for caller in callers:
        problem: Problem | None = unauthorized("the key was deleted meanwhile")
        if caller.key in rates:
            tats[caller.key], problem = _rate(*rates[caller.key], tats[caller.key], now)
        problems.append(problem)
    for key, tat in tats.items():
        if tat != before[key]:
            db.execute("UPDATE credential SET tat = ? WHERE id = ?", tat, key)
    return problems


def _rate(per_minute: float, burst: int, tat: float, now: float) -> tuple[float, Problem | None]:
    """The `tat` of the key after one more call, or why that may not be yet."""
    tat, wait = Rate(per_minute, burst).admit(tat, now)
    return tat, too_many("this key has been used too often", wait) if wait else None


Place = tuple[int, int]
"""A workspace and one who may be a member."""


def members_of(db: Db, pushes: Collection[Push]) -> set[Place]:
    """Of those whom these pushes name, who is a member of their workspace."""
    workspaces = {push.workspace for push in pushes}
    named = {each for push in pushes for each in (push.source, push.target) if each is not None}
    if not named:
        return set()
    rows = db.execute(
        "SELECT workspace, member FROM membership"
        f" WHERE workspace IN ({marks(workspaces)}) AND member IN ({marks(named)})",
        *workspaces,
        *named,
    )
    return {(workspace, member) for workspace, member in rows}


def not_allowed(caller: Caller, push: Push, members: Collection[Place]) -> Problem | None:
    """Whether somebody who was `admitted` may push this item, in that name, to that target."""
    if push.workspace != caller.workspace:
        return Problem(403, f"the key is not for workspace {push.workspace}")
    if push.kind not in caller.scopes:
        return Problem(403, f"the key may not push a {push.kind}")
    target = push.source if push.target is None else push.target
    if push.source != caller.member and caller.type == "User":
        return Problem(403, "a User pushes in their own name: sourceUserId must be their number")
    if (push.workspace, push.source) not in members:
        return Problem(403, f"the source {push.source} is not in workspace {push.workspace}")
    if (push.workspace, target) not in members:
        return Problem(403, f"the target {push.target} is not in workspace {push.workspace}")
    return None
