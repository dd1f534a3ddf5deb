"""The expected time of a Package from the times of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.package.forecast import (
    PACKAGES_MIN,
    Forecast,
    ForecastAccuracy,
    PastDelivery,
    make_forecast,
    measure_accuracy,
)

NOW = 1_790_000_000.0
DAY = 86_400.0


def make_deliveries(
    *seconds: float, ended: tuple[float, ...] = (), waits: tuple[float, ...] = ()
) -> list[PastDelivery]:
    """Return channel deliveries that succeeded after these seconds, ended in another way, or wait,
    all at this time of day.
    """
    past = NOW - 2 * DAY
    deliveries = [PastDelivery(past, past + each, True) for each in seconds]
    deliveries += [PastDelivery(past, past + each, False) for each in ended]
    return deliveries + [PastDelivery(NOW - each, None, False) for each in waits]


def test_forecast_treats_other_endings_as_censored() -> None:
    """The data are those of Freireich and others, Blood 21 (1963), which textbooks on survival
    analysis use: the estimate is 0.857 at 6, 0.627 at 16, 0.538 at 22, 0.448 at 23, and goes no
    further.
    """
    shown = (6, 6, 6, 7, 10, 13, 16, 22, 23)
    censored = (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)
    estimate = make_forecast(make_deliveries(*shown, ended=censored), NOW)
    assert estimate is not None
    assert (estimate.samples, estimate.median, estimate.p90, estimate.longest) == (21, 23, None, 23)
    assert estimate.share == pytest.approx(1 - 0.448, abs=0.0005)


def test_forecast_needs_enough_deliveries() -> None:
    assert make_forecast(make_deliveries(*[30] * (PACKAGES_MIN - 1)), NOW) is None
    assert make_forecast(make_deliveries(ended=(30,) * 20), NOW) is None
    assert make_forecast(make_deliveries(*[30] * PACKAGES_MIN), NOW) == Forecast(
        PACKAGES_MIN, 30, 30, 1.0, 30
    )


def test_forecast_accounts_for_packages_that_still_wait() -> None:
    quick = make_deliveries(*[40] * 10)
    assert make_forecast(quick, NOW) == Forecast(10, 40, 40, 1.0, 40)
    estimate = make_forecast(quick + make_deliveries(waits=(7200.0,) * 12), NOW)
    assert estimate is not None and (estimate.median, estimate.p90) == (None, None)
    assert estimate.share == pytest.approx(10 / 22)
    # Packages that were just accepted do not count against it.
    assert make_forecast(quick + make_deliveries(waits=(1.0,) * 12), NOW) == Forecast(
        22, 40, 40, 1.0, 40
    )


def test_forecast_prefers_deliveries_at_the_same_time_of_day() -> None:
    night = [PastDelivery(NOW - n * DAY, NOW - n * DAY + 3000, True) for n in range(1, 11)]
    noon = NOW - DAY / 2
    day = [PastDelivery(noon - n * DAY, noon - n * DAY + 30, True) for n in range(30)]
    at_night, by_day = make_forecast(night + day, NOW), make_forecast(night + day, NOW + DAY / 2)
    assert at_night is not None and by_day is not None
    assert (at_night.samples, at_night.median, by_day.median) == (10, 3000, 30)
    # Fewer than ten at this time of day are not enough, so all of them count.
    assert make_forecast(night[:9] + day, NOW) == Forecast(39, 30, 3000, 1.0, 3000)


def test_past_forecasts_are_compared_with_the_results() -> None:
    def each(seconds: Sequence[float]) -> list[PastDelivery]:
        began = NOW - 1000 * len(seconds)
        accepted = [began + 1000 * place for place in range(len(seconds))]
        return [
            PastDelivery(at, at + taken, True) for at, taken in zip(accepted, seconds, strict=True)
        ]

    assert measure_accuracy(each([60] * 25), NOW) == ForecastAccuracy(20, 20)
    # The forecast appears from the sixth on. Four of those took longer than forecast.
    assert measure_accuracy(each([60] * 16 + [90, 120, 240, 480]), NOW) == ForecastAccuracy(15, 11)
    assert measure_accuracy(each([60] * 4), NOW) == ForecastAccuracy(0, 0)


@given(
    st.lists(st.floats(0, 3600), min_size=PACKAGES_MIN, max_size=40),
    st.lists(st.floats(0, 3600), max_size=10),
)
def test_waiting_package_never_shortens_the_forecast(
    seconds: list[float], waits: list[float]
) -> None:
    alone = make_forecast(make_deliveries(*seconds), NOW)
    beside = make_forecast(make_deliveries(*seconds, waits=tuple(waits)), NOW)
    assert alone is not None and beside is not None
    assert alone.share == pytest.approx(1)
    for one, other in ((alone.median, beside.median), (alone.p90, beside.p90)):
        assert one is not None and (other is None or other >= one)
