"""Stream of new items, and of events of incidents, to listeners.

The stream uses server-sent events (HTML standard, section 9.2) on `GET /api/events`. Each event has
an id. A listener can continue after this id (`Last-Event-ID`) at any hub process of the database.
The hub reads the events from the tables, so no listener needs a queue.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import field
from functools import partial
from typing import TypeVar

import trio

from fieldagent.http import server_sent
from fieldagent.http.message import Request, Response
from fieldagent.http.query import refuse_others
from fieldagent.http.routes import Route
from fieldagent.http.server_sent import LISTENING_COMMENT, StreamRequest, encode_event
from fieldagent.hub.access.authentication import Authentication
from fieldagent.hub.access.caller import Caller, Purpose
from fieldagent.hub.api import reading, sos_desk
from fieldagent.hub.records import sos
from fieldagent.hub.records.lease import Leases
from fieldagent.hub.store.contract import Db, Store, make_small_table
from fieldagent.store.group import NOT_STORED
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

K = TypeVar("K")
V = TypeVar("V")

ITEM = "item"
TOPICS = (ITEM, sos.SOS, sos.ALARM)
READ_PAUSE_S = 1.0
"""Seconds until the next read after a read that returned all new rows. Without this pause, many
listeners would slow down a busy hub."""
STREAM_LIFETIME_S = 900.0
"""Seconds after which a stream ends, so that the listener must reconnect and authenticate again."""
UNSETTLED_S = 30.0
"""Seconds after which a row with a lower id can no longer appear, although other hub processes
commit rows out of order."""
ROWS_PER_READ = 50
"""Largest number of rows per read."""
HELD_ROWS_MAX = 5
"""Largest number of rows whose texts a stream keeps in memory while it waits for a slow
listener."""


@dataclass(slots=True)
class Follower:
    """Place of a listener in a table whose rows are read in the order of their ids. Each row is
    returned once, even if a row with a lower id appears later.
    """

    place: int
    """Id up to which all rows have been returned and no further row can appear. A listener may
    continue after this id."""
    unsettled: float
    has_more: bool = False
    """True if there may be more rows after the last read."""
    _sent_ids: set[int] = field(default_factory=set)

    def select_fresh(self, rows: Sequence[tuple[int, float]], now: float) -> dict[int, int]:
        """Return the ids of the rows that were not returned before, each with the place from which
        a listener may continue after this row. `rows` are the next ids after `place`, at most
        `capacity`, with their times.
        """
        self.has_more = len(rows) >= self.capacity
        places: dict[int, int] = {}
        settled = True
        for number, at in rows:
            settled = settled and (not self.unsettled or at <= now - self.unsettled)
            is_known = number in self._sent_ids
            if settled:
                self.place = number
                self._sent_ids.discard(number)
            else:
                self._sent_ids.add(number)
            if not is_known:
                places[number] = self.place
        return places

    @property
    def capacity(self) -> int:
        """Return the largest number of rows for one read: new rows, and rows after `place` that
        were already returned.
        """
        return ROWS_PER_READ + len(self._sent_ids)


class EventStreams:
    """Event streams. `leases` records the open consoles; `clock` returns Unix time."""

    def __init__(
        self,
        store: Store,
        authentication: Authentication,
        leases: Leases,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._leases = leases
        self._clock = clock
        self._judge = authentication.judge(Purpose.READ)

    def route(self) -> Route:
        """Return the route `GET /api/events`."""
        return Route("GET", "/api/events", self.listen, judge=self._judge)

    async def listen(self, request: Request, caller: Caller) -> Response:
        """Return the HTTP response with the stream of events (text/event-stream)."""
        refuse_others(request, server_sent.QUERY)
        stream_request = server_sent.parse_stream_request(request, TOPICS)
        return server_sent.make_stream_response(partial(self.stream_events, caller, stream_request))

    async def stream_events(
        self, caller: Caller, stream_request: StreamRequest
    ) -> AsyncIterator[bytes]:
        """Yield the events for a caller as bytes. The stream ends if the database is unavailable. A
        listener that reconnects continues after its last event. If the hub does not know this
        event, the stream begins with the event `lost`.
        """
        is_ringing_console = caller.rings and "sos" in stream_request.topics
        console = (
            self._leases.hold_console(caller.workspace, caller.member)
            if is_ringing_console
            else nullcontext()
        )
        try:
            async with console, aclosing(self._stream_texts(caller, stream_request)) as pieces:
                async for events in pieces:
                    yield events
        except NOT_STORED:
            return

    async def _stream_texts(
        self, caller: Caller, stream_request: StreamRequest
    ) -> AsyncGenerator[bytes, None]:
        newest = await self._store.read(partial(_find_newest, workspace=caller.workspace))
        places = _read_places(stream_request.last, newest)
        unsettled = UNSETTLED_S if self._store.shared else 0.0
        items, happened = (Follower(each, unsettled) for each in places or newest)
        is_lost = bool(stream_request.last) and places is None
        yield LISTENING_COMMENT + (_encode_event(*newest, "lost", "{}") if is_lost else b"")
        ends = trio.current_time() + STREAM_LIFETIME_S
        deadline = trio.current_time() + stream_request.quiet_max_s
        while trio.current_time() < ends:
            news = self._store.get_event(sos.EVENTS)
            listener = _make_listener(caller)
            if not await self._store.read_together(_check_listeners, listener):
                return
            has_sent = False
            async with aclosing(
                self._stream_since(caller, stream_request.topics, items, happened)
            ) as pieces:
                async for events in pieces:
                    has_sent = True
                    yield events
            if has_sent:
                deadline = trio.current_time() + stream_request.quiet_max_s
                await trio.sleep(0.0 if items.has_more or happened.has_more else READ_PAUSE_S)
                continue
            with trio.move_on_at(deadline) as quiet:
                await news.wait()
                await trio.sleep(READ_PAUSE_S)
            if quiet.cancelled_caught:
                yield stream_request.alive
                deadline = trio.current_time() + stream_request.quiet_max_s

    async def _stream_since(
        self, caller: Caller, topics: frozenset[str], items: Follower, happened: Follower
    ) -> AsyncGenerator[bytes, None]:
        viewer = None if caller.sees_all else caller.member
        if "item" in topics:
            view = _View(caller.workspace, viewer, items.place, items.capacity)
            async with aclosing(
                self._read_fresh(_list_next_items, _read_items, view, items)
            ) as rows:
                async for batch in rows:
                    at = happened.place
                    yield b"".join(_encode_event(place, at, *event) for event, place in batch)
        if not topics.isdisjoint((sos.SOS, sos.ALARM)):
            view = _View(caller.workspace, None, happened.place, happened.capacity)
            async with aclosing(
                self._read_fresh(_list_next_events, _read_events, view, happened)
            ) as rows:
                async for batch in rows:
                    at = items.place
                    wanted_events = [each for each in batch if each[0][0] in topics]
                    yield b"".join(
                        _encode_event(at, place, *event) for event, place in wanted_events
                    )

    async def _read_fresh(
        self, list_next: _ListNextRows, texts: _Texts, view: _View, follower: Follower
    ) -> AsyncGenerator[list[tuple[_NamedText, int]], None]:
        """Yield the events of new rows in batches of at most `HELD_ROWS_MAX`, each with the place
        after which a listener may continue. Simultaneous reads of the same rows, for example for
        many consoles, are done once.
        """
        rows = await self._store.read_together(list_next, view)
        fresh_rows = follower.select_fresh(rows, self._clock())
        numbers = tuple(fresh_rows)
        for start in range(0, len(numbers), HELD_ROWS_MAX):
            few = numbers[start : start + HELD_ROWS_MAX]
            documents = await self._store.read_together(texts, few)
            if documents:
                yield [
                    (documents[number], fresh_rows[number]) for number in few if number in documents
                ]


class _Listener(NamedTuple):
    key: int
    token: int
    """Id of the listener's token; 0 if the listener has no token."""
    member: int
    workspace: int
    role: str
    """Role, which determines the items that the listener sees."""


