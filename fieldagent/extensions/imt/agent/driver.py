"""Controls an Iridium Certus 9704 for as long as the agent runs.

The driver writes the intent to disk before it offers the modem a message, and updates the intent
when the modem has given the message a number. The modem then works alone, sometimes for hours. A
message has been sent only if the network's own status reports this. To give up a message, the
driver asks the modem to cancel it and waits for the status.

| end of the message | result |
|---|---|
| `mo_ack_received` | sent |
| the modem, port or agent stopped before the modem had the last segment | not sent |
| cancelled before transit, or not accepted | not sent |
| the modem lost power after the last segment; another status; no status | in doubt |

If an idle modem has not reported the end of its message, the report was lost, and the last row
applies. If the firmware does not report its activity, the driver notices this only after the time
limit.

A message in doubt is sent again with the same bytes. Unlike an SBD modem with its MOMSN, this modem
has no number that could show the result later. The number in the bytes makes a second copy
harmless. If the agent restarts while the modem keeps its power, it first cancels the earlier
message.
"""

from __future__ import annotations

import logging
import random as randomness
from collections.abc import Awaitable, Callable
from dataclasses import field
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
from fieldagent.agent.channels.satellite_pace import LinkRest
from fieldagent.agent.channels.satellite_waits import (
    compute_next_look,
    end_pauses_on_request,
    mark_absent,
    wait_for_first,
    wait_until_rested,
)
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.imt import messages
from fieldagent.extensions.imt.agent.modem import (
    ImtModem,
    ImtReset,
    ImtSilent,
    Mailbag,
    Outgoing,
    open_modem,
)
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import make_byte_tariff
from fieldagent.wire.envelope import Unreadable
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sbd import MoStatus, SessionVerdict

log = logging.getLogger(__name__)

SEGMENTS_MAX_S = 120.0
"""Seconds within which the modem must request all segments of a message. On the serial line, 100
000 bytes take 6 s."""
TRANSIT_MAX_S = 900.0
"""Seconds after which the driver gives up, for now, a message that is not an SOS. Other messages
may then be sent."""
SOS_TRANSIT_MAX = 6 * 3600.0
"""Seconds after which the driver gives up an SOS for now. According to the manufacturer, the modem
itself gives up before that."""
IDLE_CHECKS = 2
"""Number of consecutive checks that must find the modem idle before the driver gives up the current
message. If an idle modem has not reported the end of the message, the report was lost."""
CANCEL_MAX_S = 20.0
"""Seconds within which the modem must report the end of a message that the driver gave up."""
FILL_BYTES = messages.SEGMENT_BYTES - messages.CRC_BYTES
"""Number of bytes up to which the agent adds waiting entries to a message, so that the message fits
into one segment."""
MODEM_LOST_ERRORS = (PortLost, ImtSilent, ImtReset, RemoteProtocolError)
WENT_FIRST = MoStatus(SessionVerdict.NOT_SENT, "an SOS was sent first")
NOBODY_KNOWS = (
    "the modem held the message and was restarted, or did not report the "
    "result. The message is sent again, because it has no number to check"
)


@dataclass(slots=True)
class ImtPace:
    """State that is kept while the port is closed: the pauses of the link, and received messages
    that are not stored yet.
    """

    random: randomness.Random
    minimum_bytes: int = 0
    rest: LinkRest = field(default_factory=LinkRest)
    mail: Mailbag = field(default_factory=Mailbag)


