"""The Package that a caller posts, with its one item, and its terminal statuses.

Names and defaults are those of the interface document, "Local Package".
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum

from fieldagent.system.lazy_dataclass import dataclass


def format_short_sos_number(sos_number: int) -> str:
    """Return the last three digits of the number that a kit gave an SOS. Together with the kit's
    name, they show people which SOS is meant. Programs use the full number.
    """
    return f"{abs(sos_number) % 1000:03}"


SOS_PRIORITY = 100


class Channel(StrEnum):
    SATELLITE = "Satellite"
    RADIO = "Radio"
    CELLULAR = "Cellular"


class Status(StrEnum):
    """The terminal statuses of a Package. Responses contain no other status."""

    DELIVERED = "Delivered"
    ERROR = "Error"
    COLLAPSED = "Collapsed"
    CANCELED = "Canceled"


@dataclass(frozen=True, slots=True)
class Message:
    content: str


class PositionSource(StrEnum):
    """Device or person from which a kit has the position in its SOS."""

    GPS = "gps"
    """The kit's own receiver."""
    BROWSER = "browser"
    """The phone or computer that shows the kit's page."""
    TYPED = "typed"
    LAST = "last posted"
    """The last position that the kit posted before the SOS."""


@dataclass(frozen=True, slots=True)
class Location:
    latitude: float
    longitude: float
    timestamp: datetime | None = None
    altitude: float | None = None
    speed_over_ground: float | None = None
    course_over_ground: float | None = None
    source: PositionSource | None = None


@dataclass(frozen=True, slots=True)
class Waypoint:
    latitude: float
    longitude: float
    name: str
    timestamp: datetime | None = None
    notes: str | None = None


@dataclass(frozen=True, slots=True)
class Data:
    payload: bytes


class IncidentState(StrEnum):
    """State of an incident, as the kit or the hub reports it in an `IncidentUpdate`."""

    OPEN = "open"
    """From a kit to the hub: the incident is open at the kit."""
    SEEN = "seen"
    """A person has seen the incident."""
    CLOSED = "closed"
    """A person at the hub has closed the incident."""
    CALLED_OFF = "called off"
    """The kit that raised the incident has cancelled it."""


@dataclass(frozen=True, slots=True)
class IncidentUpdate:
    """An update about an incident. An incident is the SOS of one kit, from its start to its end."""

    incident: int
    """Number of the item that raised the incident."""
    state: IncidentState
    station: int = 0
    """Station number of the kit with the incident. 0 means the kit that sends or receives the
    update."""
    by: str = ""
    """Name of the person who caused the update."""
    text: str = ""
    proof: bytes = b""
    """Proof that the update was made with the key that this kit and the hub share
    (`wire.proof`). Empty if there is no such key."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message between the hub and a kit, which another kit relays by radio. It is an envelope
    with a tag that only the hub and the receiving or sending kit can make (`wire.parcel`).
    """

    body: bytes
    station: int = 0
    """Station number of the receiver. 0 means the hub."""
    minutes: int | None = None
    """Minutes for which the relaying kit tries to deliver the parcel. The hub sends this value to
    the relaying kit, which does not transmit it."""


Item = Message | Location | Waypoint | Data | IncidentUpdate | Parcel
"""Items for people, and parcels that contain such items."""


@dataclass(frozen=True, slots=True)
class CheckIn:
    """Request to the hub itself to raise an alarm if this kit sends nothing for `within_s` seconds
    (whole minutes). None ends the check-in.
    """

    within_s: int | None = None


class CommandOutcome(IntEnum):
    """Result of a command, by its number on the air."""

    DONE = 0
    REFUSED = 1
    """The command was not started."""
    FAILED = 2


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """Message to the hub itself: the result of the command `number` (`wire.command`)."""

    number: int
    outcome: CommandOutcome
    body: bytes
    """Content. Depending on the verb, the format is `wire.kit_status` or `wire.answer_text`."""


