"""A Package with its one item, as a caller posts it, and its terminal statuses.

Names and defaults are those of the interface document, "Local Package".
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum

from fieldagent.system.lazy_dataclass import dataclass


def format_short_number(number: int) -> str:
    """Return the last three digits of the number by which its kit names an SOS. With the kit's name
    they show people which SOS is meant; programs use the whole number."""
    return f"{abs(number) % 1000:03}"


SOS_PRIORITY = 100


class Channel(StrEnum):
    SATELLITE = "Satellite"
    RADIO = "Radio"
    CELLULAR = "Cellular"


class Status(StrEnum):
    """The terminal statuses. Answers contain only these."""

    DELIVERED = "Delivered"
    ERROR = "Error"
    COLLAPSED = "Collapsed"
    CANCELED = "Canceled"


@dataclass(frozen=True, slots=True)
class Message:
    content: str


class PositionSource(StrEnum):
    """Source of an SOS's position."""

    GPS = "gps"
    """The kit's own receiver."""
    BROWSER = "browser"
    """The phone or computer that shows the kit's page."""
    TYPED = "typed"
    LAST = "last posted"
    """The last position that the kit posted before."""


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
    """State in an `IncidentUpdate`."""

    OPEN = "open"
    """From a kit to the hub: this incident is open here."""
    SEEN = "seen"
    """A person has seen it."""
    CLOSED = "closed"
    """A person at the hub has closed it."""
    CALLED_OFF = "called off"
    """Its own kit has called it off."""


@dataclass(frozen=True, slots=True)
class IncidentUpdate:
    """An incident update. An incident is the SOS of one kit, from its start to its end."""

    incident: int
    """Number of the item that raised it."""
    state: IncidentState
    station: int = 0
    """Kit of the incident; 0 is the kit that sends or gets the update."""
    by: str = ""
    """Name of the person behind the update."""
    text: str = ""
    proof: bytes = b""
    """Proof that a holder of the key of this kit and the hub made the update
    (`wire.incident_proof`); empty without such a key."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """A message between the hub and a kit that another kit relays by radio: an envelope with a tag
    that only hub and kit can make (`wire.parcel`).
    """

    body: bytes
    station: int = 0
    """Receiver; 0 is the hub."""
    minutes: int | None = None
    """From the hub to the relaying kit: minutes for which to try. Not on the air."""


Item = Message | Location | Waypoint | Data | IncidentUpdate | Parcel
"""Contents for people, and containers of such contents."""


@dataclass(frozen=True, slots=True)
class CheckIn:
    """To the hub itself: raise an alarm if this kit is silent for `within_s` seconds (whole
    minutes); None ends the check-in.
    """

    within_s: int | None = None


class CommandOutcome(IntEnum):
    """Result of a command, by its number on air."""

    DONE = 0
    REFUSED = 1
    """The command was not started."""
    FAILED = 2


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """To the hub itself: result of the command with that number (`wire.command`)."""

    number: int
    outcome: CommandOutcome
    body: bytes
    """Contents, by verb: `wire.kit_status` or `wire.answer_text`."""


ToHub = CheckIn | CommandAnswer
"""Messages of a kit to the hub itself, which are not passed on."""

Person = int | str
"""Addressee or author of a Package: a user by number, a group by its negative number, or a text
that the hub looks up (a name, `device:NAME`, an e-mail address, a telephone number)."""


TRACKER = "tracker:"
"""Prefix of a tracker's name, as the author of a waypoint. A hub that knows the tracker records it
as the tracker's position; other hubs and kits show a waypoint."""


@dataclass(frozen=True, slots=True)
class Package:
    item: Item | ToHub
    id: int | None = None
    channels: frozenset[Channel] | None = None
    """Channels; None means all configured ones."""
    collapse_key: int | None = None
    priority: int = 11
    time_to_live: int | None = None
    """Seconds; None means the default of the settings. An SOS does not expire."""
    gather: int | None = None
    """Seconds to wait for other Packages that can share a message, if messages cost. The newest
    goes first. An SOS does not wait."""
    by: int | None = None
    """Seconds until it should be delivered. Until then, an expensive channel leaves it to cheaper
    ones. None means the default of the settings."""
    to: Person | None = None
    """Addressee; None: everyone in the workspace."""
    wants_receipt: bool = False
    """True if its sender wants a read receipt."""
    author: Person | None = None
    """Author, a person at this kit; None: the current user of the kit."""

    @property
    def sos(self) -> bool:
        """Return True if it belongs to an incident of this kit. It opens one if there is none."""
        return self.priority >= SOS_PRIORITY and isinstance(
            self.item, Message | Location | Waypoint | Data
        )

    @property
    def urgent(self) -> bool:
        """Return True for an SOS or an incident update, because rescuers act on it. Both use every
        channel, ignore the budget, and never expire.
        """
        return self.sos or isinstance(self.item, IncidentUpdate)

    def with_time(self, now: float) -> Package:
        """Return the Package with `now` as the time of a position without a time, so that it does
        not look new after hours in a queue.
        """
        item = self.item
        if isinstance(item, Location | Waypoint) and item.timestamp is None:
            moment = datetime.fromtimestamp(now, UTC)
            return replace(self, item=replace(item, timestamp=moment))
        return self


ALTITUDE_MIN, ALTITUDE_MAX = -12_000, 100_000
"""Range of altitudes in metres."""
SPEED_MAX = 10_000
"""Maximum speed in metres per second."""
CHECK_IN_MIN, CHECK_IN_MAX = 300, 31 * 86_400
"""Range of a check-in in seconds."""
FIRST_DATE = datetime(1970, 1, 1, tzinfo=UTC)
LAST_DATE = datetime(2105, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Limits of a date in a Package. A decoder replaces a date outside by the nearer limit, because
lists could not read such a date from the store."""


def date_of(unix: float) -> datetime:
    """Return a Unix time as a date in UTC, from FIRST_DATE to LAST_DATE."""
    # datetime.fromtimestamp fails after 2038 on an ARM kit whose time_t has 32 bits.
    seconds = min(max(unix, 0), (LAST_DATE - FIRST_DATE).total_seconds())
    return FIRST_DATE + timedelta(seconds=seconds)


def limit_date(date: datetime) -> datetime:
    """Return the date, which must have a time zone, limited to FIRST_DATE and LAST_DATE."""
    return min(max(date, FIRST_DATE), LAST_DATE)


def get_position_time(item: Item | ToHub) -> datetime | None:
    """Return the time of a position; None for text and data, which have no time."""
    return item.timestamp if isinstance(item, Location | Waypoint) else None


def get_date(item: Item | ToHub, unix: float) -> datetime:
    """Return the time of a position; for text and data, the Unix time as a date."""
    return get_position_time(item) or date_of(unix)