def _make_listener(caller: Caller) -> _Listener:
    return _Listener(caller.key, caller.token, caller.member, caller.workspace, caller.role)


def _check_listeners(db: Db, listeners: Sequence[_Listener]) -> list[bool]:
    """Return True for each listener that may still receive events. False if the member was
    disabled, the key or token was revoked, or the role has changed.
    """
    table, values = make_small_table(db, "asked", _Listener._fields, sorted({*listeners}))
    rows = db.execute(
        f"{table} SELECT {', '.join(f'asked.{name}' for name in _Listener._fields)} FROM asked"
        " JOIN credential ON credential.id = asked.key AND credential.revoked IS NULL"
        " JOIN member ON member.id = asked.member AND member.disabled IS NULL"
        " JOIN membership ON membership.member = asked.member"
        " AND membership.workspace = asked.workspace AND membership.role = asked.role"
        " WHERE asked.token = 0 OR EXISTS (SELECT 1 FROM credential AS token"
        " WHERE token.id = asked.token AND token.revoked IS NULL)",
        *values,
    )
    entitled = {_Listener._make(row) for row in rows}
    return [each in entitled for each in listeners]


class _View(NamedTuple):
    workspace: int
    viewer: int | None
    """Member who sees only their own items; None if the listener sees all items."""
    place: int
    capacity: int


