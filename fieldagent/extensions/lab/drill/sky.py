"""The satellite operator of a drill: it carries between modems and hub, and writes the bill."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

import trio

from fieldagent.extensions.lab.drill.outage import DAY
from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.extensions.lab.simulator.pty_port import PtyPort
from fieldagent.extensions.lab.simulator.sbd_modem import SimulatedModem
from fieldagent.hub.operator.contract import NO_MODEM, FarModem, OperatorHost, Verdict
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.credit import credits_for
from fieldagent.wire.envelope import decode
from fieldagent.wire.outcome import Outcome


@dataclass
class OperatorBill:
    """One modem's: implements `sbd_session.Gateway`."""

    imei: str
    queue: MtQueue = field(default_factory=MtQueue)
    bill: Counter[int] = field(default_factory=Counter)
    """Credits by the drill's day: of messages from the modem, of those that it fetched, and one of
    each session that only looked."""
    for_sos: Counter[int] = field(default_factory=Counter)
    """Of these, what messages from the modem took in which something belongs to an SOS."""
    brought: list[tuple[str, bytes]] = field(default_factory=list)
    """What the hub has not yet."""
    news: trio.Event = field(default_factory=trio.Event)
    sessions: int = 0
    _paid: bool = False
    """The session under way has brought something."""

    def mobile_originated(self, imei: str, momsn: int, body: bytes) -> None:
        """Put a message from the modem on the bill, and keep it for the hub."""
        self.sessions += 1
        self._paid = True
        self.bill[_day()] += credits_for(len(body))
        if any(entry.sos for entry in decode(body).entries):
            self.for_sos[_day()] += credits_for(len(body))
        self.brought.append((f"{imei}-{self.sessions}", body))
        self.news.set()

    def next_mobile_terminated(self) -> bytes | None:
        """Return what waits first; a session that brought nothing either way costs a credit."""
        body = self.queue.first()
        if body is None and not self._paid:
            self.bill[_day()] += 1
        self._paid = False
        return body

    def taken(self) -> None:
        """Put what waits first on the bill, and drop it."""
        self.bill[_day()] += credits_for(len(self.queue.first() or b""))
        self.queue.take()

    def waiting(self) -> int:
        return len(self.queue)

    async def bring(self, host: OperatorHost) -> None:
        """Bring the hub what came, for as long as it is there."""
        while True:
            while self.brought:
                name, body = self.brought[0]
                await host.take_in(self.imei, body, None)
                await host.count_session(self.imei, name, len(body))
                self.brought.pop(0)
            self.news = trio.Event()
            await self.news.wait()


@dataclass
class Sky:
    """Implements `hub.operator.contract.Operator`."""

    accounts: dict[str, OperatorBill] = field(default_factory=dict)
    ports: dict[str, tuple[SimulatedModem, PtyPort]] = field(default_factory=dict)

    async def send(
        self, imei: str, body: bytes, *, number: int, priority: bool, modem: FarModem = NO_MODEM
    ) -> Verdict:
        """Queue an MT message and ring its modem at once; never refused."""
        await trio.lowlevel.checkpoint()
        account = self.accounts[imei]
        account.queue.put(body, priority=priority)
        self._ring(imei)
        return Verdict(Outcome.SENT, waiting=len(account.queue))

    async def ring(self, imei: str) -> Verdict:
        """Ring a modem; it is lost on one that sees no satellite."""
        await trio.lowlevel.checkpoint()
        self._ring(imei)
        return Verdict(Outcome.SENT)

    def _ring(self, imei: str) -> None:
        modem, port = self.ports[imei]
        # A ring is not kept for a modem that sees no satellite.
        if modem.state.service:
            modem.ring()
            port.poke()


def _day() -> int:
    return int(trio.current_time() // DAY)
