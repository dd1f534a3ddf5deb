"""Receives messages for this kit: decodes and reassembles them, drops duplicates, and spools their
items for the hooks.

Each message is stored in one transaction. So the driver may clear the modem's copy when
`store_message` has returned.
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
from fieldagent.agent.journal import dead_letters, directory, inbound, outbound
from fieldagent.agent.journal.commands import store_delta
from fieldagent.agent.journal.dead_letters import DeadLetter
from fieldagent.agent.journal.inbound import NumberedItem, Received
from fieldagent.agent.journal.journal import Journal, Operation
from fieldagent.agent.journal.records import DamagedPackage
from fieldagent.agent.outbound.item_identity import is_report_about
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
    Contact,
    Content,
    Entry,
    EstimatedPosition,
    Fragment,
    Introduction,
    ItemAddition,
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
    compute_item_digest,
    decode,
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
    """Results of storing one message, and the actions that must follow."""

    now: float
    owed_channel: str | None = None
    channel: str | None = None
    """Channel that is stored with dead letters of unusable parts. None on the air, because there a
    message costs nothing, and its sender repeats it."""
    owed: bool = False
    payloads: list[Received] = field(default_factory=list)
    duplicates: int = 0
    reports: list[tuple[int, Report]] = field(default_factory=list)
    receipts: list[int] = field(default_factory=list)
    mismatches: list[int] = field(default_factory=list)
    """Item numbers of confirmations that do not belong to the item that now has the number."""
    sources: dict[int, Source] = field(default_factory=dict)
    has_nameless_author: bool = False
    """True if an item came from a person without a known name."""
    is_authenticated: bool = False
    """True if the link or the message's tag shows that the message is from the hub."""
    not_before: float = 0.0
    """Elapsed time before which hooks receive no payload of this message, except an SOS."""
    unauthenticated: set[int] = field(default_factory=set)
    """Numbers of items whose sender is unauthenticated."""
    contacts: dict[int, Contact] = field(default_factory=dict)
    seen_at: dict[int, EstimatedPosition] = field(default_factory=dict)
    updates_for_kits: list[ForwardedUpdate] = field(default_factory=list)
    """Messages for other kits that this message contains."""
    commands: int = 0
    stages: bool = False
    """True if the hub must receive a receipt about the stage of an item."""
    troubles: list[str] = field(default_factory=list)
    buried: int = 0
    """Number of dead letters that were stored for this message."""
    dropped: int = 0
    """Number of older dead letters that were deleted to make space for new ones."""


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
    """Receiving side of the agent. `hooks` contains the names of the hooks that must receive every
    payload. If `spools_unreadable`, the hooks also receive dead letters, as Data.
    """

    def __init__(
        self,
        journal: Journal,
        hooks: Sequence[str],
        *,
        clock: Callable[[], float],
        keys: Sequence[bytes] = (),
        spools_unreadable: bool = False,
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
        self._hand_unread = spools_unreadable
        self.key_trouble = ""
        """Problem with `satellite-key` that the last satellite message has shown, as a text for
        people. Empty if there is none."""
        self.mismatches = 0
        """Number of confirmations that were ignored since the agent started."""
        self.news = trio.Event()
        """Event that is set when payloads were spooled. A new event then replaces it."""
        self.stages = trio.Event()
        """Event that is set when a sender must receive a receipt. A new event then replaces it."""

    async def store_message(
        self,
        body: bytes,
        extra_operation: Operation[None],
        *,
        channel: str,
        receipt_channel: str | None,
        is_tagged: bool,
        after_store: Callable[[sqlite3.Connection, ReceivedMessage], None] = lambda db, taken: None,
    ) -> ReceivedMessage:
        """Decode a message and store its content. The content is on disk when the method returns.
        `extra_operation` and `after_store` run in the same commit. `after_store` receives the
        result. If the message is damaged or has an unknown version or kind, no error is raised: the
        message is kept as a dead letter.

        `receipt_channel` is the channel on which the peer must receive receipts. It is None if the
        link itself confirms messages. If `is_tagged` is False, the link has already authenticated
        the sender, and no tag is required.
        """
        try:
            envelope = decode(body, keys=self._keys if is_tagged else ())
        except RemoteProtocolError as error:
            return await self.store_dead_letter(
                body, extra_operation, channel=channel, reason=self._describe_item(error)
            )
        if is_tagged:
            self._record_key_trouble(
                "" if self._keys or not envelope.tagged else UNCHECKED_TAG_REASON
            )
        now = self._clock()

        def store(db: sqlite3.Connection) -> ReceivedMessage:
            extra_operation(db)
            # The operation may run more than once, so start with an empty result each time.
            proved = not is_tagged or bool(self._keys)
            received = ReceivedMessage(
                now,
                receipt_channel,
                channel,
                troubles=[*envelope.not_understood],
                is_authenticated=proved,
            )
            self.store_all(db, envelope.origin, envelope.entries, received)
            after_store(db, received)
            if received.troubles and not received.buried:
                reason = "; ".join(received.troubles)
                self._store_dead_letter(
                    db, DeadLetter(channel, body, reason, self.date(now)), received
                )
            return received

        taken = await self._journal.persist(store)
        self.publish(taken)
        return taken

    async def store_dead_letter(
        self, body: bytes, extra_operation: Operation[None], *, channel: str, reason: str
    ) -> ReceivedMessage:
        """Store an unusable message as a dead letter. `extra_operation` runs in the same commit."""
        now = self._clock()

        def store(db: sqlite3.Connection) -> ReceivedMessage:
            extra_operation(db)
            fault = f"{len(body)} bytes over {channel}: {reason}"
            received = ReceivedMessage(now, channel=channel, troubles=[fault])
            self._store_dead_letter(db, DeadLetter(channel, body, reason, self.date(now)), received)
            return received

        received = await self._journal.persist(store)
        self.publish(received)
        return received

    async def replay(self, letter: DeadLetter, *, is_tagged: bool) -> bool:
        """Decode a dead letter again, with the present keys and program version, and store its
        content. If all of it can be used, remove the dead letter, and return True.
        """
        try:
            envelope = decode(letter.body, keys=self._keys if is_tagged else ())
        except RemoteProtocolError:
            return False
        if envelope.not_understood:
            return False

        def store(db: sqlite3.Connection) -> ReceivedMessage:
            received = ReceivedMessage(self._clock(), channel=letter.channel)
            self.store_all(db, envelope.origin, envelope.entries, received)
            if not received.troubles:
                dead_letters.remove(db, letter.number)
            return received

        received = await self._journal.persist(store)
        if received.troubles:
            return False
        self.publish(received)
        return True

    def _describe_item(self, error: RemoteProtocolError) -> str:
        if not isinstance(error, Unauthenticated):
            return f"it cannot be read: {error}"
        self._record_key_trouble(UNTAGGED_PEER if error.missing else OTHER_KEY)
        return f"{error}: {self.key_trouble}"

    def _record_key_trouble(self, trouble: str) -> None:
        if trouble and trouble != self.key_trouble:
            log.error("%s", trouble)
        self.key_trouble = trouble

    def _store_dead_letter(
        self, db: sqlite3.Connection, letter: DeadLetter, result: ReceivedMessage
    ) -> None:
        result.buried += 1
        result.dropped += dead_letters.store_letter(db, letter)
        if self._hand_unread:
            sender = Identity(letter.channel, letter.channel, "Integration")
            moment = datetime.fromtimestamp(letter.received, UTC)
            extra = {"source": letter.channel, "reason": letter.reason}
            payload = _make_payload(sender, Data(letter.body), moment, self._clock(), extra=extra)
            inbound.store_payload(db, payload, self.hooks)
            result.payloads.append(payload)

    def publish(self, result: ReceivedMessage) -> None:
        """Log the result, and wake the tasks for payloads, commands and receipts. Call this method
        when the result is on disk.
        """
        # Several of the cases below can apply to one message. Wake the hooks last, so that the log
        # shows the reason before the actions.
        for trouble in result.troubles:
            log.error(
                "not all of a message could be used: %s; `fieldagent inbound list` shows it",
                trouble,
            )
        if result.dropped:
            log.error("%d dead letters were dropped to make room for newer ones", result.dropped)
        for number in result.mismatches:
            self.record_mismatch(number)
        if result.duplicates:
            log.info("%d payloads were duplicates and were not passed on", result.duplicates)
        for payload in result.payloads:
            if SOS_MARK in payload.body:
                log.warning("an SOS has come from %s: %s", payload.sender, payload.body)
        if result.payloads:
            self.wake()
        if result.commands:
            self.commands.wake()
        if result.stages:
            self.report_stages()
        for sequence in result.receipts:
            log.info("Package number %d has reached its addressee", sequence)

    def record_mismatch(self, sequence: int) -> None:
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
        self, db: sqlite3.Connection, origin: int, entries: Sequence[Entry], result: ReceivedMessage
    ) -> None:
        """Store the content of one envelope. The caller must call `publish` when the content is on
        disk.
        """
        for entry in entries:
            if isinstance(entry.content, Source):
                result.sources[entry.sequence] = entry.content
            elif isinstance(entry.content, UnauthenticatedMark):
                result.unauthenticated.add(entry.sequence)
            elif isinstance(entry.content, Contact):
                result.contacts[entry.sequence] = entry.content
            elif isinstance(entry.content, EstimatedPosition):
                result.seen_at[entry.sequence] = entry.content
        for entry in entries:
            self._store_received_entry(db, origin, entry, result)

    def _store_received_entry(
        self, db: sqlite3.Connection, origin: int, entry: Entry, result: ReceivedMessage
    ) -> None:
        content = entry.content
        if isinstance(content, Introduction):
            inbound.store_identity(db, entry.sequence, content.identity)
        elif isinstance(content, Report):
            self._store_report(db, entry, content, result)
        elif isinstance(content, Receipt):
            if is_confirmation_of(db, entry.sequence, content, result):
                self._store_receipt(db, entry, content, result)
        elif isinstance(content, RemoteCommand):
            self.commands.store_command(db, entry.sequence, content, self._journal.clock, result)
        elif isinstance(content, Fragment):
            assembled = self.store_fragment(db, origin, entry.sequence, content, result)
            self.store_all(db, origin, assembled or (), result)
        elif isinstance(content, _NOT_FOR_A_KIT):
            result.troubles.append(
                "a note for the air or the hub, which is not valid on this channel"
            )
        elif isinstance(content, Parcel):
            result.updates_for_kits.append(ForwardedUpdate(content, entry.time))
        elif not isinstance(content, ItemAddition):
            self.store_entry(db, origin, entry, result)

    def _store_receipt(
        self, db: sqlite3.Connection, entry: Entry, receipt: Receipt, result: ReceivedMessage
    ) -> None:
        number, reader, at = entry.sequence, receipt.by, float(entry.time)
        if receipt.stage is not Stage.STORED:
            outbound.store_stage(db, number, reader, receipt.stage, receipt.text, at)
        elif outbound.store_receipt(db, number, reader, at, is_proved=result.is_authenticated):
            result.receipts.append(number)

    def _store_report(
        self, db: sqlite3.Connection, entry: Entry, report: Report, result: ReceivedMessage
    ) -> None:
        """Store a report of missing fragments. A replayed report is ignored, because each report
        causes transmissions that cost credits or air time.
        """
        if inbound.mark_arrived(
            db, THE_HUB, entry.sequence, compute_fingerprint(entry), result.now
        ):
            result.reports.append((entry.sequence, report))
        else:
            result.duplicates += 1

    def store_entry(
        self, db: sqlite3.Connection, origin: int, entry: Entry, result: ReceivedMessage
    ) -> None:
        """Record the arrival of an item, process its news, and spool it for the hooks. A duplicate,
        an item for another kit's owner and a program delta are not spooled. The number in the
        item's Source also identifies a duplicate. Record that the peer must receive a receipt.
        """
        is_new = inbound.mark_arrived(
            db, origin, entry.sequence, compute_fingerprint(entry), result.now, sos=entry.sos
        )
        source = result.sources.get(entry.sequence)
        if source is not None:
            twin = replace(entry, sequence=source.sequence)
            other_is_new = inbound.mark_arrived(
                db,
                -source.station,
                twin.sequence,
                compute_fingerprint(twin),
                result.now,
                sos=twin.sos,
            )
            if is_new and not other_is_new:
                # The item first arrived by radio, and now arrives from the hub, which may have
                # missed the read receipts.
                received_at, digest = self.date(result.now), compute_item_digest(twin)
                result.stages |= inbound.repeat_pending_stages(
                    db, source.station, twin.sequence, digest, received_at
                )
            is_new = is_new and other_is_new
        if not is_new:
            result.duplicates += 1
        else:
            assert isinstance(entry.content, Item)
            age = self._incidents.store_news(db, origin, entry, source, self._journal.clock, result)
            extra = _make_envelope_members(entry, source, age, result) | _make_address_members(
                db, entry
            )
            result.has_nameless_author |= origin > 0 and inbound.find_identity(db, origin) is None
            is_addressed_here = not isinstance(entry.content, Parcel) and (
                entry.sos or origin >= 0 or not directory.is_for_others(db, entry.to)
            )
            if origin >= 0 and isinstance(entry.content, Data) and _is_program(entry.content):
                store_delta(db, entry.content.payload)
                result.commands += 1
            elif is_addressed_here:
                spooled = self._spool(db, origin, entry, entry.content, result, extra)
                result.payloads.append(spooled)
        if entry.sequence == 0:
            # The hub wrote this entry itself, so it needs no receipt.
            return
        # Send a receipt for a duplicate too, because the peer has not received the earlier receipt.
        _record_owed_receipt(db, entry, result, self.date(result.now))

    def store_fragment(
        self,
        db: sqlite3.Connection,
        origin: int,
        sequence: int,
        part: Fragment,
        result: ReceivedMessage,
    ) -> Sequence[Entry] | None:
        """Store a fragment. Return the entries of the item if this fragment completes it, otherwise
        None.
        """
        if inbound.has_arrived(db, origin, sequence, compute_fingerprint(Entry(sequence, part))):
            result.duplicates += 1
            return None
        item = inbound.FragmentedItem(origin, sequence, part.count)
        slices = inbound.store_fragment(db, item, part.index, part.payload, result.now)
        try:
            assembled = reassemble(sequence, part.count, slices)
        except RemoteProtocolError as error:
            result.troubles.append(f"{part.count} fragments of {sequence}: {error}")
            inbound.delete_fragments(db, item, kept_position=part.index)
            return None
        if assembled is None:
            return None
        inbound.delete_fragments(db, item)
        items = (
            e for e in assembled.entries if e.sequence == sequence and isinstance(e.content, Item)
        )
        digest = next(map(compute_item_digest, items), None)
        for fragment in assembled.fragments:
            inbound.mark_arrived(
                db,
                origin,
                sequence,
                compute_fingerprint(fragment),
                result.now,
                complete_item=digest,
            )
        if assembled.not_understood:
            result.troubles += assembled.not_understood
            if result.channel is not None:
                reason = "; ".join(assembled.not_understood)
                letter = DeadLetter(
                    result.channel, assembled.envelope, reason, self.date(result.now)
                )
                self._store_dead_letter(db, letter, result)
        return assembled.entries

    def _spool(
        self,
        db: sqlite3.Connection,
        origin: int,
        entry: Entry,
        item: Item,
        result: ReceivedMessage,
        extra: Mapping[str, Any],
    ) -> Received:
        sender = inbound.find_identity(db, origin) or _make_numbered_identity(origin)
        moment = get_date(item, entry.time)
        plain = _make_payload(sender, item, moment, result.now, sos=entry.sos, extra=extra)
        spooled = None
        if entry.sequence and not isinstance(item, IncidentUpdate):
            wants_receipt = entry.wants_receipt or entry.sos
            spooled = NumberedItem(
                min(origin, 0), entry.sequence, compute_item_digest(entry), wants_receipt
            )
        copy = _copy(origin, entry, result) if spooled is not None and origin > 0 else None
        payload = replace(plain, item=spooled, copy=copy)
        inbound.store_payload(db, payload, self.hooks, result.not_before)
        return payload


