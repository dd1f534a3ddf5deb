"""Counters and histograms of one hub process since its start. Each label has only a few values."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from itertools import accumulate

from fieldagent.http.openmetrics import Family, Sample
from fieldagent.hub.operator.registry import get_operator_places
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.webhook.delivery import HandoverOutcome
from fieldagent.wire.outcome import Outcome

BUCKET_BOUNDS_S = (0.01, 0.05, 0.25, 1.0, 5.0, 30.0)
"""Upper bounds of the histogram buckets in seconds."""

COUNTER_TEXTS = {
    "refusals": "Refused calls, by reason.",
    "webhook_posts": "Posts to webhooks, by result.",
    "operator_calls": "Calls to satellite operators with MT messages, by result.",
    "carried_bytes": "Bytes of envelopes to and from kits.",
    "bridge_events": "Events from a bridge's server, by result.",
}
HISTOGRAM_TEXTS = {
    "call_seconds": "Time from the head of a call to its answer.",
    "webhook_seconds": "Duration of a post to a webhook.",
}

INITIAL_SERIES = {
    "refusals": [
        {"call": call, "reason": reason}
        for call in ("push", "link")
        for reason in ("credentials", "too often")
    ],
    "webhook_posts": [{"result": outcome.value} for outcome in HandoverOutcome],
    "operator_calls": [
        {"operator": operator, "result": outcome.value}
        for operator in get_operator_places()
        for outcome in Outcome
    ],
}
"""Series that start at 0. An alert rule cannot detect an increase of a series that did not exist
before."""

_Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_BOUNDS_S) + 1))
    seconds: float = 0.0


class Figures:
    def __init__(self) -> None:
        self._counts: dict[str, Counter[_Labels]] = {name: Counter() for name in COUNTER_TEXTS}
        for name, labelled in INITIAL_SERIES.items():
            for labels in labelled:
                self.count(name, 0, **labels)
        self._times: dict[str, dict[_Labels, _Histogram]] = {name: {} for name in HISTOGRAM_TEXTS}

        self.bridged: set[str] = set()
        """Bridges that are connected to their servers."""

    def count(self, name: str, by: int = 1, **labels: str) -> None:
        """Increase a counter of `/metrics`, which its name and labels identify."""
        self._counts[name][tuple(labels.items())] += by

    def measure(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration in seconds to a histogram of `/metrics`."""
        histogram = self._times[name].setdefault(tuple(labels.items()), _Histogram())
        histogram.counts[bisect_left(BUCKET_BOUNDS_S, seconds)] += 1
        histogram.seconds += seconds

    def list_families(self) -> Iterator[Family]:
        """Yield the counters and histograms as OpenMetrics families."""
        for name, help_text in COUNTER_TEXTS.items():
            samples = [Sample(count, dict(key)) for key, count in self._counts[name].items()]
            yield Family(name, "counter", help_text, samples, "bytes" if "bytes" in name else "")
        for name, help_text in HISTOGRAM_TEXTS.items():
            times = [
                each
                for key, histogram in self._times[name].items()
                for each in _list_rows(key, histogram)
            ]
            yield Family(name, "histogram", help_text, times, "seconds")


def _list_rows(key: _Labels, histogram: _Histogram) -> Iterator[Sample]:
    labels = dict(key)
    for bound, below in zip((*BUCKET_BOUNDS_S, "+Inf"), accumulate(histogram.counts), strict=True):
        yield Sample(below, {**labels, "le": str(bound)}, "_bucket")
    yield Sample(sum(histogram.counts), labels, "_count")
    yield Sample(round(histogram.seconds, 3), labels, "_sum")
