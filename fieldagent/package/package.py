"""What a caller posts: a Package with its one item, and the statuses that it may end with.

Names and defaults are those of the interface document, "Local Package".
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum

from fieldagent.system.lazy_dataclass import dataclass

SOS_PRIORITY = 100


class Channel(StrEnum):
    SATELLITE = "Satellite"
    RADIO = "Radio"
    CELLULAR = "Cellular"


class Status(StrEnum):
    """The terminal statuses, the only ones that an answer carries."""

    DELIVERED = "Delivered"
    ERROR = "Error"
    COLLAPSED = "Collapsed"
    CANCELED = "Canceled"


@dataclass(frozen=True, slots=True)
class Message:
    content: str


class PositionSource(StrEnum):
    """How an SOS came by its position."""

    GPS = "gps"
    """The kit's own receiver."""
    BROWSER = "browser"
    """The phone or computer on which the kit's page is open."""
    TYPED = "typed"
    LAST = "last posted"
    """The last one that the kit had posted before."""


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


class Said(StrEnum):
    """What an `IncidentWord` says."""

    OPEN = "open"
    """From a kit to the hub: this incident is open here."""
    SEEN = "seen"
    """A person has it."""
    CLOSED = "closed"
    """A person at the hub has closed it."""
    CALLED_OFF = "called off"
    """Its own kit takes it back."""


@dataclass(frozen=True, slots=True)
class IncidentWord:
    """A word about an incident: the SOS of one kit, from its raising to its end."""

    incident: int
    """The number of the item that raised it."""
    says: Said
    station: int = 0
    """The kit whose incident it is; 0 is the kit that the word comes from, or goes to."""
    by: str = ""
    """The name of the person who says it."""
    text: str = ""
    proof: bytes = b""
    """Shows that a holder of the key of this kit and the hub says it (`wire.incident_proof`); empty
    where there is no such key."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """What the hub and a kit say to each other where another kit's radio is the only way between
    them: an envelope with a tag that nobody else can make (`wire.parcel`)."""

    body: bytes
    station: int = 0
    """The kit that it is for; 0 is the hub."""
    minutes: int | None = None
    """From the hub to who brings it down: for how long that is worth trying. Not on the air."""


Item = Message | Location | Waypoint | Data | IncidentWord | Parcel
"""What travels to people, or holds what does."""


@dataclass(frozen=True, slots=True)
class CheckIn:
    """To the hub itself: raise the alarm where nothing is heard of this kit for `within` seconds,
    whole minutes; None ends that."""

    within: int | None = None


class CommandOutcome(IntEnum):
    """What became of a command, by its number on air."""

    DONE = 0
    REFUSED = 1
    """It was not begun."""
    FAILED = 2


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """To the hub itself: what became of the command of that number (`wire.command`)."""

    number: int
    outcome: CommandOutcome
    body: bytes
    """As its verb has it: `wire.kit_status`, or `wire.answer_text`."""


ToHub = CheckIn | CommandAnswer
"""What a kit says to the hub itself, which hands it to nobody."""

Person = int | str
"""Somebody whom a Package names: a user by number, a group by its number negated, or whoever the
hub finds under this text: a name, `device:NAME`, an e-mail address, a telephone number."""


TRACKER = "tracker:"
"""Before what a tracker calls itself, as the author of a waypoint: the hub takes that for where the
tracker was, if it knows it, and whoever does not reads a waypoint."""


@dataclass(frozen=True, slots=True)
class Package:
    item: Item | ToHub
    id: int | None = None
    channels: frozenset[Channel] | None = None
    """None means every channel that is configured."""
    collapse_key: int | None = None
    priority: int = 11
    time_to_live: int | None = None
    """Seconds; None means what the settings say. An SOS has none."""
    gather: int | None = None
    """Seconds that it waits, where each message costs, for others to share one with. The newest
    goes first. An SOS does not wait."""
    by: int | None = None
    """Seconds within which it is to be there: so long a dearer channel leaves it to the cheaper
    ones. None means what the settings say."""
    to: Person | None = None
    """Whom it is for; None is everybody in the workspace."""
    asks: bool = False
    """Its sender wants to know when a person has read it."""
    author: Person | None = None
    """The person at this kit who wrote it; None is whoever has the kit."""

    @property
    def sos(self) -> bool:
        """Return whether it belongs to this kit's incident, and opens one where none is open."""
        return self.priority >= SOS_PRIORITY and isinstance(
            self.item, Message | Location | Waypoint | Data
        )

    @property
    def urgent(self) -> bool:
        """Return whether it is an SOS, or a word about one: whoever got it sets out. Each takes
        every channel, waits for no budget, and never expires."""
        return self.sos or isinstance(self.item, IncidentWord)

    def stamped(self, now: float) -> Package:
        """Return it with `now` as the time of a position that has none: a queued fix must not look
        fresh hours later."""
        item = self.item
        if isinstance(item, Location | Waypoint) and item.timestamp is None:
            moment = datetime.fromtimestamp(now, UTC)
            return replace(self, item=replace(item, timestamp=moment))
        return self


ALTITUDE_MIN, ALTITUDE_MAX = -12_000, 100_000
"""Metres."""
SPEED_MAX = 10_000
"""Metres per second."""
CHECK_IN_MIN, CHECK_IN_MAX = 300, 31 * 86_400
"""Seconds."""
FIRST_DATE = datetime(1970, 1, 1, tzinfo=UTC)
LAST_DATE = datetime(2105, 12, 31, 23, 59, 59, tzinfo=UTC)
"""Bounds of a date in a Package. A decoder moves a date from outside to the nearer bound, because
no list can read a stored date beyond them."""


def date_of(unix: float) -> datetime:
    """Return a Unix time as a date in UTC, from FIRST_DATE to LAST_DATE."""
    # datetime.fromtimestamp fails after 2038 on an ARM kit whose time_t has 32 bits.
    seconds = min(max(unix, 0), (LAST_DATE - FIRST_DATE).total_seconds())
    return FIRST_DATE + timedelta(seconds=seconds)


def bounded_date(date: datetime) -> datetime:
    """Return the date, which names its zone, or the nearer of FIRST_DATE and LAST_DATE."""
    return min(max(date, FIRST_DATE), LAST_DATE)


def recorded(item: Item | ToHub) -> datetime | None:
    """Return when a position was taken; text and data have no time of their own."""
    return item.timestamp if isinstance(item, Location | Waypoint) else None


def dated(item: Item | ToHub, unix: float) -> datetime:
    """Return when a position was taken, or the Unix time of a text or data, as a date."""
    return recorded(item) or date_of(unix)
