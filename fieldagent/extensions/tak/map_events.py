"""Positions and messages of people as events for a TAK map. A hub at a server and a kit on its
network use the same form.

A position is current for half an hour, because positions over satellite are rare. An older position
stays on the map, with a marker whose name shows its time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import cos, radians
from typing import Protocol

from fieldagent import __version__
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import NOWHERE, CotEvent, CotPoint
from fieldagent.extensions.tak.events import PlacedMarker, Sighting, TakMotion, TakUnit
from fieldagent.package.package import convert_to_date
from fieldagent.system.lazy_named_tuple import NamedTuple

PREFIX = "FA-"
"""Prefix of the uids of all events of this program, from which hubs and kits recognise each other's
events."""
FRESH_S = 1_800.0
"""Seconds for which a position is current, because positions over satellite are rare."""
SHOWN_S = 600.0
"""Seconds for which an older position is valid on the map. The position is sent again after half of
this time."""
INTERVAL_MIN_S = 10.0
"""Shortest time in seconds between two positions of one unit."""
MOVED_M = 10.0
"""Distance in metres from which a position is sent as a new position."""
DAY_S = 86_400.0
TEXT_MAX = 5_000
"""Largest number of characters of a message, because phones and servers limit the length of an
event."""


class PersonPosition(Protocol):
    """A person and their last position. A value is None if it is unknown."""

    @property
    def name(self) -> str:
        """Return the name that the map shows beside the person's position."""

    @property
    def latitude(self) -> float | None:
        """Return the latitude in degrees, north positive."""

    @property
    def longitude(self) -> float | None:
        """Return the longitude in degrees, east positive."""

    @property
    def at(self) -> float | None:
        """Return the Unix time of the position."""

    @property
    def altitude(self) -> float | None:
        """Return the altitude above the sea in metres."""

    @property
    def speed(self) -> float | None:
        """Return the speed over ground in metres per second."""

    @property
    def course(self) -> float | None:
        """Return the course over ground in degrees from true north."""


class SentPosition(NamedTuple):
    """The last position event of a user that was sent."""

    user: PersonPosition
    at: float
    old: bool
    """True if the position was older than FRESH_S."""


class ShowingProgram(NamedTuple):
    """Program that shows a user on the map, and the program's source of the position."""

    os: str
    """Either `hub` or `kit`."""
    heard: str
    """Bearer over which the user was last heard, as a text for people."""
    endpoint: str = tak.BY_SERVER
    """Address for messages to the user."""


def make_date(moment: float) -> datetime:
    """Return a Unix time as a date in UTC."""
    return convert_to_date(moment)


def format_age(seconds: float) -> str:
    """Return a duration as a text such as "5 min" or "1 h 5 min". A negative duration is shown as
    "0 min".
    """
    minutes = int(max(0.0, seconds) // 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def is_old(user: PersonPosition, now: float) -> bool:
    """Return True if the time of the user's position is unknown or more than `FRESH_S` ago."""
    return user.at is None or now - user.at > FRESH_S


def make_position_events(
    unit: TakUnit,
    user: PersonPosition,
    shown_by: ShowingProgram,
    last_position: SentPosition | None,
    now: float,
    *,
    is_shared: bool,
) -> list[CotEvent]:
    """Return the events that show a user on the map. If the position is unknown or `is_shared` is
    False, the user has no position. If the position is old, a marker beside it shows its time on
    every map.
    """
    date = make_date(now)
    if user.latitude is None or user.longitude is None or user.at is None or not is_shared:
        nowhere = Sighting(
            NOWHERE, date, make_date(now + FRESH_S), tak.HOW_BY_HAND, "no position is known"
        )
        return [tak.make_unit_event(unit, nowhere, date, _make_takv(shown_by), shown_by.endpoint)]
    point, old = CotPoint(user.latitude, user.longitude, user.altitude), is_old(user, now)
    motion = TakMotion() if old else TakMotion(user.speed, user.course)
    age_text = f"{format_age(now - user.at)} old; {shown_by.heard}"
    stale = make_date(now + SHOWN_S) if old else make_date(user.at + FRESH_S)
    position_source = tak.HOW_LAST_KNOWN if old else tak.HOW_GPS
    shown_fields = [
        tak.make_unit_event(
            unit,
            Sighting(point, make_date(user.at), stale, position_source, age_text, motion),
            date,
            _make_takv(shown_by),
            shown_by.endpoint,
        )
    ]
    marker_uid = f"{unit.uid}-last"
    if old:
        marker = PlacedMarker(
            f"{user.name} {format_clock(user.at, now)}", age_text, point, make_date(user.at), ()
        )
        shown_fields.append(
            tak.make_marker(marker_uid, unit, marker, date, timedelta(seconds=SHOWN_S))
        )
    elif last_position is not None and last_position.old:
        shown_fields.append(tak.make_removal(marker_uid, unit, date))
    return shown_fields


def _make_takv(shown_by: ShowingProgram) -> dict[str, str]:
    return {
        "device": "fieldagent",
        "platform": "fieldagent",
        "os": shown_by.os,
        "version": __version__,
    }


def format_clock(moment: float, now: float) -> str:
    """Return the time of day in UTC. If it may be another day, the date comes before it."""
    date = make_date(moment)
    day = f"{date:%d %b} " if now - moment > DAY_S * 0.8 else ""
    return f"{day}{date:%H:%M}Z"


def compute_position_due(
    last_position: SentPosition | None, user: PersonPosition, now: float
) -> float:
    """Return the Unix time when a user's position must be sent. The position is due if this time is
    not after `now`.
    """
    if last_position is None:
        return now
    if _has_moved(last_position.user, user) or user.name != last_position.user.name:
        return last_position.at + INTERVAL_MIN_S
    if is_old(user, now):
        return last_position.at + SHOWN_S / 2 if last_position.old else now
    # When a current position becomes old, send it again and mark it as old.
    return min(last_position.at + FRESH_S / 2, (user.at or 0.0) + FRESH_S + 1.0)


def _has_moved(previous: PersonPosition, now: PersonPosition) -> bool:
    if previous.latitude is None or previous.longitude is None:
        return now.latitude is not None
    if now.latitude is None or now.longitude is None:
        return False
    north = (now.latitude - previous.latitude) * 111_320.0
    east = (now.longitude - previous.longitude) * 111_320.0 * cos(radians(now.latitude))
    is_later = (now.at or 0.0) - (previous.at or 0.0) > FRESH_S / 2
    return north * north + east * east > MOVED_M * MOVED_M or is_later


def find_question(text: str) -> str:
    """Return the text after the question mark at the beginning of a message. With such a message, a
    person asks for the cost of this text. Return an empty text for any other message and for
    question marks alone.
    """
    return text.lstrip("? ") if text.startswith("?") else ""


def shorten_text(text: str, os: str) -> str:
    """Shorten the text to the largest length of a message, and append the number of removed
    characters.
    """
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[:TEXT_MAX]}… [{os}] {len(text) - TEXT_MAX} characters are cut off"
