"""Filter for events from a TAK server.

The hub processes an event if its type is wanted, it is for a user of this hub, it is not from a
bridge, and it is within the rate limits. All other events are counted and dropped. Times are Unix
time.
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
from fieldagent.hub.bridge.contract import NoteEvents
from fieldagent.hub.contract import ItemResult
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.system.rate import EventRate, Rate
from fieldagent.wire.errors import RemoteProtocolError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

OF_ONE, OF_ALL = Rate(6.0, 10), Rate(120.0, 60)
"""Largest rates of messages and markers that the hub accepts: from one phone, and from all
phones."""
RECEIPTS = Rate(600.0, 200)
"""Largest rate of receipts and cancelled alerts that the hub looks up in the database."""
UNITS = Rate(600.0, 250)
"""Largest rate of arriving phones whose waiting messages the hub looks up."""
PHONES_MAX = 2_000
"""Largest number of phones whose last contact is stored in memory."""
SEEN_AGAIN_S = 30.0
"""Seconds after a phone was seen during which it is not checked again."""
ALERT_AGAIN_S = 30.0
"""Seconds during which a repeated alert of a phone is not stored again."""
AWAY_AFTER_S = 300.0
"""Seconds of silence after which a phone is considered away."""
REPLY_INTERVAL_S = 600.0
"""Seconds between two explanations to one phone. The pause also stops two machines that answer each
other."""


class ReceivedEvent(NamedTuple):
    """An event that waits to be stored. `member` is the user on whose connection it arrived."""

    member: int
    kind: str
    event: CotEvent


class EventAdmission:
    """Filter for events. If `markers` is True, markers that are sent to a user are wanted. `clock`
    returns Unix time.
    """

    def __init__(
        self, note_events: NoteEvents, clock: Callable[[], float], *, markers: bool
    ) -> None:
        self._note = note_events
        self._markers = markers
        self._rates: OrderedDict[str, float] = OrderedDict()
        self._all = 0.0
        self._receipts = 0.0
        self._units = 0.0
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._replied: OrderedDict[str, float] = OrderedDict()
        self._dropped = EventRate(clock)
        self._alerts: OrderedDict[str, float] = OrderedDict()

    def admit(self, kind: str, raw: bytes, uid: str, now: float) -> CotEvent | None:
        """Return the decoded event if it must be stored, otherwise None. `uid` belongs to the
        connection on which the event arrived.
        """
        if kind.startswith(tak.POINTS):
            is_wanted = self._markers and b"<marti" in raw
        else:
            # Ignore an event for everyone, or for another user who has a separate connection.
            is_kind = kind in (tak.CHAT, tak.ON_PHONE, tak.READ, tak.CANCEL)
            is_wanted = is_kind and uid.encode() in raw
        return self._read(kind, raw, uid, now) if is_wanted else self.drop(ItemResult.OTHER)

    def _read(self, kind: str, raw: bytes, uid: str, now: float) -> CotEvent | None:
        try:
            event = cot.decode(raw)
        except RemoteProtocolError as error:
            log.debug("an event from the TAK server cannot be read: %s", error)
            return self.drop(ItemResult.UNREADABLE)
        # A phone that cancels the hub's alert uses the uid of this alert.
        is_of = tak.is_passed_through if kind == tak.CANCEL else tak.is_of
        if is_of(event, records.PREFIX):
            return self.drop(ItemResult.OWN)
        if kind in (tak.ON_PHONE, tak.READ, tak.CANCEL):
            self._receipts, wait = RECEIPTS.admit(self._receipts, now)
            return self.drop(ItemResult.LIMITED) if wait else event
        chat = tak.read_chat(event) if kind == tak.CHAT else None
        author = tak.read_marker_author(event) if chat is None else chat.sender
        if author is None or (chat is not None and chat.to.uid != uid):
            return self.drop(ItemResult.OTHER)
        return event if self._admit_from(author.uid, now) else self.drop(ItemResult.LIMITED)

    def admit_alert(self, raw: bytes, now: float) -> CotEvent | None:
        """Return the alert of a phone, or its cancel, if it must be stored, otherwise None. A phone
        repeats an alert every few seconds, so a repeat is returned only after `ALERT_AGAIN_S`.
        """
        try:
            event = cot.decode(raw)
        except RemoteProtocolError as error:
            log.warning("an alert at the TAK server cannot be read: %s", error)
            return self.drop(ItemResult.UNREADABLE)
        alert = tak.read_alert(event)
        if alert is None or tak.is_of(event, records.PREFIX):
            return self.drop(ItemResult.OWN)
        key = f"{alert.cancels} {alert.sender.uid}"
        if now - self._alerts.get(key, -ALERT_AGAIN_S) < ALERT_AGAIN_S:
            return self.drop(ItemResult.REPEATED)
        _store_value(self._alerts, key, now)
        return event

    def _admit_from(self, uid: str, now: float) -> bool:
        next_rate, wait = OF_ONE.admit(self._rates.get(uid, 0.0), now)
        if wait:
            return False
        self._all, wait = OF_ALL.admit(self._all, now)
        if wait:
            return False
        _store_value(self._rates, uid, next_rate)
        return True

    def find_returned_unit(self, raw: bytes, now: float) -> CotEvent | None:
        """Return the event of a unit that was silent for `AWAY_AFTER_S`, otherwise None. The hub
        does not store positions of units.
        """
        uid = _make_uid(raw)
        before = self._seen.get(uid, 0.0)
        is_own = uid.startswith(records.PREFIX.encode())
        if is_own or now - before < SEEN_AGAIN_S or b"<takv" not in raw:
            return self.drop(ItemResult.OWN if is_own else ItemResult.OTHER)
        if now - before >= AWAY_AFTER_S:
            self._units, wait = UNITS.admit(self._units, now)
            if wait:
                return self.drop(ItemResult.LIMITED)
        _store_value(self._seen, uid, now)
        self._note(ItemResult.OTHER)
        if now - before < AWAY_AFTER_S:
            return None
        try:
            event = cot.decode(raw)
        except RemoteProtocolError:
            return self.drop(ItemResult.UNREADABLE)
        is_ours = tak.is_of(event, records.PREFIX)
        return None if is_ours or tak.read_unit(event) is None else event

    def forget_units(self) -> None:
        """Treat all units as away, because the listening connection is new. If the server has
        restarted, it has lost the messages for its phones.
        """
        self._seen.clear()

    def admit_reply(self, uid: str, now: float) -> bool:
        """Return True if the hub may send an explanation to the phone now."""
        if now - self._replied.get(uid, 0.0) < REPLY_INTERVAL_S:
            return False
        _store_value(self._replied, uid, now)
        return True

    def drop(self, result: ItemResult) -> CotEvent | None:
        """Count a dropped event by its result, and log drops because of a rate limit. Return None,
        as the result of `admit`.
        """
        self._note(result)
        if result is ItemResult.LIMITED and (count := self._dropped.count_event()):
            log.warning("the TAK server sent more than the hub accepts: %d dropped", count)
        return None


def _make_uid(raw: bytes) -> bytes:
    for quote in (b'"', b"'"):
        start = raw.find(b" uid=" + quote)
        if start >= 0:
            start += len(b" uid=") + 1
            return raw[start : raw.find(quote, start)][:100]
    return b""


def _store_value(values: OrderedDict[K, float], key: K, value: float) -> None:
    """Store the value, and remove the oldest entry if there are too many."""
    values[key] = value
    values.move_to_end(key)
    if len(values) > PHONES_MAX:
        values.popitem(last=False)
