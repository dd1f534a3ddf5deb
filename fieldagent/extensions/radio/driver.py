"""Drives a radio whose packets all stations in range receive, for as long as the agent runs.

A transmission counts as sent only when a station confirms it. A few packets may wait for
confirmation at the same time. Unanswered packets are retried, less and less often while no station
is in range.
"""

from __future__ import annotations

import logging
import random as randomness
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from math import inf
from typing import NoReturn

import trio

from fieldagent.agent.channels.air_pace import AIR_BYTES, WINDOW, AirPace
from fieldagent.agent.channels.contract import ChannelLink, LinkState, Transmission
from fieldagent.agent.channels.radio_modem import (
    UNSENT_REASONS,
    AirReception,
    RadioLost,
    RadioModem,
    RadioOutbox,
    TransmitResult,
)
from fieldagent.agent.channels.reopening import forbid_healing, run_and_reopen
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.outcome import Outcome

log = logging.getLogger(__name__)

BUSY_RETRY_S = 10.0
"""Seconds after which a packet that the radio dropped is retried."""
ROUND_MAX_S = 300.0
"""Longest time in seconds in which all fragments of a round must have left."""
NEXT_FRAGMENT_TIMEOUT_S = 1.0
"""Seconds to wait for the next fragment of a round. If no fragment follows, the Package was
withdrawn."""
TRANSMIT_MAX, URGENT_MAX = 120.0, 10.0
"""Longest wait in seconds for the radio's report on a packet, and the longest such wait while an
SOS waits."""
UNREPORTED_PACKETS_MAX = 3
"""The radio is reopened after this number of consecutive packets without a report."""
PROGRESS_INTERVAL_S = 60.0
ECHOES_MAX = 64
"""Maximum number of our own packets that are remembered, so that packets that a repeater returns
are ignored."""


