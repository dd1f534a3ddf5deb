"""What is looked at of all that is said at a TAK server: a type that is wanted, for a user here,
from nobody's bridge, and not too often. The rest is dropped, and counted. Times are Unix time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from fieldagent.extensions.tak import cot
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.bridge import records
from fieldagent.extensions.tak.cot import CotEvent
from fieldagent.hub.bridge.contract import Became, NoteEvents
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import Rate
from fieldagent.system.seldom import Seldom
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

OF_ONE, OF_ALL = Rate(6.0, 10), Rate(120.0, 60)
"""Messages and markers of one phone, and of all of them, that are taken."""
TICKS = Rate(600.0, 200)
"""Ticks, and cancelled alerts, that are looked for in the database."""
UNITS = Rate(600.0, 250)
"""Phones that come, whose messages are looked for there."""
PHONES_MAX = 2_000
"""Phones of which is remembered when they spoke."""
SEEN_AGAIN = 30.0
"""Seconds in which a phone that was seen is not looked at again."""
AWAY = 300.0
"""Seconds of silence after which a phone that is there again was away."""
REPLY_EVERY = 600.0
"""Seconds between two explanations to one phone: two machines that answer each other stop so."""


class Came(NamedTuple):
    """An event that waits for the disk; `member` is whose connection brought it."""

    member: int
    kind: str
    event: CotEvent


class TakDoor:
    """`markers`: those that are sent to a user are wanted. `clock` is Unix time."""

    def __init__(self, note: NoteEvents, clock: Callable[[], float], *, markers: bool) -> None:
        self._note = note
        self._markers = markers
        self._rates: OrderedDict[str, float] = OrderedDict()
        self._all = 0.0
        self._ticks = 0.0
        self._units = 0.0
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._replied: OrderedDict[str, float] = OrderedDict()
        self._dropped = Seldom(clock)

    def admit(self, kind: str, raw: bytes, uid: str, now: float) -> CotEvent | None:
        """Return an event that is to be stored, read; `uid` is of whose connection brought it."""
        if kind.startswith(tak.POINTS):
            wanted = self._markers and b"<marti" in raw
        else:
            # What is for everybody, or for another user, who has a connection of their own, is not.
            is_kind = kind in (tak.CHAT, tak.ON_PHONE, tak.READ, tak.CANCEL)
            wanted = is_kind and uid.encode() in raw
        return self._read(kind, raw, uid, now) if wanted else self.drop(Became.OTHER)

    def _read(self, kind: str, raw: bytes, uid: str, now: float) -> CotEvent | None:
        try:
            event = cot.decode(raw)
        except RemoteProtocolError as error:
            log.debug("what came from the TAK server cannot be read: %s", error)
            return self.drop(Became.UNREADABLE)
        # Who cancels an alert of ours does so under its uid.
        is_of = tak.flowed_through if kind == tak.CANCEL else tak.is_of
        if is_of(event, records.PREFIX):
            return self.drop(Became.OWN)
        if kind in (tak.ON_PHONE, tak.READ, tak.CANCEL):
            self._ticks, wait = TICKS.admit(self._ticks, now)
            return self.drop(Became.LIMITED) if wait else event
        said = tak.read_chat(event) if kind == tak.CHAT else None
        author = tak.marker_author(event) if said is None else said.sender
        if author is None or (said is not None and said.to.uid != uid):
            return self.drop(Became.OTHER)
        return event if self._admit_from(author.uid, now) else self.drop(Became.LIMITED)

    def _admit_from(self, uid: str, now: float) -> bool:
        mine, wait = OF_ONE.admit(self._rates.get(uid, 0.0), now)
        if wait:
            return False
        self._all, wait = OF_ALL.admit(self._all, now)
        if wait:
            return False
        _keep(self._rates, uid, mine)
        return True

    def look_at(self, raw: bytes, now: float) -> CotEvent | None:
        """Return a unit that is there after it was away; of where units are nothing is kept."""
        uid = _uid_of(raw)
        before = self._seen.get(uid, 0.0)
        is_own = uid.startswith(records.PREFIX.encode())
        if is_own or now - before < SEEN_AGAIN or b"<takv" not in raw:
            return self.drop(Became.OWN if is_own else Became.OTHER)
        if now - before >= AWAY:
            self._units, wait = UNITS.admit(self._units, now)
            if wait:
                return self.drop(Became.LIMITED)
        _keep(self._seen, uid, now)
        self._note(Became.OTHER)
        if now - before < AWAY:
            return None
        try:
            event = cot.decode(raw)
        except RemoteProtocolError:
            return self.drop(Became.UNREADABLE)
        is_ours = tak.is_of(event, records.PREFIX)
        return None if is_ours or tak.read_unit(event) is None else event

    def forget_units(self) -> None:
        """Take each unit for one that was away: the connection that listens for them is new, and
        where the server was gone it has forgotten what was for its phones."""
        self._seen.clear()

    def admit_reply(self, uid: str, now: float) -> bool:
        """Return whether that phone may be told something by the hub itself."""
        if now - self._replied.get(uid, 0.0) < REPLY_EVERY:
            return False
        _keep(self._replied, uid, now)
        return True

    def drop(self, became: Became) -> CotEvent | None:
        """Count it, and return nothing."""
        self._note(became)
        if became is Became.LIMITED and (count := self._dropped.note()):
            log.warning("more came from the TAK server than is taken: %d dropped", count)
        return None


def _uid_of(raw: bytes) -> bytes:
    for quote in (b'"', b"'"):
        begin = raw.find(b" uid=" + quote)
        if begin >= 0:
            begin += len(b" uid=") + 1
            return raw[begin : raw.find(quote, begin)][:100]
    return b""


def _keep(kept: OrderedDict[K, float], key: K, value: float) -> None:
    """Keep it, and forget who is the longest ago where there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > PHONES_MAX:
        kept.popitem(last=False)
