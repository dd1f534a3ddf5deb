"""Every benchmark in one table: `python -m tests.bench`. Ratios of one run, with their goals."""

from __future__ import annotations

from datetime import UTC, datetime

from fieldagent.package.package import Data, Item, Location, Message, Waypoint
from fieldagent.wire.credit import CREDIT_BYTES, credits_for
from fieldagent.wire.envelope import Entry, encode
from fieldagent.wire.sbd import MO_BYTES
from tests.bench.consoles import main as consoles
from tests.bench.crowd import unanswered
from tests.bench.inbound import main as inbound
from tests.bench.kit_at_rest import main as kit_at_rest
from tests.bench.large_hub import main as large_hub
from tests.bench.links import main as links
from tests.bench.long_queue import long_queue
from tests.bench.post import main as post
from tests.bench.process import main as process
from tests.bench.pushes import main as pushes
from tests.bench.queue import ratio as queue_ratio
from tests.bench.satellite_modems import main as satellite_modems
from tests.bench.silent_links import main as silent_links
from tests.bench.table import row
from tests.bench.team import main as team
from tests.bench.webhooks import main as webhooks
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
    row("text on air over UTF-8, held-out messages", 1 - saved / utf8, "<= 0.65")
    row(f"  credits of {len(said)} of them; {plain} where plain", packed, "<= 43")
    for what, room, goal in (("satellite message", MO_BYTES, 60), ("credit", CREDIT_BYTES, 8)):
        least = min(fitting(way, room, seed) for way in WAYS for seed in range(5))
        row(f"positions (time, 1.1 m) in one {what}", least, f">= {goal}")


def main() -> None:
    post()
    for what, count in zip(("agent", "hub"), unanswered(), strict=True):
        row(f"callers of 512 at once that the {what} left unanswered", count, "<= 0")
    row("queue over a bare tuple heap, 100 000", queue_ratio(), ">= 0.5")
    process()
    kit_at_rest()
    waiting = long_queue()
    row("start to listening with 100 000 waiting, over with none", waiting.start, "<= 1.3")
    row("  the same after a kill, with the look through the journal", waiting.killed, "<= 1.6")
    row("  memory for each of them", waiting.memory, "<= 0.3", "KiB")
    row("  CPU for a list of 50 of them", waiting.lists, "<= 5", "ms")
    row("  SOS accepted with the page open, over closed", waiting.sos, "<= 1.2")
    row("  health at worst while those were cleared", waiting.held, "<= 0.05", "s")
    pushes()
    inbound()
    webhooks()
    silent_links()
    consoles()
    large_hub()
    links()
    print("\na team on one air, in virtual time")
    team()
    on_air()
    satellite_modems()
    print("\nbytes on air, with envelope (first of a message; 50 bytes are a credit)")
    for what, item in SAMPLES.items():
        print(f"{what:<62} {len(encode([Entry(1234, item, TIME)])):>7}")


if __name__ == "__main__":
    main()
