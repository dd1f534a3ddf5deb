"""Where people are and what they say, as a TAK map shows it: the hub at a server and the kit on
its LAN say it in the same way.

A position is one of now for half an hour, since over satellite they come rarely. An older one stays
on the map with a marker beside it, whose name says when that was.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import cos, radians
from typing import Protocol

from fieldagent import __version__
from fieldagent.extensions.tak import events as tak
from fieldagent.extensions.tak.cot import NOWHERE, CotEvent, CotPoint
from fieldagent.extensions.tak.events import PlacedMarker, Sighting, TakUnit
from fieldagent.package.package import date_of
from fieldagent.system.lazy_named_tuple import NamedTuple

PREFIX = "FA-"
"""What the uids of all that we say begin with, by which hubs and kits know each other's."""
FRESH = 1_800.0
"""Seconds for which a position is one of now: over satellite they come rarely."""
SHOWN = 600.0
"""Seconds for which an older one is shown before it is told again."""
LEAST = 10.0
"""Seconds between two positions of one unit."""
MOVED = 10.0
"""Metres that are news."""
DAY = 86_400.0
WORDS_MAX = 5_000
"""Characters of a message there: phones and servers take no event of any length."""


class Whereabouts(Protocol):
    """Somebody, and where they were last. None where that is not known."""

    @property
    def name(self) -> str:
        """Return what they are called on the map."""

    @property
    def latitude(self) -> float | None:
        """Return degrees, north positive."""

    @property
    def longitude(self) -> float | None:
        """Return degrees, east positive."""

    @property
    def at(self) -> float | None:
        """Return the Unix time of the position."""


class ToldPosition(NamedTuple):
    """What the others were told of a user last."""

    user: Whereabouts
    at: float
    old: bool
    """Its position was one of before."""


class ShownBy(NamedTuple):
    """What says it, and how it heard of it."""

    os: str
    """`hub` or `kit`."""
    heard: str
    """By which way a user was heard last, for people."""
    endpoint: str = tak.BY_SERVER
    """Where what is for a user goes."""


def at(moment: float) -> datetime:
    """Return a Unix time as a date in UTC."""
    return date_of(moment)


def age(seconds: float) -> str:
    """Return seconds in words for people, such as "5 min" or "1 h 5 min"; below zero is 0 min."""
    minutes = int(max(0.0, seconds) // 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def is_old(user: Whereabouts, now: float) -> bool:
    """Return whether their position is of no known time, or older than FRESH seconds."""
    return user.at is None or now - user.at > FRESH


def position(
    unit: TakUnit,
    user: Whereabouts,
    shown_by: ShownBy,
    last_position: ToldPosition | None,
    now: float,
    *,
    shared: bool,
) -> list[CotEvent]:
    """Return what shows a user, without a place where none is known or `shared`. One of before has
    a marker beside it, whose name says on every map when the user was there."""
    when = at(now)
    if user.latitude is None or user.longitude is None or user.at is None or not shared:
        nowhere = Sighting(NOWHERE, when, at(now + FRESH), tak.BY_HAND, "no position is known")
        return [tak.unit(unit, nowhere, when, _takv(shown_by), shown_by.endpoint)]
    point, old = CotPoint(user.latitude, user.longitude), is_old(user, now)
    words = f"{age(now - user.at)} old; {shown_by.heard}"
    stale = at(now + SHOWN) if old else at(user.at + FRESH)
    how = tak.LAST_KNOWN if old else tak.GPS
    shown = [
        tak.unit(
            unit,
            Sighting(point, at(user.at), stale, how, words),
            when,
            _takv(shown_by),
            shown_by.endpoint,
        )
    ]
    beside = f"{unit.uid}-last"
    if old:
        there = PlacedMarker(f"{user.name} {clock(user.at, now)}", words, point, at(user.at), ())
        shown.append(tak.marker(beside, unit, there, when, timedelta(seconds=SHOWN)))
    elif last_position is not None and last_position.old:
        shown.append(tak.removal(beside, unit, when))
    return shown


def _takv(shown_by: ShownBy) -> dict[str, str]:
    return {
        "device": "fieldagent",
        "platform": "fieldagent",
        "os": shown_by.os,
        "version": __version__,
    }


def clock(moment: float, now: float) -> str:
    """Return the time of day in UTC, behind the day where that may be another."""
    when = at(moment)
    day = f"{when:%d %b} " if now - moment > DAY * 0.8 else ""
    return f"{day}{when:%H:%M}Z"


def position_due(last_position: ToldPosition | None, user: Whereabouts, now: float) -> float:
    """Return when a user's position is to be told; what is not after `now` is due."""
    if last_position is None:
        return now
    if _has_moved(last_position.user, user) or user.name != last_position.user.name:
        return last_position.at + LEAST
    if is_old(user, now):
        return last_position.at + SHOWN / 2 if last_position.old else now
    # What was fresh then is told as old once it is.
    return min(last_position.at + FRESH / 2, (user.at or 0.0) + FRESH + 1.0)


def _has_moved(before: Whereabouts, now: Whereabouts) -> bool:
    if before.latitude is None or before.longitude is None:
        return now.latitude is not None
    if now.latitude is None or now.longitude is None:
        return False
    north = (now.latitude - before.latitude) * 111_320.0
    east = (now.longitude - before.longitude) * 111_320.0 * cos(radians(now.latitude))
    later = (now.at or 0.0) - (before.at or 0.0) > FRESH / 2
    return north * north + east * east > MOVED * MOVED or later


def asked_about(text: str) -> str:
    """Return the words whose cost a message asks for, as it begins with a question mark; empty of
    any other message, such as of question marks alone."""
    return text.lstrip("? ") if text.startswith("?") else ""


def words_of(text: str, os: str) -> str:
    """Return as much of it as a message there may have, and how much is cut off."""
    if len(text) <= WORDS_MAX:
        return text
    return f"{text[:WORDS_MAX]}… [{os}] {len(text) - WORDS_MAX} characters are cut off"
