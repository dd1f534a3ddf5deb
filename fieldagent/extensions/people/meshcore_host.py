"""Host of a MeshCore companion. The host identifies the radio, sends one command at a time, and
keeps unsolicited reports until they are needed.

    no answer               the radio is considered lost and is opened again, because the host could
                            not assign a later answer to its command
    a truncated frame       the host waits only briefly for the rest; the command has no answer
    an acknowledgement      may arrive before the report that names the expected acknowledgement
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.radio_modem import RadioLost
from fieldagent.agent.radios.radio_line import RadioLine, open_line
from fieldagent.system import waits
from fieldagent.system.rate import EventRate
from fieldagent.wire import meshcore_companion as wire
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.meshcore_companion import (
    UNSOLICITED_MIN,
    CompanionChannel,
    CompanionCommand,
    CompanionContact,
    CompanionDevice,
    CompanionMessage,
    CompanionSelf,
)

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 5.0
"""Seconds within which a radio must answer a command."""
GREETINGS = 3
"""Number of greetings. Several are needed, because opening the port restarts many boards."""
LULL_S = 2.0
"""Seconds of silence within a frame after which the kit considers the rest of the frame lost."""
PUSHES_MAX = 256
ACKS_KEPT = 64
SILENT_REASON = (
    "the radio does not answer: check that it runs MeshCore's companion firmware (USB or"
    " Wi-Fi), and that no app is connected to it"
)
HOST_NAME = "fieldagent"
FULL_CONTACTS_REASON = (
    "the radio's list of {count} contacts is full, so new people cannot write to this kit:"
    " remove some with its app, or let it overwrite the oldest"
)


class CompanionHost:
    """Host of one radio. `listen` must be running while other methods are called. The methods raise
    RadioLost and PortLost if their docstring says so.
    """

    def __init__(self, line: RadioLine) -> None:
        self._line = line
        self._deframer = wire.CompanionDeframer()
        self._asking = trio.Lock()
        self._answers: deque[bytes] = deque()
        self._answered = trio.Event()
        self._report_sender, self._report_receiver = trio.open_memory_channel[bytes](PUSHES_MAX)
        self._acks: deque[bytes] = deque(maxlen=ACKS_KEPT)
        self._acknowledged = trio.Event()
        self._lost_rate = EventRate(trio.current_time)
        self.own = CompanionSelf(b"", "")
        self.device = CompanionDevice(0, 0, 0, "", "")
        self.channels: dict[int, CompanionChannel] = {}

    async def listen(self) -> NoReturn:
        """Read from the radio until cancelled, and pass on answers, acknowledgements and
        unsolicited reports. Only this task reads from the line. Raises the line's errors.
        """
        while True:
            with waits.move_on_after(LULL_S if self._deframer.is_within else inf) as lull:
                data = await self._line.read()
            if lull.cancelled_caught:
                self._deframer.discard_incomplete()
                continue
            for content in self._deframer.receive_data(data):
                self._process_content(content)

    def _process_content(self, content: bytes) -> None:
        if content[0] < UNSOLICITED_MIN:
            self._answers.append(content)
            self._answered.set()
            return
        if content[0] == CompanionMessage.ACK:
            try:
                self._acks.append(wire.decode_ack(content))
            except RemoteProtocolError:
                return
            self._acknowledged.set()
            self._acknowledged = trio.Event()
            return
        try:
            self._report_sender.send_nowait(content)
        except trio.WouldBlock:
            if count := self._lost_rate.count_event():
                log.warning("the radio sent more than the kit can store: %d lost", count)

    async def receive_report(self) -> bytes:
        """Wait for the next unsolicited report and return it. Acknowledgements are not returned."""
        return await self._report_receiver.receive()

    async def request_answer(self, command: bytes, *expected: CompanionMessage) -> bytes:
        """Send a command and return its answer, which has one of the types `expected` or is an
        error. Raises RadioLost.
        """
        async with self._asking:
            return await self._request_once(command, {*expected, CompanionMessage.ERROR})

    async def _request_once(self, command: bytes, expected: set[CompanionMessage]) -> bytes:
        self._answers.clear()
        await self._line.write(wire.make_frame(command))
        return await self._wait_for_answer(expected)

    async def _wait_for_answer(self, expected: set[CompanionMessage]) -> bytes:
        """Return the next expected answer. Skip answers to other commands. Raises RadioLost."""
        with waits.move_on_after(ANSWER_TIMEOUT_S):
            while True:
                while self._answers:
                    answer = self._answers.popleft()
                    if answer[0] in expected:
                        return answer
                self._answered = trio.Event()
                await self._answered.wait()
        raise RadioLost(SILENT_REASON)

    async def wait_for_acknowledgement(self, codes: list[bytes], seconds: float) -> bool:
        """Wait until one of `codes` is acknowledged. Return False if none is acknowledged within
        `seconds`.
        """
        with waits.move_on_after(seconds):
            while not self.is_acknowledged(codes):
                await self._acknowledged.wait()
        return self.is_acknowledged(codes)

    def is_acknowledged(self, codes: list[bytes]) -> bool:
        """Return True if any copy of a text was acknowledged. `codes` are the codes that the radio
        has reported for the copies.
        """
        return any(code in self._acks for code in codes)

    async def greet(self) -> None:
        """Query the radio's identity and configuration. Raises RadioLost."""
        hello = wire.make_app_start(HOST_NAME)
        for tries_left in reversed(range(GREETINGS)):
            try:
                answer = await self.request_answer(hello, CompanionMessage.SELF_INFO)
                break
            except RadioLost:
                if not tries_left:
                    raise
        device = await self.request_answer(wire.query_device(), CompanionMessage.DEVICE_INFO)
        try:
            self.own = wire.decode_self(answer)
            self.device = wire.decode_device(device)
        except RemoteProtocolError as error:
            raise RadioLost(f"the radio does not report its identity: {error}") from None
        await self._load_channels()

    async def _load_channels(self) -> None:
        for place in range(self.device.channels_max):
            request = wire.make_command(CompanionCommand.GET_CHANNEL, bytes([place]))
            try:
                channel = wire.decode_channel(
                    await self.request_answer(request, CompanionMessage.CHANNEL)
                )
            except RemoteProtocolError:
                return
            self.channels[channel.place] = channel

    async def list_contacts(self) -> list[CompanionContact]:
        """Return the radio's contacts. Raises RadioLost."""
        contacts: list[CompanionContact] = []
        parts = {CompanionMessage.CONTACT, CompanionMessage.CONTACTS_END, CompanionMessage.ERROR}
        async with self._asking:
            answer = await self._request_once(
                wire.make_command(CompanionCommand.GET_CONTACTS),
                {CompanionMessage.CONTACTS_BEGIN, *parts},
            )
            while answer[0] not in (CompanionMessage.CONTACTS_END, CompanionMessage.ERROR):
                _add_if_readable(contacts, answer)
                answer = await self._wait_for_answer(parts)
        return contacts

    async def find_contact(self, key: bytes) -> CompanionContact | None:
        """Return the contact with this key, or None if the radio does not have the contact any
        more. Raises RadioLost.
        """
        request = wire.make_command(CompanionCommand.GET_CONTACT, key)
        contacts: list[CompanionContact] = []
        _add_if_readable(contacts, await self.request_answer(request, CompanionMessage.CONTACT))
        return contacts[0] if contacts else None

    async def set_clock(self, clock: Callable[[], float]) -> bool:
        """Set the radio's clock if it is slow by more than CLOCK_MAX seconds. The clock is slow
        after each restart of the radio, because the radio has no battery for it. Return True if the
        clock was set. Raises RadioLost.
        """
        try:
            device_time = wire.decode_time(
                await self.request_answer(
                    wire.make_command(CompanionCommand.GET_TIME), CompanionMessage.TIME
                )
            )
        except RemoteProtocolError:
            return False
        now = int(clock())
        if device_time >= now - CLOCK_MAX:
            return False
        await self.request_answer(wire.set_time(now), CompanionMessage.OK)
        return True


CLOCK_MAX = 30
"""Largest number of seconds by which the radio's clock may be slow."""


def _add_if_readable(contacts: list[CompanionContact], answer: bytes) -> None:
    if answer[0] == CompanionMessage.CONTACT:
        try:
            contacts.append(wire.decode_contact(answer))
        except RemoteProtocolError as error:
            log.debug("the radio reported an unreadable contact: %s", error)


@asynccontextmanager
async def open_host(place: str) -> AsyncIterator[CompanionHost]:
    """Open a radio and act as its host within the context. Raises RadioLost and PortLost, in
    exception groups.
    """
    async with open_line(place, wire.BAUD, wire.TCP_PORT) as line:
        host = CompanionHost(line)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.listen)
            await host.greet()
            yield host
            nursery.cancel_scope.cancel()
