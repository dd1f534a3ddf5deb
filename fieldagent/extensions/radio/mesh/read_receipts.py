"""Receipts between stations on the air, which show the stage of an item at its receiver. This
module decides when to send the receipts and their answers. Pure.

A receipt shows that the item is with the programs of the receipt's sender, is on a person's
handheld radio, or was read by a person. The item's station *answers* that the receipt has arrived.

| of | entry | beside another entry | in its own packet, if requested | repeated |
|---|---|---|---|---|
| us | a receipt | at once | after 5 to 15 s | unanswered: after 30 s, doubling to an hour |
| us | an answer | at once | within 2 s | each time that the receipt comes |
| another | a receipt | after 3 s; not requested: 60 s | after 3 to 7 s or more | the same |
| another | its answer | at once | within 2 s or more | the same |

A station that has passed a receipt on passes its answer back, and from then on sends the answer
instead of the receipt. If an entry arrives over more kits than the same entry did recently, it is
an echo and is not passed on. So loops are impossible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from math import inf

from fieldagent.agent.channels.air_pace import draw_backoff
from fieldagent.agent.journal.inbound import PendingStationStage
from fieldagent.package.delivery import Stage
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.envelope import Entry, Receipt, compute_item_digest

OWN_PACKET_DELAY_S = 5.0
"""Seconds, multiplied by a random factor from 1 to 3, for which a receipt waits for a packet with
other entries before it gets its own packet."""
AGAIN_FIRST, AGAIN_MAX = 30.0, 3600.0
"""Seconds between two repeats of a receipt: the first wait, which doubles, and the longest wait."""
OWN_PACKETS_MAX = 12
"""Maximum number of own packets for a receipt, sent in about six hours. After that, the receipt is
only sent with other entries, until the item's station is in range again."""
ANSWER_DELAY_MAX_S = 2.0
PASS_AFTER, PASS_WITHIN = 3.0, 4.0
"""Seconds before a receipt is passed on: a fixed time, in which the answer may arrive, and the
maximum of the random time that is added."""
COPIES_WITHIN_S = 12.0
"""Seconds within which copies of one transmission arrive over different stations. The next repeat
of a receipt comes later, after three quarters of AGAIN_FIRST at least."""
RIDE_DELAY_S = 60.0
"""Seconds before a receipt that was not requested may be sent with other entries. The answer to
such a receipt is also sent only with other entries."""
RELAYS_ENOUGH = 2
"""If we have heard this many other stations pass on a receipt, we do not pass it on."""
HOPS_RETENTION_S = 7200.0
"""Seconds for which the number of hops is remembered; longer than any wait between repeats."""
RIDING_RECEIPTS_MAX = 3
"""Maximum number of receipts that are sent in one packet with other entries."""
PASSED_MAX = 1000
"""Maximum number of receipts of other stations that are remembered; each takes about 1 kB."""


class ReadReceiptKey(NamedTuple):
    """Identifies a receipt by its sender, the station and number of the item, and a digest."""

    by: int
    """Station that sends the receipt."""
    station: int
    number: int
    digest: bytes
    """Digest of the receipt's entry, which distinguishes receipts for the same item."""


@dataclass(slots=True)
class ReadReceipt:
    """A receipt, or the answer to a receipt, sent by the station `origin`."""

    origin: int
    entry: Entry
    alone: bool
    """True if the receipt may get a packet of its own."""
    hops: int = 0
    """Number of radio transmissions over which the entry reached this kit. 0 for our own."""
    heard: float = -inf
    rides_from: float = inf
    """Time from which the entry may ride with other entries."""
    due_at: float = inf
    """Time when the receipt is sent in its own packet."""
    attempts: int = 0
    echoes: set[int] = field(default_factory=set)

    @property
    def is_answer(self) -> bool:
        """True if this is an answer: a receipt with the stage STORED."""
        assert isinstance(self.entry.content, Receipt)
        return self.entry.content.stage is Stage.STORED

    def schedule(self, ride_time: float, due_time: float) -> None:
        """Send the entry with other entries from `ride_time` on, or in its own packet at
        `due_time`.
        """
        self.rides_from, self.due_at = ride_time, due_time if self.alone else inf
        self.echoes.clear()

    def pause(self) -> None:
        """Do not send the entry until `schedule` is called again."""
        self.rides_from = self.due_at = inf

    def is_copy(self, hops: int, now: float) -> bool:
        """Return True if the same transmission has arrived over as many hops before. Then a reply
        to it is sent or scheduled already.
        """
        return hops == self.hops and now - self.heard < COPIES_WITHIN_S

    def record_arrival(self, hops: int, now: float) -> bool:
        """Record that the receipt arrived over `hops` transmissions. Return False if the receipt
        recently arrived over fewer transmissions.
        """
        if hops > self.hops and now - self.heard < HOPS_RETENTION_S:
            return False
        self.hops, self.heard = hops, now
        return True

    def record_echo(self, sender: int) -> None:
        """Record that the station `sender` sent the same entry. After RELAYS_ENOUGH such stations,
        we stop sending it.
        """
        self.echoes.add(sender)
        if len(self.echoes) >= RELAYS_ENOUGH:
            self.pause()


