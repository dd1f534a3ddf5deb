"""Who is at the hub's own TAK server, and what each is told of what another says. Decides by what
it is told alone; times are Unix time.

1. A phone speaks for itself: under the uid and the callsign that it has told first, and that nobody
   else has who is here. What it says in a user's name, or as another phone, is refused.
2. What names those whom it is for goes to these; what is said in private never to anybody else.
   What names nobody goes to all phones, and never back to whoever has said it.
3. A user here hears what names them, and who cancels their alert: what they are told costs money.
4. What is on the map is kept until it is stale, for who comes later; so are the last words to all.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from datetime import UTC, datetime

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge import records
from fieldagent.extensions.tak.cot import CotEvent
from fieldagent.extensions.tak.events import TakUnit
from fieldagent.hub.bridge.contract import Became, NoteEvents
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate
from fieldagent.wire.errors import RemoteProtocolError

OF_ONE = Rate(600.0, 120)
"""Events of one phone."""
KEPT_MAX, KEPT_BYTES_MAX = 1_000, 2_097_152
"""Objects on the map, and their bytes."""
SAID_MAX = 50
"""Messages to everybody."""
LASTS_MAX = 86_400.0
"""Seconds for which anything is kept, whatever its phone says."""
HEARD_MAX = 1_000
"""Phones of which is remembered what they have heard."""
NAME_MAX = 100
"""Characters of a uid, and of a callsign."""
_KEPT = ("a-", tak.POINTS, "u-", tak.ALERT)


@dataclass(slots=True, eq=False)
class TakGuest:
    """Whoever is here: a phone, or a user of the hub (`key` is empty)."""

    member: int
    tell: Callable[[str, bytes, str], bool]
    """Takes an event's type, its text and the uid of the unit that it is of; False: no room."""
    key: str = ""
    """What is the same when it comes again."""
    uid: str = ""
    """Empty until it has said who it is."""
    callsign: str = ""
    spoke: float = 0.0
    """For its rate."""
    heard: int = 0
    """Up to which of the words to all it has been heard of since they were sent: what else was
    under way as its connection broke is said again."""


class _Kept(NamedTuple):
    raw: bytes
    unit: str
    kind: str
    until: float


class _Said(NamedTuple):
    number: int
    raw: bytes
    until: float