async def run(
    open_air: Callable[[], AbstractAsyncContextManager[RadioModem]],
    outbox: RadioOutbox,
    reception: AirReception,
    link: ChannelLink,
    *,
    random: randomness.Random,
    packet_bytes: int = AIR_BYTES,
    heal: Callable[[], Awaitable[bool]] = forbid_healing,
    progress: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Serve one radio forever, even if the radio is absent, unplugged or without power for a time.

    `progress` is called at least every two minutes.
    """

    # Keep the pace when the radio is lost: stations that answered recently are still in range when
    # the radio works again.
    pace = AirPace()

    async def work() -> None:
        async with open_air() as air:
            _show(link, LinkState.READY, "")
            driver = RadioDriver(air, outbox, reception, link, random, packet_bytes, progress, pace)
            await driver.work()

    def report(error: BaseException) -> None:
        _show(link, LinkState.ABSENT, str(error))

    await run_and_reopen(work, (RadioLost, PortLost), report, progress, link, heal)


def _show(link: ChannelLink, state: LinkState, reason: str) -> None:
    if (link.state, link.reason) == (state, reason):
        return
    link.state, link.reason = state, reason
    if state is LinkState.ABSENT:
        log.warning("the radio is away: %s; looking for it again", reason)
        link.record_signal(None)
    elif state is LinkState.READY:
        log.info("the radio works")


@dataclass(slots=True)
class RadioDriver:
    """Drives a radio from the time when it is opened until it is lost."""

    air: RadioModem
    outbox: RadioOutbox
    reception: AirReception
    link: ChannelLink
    random: randomness.Random
    packet_bytes: int
    progress: Callable[[], None]
    pace: AirPace
    waiting: int = 0
    """Number of packets that no station has answered yet."""
    round: trio.Event = field(default_factory=trio.Event)
    """Event that is set when all fragments of a round have left. A new event then replaces it."""
    pause: trio.CancelScope = field(default_factory=trio.CancelScope)
    """Scope in which the transmitting task waits. If the scope is cancelled, the task decides again
    what to do."""
    last_transmitted: deque[bytes] = field(default_factory=lambda: deque(maxlen=ECHOES_MAX))
    """Our last packets. Some radios and repeaters return our packets, which we then ignore."""

    async def work(self) -> None:
        """Receive and transmit until the radio is lost. Raises RadioLost."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self._show_life)
            await self._transmit_packets(nursery)

    async def _listen(self) -> NoReturn:
        while True:
            packet = await self.air.receive()
            heard_at = trio.current_time()
            # The channel was busy, so restart the pause before our next packet.
            self.pause.cancel()
            if packet.body in self.last_transmitted:
                continue
            # Storing a packet must not be interrupted, however long the disk takes.
            with trio.CancelScope(shield=True):
                turn = await self.reception.receive(packet.body, rssi=packet.rssi, snr=packet.snr)
            self.pace.record_packet(turn, heard_at)
            if turn.is_from_known_station and self.pace.read_retry_request():
                self.outbox.try_again()
            self.pause.cancel()

    async def _show_life(self) -> NoReturn:
        while True:
            self.progress()
            await trio.sleep_until(waits.compute_nearest_beat(PROGRESS_INTERVAL_S))

    async def _transmit_packets(self, flights: trio.Nursery) -> NoReturn:
        follows = False
        while True:
            with trio.CancelScope() as self.pause:
                if not follows:
                    self.round.set()
                    self.round = trio.Event()
                with waits.move_on_after(NEXT_FRAGMENT_TIMEOUT_S if follows else inf) as late:
                    await self.outbox.wait_until_ready(
                        urgent=self.waiting >= WINDOW and not follows
                    )
                if not follows:
                    await waits.sleep(self.pace.compute_pause(self.random.random()))
            follows = False
            if self.pause.cancelled_caught or late.cancelled_caught:
                continue
            await self.outbox.fix_dates()
            transmission = self.outbox.load(self.packet_bytes)
            if transmission is None:
                await trio.sleep(1)
            else:
                await self._transmit(transmission, flights)
                follows = transmission.more

    async def _transmit(self, transmission: Transmission, flights: trio.Nursery) -> None:
        started_at = trio.current_time()
        result = TransmitResult.UNKNOWN
        settled = False
        try:
            self.link.state = LinkState.BUSY
            self.last_transmitted.append(transmission.body)
            result = await self._transmit_supervised(transmission)
            if result not in UNSENT_REASONS and transmission.answerable:
                self.waiting += 1
                flights.start_soon(self._await_answer, transmission, self.round)
                settled = True
        finally:
            if not settled:
                sent = result not in UNSENT_REASONS and not transmission.answerable
                reason = UNSENT_REASONS.get(result, "the radio gave up on the packet")
                await self._settle(transmission, sent, reason, BUSY_RETRY_S)
        if result is TransmitResult.DROPPED:
            self.link.facts["packetsGivenUp"] = int(self.link.facts.get("packetsGivenUp", 0)) + 1
        elif result is not TransmitResult.SPENT:
            self.pace.record_transmission(trio.current_time() - started_at)
        self.link.state = LinkState.NO_SERVICE if result in UNSENT_REASONS else LinkState.READY
        self.link.reason = UNSENT_REASONS.get(result, "")

    async def _transmit_supervised(self, transmission: Transmission) -> TransmitResult:
        """Pass a transmission to the radio, and return the radio's report on it, or UNKNOWN if no
        report arrives in time. Raises RadioLost after UNREPORTED_PACKETS_MAX packets in a row
        without a report.
        """
        urgent = transmission.urgent
        if transmission.is_sos_of_others and not self.link.air_time.has_time_for_others():
            urgent = False
        with trio.move_on_after(TRANSMIT_MAX) as limit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_wait_for_sos, transmission, limit)
                result = await self.air.transmit(transmission.body, urgent=urgent)
                nursery.cancel_scope.cancel()
        if not limit.cancelled_caught:
            self.pace.packets_without_result = 0
            return result
        self.pace.packets_without_result += 1
        if self.pace.packets_without_result < UNREPORTED_PACKETS_MAX:
            return TransmitResult.UNKNOWN
        self.pace.packets_without_result = 0
        raise RadioLost(
            f"the radio did not report the result of {UNREPORTED_PACKETS_MAX} packets in a row"
        )

    async def _end_wait_for_sos(self, transmission: Transmission, limit: trio.CancelScope) -> None:
        """After URGENT_MAX seconds, end the wait for the radio's report if an SOS waits or the
        packet is an SOS.
        """
        await trio.sleep(URGENT_MAX)
        if not transmission.urgent:
            await self.outbox.wait_until_ready(urgent=True)
        limit.cancel()

    async def _await_answer(self, transmission: Transmission, round_end: trio.Event) -> None:
        is_answered = missed = False
        part, pace, started_at = transmission.part, self.pace, trio.current_time()
        try:
            with trio.move_on_after(ROUND_MAX_S):
                await round_end.wait()
            started_at = trio.current_time()
            patience = pace.compute_answer_wait(
                transmission.attempts, part=part, urgent=transmission.urgent
            )
            with waits.move_on_after(patience):
                is_answered = await self.outbox.wait_for_acknowledgement(transmission)
                missed = not is_answered
        finally:
            now = trio.current_time()
            if is_answered or missed:
                pace.record_answer(now, now - started_at, part=part)
            else:
                pace.record_missed_answer(now)
            self.waiting -= 1
            self.pause.cancel()
            wait = 0.0
            if not missed:
                tries, share = transmission.attempts, self.random.random()
                wait = pace.compute_retry_wait(
                    tries, now, share, urgent=transmission.urgent, part=part
                )
            await self._settle(transmission, is_answered, "no answer", wait)

    async def _settle(
        self, transmission: Transmission, is_sent: bool, reason: str, retry_after: float
    ) -> None:
        outcome = Outcome.SENT if is_sent else Outcome.NOT_SENT
        with trio.CancelScope(shield=True):
            await self.outbox.settle(
                transmission,
                outcome,
                reason="" if is_sent else reason,
                retry_after=0.0 if is_sent else retry_after,
            )
