"""Forecasts the delivery time of a Package, on a channel of a kit or from the hub to a kit, from
the times of earlier Packages. Pure.

A Package that still waits, or that ended without a delivery (withdrawn because another channel was
faster, replaced, expired), shows only a minimum time. It is counted as waiting until this time, and
is left out after it (Kaplan and Meier, Journal of the American Statistical Association 53, 1958).
So the forecast also becomes worse for a channel that worked in the morning but has been silent
since noon. If there are no earlier Packages, there is no forecast.
"""

from __future__ import annotations

from collections.abc import Sequence

from fieldagent.system.lazy_named_tuple import NamedTuple

PACKAGES_MIN = 5
"""Minimum number of Packages for a forecast."""
PACKAGES_READ_MAX = 100
"""Maximum number of a channel's Packages that are read from the journal."""
PACKAGES_USED_MAX = 50
"""Maximum number of Packages that a forecast uses. The newest Packages are used."""
TIME_OF_DAY_DISTANCE_S = 3 * 3600.0
"""Maximum difference in seconds between two similar times of day. The times of day matter because
satellites, people and hubs have daily patterns."""
SAME_HOUR_PACKAGES_MIN = 10
"""Minimum number of Packages at a similar time of day. If there are fewer, the Packages of the
whole day are used."""
SHARES, NEARLY_ALL = 0.5, 0.9
_DAY_S = 86_400.0
_ROUNDING = 1e-9


class PastDelivery(NamedTuple):
    """Delivery of an earlier Package on one channel. Times are Unix time."""

    begun: float
    """Earliest possible start of the delivery, after the head start of cheaper channels."""
    ended: float | None
    """End of the delivery, or None while the Package waits."""
    delivered: bool


Steps = Sequence[tuple[float, float]]
"""Pairs of a time in seconds and the share (0 to 1) of Packages that are delivered within this
time, in ascending order. Empty if no Package was delivered."""


class Forecast(NamedTuple):
    samples: int
    """Number of Packages that the forecast uses."""
    median: float | None
    """Seconds from the earliest start until half of the Packages are delivered. None if fewer than
    half were delivered."""
    p90: float | None
    """Seconds from the earliest start until 90 % of the Packages are delivered. None if fewer were
    delivered."""
    share: float
    """Share, 0 to 1, of the Packages that are delivered in the end."""
    longest: float
    """Seconds after which `share` is reached. What happens later is unknown."""


class ForecastAccuracy(NamedTuple):
    """Result of a comparison of past forecasts with the real delivery times."""

    forecasts: int
    """Number of Packages whose forecast time (`p90`) has passed."""
    within: int
    """Number of these Packages that were delivered in the forecast time."""


def make_forecast(deliveries: Sequence[PastDelivery], now: float) -> Forecast | None:
    """Return the forecast for a Package that may begin at `now` (Unix time), from deliveries on one
    channel. Return None if there are too few deliveries, or if no Package was delivered.
    """
    chosen = _choose_deliveries(deliveries, now)
    steps = _compute_shares(chosen, now)
    if len(chosen) < PACKAGES_MIN or not steps:
        return None
    longest, share = steps[-1]
    return Forecast(
        len(chosen),
        _find_time_of_share(steps, SHARES),
        _find_time_of_share(steps, NEARLY_ALL),
        share,
        longest,
    )


def compute_steps(deliveries: Sequence[PastDelivery], now: float) -> Steps | None:
    """Return the Steps of the deliveries on one channel, as known at `now`, or None if there are
    too few deliveries.
    """
    chosen = _choose_deliveries(deliveries, now)
    return None if len(chosen) < PACKAGES_MIN else _compute_shares(chosen, now)


def compute_share_within(steps: Steps, seconds: float) -> float:
    """Return the share, 0 to 1, of the Packages that are delivered within `seconds`. `steps` is a
    result of `compute_steps`.
    """
    return max((share for after, share in steps if after <= seconds), default=0.0)


def measure_accuracy(deliveries: Sequence[PastDelivery], now: float) -> ForecastAccuracy:
    """Compute for each delivery the forecast that was possible at its start, and compare it with
    the result.
    """
    forecasts = within = 0
    for delivery in deliveries:
        forecast = make_forecast(
            [each for each in deliveries if each.begun < delivery.begun], delivery.begun
        )
        if forecast is None or forecast.p90 is None:
            continue
        seconds, delivered = _get_waiting_time(delivery, now)
        if seconds > forecast.p90 or delivered:
            forecasts += 1
            within += delivered and seconds <= forecast.p90
    return ForecastAccuracy(forecasts, within)


def _choose_deliveries(deliveries: Sequence[PastDelivery], now: float) -> Sequence[PastDelivery]:
    """Return the newest deliveries. If there are enough at this time of day, return only these."""
    known_deliveries = sorted(
        (delivery for delivery in deliveries if delivery.begun <= now),
        key=lambda delivery: -delivery.begun,
    )
    same_hour = [
        delivery
        for delivery in known_deliveries
        if _compute_day_difference(delivery.begun, now) <= TIME_OF_DAY_DISTANCE_S
    ]
    return (same_hour if len(same_hour) >= SAME_HOUR_PACKAGES_MIN else known_deliveries)[
        :PACKAGES_USED_MAX
    ]


def _compute_day_difference(first_time: float, second_time: float) -> float:
    """Return the seconds between two times of day, at most half a day. The arguments are Unix
    times.
    """
    difference = (first_time - second_time) % _DAY_S
    return min(difference, _DAY_S - difference)


def _get_waiting_time(delivery: PastDelivery, now: float) -> tuple[float, bool]:
    """Return the waiting time of a delivery up to `now`, and True if the Package was delivered by
    `now`.
    """
    if delivery.ended is None or delivery.ended > now:
        return now - delivery.begun, False
    return delivery.ended - delivery.begun, delivery.delivered


def _compute_shares(deliveries: Sequence[PastDelivery], now: float) -> list[tuple[float, float]]:
    """Return pairs of a time in seconds and the share that is delivered by this time, in ascending
    order.
    """
    # Put deliveries before other ends at the same time, as the estimator requires.
    ended_deliveries = sorted(
        (seconds, not is_delivered)
        for seconds, is_delivered in (_get_waiting_time(delivery, now) for delivery in deliveries)
    )
    steps, waiting = [], 1.0
    for index, (seconds, censored) in enumerate(ended_deliveries):
        if not censored:
            waiting *= 1 - 1 / (len(ended_deliveries) - index)
            steps.append((seconds, 1 - waiting))
    return steps


def _find_time_of_share(steps: Sequence[tuple[float, float]], share: float) -> float | None:
    return next(
        (seconds for seconds, reached_share in steps if reached_share >= share - _ROUNDING), None
    )
