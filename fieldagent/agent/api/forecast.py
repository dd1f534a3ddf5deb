"""`GET /api/forecast`: expected delivery times, and the accuracy of earlier forecasts. `GET
/api/signals`: the signal since the agent started, for a plot.
"""

from __future__ import annotations

from typing import Any

import trio

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import listing
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.package.forecast import (
    PACKAGES_READ_MAX,
    Forecast,
    PastDelivery,
    make_forecast,
    measure_accuracy,
)
from fieldagent.package.package import Channel


async def answer_forecasts(parts: Parts, request: Request) -> Response:
    """Return the forecast of each configured channel. The forecast is null if there is too little
    data.
    """
    channels = {}
    for channel in parts.outboxes:
        deliveries, now = _read_past_deliveries(parts, channel)
        channels[channel] = {
            "expected": _encode_forecast(make_forecast(deliveries, now)),
            "accuracy": measure_accuracy(deliveries, now)._asdict(),
        }
    return make_json_response({"channels": channels})


async def answer_signals(parts: Parts, request: Request) -> Response:
    """Return each channel's signal as pairs of Unix time and value. A value is valid until the time
    of the next value, and the last value until now.
    """
    clock = parts.journal.clock
    # The signals have times of trio's clock. Add this difference to get Unix times.
    ahead = clock.date(clock.now()) - trio.current_time()
    return make_json_response(
        {
            channel: [{"at": at + ahead, "signal": bars} for at, bars in outbox.link.signals]
            for channel, outbox in parts.outboxes.items()
        }
    )


def find_forecast(parts: Parts, channel: Channel) -> dict[str, Any] | None:
    """Return the forecast for a Package that is accepted now, or None if there is too little
    data.
    """
    return _encode_forecast(make_forecast(*_read_past_deliveries(parts, channel)))


def _read_past_deliveries(parts: Parts, channel: Channel) -> tuple[list[PastDelivery], float]:
    """Return the past deliveries of the newest Packages on the channel, and the present Unix
    time.
    """
    clock = parts.journal.clock
    return listing.list_past_deliveries(parts.journal, channel, PACKAGES_READ_MAX), clock.date(
        clock.now()
    )


def _encode_forecast(prediction: Forecast | None) -> dict[str, Any] | None:
    return None if prediction is None else prediction._asdict()
