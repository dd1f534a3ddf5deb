"""Drives an Iridium 9602/9603 on a serial line, for as long as the agent runs.

The intent is stored before each session and settled after it. A message is considered sent only if
the modem still holds our bytes after the session and its MOMSN has moved by one. The driver queries
both after each session, which is free (+SBDSX). If a reset may have emptied the buffer, or a reply
was lost, the driver sends the message again. A second copy is harmless, because the message
contains its number.

| after the session | modem reported sent | modem reported not sent |
|---|---|---|
| our bytes still there, MOMSN moved by one | sent | sent |
| our bytes still there, MOMSN the same | not sent | not sent |
| our bytes gone: reset | doubtful | not sent; doubtful if the MOMSN moved |

If the MOMSN did not move, the gateway may still have the message, because the modem reported sent
or the call broke off. Then the session's credits are booked as doubtful.

An MT message is verified, stored, and only then cleared in the modem. Noise on the line costs
another attempt but not the message, because the modem holds the only copy. A garbled message is
read again after 1, 5 and 30 s, and then at each check. The message stays in the modem until it can
be read, another message needs its place, or ten minutes have passed. Then the readable part is
kept, and the hub is notified and sends the message again.
"""

from __future__ import annotations

import logging
import random as randomness
from collections.abc import Awaitable, Callable
from dataclasses import field
from enum import Enum, auto
from functools import partial
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import (
    ChannelLink,
    Intent,
    LinkState,
    MessageLimits,
    Outbox,
    Reception,
    Transmission,
)
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.agent.channels.reopening import forbid_healing, run_and_reopen
from fieldagent.agent.channels.satellite_pace import WITHHELD_REASON, GatewayMailbox, LinkRest
from fieldagent.agent.channels.satellite_waits import (
    compute_next_look,
    end_pauses_on_request,
    mark_absent,
    wait_for_first,
    wait_until_rested,
)
from fieldagent.agent.channels.sbd_modem import Modem, ModemSilent, open_modem
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import format_count
from fieldagent.wire import sbd
from fieldagent.wire.credit import CREDIT_TARIFF, compute_credits
from fieldagent.wire.envelope import Unreadable
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sbd import MT_STATUS, MoStatus, SessionVerdict, find_mo_status

PAUSES = (1.0, 5.0, 30.0)
"""Seconds between two attempts to read a garbled message. A waiting SOS ends the pauses."""
RETRIES_PER_CHECK = 2
"""Number of attempts per check to read a garbled message that was already read with pauses."""
GARBLED_MAX_S = 600.0
"""Seconds for which an unreadable message stays in the modem, if its place is not needed."""
GARBLED_REASON = "its checksum was wrong, or its end was missing, each time it was read"
STAYS_IN_MODEM_REASON = "a message is garbled on the serial line and is read again: check the cable"


class ReadResult(Enum):
    """Result of reading the message in the modem, and whether its cost is booked."""

    STORED = auto()
    """The message is stored, readable or not, and its cost is booked."""
    STAYS = auto()
    """The message is garbled and stays in the modem. Its cost is booked later."""
    NOTHING = auto()
    """The modem contains no readable message, and nothing is booked."""


