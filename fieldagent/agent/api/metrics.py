"""Answer to `GET /metrics` of the agent.

Long-term counters are kept in the journal, in the same commit as the event, so that a restart of
the agent does not reset them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.journal import tally
from fieldagent.agent.journal.journal import Journal
from fieldagent.agent.kit_part import kit_part, part_names
from fieldagent.http import openmetrics
from fieldagent.http.openmetrics import Family, Sample
from fieldagent.system.named_object import imported


def text(status: Mapping[str, Any], faults: Mapping[str, int], journal: Journal) -> str:
    """Return the answer to `GET /metrics` in the OpenMetrics text format. `status` is the answer to
    `GET /api/status`; `faults` contains the number of failures of each part of the agent.
    """
    families = [*_agent(status, faults), *_channels(status["channels"]), *_counted(journal)]
    for name in part_names():
        if status[name] is not None and (place := kit_part(name).metrics):
            families += imported(place)(status[name])
    families += _people(status["mesh"])
    return openmetrics.text("fieldagent", families)


def _agent(status: Mapping[str, Any], faults: Mapping[str, int]) -> Iterator[Family]:
    letters, journal = status["deadLetters"], status["journal"]
    for name, kind, about, value, unit in (
        ("uptime_seconds", "gauge", "Since the agent began.", status["uptime"], "seconds"),
        ("sos_active", "gauge", "1 while an SOS of this kit is open.", status["sos"]["active"], ""),
        ("journal_commits", "counter", "Since the agent began.", journal["commits"], ""),
        ("journal_full", "gauge", "1 while the disk has no room.", journal["full"], ""),
        ("journal_losses", "gauge", "What damage has cost, entries.", len(journal["losses"]), ""),
        ("dead_letters", "counter", "Messages that came and are of no use.", letters["came"], ""),
        ("dead_letters_dropped", "counter", "Those not kept.", letters["dropped"], ""),
        ("dead_letters_kept", "gauge", "Those kept.", letters["kept"], ""),
        (
            "confirmations_refused",
            "counter",
            "Confirmations of another item than ours.",
            status["confirmationsRefused"],
            "",
        ),
        (
            "clock_trusted",
            "gauge",
            "1 if the clock is trusted, 0 if not.",
            status["clock"]["trusted"],
            "",
        ),
    ):
        yield Family(name, kind, about, [Sample(value)], unit)
    samples = [Sample(times, {"part": part}) for part, times in faults.items()]
    yield Family("faults", "counter", "Failures by a mistake of ours, by part.", samples)


def _channels(channels: Mapping[str, Mapping[str, Any]]) -> Iterator[Family]:
    for name, member, about, unit in (
        ("configured", "configured", "1 if the channel is configured.", ""),
        ("queued_packages", "queued", "Packages that wait on it.", ""),
        ("signal_bars", "signal", "Signal, 0 to 5; absent while unknown.", "bars"),
        ("sent_today_bytes", "bytesToday", "Sent since midnight UTC.", "bytes"),
        ("credits_today", "creditsToday", "Spent since midnight UTC.", ""),
        (
            "credits_in_doubt_today",
            "creditsInDoubtToday",
            "Beside these, may have been paid: copies of what may have left.",
            "",
        ),
        ("credits_per_day", "creditsPerDay", "The budget; absent where there is none.", ""),
        (
            "air_time_left_seconds",
            "airTimeLeft",
            "That the radio may still be on the air in this hour.",
            "seconds",
        ),
        ("last_success_timestamp_seconds", "lastSuccess", "The last transmission.", "seconds"),
    ):
        samples = [
            Sample(channel[member], {"channel": each})
            for each, channel in channels.items()
            if channel.get(member) is not None
        ]
        yield Family(name, "gauge", about, samples, unit)
    steps = [
        Sample(channel["healingSteps"], {"channel": each})
        for each, channel in channels.items()
        if "healingSteps" in channel
    ]
    yield Family("healing_steps", "counter", "Steps to bring a silent modem back.", steps)
    states = [
        Sample(
            state.value == link["state"], {"channel": each, "fieldagent_link_state": state.value}
        )
        for each, link in channels.items()
        if link["configured"]
        for state in LinkState
    ]
    yield Family("link_state", "stateset", "What the channel is doing.", states)


def _people(mesh: Mapping[str, Any] | None) -> Iterator[Family]:
    """Yield the metrics of people's radio frames; none unless its radio hears all stations on a
    frequency.
    """
    if mesh is None or not mesh["frames"]:
        return
    samples = [Sample(count, {"result": result}) for result, count in mesh["frames"].items()]
    about = "Frames of a people's radio: taken, or dropped and why."
    yield Family("people_frames", "counter", about, samples)


def _counted(journal: Journal) -> Iterator[Family]:
    ended = [
        Sample(count, {"channel": channel, "status": status})
        for channel, status, count in tally.ended(journal)
    ]
    yield Family("packages_ended", "counter", "Packages by how they ended on a channel.", ended)
    hooks = [
        Sample(count, {"hook": hook, "result": result})
        for hook, result, count in tally.hook_results(journal)
    ]
    yield Family("hook_results", "counter", "Calls of a hook: handed, again, dead.", hooks)
    spent = tally.spent(journal)
    yield Family(
        "sent_bytes",
        "counter",
        "Sent since the journal began.",
        [Sample(each.bytes, {"channel": channel}) for channel, each in spent.items()],
        "bytes",
    )
    cost = [Sample(each.credits, {"channel": channel}) for channel, each in spent.items()]
    yield Family("credits", "counter", "Spent since the journal began.", cost)
    doubtful = [Sample(each.doubtful, {"channel": channel}) for channel, each in spent.items()]
    yield Family("credits_doubtful", "counter", "Beside these, may have been paid.", doubtful)
    yield Family(
        "delivery_latency_seconds",
        "histogram",
        "From accepted to delivered.",
        list(_latencies(journal)),
        "seconds",
    )


def _latencies(journal: Journal) -> Iterator[Sample]:
    for channel, latency in tally.latencies(journal).items():
        label, below = {"channel": channel}, 0
        for bound in tally.BOUNDS:
            below += latency.counts.get(bound, 0)
            yield Sample(below, {**label, "le": f"{bound:.1f}"}, "_bucket")
        count = sum(latency.counts.values())
        yield Sample(count, {**label, "le": "+Inf"}, "_bucket")
        yield Sample(count, label, "_count")
        yield Sample(round(latency.seconds, 3), label, "_sum")
