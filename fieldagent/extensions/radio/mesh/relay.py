"""Relays the items of neighbours without a link to the hub, over the same channels as this kit's
own items.

A relayed item is a Package in our queue whose original sender is another station. It is sent only
to the hub and never on the air, so loops are impossible. The hub recognises duplicates by the
item's number.
"""

from __future__ import annotations

import logging
import sqlite3
from collections import OrderedDict
from collections.abc import Collection

from fieldagent.agent.journal import history, inbound, outbound, spending
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import RELAYED, Spent, StoredPackage
from fieldagent.agent.journal.spending import BudgetDay
from fieldagent.agent.outbound import others_sos
from fieldagent.agent.outbound.budget import compute_day
from fieldagent.package.delivery import ChannelDelivery
from fieldagent.package.package import (
    SOS_PRIORITY,
    Channel,
    IncidentUpdate,
    Item,
    Location,
    Package,
    Parcel,
)
from fieldagent.package.reading import KINDS
from fieldagent.package.writing import drop_invalid_members, get_kind, make_canonical
from fieldagent.system.elapsed_time import ElapsedTime
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate
from fieldagent.system.wording import format_count
from fieldagent.wire.credit import compute_credits
from fieldagent.wire.envelope import Entry, compute_fingerprint, encode

log = logging.getLogger(__name__)

WAITING_ITEMS_MAX = 200
BOOKED_PACKAGES_MAX = 1_000
"""Maximum number of Packages whose credits may be returned to the budget."""
RELAY_COST_NAME = "others"
"""Name under which the journal's table of costs stores the credits that were spent for neighbours,
in place of a channel's name."""


class _UnpaidItem(NamedTuple):
    entry: Entry
    credits: int
    """Cost of the item. The cost is computed only once, because packing the text is slow and the
    cost is checked often."""


