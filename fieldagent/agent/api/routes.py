"""Routes of the local API. Their handlers connect HTTP with the intake and the journal."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from fieldagent.agent import handbook
from fieldagent.agent import page as web_page
from fieldagent.agent.api.inbound import answer_people, list_commands, record_read
from fieldagent.agent.api.packages import (
    PAGE_MAX,
    STATES,
    describe_with_names,
    list_package_page,
    list_queue_page,
    list_stages,
)
from fieldagent.agent.api.sos import IncidentApi, begin_check_in, end_check_in
from fieldagent.agent.api.state import (
    answer_forecasts,
    answer_signals,
    find_forecast,
    format_agent_metrics,
)
from fieldagent.agent.api.track import answer_positions
from fieldagent.agent.assembly import Parts
from fieldagent.agent.events import TOPICS
from fieldagent.agent.journal import dead_letters, history, inbound, outbound
from fieldagent.agent.journal.dead_letters import DeadLetter
from fieldagent.agent.journal.directory import require_known
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.listing import END
from fieldagent.agent.journal.losses import report_unreadable
from fieldagent.agent.journal.records import DamagedPackage
from fieldagent.agent.outbound.cost import compute_costs
from fieldagent.agent.outbound.package_state import PackageState
from fieldagent.agent.outbound.package_state import find_package_state as stands
from fieldagent.agent.outbound.waiting import NO_CHANNEL, WaitReasons
from fieldagent.agent.refusals import convert_refusals, describe_unread_member
from fieldagent.http import openmetrics, server_sent
from fieldagent.http.guard import get_required_body
from fieldagent.http.headers import read_idempotency_key
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import make_page, read_integer, read_one_of, refuse_others
from fieldagent.http.routes import Route, make_description_route, read_preferred_wait
from fieldagent.package.delivery import encode_deliveries
from fieldagent.package.package import Channel, Status
from fieldagent.package.reading import INT32, KINDS, Fault, parse_package
from fieldagent.system import waits
from fieldagent.system.wording import sentence

Handler = Callable[..., Awaitable[Response]]

LISTED, LISTED_MAX = 100, 1000
PAGE_END = PAGE_MAX + 1


class Condition(Protocol):
    """The agent's condition, in the form that the routes need."""

    def get_status(self) -> dict[str, Any]:
        """Return the response to `GET /api/status`."""

    def count_faults(self) -> Mapping[str, int]:
        """Return the number of failures of each part of the agent since its start."""

    def find_illness(self) -> str | None:
        """Return None if the agent works, or a sentence with the problem."""

    def list_lost_channels(self) -> Sequence[str]:
        """Return the channels that have been away for an hour, with the reason for each."""


