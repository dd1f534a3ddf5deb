"""Drives an Iridium 9602/9603 on a serial line, for as long as the agent runs.

The intent is on disk before each session and settled after it. A reply that was lost is never
guessed: the modem's next MOMSN tells whether the message left, and while it cannot be asked, the
identical bytes stay first in line.
"""

from __future__ import annotations

import logging
import random as randomness
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import (
    ChannelLink,
    Intent,
    LinkState,
    Outbox,
    Reception,
    Transmission,
)
from fieldagent.agent.channels.serial_port import PortLost, SerialPort, open_serial
from fieldagent.system import waits
from fieldagent.system.error_groups import first_error
from fieldagent.wire import sbd
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sbd_status import MoStatus, SessionVerdict, mo_status, retry_after

log = logging.getLogger(__name__)

REPLY_MAX = 10.0
"""Seconds in which any command but a session is answered."""
SESSION_TIME = 60
"""Seconds after which the modem itself ends a session (+SBDST)."""
SESSION_MAX = SESSION_TIME + 30.0
"""Seconds after which the host gives a session up: later than the modem does."""
LOOK_EVERY = 60.0
"""Seconds between two looks at an idle modem, for a ring that was missed or a reset."""
NO_SERVICE_WAIT = 120.0
"""Seconds after which a session is tried although the modem sees no network."""
REOPEN_AFTER = (1.0, 2.0, 5.0, 10.0)
"""Seconds between tries to open the port, the last for ever."""
READ_TRIES = 5
WRITE_TRIES = 3


class ModemSilent(Exception):
    """A command was not answered in time, or by something that is no answer."""


@dataclass(slots=True)
class Modem:
    """Commands and their replies over one open port; unsolicited events go to `link` and `rang`."""

    port: SerialPort
    link: ChannelLink
    conversation: sbd.Conversation = field(default_factory=sbd.Conversation)
    rang: bool = False
    news: trio.Event = field(default_factory=trio.Event)
    """Set when the modem said something unasked, and then replaced."""
    service: bool | None = None
    imei: str = ""
    last_read: sbd.MobileTerminated | None = None
    _send: trio.MemorySendChannel[sbd.SbdEvent] = field(init=False)
    _receive: trio.MemoryReceiveChannel[sbd.SbdEvent] = field(init=False)

    def __post_init__(self) -> None:
        self._send, self._receive = trio.open_memory_channel[sbd.SbdEvent](64)

    async def listen(self) -> NoReturn:
        """Feed the conversation; the only reader of the port."""
        while True:
            self.conversation.receive_data(await self.port.read())
            while (event := self.conversation.next_event()) is not sbd.NEED_DATA:
                self._sort(event)

    def _sort(self, event: sbd.SbdEvent) -> None:
        if isinstance(event, sbd.ModemReply | sbd.Ready):
            self._send.send_nowait(event)
            return
        if isinstance(event, sbd.MobileTerminated):
            self.last_read = event
            return
        if isinstance(event, sbd.Ring):
            log.info("the modem rings: a message waits")
            self.rang = True
        elif isinstance(event, sbd.Signal):
            self.link.signal = event.bars
        else:
            self.service = event.available
        self.news.set()
        self.news = trio.Event()

    async def ask(self, command: str, seconds: float = REPLY_MAX) -> sbd.ModemReply:
        event = await self._ask(command, seconds)
        if not isinstance(event, sbd.ModemReply):
            raise ModemSilent(f"{command} was answered by {event}")
        return event

    async def _ask(self, command: str, seconds: float) -> sbd.SbdEvent:
        await self.port.write(self.conversation.send(command))
        return await self._answer(command, seconds)

    async def _answer(self, command: str, seconds: float) -> sbd.SbdEvent:
        with waits.move_on_after(seconds):
            return await self._receive.receive()
        self.conversation.give_up()
        raise ModemSilent(f"{command} was not answered within {seconds:.0f} s")

    async def write(self, body: bytes) -> sbd.WriteResult:
        """Put a message into the MO buffer."""
        command = sbd.write_binary(len(body))
        event = await self._ask(command, REPLY_MAX)
        if isinstance(event, sbd.ModemReply):
            return sbd.parse_write(event)
        await self.port.write(self.conversation.send_payload(body))
        reply = await self._answer(command, REPLY_MAX + 60)
        assert isinstance(reply, sbd.ModemReply)
        return sbd.parse_write(reply)

    async def read(self) -> sbd.MobileTerminated | None:
        """The message in the modem; None when it would not tell."""
        self.last_read = None
        await self.ask(sbd.READ_BINARY)
        return self.last_read

    async def set_up(self) -> None:
        """Everything that a reset undoes. Only the first and the IMEI must succeed."""
        await self._wake_up()
        for command in (
            sbd.ECHO_OFF,
            sbd.NO_FLOW_CONTROL,
            sbd.RING_INDICATIONS,
            sbd.session_timeout(SESSION_TIME),
            sbd.REPORT_SIGNAL_AND_SERVICE,
        ):
            reply = await self.ask(command)
            if not reply.ok:
                log.info("the modem does not know %s; going on without", command)

    async def _wake_up(self) -> None:
        """A modem that has just got power takes a while, and may answer to half a line."""
        for _ in range(3):
            try:
                if (await self.ask(sbd.AT, 3)).ok:
                    return
            except ModemSilent:
                continue
        raise ModemSilent("nothing answers AT there: is it the modem's port, and has it power?")

    async def identify(self) -> None:
        self.imei = sbd.parse_serial_number(await self.ask(sbd.SERIAL_NUMBER))
        revision = await self.ask(sbd.REVISION)
        self.link.facts["imei"] = self.imei
        if revision.ok and revision.lines:
            self.link.facts["firmware"] = revision.lines[0]

    async def status(self) -> sbd.BufferStatus:
        """Where the modem stands; it is set up again if it was reset meanwhile."""
        reply = await self.ask(sbd.STATUS)
        if reply.echoed:
            log.info("the modem was reset: setting it up again")
            await self.set_up()
            reply = await self.ask(sbd.STATUS)
        status = sbd.parse_status(reply)
        self.rang = self.rang or bool(status.ring_flag)
        return status


