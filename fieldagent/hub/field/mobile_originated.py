"""Where an agent's message comes in: decoded, made whole, freed of duplicates, and entered.

All of it happens in one transaction, so that it may be acknowledged once `take_in` returns.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import blake2b

from fieldagent.hub.access import directory, people, revocation
from fieldagent.hub.access.directory import (
    device_of_imei,
    disabled_device,
    proof_keys_of,
    secrets_of,
)
from fieldagent.hub.contract import Bearer, Device, Estimate, Unknown
from fieldagent.hub.field import check_in, dead_letters
from fieldagent.hub.field.arrival import KitMessage, mark_arrived, was_there
from fieldagent.hub.field.kit_items import (
    KitItems,
    TakenIn,
    only_items,
    posting_of,
    take_in_all,
)
from fieldagent.hub.field.kit_words import (
    note_answer,
    take_answer,
    take_check_in,
    take_journal_number,
    take_open,
    take_receipt,
    take_report,
    take_unreadable,
)
from fieldagent.hub.field.neighbour import doubt_of, neighbour_of
from fieldagent.hub.places import positions as places
from fieldagent.hub.records import (
    contact,
    mt_copies,
    outward,
    slices,
    sos,
)
from fieldagent.hub.records.ledger import Posting, confirm, enter, note_rung
from fieldagent.hub.records.owed import THE_HUB, answer_again, note_carrier, owe_receipt, say_again
from fieldagent.hub.store.contract import Db, Store
from fieldagent.package.package import (
    CheckIn,
    CommandAnswer,
    IncidentWord,
    Item,
    Location,
    Parcel,
    Said,
    Waypoint,
)
from fieldagent.package.reach import Rung
from fieldagent.store.group import NOT_STORED
from fieldagent.system.supervisor import brief
from fieldagent.system.wording import counted
from fieldagent.wire.command import RemoteCommand
from fieldagent.wire.envelope import (
    Ack,
    Beside,
    Entry,
    Envelope,
    Fragment,
    Introduction,
    JournalNumber,
    Program,
    Receipt,
    RelayRequest,
    Report,
    SentBy,
    Unauthenticated,
    Unreadable,
    Way,
    decode,
    digest_of,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.fragments import reassemble
from fieldagent.wire.incident_proof import is_proved
from fieldagent.wire.parcel import UP, unwrap

log = logging.getLogger(__name__)

_OF_THE_AIR = Ack | RelayRequest | SentBy | Program | Way | Beside | RemoteCommand


NOBODY = (
    "no device in use has this IMEI: add or enable its device, or correct a mistyped one"
    " (`fieldagent hub device add`, `enable`, `imei`), which takes this in"
)
NOT_TAGGED = (
    "its messages bear no tag, and the hub has a key for it: set satellite-key on the kit to that"
    " key, or take it away (`fieldagent hub device key --remove`)"
)
OTHER_KEY = (
    "its messages are tagged with another key than the hub has: give both the same (`fieldagent hub"
    " device key`)"
)
UNCHECKED = (
    "its messages are tagged, and the hub has no key to check that: anybody may send in its name;"
    " give the hub the kit's satellite-key (`fieldagent hub device key --given`)"
)
FAILED_KEPT = 64


class MobileOriginated:
    """`keys` gives the keys that may have tagged a device's satellite messages: none, no tag.
    `take_tracker` takes in where a workspace's tracker was; returns whether an entry says so."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        keys: Callable[[Device], Awaitable[Sequence[bytes]]],
        grace: float,
        time_to_live: float,
        take_tracker: Callable[[Db, int, Entry, float], bool],
    ) -> None:
        self._store = store
        self._clock = clock
        self._keys = keys
        self._grace = grace
        self._time_to_live = time_to_live
        self._take_tracker = take_tracker
        self._failed: deque[tuple[int, bytes]] = deque(maxlen=FAILED_KEPT)
        """What failed to be taken in last, by device and digest."""
        self.mismatches = 0
        """Confirmations that counted for nothing, since the hub started."""

    async def take_in_from(
        self, imei: str, body: bytes, estimate: Estimate | None = None, *, unusable: str = ""
    ) -> None:
        """Take in what an operator's gateway brings, of whatever IMEI: implements
        `operator.TakeIn`."""
        while not unusable:
            try:
                device = await self._store.read(lambda db: device_of_imei(db, imei))
            except Unknown:
                if await self._store.commit(lambda db: self._keep_strangers(db, imei, body)):
                    log.error("%d bytes from %s are kept: %s", len(body), imei, NOBODY)
                    return
            else:
                await self.take_in(device, body, Bearer.SATELLITE, estimate)
                return
        now = self._clock()
        await self._store.commit(lambda db: dead_letters.keep_once(db, body, unusable, imei, now))
        log.error("%d bytes from %s are kept: %s", len(body), imei or "no IMEI", unusable)

    def _keep_strangers(self, db: Db, imei: str, body: bytes) -> bool:
        """False where somebody has the IMEI by now."""
        try:
            device_of_imei(db, imei)
        except Unknown:
            bearer, now, whose = Bearer.SATELLITE, self._clock(), disabled_device(db, imei)
            dead_letters.keep(db, body, NOBODY, imei=imei, device=whose, bearer=bearer, now=now)
            return True
        return False

    async def take_in(
        self, device: Device, body: bytes, bearer: Bearer, estimate: Estimate | None = None
    ) -> None:
        """Take in a message. Whatever of it cannot be used is kept as a dead letter. `estimate` is
        where the operator saw it come from.

        What fails by a mistake of ours raises once, and is brought again. Then it is kept too, or
        it would be brought for ever."""
        try:
            await self._take_in(device, body, bearer, estimate)
        except NOT_STORED:
            raise
        except Exception as error:
            digest = blake2b(body, digest_size=16).digest()
            if (device.id, digest) not in self._failed:
                self._failed.append((device.id, digest))
                raise
            log.exception("a message from %s could not be taken in, twice", device.name)
            reason = f"the hub failed to take it in, twice: {brief(error)}"
            await self._store.commit(lambda db: self._bury(db, device, body, bearer, reason))

    async def _take_in(
        self, device: Device, body: bytes, bearer: Bearer, estimate: Estimate | None
    ) -> None:
        """Over IP the link has proved who sends, by SMS the frame; over satellite the tag does."""
        keys = await self._keys(device) if bearer is Bearer.SATELLITE else ()
        try:
            envelope = decode(body, keys=keys)
        except RemoteProtocolError as error:
            trouble, reason = _in_words(error)
            log.error("%d bytes from %s are kept: %s", len(body), device.name, reason)

            def bury(db: Db) -> None:
                self._bury(db, device, body, bearer, reason)
                _note_key(db, device, trouble)

            await self._store.commit(bury)
            return
        alone = only_items(device, envelope) if bearer is Bearer.IP else None
        if alone is not None:
            plain = await self._store.commit_together(self._take_items, alone)
            if plain is not None:
                _tell(device, plain.items, plain.duplicates, bearer)
                return
        unchecked = bearer is Bearer.SATELLITE and envelope.tagged and not keys

        def take(db: Db) -> KitMessage:
            # A transaction may be carried out anew: each time it begins with nothing.
            proved = bearer is not Bearer.SATELLITE or bool(keys)
            brought = KitMessage(device, bearer, self._clock(), estimate=estimate, proved=proved)
            self._take(db, envelope, brought)
            brought.troubles += envelope.not_understood
            if brought.troubles:
                self._bury(db, device, body, bearer, "; ".join(brought.troubles))
            if bearer is Bearer.SATELLITE:
                _note_key(db, device, UNCHECKED if unchecked else "")
            return brought

        brought = await self._store.commit(take)
        self.mismatches += len(brought.mismatches)
        for confirmation in brought.mismatches:
            log.error(
                "%s from %s is not of the item that has this number now, and counts for nothing: it"
                " is from before a backup was restored, or an old recording",
                confirmation,
                device.name,
            )
        for trouble in (*brought.troubles, *brought.buried):
            log.error("part of a message from %s could not be used: %s", device.name, trouble)
        _tell(device, brought.items, brought.duplicates, bearer)

    def _take_items(self, db: Db, messages: Sequence[KitItems]) -> list[TakenIn | None]:
        limits = self._clock(), self._grace, self._time_to_live
        return take_in_all(db, messages, *limits)

    def _bury(self, db: Db, device: Device, body: bytes, bearer: Bearer, reason: str) -> None:
        imei = (device.imei or "") if bearer is Bearer.SATELLITE else ""
        now = self._clock()
        dead_letters.keep(db, body, reason, imei=imei, device=device.id, bearer=bearer, now=now)

    def replay(self, db: Db, device: Device, keys: Sequence[bytes]) -> int:
        """Take in the dead letters of a device that can be used by now, each once; how many."""
        return sum(
            self._replay_one(db, device, letter, keys if letter.bearer is Bearer.SATELLITE else ())
            for letter in dead_letters.of_device(db, device)
        )

    def _replay_one(
        self, db: Db, device: Device, letter: dead_letters.Letter, keys: Sequence[bytes]
    ) -> bool:
        try:
            envelope = decode(letter.body, keys=keys)
        except RemoteProtocolError as error:
            dead_letters.stays(db, letter.id, device.id, _in_words(error)[1])
            return False
        proved = letter.bearer is not Bearer.SATELLITE or bool(keys)
        brought = KitMessage(device, letter.bearer, self._clock(), proved=proved)
        # What fails by a mistake of ours undoes nothing else.
        db.execute("SAVEPOINT dead_letter")
        try:
            self._take(db, envelope, brought)
        except Exception as error:
            db.execute("ROLLBACK TO SAVEPOINT dead_letter")
            brought.troubles.append(f"the hub failed to take it in: {brief(error)}")
            log.exception("a dead letter of %s could not be taken in", device.name)
        db.execute("RELEASE SAVEPOINT dead_letter")
        if troubles := [*envelope.not_understood, *brought.troubles]:
            dead_letters.stays(db, letter.id, device.id, "; ".join(troubles))
            return False
        dead_letters.remove(db, letter.id)
        return True

    def _take(self, db: Db, envelope: Envelope, brought: KitMessage) -> KitMessage:
        if envelope.origin not in (0, brought.device.id):
            neighbour = neighbour_of(db, brought.device, envelope.origin)
            if neighbour is None:
                brought.troubles.append(f"items of {envelope.origin}, no device of this workspace")
                return brought
            brought.relaying, brought.device = brought.device, neighbour
            brought.doubt = doubt_of(db, brought.relaying, neighbour, brought.proved)
            contact.note(db, brought.relaying.id, brought.bearer, brought.now)
        brought.revoked, why = revocation.doubt_of(db, brought.relaying, brought.device)
        brought.doubt = why or brought.doubt
        if not brought.doubt:
            bearer = brought.bearer if brought.relaying is None else Bearer.RADIO
            contact.note(db, brought.device.id, bearer, brought.now)
        for entry in envelope.entries:
            self._take_entry(db, entry, brought)
        if (
            brought.bearer is Bearer.SATELLITE
            and brought.relaying is None
            and brought.revoked is None
        ):
            again = mt_copies.note_heard(db, brought.device.id, brought.confirmed, brought.now)
            if again:
                log.warning(
                    "%s has not confirmed %s: sent again",
                    brought.device.name,
                    counted(again, "message"),
                )
        return brought

    def _take_entry(self, db: Db, entry: Entry, brought: KitMessage) -> None:
        if unusable := _not_theirs(entry, brought):
            brought.troubles.append(unusable)
            return
        content = entry.content
        if isinstance(content, _OF_THE_AIR):
            brought.troubles.append("a word of the air, which nobody says to the hub")
            return
        # Whatever has no handling of its own goes to people, so a kind that comes later does too.
        match content:
            case IncidentWord(says=Said.OPEN):
                take_open(db, content, brought)
            case Parcel():
                self._take_parcel(db, content, brought)
            case JournalNumber():
                take_journal_number(db, entry, content, brought)
            case Receipt():
                take_receipt(db, entry, content, brought)
            case Report():
                take_report(db, entry, content, brought)
            case Unreadable():
                take_unreadable(db, entry, content, brought)
            case CheckIn():
                take_check_in(db, entry, content, brought)
            case CommandAnswer():
                take_answer(db, entry, content, brought)
            case Fragment():
                self._take_fragment(db, entry, content, brought)
            case Introduction():
                brought.troubles.append("an introduction: the hub knows who is who")
            case _:
                self._take_item(db, entry, content, brought)

    def _take_item(self, db: Db, entry: Entry, content: Item, brought: KitMessage) -> None:
        """Enter what goes to people, once."""
        device = brought.device
        # What is doubted is nothing new where the kit itself has said the same.
        if (brought.doubt and was_there(db, entry, brought)) or not mark_arrived(
            db, entry, brought
        ):
            brought.duplicates += 1
            if entry.sos and not brought.doubt:
                _note_carrier(db, entry, brought)
                _say_again(db, device.id, entry, brought.now)
                answer_again(db, device.id, entry.sequence, digest_of(entry), brought.now)
            return
        brought.items += 1
        if not brought.doubt:
            check_in.heard(db, device.id, brought.now)
            if self._take_tracker(db, device.workspace, entry, brought.now):
                return
        posting, recipient = addressed(db, self._posting(db, entry, content, brought))
        item, _ = enter(db, posting, now=brought.now, grace=self._grace)
        nobody = recipient.why
        if recipient.address:
            nobody = outward.enter(db, item, recipient.address, brought.now)
        if nobody:
            note_rung(db, item, THE_HUB, Rung.NOBODY, nobody, brought.now)
        # Where a person of the kit's is, who has a radio of their own, the kit need not be.
        if isinstance(content, Location) and not (brought.doubt or posting.carried):
            places.note(db, device, content, entry.time, brought.now)
        if entry.sos and not brought.doubt and not _tells_itself(brought):
            digest = digest_of(entry)
            owe_receipt(db, device.id, entry.sequence, digest, THE_HUB, brought.now, urgent=True)
        if brought.relaying is not None:
            # Who carried it has it.
            confirm(db, item, brought.relaying.id, brought.bearer, brought.now)
            if entry.sos and not brought.doubt:
                _note_carrier(db, entry, brought)

    def _take_parcel(self, db: Db, parcel: Parcel, brought: KitMessage) -> None:
        """What a kit says by a neighbour's link proves itself: it counts as if by its own."""
        device = brought.device
        if parcel.station:
            brought.troubles.append(f"a parcel for {parcel.station}, which goes down and not up")
            return
        try:
            envelope = unwrap(parcel.body, secrets_of(db, device.id), UP)
        except RemoteProtocolError as error:
            brought.troubles.append(f"a parcel of {device.name}: {error}")
            return
        by_radio = brought.bearer if brought.relaying is None else Bearer.RADIO
        said = KitMessage(device, by_radio, brought.now)
        # Whoever carried it may bring it again when nobody has heard of the kit any more.
        if mark_arrived(db, Entry(0, parcel), said):
            check_in.heard(db, device.id, brought.now)
        for entry in envelope.entries:
            if isinstance(entry.content, Receipt):
                take_receipt(db, entry, entry.content, said)
            elif isinstance(entry.content, CommandAnswer):
                note_answer(db, entry.content, said, by_radio.value)
            else:
                said.troubles.append("something in a parcel that nobody says in one")
        brought.confirmed += said.confirmed
        brought.mismatches += said.mismatches
        brought.troubles += [*envelope.not_understood, *said.troubles]

    def _posting(self, db: Db, entry: Entry, item: Item, brought: KitMessage) -> Posting:
        device = brought.device
        # Whoever brings it: no other kit can have said it.
        proved = isinstance(item, IncidentWord) and is_proved(item, proof_keys_of(db, device.id))
        return replace(
            posting_of(device, entry, item, brought.now + self._time_to_live),
            unauthenticated=bool(brought.doubt) and not proved,
            revoked=brought.revoked,
            estimate=_estimate_beside(item, brought),
        )

    def _take_fragment(self, db: Db, entry: Entry, part: Fragment, brought: KitMessage) -> None:
        if was_there(db, entry, brought):
            brought.duplicates += 1
            return
        sequence = entry.sequence
        whose = (brought.device.id, int(bool(brought.doubt)), sequence)
        kept = slices.keep(db, whose, part, brought.now)
        try:
            whole = reassemble(sequence, part.count, kept)
        except RemoteProtocolError as error:
            brought.troubles.append(f"{part.count} fragments of {sequence}: {error}")
            slices.drop(db, whose, part.count, but=part.index)
            return
        if whole is None:
            return
        slices.drop(db, whose, part.count)
        for fragment in whole.fragments:
            mark_arrived(db, fragment, brought)
        if brought.revoked is not None and not any(entry.sos for entry in whole.entries):
            # The last fragment alone could not be taken in later.
            self._bury(db, brought.device, whole.envelope, Bearer.IP, brought.doubt)
            brought.buried.append(brought.doubt)
            return
        for entry in whole.entries:
            self._take_entry(db, entry, brought)
        if whole.not_understood and not brought.doubt:
            reason = "; ".join(whole.not_understood)
            # As over IP: the fragments have proved whose it is, and it bears no tag itself.
            self._bury(db, brought.device, whole.envelope, Bearer.IP, reason)
            brought.buried.append(reason)