class LocalApi:
    """Handlers of the local API, for `http.routes`. The routes of `make_routes` raise every error
    as a Problem.
    """

    def __init__(self, parts: Parts, condition: Condition) -> None:
        self._parts = parts
        self._journal = parts.journal
        self._condition = condition

    def make_routes(self) -> list[Route]:
        """Return all routes of the local API. Every handler converts errors of the lower layers
        into a Problem.
        """
        return [
            Route("POST", "/api/package", _convert_errors(self.send)),
            Route("POST", "/api/package/async", _convert_errors(self.enqueue)),
            Route("POST", "/api/package/cost", _convert_errors(self.answer_cost)),
            Route("GET", "/api/packages", _convert_errors(self.answer_packages)),
            Route("GET", "/api/package/{id}", _convert_errors(self.answer_package)),
            Route("POST", "/api/package/{id}/cancel", _convert_errors(self.cancel)),
            Route("DELETE", "/api/package/{id}", _convert_errors(self.cancel)),
            *(
                Route(*path, _convert_errors(handler))
                for path, handler in self._make_sos_routes().items()
            ),
            Route("POST", "/api/check-in", _convert_errors(partial(_begin_check_in, self._parts))),
            Route("DELETE", "/api/check-in", _convert_errors(partial(_end_check_in, self._parts))),
            Route(
                "POST",
                "/api/satellite/retry",
                _convert_errors(partial(_retry_satellite, self._parts)),
            ),
            Route("GET", "/api/trace", _convert_errors(partial(_answer_trace, self._parts))),
            Route("GET", "/api/queue", _convert_errors(self.queue)),
            Route("DELETE", "/api/queue", _convert_errors(self.clear)),
            Route("GET", "/api/inbound", _convert_errors(self.answer_inbound)),
            Route("POST", "/api/inbound/{id}/replay", _convert_errors(self.replay)),
            Route(
                "POST",
                "/api/inbound/{id}/read",
                _convert_errors(partial(record_read, self._parts)),
            ),
            Route("GET", "/api/people", _convert_errors(partial(answer_people, self._parts))),
            Route(
                "GET",
                "/api/positions",
                _convert_errors(partial(answer_positions, self._parts)),
            ),
            Route(
                "GET",
                "/api/forecast",
                _convert_errors(partial(answer_forecasts, self._parts)),
            ),
            Route(
                "GET",
                "/api/signals",
                _convert_errors(partial(answer_signals, self._parts)),
            ),
            Route("GET", "/api/neighbours", _convert_errors(self.answer_neighbours)),
            Route("GET", "/api/commands", _convert_errors(partial(_answer_commands, self._parts))),
            Route("GET", "/api/mesh", _convert_errors(self.answer_mesh)),
            Route("GET", "/api/health", _convert_errors(self.answer_health)),
            Route("GET", "/api/status", _convert_errors(self.answer_status)),
            Route("GET", "/api/events", _convert_errors(self.listen)),
            Route("GET", "/metrics", _convert_errors(self.answer_metrics)),
            make_description_route("fieldagent.agent"),
            *web_page.make_routes(),
            *handbook.make_routes(),
        ]

    def _make_sos_routes(self) -> dict[tuple[str, str], Handler]:
        sos = IncidentApi(self._parts)
        return {
            ("POST", "/api/sos"): sos.raise_sos,
            ("GET", "/api/sos"): sos.answer_incidents,
            ("GET", "/api/sos/words"): sos.answer_canned_texts,
            ("DELETE", "/api/sos"): sos.cancel_incident,
            ("POST", "/api/sos/{station}/{number}/take"): sos.record_seen,
        }

    async def send(self, request: Request) -> Response:
        """Accept a Package, wait for its terminal status, and return 200. If the request has the
        header `Prefer: wait=N`, wait at most N seconds. If the Package still waits then, return 202
        with the address of its status.
        """
        package_state, unread = await self._accept(request)
        seconds = read_preferred_wait(request.headers)
        outcome = self._parts.endings.wait_for_outcome
        if seconds is None:
            outcome_of_package = await outcome(package_state.sequence)
            return make_json_response(
                _add_memory_reason(self._journal, _encode_state(outcome_of_package) | unread)
            )
        applied = ("Preference-Applied", f"wait={seconds}")
        with waits.move_on_after(seconds):
            package_state = await outcome(package_state.sequence)
        if package_state.status is not None:
            answer = _add_memory_reason(self._journal, _encode_state(package_state) | unread)
            return make_json_response(answer, headers=(applied,))
        answer = _add_memory_reason(self._journal, _describe_progress(package_state) | unread)
        return make_json_response(answer, 202, (_make_location_header(package_state), applied))

    async def enqueue(self, request: Request) -> Response:
        """Accept a Package, and return 202 with the address of its status, without waiting for the
        end.
        """
        package_state, unread = await self._accept(request)
        answer = _add_memory_reason(self._journal, _describe_progress(package_state) | unread)
        return make_json_response(answer, 202, (_make_location_header(package_state),))

    async def answer_cost(self, request: Request) -> Response:
        """Return the cost of a Package on each channel, without queuing the Package. A Package that
        `POST /api/package` would refuse is refused here too.
        """
        package = parse_package(get_required_body(request))
        require_known(self._journal, package.to)
        clock = self._journal.clock
        estimates = compute_costs(package, self._parts.outboxes, clock.date(clock.now()))
        head_starts = self._parts.intake.compute_begins(package)
        return make_json_response(
            {
                "channels": {
                    channel: {
                        "parts": cost.parts,
                        "bytes": cost.bytes,
                        "credits": cost.credits,
                        "creditsLeft": None if cost.by_bytes else cost.remaining,
                        "byBytes": cost.by_bytes,
                        "bytesLeft": cost.remaining if cost.by_bytes else None,
                        "money": self._format_money(cost.credits),
                        "begins": head_starts[channel].after,
                        "why": head_starts[channel].reason or None,
                        "expected": find_forecast(self._parts, channel),
                        "reason": cost.refusal or None,
                    }
                    for channel, cost in estimates.items()
                }
            }
        )

    def _format_money(self, credit_count: float) -> str | None:
        """Return the price of `credit_count` credits as text. Return None if the number is 0, or if
        no price is configured.
        """
        price = self._parts.price
        return price.format_amount(credit_count) if price is not None and credit_count else None

    async def _accept(self, request: Request) -> tuple[PackageState, dict[str, Any]]:
        """Accept a Package, and return its state. Also return the member of the response that lists
        the unreadable parts of an SOS.
        """
        key = read_idempotency_key(request.headers)
        unread: list[Fault] = []
        package = parse_package(get_required_body(request), unread)
        return await self._parts.intake.accept(package, key), describe_unread_member(unread)

    async def answer_package(self, request: Request, id: str) -> Response:  # noqa: A002
        """Return the state of one Package: its channel deliveries, receipts, stages and history. If
        several Packages have the id, the newest is used. Raises Problem 404 if the id is unknown.
        """
        package_state = stands(self._journal, _read_id(id))
        confirmations = outbound.list_receipts(self._journal, package_state.sequence)
        receipts = [each.encode() for each in confirmations]
        package = outbound.find_by_sequence(self._journal, package_state.sequence)
        lines = [] if package is None else history.list_lines(self._journal, package, confirmations)
        history_lines = [line._asdict() for line in lines]
        content = {}
        with suppress(DamagedPackage):
            kept_package = outbound.read_kept_package(self._journal, package_state.sequence)
            content = (
                {}
                if kept_package is None
                else describe_with_names(self._journal, kept_package.package)
            )
        # A final status never changes, so `late` shows that a receipt arrived after an error or a
        # cancellation.
        late = package_state.status in (Status.ERROR, Status.CANCELED) and bool(receipts)
        return make_json_response(
            {
                **_add_memory_reason(self._journal, _describe_progress(package_state)),
                **content,
                "channels": _get_wait_reasons(self._parts).describe_deliveries(
                    package_state.sequence, package_state.deliveries
                ),
                "receipts": receipts,
                "reached": [] if package is None else list_stages(self._journal, package),
                "unconfirmed": []
                if self._parts.station is None
                else self._parts.station.list_unconfirmed_stations(
                    package_state.sequence, package_state.deliveries
                ),
                "late": late,
                "history": history_lines,
            }
        )

    async def cancel(self, request: Request, id: str) -> Response:  # noqa: A002
        """Cancel a Package on the channel in `?channel=`, or on all channels. Return 200 if it is
        cancelled, or 202 if it has not ended on each channel yet. Raises Problem 409 if the Package
        has already ended, or ends with another status.
        """
        if request.body.strip() not in (b"", b"{}"):
            raise Problem(400, detail="a cancel call has an empty body; use ?channel= to bound it")
        package = _read_id(id)
        ended_before = stands(self._journal, package).status is not None
        package_state = await self._parts.cancellation.cancel(package, _read_channel(request))
        if ended_before or package_state.status not in (None, "Canceled"):
            raise Problem(
                409,
                detail=sentence(
                    "Package {package} has already ended: {status}",
                    package=package,
                    status=package_state.status,
                ),
                members={"package": _encode_state(package_state)},
            )
        if package_state.status is None:
            return make_json_response(_describe_progress(package_state), 202)
        return make_json_response(_encode_state(package_state))

    async def queue(self, request: Request) -> Response:
        """Return a page of the waiting Packages, oldest first, and their total number. `?after=` is
        the sequence above which the page begins. Raises Problem 400 if the query is invalid.
        """
        channel = _read_channel(request, "limit", "after")
        limit = read_integer(request, "limit", PAGE_MAX, range(1, PAGE_END))
        after = read_integer(request, "after", 0, range(2**63))
        channels = [name for name in self._parts.queues if channel in (None, name)]
        queued = await self._parts.resume.count_waiting(channels)
        page, last = await list_queue_page(
            self._journal, _get_wait_reasons(self._parts), channels, after, limit
        )
        return make_page(request, {"queued": queued, "packages": page}, "after", last)

    async def answer_packages(self, request: Request) -> Response:
        """Return a page of the posted Packages, newest first. `?before=` is the sequence below
        which the page begins. Raises Problem 400 if the query is invalid.
        """
        refuse_others(request, ("state", "kind", "before", "limit"))
        state = read_one_of(request, "state", STATES)
        kind = read_one_of(request, "kind", tuple(KINDS))
        before = read_integer(request, "before", END, range(1, END + 1))
        limit = read_integer(request, "limit", LISTED, range(1, PAGE_END))
        rows, last = await list_package_page(
            self._journal, _get_wait_reasons(self._parts), state, kind, before, limit
        )
        for row in rows:
            row["money"] = self._format_money(row["credits"])
        return make_page(request, {"packages": rows}, "before", last)

    async def clear(self, request: Request) -> Response:
        """Cancel all waiting Packages except an open SOS, on one channel or on all. Return the
        number of cancelled Packages.
        """
        return make_json_response(
            {"deleted": await self._parts.cancellation.clear(_read_channel(request))}
        )

    async def answer_inbound(self, request: Request) -> Response:
        """Return a page of the received payloads, newest first. The first page also contains all
        dead letters, unless `?state=` asks for another state. Raises Problem 400 if the query is
        invalid.
        """
        refuse_others(request, ("state", "before", "limit"))
        state = read_one_of(request, "state", inbound.STATES)
        before = read_integer(request, "before", END, range(1, END + 1))
        limit = read_integer(request, "limit", LISTED_MAX, range(1, PAGE_END))
        payloads = inbound.list_payloads(self._journal, limit + 1, state, before)
        last = payloads[limit - 1]["number"] if len(payloads) > limit else None
        # There are few dead letters, and they have their own list, so the first page contains all
        # of them.
        has_letters = before == END and state in (None, "dead")
        letters = dead_letters.list_newest(self._journal) if has_letters else []
        return make_page(
            request,
            {
                "payloads": [*_list_payloads(payloads[:limit])],
                "deadLetters": [_describe_dead_letter(letter) for letter in letters],
            },
            "before",
            last,
        )

    async def replay(self, request: Request, id: str) -> Response:  # noqa: A002
        """Hand a payload to every configured hook again, whatever its state is. Raises Problem 409
        if there is no hook, and 404 if no payload has this requestId.
        """
        hooks = self._parts.inbox.hooks
        if not hooks:
            raise Problem(
                409,
                detail="no hook is configured: set inbound-hook or webhook-address and restart",
            )
        if not await self._journal.commit(inbound.replay(id, hooks)):
            raise Problem(404, detail=sentence("no inbound payload has the requestId {id}", id=id))
        self._parts.inbox.wake()
        return make_json_response({"requestId": id, "hooks": list(hooks)}, 202)

    async def answer_neighbours(self, request: Request) -> Response:
        """Return the kits that were heard by radio. The member `station` is null if there is no
        radio.
        """
        if (station := self._parts.station) is None:
            return make_json_response({"station": None, "neighbours": [], "remoteStations": []})
        return make_json_response(station.list_neighbours())

    async def answer_mesh(self, request: Request) -> Response:
        """Return the people whose handheld radios are in range. The list is empty if the kit has no
        radio for handhelds.
        """
        people = [each for part in self._parts.services.values() for each in part.list_people()]
        return make_json_response({"people": people})

    async def answer_health(self, request: Request) -> Response:
        """Return 200 with UP, or with DEGRADED if a channel has been away for an hour. Return 503
        with DOWN and the reason if the agent does not work.
        """
        trouble = self._condition.find_illness()
        if trouble is None and (lost_channels := self._condition.list_lost_channels()):
            return make_json_response({"status": "DEGRADED", "reason": "; ".join(lost_channels)})
        if trouble is None:
            return make_json_response({"status": "UP"})
        return make_json_response({"status": "DOWN", "reason": trouble}, 503)

    async def answer_status(self, request: Request) -> Response:
        return make_json_response(self._condition.get_status())

    async def listen(self, request: Request) -> Response:
        """Return the stream of events (text/event-stream)."""
        topics_request = server_sent.parse_stream_request(request, TOPICS)
        return server_sent.make_stream_response(partial(self._parts.events.listen, topics_request))

    async def answer_metrics(self, request: Request) -> Response:
        """Return the agent's metrics in the OpenMetrics text format."""
        status, faults = self._condition.get_status(), self._condition.count_faults()
        text = format_agent_metrics(status, faults, self._journal)
        return Response(200, text.encode(), openmetrics.CONTENT_TYPE)


