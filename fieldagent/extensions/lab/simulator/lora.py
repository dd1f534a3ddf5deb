"""Common parts of simulated LoRa boards. The radio channel connects only boards with equal
settings. A transmitter waits until the channel is free.
"""

from __future__ import annotations

from math import inf
from random import Random

from fieldagent.extensions.lab.simulator.air import Impairments, SharedAir
from fieldagent.wire.lora import LoraSettings, compute_air_time

GIVE_UP_S = 5.0
"""Seconds after which a packet is dropped if the channel is never free."""
SLOT = 0.1
"""Largest random delay in seconds after the channel becomes free."""
RSSI, SNR = -80, 6


class LoraAir(SharedAir):
    """Radio channel of LoRa boards. `radios` contains the boards that are switched on, with their
    settings.
    """

    def __init__(self, random: Random, impairments: Impairments | None = None) -> None:
        super().__init__(random, impairments or Impairments())
        self.radios: dict[int, LoraSettings] = {}

    def is_audible(self, station: int, listener: int) -> bool:
        """Return True if both boards are switched on, have equal settings, and are in range."""
        first, other = self.radios.get(station), self.radios.get(listener)
        if first is None or other is None or first[:3] != other[:3]:
            return False
        return super().is_audible(station, listener)

    def transmit(self, now: float, station: int, packet: bytes) -> float:
        """Transmit a packet with the bit rate of its station. Return the time when the transmission
        ends.
        """
        air_time = compute_air_time(self.radios[station], len(packet))
        # Each board has its own bit rate, but the shared channel has only one. So give the whole
        # airtime as the preamble.
        self.preamble, self.bitrate = air_time, inf
        return super().transmit(now, station, packet)


class LoraTransmitter:
    """Transmitter with a queue of at most `capacity` packets. A packet consists of one or more
    consecutive segments.
    """

    def __init__(self, number: int, air: LoraAir, random: Random, capacity: int) -> None:
        self.number, self.air, self.random, self.capacity = number, air, random, capacity
        self.busy = False
        """True if the channel is never free for this board."""
        self.reboot()

    def reboot(self) -> None:
        """Drop the waiting packets and the remaining segments. A segment that is on the air
        continues.
        """
        self._queue: list[tuple[float, list[bytes]]] = []
        """Waiting packets, with the time when each was queued."""
        self._sending: list[bytes] = []
        self._begin_at = self._ends_at = inf

    @property
    def waiting(self) -> int:
        """Return the number of packets that wait for the channel."""
        return len(self._queue)

    @property
    def is_transmitting(self) -> bool:
        """Return True if a segment is on the air. Until its end, the board hears nothing."""
        return self._ends_at < inf

    @property
    def deadline(self) -> float:
        """Return the time when `tick` is due, or infinity if nothing waits."""
        return min(self._begin_at, self._ends_at)

    def queue_packet(self, segments: list[bytes], now: float) -> bool:
        """Queue a packet, given by its segments, for transmission. Return False if `capacity`
        packets wait already.
        """
        if len(self._queue) >= self.capacity:
            return False
        self._queue.append((now, segments))
        if not self.is_transmitting:
            self._plan(now)
        return True

    def tick(self, now: float) -> list[bool]:
        """Return a result for each packet that has ended: True if it was sent, or False if it was
        dropped.
        """
        if self.number not in self.air.radios:
            # The radio was switched off meanwhile, so none of its packets is sent.
            lost_count = len(self._queue) + self.is_transmitting
            self.reboot()
            return [False] * lost_count
        ended_transmissions = []
        if self._ends_at <= now:
            self._ends_at = inf
            if self._sending:
                self._begin_segment(now)
            else:
                ended_transmissions.append(True)
                self._plan(now)
        if self._begin_at <= now:
            ended_transmissions += self._begin(now)
        return ended_transmissions

    def _plan(self, now: float) -> None:
        if not self._queue:
            self._begin_at = inf
            return
        free = now + 1.0 if self.busy else self.air.find_busy_end(now, self.number)
        self._begin_at = free + self.random.random() * SLOT * (free > now)

    def _begin(self, now: float) -> list[bool]:
        if self.busy or self.air.find_busy_end(now, self.number) > now:
            given_up = now - self._queue[0][0] >= GIVE_UP_S
            if given_up:
                self._queue.pop(0)
            self._plan(now)
            return [False] * given_up
        _, self._sending = self._queue.pop(0)
        self._begin_at = inf
        self._begin_segment(now)
        return []

    def _begin_segment(self, now: float) -> None:
        self._ends_at = self.air.transmit(now, self.number, self._sending.pop(0))


class LoraBoard:
    """Base class of all boards. `data_to_send` returns the bytes for the host."""

    def __init__(self, number: int, air: SharedAir, random: Random, capacity: int) -> None:
        assert isinstance(air, LoraAir)
        self.number, self.air, self.random = number, air, random
        self._transmitter = LoraTransmitter(number, air, random, capacity)
        self._output = bytearray()

    @property
    def busy(self) -> bool:
        """Return True if the channel is never free for this board."""
        return self._transmitter.busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        self._transmitter.busy = busy

    @property
    def deadline(self) -> float:
        return self._transmitter.deadline

    def data_to_send(self) -> bytes:
        data, self._output = bytes(self._output), bytearray()
        return data

    def leave_host(self) -> None:
        """Discard the output, because the host has disconnected. Other work continues."""
        self._output = bytearray()
