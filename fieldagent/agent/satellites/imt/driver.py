"""Drives an Iridium Certus 9704 for as long as the agent runs.

The intent is on disk before the modem is offered a message, and once more when it has named it. The
modem then goes on by itself, for hours: a message is sent where the network's own status says so,
and given up by asking the modem to cancel it, and by that status again.

| how it ended | it |
|---|---|
| `mo_ack_received` | is sent |
| the modem, the port or we stopped before the last segment was given | has not left |
| cancelled before transit, not accepted | has not left |
| the modem lost power after the last segment; another status; none | may have left |

A modem that is idle, and has not told how its message ended, has told it and was not heard: that is
the last row. Of a firmware that does not tell whether it is idle this shows when the time is over.

What may have left goes again, in the same bytes: a modem has no number that tells afterwards, as
SBD's MOMSN does, and the number inside the bytes makes a second copy harmless. An agent that starts
anew beside a modem that kept its power has the message of before cancelled first.
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
    Carriage,
    ChannelLink,
    Intent,
    LinkState,
    Outbox,
    Reception,
    Transmission,
)
from fieldagent.agent.channels.line_speed import LineSpeed
from fieldagent.agent.channels.reopening import keep_open, no_healing
from fieldagent.agent.channels.satellite_pace import LinkRest
from fieldagent.agent.channels.satellite_waits import (
    first_of,
    next_look,
    note_absent,
    obey,
    until_rested,
)
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.satellites.imt.modem import (
    ImtModem,
    ImtReset,
    ImtSilent,
    Mailbag,
    Outgoing,
    open_modem,
)
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import imt
from fieldagent.wire.credit import by_bytes
from fieldagent.wire.envelope import Unreadable
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sbd_status import MoStatus, SessionVerdict

log = logging.getLogger(__name__)

SEGMENTS_MAX = 120.0
"""Seconds in which the modem asks for all of a message: 100 000 bytes take 6 s of serial line."""
TRANSIT_MAX = 900.0
"""Seconds after which a message that is no SOS is given up, for now: others may get through."""
SOS_TRANSIT_MAX = 6 * 3600.0
"""The same of an SOS: by its maker's word the modem itself has given it up by then."""
IDLE_LOOKS = 2
"""Looks in a row that find the modem idle before it is asked what became of the message it has:
its status was lost."""
CANCEL_MAX = 20.0
"""Seconds in which the modem tells what came of a message that was given up."""
FILL = imt.SEGMENT_BYTES - imt.CRC_BYTES
"""Bytes up to which what waits goes in one message: one segment."""
LOST = (PortLost, ImtSilent, ImtReset, RemoteProtocolError)
WENT_FIRST = MoStatus(SessionVerdict.NOT_SENT, "an SOS went first")
NOBODY_KNOWS = (
    "the modem held it and was restarted, or did not tell how it ended; it has no number that"
    " tells, so the same bytes go again"
)