def _is_program(data: Data) -> bool:
    """Return True if `data` is a program delta. Hooks do not get program deltas, because they are
    for the kit itself: a command uses them later.
    """
    return is_signed_delta(data.payload)


def _copy(origin: int, entry: Entry, result: ReceivedMessage) -> bytes:
    """Return a copy of the hub's item with its accompanying entries. The copy is kept for a hub
    that loses its database.
    """
    number = entry.sequence
    extras = [result.sources.get(number), result.contacts.get(number), result.seen_at.get(number)]
    other_contents: list[Content] = [each for each in extras if each is not None]
    if number in result.unauthenticated:
        other_contents.append(UnauthenticatedMark())
    return encode([entry, *(Entry(number, each) for each in other_contents)], origin=origin)


def _make_envelope_members(
    entry: Entry, source: Source | None, age: int | None, result: ReceivedMessage
) -> dict[str, Any]:
    """Return the members of the item's event that come from its envelope."""
    sequence = entry.sequence
    contact = result.contacts.get(sequence, Contact())
    members: dict[str, Any] = {name: value for name, value in asdict(contact).items() if value}
    if (receipts_seen := result.seen_at.get(sequence)) is not None:
        members["estimatedPosition"] = make_estimated_position(*astuple(receipts_seen))
    if entry.sos:
        members["incident"] = {"number": get_incident_number(entry, source)}
    if age is not None:
        members["age"] = age
    return members | ({"unauthenticated": True} if sequence in result.unauthenticated else {})