def _get_wait_reasons(parts: Parts) -> WaitReasons:
    return WaitReasons(parts.journal, parts.queues, parts.outboxes, parts.endings.clock())


def _make_location_header(package_state: PackageState) -> tuple[str, str]:
    return "Location", f"/api/package/{package_state.id}"


def _convert_errors(handler: Handler) -> Handler:
    """Return a handler that converts errors of the lower layers into problems."""

    async def handle_converted(request: Request, **parts: str) -> Response:
        with convert_refusals():
            return await handler(request, **parts)

    return handle_converted


async def _begin_check_in(parts: Parts, request: Request) -> Response:
    check_in_state = await begin_check_in(parts, request)
    return make_json_response(
        _describe_progress(check_in_state), 202, (_make_location_header(check_in_state),)
    )


async def _retry_satellite(parts: Parts, request: Request) -> Response:
    """Request a satellite session now, before the time of the next attempt. Return the number of
    waiting Packages. Raises Problem 409 if no satellite modem is configured.
    """
    outbox = parts.outboxes.get(Channel.SATELLITE)
    if outbox is None:
        raise Problem(409, detail="no satellite modem is configured: set satellite-port")
    outbox.link.request_attempt()
    return make_json_response({"queued": len(outbox)}, 202)


async def _answer_commands(parts: Parts, request: Request) -> Response:
    return make_json_response(list_commands(parts))