async def run(
    port: str,
    outbox: Outbox,
    reception: Reception,
    link: ChannelLink,
    *,
    baud: int = 19200,
    random: randomness.Random,
    mailbox_check: float | None = None,
    progress: Callable[[], None] = lambda: None,
    record: SessionRecord | None = None,
) -> NoReturn:
    """Serve one modem for ever: absent, unplugged, without power or account, it goes on.

    `mailbox_check` is the time in seconds after which the mailbox is asked without a ring;
    `progress` is called at least once a minute and a half; `record` is what an earlier run left.
    """
    record = record or SessionRecord()
    tries = 0
    while True:
        progress()
        try:
            async with open_modem(port, baud, link) as modem:
                tries = 0
                await SatelliteDriver(
                    modem, outbox, reception, link, random, mailbox_check, progress, record
                ).work()
        except* (PortLost, ModemSilent, RemoteProtocolError) as trouble:
            _absent(link, first_error(trouble))
        wait = REOPEN_AFTER[min(tries, len(REOPEN_AFTER) - 1)]
        tries += 1
        await waits.sleep(wait)


def _absent(link: ChannelLink, error: BaseException) -> None:
    if (link.state, link.reason) != (LinkState.ABSENT, str(error)):
        log.warning("the satellite modem is away: %s; looking for it again", error)
    link.state, link.reason, link.signal = LinkState.ABSENT, str(error), None


@asynccontextmanager
async def open_modem(port: str, baud: int, link: ChannelLink) -> AsyncIterator[Modem]:
    """A modem that has answered and is set up."""
    async with open_serial(port, baud) as line, trio.open_nursery() as nursery:
        modem = Modem(line, link)
        nursery.start_soon(modem.listen)
        await modem.set_up()
        await modem.identify()
        log.info("modem %s answers on %s", modem.imei, port)
        yield modem
        nursery.cancel_scope.cancel()


@dataclass(slots=True)
class SessionRecord:
    """What the sessions so far have shown of the link: it outlives the port, and the driver."""

    queued: int = 0
    """Messages that the gateway holds for us, as the last session told."""
    doubts: int = 0
    """Sessions in a row whose outcome nobody knows."""
    misses: int = 0
    """Mailbox checks in a row that did not reach the gateway."""
    doubt_rests_until: float = 0.0
    mailbox_rests_until: float = 0.0
    last_session: float = field(default_factory=trio.current_time)