def _tell(device: Device, items: int, duplicates: int, bearer: Bearer) -> None:
    if items or duplicates:
        known = f", {duplicates} of them known" if duplicates else ""
        log.info("%s sent %s over %s%s", device.name, counted(items, "item"), bearer, known)


def _in_words(error: RemoteProtocolError) -> tuple[str, str]:
    """Return what is wrong with a key, if that is it; and why the message is kept."""
    if not isinstance(error, Unauthenticated):
        return "", f"it cannot be read: {error}"
    trouble = NOT_TAGGED if error.missing else OTHER_KEY
    return trouble, f"{error}: {trouble}"


def _note_key(db: Db, device: Device, trouble: str) -> None:
    """For `fieldagent hub device list`; in the log where it is news."""
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


def _estimate_beside(item: Item, brought: KitMessage) -> Estimate | None:
    """Return where its sender was, when it does not say so itself and sent it over its own
    modem."""
    has_position = isinstance(item, Location | Waypoint)
    return None if has_position or brought.relaying is not None else brought.estimate


def addressed(db: Db, posting: Posting) -> tuple[Posting, people.Recipient]:
    """Return it with who is named in it, as the workspace knows them; and whom that was found to
    be."""
    author = posting.author
    if isinstance(author, str):
        author = people.resolve(db, posting.workspace, f"user:{author}").member
    if author is not None and author > 0 and directory.is_member(db, posting.workspace, author):
        posting = replace(posting, sender=author, carried=author != posting.sender)
    if posting.to is None or posting.sos:
        return posting, people.Recipient()
    recipient = people.resolve(db, posting.workspace, posting.to)
    addressed = replace(
        posting,
        target=recipient.member,
        team=recipient.team,
        audience=recipient.audience,
        device=recipient.device,
        over_satellite=recipient.over_satellite,
        addressee=recipient.words,
    )
    return addressed, recipient


