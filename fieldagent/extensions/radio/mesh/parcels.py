"""Opens parcels from the hub that a neighbour has relayed by radio, and confirms them over the same
route.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence

from fieldagent.agent.inbound.reception import Inbox, ReceivedMessage
from fieldagent.agent.journal import inbound
from fieldagent.agent.journal.records import StoredPackage
from fieldagent.extensions.radio.mesh.relay import add_package
from fieldagent.package.package import Channel, CommandAnswer, Item, Package, Parcel
from fieldagent.package.reading import KINDS
from fieldagent.package.writing import get_kind
from fieldagent.wire.envelope import Entry, Receipt, compute_fingerprint, compute_item_digest
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.parcel import DOWN, UP, unwrap, wrap

log = logging.getLogger(__name__)

ANSWER_RETENTION_S = 86_400.0
"""Lifetime in seconds of a confirmation. If the confirmation expires on its way, the hub sends the
parcel again."""


class Parcels:
    """Opens and makes parcels. Only this kit and the hub have the `secrets`. Parcels to the hub are
    sealed with the first secret. If there is no secret, parcels cannot be opened.
    """

    def __init__(self, inbox: Inbox, secrets: Sequence[bytes]) -> None:
        self.inbox = inbox
        self._secrets = secrets

    def store_parcel(
        self, db: sqlite3.Connection, parcel: Parcel, now: float, not_before: float
    ) -> tuple[ReceivedMessage, list[StoredPackage]]:
        """Store the content of a parcel for this kit, and add its confirmation to the journal.
        The caller must publish both when they are on disk. `now` is elapsed time. Hooks get the
        content after `not_before`.
        """
        received = ReceivedMessage(now, is_authenticated=True, not_before=not_before)
        try:
            envelope = unwrap(parcel.body, self._secrets, DOWN)
        except RemoteProtocolError as error:
            log.error(
                "an item from the hub through a neighbour cannot be used: %s; set hub-token"
                " and satellite-key to the hub's values for this kit",
                error,
            )
            return received, []
        self.inbox.store_all(db, envelope.origin, envelope.entries, received)
        at = int(self.inbox.date(now))
        confirmed = [
            Entry(entry.sequence, Receipt(digest=compute_item_digest(entry)), at)
            for entry in envelope.entries
            if isinstance(entry.content, Item) and entry.sequence
        ]
        return received, [self._add_package(db, confirmed, now, at)] if confirmed else []

    def answer(self, db: sqlite3.Connection, answer: CommandAnswer, now: float) -> StoredPackage:
        """Add to the journal the answer to a command that arrived in a parcel."""
        at = int(self.inbox.date(now))
        return self._add_package(db, [Entry(0, answer, at)], now, at)

    def can_report_missing(self) -> bool:
        """Return True if the kit has a secret with which it can send receipts to the hub in a
        parcel. The hub verifies the parcel with the same secret.
        """
        return bool(self._secrets)

    def add_receipts(self, db: sqlite3.Connection, now: float) -> list[StoredPackage]:
        """Add to the journal a parcel with the receipts for the hub's items that the hub has not
        received yet.
        """
        hub_stages = inbound.list_hub_stages(db)
        if not hub_stages:
            return []
        inbound.mark_stages_reported(db, [each.key for each in hub_stages])
        receipts = [
            Entry(each.sequence, Receipt(0, each.digest, each.stage, each.text), each.at)
            for each in hub_stages
        ]
        return [self._add_package(db, receipts, now, int(self.inbox.date(now)))]

    def _add_package(
        self, db: sqlite3.Connection, entries: Sequence[Entry], now: float, at: int
    ) -> StoredPackage:
        parcel = Parcel(wrap(entries, self._secrets[0], UP))
        priority = KINDS[get_kind(parcel)].priority
        package = Package(parcel, channels=frozenset({Channel.RADIO}), priority=priority)
        return add_package(
            db,
            package,
            compute_fingerprint(Entry(0, parcel, at)),
            now,
            now + ANSWER_RETENTION_S,
            at,
        )