@dataclass(slots=True)
class _RelayedReceipt:
    """A receipt of another station, and its answer."""

    receipt: ReadReceipt
    answer: ReadReceipt | None = None
    is_answer_pending: bool = False
    """True if we have passed on the receipt, but not yet its answer."""


class Readings:
    """Receipts at one station, whose own number is `station`. Texts in receipts are cut to
    `text_bytes`. `hops` is the maximum number of transmissions to reach any station. `random`
    returns a number from 0 to 1. All times must be of the same clock.
    """

    def __init__(
        self, station: int, *, text_bytes: int, hops: int, random: Callable[[], float]
    ) -> None:
        self._station = station
        self._text_bytes = text_bytes
        self._hops = hops
        self._random = random
        self._own_receipts: dict[ReadReceiptKey, tuple[PendingStationStage, ReadReceipt]] = {}
        self._answers: dict[ReadReceiptKey, ReadReceipt] = {}
        self._relayed: dict[ReadReceiptKey, _RelayedReceipt] = {}

    def replace_own_receipts(
        self, pending_stages: Iterable[PendingStationStage], now: float
    ) -> None:
        """Replace our own receipts by those for `pending_stages`, which other stations have not
        received yet.
        """
        earlier, self._own_receipts = self._own_receipts, {}
        for each in pending_stages:
            text = each.text.encode()[: self._text_bytes].decode(errors="ignore")
            receipt = Receipt(each.station, each.digest, each.stage, text)
            entry = Entry(each.sequence, receipt, each.at)
            key = _make_key(self._station, entry)
            if key in earlier:
                self._own_receipts[key] = earlier[key]
                continue
            own_receipt = ReadReceipt(self._station, entry, each.wants_receipt)
            own_receipt.schedule(now, now + OWN_PACKET_DELAY_S * (1 + 2 * self._random()))
            self._own_receipts[key] = each, own_receipt

    def find_answered(self, station: int, answer: Entry) -> PendingStationStage | None:
        """Return the kit's own receipt that a received answer confirms, or None if the kit did not
        send such a receipt.
        """
        own_pair = self._own_receipts.get(_make_answer_key(station, answer))
        return None if own_pair is None else own_pair[0]

    def answer(self, station: int, entry: Entry, now: float, *, is_answer_asked: bool) -> None:
        """Answer a receipt of `station` for our item. The receipt must already be on disk."""
        key = _make_key(station, entry)
        answer_entry = Entry(entry.sequence, Receipt(station, key.digest), entry.time)
        answer_receipt = self._answers.setdefault(
            key, ReadReceipt(self._station, answer_entry, is_answer_asked)
        )
        answer_receipt.schedule(
            now, min(answer_receipt.due_at, now + ANSWER_DELAY_MAX_S * self._random())
        )

    def process_receipt(
        self,
        station: int,
        entry: Entry,
        sender: int,
        hops: int,
        now: float,
        *,
        crowd: int,
        is_answer_asked: bool,
    ) -> None:
        """Process a receipt of `station` for another station's item, transmitted by `sender`. Pass
        on the receipt, or its answer, if that may help.
        """
        key = _make_key(station, entry)
        relayed = self._relayed.pop(key, None) or _RelayedReceipt(
            ReadReceipt(station, entry, is_answer_asked, hops)
        )
        self._relayed[key] = relayed
        while len(self._relayed) > PASSED_MAX:
            del self._relayed[next(iter(self._relayed))]
        if relayed.receipt.is_copy(hops, now):
            return
        if not relayed.receipt.record_arrival(hops, now):
            relayed.receipt.record_echo(sender)
        elif relayed.answer is not None and relayed.answer.hops < self._hops:
            relayed.answer.schedule(now, now + self._spread(ANSWER_DELAY_MAX_S, crowd))
        elif relayed.answer is None and hops < self._hops:
            rides = now + (PASS_AFTER if is_answer_asked else RIDE_DELAY_S)
            relayed.receipt.schedule(rides, now + PASS_AFTER + self._spread(PASS_WITHIN, crowd))

    def process_answer(
        self, station: int, answer: Entry, sender: int, hops: int, now: float, *, crowd: int
    ) -> None:
        """Process an answer of `station` to another station's receipt, transmitted by `sender`.
        Stop sending the receipt, and pass on the answer if we passed on the receipt.
        """
        relayed = self._relayed.get(_make_answer_key(station, answer))
        if relayed is None:
            return
        relayed.receipt.pause()
        if relayed.answer is None:
            relayed.answer = ReadReceipt(station, answer, relayed.receipt.alone, hops)
        if not relayed.answer.record_arrival(hops, now):
            relayed.answer.record_echo(sender)
        elif relayed.is_answer_pending and hops < self._hops:
            relayed.is_answer_pending = False
            relayed.answer.schedule(now, now + self._spread(ANSWER_DELAY_MAX_S, crowd))

    def repeat_for_returned_station(self, station: int, now: float) -> None:
        """Send the receipts for the items of `station`, which is in range again and may have missed
        them. Send our other receipts with later packets, because the station may pass them on to
        stations out of our range.
        """
        for _, own_receipt in self._own_receipts.values():
            assert isinstance(own_receipt.entry.content, Receipt)
            if own_receipt.entry.content.by == station:
                own_receipt.attempts = 0
                own_receipt.schedule(now, now + OWN_PACKET_DELAY_S * (1 + 2 * self._random()))
            else:
                own_receipt.rides_from = min(own_receipt.rides_from, now)

    def is_due(self, now: float) -> bool:
        """Return True if an entry must be sent in its own packet now."""
        return any(receipt.due_at <= now for receipt in self._list_entries())

    def compute_next_due(self, now: float) -> float:
        """Return the next time after `now` when an entry must be sent in its own packet, or
        infinity if there is none.
        """
        return min(
            (receipt.due_at for receipt in self._list_entries() if receipt.due_at > now),
            default=inf,
        )

    def list_to_send(self, now: float, *, has_other_content: bool) -> list[ReadReceipt]:
        """Return the entries for the next packet. `has_other_content` is True if the packet also
        contains other entries.
        """
        if not (has_other_content or self.is_due(now)):
            return []
        due_receipts = [
            receipt
            for receipt in self._list_entries()
            if min(receipt.rides_from, receipt.due_at) <= now
        ]
        return due_receipts[:RIDING_RECEIPTS_MAX] if has_other_content else due_receipts

    def mark_sent(self, receipt: ReadReceipt, now: float) -> None:
        """Record that the entry was sent, and set the time of its next repeat."""
        receipt.pause()
        if receipt.origin == self._station:
            self._answers = {
                key: each for key, each in self._answers.items() if each is not receipt
            }
        for _, own_receipt in self._own_receipts.values():
            if own_receipt is receipt:
                pause = min(AGAIN_MAX, AGAIN_FIRST * 2 ** min(receipt.attempts, 10))
                rides = now + pause * (0.75 + 0.5 * self._random())
                receipt.attempts += 1
                alone = receipt.attempts < OWN_PACKETS_MAX
                receipt.schedule(rides, rides + OWN_PACKET_DELAY_S if alone else inf)
        for relayed in self._relayed.values():
            relayed.is_answer_pending |= relayed.receipt is receipt

    def _list_entries(self) -> Iterator[ReadReceipt]:
        relayed = self._relayed.values()
        yield from self._answers.values()
        yield from (each.answer for each in relayed if each.answer is not None)
        yield from (receipt for _, receipt in self._own_receipts.values())
        yield from (each.receipt for each in relayed)

    def _spread(self, limit_s: float, crowd: int) -> float:
        return draw_backoff(self._random(), max(limit_s, 0.5 * crowd), crowd)


def _make_key(station: int, entry: Entry) -> ReadReceiptKey:
    assert isinstance(entry.content, Receipt)
    return ReadReceiptKey(station, entry.content.by, entry.sequence, compute_item_digest(entry))


def _make_answer_key(station: int, answer: Entry) -> ReadReceiptKey:
    assert isinstance(answer.content, Receipt)
    return ReadReceiptKey(answer.content.by, station, answer.sequence, answer.content.digest)
