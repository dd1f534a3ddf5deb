"""Metrics of the kit's radio for handhelds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fieldagent.http.openmetrics import Family, Sample


def list_families(mesh: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the metrics of the radio. `mesh` is the radio's member in the response to `GET
    /api/status`. There are metrics only if the radio hears all stations on a frequency.
    """
    if mesh["frames"]:
        samples = [Sample(count, {"result": result}) for result, count in mesh["frames"].items()]
        help_text = "Frames of the people's radio, by result."
        yield Family("people_frames", "counter", help_text, samples)
