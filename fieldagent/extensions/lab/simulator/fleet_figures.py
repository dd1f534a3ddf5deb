"""Counters of a fleet of emulated kits, and the report about them. Pure functions."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.wording import format_count

REASONS_MAX = 20
"""Largest number of different reasons that are counted separately."""


class ReasonCounts(Counter[str]):
    """Counts of the reasons for an event. After the first `REASONS_MAX` reasons, all further
    reasons are counted together.
    """

    def __setitem__(self, reason: str, times: int) -> None:
        if reason not in self and len(self) >= REASONS_MAX:
            reason, times = "other reasons", self["other reasons"] + 1
        super().__setitem__(reason, times)


@dataclass(slots=True)
class FleetFigures:
    open: int = 0
    most_open: int = 0
    opened: int = 0
    """Number of links that were opened."""
    refused: ReasonCounts = field(default_factory=ReasonCounts)
    """Failed connection attempts, by reason."""
    lost: ReasonCounts = field(default_factory=ReasonCounts)
    given_up: int = 0
    """Number of kits that the hub refuses permanently."""
    sent: int = 0
    """Number of different items that were sent."""
    sent_again: int = 0
    confirmed: int = 0
    delays: array[float] = field(default_factory=lambda: array("f"))
    """Seconds from the creation of each item to its confirmation."""
    received: Counter[str] = field(default_factory=Counter)
    """Contents that the hub has sent, by kind."""
    messages: int = 0
    received_bytes: int = 0

    def open_one(self) -> None:
        """Count an opened link. When the link ends, the caller decreases `open`."""
        self.open += 1
        self.opened += 1
        self.most_open = max(self.most_open, self.open)

    def confirm(self, due: Iterable[float], now: float) -> None:
        """Count items that were confirmed at `now`. `due` contains the times when the items were
        created, on the same clock.
        """
        for each in due:
            self.delays.append(now - each)
            self.confirmed += 1

    def count_message(self, size: int, kinds: Iterable[str]) -> None:
        """Count a message from the hub. `size` is in bytes. `kinds` are the kinds of its
        contents.
        """
        self.messages += 1
        self.received_bytes += size
        self.received.update(kinds)


@dataclass(frozen=True, slots=True)
class FleetCost:
    """Resources that this program used."""

    seconds: float
    processor: float
    """Processor time in seconds."""
    memory: int
    """Bytes of memory while all links are open."""
    memory_before: int
    """Bytes of memory before the first link was opened."""


def compute_percentile(ordered: array[float], share: float) -> float | None:
    """Return the value at the fraction `share` of the sorted values, for example the median at 0.5.
    Return None if there are no values.
    """
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(figures: FleetFigures, kits: int, waiting: int, cost: FleetCost) -> dict[str, Any]:
    """Return all figures in a form for JSON. Times are in seconds."""
    ordered = array("f", sorted(figures.delays))
    each = (cost.memory - cost.memory_before) / figures.most_open if figures.most_open else 0.0
    return {
        "kits": kits,
        "seconds": round(cost.seconds, 1),
        "links": {
            "open": figures.open,
            "mostOpen": figures.most_open,
            "opened": figures.opened,
            "refused": dict(figures.refused.most_common()),
            "lost": dict(figures.lost.most_common()),
            "givenUp": figures.given_up,
        },
        "items": {
            "sent": figures.sent,
            "sentAgain": figures.sent_again,
            "confirmed": figures.confirmed,
            "unconfirmed": figures.sent - figures.confirmed,
            "notSent": waiting,
        },
        "confirmedAfter": {
            "median": _round(compute_percentile(ordered, 0.5)),
            "p95": _round(compute_percentile(ordered, 0.95)),
            "worst": _round(compute_percentile(ordered, 1.0)),
        },
        "cameDown": {
            "messages": figures.messages,
            "bytes": figures.received_bytes,
            "kinds": dict(figures.received.most_common()),
        },
        "tool": {
            "memoryBytes": cost.memory,
            "memoryPerKitBytes": max(0, round(each)),
            "processorSeconds": round(cost.processor, 1),
        },
    }


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def is_as_expected(figures: dict[str, Any]) -> bool:
    """Return True if each kit has its link at the end and each position is confirmed."""
    links, items = figures["links"], figures["items"]
    return links["open"] == figures["kits"] and not items["unconfirmed"] and not items["notSent"]


def format_lines(figures: dict[str, Any]) -> list[str]:
    """Return the result of `report` as lines of text: links, items, delays, and the cost of this
    program.
    """
    links, items, tool = figures["links"], figures["items"], figures["tool"]
    after, down_latency = figures["confirmedAfter"], figures["cameDown"]
    text = [
        f"links: {links['open']} of {figures['kits']} open at the end, {links['mostOpen']} at most;"
        f" opened {format_count(links['opened'], 'time')}",
        *(f"  refused {times} x: {reason}" for reason, times in links["refused"].items()),
        *(f"  lost {times} x: {reason}" for reason, times in links["lost"].items()),
        f"items: {items['sent']} sent, {items['confirmed']} confirmed, {items['unconfirmed']} sent"
        f" and not confirmed, {items['notSent']} not sent; {items['sentAgain']} sent again",
    ]
    if after["worst"] is not None:
        text.append(
            f"confirmed after: median {after['median']:g} s, 95 % {after['p95']:g} s, worst"
            f" {after['worst']:g} s, from the making of an item"
        )
    kinds = ", ".join(f"{times} {kind}" for kind, times in down_latency["kinds"].items())
    text.append(
        f"came down: {format_count(down_latency['messages'], 'message')},"
        f" {format_count(down_latency['bytes'], 'byte')}" + (f": {kinds}" if kinds else "")
    )
    memory, for_each = tool["memoryBytes"] / 2**20, tool["memoryPerKitBytes"] / 1024
    text.append(
        f"this program: {memory:.0f} MiB of memory, {for_each:.0f} KiB for each kit;"
        f" {tool['processorSeconds']:g} s of a processor in {figures['seconds']:g} s"
    )
    return [*text, *figures["advice"]]
