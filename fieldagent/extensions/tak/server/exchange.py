"""Routes events between the phones and users at the hub's own TAK server. Times are Unix time.

1. A phone may send only with its first uid and callsign, which no other connected phone may use.
   The server refuses an event in the name of a user or of another phone, and also the position and
   the alert of a phone that is away.
2. An event that names receivers goes only to these receivers. Any other event goes to all phones
   except its sender, including phones that only listen.
3. A user receives the events that name the user, and cancels of the user's alert. Because delivery
   to a user costs money, no other events go to users.
4. The server keeps map objects until they expire, and the last messages to everyone. It sends them
   to each phone that connects later.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge import records
from fieldagent.extensions.tak.cot import CotEvent
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.hub.bridge.contract import NoteEvents
from fieldagent.hub.contract import ItemResult
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate, Rate
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

PHONE_EVENT_RATE = Rate(600.0, 120)
"""Largest rate of events from one phone."""
KEPT_MAX, KEPT_BYTES_MAX = 1_000, 2_097_152
"""Largest number of objects that are kept for the map, and largest number of their bytes."""
CHATS_MAX = 50
"""Largest number of messages to everyone that are kept."""
LASTS_MAX = 86_400.0
"""Longest time in seconds for which an event is kept, whatever the phone requests."""
ABSENT_PHONES_MAX = 1_000
"""Largest number of absent phones for which the server stores the number of the last message that
they received."""
NAME_MAX = 100
"""Largest number of characters of a uid, and of a callsign."""
_KEPT_TYPES = ("a-", tak.POINTS, "u-", tak.ALERT)


@dataclass(slots=True, eq=False)
class TakGuest:
    """A phone, or a user of the hub (with an empty `key`), at the server."""

    member: int
    send_event: Callable[[str, bytes, str], bool]
    """Sends an event, given by its type, its bytes and the uid of its unit. Returns False if there
    is no space."""
    key: str = ""
    """Key from which the server recognises a phone that connects again."""
    uid: str = ""
    """Uid of the guest; empty while a phone only listens."""
    callsign: str = ""
    rate_state: float = 0.0
    """State of the guest's rate limit, as `Rate.admit` returns it."""
    received_number: int = 0
    """Number of the last message to everyone that the phone has certainly received, because the
    phone sent data after it. After a lost connection, later messages are sent again."""


class _StoredEvent(NamedTuple):
    raw: bytes
    unit: str
    kind: str
    until: float


class _ChatEvent(NamedTuple):
    number: int
    raw: bytes
    until: float


