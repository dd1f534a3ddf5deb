"""`/api/sos`: raise this kit's SOS or add to it, show it, cancel it, or acknowledge another kit's
SOS. `/api/check-in`: ask the hub to raise an alarm if the kit sends nothing for some time.

It is safe to raise an SOS repeatedly, because a second request while an SOS is open only adds new
content. If only people with handhelds are part of the open SOS, the first request adds a message,
which also makes it the kit's own SOS.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import check_in, incident, outbound
from fieldagent.agent.journal.incident import OWN_STATION, Incident, IncidentOver
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.listing import find_last_own
from fieldagent.agent.outbound import incident_status
from fieldagent.agent.outbound.cancel import call_off, can_be_known, may_include_user_messages
from fieldagent.agent.outbound.intake import KeyReused
from fieldagent.agent.outbound.package_state import PackageState
from fieldagent.agent.refusals import describe_unread_member
from fieldagent.http.guard import get_required_body
from fieldagent.http.headers import read_idempotency_key
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import read_integer, refuse_others
from fieldagent.package import canned
from fieldagent.package.package import (
    SOS_PRIORITY,
    Channel,
    CheckIn,
    IncidentState,
    IncidentUpdate,
    Item,
    Location,
    Message,
    Package,
    PositionSource,
    Status,
)
from fieldagent.package.reading import (
    KINDS,
    SOS_WITHOUT_TEXT,
    Fault,
    Field,
    InvalidPackage,
    WrongValue,
    read_check_in,
    read_forgivingly,
    read_members,
    read_text,
)
from fieldagent.package.strict_json import NotJson, load_document
from fieldagent.package.writing import get_kind
from fieldagent.system.wording import sentence


class IncidentApi:
    """Handlers of `/api/sos`. Responses contain only facts that are on disk."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._journal = parts.journal
        self._raising = trio.Lock()
        """Lock which ensures that two simultaneous requests raise only one SOS."""

    async def raise_sos(self, request: Request) -> Response:
        """Open an incident (201), or add text and position to the open incident (200). Even a
        faulty request raises the SOS. The response then lists the unreadable parts.
        """
        unread: list[Fault] = []
        text, position = _read_text_and_position(request.body or b"{}", unread)
        key = _read_key(request, unread)
        async with self._raising:
            current = incident.find_open(self._journal)
            is_new = current is None
            # People with handhelds are allowed to cancel an SOS that only they raised. The person
            # at the page may also need help, so add a message of the kit itself. Then a handheld
            # alone cannot cancel the SOS.
            is_ours = current is not None and may_include_user_messages(
                self._journal, current.number
            )
            items: list[Item] = [Message(text or SOS_WITHOUT_TEXT)] if text or not is_ours else []
            items += [] if position is None else [position]
            last = find_last_own(self._journal) if is_new and position is None else None
            # If the SOS was cancelled in the meantime, the rest of this request must not raise
            # another SOS.
            with suppress(IncidentOver):
                joins = None
                for item in items:
                    joins = await self._add(item, joins, key and f"{key}/{get_kind(item)}")
                if last is not None:
                    await self._add(replace(last, source=PositionSource.LAST), joins)
        current = incident.find_open(self._journal) or incident.find_last(self._journal)
        assert current is not None, "something was accepted, or one was open"
        return make_json_response(
            self._describe_answer(current) | describe_unread_member(unread), 201 if is_new else 200
        )

    async def _add(
        self, item: Item, incident_number: int | None, key: str | None = None
    ) -> int | None:
        """Post an item as an SOS, and return its incident's number. The item joins the incident
        `incident_number`. If that is None, the item joins the open incident, or opens a new one.
        Raises IncidentOver, and the intake's errors.
        """
        package = Package(item, priority=SOS_PRIORITY)
        accept = partial(self._parts.intake.accept, package, incident_number=incident_number)
        try:
            package_state = await accept(key)
        except KeyReused:
            # The key was used with other content. The content of this request is new, so it must be
            # sent.
            package_state = await accept(None)
        return incident.find_incident(self._journal, package_state.sequence)

    async def answer_canned_texts(self, request: Request) -> Response:
        """Return the canned messages. Each of them takes one or two bytes on the air."""
        refuse_others(request, ())
        return make_json_response(
            {
                "raised": canned.SOS_REASONS,
                "fromKit": canned.KIT_TEXTS,
                "fromHelpers": canned.HELPER_TEXTS,
            }
        )

    async def answer_incidents(self, request: Request) -> Response:
        refuse_others(request, ())
        return make_json_response(self._get_incident_status())

    async def cancel_incident(self, request: Request) -> Response:
        """End the open incident, and notify its receivers over the same channels. If the request
        contains an incident number, end only this incident, so that a repeated request cannot end a
        newer incident.
        """
        refuse_others(request, ("number",))
        number = read_integer(request, "number", 0, range(1, 2**63))
        journal = self._journal
        current = (
            incident.find_by_number(journal, number) if number else incident.find_open(journal)
        )
        if current is None:
            return make_json_response({"incident": None, "othersNotified": False})
        if current.ended is not None:
            is_known = can_be_known(journal, current.number)
            return make_json_response(
                {"incident": self._describe_answer(current), "othersNotified": is_known}
            )
        parts = self._parts
        is_known = await call_off(
            journal, parts.cancellation, parts.intake, parts.proof_keys, current.number
        )
        ended_incident = incident.find_by_number(journal, current.number)
        assert ended_incident is not None, "an incident stays"
        return make_json_response(
            {"incident": self._describe_answer(ended_incident), "othersNotified": is_known}
        )

    async def record_seen(self, request: Request, station: str, number: str) -> Response:
        """Record that a person at this kit has seen the incident of another kit or of an
        unauthenticated handheld (station 0). For another kit's incident, also notify that kit and
        the stations in range. Raises Problem 404 if the incident is unknown.
        """
        person, text = _read_name_and_text(get_required_body(request))
        station_and_number = _parse_number(station), _parse_number(number)
        heard_incidents = incident_status.list_heard_incidents(self._journal, station_and_number[1])
        if station_and_number[0] not in [each["station"] for each in heard_incidents]:
            raise Problem(
                404,
                sentence(
                    "this kit has not received SOS {number} of station {station}",
                    number=number,
                    station=station,
                ),
            )
        update = IncidentUpdate(
            station_and_number[1], IncidentState.SEEN, station_and_number[0], person, text
        )
        at = self._journal.clock.date(now := self._journal.clock.now())
        # The incident belongs to a handheld at this kit, so the update also changes the state of
        # this kit's incident.
        is_here = station_and_number[0] == OWN_STATION
        await self._journal.commit(
            lambda db: incident.record_update(db, update, at, now, is_proved=True, counts=is_here)
        )
        if not is_here:
            await self._send_update_once(update)
        return make_json_response(self._get_incident_status(), 202)

    async def _send_update_once(self, update: IncidentUpdate) -> None:
        """Send the update. Send the same update again only if the earlier one was not delivered."""
        key = f"seen {update.station} {update.incident} {update.by} {update.text}"
        update_package = outbound.find_by_idempotency_key(self._journal, key)
        failed = update_package is not None and update_package.status not in (
            None,
            Status.DELIVERED,
        )
        package = Package(update, priority=SOS_PRIORITY - 1)
        await self._parts.intake.accept(package, None if failed else key)

    def _describe_answer(self, incident_record: Incident) -> dict[str, Any]:
        return incident_status.describe_incident(self._journal, incident_record)

    def _get_incident_status(self) -> dict[str, Any]:
        return self._parts.incident_status()


