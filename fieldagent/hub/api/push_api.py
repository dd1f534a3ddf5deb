"""The push API: accepts items for the field, and returns their cost and state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fieldagent.extensions import get_third_party_calls
from fieldagent.http.guard import get_required_body
from fieldagent.http.headers import read_idempotency_key
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.routes import Route, make_description_route
from fieldagent.hub.access import people
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import (
    Caller,
    Purpose,
    count_calls,
    find_refusal,
    store_rates,
)
from fieldagent.hub.access.push import Push, parse_push
from fieldagent.hub.access.repeats import (
    Name,
    Repeatable,
    compute_request_digest,
    find_earlier,
    refuse_another,
    store_results,
)
from fieldagent.hub.api.standing import describe_push_state
from fieldagent.hub.field.cost import list_costs_and_forecast
from fieldagent.hub.field.satellite_sizes import SatelliteKits, delay_until_linked, find_unfit_kits
from fieldagent.hub.records import ledger
from fieldagent.hub.records.audit import PUSH, AuditLine, write_line, write_lines
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.unavailable import make_not_now
from fieldagent.package.package import get_position_time
from fieldagent.package.reading import InvalidPackage, number_of_faults
from fieldagent.package.strict_json import NotJson
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import sentence


@dataclass(slots=True)
class PushCounts:
    accepted: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PushRequest:
    """A push to accept or refuse, or the error in its body. Only callers with the right to push see
    the error.
    """

    caller: Caller
    parsed: Push | Problem
    key: str | None

    @property
    def push(self) -> Push:
        """Return the push of a body that has no errors."""
        assert isinstance(self.parsed, Push)
        return self.parsed

    @property
    def name(self) -> Name | None:
        return None if self.key is None else (self.caller.key, self.caller.member, self.key)


class HubApi:
    """Routes of the push API. `clock` returns Unix time. `grace` and `time_to_live` are in seconds
    (see `ledger.add_items`).
    """

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

    def make_routes(self) -> list[Route]:
        """Return the routes that accept a push, show its cost and state, and return the API
        description.
        """
        return [
            Route("POST", "/api/package", self.push, judge=self.judge),
            Route("POST", "/api/package/cost", self.answer_cost, judge=self.judge),
            Route("GET", "/api/push/{id}", self.answer_push, judge=self.judge),
            make_description_route("fieldagent.hub", get_third_party_calls),
        ]

    async def judge(self, head: Request) -> Caller:
        """Return the caller. Use only the head of the request, because the hub must not read the
        body of an anonymous request.
        """
        with self._count_request():
            return await self._authentication.authenticate(head, Purpose.PUSH)

    async def push(self, request: Request, caller: Caller) -> Response:
        """Accept a push. Respond with status 200 and the path of the push's state. Raises Problem
        if the hub refuses the push.
        """
        with self._count_request():
            request_id = await self._push(request, caller)
        self.counts.accepted += 1
        return Response(200, headers=(("Location", f"/api/push/{request_id}"),))

    async def answer_cost(self, request: Request, caller: Caller) -> Response:
        """Return the cost of pushing the body now. Nothing is stored or counted."""
        parsed = _parse(request)

        def compute_costs(db: Db) -> Problem | list[dict[str, Any]]:
            now = self._clock()
            if isinstance(parsed, Problem):
                return parsed
            members = people.find_carriers(db, [parsed])
            problem = find_refusal(caller, parsed, members)
            posting = problem or make_posting(db, parsed, members, now, self._time_to_live)
            return (
                posting
                if isinstance(posting, Problem)
                else list_costs_and_forecast(db, posting, now)
            )

        answer = await self._store.read(compute_costs)
        if isinstance(answer, Problem):
            raise answer
        return make_json_response({"devices": answer})

    async def answer_push(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return the state of a push for each device."""
        push_state = await self._store.read(
            lambda db: describe_push_state(db, caller, id, self._clock())
        )
        if push_state is None:
            raise Problem(404, "you have no push with this id, or it ended and was deleted")
        return make_json_response(push_state)

    @contextmanager
    def _count_request(self) -> Iterator[None]:
        try:
            yield
        except Problem:
            self.counts.refused += 1
            raise

    async def _push(self, request: Request, caller: Caller) -> str:
        """Add a push and return its requestId. If an earlier push has the same Idempotency-Key,
        return the requestId of that push.
        """
        key = read_idempotency_key(request.headers)
        parsed = _parse(request)
        try:
            decided = await self._store.commit_together(
                self._decide, PushRequest(caller, parsed, key)
            )
        except StoreFull as full:
            raise Problem(
                507, sentence("nothing was accepted: {full}; push it again later", full=full)
            ) from None
        except (StoreFailed, StoreUnavailable):
            unknown = "it may not have been accepted: push it again with the same Idempotency-Key"
            raise make_not_now(unknown) from None
        if isinstance(decided, Problem):
            raise decided
        return decided

    def _decide(self, db: Db, push_requests: Sequence[PushRequest]) -> list[Problem | str]:
        """Accept or refuse pushes in one transaction. Return the requestId or the refusal of each.
        A refusal is not raised, because the transaction must also store the count of the call.
        """
        now = self._clock()
        counted = count_calls(db, [each.caller for each in push_requests], now)
        pushes = [each.push for each in push_requests if isinstance(each.parsed, Push)]
        members = people.find_carriers(db, pushes)
        called = [
            each
            for problem, each in zip(counted.problems, push_requests, strict=True)
            if not problem
        ]
        # Check for earlier pushes first. An accepted push stays accepted, even if the hub would
        # refuse the same push now.
        names = {each.name for each in called if isinstance(each.parsed, Push) and each.name}
        earlier_pushes = find_earlier(db, names)
        refusals = [
            problem or _find_refusal(db, each, members, earlier_pushes, now)
            for problem, each in zip(counted.problems, push_requests, strict=True)
        ]
        postings: dict[PushRequest, ledger.Posting] = {}
        unfit_kits: dict[PushRequest, SatelliteKits] = {}
        for at, each in enumerate(push_requests):
            if refusals[at] is None and each.name not in earlier_pushes:
                posting = make_posting(db, each.push, members, now, self._time_to_live)
                if isinstance(posting, Problem):
                    refusals[at] = posting
                    continue
                unfit_kits[each] = find_unfit_kits(db, posting, now)
                if why := unfit_kits[each].find_refusal():
                    problem = Problem(422, why, errors=[(why, "/data/payload")])
                    refusals[at] = _make_refused(db, each, problem, now)
                else:
                    postings[each] = posting
        accepted = [
            each for each, refusal in zip(push_requests, refusals, strict=True) if refusal is None
        ]
        # Store only the first push with an Idempotency-Key. All other pushes with this key are
        # repeats.
        new_pushes: dict[Name | PushRequest, PushRequest] = {}
        for each in accepted:
            if each.name not in earlier_pushes:
                new_pushes.setdefault(each.name or each, each)
        added_ids = self._add_items(
            db, {each: postings[each] for each in new_pushes.values()}, unfit_kits, now
        )
        repeatables = [
            (Repeatable(each.name, _digest(each)), id_) for each, id_ in added_ids if each.name
        ]
        store_results(db, repeatables, now)
        store_rates(db, counted)
        earlier_pushes |= {
            each.name: (_digest(each), request) for each, request in added_ids if each.name
        }
        requests = dict(added_ids)
        return [
            refusal
            or (_repeat_answer(each, *earlier_pushes[each.name]) if each.name else requests[each])
            for each, refusal in zip(push_requests, refusals, strict=True)
        ]

    def _add_items(
        self,
        db: Db,
        postings: Mapping[PushRequest, ledger.Posting],
        satellite_kits: Mapping[PushRequest, SatelliteKits],
        now: float,
    ) -> list[tuple[PushRequest, str]]:
        """Store the pushes as items of the ledger. Return each push with its requestId."""
        added_items = ledger.add_items(db, list(postings.values()), now=now, grace=self._grace)
        lines = [
            AuditLine(
                each.caller.workspace,
                str(each.caller.member),
                PUSH,
                f"item {item}, {_describe_refusal(each)}",
            )
            for each, (item, _) in zip(postings, added_items, strict=True)
        ]
        write_lines(db, lines, now)
        for each, (item, _) in zip(postings, added_items, strict=True):
            delay_until_linked(db, item, satellite_kits[each])
        return [(each, request) for each, (_, request) in zip(postings, added_items, strict=True)]


