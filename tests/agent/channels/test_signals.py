"""The stored signals of a link stay few, whatever the modem reports."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from fieldagent.agent.channels.contract import SIGNAL_EVERY, SIGNALS_KEPT, ChannelLink


async def test_signal_is_stored_when_signal_changes(clock: MockClock) -> None:
    link = ChannelLink()
    began = trio.current_time()
    for bars in (3, 3, None, 5):
        link.record_signal(bars)
        clock.jump(SIGNAL_EVERY)
    assert link.signal == 5
    assert [bars for _, bars in link.signals] == [3, None, 5]
    assert [at - began for at, _ in link.signals] == [0, 2 * SIGNAL_EVERY, 3 * SIGNAL_EVERY]


async def test_fluctuating_signal_uses_bounded_memory_and_covers_hours(clock: MockClock) -> None:
    link = ChannelLink()
    for second in range(6 * 3600):
        link.record_signal(second % 6)
        clock.jump(1)
    assert len(link.signals) == SIGNALS_KEPT
    moments = [at for at, _ in link.signals]
    assert moments[-1] - moments[0] >= (SIGNALS_KEPT - 2) * SIGNAL_EVERY
    assert link.signals[-1][1] == link.signal