POSITION_TEXT_MAX = 60
"""Maximum number of characters of an unreadable position in the text of an SOS."""
_RAISE_FIELDS = {"text": Field(read_text, "text")}


def _read_text_and_position(body: bytes, unread: list[Fault]) -> tuple[str, Location | None]:
    r"""Return the text and the position of a body such as `{"text": "leg broken", "position":
    {"latitude": 47.3, "longitude": "8° 32' 30\" E"}}`; both are optional.

    Faults are added to `unread`. An unreadable position is added to the text, because a person may
    understand it.
    """
    try:
        document = _read_object(body)
    except NotJson as wrong:
        unread.append(Fault(str(wrong), ""))
        return "", None
    except Problem as wrong:
        unread.append(Fault(wrong.detail, ""))
        return "", None
    raw_position = document.pop("position", None)
    members = read_members(document, _RAISE_FIELDS, "", unread, extra_members={"position": None})
    position = None
    if raw_position is not None:
        faults: list[Fault] = []
        position = read_forgivingly("location", raw_position, faults)
        unread += [
            Fault(each.detail, _POSITION + each.pointer[len(_LOCATION) :]) for each in faults
        ]
    text = members.get("text", "").strip()
    if raw_position is not None and position is None:
        text = f"{text or SOS_WITHOUT_TEXT} (position: {_summarise_value(raw_position)})"
    return text, position


