"""The operator's gateway, to which the simulated modem connects in a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fieldagent.extensions.lab.simulator.mt_queue import MtQueue
from fieldagent.system.wording import format_count
from fieldagent.wire.credit import CREDIT_TARIFF, Tariff


class GatewayReceiver(Protocol):
    """Receiver of MO messages, which is a person at home or a real hub."""

    def receive_message(self, imei: str, momsn: int, body: bytes) -> None:
        """Process the body of an MO message during the session that transports it."""


class SimulatedGateway:
    """A gateway that passes on MO messages and delivers each MT message once. Implements
    `sbd_session.Gateway`.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        queue: MtQueue,
        behind: GatewayReceiver,
        tariff: Tariff = CREDIT_TARIFF,
    ) -> None:
        self._tariff = tariff
        self._say = say
        self._queue = queue
        self._receiver = behind
        self.sessions = 0
        """Number of sessions with an MO message."""

    def receive_mobile_originated(self, imei: str, momsn: int, body: bytes) -> None:
        self.sessions += 1
        cost = format_count(self._tariff.compute_units(len(body)), self._tariff.unit)
        priced = f", {cost}" if self._tariff.unit != "byte" else ""
        self._say(f"MO {momsn} from {imei}: {format_count(len(body), 'byte')}{priced}")
        self._receiver.receive_message(imei, momsn, body)

    def get_mobile_terminated(self) -> bytes | None:
        return self._queue.get_first()

    def remove_mobile_terminated(self) -> None:
        self._queue.remove_first()

    def count_waiting(self) -> int:
        return len(self._queue)