def _not_theirs(entry: Entry, brought: KitMessage) -> str:
    """Return why it does not count as said by the kit in whose name it came, in words; nothing
    where it does. An SOS counts whatever the doubt, and what proves itself is looked at later."""
    content = entry.content
    if brought.revoked is not None and not (entry.sos or isinstance(content, Fragment)):
        return brought.doubt
    if brought.relaying is not None and isinstance(content, Report | Receipt | Unreadable):
        return "a confirmation in the name of another device"
    if isinstance(content, Parcel) or not isinstance(content, Item) or _is_about_sos(entry):
        return ""
    return brought.doubt


def _is_about_sos(entry: Entry) -> bool:
    return entry.sos or isinstance(entry.content, IncidentWord)


def _tells_itself(brought: KitMessage) -> bool:
    """Over IP and by SMS an acknowledgement tells its kit that the hub has it."""
    return brought.bearer is not Bearer.SATELLITE and brought.relaying is None


def _note_carrier(db: Db, entry: Entry, brought: KitMessage) -> None:
    """What is said of an incident goes down by the kit that brought it up."""
    if brought.relaying is None:
        return
    incident = sos.of_kit(db, brought.device.id, entry.sequence - entry.back)
    if incident is not None:
        note_carrier(db, incident, brought.relaying.id, brought.now)


def _say_again(db: Db, device: int, entry: Entry, now: float) -> None:
    """Its kit goes on with an item of an incident that a person has."""
    incident = sos.of_kit(db, device, entry.sequence - entry.back)
    if incident is not None and incident.state != sos.SosState.OPEN:
        say_again(db, incident, now)
