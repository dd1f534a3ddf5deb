"""Checks the contract between a driver and its outbox during each test of the driver."""

from __future__ import annotations

from fieldagent.agent.channels.contract import Intent, MessageLimits, Outbox, Transmission
from fieldagent.agent.channels.radio_modem import RadioOutbox
from fieldagent.wire.outcome import Outcome


class Checked:
    """An outbox that fails if a driver loads, intends or settles in a forbidden order."""

    def __init__(self, outbox: Outbox, *, in_flight: int) -> None:
        self.in_flight: dict[int, Transmission] = {}
        self._outbox = outbox
        self._most = in_flight
        self._known: Intent | None = outbox.get_unsettled()

    def set_limits(self, message_limits: MessageLimits) -> None:
        self._outbox.set_limits(message_limits)

    async def wait_until_ready(self, *, urgent: bool = False) -> None:
        await self._outbox.wait_until_ready(urgent=urgent)

    async def fix_dates(self) -> None:
        await self._outbox.fix_dates()

    def load(self, capacity: int) -> Transmission | None:
        assert len(self.in_flight) < self._most, "more in flight than the driver may have"
        assert self.get_unsettled() is None, "a new load before the intent was settled"
        transmission = self._outbox.load(capacity)
        if transmission is not None:
            assert len(transmission.body) <= capacity
            self.in_flight[transmission.number] = transmission
        return transmission

    def get_unsettled(self) -> Intent | None:
        return self._outbox.get_unsettled()

    async def record_intent(self, transmission: Transmission, *, modem: str, at_modem: int) -> None:
        self._check(transmission)
        await self._outbox.record_intent(transmission, modem=modem, at_modem=at_modem)

    async def book_doubtful_cost(self, transmission: Transmission) -> None:
        await self._outbox.book_doubtful_cost(transmission)

    async def record_copy(self, transmission: Transmission) -> None:
        assert self.get_unsettled() is not None, "a copy needs a transmission that may have left"
        await self._outbox.record_copy(transmission)

    async def settle(
        self,
        transmission: Transmission,
        outcome: Outcome,
        *,
        reason: str = "",
        retry_after: float = 0.0,
    ) -> None:
        self._check(transmission)
        if outcome is not Outcome.DOUBTFUL:
            self.in_flight.pop(transmission.number, None)
        await self._outbox.settle(transmission, outcome, reason=reason, retry_after=retry_after)

    async def release(
        self, transmission: Transmission, *, reason: str, retry_after: float = 0.0
    ) -> None:
        self._check(transmission)
        del self.in_flight[transmission.number]
        await self._outbox.release(transmission, reason=reason, retry_after=retry_after)

    def _check(self, transmission: Transmission) -> None:
        left = self._known is not None and transmission == self._known.transmission
        known = left or self.in_flight.get(transmission.number) == transmission
        assert known, "settled twice, or never loaded"

    def compute_allowance(self, *, urgent: bool = False, mailbox: bool = False) -> int | None:
        return self._outbox.compute_allowance(urgent=urgent, mailbox=mailbox)

    def describe_hold(self) -> str:
        return self._outbox.describe_hold()

    async def spend(self, credit: int) -> None:
        await self._outbox.spend(credit)


class CheckedRadio(Checked):
    """An outbox of a radio that fails if the driver calls it in a forbidden order."""

    def __init__(self, outbox: RadioOutbox, *, in_flight: int) -> None:
        super().__init__(outbox, in_flight=in_flight)
        self._radio = outbox

    async def wait_for_acknowledgement(self, transmission: Transmission) -> bool:
        self._check(transmission)
        return await self._radio.wait_for_acknowledgement(transmission)

    def try_again(self) -> None:
        self._radio.try_again()