async def run(
    port: str,
    outbox: Outbox,
    reception: Reception,
    link: ChannelLink,
    pace: ImtPace,
    *,
    speed: LineSpeed,
    topic: str = messages.RAW,
    heal: Callable[[], Awaitable[bool]] = forbid_healing,
    progress: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Serve one modem until cancelled, even while it is absent, unplugged, or without power, SIM or
    account.

    `progress` is called at least every 90 seconds.
    """

    async def work() -> None:
        async with open_modem(port, await speed.find_speed(port), link, pace.mail, topic) as modem:
            driver = ImtDriver(modem, outbox, link, pace, progress)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end_pauses_on_request, link, pace.rest, modem.wake)
                await driver.work()

    def report(error: BaseException) -> None:
        if isinstance(error, ImtSilent):
            speed.record_silence()
        mark_absent(link, error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_store_mail, reception, pace.mail)
        await run_and_reopen(work, MODEM_LOST_ERRORS, report, progress, link, heal)


async def _store_mail(reception: Reception, mail: Mailbag) -> NoReturn:
    """Store received messages on disk until cancelled. On cancellation, first store the messages
    that still wait.
    """
    while True:
        await mail.wait_for_first()
        with trio.CancelScope(shield=True):
            while mail:
                message = await mail.wait_for_first()
                size = len(message.body)
                unreadable = Unreadable(size, message.guard) if message.damage else None
                await reception.receive(
                    message.body, damage=message.damage, unreadable_message=unreadable
                )
                mail.remove_first()


@dataclass(slots=True)
class ImtDriver:
    """Controls one modem while its port is open."""

    modem: ImtModem
    outbox: Outbox
    link: ChannelLink
    pace: ImtPace
    progress: Callable[[], None]

    async def work(self) -> NoReturn:
        """Send the transmissions that are due, until the modem fails. Raises one of
        `MODEM_LOST_ERRORS`.
        """
        self.outbox.set_limits(
            MessageLimits(
                messages.PAYLOAD_BYTES, FILL_BYTES, make_byte_tariff(self.pace.minimum_bytes)
            )
        )
        while True:
            self.progress()
            self._show()
            if not self._can_send():
                await self._wait(compute_next_look(), self.modem.news.wait)
                await self.modem.query_state()
            elif (intent := self.outbox.get_unsettled()) is not None:
                await self._resolve(intent)
            else:
                await self._wait_until_due()
                await self._send_next()

    def _can_send(self) -> bool:
        return not self.modem.facts.describe_trouble() and self.modem.facts.topic is not None

    def _show(self) -> None:
        compute_end = partial(self.pace.rest.compute_end, self.modem.facts.service)
        self.link.next_look, self.link.next_urgent = compute_end(), compute_end(urgent=True)
        if fault := self.modem.facts.describe_trouble():
            self.link.state, self.link.reason = LinkState.FAULT, fault
            return
        if self.modem.facts.topic is None:
            self.link.state = LinkState.NO_SERVICE
            self.link.reason = (
                f"the modem does not know the topic {self.modem.topic_name} yet: a new SIM or plan"
                " takes 10 to 30 minutes under the open sky; see imt-topic"
            )
            return
        is_out_of_service = self.modem.facts.service is False
        self.link.state = LinkState.NO_SERVICE if is_out_of_service else LinkState.READY
        hold = self.outbox.describe_hold()
        if hold and hold != self.link.reason:
            log.warning("%s", hold)
        self.link.reason = hold

    async def _wait_until_due(self) -> None:
        while not await self._wait(
            compute_next_look(), self._wait_for_package, self._wait_for_urgent
        ):
            await self.modem.query_state()
            self._show()
            if not self._can_send():
                return

    async def _wait(self, seconds: float, *events: Callable[[], Awaitable[None]]) -> bool:
        return await wait_for_first(seconds, self.progress, *events)

    async def _wait_for_package(self) -> None:
        await self.outbox.wait_until_ready()
        await self._wait_until_rested(urgent=False)

    async def _wait_for_urgent(self) -> None:
        await self.outbox.wait_until_ready(urgent=True)
        await self._wait_until_rested(urgent=True)

    async def _wait_until_rested(self, *, urgent: bool) -> None:
        await wait_until_rested(
            self.pace.rest,
            lambda: self.modem.facts.service,
            lambda: self.modem.news.wait(),
            urgent=urgent,
        )

    async def _is_urgent_waiting(self) -> bool:
        with trio.CancelScope(deadline=trio.current_time()) as at_once:
            await self.outbox.wait_until_ready(urgent=True)
        return not at_once.cancelled_caught

    async def _send_next(self) -> None:
        if not self._can_send():
            return
        await self.pace.mail.wait_until_empty()
        await self.outbox.fix_dates()
        transmission = self.outbox.load(messages.PAYLOAD_BYTES)
        if transmission is None:
            await trio.sleep(1)
            return
        await self._transmit(transmission)

    async def _transmit(self, transmission: Transmission, *, again: bool = False) -> None:
        """Let the modem send the transmission, and settle it. If an error occurs before the modem
        has all segments, the transmission was not sent. If `again` is True, this is a repetition,
        and an earlier copy may have been sent.
        """
        assert self.modem.facts.topic is not None
        outgoing = Outgoing(self.modem.facts.topic.id, transmission.body)
        try:
            await self.outbox.record_intent(
                transmission, modem=self.modem.facts.imei, at_modem=messages.UNNAMED_KEY
            )
            self.link.state = LinkState.BUSY
            status = await self._exchange_message(transmission, outgoing)
        except BaseException:
            if not outgoing.message.last_handed_over and not again:
                with trio.CancelScope(shield=True):
                    await self.outbox.settle(
                        transmission, Outcome.NOT_SENT, reason="the modem is away"
                    )
            elif not again:
                with trio.CancelScope(shield=True):
                    await self.outbox.settle(transmission, Outcome.DOUBTFUL, reason=NOBODY_KNOWS)
            raise
        finally:
            self.modem.outgoing = None
        await self._record_status(transmission, status)

    async def _exchange_message(self, transmission: Transmission, outgoing: Outgoing) -> MoStatus:
        refused = await self.modem.offer_message(outgoing)
        if refused is not None:
            return refused
        assert outgoing.key is not None
        await self.outbox.record_intent(
            transmission, modem=self.modem.facts.imei, at_modem=outgoing.key.pack()
        )
        is_urgent = transmission.urgent
        await self._wait(SEGMENTS_MAX_S, partial(self.modem.wait_until_handed_over, outgoing))
        if outgoing.message.last_handed_over:
            await self._wait_until_ended(outgoing.key, urgent=is_urgent)
        if outgoing.status is not None:
            return messages.find_mo_status(outgoing.status)
        sos = not is_urgent and await self._is_urgent_waiting()
        log.info("message %d is given up%s", outgoing.key.id, ": an SOS waits" if sos else "")
        status = await self._cancel_message(outgoing.key)
        # The driver gave up the message for an SOS, not because of the link, so no pause follows.
        return WENT_FIRST if sos and status.verdict is SessionVerdict.NOT_SENT else status

    async def _wait_until_ended(self, key: messages.MessageKey, *, urgent: bool) -> None:
        """Wait until the modem reports the end of the message, or until the time limit is over.
        Also return if the modem has lost the message, or if an SOS waits. Raises ImtReset,
        ImtSilent.
        """
        events: list[Callable[[], Awaitable[None]]] = [partial(self.modem.wait_until_ended, key)]
        if not urgent:
            events.append(partial(self.outbox.wait_until_ready, urgent=True))
        ends_at = trio.current_time() + (SOS_TRANSIT_MAX if urgent else TRANSIT_MAX_S)
        idle = 0
        while idle < IDLE_CHECKS and (seconds_left := ends_at - trio.current_time()) > 0:
            if await self._wait(min(compute_next_look(), seconds_left), *events):
                return
            await self.modem.query_state()
            idle = idle + 1 if self.modem.facts.active is False else 0

    async def _cancel_message(self, key: messages.MessageKey) -> MoStatus:
        """Cancel a message and return its final status. The modem may have sent the message
        before.
        """
        if key not in self.modem.ended and await self.modem.cancel(key):
            await self._wait(CANCEL_MAX_S, partial(self.modem.wait_until_ended, key))
        if key in self.modem.ended:
            return messages.find_mo_status(self.modem.ended[key])
        return MoStatus(SessionVerdict.DOUBTFUL, NOBODY_KNOWS)

    async def _record_status(self, transmission: Transmission, status: MoStatus) -> None:
        log.info("a message of %d bytes: %s", len(transmission.body), status.description)
        if status.verdict is SessionVerdict.SENT:
            self.modem.facts.service = True
            self.pace.rest.end_after_success()
        elif status is not WENT_FIRST:
            self.pace.rest.start_after_failure(
                status, trio.current_time(), self.pace.random.random()
            )
        if status.verdict is SessionVerdict.FAULT:
            self.link.state, self.link.reason = LinkState.FAULT, status.description
            log.error("the satellite modem refuses to send: %s", status.description)
        await self.outbox.settle(transmission, _OUTCOMES[status.verdict], reason=status.description)

    async def _resolve(self, intent: Intent) -> None:
        """Query the result of the message that `intent` describes, because the modem may still have
        the message. If the modem does not know the message, send the same bytes again before other
        messages. If an SOS waits, send the SOS first.
        """
        transmission = intent.transmission
        if (status := await self._find_final_status(intent)) is not None:
            await self._record_status(transmission, status)
            return
        events: list[Callable[[], Awaitable[None]]]
        events = [partial(self._wait_until_rested, urgent=transmission.urgent)]
        if not transmission.urgent:
            events.append(self._wait_for_urgent)
        await self._wait(inf, *events)
        log.warning(
            "unknown whether a message of %d bytes was sent by modem %s: sending again; a"
            " second copy does no harm because of its number",
            len(transmission.body),
            intent.modem,
        )
        await self.outbox.record_copy(transmission)
        if not transmission.urgent and await self._is_urgent_waiting():
            log.info("an SOS is sent before the repeat of a message that may have left")
            await self.outbox.settle(transmission, Outcome.NOT_SENT, reason=WENT_FIRST.description)
            return
        await self.pace.mail.wait_until_empty()
        await self._transmit(transmission, again=True)

    async def _find_final_status(self, intent: Intent) -> MoStatus | None:
        """Return the final status of the modem's message. Return None if the modem no longer knows
        the message, or if its status leaves the result in doubt.
        """
        key = messages.unpack_key(intent.at_modem)
        if key is None or intent.modem != self.modem.facts.imei or self.modem.facts.rebooted:
            return None
        status = await self._cancel_message(key)
        return None if status.verdict is SessionVerdict.DOUBTFUL else status


_OUTCOMES = {
    SessionVerdict.SENT: Outcome.SENT,
    SessionVerdict.DOUBTFUL: Outcome.DOUBTFUL,
    SessionVerdict.NOT_SENT: Outcome.NOT_SENT,
    SessionVerdict.REFUSED: Outcome.REFUSED,
    SessionVerdict.FAULT: Outcome.NOT_SENT,
}
