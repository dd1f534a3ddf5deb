"""The start of a Package on each channel: by the setting, by measured times, and by its
lifetime.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.outbound.head_start import (
    DELIVERED_SHARE_ENOUGH,
    USUAL_TIME_FACTOR,
    compute_head_starts,
)
from fieldagent.package.delivery import ChannelDelivery, FanOut
from fieldagent.package.forecast import Steps, compute_share_within
from fieldagent.package.package import SOS_PRIORITY, Channel, Message, Package

CELLULAR, RADIO, SATELLITE = Channel.CELLULAR, Channel.RADIO, Channel.SATELLITE
USUAL = 120.0
QUICK: Steps = ((2.0, 0.6),)
"""Six of ten arrive within two seconds, and the others never."""
SLOW: Steps = ((2.0, 0.3), (90.0, 0.6))
SURE: Steps = ((20.0, 0.96), (200.0, 1.0))


def begins(
    shown: Mapping[Channel, Steps],
    *channels: Channel,
    by: int | None = None,
    fan_out: FanOut = FanOut.CHEAPEST,
    priority: int = 11,
    gather: int | None = None,
) -> dict[Channel, float]:
    package = Package(Message("x"), by=by, priority=priority, gather=gather)
    deliveries = dict.fromkeys(channels or (CELLULAR, SATELLITE), ChannelDelivery())
    starts = compute_head_starts(package, deliveries, fan_out, USUAL, shown)
    assert all(bool(begin.reason) == (begin.after > 0) for begin in starts.values())
    return {channel: begin.after for channel, begin in starts.items()}


def test_channel_without_measurements_uses_configured_head_start() -> None:
    assert begins({}) == {CELLULAR: 0, SATELLITE: USUAL}
    assert begins({SATELLITE: SURE}) == {CELLULAR: 0, SATELLITE: USUAL}
    starts = begins({}, CELLULAR, RADIO, SATELLITE)
    assert starts == {CELLULAR: 0, RADIO: USUAL, SATELLITE: 2 * USUAL}


@pytest.mark.parametrize(
    ("cellular", "after"),
    [
        (QUICK, 2.0),
        (SLOW, 90.0),
        # No message arrives within the setting, so waiting is useless.
        ((), 0.0),
        (((5000.0, 0.9),), 0.0),
    ],
)
def test_channel_waits_for_measured_time_of_cheaper_channel(cellular: Steps, after: float) -> None:
    assert begins({CELLULAR: cellular}) == {CELLULAR: 0, SATELLITE: after}


def test_third_channel_waits_for_both_cheaper_channels() -> None:
    starts = begins({CELLULAR: QUICK, RADIO: SLOW}, CELLULAR, RADIO, SATELLITE)
    assert starts == {CELLULAR: 0, RADIO: 2, SATELLITE: 92}


def test_package_with_deadline_delays_satellite_until_last_moment() -> None:
    shown = {CELLULAR: QUICK, SATELLITE: SURE}
    assert begins(shown, by=3600) == {CELLULAR: 0, SATELLITE: 3600 - USUAL_TIME_FACTOR * 20}
    # This also holds without measurements of longer waits.
    assert begins({SATELLITE: SURE}, by=3600)[SATELLITE] == 3600 - USUAL_TIME_FACTOR * 20
    # There is no time to wait.
    assert begins(shown, by=30)[SATELLITE] == 0
    # No measurement of the satellite exists.
    assert begins({}, by=3600)[SATELLITE] == USUAL
    assert begins({}, by=60)[SATELLITE] == 60


def test_sos_and_other_fan_outs_have_no_head_start() -> None:
    assert begins({}, priority=SOS_PRIORITY, by=60, gather=60) == {CELLULAR: 0, SATELLITE: 0}
    assert begins({}, fan_out=FanOut.FIRST) == {CELLULAR: 0, SATELLITE: 0}
    assert begins({}, fan_out=FanOut.EVERY, gather=60) == {CELLULAR: 0, SATELLITE: 60}
    assert begins({}, gather=200)[SATELLITE] == 200
    assert begins({}, gather=20)[SATELLITE] == USUAL


shares = st.lists(st.tuples(st.floats(0.5, 5000), st.floats(0.01, 1)), max_size=6).map(
    lambda each: tuple(zip(sorted(t for t, _ in each), sorted(s for _, s in each), strict=True))
)


@given(cellular=shares, satellite=shares, by=st.none() | st.integers(1, 10_000))
def test_head_start_loses_few_deliveries(cellular: Steps, satellite: Steps, by: int | None) -> None:
    after = begins({CELLULAR: cellular, SATELLITE: satellite}, by=by)[SATELLITE]
    if by is None:
        assert 0 <= after <= USUAL
        assert (
            compute_share_within(cellular, after)
            >= DELIVERED_SHARE_ENOUGH * compute_share_within(cellular, USUAL) - 1e-6
        )
    else:
        assert 0 <= after <= by
        missed = 1 - compute_share_within(cellular, by)
        now, then = (
            1 - missed * (1 - compute_share_within(satellite, left / USUAL_TIME_FACTOR))
            for left in (by, by - after)
        )
        assert then >= DELIVERED_SHARE_ENOUGH * now - 1e-6
