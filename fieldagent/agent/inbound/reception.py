"""Receives messages for this kit: decodes and reassembles them, drops duplicates, and spools them
for the hooks.

Each message is handled in one transaction, so that a modem's copy may be cleared once
`store_message` returns.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, field, replace
from datetime import UTC, datetime
from typing import Any

import trio

from fieldagent.agent.inbound.command_gate import CommandGate
from fieldagent.agent.inbound.incident_news import (
    ForwardedUpdate,
    IncidentNews,
    get_incident_number,
)
from fieldagent.agent.journal import dead_letters, directory, inbound, outbound, program_deltas
from fieldagent.agent.journal.dead_letters import DeadLetter
from fieldagent.agent.journal.inbound import NumberedItem, Received
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import DamagedPackage
from fieldagent.agent.outbound.item_identity import is_about
from fieldagent.package.delivery import Stage
from fieldagent.package.package import Data, IncidentUpdate, Item, Parcel, ToHub, get_date
from fieldagent.package.payload import (
    SOS_MARK,
    Identity,
    encode_payload,
    make_estimated_position,
    make_unknown_identity,
)
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import (
    Ack,
    AuthorMark,
    Beside,
    Contact,
    Content,
    Entry,
    EstimatedPosition,
    Fragment,
    Introduction,
    JournalNumber,
    Program,
    Receipt,
    RelayRequest,
    Report,
    RouteToHub,
    Source,
    Unauthenticated,
    UnauthenticatedMark,
    Unreadable,
    compute_fingerprint,
    decode,
    digest_of,
    encode,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.fragments import reassemble
from fieldagent.wire.signed_delta import is_signed_delta

log = logging.getLogger(__name__)

THE_HUB = 0
"""Origin of an item from the hub."""
_NOT_FOR_A_KIT = (
    Ack | RelayRequest | AuthorMark | Program | RouteToHub | JournalNumber | ToHub | Unreadable
)


@dataclass(slots=True)
class ReceivedMessage:
    """Content of one message and the actions that follow."""

    now: float
    owed_channel: str | None = None
    channel: str | None = None
    """Channel under which dead letters of unusable parts are stored. None on the air, where a
    message has no cost and its sender repeats it."""
    owed: bool = False
    payloads: list[Received] = field(default_factory=list)
    duplicates: int = 0
    reports: list[tuple[int, Report]] = field(default_factory=list)
    receipts: list[int] = field(default_factory=list)
    mismatches: list[int] = field(default_factory=list)
    """Numbers that were confirmed for another item than the one that has the number now."""
    sources: dict[int, Source] = field(default_factory=dict)
    has_nameless_author: bool = False
    """True if an item came from a person without a known name."""
    is_authenticated: bool = False
    """True if the link or the message's tag shows that the message is from the hub."""
    not_before: float = 0.0
    """Elapsed time until which hooks receive only an SOS from this message."""
    unauthenticated: set[int] = field(default_factory=set)
    """Numbers of items whose sender is unauthenticated."""
    contacts: dict[int, Contact] = field(default_factory=dict)
    seen_at: dict[int, EstimatedPosition] = field(default_factory=dict)
    updates_for_kits: list[ForwardedUpdate] = field(default_factory=list)
    """Messages for other kits that the message contains."""
    commands: int = 0
    stages: bool = False
    """True if the hub must receive a receipt about the stage of an item."""
    troubles: list[str] = field(default_factory=list)
    buried: int = 0
    """Number of dead letters that were stored for this message."""
    dropped: int = 0
    """Number of older dead letters that were deleted to make space for these."""


UNTAGGED_PEER = (
    "satellite-key is set here, but the hub does not tag its messages: set the same key on"
    " the hub (`fieldagent hub device key`), or remove satellite-key"
)
OTHER_KEY = (
    "the hub tags with another key than satellite-key: set the key here that `fieldagent hub"
    " device key` showed"
)
UNCHECKED_TAG_REASON = (
    "the hub tags its messages, but satellite-key is not set here, so anyone can send in its"
    " name: set the key that the hub showed"
)


