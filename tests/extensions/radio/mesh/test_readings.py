"""Read receipts on any air: each arrives and is answered, and none circulates."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fieldagent.agent.journal.inbound import PendingStationStage
from fieldagent.extensions.radio.mesh.read_receipts import OWN_PACKETS_MAX, Readings
from fieldagent.package.delivery import Stage
from fieldagent.wire.envelope import Entry, Receipt

SENDER = 1
HOPS = 3
RECEIPT = PendingStationStage(
    SENDER, 9, Stage.READ, "Ben", 1_790_000_000, b"item", wants_receipt=True
)


@dataclass
class Air:
    """Stations that hear each other along `edges`. The first transmissions may be `lost`."""

    edges: frozenset[tuple[int, int]]
    lost: list[bool]
    seed: int
    now: float = 0.0
    came: int = 0
    """Number of arrivals of the receipt at its addressee."""
    sent: int = 0
    stations: dict[int, Readings] = field(init=False)

    def __post_init__(self) -> None:
        numbers = {number for edge in self.edges for number in edge}
        self.stations = {number: self.new(number) for number in sorted(numbers)}

    def new(self, number: int) -> Readings:
        random = Random(self.seed + number).random
        return Readings(number, text_bytes=40, hops=HOPS, random=random)

    def run(self, until: float) -> None:
        while True:
            for number, each in self.stations.items():
                if each.is_due(self.now):
                    self._transmit(number, each)
            after = min(each.compute_next_due(self.now) for each in self.stations.values())
            if after > until or after == inf:
                break
            self.now = after
        self.now = until

    def _transmit(self, number: int, each: Readings) -> None:
        self.sent += 1
        for word in each.list_to_send(self.now, has_other_content=False):
            each.mark_sent(word, self.now)
            for one, other in self.edges:
                if number in (one, other) and not (self.lost and self.lost.pop()):
                    hears = other if number == one else one
                    self._hear(hears, word.origin, word.entry, number, word.hops + 1)

    def _hear(self, station: int, origin: int, entry: Entry, sender: int, hops: int) -> None:
        hears, said = self.stations[station], entry.content
        assert isinstance(said, Receipt)
        assert hops <= HOPS
        is_answer = said.stage is Stage.STORED
        if origin == station:
            return
        if is_answer and said.by == station:
            if hears.find_answered(origin, entry) is not None:
                hears.replace_own_receipts([], self.now)
        elif is_answer:
            hears.process_answer(origin, entry, sender, hops, self.now, crowd=3)
        elif said.by == station:
            self.came += 1
            hears.answer(origin, entry, self.now, is_answer_asked=True)
        else:
            hears.process_receipt(
                origin, entry, sender, hops, self.now, crowd=3, is_answer_asked=True
            )


LINES = st.integers(2, HOPS + 1).map(lambda last: {(n, n + 1) for n in range(1, last)})
MORE = st.sets(st.tuples(st.integers(1, 6), st.integers(1, 6)).filter(lambda e: e[0] < e[1]))


@settings(max_examples=200, deadline=None)
@given(
    LINES,
    MORE,
    st.lists(st.booleans(), max_size=OWN_PACKETS_MAX - 1),
    st.integers(0, 999),
    st.booleans(),
)
def test_read_receipt_arrives_is_confirmed_and_traffic_ends(
    line: set[tuple[int, int]],
    more: set[tuple[int, int]],
    lost: list[bool],
    seed: int,
    restarts: bool,
) -> None:
    # If all transmissions of a lonely sender were lost, nothing could come.
    reader = max(other for _, other in line)
    air = Air(frozenset(line | more), lost, seed)
    air.stations[reader].replace_own_receipts([RECEIPT], 0.0)
    if restarts:
        air.run(20.0)
        for number in air.stations:
            air.stations[number] = air.new(number)
        air.stations[reader].replace_own_receipts([RECEIPT], air.now)
    air.run(86_400.0)
    assert air.came
    assert air.stations[reader].list_to_send(inf, has_other_content=True) == []
    # For each transmission of the sender, each station sends the receipt and its answer at most
    # once.
    assert air.sent <= 2 * OWN_PACKETS_MAX * 2 * len(air.stations)
    before = air.sent
    air.run(7 * 86_400.0)
    assert air.sent == before


@given(MORE.filter(bool), st.integers(0, 999))
def test_unconfirmed_read_receipt_ends_after_limited_packets(
    more: set[tuple[int, int]], seed: int
) -> None:
    """The addressee of the receipt is away."""
    edges = frozenset((one + 1, other + 1) for one, other in more)
    air = Air(edges, [], seed)
    reader = min(air.stations)
    air.stations[reader].replace_own_receipts([RECEIPT], 0.0)
    air.run(7 * 86_400.0)
    assert air.came == 0
    assert OWN_PACKETS_MAX <= air.sent <= OWN_PACKETS_MAX * len(air.stations)
