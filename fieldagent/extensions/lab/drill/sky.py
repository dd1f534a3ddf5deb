"""Satellite operator of a drill. The operator transports messages between modems and the hub, and
bills them.
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
    """Account of one modem at the operator. Implements `sbd_session.Gateway`."""

    imei: str
    queue: MtQueue = field(default_factory=MtQueue)
    bill: Counter[int] = field(default_factory=Counter)
    """Credits for each day of the drill: for messages from the modem, and for messages that the
    modem fetched. A session without a message costs one credit."""
    for_sos: Counter[int] = field(default_factory=Counter)
    """Credits for each day for MO messages that contain an SOS entry. They are included in
    `bill`."""
    undelivered: list[tuple[str, bytes]] = field(default_factory=list)
    """MO messages that have not been delivered to the hub yet. Each has its id and its bytes."""
    news: trio.Event = field(default_factory=trio.Event)
    sessions: int = 0
    _is_session_paid: bool = False
    """True if an MO message was sent in the current session."""

    def receive_mobile_originated(self, imei: str, momsn: int, body: bytes) -> None:
        """Add an MO message to the bill, and store it for the hub."""
        self.sessions += 1
        self._is_session_paid = True
        self.bill[_compute_day()] += compute_credits(len(body))
        if any(entry.sos for entry in decode(body).entries):
            self.for_sos[_compute_day()] += compute_credits(len(body))
        self.undelivered.append((f"{imei}-{self.sessions}", body))
        self.news.set()

    def get_mobile_terminated(self) -> bytes | None:
        """Return the first waiting MT message, or None. If the session had no message, it costs one
        credit.
        """
        body = self.queue.get_first()
        if body is None and not self._is_session_paid:
            self.bill[_compute_day()] += 1
        self._is_session_paid = False
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
            while self.undelivered:
                name, body = self.undelivered[0]
                await host.take_in(self.imei, body, None)
                await host.count_session(self.imei, name, len(body))
                self.undelivered.pop(0)
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
        """Queue an MT message and send a ring alert to its modem immediately. The operator never
        refuses a message.
        """
        await trio.lowlevel.checkpoint()
        account = self.accounts[imei]
        account.queue.put(body, priority=priority)
        self._ring(imei)
        return Verdict(Outcome.SENT, waiting=len(account.queue))

    async def ring(self, imei: str) -> Verdict:
        """Send a ring alert to a modem. If the modem sees no satellite, the ring alert is lost."""
        await trio.lowlevel.checkpoint()
        self._ring(imei)
        return Verdict(Outcome.SENT)

    def _ring(self, imei: str) -> None:
        modem, port = self.ports[imei]
        # If a modem sees no satellite, the operator does not store the ring alert.
        if modem.state.service:
            modem.ring()
            port.poke()


def _compute_day() -> int:
    return int(trio.current_time() // DAY_S)
