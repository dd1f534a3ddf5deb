"""Where a message for this kit comes in: decoded, made whole, freed of duplicates, and spooled.

All of it happens in one transaction, so that a modem's copy may be cleared once `take_in` returns.
"""

from __future__ import annotations

import logging
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import trio

from fieldagent.agent.events import Events
from fieldagent.agent.journal import inbound, outbound
from fieldagent.agent.journal.inbound import Received
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.package.package import Item, recorded
from fieldagent.package.payload import SOS_MARK, payload_json, stranger
from fieldagent.wire.envelope import (
    Ack,
    Entry,
    Envelope,
    Fragment,
    Introduction,
    Receipt,
    RelayRequest,
    Report,
    Source,
    decode,
    fingerprint,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.fragments import join

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Taken:
    """What one message turned out to hold."""

    now: float
    owes: str | None = None
    owed: bool = False
    payloads: list[Received] = field(default_factory=list)
    duplicates: int = 0
    reports: list[tuple[int, Report]] = field(default_factory=list)
    receipts: list[int] = field(default_factory=list)
    sources: dict[int, Source] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)


class Inbox:
    """`hooks` are the names of the hooks that every payload must be handed to."""

    def __init__(
        self,
        journal: Journal,
        hooks: Sequence[str],
        *,
        clock: Callable[[], float],
        events: Events,
        keys: Sequence[bytes] = (),
    ) -> None:
        self._events = events
        self._journal = journal
        self.hooks = hooks
        self._clock = clock
        self._keys = keys
        self.news = trio.Event()
        """Set when payloads were spooled, and then replaced by another."""

    async def take_in(
        self, body: bytes, also: Operation[None], *, owes: str | None, tagged: bool
    ) -> Taken:
        """Returns once it is on disk, with `also` in the same commit. Damage, unknown versions and
        unknown kinds are logged, never raised.

        `owes` names the channel over which the peer is to be told what was stored, None where the
        link does that itself. Without `tagged` the link has proved who sent it, and no tag is asked
        for.
        """
        envelope = self._read(body, tagged)
        now = self._clock()

        def store(db: sqlite3.Connection) -> Taken:
            also(db)
            # A transaction may be carried out anew: each time it begins with nothing.
            taken = Taken(now, owes, troubles=[*envelope.not_understood])
            self._store_all(db, envelope.origin, envelope.entries, taken)
            return taken

        taken = await self._journal.persist(store)
        self.publish(taken)
        return taken

    def _read(self, body: bytes, tagged: bool) -> Envelope:
        """One without entries where it cannot be read."""
        try:
            return decode(body, keys=self._keys if tagged else ())
        except RemoteProtocolError as error:
            text = f"{len(body)} bytes that cannot be read: {error}"
            return Envelope((), not_understood=(text,))

    def publish(self, taken: Taken) -> None:
        """It is on disk: log it, and wake the hooks."""
        for trouble in taken.troubles:
            log.error("not all of a message could be used: %s", trouble)
        if taken.duplicates:
            log.info("%d came again and went no further", taken.duplicates)
        for payload in taken.payloads:
            if SOS_MARK in payload.body:
                log.warning("an SOS has come from %s: %s", payload.sender, payload.body)
            self._events.publish("inbound", payload.body)
        if taken.payloads:
            self.wake()
        for sequence in taken.receipts:
            log.info("Package number %d has reached its addressee", sequence)

    def wake(self) -> None:
        self.news.set()
        self.news = trio.Event()

    def _store_all(
        self, db: sqlite3.Connection, origin: int, entries: Sequence[Entry], taken: Taken
    ) -> None:
        for entry in entries:
            if isinstance(entry.content, Source):
                taken.sources[entry.sequence] = entry.content
        for entry in entries:
            self._take_entry(db, origin, entry, taken)

    def _take_entry(self, db: sqlite3.Connection, origin: int, entry: Entry, taken: Taken) -> None:
        content = entry.content
        if isinstance(content, Introduction):
            inbound.introduce(db, entry.sequence, content.identity)
        elif isinstance(content, Report):
            taken.reports.append((entry.sequence, content))
        elif isinstance(content, Receipt):
            if outbound.note_receipt(db, entry.sequence, content.by, entry.time):
                taken.receipts.append(entry.sequence)
        elif isinstance(content, Fragment):
            whole = self.store_fragment(db, origin, entry.sequence, content, taken)
            self._store_all(db, origin, whole or (), taken)
        elif isinstance(content, Ack | RelayRequest):
            taken.troubles.append("a word of the air, which nobody says over this channel")
        elif not isinstance(content, Source):
            self.store_entry(db, origin, entry, taken)

    def store_entry(self, db: sqlite3.Connection, origin: int, entry: Entry, taken: Taken) -> None:
        """Spool an item that was not there before, by whatever number it was known."""
        known = inbound.seen(db, origin, entry.sequence, fingerprint(entry), taken.now)
        source = taken.sources.get(entry.sequence)
        if source is not None:
            twin = replace(entry, sequence=source.sequence)
            heard = inbound.seen(db, -source.station, twin.sequence, fingerprint(twin), taken.now)
            known = known or heard
        if known:
            taken.duplicates += 1
        else:
            assert isinstance(entry.content, Item)
            spooled = self._spool(db, origin, entry, entry.content, taken.now)
            taken.payloads.append(spooled)
        # Also when it was sent again: the peer has not heard that it is here.
        _owe(db, entry, taken)

    def store_fragment(
        self, db: sqlite3.Connection, origin: int, sequence: int, part: Fragment, taken: Taken
    ) -> Sequence[Entry] | None:
        """Keep a fragment; the entries of the whole come back with the last one."""
        if inbound.was_seen(db, origin, sequence, fingerprint(Entry(sequence, part))):
            taken.duplicates += 1
            return None
        item = inbound.FragmentedItem(origin, sequence, part.count)
        slices = inbound.keep_slice(db, item, part.index, part.slice, taken.now)
        if len(slices) < part.count:
            return None
        try:
            whole = decode(join(slices))
        except RemoteProtocolError as error:
            taken.troubles.append(f"{part.count} fragments of {sequence}: {error}")
            # Some are of another item that had this number: beside the newest all are asked for.
            inbound.drop_slices(db, item, but=part.index)
            return None
        inbound.drop_slices(db, item)
        # Only now may they come again in vain.
        for index, piece in slices.items():
            fragment = Entry(sequence, Fragment(index, part.count, piece))
            inbound.seen(db, origin, sequence, fingerprint(fragment), taken.now)
        taken.troubles += whole.not_understood
        # A fragment within fragments would be a peer's way to make us recurse.
        return [entry for entry in whole.entries if not isinstance(entry.content, Fragment)]

    def _spool(
        self, db: sqlite3.Connection, origin: int, entry: Entry, item: Item, now: float
    ) -> Received:
        sender = inbound.identity(db, origin) or stranger(origin)
        request_id = str(uuid.uuid4())
        moment = recorded(item) or datetime.fromtimestamp(entry.time, UTC)
        body = payload_json(request_id, sender, item, moment, sos=entry.sos)
        payload = Received(request_id, sender.id, body, now)
        inbound.spool(db, payload, self.hooks)
        return payload


def _owe(db: sqlite3.Connection, entry: Entry, taken: Taken) -> None:
    if taken.owes is not None:
        inbound.owe(db, taken.owes, entry.sequence, int(taken.now), entry.sos)
        taken.owed = True
