"""The cloud push API."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fieldagent.http import openapi
from fieldagent.http.guard import required_body
from fieldagent.http.idempotency import idempotency_key
from fieldagent.http.message import Request, Response, json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub import ledger
from fieldagent.hub.audit import note
from fieldagent.hub.authentication import Authentication
from fieldagent.hub.caller import Caller, Purpose, not_allowed, over_rate
from fieldagent.hub.not_now import not_now
from fieldagent.hub.push import Push, parse_push
from fieldagent.hub.standing import push_standing
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import recorded
from fieldagent.package.reading import InvalidPackage
from fieldagent.package.strict_json import NotJson
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable


@dataclass(slots=True)
class PushCounts:
    accepted: int = 0
    refused: int = 0


class HubApi:
    """`clock` is Unix time; `grace` and `time_to_live` are seconds, see `ledger.enter`."""

    def __init__(
        self,
        store: Store,
        authentication: Authentication,
        *,
        clock: Callable[[], float],
        grace: float,
        time_to_live: float,
    ) -> None:
        self._store = store
        self._authentication = authentication
        self._clock = clock
        self._grace = grace
        self._time_to_live = time_to_live
        self.counts = PushCounts()

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/api/package", self.push, judge=self.judge),
            Route("GET", "/api/push/{id}", self.look, judge=self.judge),
            openapi.route("hub"),
        ]

    async def judge(self, head: Request) -> Caller:
        """Who calls, told by the head alone: nothing of a stranger's body is read."""
        with self._counted():
            return await self._authentication.caller(head, Purpose.PUSH)

    async def push(self, request: Request, caller: Caller) -> Response:
        with self._counted():
            request_id = await self._push(request, caller)
        self.counts.accepted += 1
        headers = (("Location", f"/api/push/{request_id}"),) if request_id else ()
        return Response(200, headers=headers)

    async def look(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """How a push stands with each device."""
        found = await self._store.read(lambda db: push_standing(db, caller, id))
        if found is None:
            raise Problem(404, "no push of yours has this id, or it was forgotten since it ended")
        return json_response(found)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except Problem:
            self.counts.refused += 1
            raise

    async def _push(self, request: Request, caller: Caller) -> str:
        """Its requestId; empty of one that an earlier version took."""
        key = idempotency_key(request.headers)
        parsed = _parsed(request)
        try:
            decided = await self._store.commit(lambda db: self._decide(db, caller, parsed, key))
        except StoreFull as full:
            raise Problem(507, f"nothing was accepted: {full}; push it again later") from None
        except (StoreFailed, StoreUnavailable):
            unknown = "nobody knows whether it was accepted: push it with the same Idempotency-Key"
            raise not_now(unknown) from None
        if isinstance(decided, Problem):
            raise decided
        return decided

    def _decide(
        self,
        db: Db,
        caller: Caller,
        parsed: Push | Problem,
        key: str | None,
    ) -> Problem | str:
        """All of it in one transaction. A refusal is returned: what it has counted must stay."""
        now = self._clock()
        if problem := over_rate(db, caller, now):
            return problem
        if isinstance(parsed, Problem):
            return parsed
        if problem := not_allowed(db, caller, parsed):
            note(db, str(caller.member), "push refused", problem.detail, now)
            return problem
        if key is not None and (known := _earlier(db, caller, key)) is not None:
            digest, request_id = known
            same = digest == _digest(parsed)
            return request_id if same else Problem(422, f"Idempotency-Key {key!r} had another body")
        request_id = self._enter(db, caller, parsed, now)
        if key is not None:
            _remember(db, caller, key, parsed, request_id, now)
        return request_id

    def _enter(self, db: Db, caller: Caller, push: Push, now: float) -> str:
        timestamp = push.timestamp or recorded(push.item)
        life = push.time_to_live or self._time_to_live
        item, request_id = ledger.enter(
            db,
            ledger.Posting(
                push.workspace,
                push.source,
                push.item,
                int(now if timestamp is None else timestamp.timestamp()),
                priority=push.priority,
                sos=push.sos,
                target=push.target,
                collapse_key=push.collapse_key,
                expires=None if push.sos else now + life,
                contact=push.contact,
            ),
            now=now,
            grace=self._grace,
        )
        whom = f"user {push.target}" if push.target else f"workspace {push.workspace}"
        detail = f"item {item}, a {push.kind} of {push.source} to {whom}, key {caller.key_name!r}"
        note(db, str(caller.member), "push", detail, now)
        return request_id


def _parsed(request: Request) -> Push | Problem:
    """What is wrong with a body is told to those alone who may push at all."""
    try:
        return parse_push(required_body(request))
    except Problem as problem:
        return problem
    except NotJson as error:
        return Problem(400, str(error))
    except InvalidPackage as error:
        faults = [(fault.detail, fault.pointer) for fault in error.faults]
        return Problem(422, f"nothing was accepted: {len(faults)} fault(s)", errors=faults)


def _digest(push: Push) -> bytes:
    return hashlib.blake2b(repr(push).encode("utf-8", "replace"), digest_size=16).digest()


def _earlier(db: Db, caller: Caller, key: str) -> tuple[bytes, str] | None:
    """Digest and requestId of the push that came under this key before."""
    rows = db.execute(
        "SELECT digest, request_id FROM idempotency"
        " WHERE credential = ? AND member = ? AND key = ?",
        caller.key,
        caller.member,
        key,
    )
    return (bytes(rows[0][0]), rows[0][1]) if rows else None


def _remember(db: Db, caller: Caller, key: str, push: Push, request_id: str, now: float) -> None:
    """Nobody else remembers the same meanwhile: `over_rate` has locked the caller's key."""
    db.execute(
        "INSERT INTO idempotency (credential, member, key, digest, at, request_id)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        caller.key,
        caller.member,
        key,
        _digest(push),
        now,
        request_id,
    )