_LOCATION, _POSITION = "/location", "/position"


def _summarise_value(value: Any) -> str:
    """Return an unreadable position as a short text for people."""
    if isinstance(value, dict):
        value = " ".join(str(value.get(name, "?")) for name in ("latitude", "longitude"))
    return "".join(each if each.isprintable() else "?" for each in str(value))[:POSITION_TEXT_MAX]


def _read_key(request: Request, faults: list[Fault]) -> str | None:
    """Return the Idempotency-Key, or None if it is missing or cannot be read."""
    try:
        return read_idempotency_key(request.headers)
    except Problem as fault:
        faults.append(Fault(fault.detail, ""))
        return None


def _read_name_and_text(body: bytes) -> tuple[str, str]:
    faults: list[Fault] = []
    members = {"by": Field(read_text, "by", required=True), "text": Field(read_text, "text")}
    named_members = read_members(_read_object(body), members, "", faults)
    if not faults and not named_members["by"].strip():
        faults.append(Fault("must be the name of the person who takes over", "/by"))
    _refuse(faults)
    return named_members["by"].strip(), named_members.get("text", "").strip()


def _read_object(body: bytes) -> dict[str, Any]:
    document = load_document(body)
    if not isinstance(document, dict):
        raise Problem(422, "the body must be a JSON object")
    return document


def _refuse(faults: list[Fault]) -> None:
    if faults:
        raise InvalidPackage(faults)


def _parse_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


CHECK_IN_COLLAPSE_KEY = -1_667_591_278
"""CollapseKey of the requests: a newer request replaces a waiting one."""
TO_HUB = frozenset({Channel.SATELLITE, Channel.CELLULAR})


def make_check_in_request(
    limit_s: int | None, configured_channels: frozenset[Channel]
) -> Package | None:
    """Return a Package that requests the check-in. Return None if no channel leads to the hub."""
    channels = configured_channels & TO_HUB
    priority = KINDS["checkIn"].priority
    if not channels:
        return None
    return Package(CheckIn(limit_s), None, channels, CHECK_IN_COLLAPSE_KEY, priority)


def describe_check_in(journal: Journal) -> dict[str, Any] | None:
    """Return the state of the check-in for the API, with Unix times. Return None if there is no
    check-in, or if the hub has confirmed its end.
    """
    request = check_in.read_last_request(journal)
    if request is None or (request.within_s is None and request.confirmed is not None):
        return None
    date = journal.clock.date
    package = outbound.find_by_sequence(journal, request.sequence)
    last = request.at if request.heard is None else request.heard
    counts = request.confirmed is not None
    return {
        "package": None if package is None else package.id,
        "status": None if package is None else package.status,
        "within": request.within_s,
        "since": date(request.at),
        "confirmed": request.confirmed,
        "due": date(last + (request.within_s or 0)) if counts else None,
    }


async def begin_check_in(parts: Parts, request: Request) -> PackageState:
    """Ask the hub to raise an alarm if the kit sends nothing for the number of seconds in the
    request's body. Raises Problem if the body is invalid.
    """
    return await _request_check_in(parts, _read_deadline(get_required_body(request)))


async def end_check_in(parts: Parts) -> PackageState:
    """Ask the hub to end the check-in."""
    return await _request_check_in(parts, None)


async def _request_check_in(parts: Parts, limit_s: int | None) -> PackageState:
    package = make_check_in_request(limit_s, frozenset(parts.queues))
    if package is None:
        detail = "no channel leads to the hub: set hub-address or satellite-port and restart"
        raise Problem(409, detail=detail)
    return await parts.intake.accept(package)


def _read_deadline(body: bytes) -> int:
    """Return the seconds in the body. Raises NotJson if the body is not JSON, and InvalidPackage if
    the seconds are missing or invalid.
    """
    document = load_document(body)
    if not isinstance(document, dict):
        raise InvalidPackage([Fault('must be an object such as {"within": 14400}', "")])
    faults = [
        Fault("is not a known member; known is within", f"/{name[:80]}")
        for name in document
        if name != "within"
    ]
    try:
        if "within" not in document:
            raise WrongValue("is required")
        within = read_check_in(document["within"])
    except WrongValue as wrong:
        faults.append(Fault(str(wrong), "/within"))
    if faults:
        raise InvalidPackage(faults)
    return within