class Exchange:
    def __init__(self, note: NoteEvents) -> None:
        self._note = note
        self._guests: dict[TakGuest, None] = {}
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._kept_bytes = 0
        self._said: deque[_Said] = deque(maxlen=SAID_MAX)
        self._number = 0
        self._heard: OrderedDict[str, int] = OrderedDict()

    @property
    def said(self) -> int:
        """Return the number of the last of the words to all."""
        return self._number

    def has(self, uid: str) -> bool:
        """Return whether who has that uid is here."""
        return any(guest.uid == uid for guest in self._guests if uid)

    def may_be(self, guest: TakGuest, unit: TakUnit) -> str:
        """Return why a phone cannot be that unit here, or nothing."""
        if unit.uid.startswith(records.PREFIX):
            return f"its uid {unit.uid[:40]!r} is one of the hub's"
        if max(len(unit.uid), len(unit.callsign)) > NAME_MAX:
            return f"its uid or callsign has more than {NAME_MAX} characters"
        others = [each for each in self._guests if each is not guest]
        if any(each.uid == unit.uid for each in others):
            return f"another phone has its uid {unit.uid!r}"
        name = unit.callsign.casefold()
        if any(each.member != guest.member and each.callsign.casefold() == name for each in others):
            return f"somebody else here is called {unit.callsign!r}: give it another callsign"
        return ""

    def enter(self, guest: TakGuest, unit: TakUnit, now: float) -> None:
        """Have a guest here, who is told what there is; `unit` is who they are."""
        guest.uid, guest.callsign = unit
        self._guests[guest] = None
        if not guest.key:
            return
        for uid, kept in [*self._kept.items()]:
            if kept.until > now and uid != guest.uid:
                self._tell(guest, kept.kind, kept.raw, kept.unit)
        guest.heard = self._heard.get(guest.key, 0)
        for said in self._said:
            if said.until > now and said.number > guest.heard:
                self._tell(guest, tak.CHAT, said.raw)

    def leave(self, guest: TakGuest) -> None:
        """Forget a phone that has gone; where it was stays on the map until it is stale."""
        if guest not in self._guests:
            return
        del self._guests[guest]
        if guest.key:
            self._heard[guest.key] = guest.heard
            self._heard.move_to_end(guest.key)
            if len(self._heard) > HEARD_MAX:
                self._heard.popitem(last=False)

    def read(self, guest: TakGuest, raw: bytes, now: float) -> CotEvent | None:
        """Return an event of a phone's, read; None of one that comes too fast, or is none."""
        guest.spoke, wait = OF_ONE.admit(guest.spoke, now)
        if wait:
            self._note(Became.LIMITED)
            return None
        try:
            return cot.decode(raw)
        except RemoteProtocolError:
            self._note(Became.UNREADABLE)
            return None

    def receive(self, guest: TakGuest, event: CotEvent, raw: bytes, now: float) -> None:
        """Hand on what a phone says that is here."""
        if not self._may_say(guest, event):
            self._note(Became.REFUSED)
        elif event.type == tak.CANCEL and event.uid.startswith(records.PREFIX):
            # The users' own session tells the alert again: phones need not hear of it.
            uid = event.uid.removesuffix(tak.ALERT_SUFFIX)
            self._tell_users(event.type, raw, [each for each in self._guests if each.uid == uid])
        else:
            if (unit := _self_of(guest, event)) is not None:
                guest.callsign = unit.callsign
            self._hand_on(guest, event, cot.framed(raw), now)

    def say(self, guest: TakGuest, event: CotEvent, now: float) -> None:
        """Hand on what a user of the hub's says."""
        self._hand_on(guest, event, cot.encode(event), now)

    def refuse(self) -> None:
        """Count what a phone said before it has told who it is."""
        self._note(Became.REFUSED)

    def _may_say(self, guest: TakGuest, event: CotEvent) -> bool:
        others = [each for each in self._guests if each is not guest]
        if event.type.startswith(tak.CHAT):
            said = tak.read_receipt(event)
            names = {each.callsign for each in others if each.member != guest.member}
            return (
                said is not None
                and said.sender.uid == guest.uid
                and said.sender.callsign not in names
            )
        if event.type == tak.CANCEL and event.uid.startswith(records.PREFIX):
            return True
        about = {event.uid, event.uid.removesuffix(tak.ALERT_SUFFIX)}
        if event.type == tak.REMOVAL:
            about.add(tak.removed(event))
        uids = {each.uid for each in others}
        if any(each.startswith(records.PREFIX) or each in uids for each in about):
            return False
        unit = _self_of(guest, event)
        return unit is None or unit.callsign == guest.callsign or not self.may_be(guest, unit)

    def _hand_on(self, guest: TakGuest, event: CotEvent, raw: bytes, now: float) -> None:
        addressed = tak.addressed(event)
        unit = event.uid if event.type.startswith("a-") else ""
        others = [each for each in self._guests if each is not guest]
        if addressed is not None:
            to = [
                each
                for each in others
                if each.uid in addressed.uids or each.callsign in addressed.callsigns
            ]
            self._tell_users(event.type, raw, to)
        else:
            to = others
            self._keep(event, raw, unit, now)
        phones = [each for each in to if each.key]
        for each in phones:
            self._tell(each, event.type, raw, unit)
        if guest.key and (addressed is None or len(phones) == len(to)):
            self._note(Became.PASSED)

    def _tell_users(self, kind: str, raw: bytes, to: list[TakGuest]) -> None:
        """They count it themselves."""
        for each in to:
            if not each.key and not kind.startswith("a-"):
                each.tell(kind, raw, "")

    def _tell(self, guest: TakGuest, kind: str, raw: bytes, unit: str = "") -> None:
        if not guest.tell(kind, raw, unit):
            self._note(Became.LIMITED)

    # What stays.

    def _keep(self, event: CotEvent, raw: bytes, unit: str, now: float) -> None:
        until = now + min((event.stale - event.time).total_seconds(), LASTS_MAX)
        if event.type == tak.CHAT:
            self._number += 1
            self._said.append(_Said(self._number, raw, until))
        elif event.type == tak.REMOVAL:
            self._forget(tak.removed(event))
        elif event.type == tak.CANCEL:
            self._forget(event.uid)
        elif event.type.startswith(_KEPT):
            self._forget(event.uid)
            self._kept[event.uid] = _Kept(raw, unit, event.type, until)
            self._kept_bytes += len(raw)
            self._make_room(now)

    def _make_room(self, now: float) -> None:
        if len(self._kept) <= KEPT_MAX and self._kept_bytes <= KEPT_BYTES_MAX:
            return
        for uid in [uid for uid, kept in self._kept.items() if kept.until <= now]:
            self._forget(uid)
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._forget(next(iter(self._kept)))

    def _forget(self, uid: str) -> None:
        gone = self._kept.pop(uid, None)
        if gone is not None:
            self._kept_bytes -= len(gone.raw)


def pong(now: float) -> bytes:
    """Return the answer to a ping of a TAK client, as bytes for its line."""
    return cot.encode(tak.pong(datetime.fromtimestamp(now, UTC)))


def _self_of(guest: TakGuest, event: CotEvent) -> TakUnit | None:
    """Return what a phone says of itself in an event; None where that is of something else."""
    return tak.read_unit(event) if event.uid == guest.uid else None
