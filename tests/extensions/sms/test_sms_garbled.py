"""A message that the modem never shows correctly."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing

from fieldagent.agent.bearer import BearerOutbox
from fieldagent.agent.channels.contract import ChannelLink, LinkState, Reception
from fieldagent.extensions.sms.agent.arrivals import StoreContent, find_arrivals
from fieldagent.extensions.sms.agent.carrier import READ_ATTEMPTS_MAX, SmsCarrier, SmsSeat
from fieldagent.extensions.sms.agent.contract import SmsModem
from fieldagent.extensions.sms.agent.settings import SmsSettings
from fieldagent.extensions.sms.sms_modem import GsmReply, parse_listed
from tests.extensions.sms.test_sms_link_returns import OneToSend

LISTED = GsmReply(ok=True, lines=("+CMGL: 7,1,,30", "07917?8394"))


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0)


class GarblingModem(OneToSend):
    """A modem with one message, which it never shows correctly."""

    def __init__(self) -> None:
        super().__init__("")
        self.turn.record_link_state(is_linked=True)
        self.looks: list[float] = []
        self.kept: list[tuple[bytes, str]] = []
        self.deleted: list[int] = []

    async def read_store(self) -> StoreContent:
        self.arrived = False
        self.looks.append(trio.current_time())
        return StoreContent([], []) if self.deleted else find_arrivals(parse_listed(LISTED))

    async def delete(self, place: int) -> None:
        assert self.kept, "what is not on disk stays"
        self.deleted.append(place)

    async def receive(self, body: bytes, *, damage: str = "") -> None:
        self.kept.append((body, damage))


async def test_permanently_garbled_sms_is_kept_as_a_dead_letter_after_retries(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    one, link = GarblingModem(), ChannelLink()
    link.state = LinkState.READY
    seat = SmsSeat(
        SmsSettings(hub_number="+41790000001", after=0),
        bytes(32),
        cast(BearerOutbox, one),
        cast(Reception, one),
        ChannelLink(),
        one.turn,
        one,
        tmp_path,
        link,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(SmsCarrier(seat).work, cast(SmsModem, one))
        await trio.sleep(3_600)
        nursery.cancel_scope.cancel()
    assert one.kept == [(b"07917?8394", "an SMS cannot be read: the modem shows no PDU")]
    assert one.deleted == [7]
    first, second, third = one.looks[:READ_ATTEMPTS_MAX]
    assert first == second < third
