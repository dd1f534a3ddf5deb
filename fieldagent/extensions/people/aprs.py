"""APRS stations at a KISS TNC as handhelds: their positions, and messages to the kit's callsign.

    a station's callsign  identifies the person, but is not authenticated
    admitted stations     are chosen by `aprs_door`
    an acknowledgement    is sent once the message is on disk, and again for each repetition. It
                          replaces the sign for that stage. A refused message is rejected
    other signs           are texts, because APRS has no reactions
    a Mic-E emergency     is an alert
    an object             is a point that its sender marks, not the sender's own position
    APRS-IS               carries packets whose senders may be far away. They are not acknowledged

A kit without a callsign of its own does not transmit.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from random import getrandbits, randrange, uniform
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.radios.radio_line import RadioLine, open_line
from fieldagent.extensions.people import aprs_wire as wire
from fieldagent.extensions.people import signs
from fieldagent.extensions.people.aprs_door import FrameAdmission
from fieldagent.extensions.people.aprs_wire import (
    AprsAnswer,
    AprsEmergency,
    AprsHeard,
    AprsMessage,
    AprsObject,
    AprsPosition,
)
from fieldagent.extensions.people.contract import (
    PRECISE,
    HandheldMarker,
    HandheldName,
    HandheldPlace,
    HandheldPosition,
    HandheldReport,
    HandheldText,
    PeoplesRadio,
    TextOutcome,
    make_located,
)
from fieldagent.package.package import Location
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import ax25, kiss
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

TCP_PORT = 8001
DESTINATION = ax25.Callsign("APZFLD")
PATH = (ax25.Callsign("WIDE1", 1), ax25.Callsign("WIDE2", 1))
WRITE_TIMEOUT_S = 10.0
"""Seconds within which a TNC must accept a frame on its serial line or TCP connection."""
ACK_DELAY_S = 1.0, 3.0
"""Shortest and longest delay of an acknowledgement in seconds. The delay prevents a collision with
the digipeated copy of the message."""
ACK_MAX_S = 20.0
"""Seconds to wait for an acknowledgement after each of the two transmissions of a message."""
SAME_ID_WINDOW_S, SAME_TEXT_WINDOW_S = 1800.0, 28.0
"""Seconds within which an equal message is a repetition, for messages with an id and without an
id."""
REMEMBERED_MAX = 1000
WAITING_MAX = 200
"""Largest number of received reports that wait for the desk. The kit does not acknowledge further
messages."""
ID_COUNT = 36**wire.ID_MAX
PRECISIONS = (PRECISE, 18, 14, 11, 8)
"""Number of valid bits of a position, by the number of digits that its sender omitted."""
LOOK_ALIKES = str.maketrans("|~{\r\n", "/-(  ")
"""Replacements for characters that a message must not contain."""
TO_ALL = re.compile("ALL|CQ|QST|BLN.*")
LISTENS_ONLY = "listens only: it has no mesh-callsign"
CAVEAT = "by APRS, unproved call sign"


@dataclass(slots=True)
class _HeardMessage:
    """A received message. It is stored in memory until a repetition is no longer possible."""

    number: int
    until: float
    is_kept: bool = False
    """True if the message is on disk."""


@dataclass(slots=True)
class _HeardThing:
    heard: HandheldReport
    key: tuple[str, str, str] | None = None
    """Key of the message: station, id and text."""


class AprsPeople:
    """Implements `contract.PeopleRadio`."""

    text_bytes = wire.TEXT_MAX_BYTES
    has_signs = False

    def __init__(
        self,
        line: RadioLine,
        place: HandheldPlace,
        nursery: trio.Nursery,
        clock: Callable[[], float],
    ) -> None:
        self._line = line
        self._call = ax25.parse_callsign(place.callsign) if place.callsign else None
        self._door = FrameAdmission(place.admits)
        self._note = place.note
        self._nursery = nursery
        self._clock = clock
        self._deframer = kiss.KissDeframer()
        self._writes = trio.Lock()
        self._waiting_reports: deque[_HeardThing] = deque()
        self._news = trio.Event()
        self._current_report: _HeardThing | None = None
        """The report that the desk is processing."""
        self._named_stations: set[str] = set()
        self._messages: dict[tuple[str, str, str], _HeardMessage] = {}
        self._expected_answers: dict[tuple[str, str], tuple[trio.Event, list[bool]]] = {}
        """Answers to the kit's own messages, by station and message id."""

    async def listen(self) -> NoReturn:
        """Receive frames from the TNC. Raises PortLost when the port is lost."""
        while True:
            for kind, content in self._deframer.receive_data(await self._line.read()):
                if kind != kiss.DATA:
                    continue
                try:
                    frame = ax25.decode(content)
                    if frame is not None and frame.source != self._call:
                        self._judge(frame, wire.parse_frame(frame))
                except RemoteProtocolError as error:
                    log.debug("the TNC received unreadable data: %s", error)
                    self._note("unreadable")

    def _judge(self, frame: ax25.Frame, report: AprsHeard) -> None:
        if report.source == self._format_call:
            # This is a gateway's copy of a packet from this kit, so ignore it.
            return
        now, raw = trio.current_time(), (str(frame.destination), frame.info)
        result = self._door.judge(report, raw, self._format_call, now)
        if result == "taken" and len(self._waiting_reports) >= WAITING_MAX:
            result = "limited"
        self._note(result)
        if result == "taken":
            self._process_report(report)

    @property
    def _format_call(self) -> str:
        return "" if self._call is None else str(self._call)

    def _process_report(self, report: AprsHeard) -> None:
        handle, content = report.source.lower(), report.what
        if isinstance(content, AprsAnswer):
            self._process_answer(handle, content.to, content.id, has_it=content.has_it)
        elif isinstance(content, AprsMessage) and content.acknowledges:
            self._process_answer(handle, content.to, content.acknowledges, has_it=True)
        if handle not in self._named_stations:
            if len(self._named_stations) >= REMEMBERED_MAX:
                self._named_stations.clear()
            self._named_stations.add(handle)
            self._queue_report(report, 0, HandheldName(report.source, b""))
        if isinstance(content, AprsPosition):
            self._process_position(report, content)
        elif isinstance(content, AprsEmergency):
            log.warning(
                "the position of %s, which reports distress, cannot be read: %s",
                report.source,
                content.fault,
            )
            self._process_emergency(report)
        elif isinstance(content, AprsObject):
            self._process_object(report, content)
        elif isinstance(content, AprsMessage):
            self._process_message(report, content)
        else:
            self._queue_report(report, getrandbits(48) or 1, None)

    def _queue_report(
        self,
        report: AprsHeard,
        number: int,
        content: HandheldText | HandheldName | HandheldPosition | HandheldMarker | None,
        key: tuple[str, str, str] | None = None,
    ) -> None:
        thing = HandheldReport(
            report.source.lower(), number, content, over_internet=report.over_internet
        )
        self._waiting_reports.append(_HeardThing(thing, key))
        self._news.set()

    def _process_position(self, report: AprsHeard, position: AprsPosition) -> None:
        location = Location(
            position.latitude,
            position.longitude,
            wire.parse_date(position.when, datetime.fromtimestamp(self._clock(), UTC)),
            altitude=position.altitude,
            speed_over_ground=position.speed,
            course_over_ground=position.course,
        )
        self._queue_report(
            report, getrandbits(48) or 1, make_located(location, PRECISIONS[position.ambiguity])
        )
        if position.emergency:
            self._process_emergency(report)

    def _process_emergency(self, report: AprsHeard) -> None:
        emergency_text = "Mic-E emergency"
        number = self._compute_number(report.source, "", emergency_text)
        self._queue_report(report, number, HandheldText(emergency_text, True, alert=True))

    def _process_object(self, report: AprsHeard, aprs_object: AprsObject) -> None:
        """Process an object, which its sender repeats for hours. The object keeps its number until
        its content changes. If the sender removes the object from the map, the kit keeps it where
        it was marked.
        """
        place, name = aprs_object.there, aprs_object.name or "?"
        mark = int.from_bytes(sha256(name.encode()).digest()[:4], "big")
        text = f"{name}\0{place.latitude}\0{place.longitude}\0{place.comment}"
        number = int.from_bytes(sha256(text.encode()).digest()[:6], "big") or 1
        point = HandheldMarker(mark, place.latitude, place.longitude, name, place.comment, None)
        self._queue_report(report, number, point if aprs_object.is_alive else None)

    def _process_message(self, report: AprsHeard, message: AprsMessage) -> None:
        is_ours = self._call is not None and message.to == self._format_call
        if not is_ours and not TO_ALL.fullmatch(message.to):
            self._queue_report(report, getrandbits(48) or 1, None)
            return
        handle = report.source.lower()
        key = (handle, message.id, f"{message.to}:{message.text}")
        now = trio.current_time()
        before = self._messages.get(key)
        if before is not None and now < before.until:
            if before.is_kept and is_ours and message.id and not report.over_internet:
                self._schedule_answer(handle, message.id, has_it=True)
            return
        while len(self._messages) >= REMEMBERED_MAX:
            del self._messages[next(iter(self._messages))]
        number = self._compute_number(*key) if message.id else getrandbits(48) or 1
        if not report.over_internet:
            lasts = SAME_ID_WINDOW_S if message.id else SAME_TEXT_WINDOW_S
            self._messages.pop(key, None)
            self._messages[key] = _HeardMessage(number, now + lasts)
        spoken = HandheldText(message.text, is_ours, "" if is_ours else message.to)
        self._queue_report(report, number, spoken, key if is_ours and message.id else None)

    def _compute_number(self, *what: str) -> int:
        """Return a number for a message or emergency with the content `what`. The same content has
        the same number within half an hour, even if the kit restarts. It is needed because stations
        count their messages from 1 after each start.
        """
        since = int(self._clock() // SAME_ID_WINDOW_S)
        text = "\0".join((*what, str(since)))
        return int.from_bytes(sha256(text.encode()).digest()[:6], "big") or 1

    async def receive(self) -> HandheldReport:
        # The desk asks for the next report only when the last report is on disk, so acknowledge the
        # last one now.
        self._finish_text(has_it=True)
        while not self._waiting_reports:
            self._news = trio.Event()
            await self._news.wait()
        self._current_report = self._waiting_reports.popleft()
        return self._current_report.heard

    def _finish_text(self, *, has_it: bool) -> None:
        report, self._current_report = self._current_report, None
        if report is None or report.key is None or report.heard.over_internet:
            return
        if has_it and report.key in self._messages:
            self._messages[report.key].is_kept = True
        elif not has_it:
            # If the station repeats the message, the repetition is a new attempt.
            self._messages.pop(report.key, None)
        self._schedule_answer(report.heard.handle, report.key[1], has_it=has_it)

    def _schedule_answer(self, handle: str, number: str, *, has_it: bool) -> None:
        self._nursery.start_soon(self._send_answer, handle, number, has_it)

    async def _send_answer(self, handle: str, number: str, has_it: bool) -> None:
        await waits.sleep(uniform(*ACK_DELAY_S))
        await self._send(wire.encode_ack_or_reject(handle.upper(), number, is_accepted=has_it))

    async def _send(self, info: bytes) -> None:
        """Transmit a frame. Raises PortLost and RadioLost."""
        assert self._call is not None
        frame = ax25.encode(ax25.Frame(self._call, DESTINATION, info, PATH))
        async with self._writes:
            with trio.move_on_after(WRITE_TIMEOUT_S):
                await self._line.write(kiss.encode(frame))
                return
        raise RadioLost(f"the TNC has accepted nothing for {WRITE_TIMEOUT_S:.0f} seconds")

    def _process_answer(self, handle: str, to: str, number: str, *, has_it: bool) -> None:
        expected = self._expected_answers.get((handle, number))
        if expected is not None and to == self._format_call:
            answer_event, answers = expected
            answers.append(has_it)
            answer_event.set()

    def make_number(self) -> int:
        return randrange(1, ID_COUNT)

    async def send_text(self, handle: str, text: str, number: int, answers: int = 0) -> TextOutcome:
        if self._call is None:
            return TextOutcome(False, f"this kit's APRS {LISTENS_ONLY}")
        if not is_handle(handle):
            return TextOutcome(False, "it is not an APRS station, as this kit's radio needs")
        return await self._send_text(handle, text, _make_id(number))

    async def refuse(self, report: HandheldReport, reason: str) -> None:
        """Refuse a message with an APRS rejection. The sender's station shows the rejection, so no
        text is sent.
        """
        self._finish_text(has_it=False)

    async def _send_text(self, handle: str, text: str, number: str) -> TextOutcome:
        info = wire.encode_message(handle.upper(), text.translate(LOOK_ALIKES), number)
        answer_event, answers = trio.Event(), list[bool]()
        self._expected_answers[handle, number] = answer_event, answers
        try:
            for _ in range(2):
                await self._send(info)
                with trio.move_on_after(ACK_MAX_S):
                    await answer_event.wait()
                if answers:
                    break
        finally:
            del self._expected_answers[handle, number]
        if not answers:
            return TextOutcome(False, "no acknowledgement")
        return TextOutcome(answers[0], "" if answers[0] else "its station rejects it")

    async def react(self, handle: str, number: int, sign: str, words: str) -> TextOutcome:
        if sign == signs.STORED_SIGN:
            return TextOutcome(True, "")  # The acknowledgement has already shown this stage.
        text = f"{sign} {words}".encode()[: self.text_bytes].decode("utf-8", "ignore")
        return await self.send_text(handle, text, self.make_number())


def _make_id(number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    rest, text = number % ID_COUNT, ""
    for _ in range(wire.ID_MAX):
        rest, digit = divmod(rest, 36)
        text = digits[digit] + text
    return text


def is_handle(handle: str) -> bool:
    """Return True if the handle is a callsign in lower case."""
    return re.fullmatch(r"[a-z0-9]{1,9}(?:-[a-z0-9]{1,2})?", handle) is not None


@asynccontextmanager
async def open_aprs(
    place: HandheldPlace, link: ChannelLink, clock: Callable[[], float]
) -> AsyncIterator[AprsPeople]:
    """Open the APRS radio and receive from it within the context. `clock` returns Unix time. Raises
    RadioLost and PortLost, in exception groups.
    """
    async with open_line(place.port, place.baud, TCP_PORT) as line, trio.open_nursery() as nursery:
        link.facts["node"] = place.callsign or LISTENS_ONLY
        link.reason = ""
        people = AprsPeople(line, place, nursery, clock)
        nursery.start_soon(people.listen)
        yield people
        nursery.cancel_scope.cancel()


RADIO = PeoplesRadio(
    "aprs",
    "stations of amateur radio at a KISS TNC, by serial line or tcp://host:"
    " docs/how-to/handhelds.md",
    open_aprs,
    is_handle,
    caveat=CAVEAT,
)