async def _answer_trace(parts: Parts, request: Request) -> Response:
    """Return the last traffic on a channel's serial line: the part that was stored on disk after a
    fault, and the part in memory.
    """
    refuse_others(request, ("channel", "payloads"))
    channel = Channel(read_one_of(request, "channel", tuple(Channel)) or Channel.SATELLITE)
    payloads = read_one_of(request, "payloads", ("0", "1")) == "1"
    if (outbox := parts.outboxes.get(channel)) is None:
        raise Problem(409, detail=sentence("{channel} is not configured", channel=channel))
    recorder = outbox.link.recorder
    return make_json_response(
        {"kept": await recorder.read_stored(), "memory": recorder.format_trace(payloads=payloads)}
    )


async def _end_check_in(parts: Parts, request: Request) -> Response:
    check_in_state = await end_check_in(parts)
    return make_json_response(
        _describe_progress(check_in_state), 202, (_make_location_header(check_in_state),)
    )


def _read_id(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,10}", text, re.ASCII) or int(text) not in INT32:
        raise Problem(
            404,
            detail=sentence("a Package id is a 32-bit integer, not {text}", text=repr(text[:40])),
        )
    return int(text)


def _read_channel(request: Request, *others: str) -> Channel | None:
    """Return the channel in the request's query, or None for all channels. `others` contains the
    names of other allowed parameters.
    """
    refuse_others(request, ("channel", *others))
    value = read_one_of(request, "channel", tuple(Channel))
    return None if value is None else Channel(value)