class Inbox:
    """Receiving side of the agent. `hooks` are the names of the hooks that must receive every
    payload. With `hand_unread` they also receive dead letters, as Data.
    """

    def __init__(
        self,
        journal: Journal,
        hooks: Sequence[str],
        *,
        clock: Callable[[], float],
        keys: Sequence[bytes] = (),
        hand_unread: bool = False,
        incidents: IncidentNews | None = None,
        commands: CommandGate | None = None,
    ) -> None:
        self.commands = commands or CommandGate()
        self._incidents = incidents or IncidentNews()
        self._journal = journal
        self.hooks = hooks
        self._clock = clock
        self.date = journal.clock.date
        """Converts elapsed time to Unix time."""
        self._keys = keys
        self._hand_unread = hand_unread
        self.key_trouble = ""
        """Problem with satellite-key that the last satellite message showed, for people; empty if
        there is none."""
        self.mismatches = 0
        """Number of confirmations that were ignored since the agent started."""
        self.news = trio.Event()
        """Event that is set when payloads were spooled; then a new event replaces it."""
        self.stages = trio.Event()
        """Event that is set when a sender must receive a receipt; then a new event replaces it."""

    async def store_message(
        self,
        body: bytes,
        also: Operation[None],
        *,
        channel: str,
        owes: str | None,
        tagged: bool,
        then: Callable[[sqlite3.Connection, ReceivedMessage], None] = lambda db, taken: None,
    ) -> ReceivedMessage:
        """Take in a message; it is on disk when this returns. `also` and `then` run in the same
        commit; `then` receives the result. Damage, unknown versions and unknown kinds are never
        raised: the message is kept as a dead letter.

        `owes` is the channel on which the peer must receive receipts; None if the link itself
        confirms. Without `tagged` the link has authenticated the sender, and no tag is required.
        """
        try:
            envelope = decode(body, keys=self._keys if tagged else ())
        except RemoteProtocolError as error:
            return await self.store_dead_letter(
                body, also, channel=channel, reason=self._describe_item(error)
            )
        if tagged:
            self._note_key("" if self._keys or not envelope.tagged else UNCHECKED_TAG_REASON)
        now = self._clock()

        def store(db: sqlite3.Connection) -> ReceivedMessage:
            also(db)
            # The operation may run more than once, so start with an empty result each time.
            proved = not tagged or bool(self._keys)
            taken = ReceivedMessage(
                now, owes, channel, troubles=[*envelope.not_understood], is_authenticated=proved
            )
            self.store_all(db, envelope.origin, envelope.entries, taken)
            then(db, taken)
            if taken.troubles and not taken.buried:
                reason = "; ".join(taken.troubles)
                self._store_dead_letter(
                    db, DeadLetter(channel, body, reason, self.date(now)), taken
                )
            return taken

        taken = await self._journal.persist(store)
        self.publish(taken)
        return taken

    async def store_dead_letter(
        self, body: bytes, also: Operation[None], *, channel: str, reason: str
    ) -> ReceivedMessage:
        """Store an unusable message as a dead letter, with `also` in the same commit."""
        now = self._clock()

        def store(db: sqlite3.Connection) -> ReceivedMessage:
            also(db)
            trouble = f"{len(body)} bytes over {channel}: {reason}"
            taken = ReceivedMessage(now, channel=channel, troubles=[trouble])
            self._store_dead_letter(db, DeadLetter(channel, body, reason, self.date(now)), taken)
            return taken

        taken = await self._journal.persist(store)
        self.publish(taken)
        return taken

    async def replay(self, letter: DeadLetter, *, tagged: bool) -> bool:
        """Take in a dead letter that is now readable with another key or a later version. Return
        True if it was taken in, and is no longer a dead letter.
        """
        try:
            envelope = decode(letter.body, keys=self._keys if tagged else ())
        except RemoteProtocolError:
            return False
        if envelope.not_understood:
            return False

        def store(db: sqlite3.Connection) -> ReceivedMessage:
            taken = ReceivedMessage(self._clock(), channel=letter.channel)
            self.store_all(db, envelope.origin, envelope.entries, taken)
            if not taken.troubles:
                dead_letters.remove(db, letter.number)
            return taken

        taken = await self._journal.persist(store)
        if taken.troubles:
            return False
        self.publish(taken)
        return True

    def _describe_item(self, error: RemoteProtocolError) -> str:
        if not isinstance(error, Unauthenticated):
            return f"it cannot be read: {error}"
        self._note_key(UNTAGGED_PEER if error.missing else OTHER_KEY)
        return f"{error}: {self.key_trouble}"

    def _note_key(self, trouble: str) -> None:
        if trouble and trouble != self.key_trouble:
            log.error("%s", trouble)
        self.key_trouble = trouble

    def _store_dead_letter(
        self, db: sqlite3.Connection, letter: DeadLetter, taken: ReceivedMessage
    ) -> None:
        taken.buried += 1
        taken.dropped += dead_letters.store_letter(db, letter)
        if self._hand_unread:
            sender = Identity(letter.channel, letter.channel, "Integration")
            moment = datetime.fromtimestamp(letter.received, UTC)
            extra = {"source": letter.channel, "reason": letter.reason}
            payload = _make_payload(sender, Data(letter.body), moment, self._clock(), extra=extra)
            inbound.spool(db, payload, self.hooks)
            taken.payloads.append(payload)

    def publish(self, taken: ReceivedMessage) -> None:
        """Log the result, which is on disk, and wake the hooks."""
        # Several of these can apply to one message. Wake the hooks last, so that the log shows the
        # reason before the actions.
        for trouble in taken.troubles:
            log.error(
                "not all of a message could be used: %s; `fieldagent inbound list` shows it",
                trouble,
            )
        if taken.dropped:
            log.error("%d dead letters were dropped to make room for newer ones", taken.dropped)
        for number in taken.mismatches:
            self.note_mismatch(number)
        if taken.duplicates:
            log.info("%d payloads were duplicates and were not passed on", taken.duplicates)
        for payload in taken.payloads:
            if SOS_MARK in payload.body:
                log.warning("an SOS has come from %s: %s", payload.sender, payload.body)
        if taken.payloads:
            self.wake()
        if taken.commands:
            self.commands.wake()
        if taken.stages:
            self.report_stages()
        for sequence in taken.receipts:
            log.info("Package number %d has reached its addressee", sequence)

    def note_mismatch(self, sequence: int) -> None:
        """Count and log a confirmation whose digest does not belong to the Package that has this
        number now.
        """
        self.mismatches += 1
        log.error(
            "a confirmation of number %d is ignored, because it is not for the Package that has"
            " this number now: it comes from a lost journal, or another kit has our number",
            sequence,
        )

    def wake(self) -> None:
        """Wake the tasks that wait for payloads."""
        self.news.set()
        self.news = trio.Event()

    def report_stages(self) -> None:
        """Wake the tasks that wait for receipts to send."""
        self.stages.set()
        self.stages = trio.Event()

    def store_all(
        self, db: sqlite3.Connection, origin: int, entries: Sequence[Entry], taken: ReceivedMessage
    ) -> None:
        """Store the content of one envelope. Call `publish` once it is on disk."""
        for entry in entries:
            if isinstance(entry.content, Source):
                taken.sources[entry.sequence] = entry.content
            elif isinstance(entry.content, UnauthenticatedMark):
                taken.unauthenticated.add(entry.sequence)
            elif isinstance(entry.content, Contact):
                taken.contacts[entry.sequence] = entry.content
            elif isinstance(entry.content, EstimatedPosition):
                taken.seen_at[entry.sequence] = entry.content
        for entry in entries:
            self._store_received_entry(db, origin, entry, taken)

    def _store_received_entry(
        self, db: sqlite3.Connection, origin: int, entry: Entry, taken: ReceivedMessage
    ) -> None:
        content = entry.content
        if isinstance(content, Introduction):
            inbound.introduce(db, entry.sequence, content.identity)
        elif isinstance(content, Report):
            self._store_report(db, entry, content, taken)
        elif isinstance(content, Receipt):
            if is_confirmation_of(db, entry.sequence, content, taken):
                self._store_receipt(db, entry, content, taken)
        elif isinstance(content, RemoteCommand):
            self.commands.note(db, entry.sequence, content, self._journal.clock, taken)
        elif isinstance(content, Fragment):
            whole = self.store_fragment(db, origin, entry.sequence, content, taken)
            self.store_all(db, origin, whole or (), taken)
        elif isinstance(content, _NOT_FOR_A_KIT):
            taken.troubles.append(
                "a note for the air or the hub, which is not valid on this channel"
            )
        elif isinstance(content, Parcel):
            taken.updates_for_kits.append(ForwardedUpdate(content, entry.time))
        elif not isinstance(content, Beside):
            self.store_entry(db, origin, entry, taken)

    def _store_receipt(
        self, db: sqlite3.Connection, entry: Entry, receipt: Receipt, taken: ReceivedMessage
    ) -> None:
        number, by, at = entry.sequence, receipt.by, float(entry.time)
        if receipt.stage is not Stage.STORED:
            outbound.note_stage(db, number, by, receipt.stage, receipt.text, at)
        elif outbound.note_receipt(db, number, by, at, proved=taken.is_authenticated):
            taken.receipts.append(number)

    def _store_report(
        self, db: sqlite3.Connection, entry: Entry, report: Report, taken: ReceivedMessage
    ) -> None:
        """Store a report of missing fragments. A replayed report has no effect, because each report
        causes transmissions that cost.
        """
        if inbound.mark_arrived(db, THE_HUB, entry.sequence, compute_fingerprint(entry), taken.now):
            taken.reports.append((entry.sequence, report))
        else:
            taken.duplicates += 1

    def store_entry(
        self, db: sqlite3.Connection, origin: int, entry: Entry, taken: ReceivedMessage
    ) -> None:
        """Spool an item if it is new under each of its numbers."""
        is_new = inbound.mark_arrived(
            db, origin, entry.sequence, compute_fingerprint(entry), taken.now, sos=entry.sos
        )
        source = taken.sources.get(entry.sequence)
        if source is not None:
            twin = replace(entry, sequence=source.sequence)
            other_is_new = inbound.mark_arrived(
                db,
                -source.station,
                twin.sequence,
                compute_fingerprint(twin),
                taken.now,
                sos=twin.sos,
            )
            if is_new and not other_is_new:
                # The item arrived by radio before, and now the hub has it too.
                at, digest = self.date(taken.now), digest_of(twin)
                taken.stages |= inbound.repeat_pending_stages(
                    db, source.station, twin.sequence, digest, at
                )
            is_new = is_new and other_is_new
        if not is_new:
            taken.duplicates += 1
        else:
            assert isinstance(entry.content, Item)
            age = self._incidents.note(db, origin, entry, source, self._journal.clock, taken)
            extra = _make_envelope_members(entry, source, age, taken) | _make_address_members(
                db, entry
            )
            taken.has_nameless_author |= origin > 0 and inbound.find_identity(db, origin) is None
            here = not isinstance(entry.content, Parcel) and (
                entry.sos or origin >= 0 or not directory.is_for_others(db, entry.to)
            )
            if origin >= 0 and isinstance(entry.content, Data) and _is_program(entry.content):
                program_deltas.note(db, entry.content.payload)
                taken.commands += 1
            elif here:
                spooled = self._spool(db, origin, entry, entry.content, taken, extra)
                taken.payloads.append(spooled)
        if entry.sequence == 0:
            # The hub wrote this entry itself, so no receipt is sent.
            return
        # Send a receipt for a duplicate too, because the peer did not get the earlier one.
        _record_owed_receipt(db, entry, taken, self.date(taken.now))

    def store_fragment(
        self,
        db: sqlite3.Connection,
        origin: int,
        sequence: int,
        part: Fragment,
        taken: ReceivedMessage,
    ) -> Sequence[Entry] | None:
        """Store a fragment. Return the entries of the item if it is complete now, otherwise
        None.
        """
        if inbound.is_seen(db, origin, sequence, compute_fingerprint(Entry(sequence, part))):
            taken.duplicates += 1
            return None
        item = inbound.FragmentedItem(origin, sequence, part.count)
        slices = inbound.store_segment(db, item, part.index, part.payload, taken.now)
        try:
            whole = reassemble(sequence, part.count, slices)
        except RemoteProtocolError as error:
            taken.troubles.append(f"{part.count} fragments of {sequence}: {error}")
            inbound.drop_slices(db, item, but=part.index)
            return None
        if whole is None:
            return None
        inbound.drop_slices(db, item)
        items = (e for e in whole.entries if e.sequence == sequence and isinstance(e.content, Item))
        digest = next(map(digest_of, items), None)
        for fragment in whole.fragments:
            inbound.mark_arrived(
                db, origin, sequence, compute_fingerprint(fragment), taken.now, whole=digest
            )
        if whole.not_understood:
            taken.troubles += whole.not_understood
            if taken.channel is not None:
                reason = "; ".join(whole.not_understood)
                letter = DeadLetter(taken.channel, whole.envelope, reason, self.date(taken.now))
                self._store_dead_letter(db, letter, taken)
        return whole.entries

    def _spool(
        self,
        db: sqlite3.Connection,
        origin: int,
        entry: Entry,
        item: Item,
        taken: ReceivedMessage,
        extra: Mapping[str, Any],
    ) -> Received:
        sender = inbound.find_identity(db, origin) or _make_numbered_identity(origin)
        moment = get_date(item, entry.time)
        plain = _make_payload(sender, item, moment, taken.now, sos=entry.sos, extra=extra)
        came = None
        if entry.sequence and not isinstance(item, IncidentUpdate):
            asks = entry.wants_receipt or entry.sos
            came = NumberedItem(min(origin, 0), entry.sequence, digest_of(entry), asks)
        copy = _copy(origin, entry, taken) if came is not None and origin > 0 else None
        payload = replace(plain, item=came, copy=copy)
        inbound.spool(db, payload, self.hooks, taken.not_before)
        return payload


