"""Where an agent's message comes in: decoded, made whole, freed of duplicates, and entered.

All of it happens in one transaction, so that it may be acknowledged once `take_in` returns.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from fieldagent.hub.contract import Bearer, Device
from fieldagent.hub.ledger import Posting, confirm, enter
from fieldagent.hub.mobile_terminated import send_fragments_again
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import SOS_PRIORITY, Item
from fieldagent.package.reading import ITEMS
from fieldagent.package.writing import kind_of
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
class _Taken:
    """What one message turned out to hold."""

    device: Device
    """Whose items these are."""
    way: Bearer
    now: float
    carrier: Device | None = None
    """Whose link brought them, where that is another's."""
    items: int = 0
    duplicates: int = 0
    troubles: list[str] = field(default_factory=list)


class MobileOriginated:
    """`keys` gives the keys that may have tagged a device's satellite messages: none, no tag."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        keys: Callable[[Device], Awaitable[Sequence[bytes]]],
        grace: float,
        time_to_live: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._keys = keys
        self._grace = grace
        self._time_to_live = time_to_live

    async def take_in(self, device: Device, body: bytes, way: Bearer) -> None:
        """Damage, unknown versions and unknown kinds are logged, never raised.

        Over IP the link has proved who sends; over satellite the tag does.
        """
        keys = await self._keys(device) if way is Bearer.SATELLITE else ()
        try:
            envelope = decode(body, keys=keys)
        except RemoteProtocolError as error:
            log.error("%d bytes from %s could not be read: %s", len(body), device.name, error)
            return
        taken = await self._store.commit(
            lambda db: self._take(db, envelope, _Taken(device, way, self._clock()))
        )
        for trouble in (*envelope.not_understood, *taken.troubles):
            log.error("part of a message from %s could not be used: %s", device.name, trouble)
        if taken.items or taken.duplicates:
            log.info(
                "%s sent %d item(s) over %s%s",
                device.name,
                taken.items,
                way,
                f", {taken.duplicates} of them known" if taken.duplicates else "",
            )

    def _take(self, db: Db, envelope: Envelope, taken: _Taken) -> _Taken:
        if envelope.origin not in (0, taken.device.id):
            neighbour = _neighbour(db, taken.device, envelope.origin)
            if neighbour is None:
                text = f"items of {envelope.origin}, which is no device of this workspace"
                taken.troubles.append(text)
                return taken
            taken.carrier, taken.device = taken.device, neighbour
        for entry in envelope.entries:
            self._take_entry(db, entry, taken)
        return taken

    def _take_entry(self, db: Db, entry: Entry, taken: _Taken) -> None:
        content, device = entry.content, taken.device
        if isinstance(content, Introduction):
            taken.troubles.append("an introduction: the hub knows who is who")
        elif isinstance(content, Report):
            missing = frozenset(range(content.count)) - content.arrived
            send_fragments_again(db, device.id, entry.sequence, content.count, missing, taken.now)
        elif isinstance(content, Ack | RelayRequest | Source):
            taken.troubles.append("a word of the air, which nobody says to the hub")
        elif isinstance(content, Receipt):
            self._take_receipt(db, entry, taken)
        elif isinstance(content, Fragment):
            self._take_fragment(db, entry, content, taken)
        elif not _is_new(db, entry, taken):
            taken.duplicates += 1
        else:
            taken.items += 1
            posting = self._posting(entry, content, taken)
            item = enter(db, posting, now=taken.now, grace=self._grace)
            if taken.carrier is not None:
                # Who carried it has it.
                confirm(db, item, taken.carrier.id, taken.way, taken.now)

    def _posting(self, entry: Entry, item: Item, taken: _Taken) -> Posting:
        device = taken.device
        return Posting(
            device.workspace,
            device.member,
            item,
            entry.time,
            priority=SOS_PRIORITY if entry.sos else ITEMS[kind_of(item)][1],
            sos=entry.sos,
            expires=None if entry.sos else taken.now + self._time_to_live,
            source=Source(device.id, entry.sequence),
        )

    def _take_receipt(self, db: Db, entry: Entry, taken: _Taken) -> None:
        rows = db.execute(
            "SELECT item FROM delivery WHERE device = ? AND sequence = ?",
            taken.device.id,
            entry.sequence,
        )
        for (item,) in rows:
            confirm(db, item, taken.device.id, taken.way, taken.now)

    def _take_fragment(self, db: Db, entry: Entry, part: Fragment, taken: _Taken) -> None:
        if _was_there(db, entry, taken):
            taken.duplicates += 1
            return
        sequence = entry.sequence
        slices = _keep_slice(db, taken, sequence, part)
        if len(slices) < part.count:
            return
        try:
            whole = decode(join(slices))
        except RemoteProtocolError as error:
            taken.troubles.append(f"{part.count} fragments of {sequence}: {error}")
            # Some are of another item that had this number: beside the newest all are asked for.
            _drop_slices(db, taken, sequence, part.count, but=part.index)
            return
        _drop_slices(db, taken, sequence, part.count)
        # Only now may they come again in vain.
        for index, piece in slices.items():
            _is_new(db, Entry(sequence, Fragment(index, part.count, piece)), taken)
        for entry in whole.entries:
            # A fragment within fragments would be a peer's way to make us recurse.
            if not isinstance(entry.content, Fragment):
                self._take_entry(db, entry, taken)
        taken.troubles += whole.not_understood


def _neighbour(db: Db, carrier: Device, number: int) -> Device | None:
    """The device whose items another of its workspace brings."""
    rows = db.execute(
        "SELECT id, workspace, member, name, imei FROM device WHERE id = ? AND workspace = ?"
        " AND disabled IS NULL",
        number,
        carrier.workspace,
    )
    return Device(*rows[0]) if rows else None


def _is_new(db: Db, entry: Entry, taken: _Taken) -> bool:
    """From now on it is not."""
    return bool(
        db.execute(
            "INSERT INTO arrived (device, origin, sequence, digest, at) VALUES (?, 0, ?, ?, ?)"
            " ON CONFLICT DO NOTHING RETURNING sequence",
            taken.device.id,
            entry.sequence,
            fingerprint(entry),
            taken.now,
        )
    )


def _was_there(db: Db, entry: Entry, taken: _Taken) -> bool:
    return bool(
        db.execute(
            "SELECT 1 FROM arrived WHERE device = ? AND origin = 0 AND sequence = ? AND digest = ?",
            taken.device.id,
            entry.sequence,
            fingerprint(entry),
        )
    )


def _drop_slices(db: Db, taken: _Taken, sequence: int, count: int, *, but: int = -1) -> None:
    db.execute(
        "DELETE FROM slice WHERE device = ? AND origin = 0 AND sequence = ? AND count = ?"
        " AND position <> ?",
        taken.device.id,
        sequence,
        count,
        but,
    )


def _keep_slice(db: Db, taken: _Taken, sequence: int, part: Fragment) -> dict[int, bytes]:
    """Store one fragment; all that are there of the same item come back."""
    db.execute(
        "INSERT INTO slice (device, origin, sequence, count, position, slice, at)"
        " VALUES (?, 0, ?, ?, ?, ?, ?) ON CONFLICT (device, origin, sequence, count, position)"
        " DO UPDATE SET slice = excluded.slice, at = excluded.at",
        taken.device.id,
        sequence,
        part.count,
        part.index,
        part.slice,
        taken.now,
    )
    rows = db.execute(
        "SELECT position, slice FROM slice WHERE device = ? AND origin = 0 AND sequence = ?"
        " AND count = ?",
        taken.device.id,
        sequence,
        part.count,
    )
    return {position: bytes(piece) for position, piece in rows}
