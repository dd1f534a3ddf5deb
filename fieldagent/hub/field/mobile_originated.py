"""Where an agent's message comes in: decoded, made whole, freed of duplicates, and entered.

All of it happens in one transaction, so that it may be acknowledged once `take_in` returns.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace
from hashlib import blake2b

from fieldagent.hub.access import directory, people, revocation
from fieldagent.hub.access.directory import (
    device_of_imei,
    disabled_device,
    proof_keys_of,
    secrets_of,
)
from fieldagent.hub.contract import Bearer, Device, Estimate, Unknown
from fieldagent.hub.field import check_in, dead_letters, radio_key
from fieldagent.hub.field.envelope_packing import note_journal
from fieldagent.hub.field.kit_items import (
    KitItems,
    TakenIn,
    only_items,
    posting_of,
    take_in_all,
)
from fieldagent.hub.field.mobile_terminated import send_fragments_again
from fieldagent.hub.field.neighbour import doubt_of, neighbour_of
from fieldagent.hub.places import positions as places
from fieldagent.hub.records import (
    alarm,
    commands,
    contact,
    mt_copies,
    numbering,
    outward,
    slices,
    sos,
)
from fieldagent.hub.records.ledger import Posting, confirm, enter, note_rung, stored_entry
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
from fieldagent.system.lazy_dataclass import dataclass
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
    fingerprint,
)
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.fragments import reassemble
from fieldagent.wire.incident_proof import is_proved
from fieldagent.wire.parcel import UP, unwrap

log = logging.getLogger(__name__)

_NOT_TO_THE_HUB = Ack | RelayRequest | SentBy | Program | Way | Beside | RemoteCommand


@dataclass(slots=True)
class _Taken:
    """What one message turned out to hold."""

    device: Device
    """Whose items these are."""
    way: Bearer
    now: float
    relaying: Device | None = None
    """Whose link brought them, where that is another's."""
    estimate: Estimate | None = None
    proved: bool = True
    """Who brought them has proved who they are: by a link's token, or a tag."""
    doubt: str = ""
    """Why these are not believed to be the device's: nothing but an SOS of theirs counts."""
    revoked: float | None = None
    """Since when the device is revoked, or who brought them."""
    items: int = 0
    duplicates: int = 0
    mismatches: list[str] = field(default_factory=list)
    """Confirmations that are not about the item that has their number now."""
    troubles: list[str] = field(default_factory=list)
    """Why part of the message cannot be used: all of it is kept."""
    confirmed: list[int] = field(default_factory=list)
    """Items that the device has stored, and which are no SOS."""
    buried: list[str] = field(default_factory=list)
    """Why part of what its last fragment made whole cannot be used: that is kept already."""


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
            way, now, whose = Bearer.SATELLITE, self._clock(), disabled_device(db, imei)
            dead_letters.keep(db, body, NOBODY, imei=imei, device=whose, way=way, now=now)
            return True
        return False

    async def take_in(
        self, device: Device, body: bytes, way: Bearer, estimate: Estimate | None = None
    ) -> None:
        """Whatever of it cannot be used is kept as a dead letter. `estimate` is where the operator
        saw it come from.

        What fails by a mistake of ours raises once, and is brought again. Then it is kept too, or
        it would be brought for ever.
        """
        try:
            await self._take_in(device, body, way, estimate)
        except NOT_STORED:
            raise
        except Exception as error:
            digest = blake2b(body, digest_size=16).digest()
            if (device.id, digest) not in self._failed:
                self._failed.append((device.id, digest))
                raise
            log.exception("a message from %s could not be taken in, twice", device.name)
            reason = f"the hub failed to take it in, twice: {brief(error)}"
            await self._store.commit(lambda db: self._bury(db, device, body, way, reason))

    async def _take_in(
        self, device: Device, body: bytes, way: Bearer, estimate: Estimate | None
    ) -> None:
        """Over IP the link has proved who sends, by SMS the frame; over satellite the tag does."""
        keys = await self._keys(device) if way is Bearer.SATELLITE else ()
        try:
            envelope = decode(body, keys=keys)
        except RemoteProtocolError as error:
            trouble, reason = _in_words(error)
            log.error("%d bytes from %s are kept: %s", len(body), device.name, reason)

            def bury(db: Db) -> None:
                self._bury(db, device, body, way, reason)
                _note_key(db, device, trouble)

            await self._store.commit(bury)
            return
        alone = only_items(device, envelope) if way is Bearer.IP else None
        if alone is not None:
            plain = await self._store.commit_together(self._take_items, alone)
            if plain is not None:
                _tell(device, plain.items, plain.duplicates, way)
                return
        unchecked = way is Bearer.SATELLITE and envelope.tagged and not keys

        def take(db: Db) -> _Taken:
            # A transaction may be carried out anew: each time it begins with nothing.
            proved = way is not Bearer.SATELLITE or bool(keys)
            taken = _Taken(device, way, self._clock(), estimate=estimate, proved=proved)
            self._take(db, envelope, taken)
            taken.troubles += envelope.not_understood
            if taken.troubles:
                self._bury(db, device, body, way, "; ".join(taken.troubles))
            if way is Bearer.SATELLITE:
                _note_key(db, device, UNCHECKED if unchecked else "")
            return taken

        taken = await self._store.commit(take)
        self.mismatches += len(taken.mismatches)
        for confirmation in taken.mismatches:
            log.error(
                "%s from %s is not of the item that has this number now, and counts for nothing: it"
                " is from before a backup was restored, or an old recording",
                confirmation,
                device.name,
            )
        for trouble in (*taken.troubles, *taken.buried):
            log.error("part of a message from %s could not be used: %s", device.name, trouble)
        _tell(device, taken.items, taken.duplicates, way)

    def _take_items(self, db: Db, messages: Sequence[KitItems]) -> list[TakenIn | None]:
        limits = self._clock(), self._grace, self._time_to_live
        return take_in_all(db, messages, *limits)

    def _bury(self, db: Db, device: Device, body: bytes, way: Bearer, reason: str) -> None:
        imei = (device.imei or "") if way is Bearer.SATELLITE else ""
        now = self._clock()
        dead_letters.keep(db, body, reason, imei=imei, device=device.id, way=way, now=now)

    def replay(self, db: Db, device: Device, keys: Sequence[bytes]) -> int:
        """Take in the dead letters of a device that can be used by now, each once; how many."""
        return sum(
            self._replay_one(db, device, letter, keys if letter.way is Bearer.SATELLITE else ())
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
        proved = letter.way is not Bearer.SATELLITE or bool(keys)
        taken = _Taken(device, letter.way, self._clock(), proved=proved)
        # What fails by a mistake of ours undoes nothing else.
        db.execute("SAVEPOINT dead_letter")
        try:
            self._take(db, envelope, taken)
        except Exception as error:
            db.execute("ROLLBACK TO SAVEPOINT dead_letter")
            taken.troubles.append(f"the hub failed to take it in: {brief(error)}")
            log.exception("a dead letter of %s could not be taken in", device.name)
        db.execute("RELEASE SAVEPOINT dead_letter")
        if troubles := [*envelope.not_understood, *taken.troubles]:
            dead_letters.stays(db, letter.id, device.id, "; ".join(troubles))
            return False
        dead_letters.remove(db, letter.id)
        return True

    def _take(self, db: Db, envelope: Envelope, taken: _Taken) -> _Taken:
        if envelope.origin not in (0, taken.device.id):
            neighbour = neighbour_of(db, taken.device, envelope.origin)
            if neighbour is None:
                taken.troubles.append(f"items of {envelope.origin}, no device of this workspace")
                return taken
            taken.relaying, taken.device = taken.device, neighbour
            taken.doubt = doubt_of(db, taken.relaying, neighbour, taken.proved)
            contact.note(db, taken.relaying.id, taken.way, taken.now)
        taken.revoked, why = revocation.doubt_of(db, taken.relaying, taken.device)
        taken.doubt = why or taken.doubt
        if not taken.doubt:
            way = taken.way if taken.relaying is None else Bearer.RADIO
            contact.note(db, taken.device.id, way, taken.now)
        for entry in envelope.entries:
            self._take_entry(db, entry, taken)
        if taken.way is Bearer.SATELLITE and taken.relaying is None and taken.revoked is None:
            again = mt_copies.note_heard(db, taken.device.id, taken.confirmed, taken.now)
            if again:
                log.warning(
                    "%s has not confirmed %s: sent again",
                    taken.device.name,
                    counted(again, "message"),
                )
        return taken

    def _take_entry(self, db: Db, entry: Entry, taken: _Taken) -> None:
        content, device = entry.content, taken.device
        if taken.revoked is not None and not (entry.sos or isinstance(content, Fragment)):
            taken.troubles.append(taken.doubt)
        elif taken.relaying is not None and isinstance(content, Report | Receipt | Unreadable):
            taken.troubles.append("a confirmation in the name of another device")
        elif isinstance(content, IncidentWord) and content.says is Said.OPEN:
            _take_open(db, content, taken)
        elif isinstance(content, Parcel):
            self._take_parcel(db, content, taken)
        elif taken.doubt and isinstance(content, Item) and not _is_about_sos(entry):
            taken.troubles.append(taken.doubt)
        elif isinstance(content, JournalNumber):
            if taken.relaying is None:
                note_journal(db, device.id, entry.sequence, anew=content.asks)
        elif isinstance(content, Introduction):
            taken.troubles.append("an introduction: the hub knows who is who")
        elif isinstance(content, Report):
            # A recording of one says nothing new: what it asks for costs only once.
            if not _mark_arrived(db, entry, taken):
                taken.duplicates += 1
            elif not send_fragments_again(db, device.id, entry.sequence, content, taken.now):
                taken.mismatches.append(f"a report on {entry.sequence}")
        elif isinstance(content, _NOT_TO_THE_HUB):
            taken.troubles.append("a word of the air, which nobody says to the hub")
        elif isinstance(content, Receipt):
            _take_receipt(db, entry, content, taken)
        elif isinstance(content, CheckIn):
            _take_check_in(db, entry, content, taken)
        elif isinstance(content, CommandAnswer):
            _take_answer(db, entry, content, taken)
        elif isinstance(content, Unreadable):
            _take_unreadable(db, entry, content, taken)
        elif isinstance(content, Fragment):
            self._take_fragment(db, entry, content, taken)
        elif (taken.doubt and _was_there(db, entry, taken)) or not _mark_arrived(db, entry, taken):
            taken.duplicates += 1
            if entry.sos and not taken.doubt:
                _note_carrier(db, entry, taken)
                _say_again(db, device.id, entry, taken.now)
                answer_again(db, device.id, entry.sequence, digest_of(entry), taken.now)
        else:
            taken.items += 1
            if not taken.doubt:
                check_in.heard(db, device.id, taken.now)
                if self._take_tracker(db, device.workspace, entry, taken.now):
                    return
            posting, found = addressed(db, self._posting(db, entry, content, taken))
            item, _ = enter(db, posting, now=taken.now, grace=self._grace)
            nobody = found.why
            if found.address:
                nobody = outward.enter(db, item, found.address, taken.now)
            if nobody:
                note_rung(db, item, THE_HUB, Rung.NOBODY, nobody, taken.now)
            # Where a person of the kit's is, who has a radio of their own, the kit need not be.
            if isinstance(content, Location) and not (taken.doubt or posting.carried):
                places.note(db, device, content, entry.time, taken.now)
            if entry.sos and not taken.doubt and not _tells_itself(taken):
                digest = digest_of(entry)
                owe_receipt(db, device.id, entry.sequence, digest, THE_HUB, taken.now, urgent=True)
            if taken.relaying is not None:
                # Who carried it has it.
                confirm(db, item, taken.relaying.id, taken.way, taken.now)
                if entry.sos and not taken.doubt:
                    _note_carrier(db, entry, taken)

    def _take_parcel(self, db: Db, parcel: Parcel, taken: _Taken) -> None:
        """What a kit says by a neighbour's link proves itself: it counts as if by its own."""
        device = taken.device
        if parcel.station:
            taken.troubles.append(f"a parcel for {parcel.station}, which goes down and not up")
            return
        try:
            envelope = unwrap(parcel.body, secrets_of(db, device.id), UP)
        except RemoteProtocolError as error:
            taken.troubles.append(f"a parcel of {device.name}: {error}")
            return
        by_radio = taken.way if taken.relaying is None else Bearer.RADIO
        said = _Taken(device, by_radio, taken.now)
        check_in.heard(db, device.id, taken.now)
        for entry in envelope.entries:
            if isinstance(entry.content, Receipt):
                _take_receipt(db, entry, entry.content, said)
            elif isinstance(entry.content, CommandAnswer):
                _note_answer(db, entry.content, said, by_radio.value)
            else:
                said.troubles.append("something in a parcel that nobody says in one")
        taken.confirmed += said.confirmed
        taken.mismatches += said.mismatches
        taken.troubles += [*envelope.not_understood, *said.troubles]

    def _posting(self, db: Db, entry: Entry, item: Item, taken: _Taken) -> Posting:
        device = taken.device
        # Whoever brings it: no other kit can have said it.
        proved = isinstance(item, IncidentWord) and is_proved(item, proof_keys_of(db, device.id))
        return replace(
            posting_of(device, entry, item, taken.now + self._time_to_live),
            unauthenticated=bool(taken.doubt) and not proved,
            revoked=taken.revoked,
            estimate=_estimate_beside(item, taken),
        )

    def _take_fragment(self, db: Db, entry: Entry, part: Fragment, taken: _Taken) -> None:
        if _was_there(db, entry, taken):
            taken.duplicates += 1
            return
        sequence = entry.sequence
        whose = (taken.device.id, int(bool(taken.doubt)), sequence)
        kept = slices.keep(db, whose, part, taken.now)
        try:
            whole = reassemble(sequence, part.count, kept)
        except RemoteProtocolError as error:
            taken.troubles.append(f"{part.count} fragments of {sequence}: {error}")
            slices.drop(db, whose, part.count, but=part.index)
            return
        if whole is None:
            return
        slices.drop(db, whose, part.count)
        for fragment in whole.fragments:
            _mark_arrived(db, fragment, taken)
        if taken.revoked is not None and not any(entry.sos for entry in whole.entries):
            # The last fragment alone could not be taken in later.
            self._bury(db, taken.device, whole.envelope, Bearer.IP, taken.doubt)
            taken.buried.append(taken.doubt)
            return
        for entry in whole.entries:
            self._take_entry(db, entry, taken)
        if whole.not_understood and not taken.doubt:
            reason = "; ".join(whole.not_understood)
            # As over IP: the fragments have proved whose it is, and it bears no tag itself.
            self._bury(db, taken.device, whole.envelope, Bearer.IP, reason)
            taken.buried.append(reason)


def _tell(device: Device, items: int, duplicates: int, way: Bearer) -> None:
    if items or duplicates:
        known = f", {duplicates} of them known" if duplicates else ""
        log.info("%s sent %s over %s%s", device.name, counted(items, "item"), way, known)


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


def _estimate_beside(item: Item, taken: _Taken) -> Estimate | None:
    """Return where its sender was, when it does not say so itself and sent it over its own
    modem."""
    has_position = isinstance(item, Location | Waypoint)
    return None if has_position or taken.relaying is not None else taken.estimate


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
    found = people.resolve(db, posting.workspace, posting.to)
    addressed = replace(
        posting,
        target=found.member,
        team=found.team,
        audience=found.audience,
        device=found.device,
        over_satellite=found.over_satellite,
        addressee=found.words,
    )
    return addressed, found


def _is_about_sos(entry: Entry) -> bool:
    return entry.sos or isinstance(entry.content, IncidentWord)


def _tells_itself(taken: _Taken) -> bool:
    """Over IP and by SMS an acknowledgement tells its kit that the hub has it."""
    return taken.way is not Bearer.SATELLITE and taken.relaying is None


def _take_open(db: Db, word: IncidentWord, taken: _Taken) -> None:
    """A kit names its open incident: one that the hub does not know is lost, and rings again."""
    if taken.doubt or taken.relaying is not None:
        return
    device = taken.device
    found = sos.of_kit(db, device.id, word.incident, locked=True)
    if found is None:
        number = word.incident
        raised = sos.raise_of(db, device.workspace, device.id, None, taken.now, number=number)
        alarm.begin(db, raised, taken.now)
    elif found.state != sos.SosState.OPEN:
        say_again(db, found, taken.now)


def _note_carrier(db: Db, entry: Entry, taken: _Taken) -> None:
    """What is said of an incident goes down by the kit that brought it up."""
    if taken.relaying is None:
        return
    found = sos.of_kit(db, taken.device.id, entry.sequence - entry.back)
    if found is not None:
        note_carrier(db, found, taken.relaying.id, taken.now)


def _say_again(db: Db, device: int, entry: Entry, now: float) -> None:
    """Its kit goes on with an item of an incident that a person has."""
    found = sos.of_kit(db, device, entry.sequence - entry.back)
    if found is not None and found.state != sos.SosState.OPEN:
        say_again(db, found, now)


def _take_check_in(db: Db, entry: Entry, asked: CheckIn, taken: _Taken) -> None:
    """Its kit is told that the hub has it: somebody relies on that."""
    device, digest = taken.device.id, digest_of(entry)
    if taken.doubt:
        taken.troubles.append(taken.doubt)
    elif _mark_arrived(db, entry, taken):
        taken.items += 1
        check_in.ask(db, device, asked.within, entry.sequence, now=taken.now)
        owe_receipt(db, device, entry.sequence, digest, THE_HUB, taken.now, urgent=True)
    else:
        taken.duplicates += 1
        answer_again(db, device, entry.sequence, digest, taken.now)


def _take_answer(db: Db, entry: Entry, answer: CommandAnswer, taken: _Taken) -> None:
    """Only its own link or modem brings what a kit answers."""
    if taken.doubt or taken.relaying is not None:
        taken.troubles.append("an answer to a command, which another device brought")
    elif not _mark_arrived(db, entry, taken):
        taken.duplicates += 1
    else:
        taken.items += 1
        way = taken.way.value if taken.proved else f"{taken.way.value}, not authenticated"
        _note_answer(db, answer, taken, way)


def _note_answer(db: Db, answer: CommandAnswer, taken: _Taken, way: str) -> None:
    device = taken.device.id
    if commands.note_answer(db, device, answer, way, taken.now):
        radio_key.note_answer(db, device, answer, taken.now)
    elif not commands.is_answered(db, device, answer.number):
        text = f"an answer to command {answer.number}, which waits for none here"
        taken.troubles.append(text)


def _take_receipt(db: Db, entry: Entry, receipt: Receipt, taken: _Taken) -> None:
    if receipt.rung is not Rung.STORED:
        _take_rung(db, entry, receipt, taken)
        return
    rows = db.execute(
        "SELECT item.id, item.body, item.sos FROM delivery JOIN item ON item.id = delivery.item"
        " WHERE delivery.device = ? AND delivery.sequence = ?",
        taken.device.id,
        entry.sequence,
    )
    if not rows and _renumber_if_restored(db, entry, taken):
        taken.mismatches.append(f"a receipt of {entry.sequence}")
    for item, body, urgent in rows:
        digest = digest_of(replace(stored_entry(body), sequence=entry.sequence))
        if receipt.digest == digest:
            confirm(db, item, taken.device.id, taken.way, taken.now)
            if not urgent:
                taken.confirmed.append(item)
        else:
            taken.mismatches.append(f"a receipt of {entry.sequence}")
            if taken.proved:
                numbering.suspect(db, taken.device.id, entry.sequence, taken.now)


def _take_unreadable(db: Db, entry: Entry, said: Unreadable, taken: _Taken) -> None:
    """A message came to the device's modem, and noise kept it from being read: it goes again. A
    recording of that says nothing new."""
    name = taken.device.name
    if not _mark_arrived(db, entry, taken):
        taken.duplicates += 1
    elif mt_copies.send_unreadable_again(db, taken.device.id, said, taken.now):
        log.warning("%s could not read a message of %d bytes: sent again", name, said.size)
    else:
        log.error(
            "%s could not read a message of %d bytes, and none of those that it was sent fits",
            name,
            said.size,
        )


def _take_rung(db: Db, entry: Entry, receipt: Receipt, taken: _Taken) -> None:
    """A kit tells how far an item has come there: one that it has from the hub, or heard by radio
    from the station `receipt.by`."""
    if receipt.by:
        rows = db.execute(
            "SELECT id, body FROM item WHERE workspace = ? AND source_device = ?"
            " AND source_sequence = ? ORDER BY id DESC LIMIT 1",
            *(taken.device.workspace, receipt.by, entry.sequence),
        )
    else:
        rows = db.execute(
            "SELECT item.id, item.body FROM delivery JOIN item ON item.id = delivery.item"
            " WHERE delivery.device = ? AND delivery.sequence = ?",
            *(taken.device.id, entry.sequence),
        )
    for item, body in rows:
        if receipt.digest == digest_of(replace(stored_entry(body), sequence=entry.sequence)):
            at = min(float(entry.time), taken.now)
            note_rung(db, item, taken.device.member, receipt.rung, receipt.text, at)
            return
    taken.mismatches.append(f"a word on how far {entry.sequence} has come")


def _renumber_if_restored(db: Db, entry: Entry, taken: _Taken) -> bool:
    """Return whether the number is one that the hub has yet to give. Where that is proved, its
    database was restored: numbers are left out (`records.numbering`)."""
    device = taken.device.id
    higher = "SELECT 1 FROM device WHERE id = ? AND next_sequence <= ?"
    if not db.execute(higher, device, entry.sequence):
        return False
    if taken.proved:
        numbering.suspect(db, device, entry.sequence, taken.now)
    return True


def _mark_arrived(db: Db, entry: Entry, taken: _Taken) -> bool:
    """Note that it is here; return whether it is new."""
    return bool(
        db.execute(
            "INSERT INTO arrived (device, origin, sequence, digest, at, sos)"
            " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING sequence",
            taken.device.id,
            # Apart, so that what somebody invents never stands in the way of what is true.
            int(bool(taken.doubt)),
            entry.sequence,
            fingerprint(entry),
            taken.now,
            int(entry.sos),
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
