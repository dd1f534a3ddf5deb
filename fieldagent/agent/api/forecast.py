"""`GET /api/forecast`: expected deliveries of each channel, and the quality of earlier
forecasts.
"""

from __future__ import annotations

from typing import Any

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import listing
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.package.forecast import (
    PAST,
    Forecast,
    PastDelivery,
    compare_forecasts,
    make_forecast,
)
from fieldagent.package.package import Channel


async def forecasts(parts: Parts, request: Request) -> Response:
    """Answer with the forecast of each configured channel; null if too little is known."""
    channels = {}
    for channel in parts.outboxes:
        deliveries, now = _past(parts, channel)
        channels[channel] = {
            "expected": _in_json(make_forecast(deliveries, now)),
            "kept": compare_forecasts(deliveries, now)._asdict(),
        }
    return make_json_response({"channels": channels})


def expected(parts: Parts, channel: Channel) -> dict[str, Any] | None:
    """Return the forecast for a Package that is accepted now."""
    return _in_json(make_forecast(*_past(parts, channel)))


def _past(parts: Parts, channel: Channel) -> tuple[list[PastDelivery], float]:
    """Return the past deliveries of the newest Packages on the channel, and the Unix time now."""
    clock = parts.journal.clock
    return listing.past_deliveries(parts.journal, channel, PAST), clock.date(clock.now())


def _in_json(prediction: Forecast | None) -> dict[str, Any] | None:
    return None if prediction is None else prediction._asdict()
