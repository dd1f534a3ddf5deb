"""How long each channel leaves a Package to the cheaper ones, by what they have shown. Pure.

A channel that delivers in two seconds what it delivers at all needs no head start of two minutes:
a dearer one begins where waiting longer would save next to nothing. A Package that need not be
there before some time (`by`) waits for a cheaper way as long as the dearer one is still in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fieldagent.package.delivery import CHEAPEST_FIRST, FanOut, Leg
from fieldagent.package.forecast import Steps, share_within
from fieldagent.package.package import Channel, Package
from fieldagent.system.lazy_named_tuple import NamedTuple

ENOUGH = 0.95
"""Of what the longest wait would deliver more cheaply, or of what would be in time without one."""
MARGIN = 2.0
"""Of a dearer channel's usual time: something else may go before it, or a try fail."""
_ROUNDING = 1e-9
CHEAPER = "a cheaper channel goes first"
GATHERS = "it waits for others to share a message with"


class Begin(NamedTuple):
    after: float
    """Seconds from the acceptance of a Package until it may begin on a channel."""
    why: str = ""
    """For people; empty where it begins at once."""


class _Cheaper(NamedTuple):
    begins: float
    steps: Steps | None


def head_starts(
    package: Package,
    legs: Mapping[Channel, Leg],
    fan_out: FanOut,
    head_start: float,
    shown: Mapping[Channel, Steps],
) -> dict[Channel, Begin]:
    """Return when each leg that waits may begin.

    With CHEAPEST each channel has `head_start` seconds before the next dearer one, or less where
    those before it have `shown` (within how many seconds from its begin each delivers which share;
    a channel of which too little is known is missing) that they use less. With `by` it is as long
    as the dearer channel needs for being in time.
    """
    waits = [channel for channel, leg in legs.items() if leg.status is None]
    begins = dict.fromkeys(waits, Begin(0.0))
    if package.sos:
        return begins
    if fan_out is FanOut.CHEAPEST:
        cheaper: list[_Cheaper] = []
        for channel in sorted(waits, key=CHEAPEST_FIRST.index):
            begins[channel] = _begin(cheaper, shown.get(channel), head_start, package.by)
            cheaper.append(_Cheaper(begins[channel].after, shown.get(channel)))
    satellite = begins.get(Channel.SATELLITE)
    if package.gather is not None and satellite is not None and package.gather > satellite.after:
        begins[Channel.SATELLITE] = Begin(package.gather, GATHERS)
    return begins


def _begin(
    cheaper: Sequence[_Cheaper], own: Steps | None, head_start: float, by: float | None
) -> Begin:
    usual = len(cheaper) * head_start
    if by is not None and own is not None:
        # What only a longer wait would show, nobody knows: it is waited for.
        after, why = _latest(cheaper, own, by), f"{CHEAPER}, and it is in time yet"
    elif by is not None or any(each.steps is None for each in cheaper):
        after, why = usual if by is None else min(usual, by), CHEAPER
    else:
        after = _soonest(cheaper, usual)
        why = "what cheaper channels deliver, they nearly always deliver within that"
    return Begin(after, why) if cheaper and after else Begin(0.0)


def _soonest(cheaper: Sequence[_Cheaper], usual: float) -> float:
    """Return when those have delivered nearly all that they deliver by the usual time."""
    moments = {each.begins + after for each in cheaper for after, _ in each.steps or ()}
    enough = ENOUGH * _delivered(cheaper, usual) - _ROUNDING
    candidates = (at for at in sorted({0.0, *moments}) if _delivered(cheaper, at) >= enough)
    return min(next(candidates, usual), usual)


def _latest(cheaper: Sequence[_Cheaper], own: Steps, by: float) -> float:
    """Return the last moment at which it may begin and be in time as often as if it began now,
    nearly."""
    missed = 1 - _delivered(cheaper, by)

    def in_time(begins: float) -> float:
        return 1 - missed * (1 - share_within(own, (by - begins) / MARGIN))

    enough = ENOUGH * in_time(0.0) - _ROUNDING
    moments = (by - MARGIN * after for after, _ in own if MARGIN * after <= by)
    return max((at for at in moments if in_time(at) >= enough), default=0.0)


def _delivered(cheaper: Sequence[_Cheaper], at: float) -> float:
    """Return which share one of these has delivered by then."""
    missed = 1.0
    for begins, steps in cheaper:
        missed *= 1 - share_within(steps or (), at - begins)
    return 1 - missed
