"""The read API, which returns the hub's data to callers with read access.

The API changes nothing, with one exception: a User can mark an item as read. A User sees items for
everyone, and items for or from this User. An Integration, an observer and a dispatcher see
everything in their workspace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.problem import Problem
from fieldagent.http.query import make_page, read_integer, read_one_of, refuse_others
from fieldagent.http.routes import Route
from fieldagent.hub.access import people
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.api import reading
from fieldagent.hub.api.reading import END, ItemFilter, ReadItem
from fieldagent.hub.api.standing import STATES, is_request_id, list_device_standings, list_reached
from fieldagent.hub.contract import NUMBER_MAX, parse_id
from fieldagent.hub.records import ledger
from fieldagent.hub.store.contract import Db, Store
from fieldagent.hub.unavailable import make_not_now
from fieldagent.package import tracks
from fieldagent.package.delivery import Stage
from fieldagent.package.reading import ITEMS
from fieldagent.store.group import StoreFailed, StoreFull, StoreUnavailable
from fieldagent.system.wording import sentence

LISTED, LISTED_MAX = 100, 1_000
READS_PER_PAGE_MAX = 20
"""Largest number of reads for one page. Several reads are necessary if each read finds only a few
items."""
READ_AT_ONCE = 50
"""Number of items that are decoded before other tasks can run."""
DELIVERY_STATES = tuple(dict.fromkeys(STATES.values()))


class ReadApi:
    """Routes of the read API. `clock` returns Unix time."""

    def __init__(
        self, store: Store, authentication: Authentication, *, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._clock = clock
        self._judge = authentication.judge(Purpose.READ)

    def make_routes(self) -> list[Route]:
        """Return the routes of the read API. Only `POST /api/items/{id}/read` stores something."""
        route = partial(Route, "GET", judge=self._judge)
        return [
            route("/api/items", self.answer_items),
            route("/api/items/{id}", self.answer_item),
            route("/api/pushes", self.answer_pushes),
            route("/api/positions", self.answer_positions),
            route("/api/deliveries", self.answer_deliveries),
            route("/api/devices", self.answer_devices),
            route("/api/users", self.answer_users),
            route("/api/groups", self.answer_groups),
            Route("POST", "/api/items/{id}/read", self.mark_read, judge=self._judge),
        ]

    async def answer_items(self, request: Request, caller: Caller) -> Response:
        """Return a page of the items that match the query and that the caller may see, newest
        first. Raises Problem 400 if the query is invalid.
        """
        names = ("text", "sender", "device", "kind", "sos", "since", "until", "before", "limit")
        refuse_others(request, names)
        sos = read_one_of(request, "sos", ("true", "false"))
        wanted_items = _read_filter(
            request,
            device=read_integer(request, "device", 0, range(1, END + 1)) or None,
            kind=read_one_of(request, "kind", tuple(ITEMS)),
            sos=None if sos is None else sos == "true",
            text=dict(request.query).get("text", ""),
        )
        matches, next_place = await self._read_page(request, caller, wanted_items)
        item_page = {"items": [each.encode() for each in matches]}
        return make_page(request, item_page, "before", next_place)

    async def answer_pushes(self, request: Request, caller: Caller) -> Response:
        """Return a page of pushes, newest first. Each push has the path of its state. A User sees
        only their own pushes. Raises Problem 400 if the query is invalid.
        """
        refuse_others(request, ("since", "until", "before", "limit"))
        # A User may see the state of their own pushes only, so list only these.
        sender = None if caller.sees_all else caller.member
        wanted_items = _read_filter(request, pushed=True, sender=sender)
        matches, next_place = await self._read_page(request, caller, wanted_items)
        push_page = [
            {**each.encode(), "standing": f"/api/push/{each.request_id}"} for each in matches
        ]
        return make_page(request, {"pushes": push_page}, "before", next_place)

    async def answer_positions(self, request: Request, caller: Caller) -> Response:
        """Return a page of positions as GeoJSON, GPX or KML. `?format=` or the header Accept
        selects the format. The header Link contains the link to the next page. GeoJSON also
        contains this link in the body.
        """
        refuse_others(request, ("sender", "since", "until", "before", "limit", "format"))
        accepts = request.headers.get("accept", "")
        accepted = [name for name in tracks.DOCUMENTS if tracks.CONTENT_TYPES[name] in accepts]
        format_name = read_one_of(request, "format", tuple(tracks.CONTENT_TYPES))
        format_name = format_name or (accepted[0] if accepted else "geojson")
        matches, next_place = await self._read_page(
            request, caller, _read_filter(request, kind="location")
        )
        placed = [place for each in matches if (place := each.make_placed()) is not None]
        # The header Link contains the next page in all formats, because GPX and KML have no field
        # for it.
        response = make_page(request, tracks.make_geojson(placed), "before", next_place)
        if format_name in tracks.DOCUMENTS:
            response = response._replace(
                body=tracks.DOCUMENTS[format_name](placed).encode("utf-8", "replace")
            )
        headers = (*response.headers, ("Vary", "Accept"))
        return response._replace(content_type=tracks.CONTENT_TYPES[format_name], headers=headers)

    async def answer_item(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Return an item and its deliveries to devices and webhooks."""
        refuse_others(request, ())

        def read_item(db: Db) -> dict[str, Any] | None:
            item_filter = ItemFilter(request_id=id)
            (numbers, _) = reading.find_items(db, caller, item_filter, END, 1)
            for each in reading.list_items(db, numbers):
                return {
                    **each.encode(),
                    "devices": list_device_standings(db, each.number, self._clock()),
                    "webhooks": reading.list_webhook_deliveries(db, each.number),
                }
            return None

        answer = await self._store.read(read_item) if is_request_id(id) else None
        if answer is None:
            raise Problem(404, "no item with this id is visible to you, or it was deleted")
        return make_json_response(answer)

    async def answer_groups(self, request: Request, caller: Caller) -> Response:
        """Return the workspace's groups and their members."""
        refuse_others(request, ())
        rows = await self._store.read(lambda db: people.encode_groups(db, caller.workspace))
        return make_json_response({"groups": rows})

    async def mark_read(self, request: Request, id: str, caller: Caller) -> Response:  # noqa: A002
        """Record that a person has read an item. The sender of the item gets a read receipt with
        the person's name.
        """
        refuse_others(request, ())
        if caller.type != "User":
            raise Problem(
                403,
                sentence(
                    "only a person can read an item: {member} is a {type}",
                    member=caller.member,
                    type=caller.type,
                ),
            )

        def store_read_mark(db: Db) -> list[dict[str, Any]] | None:
            (numbers, _) = reading.find_items(db, caller, ItemFilter(request_id=id), END, 1)
            for item in numbers:
                now = self._clock()
                ledger.record_stage(db, item, caller.member, Stage.READ, caller.name, now)
                return list_reached(db, [item])[item]
            return None

        try:
            steps = await self._store.commit(store_read_mark) if is_request_id(id) else None
        except (StoreFailed, StoreFull, StoreUnavailable):
            raise make_not_now("the hub may not have stored the note: send it again") from None
        if steps is None:
            raise Problem(404, "no item with this id is visible to you, or it was deleted")
        return make_json_response({"id": id, "reached": steps})

    async def answer_deliveries(self, request: Request, caller: Caller) -> Response:
        """Return a page of deliveries to one device. Raises Problem 400 if `?device=` is missing,
        or 404 if the device is in another workspace.
        """
        refuse_others(request, ("device", "state", "before", "limit"))
        device = read_integer(request, "device", 0, range(1, END + 1))
        if not device:
            raise Problem(400, "?device= must be the number of a device in /api/devices")
        state = read_one_of(request, "state", DELIVERY_STATES)
        before, limit = _read_place(request)

        def read_page(db: Db) -> tuple[list[dict[str, Any]], int | None] | None:
            if not reading.is_device_known(db, caller, device):
                return None
            return reading.list_deliveries(db, caller, device, state, before, limit, self._clock())

        result = await self._store.read(read_page)
        if result is None:
            raise Problem(
                404, sentence("no device of this workspace has the number {device}", device=device)
            )
        return make_page(request, {"deliveries": result[0]}, "before", result[1])

    async def answer_devices(self, request: Request, caller: Caller) -> Response:
        """Return a page of the workspace's devices, newest first."""
        refuse_others(request, ("before", "limit"))
        before, limit = _read_place(request)
        rows, next_place = await self._store.read(
            lambda db: reading.list_devices(db, caller, before, limit, self._clock())
        )
        return make_page(request, {"devices": rows}, "before", next_place)

    async def answer_users(self, request: Request, caller: Caller) -> Response:
        """Return a page of the workspace's users, newest first."""
        refuse_others(request, ("before", "limit"))
        before, limit = _read_place(request)
        rows, next_place = await self._store.read(
            lambda db: reading.list_users(db, caller, before, limit)
        )
        return make_page(request, {"users": rows}, "before", next_place)

    async def _read_page(
        self, request: Request, caller: Caller, item_filter: ItemFilter
    ) -> tuple[list[ReadItem], int | None]:
        """Return a page of items, and the item id before which the next page begins (None if there
        is none). If only few items match, a page can be short although more items follow.
        """
        place, limit = _read_place(request)
        next_place: int | None = place
        numbers: list[int] = []
        for _ in range(READS_PER_PAGE_MAX):
            look = partial(
                reading.find_items,
                caller=caller,
                item_filter=item_filter,
                before=place,
                limit=limit - len(numbers),
            )
            more_items, next_place = await self._store.read(look)
            numbers += more_items
            if next_place is None or len(numbers) >= limit or more_items:
                break
            place = next_place
        return await self._read(numbers), next_place

    async def _read(self, numbers: Sequence[int]) -> list[ReadItem]:
        items: list[ReadItem] = []
        for first in range(0, len(numbers), READ_AT_ONCE):
            number_slice = numbers[first : first + READ_AT_ONCE]
            items += await self._store.read(partial(reading.list_items, numbers=number_slice))
        return items