class Relay:
    """Enters neighbours' items for the hub in the journal. `channels` contains the channels to the
    hub that the user allows for neighbours.

    Neighbours' items cost at most `credits_per_day`. If these credits are spent, an SOS is paid
    from the shared budget for every SOS of others (`others_sos`). An item waits for up to
    `time_to_live` seconds. `clock` is the journal's clock.
    """

    def __init__(
        self,
        channels: Collection[Channel],
        *,
        credits_per_day: int,
        time_to_live: float,
        clock: ElapsedTime,
    ) -> None:
        self._channels = channels
        self._credits_per_day = credits_per_day
        self._time_to_live = time_to_live
        self._clock = clock
        self.waiting: dict[tuple[int, int], _UnpaidItem] = {}
        """Items that cost more than today's remaining credits for others, by station and number."""
        self._over_budget = EventRate(clock.now)
        self._dropped = {urgent: EventRate(clock.now) for urgent in (False, True)}
        self._promised: OrderedDict[int, tuple[int, BudgetDay]] = OrderedDict()
        """Credits that were booked for a Package of others, and the day, by the Package's sequence.
        The entries are kept only in memory, so after a restart the credits stay booked."""

    def can_pay(self, journal: Journal, now: float) -> bool:
        """Return True if a waiting item can be paid for now. This method only reads, because it is
        called often on a day without remaining credits.
        """
        if not self.waiting:
            return False
        day = compute_day(spending.read_known_day(journal), now, self._clock)
        credits_left = (
            self._credits_per_day - spending.read_spent(journal, RELAY_COST_NAME, day).credits
        )
        for_sos = max(credits_left, others_sos.compute_remaining(journal))
        return any(
            each.credits <= (for_sos if _is_urgent(each.entry) else credits_left)
            for each in self.waiting.values()
        )

    def retry(self, db: sqlite3.Connection, now: float) -> list[StoredPackage]:
        """Add to the journal the waiting items that can be paid for now."""
        results = [
            self.store(db, station, each.entry, now)
            for (station, _), each in sorted(
                self.waiting.items(), key=lambda waiting: not _is_urgent(waiting[1].entry)
            )
            if self._make_booking(db, each.entry, each.credits, now)
        ]
        return [accepted for accepted in results if accepted is not None]

    def _store_unpaid(self, station: int, entry: Entry) -> None:
        if (station, entry.sequence) in self.waiting:
            return
        self.waiting[station, entry.sequence] = _UnpaidItem(entry, _compute_cost(entry))
        while len(self.waiting) > WAITING_ITEMS_MAX:
            # Drop the oldest item that is not an SOS. Drop an SOS only if there is no other item.
            oldest = min(self.waiting, key=lambda key: _is_urgent(self.waiting[key].entry))
            dropped = self.waiting.pop(oldest).entry
            if count := self._dropped[_is_urgent(dropped)].count_event():
                log.warning(
                    "dropped %s of neighbours for the hub%s, because %d others wait for credits",
                    format_count(count, "item"),
                    " that belong to an SOS" if _is_urgent(dropped) else "",
                    WAITING_ITEMS_MAX,
                )
        if self._over_budget.count_event():
            log.warning("%s", self.find_notice())

    def find_notice(self) -> str:
        """Return a notice for people, or '' if no item waits."""
        if not self.waiting:
            return ""
        text = (
            f"{len(self.waiting)} from neighbours for the hub wait until midnight UTC:"
            " radio-relay-credits-per-day is spent"
        )
        sos_count = sum(_is_urgent(each.entry) for each in self.waiting.values())
        return f"{text}; {sos_count} of them belong to an SOS" if sos_count else text

    def store(
        self, db: sqlite3.Connection, station: int, entry: Entry, now: float
    ) -> StoredPackage | None:
        """Add a neighbour's item to the journal. Return None if the item is already relayed or is
        not for the hub. Also return None if it costs too much now. Such an item is kept in memory
        and tried again.
        """
        item = entry.content
        assert isinstance(item, Item)
        if isinstance(item, Parcel) and (item.station or Channel.CELLULAR not in self._channels):
            # Do not relay a confirmation if it costs a credit.
            return None
        # Use the entry's fingerprint, because a neighbour that lost its journal reuses its numbers.
        identity = compute_fingerprint(entry)
        request = RELAYED + identity
        if inbound.has_arrived(db, -station, entry.sequence, request):
            return None
        self._refund(db)
        spent_credits = self._compute_spent(db, now)
        channels = self._list_affordable(db, entry, now)
        if not channels:
            self._store_unpaid(station, entry)
            return None
        self.waiting.pop((station, entry.sequence), None)
        # Remember the relayed item longer than the Package, so that a replayed recording costs no
        # credits.
        inbound.mark_arrived(db, -station, entry.sequence, request, now, sos=entry.sos)
        priority = SOS_PRIORITY if entry.sos else KINDS[get_kind(item)].priority
        package = Package(
            item=drop_invalid_members(item) if isinstance(item, Location) else item,
            channels=frozenset(channels),
            priority=priority,
            to=entry.to,
            wants_receipt=entry.wants_receipt,
            author=entry.author,
        )
        expires = None if package.urgent else now + self._time_to_live
        entry_result = add_package(db, package, identity, now, expires, entry.time)
        if booked := self._compute_spent(db, now) - spent_credits:
            self._promised[entry_result.sequence] = booked, self._get_day(db, now)
        if len(self._promised) > BOOKED_PACKAGES_MAX:
            self._promised.popitem(last=False)
        outbound.mark_relayed(db, entry_result.sequence, station, entry.sequence, entry.items_back)
        return entry_result._replace(
            origin=station, origin_sequence=entry.sequence, back=entry.items_back
        )

    def _refund(self, db: sqlite3.Connection) -> None:
        """Return to the budget the credits of Packages that ended without a satellite transmission,
        because the IP link delivered them sooner.
        """
        for sequence, (count, day) in [*self._promised.items()]:
            rows = db.execute(
                "SELECT status FROM leg WHERE sequence = ? AND channel = ?",
                (sequence, Channel.SATELLITE),
            ).fetchall()
            if rows == [(None,)]:
                continue
            del self._promised[sequence]
            if rows and not history.can_have_left_in(db, sequence, Channel.SATELLITE):
                spending.spend(RELAY_COST_NAME, day, Spent(0, -count))(db)

    def _list_affordable(self, db: sqlite3.Connection, entry: Entry, now: float) -> list[Channel]:
        channels: list[Channel] = []
        if Channel.CELLULAR in self._channels:
            channels.append(Channel.CELLULAR)
        if Channel.SATELLITE in self._channels and not isinstance(entry.content, Parcel):
            cost = _compute_cost(entry)
            if pay := self._make_booking(db, entry, cost, now):
                pay(db)
                channels.append(Channel.SATELLITE)
        return channels

    def _make_booking(
        self, db: sqlite3.Connection, entry: Entry, cost: int, now: float
    ) -> Operation[None] | None:
        """Return the operation that books `cost` for today, or None if the budgets do not allow
        it.
        """
        if cost <= self._compute_remaining(db, now):
            return spending.spend(RELAY_COST_NAME, self._get_day(db, now), Spent(0, cost))
        if _is_urgent(entry) and cost <= others_sos.compute_remaining_in(db, now, self._clock):
            return others_sos.spend(cost, now, self._clock)
        return None

    def _compute_remaining(self, db: sqlite3.Connection, now: float) -> int:
        """Return the credits that neighbours may still use today."""
        return self._credits_per_day - self._compute_spent(db, now)

    def _compute_spent(self, db: sqlite3.Connection, now: float) -> int:
        return spending.read_spent_in(db, RELAY_COST_NAME, self._get_day(db, now)).credits

    def _get_day(self, db: sqlite3.Connection, now: float) -> BudgetDay:
        return compute_day(spending.read_known_day_in(db), now, self._clock)


def _is_urgent(entry: Entry) -> bool:
    return entry.sos or isinstance(entry.content, IncidentUpdate)


def _compute_cost(entry: Entry) -> int:
    """Return the price of an item in credits if the item is sent alone."""
    return compute_credits(len(encode([entry], is_packed=True)))


def add_package(
    db: sqlite3.Connection,
    package: Package,
    digest: bytes,
    now: float,
    expires: float | None,
    date: float,
) -> StoredPackage:
    """Add to the journal a Package that no local program has posted, for the channels in
    `package`. An SOS does not join an incident of this kit, because the kit that raised it repeats
    it. `now` and `expires` are elapsed time, `date` is Unix time.
    """
    assert package.channels is not None
    new = outbound.NewPackage(
        make_canonical(package),
        digest,
        accepted=now,
        expires=expires,
        dated_at=date,
        deliveries=dict.fromkeys(package.channels, ChannelDelivery()),
        priority=package.priority,
    )
    sequence = outbound.store_new_package(new)(db)
    return StoredPackage(
        sequence, -sequence, package, digest, None, now, expires, None, None, dated=date
    )
