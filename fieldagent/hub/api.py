"""The routes of the hub: the cloud push API, health and metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from fieldagent.http import openapi
from fieldagent.http.guard import required_body
from fieldagent.http.idempotency import idempotency_key
from fieldagent.http.message import Request, Response, json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route
from fieldagent.hub import lease, ledger
from fieldagent.hub.audit import note
from fieldagent.hub.caller import (
    Caller,
    Network,
    Proof,
    address_of,
    admitted,
    blocked,
    not_allowed,
    note_failure,
    over_rate,
    read_proof,
    stored_password,
    unauthorized,
)
from fieldagent.hub.push import Push, parse_push
from fieldagent.hub.secret import password_matches
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import recorded
from fieldagent.package.reading import InvalidPackage
from fieldagent.package.strict_json import NotJson
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable

_PASSWORDS_AT_ONCE = 2
"""Each takes 16 MiB for a moment."""


@dataclass(slots=True)
class _Counts:
    accepted: int = 0
    refused: int = 0


class HubApi:
    """`clock` is Unix time; `grace` and `time_to_live` are seconds, see `ledger.enter`."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        grace: float,
        time_to_live: float,
        trusted_proxies: Sequence[Network] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._grace = grace
        self._time_to_live = time_to_live
        self._trusted = trusted_proxies
        self._passwords = trio.CapacityLimiter(_PASSWORDS_AT_ONCE)
        self._counts = _Counts()

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/api/package", self.push, judge=self.judge),
            Route("GET", "/healthz", self.health),
            Route("GET", "/metrics", self.metrics),
            openapi.route("hub"),
        ]

    async def judge(self, head: Request) -> Caller:
        """Who calls, told by the head alone: nothing of a stranger's body is read."""
        with self._counted():
            now = self._clock()
            address = address_of(head, self._trusted)
            if problem := await self._store.read(lambda db: blocked(db, address, now)):
                raise problem
            proof = read_proof(head.headers)
            proven = await self._prove(proof)
            found = await self._store.read(lambda db: admitted(db, proof, proven, now))
            if found is None:
                await self._store.commit(lambda db: note_failure(db, address, now))
                raise unauthorized(
                    "the key, or the token or password beside it, is wrong or expired"
                )
            if isinstance(found, Problem):
                raise found
            return found

    async def push(self, request: Request, caller: Caller) -> Response:
        with self._counted():
            await self._push(request, caller)
        self._counts.accepted += 1
        return Response(200)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        try:
            yield
        except Problem:
            self._counts.refused += 1
            raise
        except StoreFull as full:
            raise Problem(507, f"nothing was accepted: {full}; push it again later") from None
        except (StoreFailed, StoreUnavailable) as failed:
            again = (("Retry-After", "10"),)
            detail = f"nobody knows whether it was accepted ({failed}); push it again with the same"
            raise Problem(503, f"{detail} Idempotency-Key", headers=again) from None

    async def _push(self, request: Request, caller: Caller) -> None:
        key = idempotency_key(request.headers)
        parsed = _parsed(request)
        problem = await self._store.commit(lambda db: self._decide(db, caller, parsed, key))
        if problem is not None:
            raise problem

    async def _prove(self, proof: Proof) -> int | None:
        """Whose password it is, if it is right."""
        if proof.token is not None:
            return None
        known = await self._store.read(lambda db: stored_password(db, proof.username))
        member, stored = known or (None, None)
        right = await trio.to_thread.run_sync(
            password_matches, proof.password, stored, limiter=self._passwords
        )
        return member if right else None

    def _decide(
        self,
        db: Db,
        caller: Caller,
        parsed: Push | Problem,
        key: str | None,
    ) -> Problem | None:
        """All of it in one transaction. A refusal is returned: what it has counted must stay."""
        now = self._clock()
        if problem := over_rate(db, caller, now):
            return problem
        if isinstance(parsed, Problem):
            return parsed
        if problem := not_allowed(db, caller, parsed):
            note(db, str(caller.member), "push refused", problem.detail, now)
            return problem
        if key is not None and (known := _earlier(db, caller, key, parsed, now)) is not None:
            same = known == _digest(parsed)
            return None if same else Problem(422, f"Idempotency-Key {key!r} had another body")
        self._enter(db, caller, parsed, now)
        return None

    def _enter(self, db: Db, caller: Caller, push: Push, now: float) -> None:
        timestamp = push.timestamp or recorded(push.item)
        life = push.time_to_live or self._time_to_live
        item = ledger.enter(
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

    async def health(self, request: Request) -> Response:
        try:
            await self._store.read(lambda db: db.execute("SELECT 1"))
        except StoreUnavailable as unavailable:
            document = {"status": "DOWN", "reason": str(unavailable)}
            return json_response(document, 503)
        return json_response({"status": "UP"})

    async def metrics(self, request: Request) -> Response:
        values = await self._store.read(lambda db: _figures(db, self._clock()))
        values |= {"pushes_accepted": self._counts.accepted, "pushes_refused": self._counts.refused}
        text = "".join(f"fieldagent_hub_{name} {value}\n" for name, value in values.items())
        return Response(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")


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


def _earlier(db: Db, caller: Caller, key: str, push: Push, now: float) -> bytes | None:
    """The digest of the push that came under this key before; None when it is the first."""
    if db.execute(
        "INSERT INTO idempotency (credential, key, digest, at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING RETURNING key",
        caller.key,
        key,
        _digest(push),
        now,
    ):
        return None
    ((known,),) = db.execute(
        "SELECT digest FROM idempotency WHERE credential = ? AND key = ?", caller.key, key
    )
    return bytes(known)


def _figures(db: Db, now: float) -> dict[str, int]:
    counts = {
        "items": "SELECT count(*) FROM item",
        "deliveries_waiting": "SELECT count(*) FROM delivery"
        " WHERE state IN ('waiting', 'packed', 'sent')",
        "satellite_messages_waiting": "SELECT count(*) FROM mobile_terminated",
        "webhook_deliveries_waiting": "SELECT count(*) FROM webhook_delivery"
        " WHERE state = 'waiting'",
        "webhook_deliveries_dead": "SELECT count(*) FROM webhook_delivery WHERE state = 'dead'",
    }
    found = {name: int(db.execute(sql)[0][0]) for name, sql in counts.items()}
    return {**found, "devices_linked": lease.linked(db, now)}
