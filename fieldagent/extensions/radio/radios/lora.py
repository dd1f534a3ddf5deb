"""Common parts of LoRa radios: the settings that a team shares, the limit on air-time, and the
exchange with a board. A board takes one packet at a time, and reports the result later.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

import trio

from fieldagent.agent.channels.air_time import AirLimit
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import TransmitResult
from fieldagent.extensions.radio.radios.regions import read_frequency, read_number
from fieldagent.system import waits
from fieldagent.system.properties import Key, WrongProperty, make_integer_reader
from fieldagent.system.rate import EventRate
from fieldagent.wire.lora import LoraSettings

log = logging.getLogger(__name__)
Report = TypeVar("Report")

BUSY_AGAIN, BUSY_MAX = 0.2, 20.0
"""Seconds until a packet is written to a busy board again, and seconds after which the packet is
dropped."""
REPORTS_MAX = 16
"""Maximum number of waiting reports. A board sends two or three for a query."""
BANDWIDTHS = ("7.8", "10.4", "15.6", "20.8", "31.25", "41.7", "62.5", "125", "250", "500")
"""Bandwidths of the chips in kHz (SX1262 data sheet, 13.4.5)."""


def make_keys(name: str) -> tuple[Key, ...]:
    """Return the settings of the LoRa radio with this `radio-protocol` name."""
    return (
        Key(
            f"{name}-frequency",
            read_frequency,
            None,
            "radio frequency in MHz, such as 869.525; the same for each kit, and "
            "allowed in the country",
        ),
        Key(
            f"{name}-share",
            read_air_share,
            None,
            "maximum airtime in per cent of any hour, as the law limits it on that "
            "frequency: 1 or 10 in Europe's 868 MHz bands, 100 without a limit. "
            "radio-region limits this value, and sets it if it is missing",
        ),
        Key(
            f"{name}-bandwidth",
            _read_bandwidth,
            125_000,
            "bandwidth in kHz, the same for each kit (125)",
        ),
        Key(
            f"{name}-spreading",
            make_integer_reader(5, 12, "spreading factor"),
            9,
            "spreading factor, 5 to 12, the same for each kit: each step reaches further and"
            " takes twice as long (9)",
        ),
        Key(
            f"{name}-coding",
            make_integer_reader(5, 8, "of coding rate 4/5 to 4/8"),
            5,
            "coding rate from 5 (4/5) to 8 (4/8) (5)",
        ),
        Key(
            f"{name}-power",
            make_integer_reader(0, 30, "dBm"),
            14,
            "transmit power in dBm at the antenna (14)",
        ),
    )


def list_needs(name: str) -> tuple[str, ...]:
    """Return the names of the settings that have no default, because only the team can choose
    them.
    """
    return (f"{name}-frequency", f"{name}-share")


def make_settings(name: str, own_settings: Mapping[str, Any]) -> LoraSettings:
    """Return the LoRa parameters in the radio's own settings, in Hz. The keys of `own_settings`
    begin with the radio's `name`.
    """
    return LoraSettings(
        own_settings[f"{name}-frequency"],
        own_settings[f"{name}-bandwidth"],
        own_settings[f"{name}-spreading"],
        own_settings[f"{name}-coding"],
    )


class BoardReports(Generic[Report]):
    """Queue of a board's reports that the agent has not read yet."""

    def __init__(self) -> None:
        self._report_sender, self._report_receiver = trio.open_memory_channel[Report](REPORTS_MAX)

    def queue_report(self, report: Report) -> None:
        """Keep a report until it is read. If the queue is full, drop the report and log that."""
        try:
            self._report_sender.send_nowait(report)
        except trio.WouldBlock:
            log.debug("the radio sends more data than requested: %s", report)

    async def wait_for_next(self, deadline: float) -> Report | None:
        """Return the next report, or None if there is none until `deadline` on trio's clock."""
        with trio.move_on_at(deadline):
            return await self._report_receiver.receive()
        return None


class BoardTurn:
    """Sends one packet at a time, within the board's air-time limit.

    `outcome` waits until a given time for the board's report on the current packet. It returns None
    if the board is busy, and UNKNOWN if there is no report. Raises RadioLost.
    """

    def __init__(
        self,
        percent: float | None,
        link: ChannelLink,
        outcome: Callable[[float], Awaitable[TransmitResult | None]],
    ) -> None:
        self.lock = trio.Lock()
        self.report_due_until: float | None = None
        """Time on trio's clock until which the report on an abandoned packet may still arrive. None
        if no report is expected."""
        self._link = link
        self._outcome = outcome
        if percent is not None:
            link.air_time.narrow(AirLimit(percent))
        self._air = link.air_time
        self._given_up = EventRate(trio.current_time)

    async def wait_for_report(self) -> None:
        """Wait for the report on a packet whose sending task was cancelled. Otherwise, the report
        would count as the report on the next packet.
        """
        if self.report_due_until is not None:
            await self._outcome(self.report_due_until)
            self.report_due_until = None

    async def send_packet(
        self, write: Callable[[], Awaitable[None]], seconds: float, patience: float, *, urgent: bool
    ) -> TransmitResult:
        """Pass a packet that takes `seconds` on the air to the board. Wait up to `patience` seconds
        for the result.
        """
        if not self._air.can_send(seconds, urgent=urgent):
            return TransmitResult.SPENT
        result = await self._write_until_accepted(write, seconds, patience)
        if result is TransmitResult.DROPPED and (count := self._given_up.count_event()):
            log.warning("the radio gave up %d packets: it finds no free channel", count)
        return result

    async def _write_until_accepted(
        self, write: Callable[[], Awaitable[None]], seconds: float, patience: float
    ) -> TransmitResult:
        ends_at = trio.current_time() + BUSY_MAX
        while True:
            self.report_due_until = trio.current_time() + patience
            # Count the packet before it is written, because it may be on the air even if this call
            # is cancelled.
            self._air.record_use(seconds)
            await write()
            result = await self._outcome(self.report_due_until)
            self.report_due_until = None
            if result is not None:
                return result
            self._air.record_use(-seconds)
            if trio.current_time() >= ends_at:
                return TransmitResult.DROPPED
            await waits.sleep(BUSY_AGAIN)


def _read_bandwidth(value: str) -> int:
    if value not in BANDWIDTHS:
        raise WrongProperty(f"must be {', '.join(BANDWIDTHS)} (kHz), not {value!r}")
    return round(float(value) * 1_000)


def read_air_share(value: str) -> float:
    """Parse an air-time share in percent, from 0.1 to 100. Raises WrongProperty for any other
    value.
    """
    number = read_number(value)
    if not 0.1 <= number <= 100:
        raise WrongProperty(f"must be from 0.1 to 100 (per cent), not {value!r}")
    return number
