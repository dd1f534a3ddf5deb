"""The agent's state: `GET /metrics`, `/api/forecast` (expected delivery times, and the accuracy of
earlier forecasts) and `/api/signals` (the signal since the agent started, for a plot).

Counters are stored in the journal, in the commit of each event, so that a restart of the agent does
not reset them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import trio

from fieldagent.agent.assembly import Parts
from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.journal import listing
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.journal.listing import (
    count_ended,
    count_hook_results,
    read_latencies,
)
from fieldagent.agent.journal.schema import LATENCY_BOUNDS
from fieldagent.agent.journal.spending import sum_spent
from fieldagent.agent.kit_part import get_kit_parts
from fieldagent.http import openmetrics
from fieldagent.http.message import Request, Response, make_json_response
from fieldagent.http.openmetrics import Family, Sample
from fieldagent.package.forecast import (
    PACKAGES_READ_MAX,
    Forecast,
    PastDelivery,
    make_forecast,
    measure_accuracy,
)
from fieldagent.package.package import Channel
from fieldagent.system.extension import import_own


def format_agent_metrics(
    status: Mapping[str, Any], faults: Mapping[str, int], journal: Journal
) -> str:
    """Return the response to `GET /metrics` in the OpenMetrics text format. `status` is the
    response to `GET /api/status`. `faults` contains the number of failures of each part of the
    agent.
    """
    families = [
        *_list_agent_families(status, faults),
        *_list_channel_families(status["channels"]),
        *_list_count_families(journal),
    ]
    for name, part in get_kit_parts().items():
        if part.metrics and status[name] is not None:
            families += import_own(part.metrics)(status[name])
    return openmetrics.format_metrics("fieldagent", families)


def _list_agent_families(status: Mapping[str, Any], faults: Mapping[str, int]) -> Iterator[Family]:
    letters, journal = status["deadLetters"], status["journal"]
    for name, kind, help_text, value, unit in (
        ("uptime_seconds", "gauge", "Time since the agent started.", status["uptime"], "seconds"),
        (
            "sos_active",
            "gauge",
            "1 if an SOS of this kit is open, otherwise 0.",
            status["sos"]["active"],
            "",
        ),
        ("journal_commits", "counter", "Commits since the agent started.", journal["commits"], ""),
        ("journal_full", "gauge", "1 if the disk is full, otherwise 0.", journal["full"], ""),
        (
            "journal_losses",
            "gauge",
            "Recorded losses by damage of the journal.",
            len(journal["losses"]),
            "",
        ),
        ("dead_letters", "counter", "Received messages that cannot be read.", letters["came"], ""),
        (
            "dead_letters_dropped",
            "counter",
            "Dead letters that were deleted.",
            letters["dropped"],
            "",
        ),
        ("dead_letters_kept", "gauge", "Stored dead letters.", letters["kept"], ""),
        (
            "confirmations_refused",
            "counter",
            "Confirmations with the digest of another item.",
            status["confirmationsRefused"],
            "",
        ),
        (
            "clock_trusted",
            "gauge",
            "1 if the clock can be trusted, otherwise 0.",
            status["clock"]["trusted"],
            "",
        ),
    ):
        yield Family(name, kind, help_text, [Sample(value)], unit)
    samples = [Sample(times, {"part": part}) for part, times in faults.items()]
    yield Family("faults", "counter", "Failures caused by a fault in the agent, by part.", samples)


def _list_channel_families(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[Family]:
    for name, member, help_text, unit in (
        ("configured", "configured", "1 if the channel is configured, otherwise 0.", ""),
        ("queued_packages", "queued", "Packages that wait on the channel.", ""),
        ("signal_bars", "signal", "Signal strength, 0 to 5, absent if unknown.", "bars"),
        ("sent_today_bytes", "bytesToday", "Bytes sent since midnight UTC.", "bytes"),
        ("credits_today", "creditsToday", "Credits spent since midnight UTC.", ""),
        (
            "credits_in_doubt_today",
            "creditsInDoubtToday",
            "Credits of transmissions that may have been billed.",
            "",
        ),
        ("credits_per_day", "creditsPerDay", "Daily budget; absent without a budget.", ""),
        (
            "air_time_left_seconds",
            "airTimeLeft",
            "Air time that the radio may still use this hour.",
            "seconds",
        ),
        (
            "last_success_timestamp_seconds",
            "lastSuccess",
            "Time of the last successful transmission.",
            "seconds",
        ),
    ):
        samples = [
            Sample(channel[member], {"channel": each})
            for each, channel in channels.items()
            if channel.get(member) is not None
        ]
        yield Family(name, "gauge", help_text, samples, unit)
    steps = [
        Sample(channel["healingSteps"], {"channel": each})
        for each, channel in channels.items()
        if "healingSteps" in channel
    ]
    yield Family("healing_steps", "counter", "Steps taken to recover a silent modem.", steps)
    states = [
        Sample(
            state.value == link["state"], {"channel": each, "fieldagent_link_state": state.value}
        )
        for each, link in channels.items()
        if link["configured"]
        for state in LinkState
    ]
    yield Family("link_state", "stateset", "State of the channel's link.", states)


def _list_count_families(journal: Journal) -> Iterator[Family]:
    ended_counts = [
        Sample(count, {"channel": channel, "status": status})
        for channel, status, count in count_ended(journal)
    ]
    yield Family(
        "packages_ended",
        "counter",
        "Packages that have ended on a channel, by status.",
        ended_counts,
    )
    hooks = [
        Sample(count, {"hook": hook, "result": result})
        for hook, result, count in count_hook_results(journal)
    ]
    yield Family(
        "hook_results", "counter", "Calls of a hook, by result: handed, again or dead.", hooks
    )
    spent_sums = sum_spent(journal)
    yield Family(
        "sent_bytes",
        "counter",
        "Bytes sent since the journal was created.",
        [Sample(each.bytes, {"channel": channel}) for channel, each in spent_sums.items()],
        "bytes",
    )
    cost = [Sample(each.credits, {"channel": channel}) for channel, each in spent_sums.items()]
    yield Family("credits", "counter", "Credits spent since the journal was created.", cost)
    doubtful = [Sample(each.doubtful, {"channel": channel}) for channel, each in spent_sums.items()]
    yield Family(
        "credits_doubtful", "counter", "Credits since then that may have been billed.", doubtful
    )
    yield Family(
        "delivery_latency_seconds",
        "histogram",
        "Time from the acceptance of a Package to its delivery.",
        list(_list_latencies(journal)),
        "seconds",
    )


def _list_latencies(journal: Journal) -> Iterator[Sample]:
    for channel, latency in read_latencies(journal).items():
        label, below = {"channel": channel}, 0
        for bound in LATENCY_BOUNDS:
            below += latency.counts.get(bound, 0)
            yield Sample(below, {**label, "le": f"{bound:.1f}"}, "_bucket")
        count = sum(latency.counts.values())
        yield Sample(count, {**label, "le": "+Inf"}, "_bucket")
        yield Sample(count, label, "_count")
        yield Sample(round(latency.seconds, 3), label, "_sum")


async def answer_forecasts(parts: Parts, request: Request) -> Response:
    """Return the forecast of each configured channel, and the accuracy of its earlier forecasts.
    The forecast is null if there is too little data.
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
    """Return each channel's signal as pairs of Unix time and value. Each value is valid until the
    time of the next value. The last value is still valid.
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