@dataclass(slots=True)
class ModemMessageReader:
    """Reads the messages in one modem, from the time when its port is opened until the port is
    lost.
    """

    modem: Modem
    reception: Reception
    mailbox: GatewayMailbox
    pause: Callable[[float], Awaitable[bool]]
    """Function that waits for a number of seconds and returns False. If an SOS waits, it returns
    True at once."""
    garbled_since: float | None = None
    """Time on trio's clock when the message in the modem was first found garbled. None if it is not
    garbled."""
    _size: int = 0
    """Size of the message in bytes, as the session reported it. 0 if unknown."""

    async def read(self, *, is_needed: bool = False, size: int = 0) -> ReadResult:
        """Read the message in the modem, store it and clear it in the modem. A garbled message
        stays in the modem for a time. If `is_needed`, it is stored at once, because another message
        needs its place. `size` is the message's size in bytes if a session has just reported it,
        otherwise 0.

        Raises ModemSilent, PortLost.
        """
        self._size = size or self._size
        message, hurry = await self._read_with_retries()
        if message is None or not (message.intact or message.body):
            if not self.mailbox.withheld:
                log.error("%s", WITHHELD_REASON)
            self.mailbox.withheld = True
            return ReadResult.NOTHING
        now = trio.current_time()
        if not message.intact:
            if self.garbled_since is None:
                self.garbled_since = now
                await self.modem.link.recorder.record_fault("a message was garbled")
            if not is_needed and not hurry and now - self.garbled_since < GARBLED_MAX_S:
                return ReadResult.STAYS
        if size:
            self.mailbox.uncleared_message = b""
        if message.body and message.body != self.mailbox.uncleared_message:
            if message.intact:
                await self.reception.receive(message.body)
            else:
                unreadable = Unreadable(self._size or len(message.body), message.guard)
                await self.reception.receive(
                    message.body, damage=GARBLED_REASON, unreadable_message=unreadable
                )
            self.mailbox.uncleared_message = message.body
        if await self.modem.clear(sbd.CLEAR_MT):
            self.mailbox.uncleared_message = b""
        self.mailbox.withheld, self.garbled_since, self._size = False, None, 0
        return ReadResult.STORED if message.body else ReadResult.NOTHING

    async def _read_with_retries(self) -> tuple[sbd.MobileTerminatedMessage | None, bool]:
        """Read the message until it is intact, at most a few times. Return the last message that
        could be read, and True if a waiting SOS ended the pauses. Return None instead of a message
        if the modem returned nothing.
        """
        before = self.garbled_since is not None or self.mailbox.withheld
        pauses = (0.0,) * RETRIES_PER_CHECK if before else (0.0, *PAUSES)
        best, hurry = None, False
        for seconds in pauses:
            if seconds and not hurry:
                log.info("a message was garbled on the serial line: reading it again")
                hurry = await self.pause(seconds)
            best = await self.modem.read() or best
            if best is not None and best.intact:
                break
        return best, hurry


log = logging.getLogger(__name__)

CHECKS_PER_SETTINGS_RESTORE = 10
"""Number of checks of an idle modem after which its settings are restored."""
NO_SERVICE_WAIT_S = 120.0
"""Seconds after which a session is tried although the modem reports no network."""
WRITE_TRIES = 3
EMPTY_SESSIONS_MAX = 3
"""After this number of consecutive sessions with an empty buffer, we assume that the modem always
clears a sent message. Each of these sessions must be reported as sent, have moved the MOMSN and
show no other sign of a reset. The modem must never have kept a sent message. Without this limit, a
message would be sent again forever."""


