"""What a caller has done under an Idempotency-Key: once, however often it is asked for.

A caller is a member with a key of the API. What answers a repeat is kept beside it as text: of a
push its requestId, of another deed the number of what it made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from fieldagent.http.idempotency import idempotency_key
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.store.contract import Db, insert
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.sentence import sentence

Name = tuple[int, int, str]
"""Of what was asked for: key, member and Idempotency-Key."""


class Repeatable(NamedTuple):
    """What is asked for under a name, and the digest by which a repeat of it is known."""

    name: Name
    digest: bytes


def digest_of(asked: str) -> bytes:
    """Return 16 bytes by which the same request is known again."""
    return hashlib.blake2b(asked.encode("utf-8", "replace"), digest_size=16).digest()


def repeatable(request: Request, caller: Caller) -> Repeatable | None:
    """Return what a request asks for under its Idempotency-Key; None without one. Raises Problem
    400 for a key that is none."""
    key = idempotency_key(request.headers)
    if key is None:
        return None
    name = caller.key, caller.member, key
    return Repeatable(name, digest_of(repr((request.method, request.path, request.body))))


def earlier(db: Db, names: Collection[Name]) -> dict[Name, tuple[bytes, str]]:
    """Return of those under which something was done its digest, and what answers it again."""
    if not names:
        return {}
    rows = db.execute(
        "SELECT credential, member, key, digest, request_id FROM idempotency"
        f" WHERE (credential, member, key) IN (VALUES {', '.join(['(?, ?, ?)'] * len(names))})",
        *(part for name in names for part in name),
    )
    return {(*name,): (bytes(digest), answer) for *name, digest, answer in rows}


def refuse_another(name: Name, before: bytes, digest: bytes) -> Problem | None:
    """Return the Problem 422 for a name under which something else was done."""
    if before == digest:
        return None
    return Problem(422, sentence("Idempotency-Key {key} had another body", key=repr(name[-1])))


_REMEMBERED = ("credential", "member", "key", "digest", "at", "request_id")


def remember_all(db: Db, done: Sequence[tuple[Repeatable, str]], now: float) -> None:
    """Keep what was done with what answers its repeats. Nobody else remembers the same meanwhile:
    `count_calls` or `done_before` has locked the callers' keys."""
    rows = [(*name, digest, now, answer) for (name, digest), answer in done]
    insert(db, "idempotency", _REMEMBERED, rows)


def remember(db: Db, asked: Repeatable | None, answer: str, now: float) -> None:
    """Keep one, which `done_before` has not found; none where it has no key."""
    if asked is not None:
        remember_all(db, [(asked, answer)], now)


def done_before(db: Db, asked: Repeatable | None) -> str | None:
    """Return what answers this again, where it was done; None where it is to be done now, and then
    to be given to `remember` in the same transaction. It comes before other rows are locked there,
    as with a push. Raises Problem 422 where something else was done under its name."""
    if asked is None:
        return None
    db.execute(f"SELECT 1 FROM credential WHERE id = ?{db.for_update()}", asked.name[0])
    entry = earlier(db, [asked.name]).get(asked.name)
    if entry is None:
        return None
    before, answer = entry
    if problem := refuse_another(asked.name, before, asked.digest):
        raise problem
    return answer