def _add_memory_reason(journal: Journal, answer: dict[str, Any]) -> dict[str, Any]:
    """If the journal is not on disk, return the response with the reason added. Otherwise, return
    it unchanged.
    """
    disk_fault = journal.not_on_disk
    return {**answer, "notOnDisk": disk_fault} if disk_fault else answer


def _encode_state(package_state: PackageState) -> dict[str, Any]:
    return {
        "id": package_state.id,
        "status": package_state.status,
        "data": {"payload": ""},
        "channels": encode_deliveries(package_state.deliveries),
        **({} if package_state.deliveries else {"reason": NO_CHANNEL}),
    }


def _describe_progress(package_state: PackageState) -> dict[str, Any]:
    """Return the response about a Package, including the time of its acceptance. `status` is null
    while the Package waits.
    """
    return {**_encode_state(package_state), "accepted": package_state.accepted}


def _list_payloads(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the payloads with decoded bodies. Log and skip a payload whose body cannot be read."""
    for row in rows:
        try:
            yield {**row, "body": json.loads(row["body"])}
        except ValueError:
            report_unreadable("payload", row["requestId"])


def _describe_dead_letter(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter in the API's form. The member `text` is None if the letter is empty or
    not printable UTF-8 text.
    """
    try:
        text = letter.body.decode()
    except UnicodeDecodeError:
        text = ""
    readable = all(each.isprintable() or each in "\t\r\n" for each in text)
    return {
        "number": letter.number,
        "channel": letter.channel,
        "received": letter.received,
        "reason": letter.reason,
        "payload": base64.b64encode(letter.body).decode(),
        "text": text if text and readable else None,
    }