class Exchange:
    def __init__(self, note_events: NoteEvents) -> None:
        self._note = note_events
        self._guests: dict[TakGuest, None] = {}
        self._phones: dict[str, tuple[str, int]] = {}
        """The uid and the member of each phone, by the phone's key. Absent phones are included."""
        self._stored_events: OrderedDict[str, _StoredEvent] = OrderedDict()
        self._kept_bytes = 0
        self._chats: deque[_ChatEvent] = deque(maxlen=CHATS_MAX)
        self._number = 0
        self._received_numbers: OrderedDict[str, int] = OrderedDict()
        self._now = 0.0
        self._dropped = EventRate(lambda: self._now)
        self._shared = EventRate(lambda: self._now)

    @property
    def last_number(self) -> int:
        """Return the number of the last message to everyone."""
        return self._number

    def has(self, uid: str) -> bool:
        """Return True if a guest with this uid is present."""
        return any(guest.uid == uid for guest in self._guests if uid)

    def remember_phones(self, phones: Iterable[tuple[str, str, int]]) -> None:
        """Store the key, uid and member of each phone that has connected earlier."""
        self._phones |= {key: (uid, member) for key, uid, member in phones}

    def find_objection(self, guest: TakGuest, unit: TakUnit) -> str:
        """Return the reason why a phone may not use this uid and callsign, or an empty string."""
        if unit.uid.startswith(records.PREFIX):
            return f"its uid {unit.uid[:40]!r} is one of the hub's"
        if max(len(unit.uid), len(unit.callsign)) > NAME_MAX:
            return f"its uid or callsign has more than {NAME_MAX} characters"
        others = [each for each in self._guests if each is not guest]
        if any(each.uid == unit.uid for each in others):
            return f"another phone has its uid {unit.uid!r}"
        name = unit.callsign.casefold()
        if any(each.member != guest.member and each.callsign.casefold() == name for each in others):
            return f"the callsign {unit.callsign!r} is already used: use another"
        return ""

    def listen(self, guest: TakGuest, now: float) -> None:
        """Admit a phone that has not identified itself. Send it the current map and the kept
        messages to everyone.
        """
        self._guests[guest] = None
        own, _ = self._phones.get(guest.key, ("", 0))
        for uid, kept_event in [*self._stored_events.items()]:
            if kept_event.until > now and uid != own:
                self._send_to_phones(guest, kept_event.kind, kept_event.raw, kept_event.unit)
        guest.received_number = self._received_numbers.get(guest.key, 0)
        for kept_chat in self._chats:
            if kept_chat.until > now and kept_chat.number > guest.received_number:
                self._send_to_phones(guest, tak.CHAT, kept_chat.raw)

    def enter(self, guest: TakGuest, unit: TakUnit, now: float) -> None:
        """Admit a guest as `unit`. If the guest is a phone, `listen` must have been called
        before.
        """
        guest.uid, guest.callsign = unit
        self._guests[guest] = None
        if not guest.key:
            return
        before, _ = self._phones.get(guest.key, (guest.uid, 0))
        if before != guest.uid:
            self._note_shared(guest, before, now)
        for key in [key for key, (uid, _) in self._phones.items() if uid == guest.uid]:
            del self._phones[key]
        self._phones[guest.key] = guest.uid, guest.member

    def _note_shared(self, guest: TakGuest, other_uid: str, now: float) -> None:
        self._now = now
        if self._shared.count_event():
            log.warning(
                "the phone %s (%s) has the certificate of the phone %s, and each ends the other's"
                " connection: make another certificate with `fieldagent hub user tak %d`",
                *(ascii(guest.uid), ascii(guest.callsign), ascii(other_uid), guest.member),
            )

    def remove_phone(self, guest: TakGuest) -> None:
        """Remove a phone that has disconnected. Its position stays on the map until it expires."""
        if guest not in self._guests:
            return
        del self._guests[guest]
        if guest.key:
            self._received_numbers[guest.key] = guest.received_number
            self._received_numbers.move_to_end(guest.key)
            if len(self._received_numbers) > ABSENT_PHONES_MAX:
                self._received_numbers.popitem(last=False)

    def read(self, guest: TakGuest, raw: bytes, now: float) -> CotEvent | None:
        """Decode an event of a phone. Return None if the event exceeds the rate limit or is
        invalid.
        """
        guest.rate_state, wait = PHONE_EVENT_RATE.admit(guest.rate_state, now)
        if wait:
            self._note(ItemResult.LIMITED)
            return None
        try:
            return cot.decode(raw)
        except RemoteProtocolError as error:
            self.drop(guest, str(error), now)
            return None

    def drop(self, guest: TakGuest, reason: str, now: float) -> None:
        """Count and log an event of a phone that the server drops."""
        self._note(ItemResult.UNREADABLE)
        self._now = now
        if count := self._dropped.count_event():
            guest_name = guest.callsign or f"user {guest.member}"
            log.warning(
                "%d events of phones reach no one, the last from %s: %s",
                count,
                ascii(guest_name),
                reason,
            )

    def receive(self, guest: TakGuest, event: CotEvent, raw: bytes, now: float) -> None:
        """Pass on an event of a phone that is present."""
        if not self._is_speaker(guest, event):
            self._note(ItemResult.REFUSED)
        elif event.type == tak.CANCEL and event.uid.startswith(records.PREFIX):
            # Send the cancel only to the user whose alert it is. The user's session repeats the
            # alert, so phones need not know of the cancel.
            uid = event.uid.removesuffix(tak.ALERT_SUFFIX)
            self._send_to_users(event.type, raw, [each for each in self._guests if each.uid == uid])
        else:
            if (unit := _find_own_unit(guest, event)) is not None:
                guest.callsign = unit.callsign
            self._forward_event(guest, event, cot.frame_event(raw), now)

    def send_events(self, guest: TakGuest, event: CotEvent, now: float) -> None:
        """Pass on an event of a user of the hub."""
        self._forward_event(guest, event, cot.encode(event), now)

    def refuse(self) -> None:
        """Count an event of a phone that has not identified itself."""
        self._note(ItemResult.REFUSED)

    def _is_speaker(self, guest: TakGuest, event: CotEvent) -> bool:
        others = [each for each in self._guests if each is not guest]
        if event.type.startswith(tak.CHAT):
            receipt = tak.read_receipt(event)
            names = {each.callsign for each in others if each.member != guest.member}
            return (
                receipt is not None
                and receipt.sender.uid == guest.uid
                and receipt.sender.callsign not in names
            )
        if event.type == tak.CANCEL and event.uid.startswith(records.PREFIX):
            return True
        named_uids = {event.uid, *([tak.read_removed(event)] if event.type == tak.REMOVAL else [])}
        concerned_uids = named_uids | {uid.removesuffix(tak.ALERT_SUFFIX) for uid in named_uids}
        uids = {each.uid for each in others if each.uid}
        uids |= {uid for uid, member in self._phones.values() if member != guest.member}
        if any(each.startswith(records.PREFIX) or each in uids for each in concerned_uids):
            return False
        unit = _find_own_unit(guest, event)
        return (
            unit is None or unit.callsign == guest.callsign or not self.find_objection(guest, unit)
        )

    def _forward_event(self, guest: TakGuest, event: CotEvent, raw: bytes, now: float) -> None:
        addressed = tak.read_addressed(event)
        unit = event.uid if event.type.startswith("a-") else ""
        others = [each for each in self._guests if each is not guest]
        notified_guests: list[TakGuest] = []
        if addressed is not None:
            addressees = [
                each
                for each in others
                if each.uid in addressed.uids or each.callsign in addressed.callsigns
            ]
            self._send_to_users(event.type, raw, addressees)
            notified_guests = addressees
        else:
            addressees = others
            self._store_event(event, raw, unit, now)
        if guest.key and event.type.startswith(tak.ALERTS):
            # The hub raises an SOS for a phone's alert, whoever its receivers are. The hub receives
            # the alert through the sessions of users.
            self._send_to_users(
                event.type, raw, [each for each in others if each not in notified_guests]
            )
        phones = [each for each in addressees if each.key]
        for each in phones:
            self._send_to_phones(each, event.type, raw, unit)
        if guest.key and (addressed is None or len(phones) == len(addressees)):
            self._note(ItemResult.PASSED)

    def _send_to_users(self, kind: str, raw: bytes, to: list[TakGuest]) -> None:
        """Send an event to users of the hub. The sessions of these users count the event."""
        for each in to:
            if not each.key and not kind.startswith("a-"):
                each.send_event(kind, raw, "")

    def _send_to_phones(self, guest: TakGuest, kind: str, raw: bytes, unit: str = "") -> None:
        if not guest.send_event(kind, raw, unit):
            self._note(ItemResult.LIMITED)

    def _store_event(self, event: CotEvent, raw: bytes, unit: str, now: float) -> None:
        until = now + min((event.stale - event.time).total_seconds(), LASTS_MAX)
        if event.type == tak.CHAT:
            self._number += 1
            self._chats.append(_ChatEvent(self._number, raw, until))
        elif event.type == tak.REMOVAL:
            self._forget(tak.read_removed(event))
        elif event.type == tak.CANCEL:
            self._forget(event.uid)
        elif event.type.startswith(_KEPT_TYPES):
            self._forget(event.uid)
            self._stored_events[event.uid] = _StoredEvent(raw, unit, event.type, until)
            self._kept_bytes += len(raw)
            self._make_room(now)

    def _make_room(self, now: float) -> None:
        if len(self._stored_events) <= KEPT_MAX and self._kept_bytes <= KEPT_BYTES_MAX:
            return
        for uid in [
            uid for uid, kept_event in self._stored_events.items() if kept_event.until <= now
        ]:
            self._forget(uid)
        while len(self._stored_events) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._forget(next(iter(self._stored_events)))

    def _forget(self, uid: str) -> None:
        forgotten = self._stored_events.pop(uid, None)
        if forgotten is not None:
            self._kept_bytes -= len(forgotten.raw)


def encode_pong(now: float) -> bytes:
    """Return the answer to a TAK client's ping."""
    return cot.encode(tak.make_pong(datetime.fromtimestamp(now, UTC)))


def _find_own_unit(guest: TakGuest, event: CotEvent) -> TakUnit | None:
    """Return the unit in an event of a phone about the phone itself. Return None if the event is
    about something else.
    """
    return tak.read_unit(event) if event.uid == guest.uid else None
