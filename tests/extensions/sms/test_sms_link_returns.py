"""The IP link returns at various moments while an SMS is prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from fieldagent.agent.bearer import BearerOutbox
from fieldagent.agent.channels.contract import (
    ChannelLink,
    IpTurn,
    LinkState,
    Reception,
    Transmission,
)
from fieldagent.extensions.sms.agent.arrivals import StoreContent
from fieldagent.extensions.sms.agent.carrier import SmsCarrier, SmsSeat
from fieldagent.extensions.sms.agent.contract import SmsModem
from fieldagent.extensions.sms.agent.settings import SmsSettings
from fieldagent.extensions.sms.sms_modem import SendResult
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Submit
from tests.processes import PATIENCE


class OneToSend:
    """An outbox with one Package, a budget, and a modem. The link returns at `moment`."""

    def __init__(self, moment: str) -> None:
        self.moment, self.turn = moment, IpTurn()
        self.waits, self.spent_on, self.sent = 1, 0, 0

    async def _pass(self, moment: str) -> None:
        if moment == self.moment:
            self.turn.record_link_state(is_linked=True)
            self.moment = ""
        await trio.testing.wait_all_tasks_blocked()

    # Methods of an outbox.

    def set_limits(self, message_limits: Any) -> None:
        pass

    async def wait_until_ready(self, *, urgent: bool = False) -> None:
        if urgent or not self.waits:
            await trio.sleep_forever()

    async def fix_dates(self) -> None:
        await self._pass("its date is fixed")

    def load(self, capacity: int) -> Transmission | None:
        self.waits -= 1
        return Transmission(1, b"envelope", urgent=False, attempts=0)

    async def release(self, *_: object, **__: object) -> None:
        self.waits += 1

    # Methods of a budget.

    def compute_remaining(self, **_: bool) -> int | None:
        return None

    def compute_spent(self) -> int:
        return self.spent_on

    async def spend(self, count: int) -> None:
        self.spent_on += count
        await self._pass("it is booked")

    # Methods of a modem.

    look_soon, arrived, lost, crowded = 30.0, False, None, False
    news = trio.Event()

    async def send(self, message: Submit) -> SendResult:
        self.sent += 1
        return SendResult(Outcome.SENT)

    async def read_store(self) -> StoreContent:
        return StoreContent([], [])

    async def read_state(self) -> None:
        pass


@pytest.mark.parametrize("moment", ["its date is fixed", "it is booked"])
async def test_sms_is_cancelled_unpaid_if_the_link_returns(tmp_path: Path, moment: str) -> None:
    one = OneToSend(moment)
    link = ChannelLink()
    link.state = LinkState.READY
    seat = SmsSeat(
        SmsSettings(hub_number="+41790000001", after=0),
        bytes(32),
        cast(BearerOutbox, one),
        cast(Reception, None),
        ChannelLink(),
        one.turn,
        one,
        tmp_path,
        link,
    )
    carrier = SmsCarrier(seat)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(carrier.return_frames_on_link)
        nursery.start_soon(carrier.work, cast(SmsModem, one))
        with trio.fail_after(PATIENCE):
            await one.turn.wait_for_change()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert (one.waits, one.spent_on, one.sent) == (1, 0, 0)