def _read_filter(request: Request, **more: Any) -> ItemFilter:
    sender = _read_sender(request)
    times = {name: _read_time(request, name) for name in ("since", "until")}
    return ItemFilter(**{"sender": sender, **times, **more})


def _read_place(request: Request) -> tuple[int, int]:
    before = read_integer(request, "before", END, range(1, END + 1))
    return before, read_integer(request, "limit", LISTED, range(1, LISTED_MAX + 1))


def _read_sender(request: Request) -> int | None:
    value = dict(request.query).get("sender")
    if value is None:
        return None
    if (sender := parse_id(value)) is None:
        raise Problem(
            400,
            sentence("?sender= must be the number of a user, from 1 to {most}", most=NUMBER_MAX),
        )
    return sender


_UNIX_TIME_PATTERN = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)


def _read_time(request: Request, name: str) -> float | None:
    """Return the query parameter `name` as Unix time, or None if it is missing. Its value is Unix
    time or ISO 8601, which is UTC if it contains no offset.
    """
    value = dict(request.query).get(name)
    if value is None:
        return None
    if _UNIX_TIME_PATTERN.fullmatch(value):
        return float(value)
    try:
        moment = datetime.fromisoformat(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise Problem(
            400,
            sentence(
                "?{name}= must be a time such as 2026-11-22T04:00:00Z, or Unix seconds", name=name
            ),
        ) from None
