"""Who has signed in at the console: a credential of the kind `session`, told as a random cookie."""

from __future__ import annotations

from fieldagent.http.cookie import cookie_of
from fieldagent.http.message import Request
from fieldagent.hub.access import secret
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.records.audit import note
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import ITEMS

COOKIE = "fieldagent-session"
LASTS = 43_200.0
"""Seconds: a shift."""
NAME = "console"
"""What a key's name is to a call with a key: it stands in the audit."""
SCOPES = frozenset(
    [Purpose.READ.value, Purpose.ACKNOWLEDGE.value, Purpose.ADMINISTER.value, *ITEMS]
)


def begin(db: Db, member: int, workspace: int, now: float) -> str:
    """Begin a session, and return its cookie, which is told this once."""
    token = secret.new_secret("session")
    db.execute(
        "INSERT INTO credential (kind, workspace, member, lookup, name, created, expires)"
        " VALUES ('session', ?, ?, ?, ?, ?, ?)",
        workspace,
        member,
        secret.lookup(token),
        NAME,
        now,
        now + LASTS,
    )
    note(db, workspace, str(member), "console sign-in", f"workspace {workspace}", now)
    return token


def end(db: Db, token: str) -> None:
    """End the session of that token, if there is one."""
    db.execute("DELETE FROM credential WHERE kind = 'session' AND lookup = ?", secret.lookup(token))


def end_all_of(db: Db, member: int) -> None:
    """End all sessions of a member."""
    db.execute("DELETE FROM credential WHERE kind = 'session' AND member = ?", member)


def forget(db: Db, now: float) -> None:
    """Delete the sessions that have expired; time is Unix time."""
    db.execute("DELETE FROM credential WHERE kind = 'session' AND expires <= ?", now)


def caller(db: Db, token: str, now: float) -> Caller | None:
    """Return who has signed in; None where the session is over, or the user was disabled."""
    rows = db.execute(
        "SELECT credential.id, credential.workspace, member.id, type, member.name, role, may_push"
        " FROM credential JOIN member ON member.id = credential.member JOIN membership"
        " ON membership.member = member.id AND membership.workspace = credential.workspace"
        " WHERE lookup = ? AND kind = 'session' AND expires > ? AND disabled IS NULL",
        secret.lookup(token),
        now,
    )
    if not rows:
        return None
    id_, workspace, member, type_, name, role, may_push = rows[0]
    fields = (id_, NAME, workspace, SCOPES, member, type_, name, role, bool(may_push))
    return Caller(*fields, signed_in=True)


def workspaces_of(db: Db, member: int) -> list[int]:
    """Return the workspaces of a User; nobody else signs in."""
    rows = db.execute(
        "SELECT workspace FROM membership JOIN member ON member.id = membership.member"
        " WHERE member = ? AND type = 'User' AND disabled IS NULL ORDER BY workspace",
        member,
    )
    return [workspace for (workspace,) in rows]


def token_of(request: Request) -> str | None:
    """Return the token of the console's cookie; None where the request has none."""
    return cookie_of(request, COOKIE)


def is_same_site(request: Request) -> bool:
    """Return whether a page of ours made the browser send it. Browsers tell where a POST comes
    from."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    host = request.headers.get("host", "")
    return request.headers.get("origin") in (f"https://{host}", f"http://{host}")
