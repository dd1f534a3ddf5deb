"""Idempotency: an action with an Idempotency-Key is done once, however often a caller
repeats the request.

A caller is a member together with an API key. The hub stores the result as a text and returns it to
a repeated request. The result of a push is its requestId. The result of another action is the id of
the new object.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from fieldagent.http.headers import read_idempotency_key
from fieldagent.http.message import Request
from fieldagent.http.problem import Problem
from fieldagent.hub.access.caller import Caller
from fieldagent.hub.store.contract import Db, insert
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.wording import sentence

Name = tuple[int, int, str]
"""Name of a request: API key, member and Idempotency-Key."""


class Repeatable(NamedTuple):
    """Name of a request, and the digest of its content. A repeat has the same name and digest."""

    name: Name
    digest: bytes


def compute_request_digest(request_text: str) -> bytes:
    """Return a 16-byte digest of a request. Equal requests have the same digest."""
    return hashlib.blake2b(request_text.encode("utf-8", "replace"), digest_size=16).digest()


def read_repeatable(request: Request, caller: Caller) -> Repeatable | None:
    """Return the name and digest of a request, or None if the request has no Idempotency-Key.
    Raises Problem 400 if the key is invalid.
    """
    key = read_idempotency_key(request.headers)
    if key is None:
        return None
    name = caller.key, caller.member, key
    return Repeatable(
        name, compute_request_digest(repr((request.method, request.path, request.body)))
    )


def find_earlier(db: Db, names: Collection[Name]) -> dict[Name, tuple[bytes, str]]:
    """Return the digest and the result for each name that was used before."""
    if not names:
        return {}
    rows = db.execute(
        "SELECT credential, member, key, digest, request_id FROM idempotency"
        f" WHERE (credential, member, key) IN (VALUES {', '.join(['(?, ?, ?)'] * len(names))})",
        *(part for name in names for part in name),
    )
    return {(*name,): (bytes(digest), answer) for *name, digest, answer in rows}


def refuse_another(name: Name, earlier_digest: bytes, digest: bytes) -> Problem | None:
    """Return the Problem 422 if a different request was made with the same name, otherwise None."""
    if earlier_digest == digest:
        return None
    return Problem(422, sentence("Idempotency-Key {key} had another body", key=repr(name[-1])))


_REMEMBERED = ("credential", "member", "key", "digest", "at", "request_id")


def store_results(db: Db, answered: Sequence[tuple[Repeatable, str]], now: float) -> None:
    """Store requests with the results that repeats get. No other process stores the same requests
    at the same time, because `count_calls` or `find_answer` has locked the callers' keys.
    """
    rows = [(*name, digest, now, answer) for (name, digest), answer in answered]
    insert(db, "idempotency", _REMEMBERED, rows)


def store_result(db: Db, repeatable: Repeatable | None, answer: str, now: float) -> None:
    """Store one request that `find_answer` has not found. Do nothing if the request has no
    Idempotency-Key.
    """
    if repeatable is not None:
        store_results(db, [(repeatable, answer)], now)


def find_answer(db: Db, repeatable: Repeatable | None) -> str | None:
    """Return the result if the request was done before. Return None if the request must be done
    now. In this case, pass its result to `store_result` in the same transaction.

    Call this function before you lock other rows, as a push does. Raises Problem 422 if a different
    request was made with the same name.
    """
    if repeatable is None:
        return None
    db.execute(f"SELECT 1 FROM credential WHERE id = ?{db.for_update()}", repeatable.name[0])
    entry = find_earlier(db, [repeatable.name]).get(repeatable.name)
    if entry is None:
        return None
    before, answer = entry
    if problem := refuse_another(repeatable.name, before, repeatable.digest):
        raise problem
    return answer
