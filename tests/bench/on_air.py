"""Measures bytes over satellite: texts, positions, and their overhead. The texts were not used to
build the code's tables, because such texts would compress better. Tracks are regular, which is the
cheap case, and irregular.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fieldagent.package.package import Data, Item, Location, Message, Waypoint
from fieldagent.wire.credit import CREDIT_BYTES, compute_credits
from fieldagent.wire.envelope import Entry, derive_key, encode
from fieldagent.wire.sbd import MO_BYTES
from fieldagent.wire.text_code import pack
from tests.bench.table import row
from tests.wire.field_messages import FIELD_MESSAGES
from tests.wire.test_track import WAYS, fitting

NUMBER, TIME = 50_000_000, 1_790_000_000
"""Sequence number and Unix time that take the usual number of bytes."""
MOMENT = datetime.fromtimestamp(TIME, UTC)
TEXT = "Weg gesperrt, kehren um. ETA 17:30"
SAMPLES: dict[str, Item] = {
    "message of 12 characters": Message("Camp reached"),
    "location, all members": Location(47.3769123, -122.1234567, MOMENT, 1408, 27.9, 278),
    "location, position and time": Location(47.3769123, -122.1234567, MOMENT),
    "waypoint, name of 3": Waypoint(46.5, 7.25, "Hut", MOMENT),
    "data of 12 bytes": Data(bytes(12)),
}


def main() -> None:
    """Print the rows."""
    texts()
    around()
    positions()
    for what, item in SAMPLES.items():
        row(f"{what}, in a message of its own", size(Entry(NUMBER, item, TIME)), "", "B")


def size(*entries: Entry, key: bytes | None = None, packed: bool = True) -> int:
    return len(encode(entries, key=key, is_packed=packed))


def texts() -> None:
    """Print the sizes of held-out messages in five languages."""
    said = [Entry(NUMBER, Message(t), TIME) for each in FIELD_MESSAGES.values() for t in each]
    written = [pack(e.content.content) for e in said if isinstance(e.content, Message)]
    plain = [len(e.content.content.encode()) for e in said if isinstance(e.content, Message)]
    sizes = [len(t if isinstance(t, bytes) else t.encode()) for t in written]
    row("text on air over UTF-8, held-out messages", sum(sizes) / sum(plain), "<= 0.65")
    many = sum(compute_credits(size(each, packed=False)) for each in said)
    few = sum(compute_credits(size(each)) for each in said)
    row(f"  credits of {len(said)} of them; {many} where plain", few, "<= 43")


def around() -> None:
    """Print the overhead of a message."""
    text = len(pack(TEXT))
    first = Entry(NUMBER, Message(TEXT), TIME)
    alone = size(first)
    row("a message over satellite, bytes over its text", alone - text, "<= 12", "B")
    tagged = size(first, key=derive_key(bytes(32), "MO"))
    row("  a tag", tagged - alone, "<= 8", "B")
    for what, later in (("a minute", 60), ("an hour", 3_600), ("12 hours", 43_200)):
        both = size(first, Entry(NUMBER + 1, Message(TEXT), TIME + later))
        row(f"  the next one, {what} later", both - alone - text, "<= 6", "B")


def positions() -> None:
    """Print the number of positions that fit, in the middle of five tracks of each kind:
    docs/how-to/satellite.md.
    """
    for way in WAYS:
        for full, irregular, what in (
            (False, False, "time and place"),
            (False, True, "the same, irregular"),
            (True, False, "with altitude, speed, course"),
            (True, True, "the same, irregular and mixed"),
        ):
            for room in (MO_BYTES, CREDIT_BYTES):
                fit = fitting(way, room, full=full, irregular=irregular)
                goal = "" if irregular else GOALS[full, room]
                row(f"positions in {room} bytes, {way}, {what}", fit, goal)


GOALS = {
    (False, MO_BYTES): ">= 60",
    (False, CREDIT_BYTES): ">= 8",
    (True, MO_BYTES): ">= 45",
    (True, CREDIT_BYTES): ">= 5",
}
"""Goals, by whether a position has all members, and by the available bytes."""


if __name__ == "__main__":
    main()
