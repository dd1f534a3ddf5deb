"""What a people's radio and the agent promise each other.

A people's radio is one module with a `PeoplesRadio`, named in `people_settings.RADIOS`. It speaks
to the handhelds of people who never heard of us, by the firmware that these have. A handheld is
known by its *handle*, which is what its firmware calls it for good: of Meshtastic `!a1b2c3d4`, of
MeshCore the public key in 64 hexadecimal digits, of APRS the call in lower case.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.package.coordinates import is_nowhere
from fieldagent.package.package import Location
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

PRECISE = 32
"""Bits of a position that nobody has blurred."""


class HandheldSignal(NamedTuple):
    """How a packet was heard; None where the radio does not say."""

    rssi: int | None = None
    snr: float | None = None
    hops: int | None = None
    """Radios that repeated it on its way."""


class Spoken(NamedTuple):
    """A text."""

    text: str
    direct: bool
    """To the kit alone, and not on a channel."""
    channel: str = ""
    alert: bool = False
    key: bytes = b""
    """The public key that proves whose it is; empty where nothing does."""
    answers: int | None = None
    """The packet of ours that it answers."""
    reaction: bool = False
    """It is a sign on that packet, and no text."""


class Named(NamedTuple):
    """Holder a handheld's person is, by their own word."""

    name: str
    key: bytes


class Located(NamedTuple):
    where: Location
    precision: int = PRECISE
    """Bits of it that are true; fewer than `PRECISE` where it is blurred on purpose."""


def located(where: Location, precision: int = PRECISE) -> Located | None:
    """Return a position, or None if it is nowhere: the handheld is there, and has no fix."""
    blur = 2 ** (PRECISE - precision) * 1e-7
    nowhere = is_nowhere(where.latitude, where.longitude, blur)
    return None if nowhere else Located(where, precision)


class Marked(NamedTuple):
    """A point that a person has marked; a later one with the same number takes its place."""

    mark: int
    latitude: float
    longitude: float
    name: str
    notes: str
    lasts: int | None
    """Seconds; None where it does not end."""


class Powered(NamedTuple):
    battery: int
    """Per cent."""


class FromHandheld(NamedTuple):
    """One thing that came from a handheld."""

    handle: str
    number: int
    """Of the packet; 0 where the radio tells of itself what it knew before."""
    what: Spoken | Named | Located | Marked | Powered | None
    """None where it is nothing for us: the handheld is there."""
    signal: HandheldSignal = HandheldSignal()
    over_internet: bool = False
    """It came by somebody's MQTT server, and says nothing of who is near."""


class TextOutcome(NamedTuple):
    """What is known of a text that was given to the radio."""

    there: bool
    """The person's radio says that it has it. Whether a person has read it, it does not know."""
    why: str
    """For people, where it is not there."""
    too_early: bool = False
    """The kit's own radio takes none so soon after another: of the person that says nothing."""


class HandheldPlace(NamedTuple):
    """Where a people's radio is, and what it needs there."""

    port: str
    """A serial port, or `tcp://host`."""
    callsign: str = ""
    """The kit's own, where its radio works by calls."""
    baud: int = 9600
    """Of a serial port whose firmware prescribes none."""
    admits: Callable[[str], bool] = lambda handle: True
    """Whom the kit takes in, by handle, where its radio hears everybody on a frequency."""
    note: Callable[[str], None] = lambda became: None
    """Counts a frame there, by what became of it."""


class PeopleRadio(Protocol):
    """Raises RadioLost and PortLost once the radio is gone."""

    text_bytes: int
    """Most bytes of a text in UTF-8."""
    has_signs: bool
    """A sign is put on a message of theirs. Where it has none, a text takes its place."""

    async def receive(self) -> FromHandheld:
        """Wait for the next thing that is heard."""

    def new_number(self) -> int:
        """Return a number for a packet, by which answers name it."""

    async def say(self, handle: str, text: str, number: int, answers: int = 0) -> TextOutcome:
        """Send a direct message, and wait until it is known whether it is there."""

    async def react(self, handle: str, number: int, sign: str, words: str) -> TextOutcome:
        """Put a sign on a message of theirs; where the radio has no signs, send it with `words`,
        which say the same and which message it is."""

    async def refuse(self, heard: FromHandheld, why: str) -> None:
        """Let a person know that what they wrote last is not taken, by a sign of the firmware's or
        by `why`, for people; empty where a text tells them."""


@dataclass(frozen=True, slots=True)
class PeoplesRadio:
    """Describes one kind of people's radio."""

    name: str
    """What `mesh-protocol` calls it."""
    means: str
    """For people."""
    open: Callable[
        [HandheldPlace, ChannelLink, Callable[[], float]],
        AbstractAsyncContextManager[PeopleRadio],
    ]
    """Opens the one at a place, with a clock of Unix time. Raises RadioLost and PortLost, in
    groups."""
    is_handle: Callable[[str], bool]
    """Whether a handle is of that kind: a person may have radios of several."""
    recognition: Callable[[], Recognition] | None = None
    """Loads how it is recognised at a port; None: it tells nobody which it is."""
    caveat: str = ""
    """Stands beside all that comes by it, where nothing proves whose it is. What such a one says
    raises an SOS or costs anything only where a setting says so, and where they are is a tracker's
    position at the hub."""


SHORT_KEY = 12


def in_short(handle: str) -> str:
    """Return a handle as it stands in a text for people: of a public key the beginning, by which
    MeshCore's apps show it, too."""
    return handle[:SHORT_KEY] if len(handle) == 64 else handle
