"""Sends events about Packages, inbound payloads, SOS incidents, links and handhelds to all
listeners.

These are server-sent events (the HTML standard, section 9.2) for `GET /api/events`. Their content
is read from the journal. So a listener can continue with `Last-Event-ID` after an interruption or a
restart, and a slow listener does not delay others. If the journal no longer keeps the events since
`Last-Event-ID`, the listener receives `lost`.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import trio

from fieldagent.agent.journal import changes, incident
from fieldagent.agent.journal.changes import Change
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.outbound.incident_status import describe_incident, list_heard_incidents
from fieldagent.agent.outbound.package_state import UnknownPackage, get_package_state
from fieldagent.http.server_sent import LISTENING_COMMENT, StreamRequest, encode_event
from fieldagent.package.delivery import encode_deliveries
from fieldagent.system import waits

TOPICS = ("package", "inbound", "link", "sos", "people")
CHECK_DELAY_S = 1.0
"""Seconds from a change until conditions are checked, so that one check covers several changes."""


class Events:
    """Source of the event streams. Events are sent promptly only while `follow_journal` is
    running.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._conditions: dict[tuple[str, str], Any] = {}
        """Last reported conditions, by topic and name."""
        self._listeners = 0
        self._news = trio.Event()
        self._somebody = trio.Event()
        self._stirred = False
        self._occasion = trio.Event()
        """Event that is set when conditions should be checked. A new event then replaces it."""

    async def wait_for_listener(self) -> None:
        """Wait until there is a listener. While there is none, the links need not be checked."""
        await self._somebody.wait()

    async def wait_until_check_due(self) -> None:
        """Wait until conditions should be checked again: shortly after a change, and whenever a
        stream sends a keepalive. An idle kit then wakes only once for the check and the keepalive.
        """
        if not self._stirred:
            await self._occasion.wait()
        if self._stirred:
            self._stirred = False
            await trio.sleep(CHECK_DELAY_S)

    def set_changed(self) -> None:
        """Record that a condition has changed, so that it is checked soon."""
        self._stirred = True
        self._check_conditions()

    def _check_conditions(self) -> None:
        self._occasion.set()
        self._occasion = trio.Event()

    async def follow_journal(self) -> None:
        """Wake the listeners at each change of the journal. Never returns."""
        while True:
            await self._journal.wait_for_commit()
            self._wake_listeners()

    def report(self, topic: str, name: str, condition: Any) -> None:
        """Report a condition that is not in the journal: the condition of a channel or of a
        handheld radio.
        """
        if self._conditions.get((topic, name)) != condition:
            self._conditions[topic, name] = condition
            self._wake_listeners()

    def _wake_listeners(self) -> None:
        self.set_changed()
        self._news.set()
        self._news = trio.Event()

    async def listen(self, request: StreamRequest) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a listener's event stream, from the event that it requested. While
        there are no events, yield a keepalive every `request.quiet_max_s` seconds.
        """
        if not self._listeners:
            # The conditions that earlier listeners saw may be out of date, so check them again.
            self._conditions.clear()
            self._check_conditions()
        self._listeners += 1
        self._somebody.set()
        try:
            position_in_log, beginning = self._begin(request.last)
            last_states: dict[tuple[str, str], Any] = {}
            yield LISTENING_COMMENT + beginning
            deadline = waits.compute_next_tick(request.quiet_max_s)
            while True:
                events, position_in_log = self._read_changes_since(position_in_log, request.topics)
                events += self._encode_conditions(position_in_log, request.topics, last_states)
                if not events:
                    with trio.move_on_at(deadline):
                        await self._news.wait()
                        continue
                    events = request.alive
                    self._check_conditions()
                yield events
                deadline = waits.compute_next_tick(request.quiet_max_s)
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._somebody = trio.Event()

    def _begin(self, last: str) -> tuple[int, bytes]:
        """Return the number of the change after which the stream continues, and the stream's first
        bytes. `last` is the request's `Last-Event-ID`, or ''.
        """
        newest = changes.get_newest(self._journal)
        if not last:
            return newest, b""
        if re.fullmatch(r"[0-9]{1,18}", last, re.ASCII) and changes.is_known(
            self._journal, int(last)
        ):
            return int(last), b""
        return newest, encode_event(newest, "lost", "{}")

    def _read_changes_since(self, place: int, topics: frozenset[str]) -> tuple[bytes, int]:
        if not changes.is_known(self._journal, place):
            # The listener was so slow that the journal no longer keeps all changes since its place.
            place = changes.get_newest(self._journal)
            return encode_event(place, "lost", "{}"), place
        news, place = changes.list_since(self._journal, place, topics)
        documents = [(each, self._make_document(each)) for each in news]
        events = [encode_event(each.number, each.topic, text) for each, text in documents if text]
        return b"".join(events), place

    def _make_document(self, change: Change) -> str:
        """Return the content of an event, or '' if its subject no longer exists."""
        if change.topic == "inbound":
            return changes.read_payload(self._journal, change.subject) or ""
        if change.topic == "sos":
            return self._make_incident_document(change.subject)
        try:
            package_state = get_package_state(self._journal, change.subject)
        except UnknownPackage:
            return ""
        deliveries = encode_deliveries(package_state.deliveries)
        return json.dumps(
            {"id": package_state.id, "status": package_state.status, "channels": deliveries}
        )

    def _make_incident_document(self, number: int) -> str:
        own = incident.find_by_number(self._journal, number)
        if own is not None:
            return json.dumps(describe_incident(self._journal, own))
        return json.dumps(list_heard_incidents(self._journal, number))

    def _encode_conditions(
        self, place: int, topics: frozenset[str], sent_documents: dict[tuple[str, str], Any]
    ) -> bytes:
        """Return events with the conditions that differ from `sent_documents`, and store them
        there.
        """
        news = {
            subject: now
            for subject, now in self._conditions.items()
            if subject[0] in topics and sent_documents.get(subject) != now
        }
        sent_documents.update(news)
        return b"".join(
            encode_event(place, topic, json.dumps(now)) for (topic, _), now in news.items()
        )
