"""Satellite operator of a drill. The operator carries messages between modems and hub, and writes
the bill.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field

import trio

from fieldagent.extensions.lab.drill.outage import DAY_S
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.hub.operator.contract import NO_MODEM, FarModem, OperatorHost, Verdict
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import decode
from fieldagent.wire.outcome import Outcome


@dataclass
class OperatorBill:
    """Account of one modem. Implements `sbd_session.Gateway`."""

    imei: str
    queue: MtQueue = field(default_factory=MtQueue)
    bill: Counter[int] = field(default_factory=Counter)
    """Credits by day of the drill, for messages from the modem and messages that it fetched. A
    session without any message costs one credit."""
    for_sos: Counter[int] = field(default_factory=Counter)
    """Credits by day for MO messages that contain at least one SOS entry. These credits are a part
    of `bill`."""
    brought: list[tuple[str, bytes]] = field(default_factory=list)
    """MO messages that the hub does not have yet: id and bytes."""
    news: trio.Event = field(default_factory=trio.Event)
    sessions: int = 0
    _paid: bool = False
    """True if the current session carried an MO message."""

    def receive_mobile_originated(self, imei: str, momsn: int, body: bytes) -> None:
        """Add an MO message to the bill, and keep it for the hub."""
        self.sessions += 1
        self._paid = True
        self.bill[_compute_day()] += compute_credits(len(body))
        if any(entry.sos for entry in decode(body).entries):
            self.for_sos[_compute_day()] += compute_credits(len(body))
        self.brought.append((f"{imei}-{self.sessions}", body))
        self.news.set()

    def get_mobile_terminated(self) -> bytes | None:
        """Return the first waiting MT message, or None. A session without any message costs one
        credit.
        """
        body = self.queue.get_first()
        if body is None and not self._paid:
            self.bill[_compute_day()] += 1
        self._paid = False
        return body

    def remove_mobile_terminated(self) -> None:
        """Add the first waiting MT message to the bill, and remove it."""
        self.bill[_compute_day()] += compute_credits(len(self.queue.get_first() or b""))
        self.queue.remove_first()

    def count_waiting(self) -> int:
        return len(self.queue)

    async def deliver_messages(self, host: OperatorHost) -> None:
        """Deliver the waiting MO messages to the hub, until cancelled."""
        while True:
            while self.brought:
                name, body = self.brought[0]
                await host.take_in(self.imei, body, None)
                await host.count_session(self.imei, name, len(body))
                self.brought.pop(0)
            self.news = trio.Event()
            await self.news.wait()


@dataclass
class SimulatedOperator:
    """All accounts and modems. Implements `hub.operator.contract.Operator`."""

    accounts: dict[str, OperatorBill] = field(default_factory=dict)
    ports: dict[str, tuple[SimulatedModem, PtyPort]] = field(default_factory=dict)

    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        """Queue an MT message and ring its modem at once. Never refuse."""
        await trio.lowlevel.checkpoint()
        account = self.accounts[imei]
        account.queue.put(body, priority=priority)
        self._ring(imei)
        return Verdict(Outcome.SENT, waiting=len(account.queue))

    async def ring(self, imei: str) -> Verdict:
        """Ring a modem. The ring is lost if the modem sees no satellite."""
        await trio.lowlevel.checkpoint()
        self._ring(imei)
        return Verdict(Outcome.SENT)

    def _ring(self, imei: str) -> None:
        modem, port = self.ports[imei]
        # The operator does not keep a ring for a modem that sees no satellite.
        if modem.state.service:
            modem.ring()
            port.poke()


def _compute_day() -> int:
    return int(trio.current_time() // DAY_S)
