"""Delay of each channel in favour of cheaper channels, computed from past deliveries. Pure.

A channel that delivers within two seconds needs no head start of two minutes. So a more expensive
channel starts as soon as a longer wait would save almost nothing. If a Package has a deadline
(`by`), a more expensive channel waits for as long as it can still meet the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fieldagent.package.delivery import CHANNELS_BY_PRICE, ChannelDelivery, FanOut
from fieldagent.package.forecast import Steps, compute_share_within
from fieldagent.package.package import Channel, Package
from fieldagent.system.lazy_named_tuple import NamedTuple

DELIVERED_SHARE_ENOUGH = 0.95
"""Share of the best possible result that is enough. Without a deadline, the best possible result is
the number of Packages that cheaper channels deliver within the longest wait. With a deadline, it is
the number of Packages that arrive in time if no channel waits."""
USUAL_TIME_FACTOR = 2.0
"""Factor on the usual delivery time of a more expensive channel, because another Package may be
sent first, or an attempt may fail."""
_ROUNDING = 1e-9
CHEAPER_FIRST_REASON = "a cheaper channel goes first"
GATHERING_REASON = "waits for other items to share a message"


class Begin(NamedTuple):
    after: float
    """Seconds from the acceptance of a Package until it may start on a channel."""
    reason: str = ""
    """Reason for the wait, for people. Empty if there is no wait."""


class _CheaperChannel(NamedTuple):
    begins: float
    steps: Steps | None


def compute_head_starts(
    package: Package,
    deliveries: Mapping[Channel, ChannelDelivery],
    fan_out: FanOut,
    head_start: float,
    forecasts: Mapping[Channel, Steps],
) -> dict[Channel, Begin]:
    """Return the start of the Package on each channel where it still waits.

    If the fan-out is CHEAPEST, each channel starts `head_start` seconds before the next more
    expensive one, or less if the past deliveries in `forecasts` allow it. For each channel with
    enough data, `forecasts` contains the share of Packages that are delivered within each number of
    seconds. If the Package has a deadline (`by`), the delay depends on the time that the more
    expensive channel needs to meet the deadline.
    """
    waits = [channel for channel, delivery in deliveries.items() if delivery.status is None]
    head_starts = dict.fromkeys(waits, Begin(0.0))
    if package.sos:
        return head_starts
    if fan_out is FanOut.CHEAPEST:
        cheaper: list[_CheaperChannel] = []
        for channel in sorted(waits, key=CHANNELS_BY_PRICE.index):
            head_starts[channel] = _begin(cheaper, forecasts.get(channel), head_start, package.by)
            cheaper.append(_CheaperChannel(head_starts[channel].after, forecasts.get(channel)))
    satellite = head_starts.get(Channel.SATELLITE)
    if package.gather is not None and satellite is not None and package.gather > satellite.after:
        head_starts[Channel.SATELLITE] = Begin(package.gather, GATHERING_REASON)
    return head_starts


def _begin(
    cheaper: Sequence[_CheaperChannel],
    own_steps: Steps | None,
    head_start: float,
    deadline: float | None,
) -> Begin:
    usual = len(cheaper) * head_start
    if deadline is not None and own_steps is not None:
        # A deadline may be later than `usual`, so `usual` does not limit this wait.
        after, reason = (
            _compute_latest(cheaper, own_steps, deadline),
            f"{CHEAPER_FIRST_REASON}, and there is still time",
        )
    elif deadline is not None or any(each.steps is None for each in cheaper):
        after, reason = usual if deadline is None else min(usual, deadline), CHEAPER_FIRST_REASON
    else:
        after = _compute_soonest(cheaper, usual)
        reason = "cheaper channels nearly always deliver within that time"
    return Begin(after, reason) if cheaper and after else Begin(0.0)


def _compute_soonest(cheaper: Sequence[_CheaperChannel], usual_time: float) -> float:
    """Return the seconds after which the cheaper channels have delivered DELIVERED_SHARE_ENOUGH of
    the Packages that they deliver within `usual_time`.
    """
    moments = {each.begins + after for each in cheaper for after, _ in each.steps or ()}
    enough = DELIVERED_SHARE_ENOUGH * _compute_delivered(cheaper, usual_time) - _ROUNDING
    candidates = (at for at in sorted({0.0, *moments}) if _compute_delivered(cheaper, at) >= enough)
    return min(next(candidates, usual_time), usual_time)


def _compute_latest(cheaper: Sequence[_CheaperChannel], own_steps: Steps, deadline: float) -> float:
    """Return the latest start, in seconds, that has nearly the same chance to meet the `deadline`
    as a start now.
    """
    missed = 1 - _compute_delivered(cheaper, deadline)

    def compute_share_in_time(start: float) -> float:
        return 1 - missed * (
            1 - compute_share_within(own_steps, (deadline - start) / USUAL_TIME_FACTOR)
        )

    enough = DELIVERED_SHARE_ENOUGH * compute_share_in_time(0.0) - _ROUNDING
    moments = (
        deadline - USUAL_TIME_FACTOR * after
        for after, _ in own_steps
        if USUAL_TIME_FACTOR * after <= deadline
    )
    return max((at for at in moments if compute_share_in_time(at) >= enough), default=0.0)


def _compute_delivered(cheaper: Sequence[_CheaperChannel], at: float) -> float:
    """Return the share of Packages that at least one of these channels has delivered at the time
    `at`.
    """
    missed = 1.0
    for starts_at, steps in cheaper:
        missed *= 1 - compute_share_within(steps or (), at - starts_at)
    return 1 - missed
