"""Exchanges requests, answers and unsolicited reports with an Iridium Certus 9704 on an open serial
port.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from math import inf
from typing import NoReturn, TypeAlias

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.serial_port import SerialPort, open_serial
from fieldagent.extensions.imt import jspr, messages
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.sbd import MoStatus

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 5.0
"""Seconds within which the modem must answer a request."""
QUIET_S, QUIET_MAX_S = 0.5, 5.0
"""Seconds of silence to wait for after the port is opened, because earlier answers are for another
program. The second value is the longest wait, because an active modem may never be silent."""
STATE_MAX_S = 10.0
"""Seconds within which the modem must become active, or report its SIM."""
SETTLE_TIME_S = 0.1
"""Seconds after activation during which the modem refuses messages with 418."""
WAKE_TRIES_MAX = 3


class ImtSilent(Exception):
    """Error: the modem did not answer a request in time, or refused a request that must succeed."""


class ImtReset(Exception):
    """Error: the modem lost power or was reset, so it has lost its settings and messages."""


class Mailbag:
    """Queue of received messages that are not stored yet. The modem has no copy of them."""

    def __init__(self) -> None:
        self._waiting: deque[messages.MtMessage] = deque()
        self._changed = trio.Event()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add_message(self, message: messages.MtMessage) -> None:
        """Append a message that the modem has delivered, and wake the task that stores messages."""
        self._waiting.append(message)
        self._announce_change()

    def remove_first(self) -> None:
        """Remove the first message from the queue. Called after the agent has stored it."""
        self._waiting.popleft()
        self._announce_change()

    def _announce_change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_first(self) -> messages.MtMessage:
        """Wait for a message and return the first message in the queue. It remains in the queue
        until `remove_first` is called.
        """
        while not self._waiting:
            await self._changed.wait()
        return self._waiting[0]

    async def wait_until_empty(self) -> None:
        """Wait until all received messages are stored."""
        while self._waiting:
            await self._changed.wait()


@dataclass(slots=True)
class ModemFacts:
    """Facts that the modem has reported about itself."""

    imei: str = ""
    rebooted: bool = True
    """True if the modem had no API version when the port was opened. In this case, the modem has
    lost the messages of an earlier run."""
    topic: messages.Topic | None = None
    state: messages.OperationalState | None = None
    sim: messages.SimStatus | None = None
    service: bool | None = None
    """True if the modem sees the network."""
    active: bool | None = None
    """True if the modem sends or receives a message, or is about to do so. None if the modem does
    not report its activity."""
    reports_activity: bool = False

    def describe_trouble(self) -> str:
        """Return the reason, for people, why the modem cannot send. The text is empty if the modem
        can send.
        """
        if self.sim is not None and not self.sim.present:
            return "the modem finds no SIM: insert the SIM, or activate it in the account"
        if self.state is not None and self.state.state != messages.ACTIVE:
            reason = messages.STATE_REASONS.get(self.state.reason, f"reason {self.state.reason}")
            return f"the modem is {self.state.state}: {reason}"
        return ""


class Outgoing:
    """Outgoing message that the modem has, or that it will get next."""

    def __init__(self, topic: int, body: bytes) -> None:
        self.message = messages.MoMessage(body)
        self.topic = topic
        self.key: messages.MessageKey | None = None
        """Key of the message. It is known after the modem has answered."""
        self.status: str | None = None
        """Final status of the message."""


_Lines: TypeAlias = (
    "tuple[trio.MemorySendChannel[jspr.JsprLine], trio.MemoryReceiveChannel[jspr.JsprLine]]"
)


@dataclass(slots=True)
class ImtModem:
    """Sends requests and receives answers on one open port. Only `listen` reads from the port.
    `listen` also gives the modem the segments of the outgoing message, and collects the segments of
    incoming messages.
    """

    port: SerialPort
    link: ChannelLink
    mail: Mailbag
    topic_name: str = messages.RAW
    lines: jspr.LineReader = field(default_factory=jspr.LineReader)
    news: trio.Event = field(default_factory=trio.Event)
    """Event that is set at each report of the modem, and then replaced by a new event."""
    facts: ModemFacts = field(default_factory=ModemFacts)
    outgoing: Outgoing | None = None
    ended: dict[messages.MessageKey, str] = field(default_factory=dict)
    """Final statuses of messages since the port was opened. When a message's number is used again,
    its status is removed."""
    given_up: set[messages.MessageKey] = field(default_factory=set)
    """Messages that the driver has asked the modem to cancel. The modem gets no more segments of
    these messages."""
    _assembly: messages.MtAssembly = field(default_factory=messages.MtAssembly)
    _starts: bool = True
    """True during the set-up, in which the driver expects a boot report."""
    _received_at: float = -inf
    _answers: _Lines = field(default_factory=lambda: trio.open_memory_channel[jspr.JsprLine](64))
    _writing: trio.Lock = field(default_factory=trio.Lock)
    """Held while one line is written."""

    async def listen(self) -> NoReturn:
        """Read from the port until it fails: pass answers to the waiting request, and process
        reports. Raises ImtReset, PortLost.
        """
        while True:
            data = await self.port.read()
            self._received_at = trio.current_time()
            self.lines.receive_data(data)
            while (line := self.lines.read_next_line()) is not None:
                await self._process_line(line)

    async def _process_line(self, line: jspr.JsprLine) -> None:
        try:
            if line.code == jspr.UNASKED:
                await self._process_event(messages.parse_event(line))
            elif line.target == "messageOriginateSegment":
                if line.code != jspr.DONE:
                    log.info("the modem did not take a segment: %s", line.describe_refusal())
            else:
                self._record_key(line)
                self._answers[0].send_nowait(line)
        except trio.WouldBlock:
            log.info("the modem sent an unexpected answer: %s", line.target)
        except RemoteProtocolError as error:
            log.warning("the modem sent an invalid line: %s", error)

    async def _process_event(self, event: messages.Event | None) -> None:
        # SegmentWanted and MtSegment occur within a message. Do not wake the waiting tasks, because
        # they need only the end of a message.
        if isinstance(event, messages.SegmentWanted):
            await self._send_segment(event)
            return
        if isinstance(event, messages.MtSegment):
            self._assembly.add(event)
            return
        if isinstance(event, messages.MtEnded):
            self._process_mail_end(event)
        elif isinstance(event, messages.MoEnded):
            self._end_outgoing(event)
        elif isinstance(event, messages.ModemStarted):
            self.link.facts["firmware"] = event.firmware
            if not self._starts:
                raise ImtReset("the modem has restarted: its power may have dipped")
        elif isinstance(event, messages.Constellation):
            self.record_sky(event)
        elif isinstance(event, messages.SimStatus):
            self.facts.sim = event
        elif isinstance(event, messages.OperationalState):
            self.facts.state = event
        elif isinstance(event, messages.Activity):
            self.facts.active = event.active
        self.wake()

    def wake(self) -> None:
        """Wake the tasks that wait for news."""
        self.news.set()
        self.news = trio.Event()

    def record_sky(self, sky: messages.Constellation) -> None:
        """Record the modem's view of the network."""
        self.facts.service = sky.visible
        self.link.record_signal(sky.bars)

    async def _send_segment(self, request: messages.SegmentWanted) -> None:
        """Send a segment from memory immediately, because the modem waits only 0.3 s. If the
        message has ended or was given up, send nothing.
        """
        outgoing = self.outgoing
        if outgoing is None or request.key.topic != outgoing.topic or outgoing.status is not None:
            log.info("the modem asks for a message that has ended: it times out")
            return
        # The modem may request a segment before its answer with the message's number has arrived.
        if outgoing.key not in (None, request.key) or request.key in self.given_up:
            log.info("the modem asks for message %d, which was given up", request.key.id)
            return
        await self._write(outgoing.message.make_segment(request))
        self.wake()

    def _record_key(self, line: jspr.JsprLine) -> None:
        """Record the number that the modem gave to the outgoing message. If an earlier message had
        this number, the earlier message has ended.
        """
        if self.outgoing is None or line.target != "messageOriginate":
            return
        if line.code == jspr.DONE and line.body.get("message_response") == messages.ACCEPTED:
            id_ = jspr.read_integer(line, "message_id", 0, 255)
            self.outgoing.key = messages.MessageKey(self.outgoing.topic, id_)
            self.ended.pop(self.outgoing.key, None)
            self.given_up.discard(self.outgoing.key)

    def _end_outgoing(self, event: messages.MoEnded) -> None:
        self.ended[event.key] = event.status
        if self.outgoing is not None and self.outgoing.key == event.key:
            self.outgoing.status = event.status
        else:
            log.info("message %d, which was given up, ended: %s", event.key.id, event.status)

    def _process_mail_end(self, event: messages.MtEnded) -> None:
        message = self._assembly.finish_message(event)
        if message is None:
            log.warning("a message from the network was broken off: %s", event.status)
        else:
            self.mail.add_message(message)

    async def request_answer(self, request: bytes, *, again: bool = True) -> jspr.JsprLine:
        """Send a request and return the answer. If `again` is True, a request that noise made
        unreadable is sent again once.

        Raises ImtReset if the modem has lost its settings, and ImtSilent.
        """
        line = await self._request_once(request)
        if line.code in jspr.GARBLED_CODES and again:
            line = await self._request_once(request)
        if line.code == jspr.NO_VERSION and not self._starts:
            raise ImtReset("the modem has restarted without an API version")
        if line.code == jspr.SERIAL_ERROR:
            raise ImtSilent("the modem reports an error of its serial port")
        return line

    async def _request_once(self, request: bytes) -> jspr.JsprLine:
        target = request.split(b" ")[1].decode("ascii")
        while True:  # Drop late answers to the previous request.
            try:
                self._answers[1].receive_nowait()
            except trio.WouldBlock:
                break
        with waits.move_on_after(ANSWER_TIMEOUT_S):
            await self._write(request)
            while True:
                line = await self._answers[1].receive()
                # The answer to an unreadable request has no target.
                if line.target == target or line.code in jspr.GARBLED_CODES:
                    return line
        raise ImtSilent(f"{target} was not answered within {ANSWER_TIMEOUT_S:g} s")

    async def _write(self, line: bytes) -> None:
        async with self._writing:
            await self.port.write(line)

    async def start(self) -> None:
        """Set up the modem as far as necessary. Raises ImtSilent, PortLost."""
        await self._wait_until_quiet()
        version = await self._wake_up()
        newest = messages.find_newest_version(version)
        active = version.body.get("active_version")
        self.facts.rebooted = active is None
        if active != newest:
            await self._require(jspr.encode_put("apiVersion", active_version=newest))
        hardware = await self.request_answer(jspr.encode_get("hwInfo"))
        self.facts.imei = str(hardware.body.get("imei", ""))
        self.link.facts["imei"] = self.facts.imei
        await self._connect_sim()
        await self._activate()
        # The report of the activity needs API 1.6.0. If the modem has another version or does not
        # answer, the agent works without this report.
        with suppress(ImtSilent):
            line = await self.request_answer(jspr.encode_put("messageActivityStatus", enabled=True))
            self.facts.reports_activity = line.code in (jspr.DONE, jspr.ALREADY)
        self._starts = False
        await self.query_state()

    async def _wait_until_quiet(self) -> None:
        """Wait for silence. Lines before it are answers to another program, or reports of the
        modem's start.
        """
        with waits.move_on_after(QUIET_MAX_S):
            while True:
                before = self._received_at
                await trio.sleep(QUIET_S)
                if self._received_at == before:
                    return

    async def _wake_up(self) -> jspr.JsprLine:
        """Return the modem's API versions. The modem often answers the first request after opening
        with 405, or not at all.
        """
        for _ in range(WAKE_TRIES_MAX):
            try:
                line = await self.request_answer(jspr.encode_get("apiVersion"))
            except ImtSilent as silence:
                last_silence = silence
                continue
            if line.code == jspr.DONE:
                return line
            last_silence = ImtSilent(
                f"the modem does not report its API: {line.describe_refusal()}"
            )
        raise last_silence

    async def _require(self, request: bytes) -> None:
        line = await self.request_answer(request)
        if line.code not in (jspr.DONE, jspr.ALREADY):
            raise ImtSilent(f"the modem refuses {line.target}: {line.describe_refusal()}")

    async def _connect_sim(self) -> None:
        line = await self.request_answer(jspr.encode_get("simConfig"))
        if line.body.get("interface") in (None, "none"):
            await self._require(jspr.encode_put("simConfig", interface="internal"))
        line = await self.request_answer(jspr.encode_get("simStatus"))
        status = messages.parse_event(line) if line.code == jspr.DONE else None
        if isinstance(status, messages.SimStatus):
            self.facts.sim = status
        await self._limit_time(lambda: self.facts.sim is not None and self.facts.sim.connected)
        if self.facts.sim is not None and self.facts.sim.iccid:
            self.link.facts["sim"] = self.facts.sim.iccid

    async def _activate(self) -> None:
        line = await self.request_answer(jspr.encode_get("operationalState"))
        state = messages.parse_event(line)
        if isinstance(state, messages.OperationalState):
            self.facts.state = state
        if self._is_active():
            return
        if self.facts.state is not None and self.facts.state.state != messages.INACTIVE:
            # If the modem is in a test state, it must become inactive before it can become active.
            await self._require(jspr.encode_put("operationalState", state=messages.INACTIVE))
        await self._require(jspr.encode_put("operationalState", state=messages.ACTIVE))
        await self._limit_time(self._is_active)
        await trio.sleep(SETTLE_TIME_S)

    def _is_active(self) -> bool:
        return self.facts.state is not None and self.facts.state.state == messages.ACTIVE

    async def _limit_time(self, holds: Callable[[], bool]) -> None:
        with waits.move_on_after(STATE_MAX_S):
            while not holds():
                await self.news.wait()

    async def query_state(self) -> None:
        """Query the visibility of the network, the modem's activity and its topics. A new SIM has
        no topics at first. Raises ImtReset, ImtSilent.
        """
        self.facts.active = None
        targets = ["constellationState", "operationalState"]
        for target in (*targets, *["messageActivityStatus"] * self.facts.reports_activity):
            line = await self.request_answer(jspr.encode_get(target))
            if line.code == jspr.DONE:
                await self._process_event(messages.parse_event(line))
        line = await self.request_answer(jspr.encode_get("messageProvisioning"))
        self.facts.topic = messages.find_topic(messages.list_provisioned(line), self.topic_name)
        if self.facts.topic is not None:
            self.link.facts["topic"] = f"{self.facts.topic.name} ({self.facts.topic.id})"

    async def offer_message(self, outgoing: Outgoing) -> MoStatus | None:
        """Offer a message to the modem. Return None if the modem has accepted it and given it a
        number. Otherwise return the reason for the refusal. In this case, the message was not sent.
        """
        self.outgoing = outgoing
        line = await self.request_answer(
            jspr.encode_put(
                "messageOriginate",
                topic_id=outgoing.topic,
                message_length=len(outgoing.message),
                request_reference=1,
            ),
            again=False,
        )
        if line.code != jspr.DONE:
            return messages.find_refusal_status(line.describe_refusal())
        answer = str(line.body.get("message_response"))
        if answer != messages.ACCEPTED:
            return messages.find_refusal_status(answer)
        if outgoing.key is None:
            raise ImtSilent("the modem has accepted a message and does not name it")
        return None

    async def wait_until_handed_over(self, outgoing: Outgoing) -> None:
        """Wait until the modem has the last segment of the message, or has reported the end of the
        message.
        """
        while not outgoing.message.last_handed_over and outgoing.status is None:
            await self.news.wait()

    async def cancel(self, key: messages.MessageKey) -> bool:
        """Ask the modem to cancel a message. Return True if the modem tries to cancel it. The final
        status then shows whether the message was sent before.
        """
        self.given_up.add(key)
        line = await self.request_answer(
            jspr.encode_put(
                "messageOriginateStatus",
                topic_id=key.topic,
                message_id=key.id,
                action="cancel",
            )
        )
        return line.code == jspr.DONE

    async def wait_until_ended(self, key: messages.MessageKey) -> None:
        """Wait until the modem has reported the end of a message."""
        while key not in self.ended:
            await self.news.wait()


@asynccontextmanager
async def open_modem(
    port: str,
    baud: int,
    link: ChannelLink,
    mail: Mailbag,
    topic: str = messages.RAW,
) -> AsyncIterator[ImtModem]:
    """Open a modem within the context, after it has answered and has been set up. Received messages
    are added to `mail`.

    Raises ImtReset, ImtSilent, PortLost, RemoteProtocolError.
    """
    link.recorder.kind = "imt"
    async with open_serial(port, baud, link.recorder) as line, trio.open_nursery() as nursery:
        modem = ImtModem(line, link, mail, topic)
        nursery.start_soon(modem.listen)
        await modem.start()
        log.info("modem %s answers on %s", modem.facts.imei, port)
        yield modem
        nursery.cancel_scope.cancel()
