"""Processes messages of agents: decodes them, reassembles fragments, ignores duplicates, and stores
items.

All of this is one transaction, so a message can be acknowledged when `take_in` returns.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

from fieldagent.hub.access import directory, people, revocation
from fieldagent.hub.access.device_keys import derive_proof_keys, read_secrets
from fieldagent.hub.access.directory import find_device_of_imei, find_disabled_device
from fieldagent.hub.contract import Bearer, Device, Estimate, UnknownDevice
from fieldagent.hub.field import check_in, dead_letters, positions, trackers
from fieldagent.hub.field.arrival import (
    KitMessage,
    find_doubt,
    find_neighbour,
    is_stored,
    mark_arrived,
)
from fieldagent.hub.field.kit_items import (
    IntakeResult,
    KitItems,
    add_kit_messages,
    make_posting,
    read_only_items,
)
from fieldagent.hub.field.kit_receipts import (
    raise_named_incident,
    record_answer,
    record_check_in,
    record_receipt,
    resend_fragments,
    resend_unreadable,
    store_command_answer,
    store_journal_number,
)
from fieldagent.hub.part import send_to_address
from fieldagent.hub.records import (
    contact,
    fragments,
    mt_copies,
    sos,
)
from fieldagent.hub.records.due_receipts import (
    THE_HUB,
    answer_again,
    owe_receipt,
    record_carrier,
    repeat_result,
)
from fieldagent.hub.records.ledger import Posting, add_item, confirm, record_stage
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.delivery import Stage
from fieldagent.package.package import (
    CheckIn,
    CommandAnswer,
    IncidentState,
    IncidentUpdate,
    Item,
    Location,
    Parcel,
    Waypoint,
)
from fieldagent.store.group import NOT_STORED
from fieldagent.system.supervisor import describe_error
from fieldagent.system.wording import format_count
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import (
    Ack,
    AuthorMark,
    Entry,
    Envelope,
    Fragment,
    Introduction,
    ItemAddition,
    JournalNumber,
    Program,
    Receipt,
    RelayRequest,
    Report,
    RouteToHub,
    Unauthenticated,
    UnauthenticatedMark,
    Unreadable,
    compute_item_digest,
    decode,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.fragments import reassemble
from fieldagent.wire.parcel import UP, unwrap
from fieldagent.wire.proof import is_update_proved

log = logging.getLogger(__name__)

_RADIO_ONLY = Ack | RelayRequest | AuthorMark | Program | RouteToHub | ItemAddition | RemoteCommand


NO_DEVICE_REASON = (
    "no device in use has this IMEI: add or enable its device, or correct a mistyped one"
    " (`fieldagent hub device add`, `enable`, `imei`); this also processes the message"
)
NOT_TAGGED = (
    "messages of this kit have no tag, but the hub has a key for it: set satellite-key on the"
    " kit to that key, or remove the key (`fieldagent hub device key --remove`)"
)
OTHER_KEY = (
    "messages of this kit are tagged with a key that the hub does not have: "
    "set the same key on both"
    " (`fieldagent hub"
    " device key`)"
)
UNCHECKED_TAG_REASON = (
    "messages of this kit are tagged, but the hub has no key to check them, so anyone can send in"
    " its name: give the hub the kit's satellite-key (`fieldagent hub device key --given`)"
)
FAILED_KEPT = 64


class MobileOriginatedReceiver:
    """Receiver of messages from agents.

    `keys` returns the keys with which a device may have tagged its satellite messages, or no key if
    the device uses no tag.
    """

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
        self._failed_messages: deque[tuple[int, bytes]] = deque(maxlen=FAILED_KEPT)
        """Device and digest of the last messages whose processing failed."""
        self.mismatches = 0
        """Number of ignored confirmations since the hub started."""

    async def take_in_from(
        self, imei: str, body: bytes, estimate: Estimate | None = None, *, unusable: str = ""
    ) -> None:
        """Process a message from an operator's gateway for the device with this IMEI. If there is
        no such device, or if the message is `unusable`, store it as a dead letter. Implements
        `operator.MessageReceiver`.
        """
        while not unusable:
            try:
                device = await self._store.read(lambda db: find_device_of_imei(db, imei))
            except UnknownDevice:
                if await self._store.commit(lambda db: self._store_unknown_letter(db, imei, body)):
                    log.error(
                        "%d bytes from %s are stored as a dead letter: %s",
                        len(body),
                        imei,
                        NO_DEVICE_REASON,
                    )
                    return
            else:
                await self.take_in(device, body, Bearer.SATELLITE, estimate)
                return
        now = self._clock()
        await self._store.commit(
            lambda db: dead_letters.store_letter_once(db, body, unusable, imei, now)
        )
        log.error(
            "%d bytes from %s are stored as a dead letter: %s",
            len(body),
            imei or "no IMEI",
            unusable,
        )

    def _store_unknown_letter(self, db: Db, imei: str, body: bytes) -> bool:
        """Store a message from an unknown IMEI as a dead letter. Return False if a device has got
        the IMEI meanwhile.
        """
        try:
            find_device_of_imei(db, imei)
        except UnknownDevice:
            bearer, now, device_id = Bearer.SATELLITE, self._clock(), find_disabled_device(db, imei)
            dead_letters.store_letter(
                db, body, NO_DEVICE_REASON, imei=imei, device=device_id, bearer=bearer, now=now
            )
            return True
        return False

    async def take_in(
        self, device: Device, body: bytes, bearer: Bearer, estimate: Estimate | None = None
    ) -> None:
        """Process a message, and store it as a dead letter if a part cannot be used. `estimate` is
        the sender's position according to the operator.

        If a bug in the hub makes the processing fail, the first failure is raised, so that the
        sender repeats the message. After the second failure, the message is stored as a dead
        letter, because otherwise the sender would repeat it forever.
        """
        try:
            await self._take_in(device, body, bearer, estimate)
        except NOT_STORED:
            raise
        except Exception as error:
            digest = blake2b(body, digest_size=16).digest()
            if (device.id, digest) not in self._failed_messages:
                self._failed_messages.append((device.id, digest))
                raise
            log.exception("a message from %s could not be processed, twice", device.name)
            reason = f"the hub failed to process it, twice: {describe_error(error)}"
            await self._store.commit(
                lambda db: self._store_dead_letter(db, device, body, bearer, reason)
            )

    async def _take_in(
        self, device: Device, body: bytes, bearer: Bearer, estimate: Estimate | None
    ) -> None:
        """Process a message. The sender is authenticated by the link (IP), the frame (SMS) or the
        tag (satellite).
        """
        keys = await self._keys(device) if bearer is Bearer.SATELLITE else ()
        try:
            envelope = decode(body, keys=keys)
        except RemoteProtocolError as error:
            fault, reason = _explain(error)
            log.error(
                "%d bytes from %s are stored as a dead letter: %s", len(body), device.name, reason
            )

            def bury(db: Db) -> None:
                self._store_dead_letter(db, device, body, bearer, reason)
                _store_key_trouble(db, device, fault)

            await self._store.commit(bury)
            return
        alone = read_only_items(device, envelope) if bearer is Bearer.IP else None
        if alone is not None:
            plain = await self._store.commit_together(self._add_items, alone)
            if plain is not None:
                _log_trouble(device, plain.items, plain.duplicates, bearer)
                return
        unchecked = bearer is Bearer.SATELLITE and envelope.tagged and not keys

        def process_envelope(db: Db) -> KitMessage:
            # A transaction may run again, so each run begins with an empty result.
            is_proved_message = bearer is not Bearer.SATELLITE or bool(keys)
            kit_message = KitMessage(
                device, bearer, self._clock(), estimate=estimate, is_authenticated=is_proved_message
            )
            self._process_message(db, envelope, kit_message)
            kit_message.troubles += envelope.not_understood
            if kit_message.troubles:
                self._store_dead_letter(db, device, body, bearer, "; ".join(kit_message.troubles))
            if bearer is Bearer.SATELLITE:
                _store_key_trouble(db, device, UNCHECKED_TAG_REASON if unchecked else "")
            return kit_message

        kit_message = await self._store.commit(process_envelope)
        self.mismatches += len(kit_message.mismatches)
        for confirmation in kit_message.mismatches:
            log.error(
                "%s from %s is ignored, because it is not for the item that has this number now:"
                " it is from before a backup was restored, or an old recording",
                confirmation,
                device.name,
            )
        for fault in (*kit_message.troubles, *kit_message.buried):
            log.error("part of a message from %s could not be used: %s", device.name, fault)
        _log_trouble(device, kit_message.items, kit_message.duplicates, bearer)

    def _add_items(self, db: Db, messages: Sequence[KitItems]) -> list[IntakeResult | None]:
        limits = self._clock(), self._grace, self._time_to_live
        return add_kit_messages(db, messages, *limits)

    def _store_dead_letter(
        self, db: Db, device: Device, body: bytes, bearer: Bearer, reason: str
    ) -> None:
        imei = (device.imei or "") if bearer is Bearer.SATELLITE else ""
        now = self._clock()
        dead_letters.store_letter(
            db, body, reason, imei=imei, device=device.id, bearer=bearer, now=now
        )

    def replay(self, db: Db, device: Device, keys: Sequence[bytes]) -> int:
        """Process each dead letter of a device once. Return the number of letters that the hub
        could use.
        """
        return sum(
            self._replay_one(db, device, letter, keys if letter.bearer is Bearer.SATELLITE else ())
            for letter in dead_letters.list_device_letters(db, device)
        )

    def _replay_one(
        self, db: Db, device: Device, letter: dead_letters.Letter, keys: Sequence[bytes]
    ) -> bool:
        try:
            envelope = decode(letter.body, keys=keys)
        except RemoteProtocolError as error:
            dead_letters.store_reason(db, letter.id, device.id, _explain(error)[1])
            return False
        is_authenticated = letter.bearer is not Bearer.SATELLITE or bool(keys)
        kit_message = KitMessage(
            device, letter.bearer, self._clock(), is_authenticated=is_authenticated
        )
        # If a bug in the hub makes one letter fail, the hub must still process the other letters.
        db.execute("SAVEPOINT dead_letter")
        try:
            self._process_message(db, envelope, kit_message)
        except Exception as error:
            db.execute("ROLLBACK TO SAVEPOINT dead_letter")
            kit_message.troubles.append(f"the hub failed to process it: {describe_error(error)}")
            log.exception("a dead letter of %s could not be processed", device.name)
        db.execute("RELEASE SAVEPOINT dead_letter")
        if troubles := [*envelope.not_understood, *kit_message.troubles]:
            dead_letters.store_reason(db, letter.id, device.id, "; ".join(troubles))
            return False
        dead_letters.delete_letter(db, letter.id)
        return True

    def _process_message(self, db: Db, envelope: Envelope, message: KitMessage) -> KitMessage:
        if envelope.origin not in (0, message.device.id):
            neighbour = find_neighbour(db, message.device, envelope.origin)
            if neighbour is None:
                message.troubles.append(
                    f"items from {envelope.origin}, which is not a device of this workspace"
                )
                return message
            message.relaying, message.device = message.device, neighbour
            message.doubt_reason = find_doubt(
                db, message.relaying, neighbour, message.is_authenticated
            )
            contact.record_contact(db, message.relaying.id, message.bearer, message.now)
        message.revoked, doubt_reason = revocation.find_revocation_doubt(
            db, message.relaying, message.device
        )
        message.doubt_reason = doubt_reason or message.doubt_reason
        if not message.doubt_reason:
            bearer = message.bearer if message.relaying is None else Bearer.RADIO
            contact.record_contact(db, message.device.id, bearer, message.now)
        message.unauthenticated = {
            entry.sequence
            for entry in envelope.entries
            if isinstance(entry.content, UnauthenticatedMark)
        }
        for entry in envelope.entries:
            if not isinstance(entry.content, UnauthenticatedMark):
                self._process_entry(db, entry, message)
        if (
            message.bearer is Bearer.SATELLITE
            and message.relaying is None
            and message.revoked is None
        ):
            again = mt_copies.record_confirmations(
                db, message.device.id, message.confirmed, message.now
            )
            if again:
                log.warning(
                    "%s has not confirmed %s: sent again",
                    message.device.name,
                    format_count(again, "message"),
                )
        return message

    def _process_entry(self, db: Db, entry: Entry, message: KitMessage) -> None:
        if unusable := _find_objection(entry, message):
            message.troubles.append(unusable)
            return
        content = entry.content
        if isinstance(content, _RADIO_ONLY):
            message.troubles.append("a note of the radio, which is not valid for the hub")
            return
        # An entry of another kind goes to people. This includes entries of kinds that future
        # versions add.
        match content:
            case IncidentUpdate(state=IncidentState.OPEN):
                raise_named_incident(db, content, message)
            case Parcel():
                self._process_parcel(db, content, message)
            case JournalNumber():
                store_journal_number(db, entry, content, message)
            case Receipt():
                record_receipt(db, entry, content, message)
            case Report():
                resend_fragments(db, entry, content, message)
            case Unreadable():
                resend_unreadable(db, entry, content, message)
            case CheckIn():
                record_check_in(db, entry, content, message)
            case CommandAnswer():
                record_answer(db, entry, content, message)
            case Fragment():
                self._process_fragment(db, entry, content, message)
            case Introduction():
                message.troubles.append("an introduction, which the hub does not need")
            case _:
                self._add_item(db, entry, content, message)

    def _add_item(self, db: Db, entry: Entry, content: Item, message: KitMessage) -> None:
        """Add an item for people. Ignore the item if it arrived before."""
        device = message.device
        # A doubtful entry is not new if the kit itself has sent the same entry.
        if (message.doubt_reason and is_stored(db, entry, message)) or not mark_arrived(
            db, entry, message
        ):
            message.duplicates += 1
            if entry.sos and not message.doubt_reason:
                _record_carrier(db, entry, message)
                _repeat_result(db, device.id, entry, message.now)
                answer_again(db, device.id, entry.sequence, compute_item_digest(entry), message.now)
            return
        message.items += 1
        if not message.doubt_reason:
            check_in.record_item(db, device.id, message.now)
            if trackers.store_kit_report(db, device.workspace, entry, message.now):
                return
        posting, recipient = resolve_names(db, self._make_posting(db, entry, content, message))
        item, _ = add_item(db, posting, now=message.now, grace=self._grace)
        reason = recipient.reason
        if recipient.address:
            reason = send_to_address(db, item, recipient.address, message.now)
        if reason:
            record_stage(db, item, THE_HUB, Stage.NOBODY, reason, message.now)
        # The position of a person with a separate radio is not the position of the kit.
        if isinstance(content, Location) and not (message.doubt_reason or posting.carried):
            positions.store_location(db, device, content, entry.time, message.now)
        if entry.sos and not message.doubt_reason and not _is_shown_by_ack(message):
            digest = compute_item_digest(entry)
            owe_receipt(db, device.id, entry.sequence, digest, THE_HUB, message.now, urgent=True)
        if message.relaying is not None:
            # The relaying kit has the item already, so it does not need a delivery.
            confirm(db, item, message.relaying.id, message.bearer, message.now)
            if entry.sos and not message.doubt_reason:
                _record_carrier(db, entry, message)

    def _process_parcel(self, db: Db, parcel: Parcel, message: KitMessage) -> None:
        """Process a parcel: an authenticated message that a kit sends over a neighbour's link. The
        hub treats the message as if the kit had sent it over its own link.
        """
        device = message.device
        if parcel.station:
            message.troubles.append(f"a parcel for {parcel.station}, which only a hub may send")
            return
        try:
            envelope = unwrap(parcel.body, read_secrets(db, device.id), UP)
        except RemoteProtocolError as error:
            message.troubles.append(f"a parcel of {device.name}: {error}")
            return
        by_radio = message.bearer if message.relaying is None else Bearer.RADIO
        parcel_message = KitMessage(device, by_radio, message.now)
        # If the parcel arrived before, it does not show that the kit is in range now: a carrier may
        # deliver it again later.
        if mark_arrived(db, Entry(0, parcel), parcel_message):
            check_in.record_item(db, device.id, message.now)
        for entry in envelope.entries:
            if isinstance(entry.content, Receipt):
                record_receipt(db, entry, entry.content, parcel_message)
            elif isinstance(entry.content, CommandAnswer):
                store_command_answer(db, entry.content, parcel_message, by_radio.value)
            else:
                parcel_message.troubles.append("an item that is not valid in a parcel")
        message.confirmed += parcel_message.confirmed
        message.mismatches += parcel_message.mismatches
        message.troubles += [*envelope.not_understood, *parcel_message.troubles]

    def _make_posting(self, db: Db, entry: Entry, item: Item, message: KitMessage) -> Posting:
        device = message.device
        is_doubtful = bool(message.doubt_reason) or entry.sequence in message.unauthenticated
        # Accept an update with a valid proof from any relaying kit, because only the kit that
        # raised the incident can create the proof.
        is_proved_update = isinstance(item, IncidentUpdate) and is_update_proved(
            item, derive_proof_keys(db, device.id)
        )
        return replace(
            make_posting(device, entry, item, message.now + self._time_to_live),
            unauthenticated=is_doubtful and not is_proved_update,
            revoked=message.revoked,
            estimate=_estimate_beside(item, message),
        )

    def _process_fragment(self, db: Db, entry: Entry, part: Fragment, message: KitMessage) -> None:
        if is_stored(db, entry, message):
            message.duplicates += 1
            return
        sequence = entry.sequence
        fragment_key = (message.device.id, int(bool(message.doubt_reason)), sequence)
        stored_slices = fragments.store_fragment(db, fragment_key, part, message.now)
        try:
            assembled = reassemble(sequence, part.count, stored_slices)
        except RemoteProtocolError as error:
            message.troubles.append(f"{part.count} fragments of {sequence}: {error}")
            fragments.delete_fragments(db, fragment_key, part.count, kept_position=part.index)
            return
        if assembled is None:
            return
        fragments.delete_fragments(db, fragment_key, part.count)
        for fragment in assembled.fragments:
            mark_arrived(db, fragment, message)
        if message.revoked is not None and not any(entry.sos for entry in assembled.entries):
            # Store the whole message, because the last fragment alone could not be processed later.
            self._store_dead_letter(
                db, message.device, assembled.envelope, Bearer.IP, message.doubt_reason
            )
            message.buried.append(message.doubt_reason)
            return
        for entry in assembled.entries:
            self._process_entry(db, entry, message)
        if assembled.not_understood and not message.doubt_reason:
            reason = "; ".join(assembled.not_understood)
            # Store the message as if it had arrived over IP: the fragments have authenticated the
            # sender, and the envelope itself has no tag.
            self._store_dead_letter(db, message.device, assembled.envelope, Bearer.IP, reason)
            message.buried.append(reason)


def _log_trouble(device: Device, items: int, duplicates: int, bearer: Bearer) -> None:
    if items or duplicates:
        duplicates_text = f", {duplicates} of them known" if duplicates else ""
        log.info(
            "%s sent %s over %s%s",
            device.name,
            format_count(items, "item"),
            bearer,
            duplicates_text,
        )


def _explain(error: RemoteProtocolError) -> tuple[str, str]:
    """Return two texts: the problem with the key (empty if the key is not the cause), and the
    reason why the message becomes a dead letter.
    """
    if not isinstance(error, Unauthenticated):
        return "", f"it cannot be read: {error}"
    fault = NOT_TAGGED if error.missing else OTHER_KEY
    return fault, f"{error}: {fault}"


def _store_key_trouble(db: Db, device: Device, trouble: str) -> None:
    """Store the problem with a key, which `fieldagent hub device list` shows. Log a new problem."""
    if (
        db.execute(
            "UPDATE device SET key_trouble = ? WHERE id = ? AND key_trouble <> ? RETURNING id",
            trouble,
            device.id,
            trouble,
        )
        and trouble
    ):
        log.error("%s: %s", device.name, trouble)


def _estimate_beside(item: Item, message: KitMessage) -> Estimate | None:
    """Return the sender's position according to the operator. Return None if the item has a
    position or the sender did not use its own modem.
    """
    has_position = isinstance(item, Location | Waypoint)
    return None if has_position or message.relaying is not None else message.estimate


def resolve_names(db: Db, posting: Posting) -> tuple[Posting, people.Recipient]:
    """Replace the author and the recipient that the posting names by members of the workspace.
    Return the new posting and the recipient.
    """
    author = posting.author
    if isinstance(author, str):
        author = people.find_recipient(db, posting.workspace, f"user:{author}").member
    if author is not None and author > 0 and directory.is_member(db, posting.workspace, author):
        posting = replace(posting, sender=author, carried=author != posting.sender)
    if posting.to is None or posting.sos:
        return posting, people.Recipient()
    recipient = people.find_recipient(db, posting.workspace, posting.to)
    addressed = replace(
        posting,
        target=recipient.member,
        team=recipient.team,
        audience=recipient.audience,
        device=recipient.device,
        over_satellite=recipient.over_satellite,
        addressee=recipient.identity_json,
    )
    return addressed, recipient


def _find_objection(entry: Entry, message: KitMessage) -> str:
    """Return the reason why the hub does not accept the entry as the kit's own, or an empty string.
    The hub accepts an SOS despite any doubt. An entry with its own proof is checked later.
    """
    content = entry.content
    if message.revoked is not None and not (entry.sos or isinstance(content, Fragment)):
        return message.doubt_reason
    if message.relaying is not None and isinstance(content, Report | Receipt | Unreadable):
        return "a confirmation in the name of another device"
    if isinstance(content, Parcel) or not isinstance(content, Item) or _is_about_sos(entry):
        return ""
    return message.doubt_reason


def _is_about_sos(entry: Entry) -> bool:
    return entry.sos or isinstance(entry.content, IncidentUpdate)


def _is_shown_by_ack(message: KitMessage) -> bool:
    """Return True if an acknowledgement of the channel shows the kit that the hub has the item.
    This is so for the kit's own IP link and for SMS.
    """
    return message.bearer is not Bearer.SATELLITE and message.relaying is None


def _record_carrier(db: Db, entry: Entry, message: KitMessage) -> None:
    """Record the kit that relayed an SOS as a carrier of the incident, so that it also gets the
    updates of the incident.
    """
    if message.relaying is None:
        return
    incident = sos.find_by_kit(db, message.device.id, entry.sequence - entry.items_back)
    if incident is not None:
        record_carrier(db, incident, message.relaying.id, message.now)


def _repeat_result(db: Db, device: int, entry: Entry, now: float) -> None:
    """Send the incident's result to the kit again, because the kit still repeats items although a
    person has seen or closed the incident.
    """
    incident = sos.find_by_kit(db, device, entry.sequence - entry.items_back)
    if incident is not None and incident.state != sos.SosState.OPEN:
        repeat_result(db, incident, now)
