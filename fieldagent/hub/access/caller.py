"""Authorises callers of the hub's API: checks the key, the person, and the rate.

Both headers are required. `x-api-key` identifies the workspace, and `Authorization` identifies the
caller. The functions use database rows, and their changes are committed together with the push.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from fieldagent.http.address import Network, is_in
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.access import secret
from fieldagent.hub.access.attempts import make_too_many_problem
from fieldagent.hub.access.push import Push
from fieldagent.hub.store.contract import Db, make_membership, make_small_table
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate
from fieldagent.system.wording import Sentence, sentence

_BEARER = re.compile(r"Bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""Authorization header with a bearer token (RFC 6750, section 2.1)."""
_BASIC = re.compile(r"Basic +([A-Za-z0-9+/]+=*)", re.IGNORECASE)
"""Authorization header with a name and a password (RFC 7617, section 2)."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
"""Characters that are not allowed in names and passwords (RFC 7617, section 2). PostgreSQL does not
accept NUL."""
_CHALLENGE = (
    ("WWW-Authenticate", 'Bearer realm="fieldagent"'),
    ("WWW-Authenticate", 'Basic realm="fieldagent", charset="UTF-8"'),
)


@dataclass(frozen=True, slots=True)
class Proof:
    """Credentials in a request: a key, and a token or a name with a password."""

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
    """Role in the workspace of the key; empty if the caller is not a member of the workspace."""
    may_push: bool
    signed_in: bool = False
    """True if the caller signed in at the console."""
    token: int = 0
    """Id of the token that identifies the caller; 0 if there is none."""

    @property
    def rings(self) -> bool:
        """Return True if the caller is a dispatcher, whose open console sounds an alarm for an
        SOS.
        """
        return self.signed_in and self.may_answer

    @property
    def sees_all(self) -> bool:
        """Return True if the caller may also see items between other members. This is so for an
        Integration, an observer or a dispatcher.
        """
        return self.type == "Integration" or self.role == OBSERVER or self.may_answer

    @property
    def may_answer(self) -> bool:
        """Return True if the caller's role in the workspace allows answers to an SOS."""
        return self.role in ANSWERING


OBSERVER = "observer"
"""Role that sees everything in the workspace and cannot answer."""
DISPATCHER = "dispatcher"
"""Role that sees everything in the workspace and can acknowledge an SOS."""
ADMINISTRATOR = "administrator"
"""Role with all rights of a dispatcher, which also administers the workspace."""
ROLES = ("member", OBSERVER, DISPATCHER, ADMINISTRATOR)
ANSWERING = (DISPATCHER, ADMINISTRATOR)
"""Roles that can answer an SOS."""


class Purpose(StrEnum):
    """Purpose of a call. Each purpose except push is also a scope of API keys. For pushes, the
    scopes of a key are the kinds of items that it may push.
    """

    PUSH = "push"
    READ = "read"
    ACKNOWLEDGE = "acknowledge"
    ADMINISTER = "administer"


def make_unauthorized(detail: str) -> Problem:
    """Return the Problem 401 with the supported authentication methods (RFC 9110, section
    11.6.1).
    """
    return Problem(401, detail, headers=_CHALLENGE)


def read_proof(headers: Mapping[str, str]) -> Proof:
    """Return the credentials in the headers. Raises Problem 401 if they are missing or
    malformed.
    """
    key = headers.get("x-api-key", "")
    if not key:
        raise make_unauthorized(
            "the header x-api-key is missing: `fieldagent hub key add` makes a key"
        )
    if "," in key:
        # A comma means that headers of the same name were joined (RFC 9110, section 5.3). A key
        # never contains a comma.
        raise make_unauthorized("the header x-api-key occurs more than once: send it once")
    authorization = headers.get("authorization", "")
    if bearer := _BEARER.fullmatch(authorization):
        return Proof(key, token=bearer[1])
    if basic := read_basic(headers):
        username, password = basic
        return Proof(key, username=username, password=password)
    raise make_unauthorized("Authorization must be Bearer TOKEN or Basic base64(username:password)")


