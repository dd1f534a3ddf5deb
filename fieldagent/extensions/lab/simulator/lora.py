"""What simulated LoRa boards have in common: an air on which those alone hear each other that are
set alike, and a transmitter that waits for it to be free."""

from __future__ import annotations

from math import inf
from random import Random

from fieldagent.extensions.lab.simulator.air import Impairments, SharedAir
from fieldagent.wire.lora import LoraSettings, air_time

GIVE_UP = 5.0
"""Seconds after which a packet that finds no free air is given up."""
SLOT = 0.1
"""Seconds, at random up to this, after the air became free."""
RSSI, SNR = -80, 6


class LoraAir(SharedAir):
    """`radios` are those that are on, with their settings."""

    def __init__(self, random: Random, impairments: Impairments | None = None) -> None:
        super().__init__(random, impairments or Impairments())
        self.radios: dict[int, LoraSettings] = {}

    def is_audible(self, station: int, listener: int) -> bool:
        """Return whether both are on, set to hear each other, and in earshot."""
        one, other = self.radios.get(station), self.radios.get(listener)
        if one is None or other is None or one[:3] != other[:3]:
            return False
        return super().is_audible(station, listener)

    def transmit(self, now: float, station: int, packet: bytes) -> float:
        """Put a packet on the air at its station's own pace; when it ends comes back."""
        takes = air_time(self.radios[station], len(packet))
        # One bit rate is what the shared air knows: here each packet has its own.
        self.preamble, self.bitrate = takes, inf
        return super().transmit(now, station, packet)


class LoraTransmitter:
    """Packets that wait for the air, at most `capacity` of them; each in one piece or several that
    follow each other."""

    def __init__(self, number: int, air: LoraAir, random: Random, capacity: int) -> None:
        self.number, self.air, self.random, self.capacity = number, air, random, capacity
        self.busy = False
        """Its channel is never free."""
        self.reboot()

    def reboot(self) -> None:
        """Forget what waits and what is to follow; a piece that is on the air goes on."""
        self._queue: list[tuple[float, list[bytes]]] = []
        """Since when each waits."""
        self._under_way: list[bytes] = []
        self._begin_at = self._ends_at = inf

    @property
    def waiting(self) -> int:
        """Return how many packets wait for the air."""
        return len(self._queue)

    @property
    def is_transmitting(self) -> bool:
        """Return whether a piece is on the air: until it ends, the board hears nothing."""
        return self._ends_at < inf

    @property
    def deadline(self) -> float:
        """Return when `tick` is due; `inf` where nothing waits."""
        return min(self._begin_at, self._ends_at)

    def take(self, pieces: list[bytes], now: float) -> bool:
        """Take a packet to transmit; return False where there is no room."""
        if len(self._queue) >= self.capacity:
            return False
        self._queue.append((now, pieces))
        if not self.is_transmitting:
            self._plan(now)
        return True

    def tick(self, now: float) -> list[bool]:
        """Return of each packet that has ended whether it was sent; if not, it was given up."""
        if self.number not in self.air.radios:
            # Its radio was turned off meanwhile: nothing of what it had leaves.
            lost = len(self._queue) + self.is_transmitting
            self.reboot()
            return [False] * lost
        ended = []
        if self._ends_at <= now:
            self._ends_at = inf
            if self._under_way:
                self._begin_piece(now)
            else:
                ended.append(True)
                self._plan(now)
        if self._begin_at <= now:
            ended += self._begin(now)
        return ended

    def _plan(self, now: float) -> None:
        if not self._queue:
            self._begin_at = inf
            return
        free = now + 1.0 if self.busy else self.air.busy_until(now, self.number)
        self._begin_at = free + self.random.random() * SLOT * (free > now)

    def _begin(self, now: float) -> list[bool]:
        if self.busy or self.air.busy_until(now, self.number) > now:
            given_up = now - self._queue[0][0] >= GIVE_UP
            if given_up:
                self._queue.pop(0)
            self._plan(now)
            return [False] * given_up
        _, self._under_way = self._queue.pop(0)
        self._begin_at = inf
        self._begin_piece(now)
        return []

    def _begin_piece(self, now: float) -> None:
        self._ends_at = self.air.transmit(now, self.number, self._under_way.pop(0))


class LoraBoard:
    """What each has, whichever its firmware: `data_to_send` says what the host is told."""

    def __init__(self, number: int, air: SharedAir, random: Random, capacity: int) -> None:
        assert isinstance(air, LoraAir)
        self.number, self.air, self.random = number, air, random
        self._mouth = LoraTransmitter(number, air, random, capacity)
        self._said = bytearray()

    @property
    def busy(self) -> bool:
        """Return whether its channel is never free."""
        return self._mouth.busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        self._mouth.busy = busy

    @property
    def deadline(self) -> float:
        return self._mouth.deadline

    def data_to_send(self) -> bytes:
        said, self._said = bytes(self._said), bytearray()
        return said

    def leave_host(self) -> None:
        """Leave it: what it was told goes on; nobody is there for an answer."""
        self._said = bytearray()