def _is_program(data: Data) -> bool:
    """Return True for a program delta. The delta is for the kit itself, and a command uses it
    later.
    """
    return is_signed_delta(data.payload)


def _copy(origin: int, entry: Entry, taken: ReceivedMessage) -> bytes:
    """Return a copy of the hub's item with its accompanying entries, for a hub that has lost it."""
    number = entry.sequence
    extras = [taken.sources.get(number), taken.contacts.get(number), taken.seen_at.get(number)]
    beside: list[Content] = [each for each in extras if each is not None]
    if number in taken.unauthenticated:
        beside.append(UnauthenticatedMark())
    return encode([entry, *(Entry(number, each) for each in beside)], origin=origin)


def _make_envelope_members(
    entry: Entry, source: Source | None, age: int | None, taken: ReceivedMessage
) -> dict[str, Any]:
    """Return the envelope's facts about the item, as members of its event."""
    sequence = entry.sequence
    contact = taken.contacts.get(sequence, Contact())
    members: dict[str, Any] = {name: value for name, value in asdict(contact).items() if value}
    if (seen := taken.seen_at.get(sequence)) is not None:
        members["estimatedPosition"] = make_estimated_position(*astuple(seen))
    if entry.sos:
        members["incident"] = {"number": get_incident_number(entry, source)}
    if age is not None:
        members["age"] = age
    return members | ({"unauthenticated": True} if sequence in taken.unauthenticated else {})


