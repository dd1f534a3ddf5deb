"""Console sessions. A session is a credential of the kind `session`, which the browser sends as a
random cookie.
"""

from __future__ import annotations

from fieldagent.http.headers import read_cookie
from fieldagent.http.message import Request
from fieldagent.hub.access import secret
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.records.audit import write_line
from fieldagent.hub.store.contract import Db
from fieldagent.package.reading import ITEMS

COOKIE = "fieldagent-session"
SESSION_LIFETIME_S = 43_200.0
"""Seconds for which a session is valid. This is the length of a shift."""
NAME = "console"
"""Name in the audit log for calls from the console, which have no API key."""
SCOPES = frozenset(
    [Purpose.READ.value, Purpose.ACKNOWLEDGE.value, Purpose.ADMINISTER.value, *ITEMS]
)


def begin_session(db: Db, member: int, workspace: int, now: float) -> str:
    """Begin a session and return its cookie. The hub stores only a hash of the cookie."""
    token = secret.make_secret("session")
    db.execute(
        "INSERT INTO credential (kind, workspace, member, lookup, name, created, expires)"
        " VALUES ('session', ?, ?, ?, ?, ?, ?)",
        workspace,
        member,
        secret.hash_for_lookup(token),
        NAME,
        now,
        now + SESSION_LIFETIME_S,
    )
    write_line(db, workspace, str(member), "console sign-in", f"workspace {workspace}", now)
    return token


def end_session(db: Db, token: str) -> None:
    """Sign out of the session with this token. A token without a session is ignored."""
    db.execute(
        "DELETE FROM credential WHERE kind = 'session' AND lookup = ?",
        secret.hash_for_lookup(token),
    )


def end_all_sessions(db: Db, member: int) -> None:
    """End all sessions of a member, so that all the member's browsers are signed out."""
    db.execute("DELETE FROM credential WHERE kind = 'session' AND member = ?", member)


def delete_expired_sessions(db: Db, now: float) -> None:
    """Delete the expired sessions. `now` is Unix time."""
    db.execute("DELETE FROM credential WHERE kind = 'session' AND expires <= ?", now)


def find_caller(db: Db, token: str, now: float) -> Caller | None:
    """Return the caller of a session, or None if the session has ended or the user was disabled."""
    rows = db.execute(
        "SELECT credential.id, credential.workspace, member.id, type, member.name, role, may_push"
        " FROM credential JOIN member ON member.id = credential.member JOIN membership"
        " ON membership.member = member.id AND membership.workspace = credential.workspace"
        " WHERE lookup = ? AND kind = 'session' AND expires > ? AND disabled IS NULL",
        secret.hash_for_lookup(token),
        now,
    )
    if not rows:
        return None
    id_, workspace, member, type_, name, role, may_push = rows[0]
    fields = (id_, NAME, workspace, SCOPES, member, type_, name, role, bool(may_push))
    return Caller(*fields, signed_in=True)


def list_workspaces(db: Db, member: int) -> list[int]:
    """Return the ids of a User's workspaces. The result is empty for other members, who cannot sign
    in.
    """
    rows = db.execute(
        "SELECT workspace FROM membership JOIN member ON member.id = membership.member"
        " WHERE member = ? AND type = 'User' AND disabled IS NULL ORDER BY workspace",
        member,
    )
    return [workspace for (workspace,) in rows]


def read_token(request: Request) -> str | None:
    """Return the token in the console's cookie, or None if the request has no such cookie."""
    return read_cookie(request, COOKIE)


def is_same_site(request: Request) -> bool:
    """Return True if a page of the console made the browser send the request. The function compares
    the origin that browsers report for a POST.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    host = request.headers.get("host", "")
    return request.headers.get("origin") in (f"https://{host}", f"http://{host}")
