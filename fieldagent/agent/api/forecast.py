"""`GET /api/forecast`: expected deliveries of each channel, and the quality of earlier
forecasts.
"""

from __future__ import annotations

from typing import Any

from fieldagent.agent.assembly import Parts
from fieldagent.agent.journal import listing
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.package.forecast import (
    PACKAGES_READ_MAX,
    Forecast,
    PastDelivery,
    compare_forecasts,
    make_forecast,
)
from fieldagent.package.package import Channel


async def answer_forecasts(parts: Parts, request: Request) -> Response:
    """Answer with the forecast of each configured channel; null if too little is known."""
    channels = {}
    for channel in parts.outboxes:
        deliveries, now = _read_past_deliveries(parts, channel)
        channels[channel] = {
            "expected": _encode_forecast(make_forecast(deliveries, now)),
            "kept": compare_forecasts(deliveries, now)._asdict(),
        }
    return make_json_response({"channels": channels})


def find_forecast(parts: Parts, channel: Channel) -> dict[str, Any] | None:
    """Return the forecast for a Package that is accepted now."""
    return _encode_forecast(make_forecast(*_read_past_deliveries(parts, channel)))


def _read_past_deliveries(parts: Parts, channel: Channel) -> tuple[list[PastDelivery], float]:
    """Return the past deliveries of the newest Packages on the channel, and the Unix time now."""
    clock = parts.journal.clock
    return listing.list_past_deliveries(parts.journal, channel, PACKAGES_READ_MAX), clock.date(
        clock.now()
    )


def _encode_forecast(prediction: Forecast | None) -> dict[str, Any] | None:
    return None if prediction is None else prediction._asdict()