def make_posting(
    db: Db, push: Push, carriers: people.Carriers, now: float, time_to_live: float
) -> ledger.Posting | Problem:
    """Return the posting of a push, or a Problem if its group does not exist or is empty.
    `time_to_live` is the default in seconds.
    """
    posting = _make_plain_posting(push, now, time_to_live)
    if push.target is not None and push.group is None:
        carrier = carriers.get((push.workspace, push.target))
        if carrier is not None:
            # Send the addressee to the kit, because the addressee is not the kit's own user.
            return replace(posting, device=carrier, to=push.target)
    if push.group is None:
        return posting
    group_address = -push.group if isinstance(push.group, int) else f"group:{push.group}"
    recipient = people.find_recipient(db, push.workspace, group_address)
    if recipient.reason:
        return Problem(403, sentence("targetGroup: {why}", why=recipient.reason))
    # Send the group to the kits, because a person who uses a kit may be in several groups.
    assert recipient.team is not None
    return replace(
        posting,
        team=recipient.team,
        audience=recipient.audience | ({push.target} if push.target is not None else set()),
        over_satellite=recipient.over_satellite,
        addressee=recipient.identity_json,
        to=-recipient.team,
    )


def _make_plain_posting(push: Push, now: float, time_to_live: float) -> ledger.Posting:
    timestamp = push.timestamp or get_position_time(push.item)
    life = push.time_to_live or time_to_live
    return ledger.Posting(
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
        asks=push.wants_receipt,
    )