@dataclass(slots=True)
class ImtPace:
    """What outlives the port: how messages fared, and what came and is not stored yet."""

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
    topic: str = imt.RAW,
    heal: Callable[[], Awaitable[bool]] = no_healing,
    progress: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Serve one modem for ever: absent, unplugged, without power, SIM or account, it goes on.

    `progress` is called at least once a minute and a half.
    """

    async def work() -> None:
        async with open_modem(port, await speed.look(port), link, pace.mail, topic) as modem:
            driver = ImtDriver(modem, outbox, link, pace, progress)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(obey, link, pace.rest, modem.tell)
                await driver.work()

    def tell(error: BaseException) -> None:
        if isinstance(error, ImtSilent):
            speed.note_silent()
        note_absent(link, error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_store_mail, reception, pace.mail)
        await keep_open(work, LOST, tell, progress, link, heal)


async def _store_mail(reception: Reception, mail: Mailbag) -> NoReturn:
    """Put what came on disk, also what is here when the agent stops."""
    while True:
        await mail.first()
        with trio.CancelScope(shield=True):
            while mail:
                message = await mail.first()
                size = len(message.body)
                unreadable = Unreadable(size, message.guard) if message.damage else None
                await reception.receive(message.body, damage=message.damage, unreadable=unreadable)
                mail.take()


@dataclass(slots=True)
class ImtDriver:
    """Drives one modem from the opening of its port until the port is lost."""

    modem: ImtModem
    outbox: Outbox
    link: ChannelLink
    pace: ImtPace
    progress: Callable[[], None]

    async def work(self) -> NoReturn:
        """Send what is due, for ever. Raises one of `LOST`."""
        self.outbox.fit(Carriage(imt.PAYLOAD_BYTES, FILL, by_bytes(self.pace.minimum_bytes)))
        while True:
            self.progress()
            self._show()
            if not self._can_send():
                await self._wait(next_look(), self.modem.news.wait)
                await self.modem.look()
            elif (intent := self.outbox.unsettled()) is not None:
                await self._resolve(intent)
            else:
                await self._until_due()
                await self._send_next()

    def _can_send(self) -> bool:
        return not self.modem.told.trouble() and self.modem.told.topic is not None

    def _show(self) -> None:
        ends = partial(self.pace.rest.ends, self.modem.told.service)
        self.link.next_look, self.link.next_urgent = ends(), ends(urgent=True)
        if trouble := self.modem.told.trouble():
            self.link.state, self.link.reason = LinkState.FAULT, trouble
            return
        if self.modem.told.topic is None:
            self.link.state = LinkState.NO_SERVICE
            self.link.reason = (
                f"the modem does not know the topic {self.modem.topic_name} yet: a new SIM or plan"
                " takes 10 to 30 minutes under the open sky; see imt-topic"
            )
            return
        away = self.modem.told.service is False
        self.link.state = LinkState.NO_SERVICE if away else LinkState.READY
        held = self.outbox.held_back()
        if held and held != self.link.reason:
            log.warning("%s", held)
        self.link.reason = held

    # When there is something to do.

    async def _until_due(self) -> None:
        while not await self._wait(next_look(), self._due, self._urgent_due):
            await self.modem.look()
            self._show()
            if not self._can_send():
                return

    async def _wait(self, seconds: float, *events: Callable[[], Awaitable[None]]) -> bool:
        return await first_of(seconds, self.progress, *events)

    async def _due(self) -> None:
        await self.outbox.ready()
        await self._rested(urgent=False)

    async def _urgent_due(self) -> None:
        await self.outbox.ready(urgent=True)
        await self._rested(urgent=True)

    async def _rested(self, *, urgent: bool) -> None:
        await until_rested(
            self.pace.rest,
            lambda: self.modem.told.service,
            lambda: self.modem.news.wait(),
            urgent=urgent,
        )

    async def _urgent_waits(self) -> bool:
        with trio.CancelScope(deadline=trio.current_time()) as at_once:
            await self.outbox.ready(urgent=True)
        return not at_once.cancelled_caught

    # One message.

    async def _send_next(self) -> None:
        if not self._can_send():
            return
        await self.pace.mail.is_empty()
        await self.outbox.fix_dates()
        transmission = self.outbox.load(imt.PAYLOAD_BYTES)
        if transmission is None:
            await trio.sleep(1)
            return
        await self._transmit(transmission)

    async def _transmit(self, transmission: Transmission, *, again: bool = False) -> None:
        """Have the modem send it, and settle it. Where that ends by an error before all of it was
        given it has not left, unless it goes `again`: a copy before may have."""
        assert self.modem.told.topic is not None
        outgoing = Outgoing(self.modem.told.topic.id, transmission.body)
        try:
            await self.outbox.intend(transmission, modem=self.modem.told.imei, at_modem=imt.UNNAMED)
            self.link.state = LinkState.BUSY
            status = await self._converse(transmission, outgoing)
        except BaseException:
            if not outgoing.message.last_given and not again:
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
        await self._settle(transmission, status)

    async def _converse(self, transmission: Transmission, outgoing: Outgoing) -> MoStatus:
        refused = await self.modem.originate(outgoing)
        if refused is not None:
            return refused
        assert outgoing.key is not None
        await self.outbox.intend(
            transmission, modem=self.modem.told.imei, at_modem=outgoing.key.packed()
        )
        urgent = transmission.urgent
        await self._wait(SEGMENTS_MAX, partial(self.modem.is_given, outgoing))
        if outgoing.message.last_given:
            await self._until_told(outgoing.key, urgent=urgent)
        if outgoing.word is not None:
            return imt.mo_final(outgoing.word)
        sos = not urgent and await self._urgent_waits()
        log.info("message %d is given up%s", outgoing.key.id, ": an SOS waits" if sos else "")
        status = await self._give_up(outgoing.key)
        # Not the link's fault.
        return WENT_FIRST if sos and status.verdict is SessionVerdict.NOT_SENT else status

    async def _until_told(self, key: imt.MessageKey, *, urgent: bool) -> None:
        """Wait until the modem has told how a message ended, its time is over, it has lost the
        message and the word of it, or an SOS waits for its place. Raises ImtReset, ImtSilent."""
        events: list[Callable[[], Awaitable[None]]] = [partial(self.modem.has_told, key)]
        if not urgent:
            events.append(partial(self.outbox.ready, urgent=True))
        ends = trio.current_time() + (SOS_TRANSIT_MAX if urgent else TRANSIT_MAX)
        idle = 0
        while idle < IDLE_LOOKS and (left := ends - trio.current_time()) > 0:
            if await self._wait(min(next_look(), left), *events):
                return
            await self.modem.look()
            idle = idle + 1 if self.modem.told.active is False else 0

    async def _give_up(self, key: imt.MessageKey) -> MoStatus:
        """Cancel a message, and return how it ended: it may have left before."""
        if key not in self.modem.ended and await self.modem.cancel(key):
            await self._wait(CANCEL_MAX, partial(self.modem.has_told, key))
        if key in self.modem.ended:
            return imt.mo_final(self.modem.ended[key])
        return MoStatus(SessionVerdict.DOUBTFUL, NOBODY_KNOWS)

    async def _settle(self, transmission: Transmission, status: MoStatus) -> None:
        log.info("a message of %d bytes: %s", len(transmission.body), status.means)
        if status.verdict is SessionVerdict.SENT:
            self.modem.told.service = True
            self.pace.rest.succeeded()
        elif status is not WENT_FIRST:
            self.pace.rest.failed(status, trio.current_time(), self.pace.random.random())
        if status.verdict is SessionVerdict.FAULT:
            self.link.state, self.link.reason = LinkState.FAULT, status.means
            log.error("the satellite modem refuses to send: %s", status.means)
        await self.outbox.settle(transmission, _OUTCOMES[status.verdict], reason=status.means)

    # A message whose end nobody saw.

    async def _resolve(self, intent: Intent) -> None:
        """The modem may still have it: then it tells how it ends. If not, the identical bytes go
        first, but for an SOS: what is doubtful waits for that."""
        transmission = intent.transmission
        if (status := await self._fate(intent)) is not None:
            await self._settle(transmission, status)
            return
        events: list[Callable[[], Awaitable[None]]]
        events = [partial(self._rested, urgent=transmission.urgent)]
        if not transmission.urgent:
            events.append(self._urgent_due)
        await self._wait(inf, *events)
        log.warning(
            "nobody can tell whether a message of %d bytes was sent by modem %s: it goes again, and"
            " the number inside it makes a second copy harmless",
            len(transmission.body),
            intent.modem,
        )
        await self.outbox.note_copy(transmission)
        if not transmission.urgent and await self._urgent_waits():
            log.info("an SOS goes before a message that may have left, which goes again after it")
            await self.outbox.settle(transmission, Outcome.NOT_SENT, reason=WENT_FIRST.means)
            return
        await self.pace.mail.is_empty()
        await self._transmit(transmission, again=True)

    async def _fate(self, intent: Intent) -> MoStatus | None:
        """Return how a message ended that the modem had; None where it does not know it any more,
        or its end leaves it open whether it left."""
        key = imt.unpacked(intent.at_modem)
        if key is None or intent.modem != self.modem.told.imei or self.modem.told.rebooted:
            return None
        status = await self._give_up(key)
        return None if status.verdict is SessionVerdict.DOUBTFUL else status


_OUTCOMES = {
    SessionVerdict.SENT: Outcome.SENT,
    SessionVerdict.DOUBTFUL: Outcome.DOUBTFUL,
    SessionVerdict.NOT_SENT: Outcome.NOT_SENT,
    SessionVerdict.REFUSED: Outcome.REFUSED,
    SessionVerdict.FAULT: Outcome.NOT_SENT,
}
