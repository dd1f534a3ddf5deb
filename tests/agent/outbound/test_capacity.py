"""Items fit the packets of a radio, including small packets."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fieldagent.agent.channels.air_pace import AIR_BYTES_MAX, AIR_BYTES_MIN
from fieldagent.agent.outbound.channel_limits import Capacity, TooLarge
from fieldagent.package.package import Data, Location, Message
from fieldagent.wire.envelope import Ack, Entry, Fragment, RelayRequest, Source, decode, encode
from fieldagent.wire.fragments import join

KEY = bytes(32)
STATION, NUMBER, TIME = 7, 50_000_000, 1_790_000_000
FIX = Location(47.3769123, -122.1234567, datetime.fromtimestamp(TIME, UTC), 1408.0, 27.9, 278.0)
ITEMS = {
    "SOS message of 27 bytes": Entry(NUMBER, Message("Leg broken"), TIME, sos=True),
    "position with altitude, speed and course": Entry(NUMBER, FIX, TIME),
    "message of 160 characters": Entry(NUMBER, Message("x" * 160), TIME),
}
TABLE = re.compile(r"^\| packets for (.+) \|$", re.M)


def packets(capacity: Capacity, entry: Entry, origin: int = STATION) -> list[Entry]:
    if len(encode([entry])) <= capacity.compute_whole(origin):
        return [entry]
    return [Entry(entry.sequence, part) for part in capacity.cut_into_fragments(entry, origin)]


def test_packet_counts_match_table_in_radio_guide() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/radio.md").read_text()
    head, *rows = [row.split(" | ") for row in TABLE.findall(text)]
    sizes = [int(cell.removesuffix(" bytes")) for cell in head[1:]]
    assert (head[0], sizes) == ("…", [51, 64, 100, 200, 250])
    assert [name for name, *_ in rows] == list(ITEMS)
    for name, *cells in rows:
        item = ITEMS[name]
        counts = [
            f"{len(packets(Capacity(size, False, True), item))}, "
            f"{len(packets(Capacity(size, True, True), item))}"
            for size in sizes
        ]
        assert cells == counts, name


numbers = st.one_of(st.integers(1, 30), st.integers(1, 2**32 - 1))


@given(
    st.integers(AIR_BYTES_MIN, AIR_BYTES_MAX),
    st.booleans(),
    numbers,
    numbers,
    st.binary(max_size=1200),
)
def test_every_packet_fits_with_accompanying_entries(
    size: int, tagged: bool, origin: int, sequence: int, payload: bytes
) -> None:
    """A station that repeats the item has a number of the same length. The fragments join to the
    same item.
    """
    entry, key = Entry(sequence, Data(payload), TIME), KEY if tagged else None
    parts = packets(Capacity(size, tagged, shared=True), entry, origin)
    beside = [Entry(0, RelayRequest(origin)), Entry(0, Source(origin, 2))]
    for part in parts:
        assert len(encode([part, *beside], origin=origin, key=key)) <= size
    if len(parts) > 1:
        slices = {
            e.content.index: e.content.payload for e in parts if isinstance(e.content, Fragment)
        }
        assert decode(join(slices)).entries == (entry,)
        count, everything = len(slices), frozenset(range(len(slices)))
        ack = Entry(sequence, Ack(origin, count, everything, digest=bytes(4)))
        assert len(encode([ack], origin=2**32 - 1, key=key)) <= size


@pytest.mark.parametrize("tagged", [False, True])
def test_item_with_too_many_fragments_is_rejected(tagged: bool) -> None:
    capacity = Capacity(51, tagged, shared=True)
    with pytest.raises(TooLarge, match="20019 bytes are too many for packets of 51 bytes"):
        capacity.cut_into_fragments(Entry(NUMBER, Data(bytes(20_000)), TIME), STATION)


@given(st.integers(0, 2**32 - 1), st.binary(min_size=300, max_size=400))
def test_relayed_item_is_sent_whole_only_if_origin_fits(origin: int, payload: bytes) -> None:
    """A station's number takes up to 5 bytes, and the peer's own takes one."""
    capacity, entry = Capacity(340, tagged=True), Entry(NUMBER, Data(payload), TIME)
    if len(encode([entry])) <= capacity.compute_whole(origin):
        assert len(encode([entry], origin=origin, key=KEY)) <= 340