def _make_address_members(db: sqlite3.Connection, entry: Entry) -> dict[str, Any]:
    """Return the addressee, the author and the request for receipts, as members of the item's
    event.
    """
    members: dict[str, Any] = {"receipt": "read"} if entry.wants_receipt else {}
    for name, named in (("to", entry.to), ("from", entry.author)):
        if named is not None:
            members[name] = directory.make_identity_members(db, named)
    return members


def _make_numbered_identity(origin: int) -> Identity:
    """Return an identity for a sender whose name is unknown."""
    unknown = make_unknown_identity(origin)
    kind = "station" if origin < 0 else "user"
    return unknown if origin == 0 else replace(unknown, name=f"{kind} {unknown.id}")


def _make_payload(
    sender: Identity, item: Item, moment: datetime, now: float, **how: Any
) -> Received:
    # Import it here, so that an agent that only sends saves 0.2 MB, the size of the module with its
    # library.
    import uuid

    request_id = str(uuid.uuid4())
    return Received(
        request_id, sender.id, encode_payload(request_id, sender, item, moment, **how), now
    )


def _record_owed_receipt(
    db: sqlite3.Connection, entry: Entry, taken: ReceivedMessage, at: float
) -> None:
    if taken.owed_channel is not None:
        owed = inbound.PendingReceipt(entry.sequence, int(at), entry.sos, digest_of(entry))
        inbound.add_pending_receipt(db, taken.owed_channel, owed)
        taken.owed = True


def is_confirmation_of(
    db: sqlite3.Connection, sequence: int, said: Receipt | Ack, taken: ReceivedMessage
) -> bool:
    """Return True if the confirmation belongs to the Package that has this number now."""
    try:
        known = outbound.read_package_in(db, sequence)
    except DamagedPackage:
        return False
    if known is None or is_about(known, said):
        return known is not None
    taken.mismatches.append(sequence)
    return False
