"""A radio node, as its host and other radios see it. No I/O.

The node waits until the channel is free, transmits, and reports the result. Commands cause failures
that happen in the field.
"""

from __future__ import annotations

from dataclasses import field
from math import inf
from random import Random

from fieldagent.extensions.lab.simulator.air import SharedAir
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import node

GIVE_UP_S = 30.0
"""Seconds after which a packet is dropped if the channel is never free."""
BACKOFF_MAX_S = 0.2
"""Largest random delay in seconds after the channel becomes free."""


@dataclass(slots=True)
class _QueuedPacket:
    send: node.Send
    since: float


@dataclass(slots=True)
class SimulatedNode:
    """A simulated node. Call `receive_data`, `receive_packet` and `tick` for each event, and then
    read `data_to_send` and `deadline`.
    """

    number: int
    air: SharedAir
    random: Random
    battery: int = 90
    busy: bool = False
    """True if the channel is never free for this node."""
    mute: bool = False
    """True if the node never reports the result of a packet."""
    deaf: bool = False
    """True if the node discards all bytes from its serial line."""
    link: node.NodeLink = field(init=False)
    _queue: list[_QueuedPacket] = field(default_factory=list)
    _begin_at: float = inf
    _on_air: tuple[float, node.Send] | None = None
    _waiting_messages: list[node.Numbered] = field(default_factory=list)
    """Messages that wait until there is space in the link's window."""

    def __post_init__(self) -> None:
        self.reboot()

    def reboot(self) -> None:
        """Clear all state except the battery charge. Waiting packets are lost."""
        self.link = node.NodeLink(
            node.NodeHello(
                boot=self.random.getrandbits(32),
                packet_bytes=self.air.packet_bytes,
                node=f"sim-{self.number}",
                firmware="simulated",
            )
        )
        self._queue.clear()
        self._waiting_messages.clear()
        self._begin_at, self._on_air = inf, None

    def start(self, now: float) -> None:
        self.link.open(now)

    def drain(self, percent: int) -> None:
        """Set the battery charge in per cent. If a host is connected, report the charge
        immediately.
        """
        self.battery = percent
        if self.link.peer is not None:
            self._send_report()

    def _send_report(self) -> None:
        self.link.send_unnumbered(node.NodeStatus(signal=4, battery=self.battery, charging=False))

    def leave_host(self) -> None:
        """Do nothing. A node keeps its line open, and the next host restarts the link."""

    @property
    def deadline(self) -> float:
        on_air = self._on_air[0] if self._on_air else inf
        return min(self.link.deadline, self._begin_at, on_air)

    def receive_data(self, data: bytes, now: float) -> None:
        """Process bytes from the gateway. A deaf node discards all bytes."""
        if self.deaf:
            return
        self.link.receive_data(data, now)
        while (event := self.link.next_event()) is not None:
            if isinstance(event, node.Send):
                self._queue_packet(event, now)
            elif isinstance(event, node.NodeOpened):
                self._send_report()
        self._send_to_host(now)

    def data_to_send(self) -> bytes:
        return self.link.data_to_send()

    def receive_packet(self, packet: bytes, now: float) -> None:
        if self._on_air is None:
            self._waiting_messages.append(node.PacketHeard(packet, rssi=-80, snr=6))
            self._send_to_host(now)

    def tick(self, now: float) -> None:
        """End a transmission that is finished, and begin the next transmission that is due."""
        self.link.tick(now)
        while self.link.next_event() is not None:
            # The only possible event is PeerDown, which means that the gateway is away. When the
            # gateway returns, it sends a hello.
            pass
        if self._on_air is not None and self._on_air[0] <= now:
            if not self.mute:
                self._waiting_messages.append(node.Result(self._on_air[1].number, transmitted=True))
            self._on_air = None
            self._plan(now)
        if self._begin_at <= now:
            self._begin(now)
        self._send_to_host(now)

    def _queue_packet(self, send: node.Send, now: float) -> None:
        urgent_packets = [queued for queued in self._queue if queued.send.urgent]
        at = len(urgent_packets) if send.urgent else len(self._queue)
        self._queue.insert(at, _QueuedPacket(send, now))
        if self._begin_at == inf and self._on_air is None:
            self._plan(now)

    def _plan(self, now: float) -> None:
        if not self._queue:
            self._begin_at = inf
            return
        free = now + 1.0 if self.busy else self.air.find_busy_end(now, self.number)
        self._begin_at = free + self.random.random() * BACKOFF_MAX_S * (free > now)

    def _begin(self, now: float) -> None:
        if self.busy or self.air.find_busy_end(now, self.number) > now:
            if now - self._queue[0].since >= GIVE_UP_S:
                send = self._queue.pop(0).send
                self._waiting_messages.append(
                    node.Result(send.number, False, "the channel is busy")
                )
            self._plan(now)
            return
        send = self._queue.pop(0).send
        self._on_air = (self.air.transmit(now, self.number, send.packet), send)
        self._begin_at = inf

    def _send_to_host(self, now: float) -> None:
        while self._waiting_messages and self.link.free:
            self.link.send(self._waiting_messages.pop(0), now)
