"""An SOS whose sender is unproved does not spend the SMS that are kept for the kit's own SOS."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink, IpTurn, LinkState
from fieldagent.agent.outbound.day_budget import DayBudget
from fieldagent.extensions.sms.agent.carrier import URGENT_AFTER, SmsCarrier, SmsSeat
from fieldagent.extensions.sms.agent.contract import SmsModem
from fieldagent.extensions.sms.agent.settings import SmsSettings
from fieldagent.package.package import SOS_PRIORITY, Channel, Message, Package
from tests.extensions.sms.test_sms_link_returns import OneToSend
from tests.kit import Kit, kit

PER_DAY, RESERVE = 4, 2


def make_carrier(k: Kit, budget: DayBudget, folder: Path) -> SmsCarrier:
    link = ChannelLink()
    link.state = LinkState.READY
    return SmsCarrier(
        SmsSeat(
            SmsSettings(hub_number="+41790000001", per_day=PER_DAY),
            bytes(32),
            k.outbox,
            k.reception,
            ChannelLink(),
            IpTurn(),
            budget,
            folder,
            link,
        )
    )


@pytest.mark.parametrize("spent", range(PER_DAY + 2))
async def test_unproved_sos_leaves_half_of_the_sms_reserve_to_the_kit(
    tmp_path: Path, clock: trio.testing.MockClock, spent: int
) -> None:
    async with kit(tmp_path, Channel.CELLULAR) as k, trio.open_nursery() as nursery:
        budget = DayBudget(k.journal, "sms", PER_DAY, RESERVE)
        await budget.spend(spent)
        modem = OneToSend("")
        carrier = make_carrier(k, budget, tmp_path)
        nursery.start_soon(carrier.work, cast(SmsModem, modem))
        package = Package(Message("SOS of a stranger"), priority=SOS_PRIORITY)
        await k.intake.accept(package, None, handle="!00000001")
        await trio.sleep(URGENT_AFTER + 1)
        by_others = int(spent < PER_DAY - RESERVE // 2)
        assert modem.sent == by_others
        await k.post(message={"content": "leg broken"}, priority=SOS_PRIORITY)
        await trio.sleep(1)
        assert modem.sent == by_others + 1, "the kit's own SOS is always sent"
        nursery.cancel_scope.cancel()


async def test_sos_beyond_the_sms_limit_is_sent_soon_after_the_link_returns(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    async with kit(tmp_path, Channel.CELLULAR) as k, trio.open_nursery() as nursery:
        budget = DayBudget(k.journal, "sms", PER_DAY, RESERVE)
        await budget.spend(PER_DAY)
        carrier = make_carrier(k, budget, tmp_path)
        nursery.start_soon(carrier.return_frames_on_link)
        nursery.start_soon(carrier.work, cast(SmsModem, OneToSend("")))
        await k.post(message={"content": "leg broken"}, priority=SOS_PRIORITY)
        # The hub does not answer the first SMS, and the day has no more of them.
        await trio.sleep(1_800)
        carrier._seat.turn.record_link_state(is_linked=True)
        with trio.fail_after(60):
            await k.outbox.wait_until_ready(urgent=True)
        nursery.cancel_scope.cancel()
