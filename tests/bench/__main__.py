"""Every benchmark in one table: `python -m tests.bench`. Ratios of one run, with their goals."""

from __future__ import annotations

from datetime import UTC, datetime

from fieldagent.package.package import Data, Item, Location, Message, Waypoint
from fieldagent.wire.credit import CREDIT_BYTES, credits_for
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.sbd import MO_BYTES
from tests.bench.consoles import main as consoles
from tests.bench.crowd import unanswered
from tests.bench.durable import durable
from tests.bench.http import ratio as http_ratio
from tests.bench.hub import main as hub
from tests.bench.large_hub import main as large_hub
from tests.bench.links import main as links
from tests.bench.long_queue import long_queue
from tests.bench.process import memory_ratio, start_ratio, zipapp_ratio
from tests.bench.queue import ratio as queue_ratio
from tests.bench.team import main as team
from tests.processes import ZIPAPP
from tests.wire.field_messages import FIELD_MESSAGES
from tests.wire.test_track import WAYS, fitting

TIME = 1_790_000_000
MOMENT = datetime.fromtimestamp(TIME, UTC)
SAMPLES: dict[str, Item] = {
    "message of 12 characters": Message("Camp reached"),
    "location, all members": Location(47.3769123, -122.1234567, MOMENT, 1408, 27.9, 278),
    "location, position and time": Location(47.3769123, -122.1234567, MOMENT),
    "waypoint, name of 3": Waypoint(46.5, 7.25, "Hut", MOMENT),
    "data of 12 bytes": Data(bytes(12)),
}


def on_air() -> None:
    """Held-out messages in five languages, and tracks, as a kit sends them over satellite."""
    said = [text for texts in FIELD_MESSAGES.values() for text in texts]
    sizes = [
        [len(encode([Entry(50_000_000, Message(text), TIME)], packed=packed)) for text in said]
        for packed in (False, True)
    ]
    plain, packed = (sum(map(credits_for, each)) for each in sizes)
    saved = sum(sizes[0]) - sum(sizes[1])
    utf8 = sum(len(text.encode()) for text in said)
    ratio = 1 - saved / utf8
    row("text on air over UTF-8, held-out messages", ratio, "<= 0.65", ratio <= 0.65)
    row(f"  credits of {len(said)} of them, over plain", packed / plain, "<= 0.8", packed <= 43)
    for what, room, goal in (("satellite message", MO_BYTES, 60), ("credit", CREDIT_BYTES, 8)):
        least = min(fitting(way, room, seed) for way in WAYS for seed in range(5))
        row(f"positions (time, 1.1 m) in one {what}", least, f">= {goal}", least >= goal)


def row(what: str, value: float, goal: str, met: bool) -> None:
    print(f"{what:<62} {value:>7.3f}   {goal:<14} {'met' if met else 'NOT MET'}", flush=True)


def main() -> None:
    speed = http_ratio()
    row("POST throughput over uvicorn with h11, no journal", speed, ">= 0.9", speed >= 0.9)
    disk = durable()
    row("POST throughput over uvicorn with h11, durable", disk.ratio, ">= 0.6", disk.ratio >= 0.6)
    row(
        "commits per accepted Package, 16 connections",
        disk.commits,
        "<= 1/8",
        disk.commits <= 1 / 8,
    )
    for what, count in zip(("agent", "hub"), unanswered(), strict=True):
        row(f"callers of 512 at once that the {what} left unanswered", count, "0", count == 0)
    queue = queue_ratio()
    row("queue over a bare tuple heap, 100 000", queue, ">= 0.5", queue >= 0.5)
    memory = memory_ratio()
    row("idle memory over a bare trio and h11 server", memory, "<= 1.4", memory <= 1.4)
    start = start_ratio()
    row("start to listening over import trio", start, "<= 1.6", start <= 1.6)
    waiting = long_queue()
    row(
        "start to listening with 100 000 waiting, over with none",
        waiting.start,
        "<= 1.3",
        waiting.start <= 1.3,
    )
    row(
        "  the same after a kill, with the look through the journal",
        waiting.killed,
        "<= 1.6",
        waiting.killed <= 1.6,
    )
    row("  memory for each of them, KiB", waiting.memory, "<= 0.3", waiting.memory <= 0.3)
    row("  CPU for a list of 50 of them, ms", waiting.lists, "<= 5", waiting.lists <= 5)
    row("  SOS accepted with the page open, over closed", waiting.sos, "<= 1.2", waiting.sos <= 1.2)
    row(
        "seconds that health took at worst while those were cleared",
        waiting.held,
        "<= 0.05",
        waiting.held <= 0.05,
    )
    if ZIPAPP.exists():
        packed = zipapp_ratio(ZIPAPP)
        row("start of the zipapp over the installed package", packed, "<= 1.3", packed <= 1.3)
    hub()
    consoles()
    large_hub()
    links()
    print("\na team on one air, in virtual time")
    team()
    on_air()
    print("\nbytes on air, with envelope (first of a message; 50 bytes are a credit)")
    for what, item in SAMPLES.items():
        print(f"{what:<62} {len(encode([Entry(1234, item, TIME)])):>7}")


if __name__ == "__main__":
    main()