@dataclass(slots=True)
class SatelliteDriver:
    """What happens between one opening of the port and its loss."""

    modem: Modem
    outbox: Outbox
    reception: Reception
    link: ChannelLink
    random: randomness.Random
    mailbox_check: float | None
    progress: Callable[[], None]
    record: SessionRecord

    async def work(self) -> NoReturn:
        status = await self.modem.status()
        if status.mt_flag:
            await self._read()
        while True:
            self.progress()
            self._show()
            if (intent := self.outbox.unsettled()) is not None:
                await self._resolve(intent)
            else:
                await self._until_due()
                await self._session()

    def _show(self) -> None:
        if self.link.state is not LinkState.FAULT:
            away = self.modem.service is False
            self.link.state = LinkState.NO_SERVICE if away else LinkState.READY
            self.link.reason = ""

    # When there is something to do.

    async def _until_due(self) -> None:
        """Wait for a Package or a message; look at an idle modem now and then."""
        while not self._mailbox_is_due():
            look = trio.current_time() + LOOK_EVERY
            if await self._wait(look, self.outbox.ready, self._mailbox_due):
                break
            await self.modem.status()
            self._show()
        if self.modem.service is False:
            urgent = partial(self.outbox.ready, urgent=True)
            try_anyway = trio.current_time() + NO_SERVICE_WAIT
            await self._wait(try_anyway, urgent, self._service_is_back)

    async def _wait(self, until: float, *events: Callable[[], Awaitable[None]]) -> bool:
        """Wait for the first of these events, showing progress. False when none came in time.

        `until` is a moment of trio's clock, which may have passed.
        """
        with trio.move_on_at(until) as limit:
            async with trio.open_nursery() as nursery:

                async def first(event: Callable[[], Awaitable[None]]) -> None:
                    await event()
                    nursery.cancel_scope.cancel()

                for event in events:
                    nursery.start_soon(first, event)
                while True:
                    self.progress()
                    await trio.sleep(LOOK_EVERY)
        return not limit.cancelled_caught

    async def _mailbox_due(self) -> None:
        while not self._mailbox_is_due():
            rests = self.record.mailbox_rests_until > trio.current_time()
            with trio.move_on_at(self.record.mailbox_rests_until if rests else inf):
                await self.modem.news.wait()

    def _mailbox_is_due(self) -> bool:
        now = trio.current_time()
        check = (
            self.mailbox_check is not None and now - self.record.last_session >= self.mailbox_check
        )
        wanted = self.modem.rang or self.record.queued > 0 or check
        return wanted and now >= self.record.mailbox_rests_until and self.outbox.allowance() != 0

    async def _service_is_back(self) -> None:
        while self.modem.service is False:
            await self.modem.news.wait()

    # One session.

    async def _session(self) -> None:
        status = await self.modem.status()
        if status.mt_flag:
            await self._read()
        transmission = self.outbox.load(sbd.MO_BYTES)
        if transmission is not None:
            await self._give(transmission, status.momsn)
        elif self._mailbox_is_due():
            await self.modem.ask(sbd.CLEAR_MO)
        else:
            await trio.sleep(1)
            return
        await self._converse(transmission, status.momsn)

    async def _give(self, transmission: Transmission, momsn: int) -> None:
        """Put it into the modem and write the intent; if that fails it was not sent."""
        try:
            await self._store(transmission)
            await self.outbox.intend(transmission, modem=self.modem.imei, momsn=momsn)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self.outbox.settle(transmission, Outcome.NOT_SENT, reason="the modem is away")
            raise

    async def _store(self, transmission: Transmission) -> None:
        sbd.check_mo(transmission.body)
        for _ in range(WRITE_TRIES):
            result = await self.modem.write(transmission.body)
            if result is sbd.WriteResult.STORED:
                return
            log.info("the modem did not take a message: %s; trying again", result.name)
        raise ModemSilent(f"the modem does not take messages: {result.name}")

    async def _converse(self, transmission: Transmission | None, momsn: int) -> None:
        """A session with the gateway. A reply that is lost leaves the intent to be resolved."""
        self.link.state = LinkState.BUSY
        rang, self.modem.rang = self.modem.rang, False
        await self.modem.ask(sbd.session_timeout(SESSION_TIME))
        command = sbd.SESSION_ANSWERING_RING if rang else sbd.SESSION
        try:
            result = sbd.parse_session(await self.modem.ask(command, SESSION_MAX))
        except BaseException:
            self.modem.rang = self.modem.rang or rang
            raise
        finally:
            self.record.last_session = trio.current_time()
        status = mo_status(result.mo_status)
        log.info("session %d ended: %s", result.momsn, status.means)
        self._judge_link(status)
        if transmission is not None:
            await self._settle(transmission, momsn, status)
        await self._take_mail(result, status, rang, alone=transmission is None)

    def _judge_link(self, status: MoStatus) -> None:
        if status.verdict is SessionVerdict.FAULT:
            self.link.state, self.link.reason = LinkState.FAULT, status.means
            log.error("the satellite modem refuses to work: %s", status.means)
        else:
            self.link.state = LinkState.READY

    async def _settle(self, transmission: Transmission, momsn: int, status: MoStatus) -> None:
        verdict = status.verdict
        if verdict is not SessionVerdict.SENT and await self._has_left(momsn):
            log.info("the modem's number shows that the message was sent all the same")
            verdict = SessionVerdict.SENT
        tries = max(transmission.tries, self.record.doubts)
        wait = retry_after(status, tries, self.random.random(), urgent=transmission.urgent)
        self.record.doubts = self.record.doubts + 1 if verdict is SessionVerdict.DOUBTFUL else 0
        self.record.doubt_rests_until = trio.current_time() + wait
        await self.outbox.settle(
            transmission, _OUTCOMES[verdict], reason=status.means, retry_after=wait
        )
        if verdict is SessionVerdict.SENT:
            # The modem keeps what it sent: another session would send and bill it again.
            await self.modem.ask(sbd.CLEAR_MO)

    async def _has_left(self, momsn: int) -> bool:
        return (await self.modem.status()).momsn == (momsn + 1) % sbd.MOMSN_MODULUS

    async def _take_mail(
        self, result: sbd.SessionResult, status: MoStatus, rang: bool, *, alone: bool
    ) -> None:
        """Whatever became of the MO message; what came is on disk before the next session."""
        if status.verdict is SessionVerdict.SENT:
            self.record.queued, self.record.misses = result.queued, 0
        else:
            self.modem.rang = self.modem.rang or rang
            wait = retry_after(status, self.record.misses, self.random.random(), urgent=False)
            self.record.misses += 1
            self.record.mailbox_rests_until = trio.current_time() + wait
        if result.mt_status == 1 and result.mt_length > 0:
            await self._read()
        elif alone and status.verdict is SessionVerdict.SENT:
            await self.outbox.spend(1)

    async def _read(self) -> None:
        """Read, verify, store, and only then clear what the modem holds for us."""
        for _ in range(READ_TRIES):
            read = await self.modem.read()
            if read is None or not read.body:
                break
            if read.intact:
                await self.reception.receive(read.body)
                break
            log.info("a message came garbled over the serial line: reading it again")
        else:
            log.error("a message stays garbled however often it is read: it is lost")
        await self.modem.ask(sbd.CLEAR_MT)

    # A session whose end nobody saw.

    async def _resolve(self, intent: Intent) -> None:
        """The next MOMSN tells whether it was sent; if not, the identical bytes go first."""
        if self.record.doubts:
            urgent = partial(self.outbox.ready, urgent=True)
            await self._wait(self.record.doubt_rests_until, urgent)
        status = await self.modem.status()
        same = intent.modem == self.modem.imei
        if same and status.momsn == (intent.momsn + 1) % sbd.MOMSN_MODULUS:
            log.info("message %d had been sent, as the modem's number shows", intent.momsn)
            await self.outbox.settle(intent.transmission, Outcome.SENT)
            await self.modem.ask(sbd.CLEAR_MO)
            return
        if not (same and status.momsn == intent.momsn):
            log.warning(
                "nobody can tell whether message %d was sent by modem %s: it goes again, and the"
                " number inside it makes a second copy harmless",
                intent.momsn,
                intent.modem,
            )
        if status.mt_flag:
            await self._read()
        await self._store(intent.transmission)
        await self.outbox.intend(intent.transmission, modem=self.modem.imei, momsn=status.momsn)
        await self._converse(intent.transmission, status.momsn)


_OUTCOMES = {
    SessionVerdict.SENT: Outcome.SENT,
    SessionVerdict.DOUBTFUL: Outcome.DOUBTFUL,
    SessionVerdict.NOT_SENT: Outcome.NOT_SENT,
    SessionVerdict.REFUSED: Outcome.REFUSED,
    SessionVerdict.FAULT: Outcome.NOT_SENT,
}