_Rows = list[tuple[int, float]]
_ListNextRows = Callable[[Db, Sequence[_View]], list[_Rows]]
"""Returns the ids and times of the next rows for each view."""
_NamedText = tuple[str, str]
"""Topic and JSON text of an event."""
_Texts = Callable[[Db, Sequence[tuple[int, ...]]], list[dict[int, _NamedText]]]
"""Returns the events of rows, given groups of row ids."""


def _list_next_items(db: Db, views: Sequence[_View]) -> list[_Rows]:
    return _remove_duplicates(views, lambda view: reading.list_next_items(db, *view))


def _list_next_events(db: Db, views: Sequence[_View]) -> list[_Rows]:
    return _remove_duplicates(
        views, lambda view: sos.list_events_behind(db, view.workspace, view.place, view.capacity)
    )


def _read_items(db: Db, id_groups: Sequence[tuple[int, ...]]) -> list[dict[int, _NamedText]]:
    return _remove_duplicates(
        id_groups,
        lambda numbers: {
            each.number: (ITEM, json.dumps(each.encode()))
            for each in reading.list_items(db, numbers)
        },
    )


def _read_events(db: Db, id_groups: Sequence[tuple[int, ...]]) -> list[dict[int, _NamedText]]:
    def encode(numbers: tuple[int, ...]) -> dict[int, _NamedText]:
        events: dict[int, _NamedText] = {}
        for number in numbers:
            if (incident := sos.find_by_event(db, number)) is not None:
                event_fields = {
                    **sos_desk.describe_sos(db, incident),
                    "event": sos_desk.encode_desk_event(db, number),
                }
                topic = sos.ALARM if incident.is_alarm else sos.SOS
                events[number] = topic, json.dumps(event_fields)
        return events

    return _remove_duplicates(id_groups, encode)


def _remove_duplicates(keys: Sequence[K], answer: Callable[[K], V]) -> list[V]:
    answers = {each: answer(each) for each in dict.fromkeys(keys)}
    return [answers[each] for each in keys]


def _find_newest(db: Db, workspace: int) -> tuple[int, int]:
    """Return the ids of the last item and of the last SOS event."""
    item = "SELECT coalesce(max(id), 0) FROM item WHERE workspace = ?"
    ((last,),) = db.execute(item, workspace)
    ((event,),) = db.execute("SELECT coalesce(max(id), 0) FROM sos_event")
    return int(last), int(event)


_ID = re.compile(r"([0-9]{1,18})\.([0-9]{1,18})", re.ASCII)


def _read_places(last: str, newest: tuple[int, int]) -> tuple[int, int] | None:
    """Return the places in an event id. Return None if the id is malformed, or newer than the
    database, which may have been restored.
    """
    id_match = _ID.fullmatch(last)
    if id_match is None:
        return None
    places = int(id_match[1]), int(id_match[2])
    return None if places[0] > newest[0] or places[1] > newest[1] else places


def _encode_event(item: int, happened: int, topic: str, text: str) -> bytes:
    return encode_event(f"{item}.{happened}", topic, text)
