"""Metrics of the kit's MQTT broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fieldagent.agent.channels.contract import LinkState
from fieldagent.http.openmetrics import Family, Sample


def list_families(mqtt: Mapping[str, Any]) -> Iterator[Family]:
    """Yield the metrics of the broker. `mqtt` is the broker's member in the response to `GET
    /api/status`.
    """
    linked = Sample(mqtt["state"] == LinkState.READY.value)
    yield Family("mqtt_linked", "gauge", "1 if the broker is connected, else 0.", [linked])
    waiting = Sample(mqtt["inboundWaiting"])
    yield Family("mqtt_waiting", "gauge", "Payloads that wait for the broker.", [waiting])
    samples = [Sample(count, {"result": result}) for result, count in mqtt["commands"].items()]
    help_text = "Commands over MQTT by result: taken, refused, or dropped unread."
    yield Family("mqtt_commands", "counter", help_text, samples)