def _parse(request: Request) -> Push | Problem:
    """Return the push in the request's body, or the Problem of an invalid body. Only callers with
    the right to push see that Problem.
    """
    try:
        return parse_push(get_required_body(request))
    except Problem as problem:
        return problem
    except NotJson as error:
        return Problem(400, str(error))
    except InvalidPackage as error:
        faults = [(fault.detail, fault.pointer) for fault in error.faults]
        return Problem(
            422,
            sentence("nothing was accepted: {faults}", faults=number_of_faults(faults)),
            errors=faults,
        )


def _find_refusal(
    db: Db,
    request: PushRequest,
    members: Collection[tuple[int, int]],
    known_names: Collection[Name | None],
    now: float,
) -> Problem | None:
    """Return the refusal of a push, or None. `known_names` are the names of pushes that the hub
    accepted earlier.
    """
    if isinstance(request.parsed, Problem):
        return request.parsed
    if request.name in known_names:
        return None
    problem = find_refusal(request.caller, request.push, members)
    return problem and _make_refused(db, request, problem, now)


def _make_refused(db: Db, request: PushRequest, problem: Problem, now: float) -> Problem:
    caller = request.caller
    write_line(db, caller.workspace, str(caller.member), "push refused", problem.detail, now)
    return problem


def _describe_refusal(request: PushRequest) -> str:
    push = request.push
    addressee = f"user {push.target}" if push.target else f"workspace {push.workspace}"
    addressee = f"group {push.group}" if push.group else addressee
    return f"a {push.kind} of {push.source} to {addressee}, key {request.caller.key_name!r}"


def _repeat_answer(request: PushRequest, digest: bytes, request_id: str) -> Problem | str:
    assert request.name is not None
    return refuse_another(request.name, digest, _digest(request)) or request_id


def _digest(request: PushRequest) -> bytes:
    return compute_request_digest(repr(request.push))