def read_basic(headers: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the name and password in a Basic header, or None if there is no such header."""
    basic = _BASIC.fullmatch(headers.get("authorization", ""))
    if basic is None:
        return None
    try:
        username, colon, password = base64.b64decode(basic[1]).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (username, password) if colon and not _CONTROL.search(username + password) else None


def find_address(request: Request, trusted_networks: Sequence[Network]) -> str:
    """Return the caller's address. This is the address that a trusted proxy reports, or else the
    address of the connection.

    A Unix socket has no address. Only programs that may open its file can connect.
    """
    address = request.peer
    hops = [hop.strip() for hop in request.headers.get("x-forwarded-for", "").split(",")]
    while hops and hops[-1] and (not address or is_in(address, trusted_networks)):
        address = hops.pop()
    return address


class Call(NamedTuple):
    """A call to authorise: its credentials, its time and its purpose."""

    proof: Proof
    proven: int | None
    """Member whose password was right; None if no password was right."""
    now: float
    purpose: Purpose


def is_key_known(db: Db, proof: Proof, now: float) -> bool:
    """Return True if the API key is valid. The function does not check the token or the
    password.
    """
    call = Call(proof, None, now, Purpose.PUSH)
    (known_key,) = _find_known(db, [call])
    return _find_in_force(known_key, now) is not None


class _KnownKey(NamedTuple):
    """Row of an API key with its rights, and of the caller. `member` is None if the caller is
    unknown.
    """

    key: int
    key_name: str
    workspace: int
    scopes: str
    expires: float | None
    per_minute: int
    burst: int
    tat: float
    token_expires: float | None
    token: int | None
    member: int | None
    type: str
    name: str
    role: str | None
    """Role of the caller in the workspace of the key; None if the caller is not a member of the
    workspace."""
    may_push: int | None


_IN_FORCE = "lookup = call.{kind} AND {kind}.kind = '{kind}' AND {kind}.revoked IS NULL"
_SELECT_KNOWN = (
    " SELECT call.key, call.token, call.proven, key.id, key.name, key.workspace, key.scopes,"
    " key.expires, key.per_minute, key.burst, key.tat, token.expires, token.id, member.id,"
    " member.type, member.name, role, may_push FROM call"
    f" JOIN credential AS key ON key.{_IN_FORCE.format(kind='key')}"
    f" LEFT JOIN credential AS token ON token.{_IN_FORCE.format(kind='token')}"
    " LEFT JOIN member ON member.id = coalesce(token.member, call.proven)"
    " AND member.disabled IS NULL LEFT JOIN membership ON membership.member = member.id"
    " AND membership.workspace = key.workspace"
)

_LookupKey = tuple[str, str, int]
"""Key of a lookup: the hashes of a call's key and token, and the member whose password was right (0
if none)."""


def _make_query(call: Call) -> _LookupKey:
    # Secrets are looked up by their hashes, so the time of the lookup reveals nothing about a
    # secret.
    token = call.proof.token
    if token is not None:
        return secret.hash_for_lookup(call.proof.key), secret.hash_for_lookup(token), 0
    return secret.hash_for_lookup(call.proof.key), "", call.proven or 0


def _find_known(db: Db, calls: Sequence[Call]) -> list[_KnownKey | None]:
    """Return the data of each call. The entry is None if the key is unknown or revoked."""
    queries = [_make_query(call) for call in calls]
    table, values = make_small_table(db, "call", ("key", "token", "proven"), sorted({*queries}))
    rows = db.execute(table + _SELECT_KNOWN, *values)
    known_keys = {(key, token, proven): _KnownKey(*row) for key, token, proven, *row in rows}
    return [known_keys.get(each) for each in queries]


def _find_in_force(key: _KnownKey | None, now: float) -> _KnownKey | None:
    ends = () if key is None else (key.expires, key.token_expires)
    return None if any(end is not None and end <= now for end in ends) else key


def authorize_calls(db: Db, calls: Sequence[Call]) -> list[Caller | Problem | None]:
    """Return for each call the caller, a Problem if the caller may not make the call, or None if a
    credential is wrong. One SQL statement serves all calls.
    """
    known_keys = _find_known(db, calls)
    valid_keys = [
        _find_in_force(each, call.now) for each, call in zip(known_keys, calls, strict=True)
    ]
    return [
        None if each is None or each.member is None else _admit(each, each.member, call)
        for each, call in zip(valid_keys, calls, strict=True)
    ]


def _admit(key: _KnownKey, member: int, call: Call) -> Caller | Problem:
    caller = Caller(
        key.key,
        key.key_name,
        key.workspace,
        frozenset(key.scopes.split()),
        member,
        key.type,
        key.name,
        key.role or "",
        bool(key.may_push),
        token=key.token or 0,
    )
    _, problem = _count_call(key.per_minute, key.burst, key.tat, call.now)
    return problem or find_objection(caller, call.purpose) or caller


_WHERE = {
    Purpose.PUSH: "to workspace",
    Purpose.READ: "the data of workspace",
    Purpose.ACKNOWLEDGE: "an SOS of workspace",
    Purpose.ADMINISTER: "workspace",
}


def make_not_a_dispatcher(member: int) -> Sentence:
    """Return the refusal of a user who may not answer an SOS."""
    return sentence(
        "user {member} is not a dispatcher: run `fieldagent hub user role {member} dispatcher`",
        member=member,
    )


def find_objection(caller: Caller, purpose: Purpose) -> Problem | None:
    """Return the Problem 403 with the reason and the fix, or None if the caller may make calls for
    this purpose. The rate is not checked.
    """
    if not caller.role or (purpose is Purpose.PUSH and not caller.may_push):
        return Problem(
            403,
            sentence(
                "user {member} may not {purpose} {where} {workspace}",
                member=caller.member,
                purpose=purpose,
                where=_WHERE[purpose],
                workspace=caller.workspace,
            ),
        )
    if purpose is not Purpose.PUSH and purpose not in caller.scopes:
        return Problem(
            403,
            sentence(
                "the key may not {purpose}: `fieldagent hub key add NAME --{purpose}` makes one",
                purpose=purpose,
            ),
        )
    if purpose is Purpose.ACKNOWLEDGE and caller.type != "User":
        return Problem(
            403,
            sentence(
                "only a person can acknowledge an SOS: {member} is a {type}",
                member=caller.member,
                type=caller.type,
            ),
        )
    if purpose is Purpose.ACKNOWLEDGE and not caller.may_answer:
        return Problem(403, make_not_a_dispatcher(caller.member))
    if purpose is Purpose.ADMINISTER and caller.role != ADMINISTRATOR:
        return Problem(
            403,
            sentence(
                "user {member} is not an administrator: ask an administrator of the workspace,"
                " or run `fieldagent hub user role {member} administrator`",
                member=caller.member,
            ),
        )
    return None


class RateResult(NamedTuple):
    """Result of counting several calls against the rates of their keys."""

    problems: list[Problem | None]
    """Refusals, one for each call. None if the call is accepted."""
    tats: Mapping[int, float]
    """New theoretical arrival time (generic cell rate algorithm), in Unix seconds, of each key
    whose value has changed."""


def count_calls(db: Db, callers: Sequence[Caller], now: float) -> RateResult:
    """Count calls against the rates of their keys. All hub processes share the counts. So the
    function locks the keys, in the order of their ids, until `store_rates` has stored the result.
    """
    membership, keys = make_membership(db, sorted({caller.key for caller in callers}))
    rows = db.execute(
        f"SELECT id, per_minute, burst, tat FROM credential WHERE id {membership}"
        f" ORDER BY id{db.for_update()}",
        *keys,
    )
    rates = {id_: (per_minute, burst) for id_, per_minute, burst, _ in rows}
    before = {id_: tat for id_, _, _, tat in rows}
    tats, problems = dict(before), list[Problem | None]()
    for caller in callers:
        if caller.key in rates:
            tats[caller.key], problem = _count_call(*rates[caller.key], tats[caller.key], now)
            problems.append(problem)
        else:
            problems.append(make_unauthorized("the key was deleted in the meantime"))
    return RateResult(problems, {key: tat for key, tat in tats.items() if tat != before[key]})


def store_rates(db: Db, rate_result: RateResult) -> None:
    """Store the theoretical arrival times that `count_calls` computed."""
    for key, tat in rate_result.tats.items():
        db.write("UPDATE credential SET tat = ? WHERE id = ?", tat, key)


def charge_rate(db: Db, caller: Caller, now: float) -> Problem | None:
    """Count a single call. Return the refusal, or None."""
    counted = count_calls(db, [caller], now)
    store_rates(db, counted)
    return counted.problems[0]


def _count_call(
    per_minute: float, burst: int, tat: float, now: float
) -> tuple[float, Problem | None]:
    """Return the new theoretical arrival time of the key after one more call, and the Problem 429
    if the call is too early.
    """
    tat, wait = Rate(per_minute, burst).admit(tat, now)
    return tat, make_too_many_problem("this key has been used too often", wait) if wait else None


Place = tuple[int, int]
"""Workspace id, and the id of a user who may be a member of the workspace."""


def find_refusal(caller: Caller, push: Push, members: Collection[Place]) -> Problem | None:
    """Return the refusal if an admitted caller may not push this item, with this sender and target.
    Otherwise return None.
    """
    if push.workspace != caller.workspace:
        return Problem(
            403, sentence("the key is not for workspace {workspace}", workspace=push.workspace)
        )
    if push.kind not in caller.scopes:
        return Problem(403, sentence("the key may not push a {kind}", kind=push.kind))
    target = push.source if push.target is None else push.target
    if push.source != caller.member and caller.type == "User":
        return Problem(403, "a User pushes in their own name: sourceUserId must be their number")
    if (push.workspace, push.source) not in members:
        return Problem(
            403,
            sentence(
                "the source {source} is not in workspace {workspace}",
                source=push.source,
                workspace=push.workspace,
            ),
        )
    if (push.workspace, target) not in members:
        return Problem(
            403,
            sentence(
                "the target {target} is not in workspace {workspace}",
                target=push.target,
                workspace=push.workspace,
            ),
        )
    return None