def _make_address_members(db: sqlite3.Connection, entry: Entry) -> dict[str, Any]:
    """Return the members of the item's event for the addressee, the author and the request for
    receipts.
    """
    members: dict[str, Any] = {"receipt": "read"} if entry.wants_receipt else {}
    for name, identity in (("to", entry.to), ("from", entry.author)):
        if identity is not None:
            members[name] = directory.make_identity_members(db, identity)
    return members


def _make_numbered_identity(origin: int) -> Identity:
    """Return an identity for a sender whose name is unknown."""
    unknown = make_unknown_identity(origin)
    kind = "station" if origin < 0 else "user"
    return unknown if origin == 0 else replace(unknown, name=f"{kind} {unknown.id}")


def _make_payload(
    sender: Identity, item: Item, moment: datetime, now: float, **how: Any
) -> Received:
    # Import this module here, so that an agent that only sends saves 0.2 MB, the size of the module
    # with its library.
    import uuid

    request_id = str(uuid.uuid4())
    return Received(
        request_id, sender.id, encode_payload(request_id, sender, item, moment, **how), now
    )


def _record_owed_receipt(
    db: sqlite3.Connection, entry: Entry, result: ReceivedMessage, at: float
) -> None:
    if result.owed_channel is not None:
        pending_receipt = inbound.PendingReceipt(
            entry.sequence, int(at), entry.sos, compute_item_digest(entry)
        )
        inbound.add_pending_receipt(db, result.owed_channel, pending_receipt)
        result.owed = True


def is_confirmation_of(
    db: sqlite3.Connection, sequence: int, content: Receipt | Ack, result: ReceivedMessage
) -> bool:
    """Return True if the confirmation `content` belongs to the Package that now has the number
    `sequence`.
    """
    try:
        package = outbound.read_package_in(db, sequence)
    except DamagedPackage:
        return False
    if package is None or is_report_about(package, content):
        return package is not None
    result.mismatches.append(sequence)
    return False