ToHub = CheckIn | CommandAnswer
"""Messages of a kit to the hub itself, which are not passed on."""

Person = int | str
"""Addressee or author of a Package: a user's number, a group's negative number, or a text that the
hub looks up (a name, `device:NAME`, an email address, a telephone number)."""


TRACKER = "tracker:"
"""Prefix of a tracker's name, as the author of a waypoint. A hub that knows the tracker records the
waypoint as the tracker's position. Other hubs and kits show a waypoint."""


@dataclass(frozen=True, slots=True)
class Package:
    item: Item | ToHub
    id: int | None = None
    channels: frozenset[Channel] | None = None
    """Channels to use; None means all configured channels."""
    collapse_key: int | None = None
    priority: int = 11
    time_to_live: int | None = None
    """Seconds until the Package expires. None means the default of the settings. An SOS never
    expires."""
    gather: int | None = None
    """Seconds to wait, on a channel whose messages cost money, for other Packages that can share a
    message. The newest Package is sent first. An SOS does not wait."""
    by: int | None = None
    """Seconds within which the Package should be delivered. While there is enough time, an
    expensive channel waits for cheaper channels. None means the default of the settings."""
    to: Person | None = None
    """Addressee; None means everyone in the workspace."""
    wants_receipt: bool = False
    """True if the sender wants a read receipt."""
    author: Person | None = None
    """Author, a person at this kit; None means the current user of the kit."""

    @property
    def sos(self) -> bool:
        """True if the Package is an SOS, which joins this kit's open incident or opens one."""
        return self.priority >= SOS_PRIORITY and isinstance(
            self.item, Message | Location | Waypoint | Data
        )

    @property
    def urgent(self) -> bool:
        """Return True for an SOS or an incident update. Such Packages use every channel, ignore the
        budget, and never expire, because rescuers act on them.
        """
        return self.sos or isinstance(self.item, IncidentUpdate)

    def with_time(self, now: float) -> Package:
        """Return the Package. If it contains a position without a time, set its time to `now`, so
        that the position does not seem new after hours in a queue.
        """
        item = self.item
        if isinstance(item, Location | Waypoint) and item.timestamp is None:
            moment = datetime.fromtimestamp(now, UTC)
            return replace(self, item=replace(item, timestamp=moment))
        return self


ALTITUDE_MIN, ALTITUDE_MAX = -12_000, 100_000
"""Range of altitudes in metres."""
SPEED_MAX_M_S = 10_000
"""Maximum speed in metres per second."""
CHECK_IN_MIN, CHECK_IN_MAX = 300, 31 * 86_400
"""Range of a check-in in seconds."""
FIRST_DATE = datetime(1970, 1, 1, tzinfo=UTC)
LAST_DATE = datetime(2105, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Latest date in a Package; FIRST_DATE is the earliest. A decoder replaces a date outside these
limits by the nearer limit, because lists could not read it from the store."""


def convert_to_date(unix: float) -> datetime:
    """Return a Unix time as a date in UTC, from FIRST_DATE to LAST_DATE."""
    # On an ARM kit whose time_t has 32 bits, datetime.fromtimestamp fails after 2038.
    seconds = min(max(unix, 0), (LAST_DATE - FIRST_DATE).total_seconds())
    return FIRST_DATE + timedelta(seconds=seconds)


def limit_date(date: datetime) -> datetime:
    """Return the date, limited to the range from FIRST_DATE to LAST_DATE. The date must have a time
    zone.
    """
    return min(max(date, FIRST_DATE), LAST_DATE)


def get_position_time(item: Item | ToHub) -> datetime | None:
    """Return the time of a position, or None for text and data, which have no time."""
    return item.timestamp if isinstance(item, Location | Waypoint) else None


def get_date(item: Item | ToHub, unix: float) -> datetime:
    """Return the time of a position. For text and data, which have no time, return `unix` as a
    date.
    """
    return get_position_time(item) or convert_to_date(unix)