async def run(
    port: str,
    outbox: Outbox,
    reception: Reception,
    link: ChannelLink,
    pace: Pace,
    *,
    speed: LineSpeed,
    registers: bool = True,
    heal: Callable[[], Awaitable[bool]] = forbid_healing,
    progress: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Serve one modem forever, even if the modem is absent or unplugged, or has no power or no
    account for a time.

    `pace` contains the results of earlier runs. `progress` is called at least every 90 seconds. If
    `registers`, the modem registers with the network by itself after it was moved.
    """
    settings_lines = (sbd.REGISTRATION,) if registers else ()

    async def work() -> None:
        async with open_modem(port, await speed.find_speed(port), link, *settings_lines) as modem:
            driver = SatelliteDriver(modem, outbox, reception, link, pace, progress)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end_pauses_on_request, link, pace.rest, modem.wake_waiting)
                await driver.work()

    def report(error: BaseException) -> None:
        if isinstance(error, ModemSilent):
            speed.record_silence()
        mark_absent(link, error)

    await run_and_reopen(
        work,
        (PortLost, ModemSilent, RemoteProtocolError),
        report,
        progress,
        link,
        heal,
    )


@dataclass(slots=True)
class Pace:
    """Facts about the link from earlier sessions, which are kept when the port is opened again."""

    random: randomness.Random
    mailbox_check: float | None = None
    """Seconds after which the mailbox is checked even without a ring alert. None means never."""
    last_session: float = field(default_factory=trio.current_time)
    rest: LinkRest = field(default_factory=LinkRest)
    mailbox: GatewayMailbox = field(default_factory=GatewayMailbox)
    empty: int = 0
    """Number of consecutive sessions that left an empty buffer and no other sign of a reset."""
    keeping_imei: str | None = None
    """IMEI of the last modem that kept a message after sending it."""

    def record_kept_message(self, modem: str) -> None:
        """Record that the modem kept its sent message. From now on, an empty buffer means that the
        modem was reset.
        """
        self.keeping_imei, self.empty = modem, 0

    def count_empty(self, modem: str, is_buffer_sent: bool) -> bool:
        """Count a session that left an empty buffer. If `is_buffer_sent` is False, there is another
        sign of a reset, and the count restarts at 0. Return True after EMPTY_SESSIONS_MAX counted
        sessions, because this modem then clears each message that it has sent.
        """
        self.empty = self.empty + 1 if is_buffer_sent and modem != self.keeping_imei else 0
        return self.empty >= EMPTY_SESSIONS_MAX


@dataclass(slots=True)
class SatelliteDriver:
    """Drives one modem, from the time when its port is opened until the port is lost."""

    modem: Modem
    outbox: Outbox
    reception: Reception
    link: ChannelLink
    pace: Pace
    progress: Callable[[], None]
    mail: ModemMessageReader = field(init=False)

    def __post_init__(self) -> None:
        self.mail = ModemMessageReader(
            self.modem, self.reception, self.pace.mailbox, self._wait_unless_urgent
        )

    async def work(self) -> NoReturn:
        """Settle the intent of an earlier run, and then hold sessions when they are due. After a
        PortLost, ModemSilent or RemoteProtocolError, the caller must reopen the port.
        """
        self.outbox.set_limits(MessageLimits(sbd.MO_BYTES, sbd.MO_BYTES, CREDIT_TARIFF))
        status = await self.modem.read_status()
        # Ask for the status, because only the status shows that a message arrived at the gateway
        # while the modem or the agent was off.
        self.pace.mailbox.queued = max(self.pace.mailbox.queued, status.waiting)
        await self._book_lost_check(status)
        self.pace.mailbox.withheld = False
        if status.mt_flag:
            await self.mail.read()
        while True:
            self.progress()
            self._show()
            if (intent := self.outbox.get_unsettled()) is not None:
                await self._resolve(intent)
            else:
                await self._wait_until_due()
                await self._hold_session()

    def _show(self) -> None:
        self.link.facts["waitingAtGateway"] = self.pace.mailbox.queued
        self.link.next_look = self.pace.rest.compute_end(self.modem.service)
        self.link.next_urgent = self.pace.rest.compute_end(self.modem.service, urgent=True)
        if self.link.state is LinkState.FAULT:
            return
        is_out_of_service = self.modem.service is False
        self.link.state = LinkState.NO_SERVICE if is_out_of_service else LinkState.READY
        mailbox = "" if is_out_of_service else self.pace.mailbox.describe_wait()
        if self.mail.garbled_since is not None:
            mailbox = STAYS_IN_MODEM_REASON
        hold = self.outbox.describe_hold() or self._describe_mail_hold()
        if hold and hold != self.link.reason:
            log.warning("%s", hold)
        self.link.reason = hold or mailbox

    def _describe_mail_hold(self) -> str:
        """Return a sentence for people if messages wait at the gateway and today's budget cannot
        pay for fetching them. Otherwise return ''.
        """
        waiting = self.pace.mailbox.queued
        if not (self.modem.has_rung or waiting) or self.outbox.compute_allowance(mailbox=True) != 0:
            return ""
        mail_text = format_count(waiting, "message") if waiting else "a message"
        return (
            f"{mail_text} at the gateway, but no credits are left today to fetch more: half of"
            " them are reserved for messages from the kit"
        )

    async def _wait_until_due(self) -> None:
        """Wait until a Package or a message is due, and check an idle modem regularly."""
        looks = 0
        while not self._is_mailbox_due():
            if await self._wait(
                compute_next_look(), self._wait_for_package, self._wait_until_mailbox_due
            ):
                break
            looks += 1
            if (await self.modem.read_status()).mt_flag:
                await self.mail.read()
            if looks % CHECKS_PER_SETTINGS_RESTORE == 0:
                await self.modem.hold_settings()
            self._show()
        if self.modem.service is False:
            # The modem may have lost the setting with which it reports its service, so check the
            # modem's settings again.
            await self.modem.hold_settings()
            wait_until_urgent = partial(self.outbox.wait_until_ready, urgent=True)
            self.link.next_look = trio.current_time() + NO_SERVICE_WAIT_S
            await self._wait(
                NO_SERVICE_WAIT_S,
                wait_until_urgent,
                self.modem.wait_for_network,
                self.link.wait_until_requested,
            )

    async def _wait(self, seconds: float, *events: Callable[[], Awaitable[None]]) -> bool:
        return await wait_for_first(seconds, self.progress, *events)

    async def _wait_for_package(self) -> None:
        """Wait until a Package is due and the link may be tried again."""
        await self.outbox.wait_until_ready()
        await self._wait_until_rested(urgent=False)

    async def _wait_until_rested(self, *, urgent: bool) -> None:
        """Wait until the link may be tried again. The wait is shorter for an SOS, even if the SOS
        arrives during the wait.
        """

        async def is_over(urgent: bool) -> None:
            await wait_until_rested(
                self.pace.rest,
                lambda: self.modem.service,
                lambda: self.modem.news.wait(),
                urgent=urgent,
            )

        async def is_over_for_an_sos() -> None:
            await self.outbox.wait_until_ready(urgent=True)
            await is_over(True)

        await self._wait(inf, partial(is_over, urgent), is_over_for_an_sos)

    async def _wait_until_mailbox_due(self) -> None:
        while not self._is_mailbox_due():
            rests = max(self.pace.rest.compute_end(self.modem.service), self.pace.mailbox.until)
            with trio.move_on_at(rests if rests > trio.current_time() else inf):
                await self.modem.news.wait()

    def _is_mailbox_due(self) -> bool:
        now, pace = trio.current_time(), self.pace
        since = now - pace.last_session
        check = pace.mailbox_check is not None and since >= pace.mailbox_check
        is_check_wanted = self.modem.has_rung or pace.mailbox.queued > 0 or check
        rested = now >= max(pace.rest.compute_end(self.modem.service), pace.mailbox.until)
        free = not pace.mailbox.withheld
        return (
            is_check_wanted and rested and free and self.outbox.compute_allowance(mailbox=True) != 0
        )

    async def _hold_session(self) -> None:
        status = await self.modem.read_status()
        if status.mt_flag and not self.pace.mailbox.withheld:
            await self.mail.read(is_needed=True)
        await self.modem.hold_settings()
        # The modem may have received the network's time since it was set up, so ask for the time
        # again.
        await self.modem.ask_time()
        await self.outbox.fix_dates()
        transmission = self.outbox.load(sbd.MO_BYTES)
        if transmission is not None:
            await self._write_message(transmission, status.momsn)
        elif self._is_mailbox_due():
            if not await self.modem.clear(sbd.CLEAR_MO) and status.mo_flag:
                # The old message is still in the modem. A session would send it again, and the
                # gateway would bill it again.
                self.pace.mailbox.rest(trio.current_time(), self.pace.random.random())
                return
            self.pace.mailbox.begun_check = (self.modem.imei, status.momsn)
        else:
            await trio.sleep(1)
            return
        await self._converse(transmission, status.momsn)

    async def _write_message(self, transmission: Transmission, momsn: int) -> None:
        """Write the message into the modem and store the intent. If either step fails, settle the
        transmission as not sent.
        """
        try:
            await self._store(transmission)
            await self.outbox.record_intent(transmission, modem=self.modem.imei, at_modem=momsn)
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
            log.info("the modem did not accept a message: %s; trying again", result.name)
        raise ModemSilent(f"the modem does not accept messages: {result.name}")

    async def _converse(self, transmission: Transmission | None, momsn: int) -> None:
        """Hold a session with the gateway. If the modem's reply is lost, the intent is kept and is
        resolved later.
        """
        self.link.state = LinkState.BUSY
        rang, self.modem.has_rung = self.modem.has_rung, False
        try:
            is_urgent = transmission is not None and transmission.urgent
            result = await self.modem.hold_session(
                answers_ring=rang,
                urgent=is_urgent,
                wait_for_sos=partial(self.outbox.wait_until_ready, urgent=True),
            )
        except BaseException:
            self.modem.has_rung = self.modem.has_rung or rang
            raise
        finally:
            self.pace.last_session = trio.current_time()
        self.pace.mailbox.begun_check = None
        status = find_mo_status(result.mo_status)
        text = (
            status.description
            if transmission is not None
            else _describe_check_result(result, status)
        )
        log.info("session %d ended: %s", result.momsn, text)
        verdict = status.verdict
        if transmission is not None:
            verdict = await self._judge_session(status, momsn)
        self._judge_link(status, verdict)
        if status.network_waits and (seconds := await self.modem.ask_traffic()):
            log.info("the network accepts the next session in %d s", seconds)
            self.pace.rest.start_until_traffic(
                seconds, trio.current_time(), self.pace.random.random()
            )
        if transmission is not None:
            await self._settle(transmission, status, verdict)
        await self._store_received_message(result, status, rang, is_alone=transmission is None)

    async def _judge_session(self, status: MoStatus, momsn: int) -> SessionVerdict:
        """Decide whether the message was sent, from the MO status, the MOMSN before and after, and
        the buffer (see the table at the top of this module).
        """
        wrote, resets = self.modem.is_holding_own_message, self.modem.resets
        after = await self.modem.read_status()
        moved = after.momsn == (momsn + 1) % sbd.MOMSN_MODULUS
        told_sent = status.verdict is SessionVerdict.SENT
        if self.modem.is_holding_own_message and moved and told_sent:
            self.pace.record_kept_message(self.modem.imei)
        if self.modem.is_holding_own_message or self.pace.count_empty(
            self.modem.imei, wrote and moved and told_sent and resets == self.modem.resets
        ):
            if moved and not told_sent:
                log.info("the modem's number shows that the message was sent")
            if moved:
                return SessionVerdict.SENT
            if told_sent and after.momsn == momsn:
                log.warning("the modem reported sent, but its number did not change: not sent")
                return SessionVerdict.NOT_SENT
            return SessionVerdict.DOUBTFUL if told_sent else status.verdict
        if moved or told_sent:
            log.warning("the modem's buffer is empty after the session: was it reset?")
            return SessionVerdict.DOUBTFUL
        return status.verdict

    def _judge_link(self, status: MoStatus, verdict: SessionVerdict) -> None:
        if status.verdict is SessionVerdict.SENT:
            # A session has reached the network, so the network is available, whatever the modem
            # reported before.
            self.modem.service = True
        if verdict is SessionVerdict.SENT:
            self.pace.rest.end_after_success()
        elif verdict is not SessionVerdict.REFUSED:
            chance = self.pace.random.random()
            self.pace.rest.start_after_failure(status, trio.current_time(), chance)
        if status.verdict is SessionVerdict.FAULT:
            self.link.state, self.link.reason = LinkState.FAULT, status.description
            log.error("the satellite modem refuses to work: %s", status.description)
        else:
            self.link.state = LinkState.READY

    async def _settle(
        self, transmission: Transmission, status: MoStatus, verdict: SessionVerdict
    ) -> None:
        is_at_gateway = status.verdict in (SessionVerdict.SENT, SessionVerdict.DOUBTFUL)
        if (
            is_at_gateway
            and verdict is not SessionVerdict.SENT
            and self.modem.is_holding_own_message
        ):
            # The gateway may have the message and bill it, although the MOMSN did not move. So book
            # its cost as doubtful.
            await self.outbox.book_doubtful_cost(transmission)
        await self.outbox.settle(transmission, _OUTCOMES[verdict], reason=status.description)
        if verdict is SessionVerdict.DOUBTFUL:
            await self.link.recorder.record_fault(
                f"unknown whether it was sent: {status.description}"
            )
        if verdict is SessionVerdict.SENT:
            # Clear the sent message, because the next session would send it again, and the gateway
            # would bill it.
            await self.modem.clear(sbd.CLEAR_MO)

    async def _store_received_message(
        self, result: sbd.SessionResult, status: MoStatus, is_ringing: bool, *, is_alone: bool
    ) -> None:
        """Store a message that the session received, whatever the result of the outgoing message
        is. This must happen before the next session.
        """
        is_at_gateway = status.verdict is SessionVerdict.SENT
        if is_at_gateway:
            chance = self.pace.random.random()
            self.pace.mailbox.record_check(result, trio.current_time(), chance)
        else:
            self.modem.has_rung = self.modem.has_rung or is_ringing
        if result.mt_status == 1 and result.mt_length > 0:
            if await self.mail.read(size=result.mt_length) is ReadResult.NOTHING:
                await self.outbox.spend(compute_credits(result.mt_length))
        elif is_alone and is_at_gateway:
            await self.outbox.spend(1)

    async def _book_lost_check(self, status: sbd.BufferStatus) -> None:
        """Book a mailbox check whose reply was lost, if the MOMSN shows that it took place. If the
        check fetched a message, the message is still in the modem, and is booked when it is read.
        """
        started_check, self.pace.mailbox.begun_check = self.pace.mailbox.begun_check, None
        if (
            started_check is None
            or started_check == (self.modem.imei, status.momsn)
            or status.mt_flag
        ):
            return
        self.pace.mailbox.rest(trio.current_time(), self.pace.random.random())
        await self.outbox.spend(1)

    async def _resolve(self, intent: Intent) -> None:
        """Decide from the modem's sequence numbers whether the message of an intent was sent. If it
        was not sent, send the identical bytes again, before all other messages except an SOS.
        """
        is_urgent = intent.transmission.urgent
        await self._wait_until_rested(urgent=is_urgent)
        status = await self.modem.read_status()
        is_same_modem = intent.modem == self.modem.imei
        moved = status.momsn == (intent.at_modem + 1) % sbd.MOMSN_MODULUS
        if is_same_modem and moved and self.modem.is_holding_own_message:
            log.info("message %d had been sent, as the modem's number shows", intent.at_modem)
            await self.outbox.settle(intent.transmission, Outcome.SENT)
            await self.modem.clear(sbd.CLEAR_MO)
            return
        if not (is_same_modem and status.momsn == intent.at_modem):
            log.warning(
                "unknown whether message %d was sent by modem %s: sending again; a second"
                " copy does no harm because of its number",
                intent.at_modem,
                intent.modem,
            )
            await self.outbox.record_copy(intent.transmission)
        if status.mt_flag:
            await self.mail.read(is_needed=True)
        if not is_urgent and await self._is_urgent_waiting():
            log.info("an SOS is sent before message %d, which is sent again later", intent.at_modem)
            await self.outbox.settle(
                intent.transmission, Outcome.NOT_SENT, reason="an SOS was sent first"
            )
            return
        # Store the intent with the current MOMSN before the bytes are in the modem again. A session
        # without a message may have changed the MOMSN. With the old MOMSN, the agent would conclude
        # after a power failure that the bytes were sent.
        await self.outbox.record_intent(
            intent.transmission, modem=self.modem.imei, at_modem=status.momsn
        )
        await self._store(intent.transmission)
        await self._converse(intent.transmission, status.momsn)

    async def _wait_unless_urgent(self, seconds: float) -> bool:
        """Wait for `seconds`, and return False. Return True at once if an SOS waits."""
        return await self._wait(seconds, partial(self.outbox.wait_until_ready, urgent=True))

    async def _is_urgent_waiting(self) -> bool:
        with trio.CancelScope(deadline=trio.current_time()) as at_once:
            await self.outbox.wait_until_ready(urgent=True)
        return not at_once.cancelled_caught


_OUTCOMES = {
    SessionVerdict.SENT: Outcome.SENT,
    SessionVerdict.DOUBTFUL: Outcome.DOUBTFUL,
    SessionVerdict.NOT_SENT: Outcome.NOT_SENT,
    SessionVerdict.REFUSED: Outcome.REFUSED,
    SessionVerdict.FAULT: Outcome.NOT_SENT,
}


def _describe_check_result(result: sbd.SessionResult, status: MoStatus) -> str:
    """Return the result, for people, of a session without an outgoing message."""
    is_at_gateway = status.verdict is SessionVerdict.SENT
    return (
        MT_STATUS.get(result.mt_status, "a mailbox check was requested")
        if is_at_gateway
        else status.description
    )
