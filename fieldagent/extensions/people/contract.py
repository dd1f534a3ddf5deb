"""Contract between the agent and the kit's radio for handhelds.

A kind of radio is a module with a `PeoplesRadio`, named in `settings.RADIOS`. The radio talks to
people's handhelds, which have their usual firmware and need not know the kit. A handheld is
identified by its *handle*, a permanent name that depends on the firmware. Meshtastic: `!a1b2c3d4`.
MeshCore: the public key in 64 hexadecimal digits. APRS: the callsign in lower case.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.package.coordinates import is_zero_position
from fieldagent.package.package import Location
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple

PRECISE = 32
"""Valid bits of an exact position."""


class HandheldSignal(NamedTuple):
    """Reception of a packet; None for values that the radio does not report."""

    rssi: int | None = None
    snr: float | None = None
    hops: int | None = None
    """Number of radios that repeated the packet."""


class HandheldText(NamedTuple):
    """A text."""

    text: str
    direct: bool
    """True if the text was sent to the kit alone, not on a channel."""
    channel: str = ""
    alert: bool = False
    key: bytes = b""
    """Public key that authenticates the sender; empty if the sender is unauthenticated."""
    answers: int | None = None
    """Number of our packet that the text answers."""
    reaction: bool = False
    """True if this is a reaction to that packet, not a text."""


class HandheldName(NamedTuple):
    """Name and key that a handheld announces for its person. Name and key are not authenticated."""

    name: str
    key: bytes


class HandheldPosition(NamedTuple):
    where: Location
    precision: int = PRECISE
    """Valid bits of the position; fewer than `PRECISE` if the position is blurred on purpose."""


def make_located(location: Location, precision: int = PRECISE) -> HandheldPosition | None:
    """Return a position, or None for the null position, which means that the handheld has no
    fix.
    """
    blur = 2 ** (PRECISE - precision) * 1e-7
    nowhere = is_zero_position(location.latitude, location.longitude, blur)
    return None if nowhere else HandheldPosition(location, precision)


class HandheldMarker(NamedTuple):
    """Point that a person has marked. A later point with the same number replaces it."""

    mark: int
    latitude: float
    longitude: float
    name: str
    notes: str
    lasts: int | None
    """Seconds until the marker ends; None if it does not end."""


class HandheldBattery(NamedTuple):
    battery: int
    """Charge in percent."""


class HandheldReport(NamedTuple):
    """One report received from a handheld."""

    handle: str
    number: int
    """Number of the packet; 0 if the radio reports something that the radio knew before."""
    what: HandheldText | HandheldName | HandheldPosition | HandheldMarker | HandheldBattery | None
    """Content; None if the report is not for the kit and only shows that the handheld is in
    range."""
    signal: HandheldSignal = HandheldSignal()
    over_internet: bool = False
    """True if the report came over an MQTT server, so the sender may be far away."""


class TextOutcome(NamedTuple):
    """Result of a text that was given to the radio."""

    there: bool
    """True if the person's radio has confirmed the text. This does not mean that a person has read
    it."""
    why: str
    """Reason for people, if the text was not confirmed."""
    too_early: bool = False
    """True if the kit's own radio refused the text because the text came too soon after another
    text. The person's radio is then not at fault."""


class HandheldPlace(NamedTuple):
    """Port of the kit's radio for handhelds, and the radio's settings."""

    port: str
    """A serial port, or `tcp://host`."""
    callsign: str = ""
    """The kit's own callsign, for a radio that uses callsigns."""
    baud: int = 9600
    """Baud rate of a serial port whose firmware does not prescribe one."""
    admits: Callable[[str], bool] = lambda handle: True
    """Returns True if the kit accepts this handle. The kit asks only if its radio hears all
    stations on a frequency."""
    note: Callable[[str], None] = lambda became: None
    """Counts a received frame, by the decision about it."""


class PeopleRadio(Protocol):
    """Radio for messages to people. Its methods raise RadioLost and PortLost when the radio is
    lost.
    """

    text_bytes: int
    """Largest number of UTF-8 bytes of a text."""
    has_signs: bool
    """True if the firmware has reactions. Otherwise a text replaces a sign."""

    async def receive(self) -> HandheldReport:
        """Wait for the next report and return it."""

    def make_number(self) -> int:
        """Return a number for a packet. Answers refer to the packet by this number."""

    async def send_text(self, handle: str, text: str, number: int, answers: int = 0) -> TextOutcome:
        """Send a direct message, and wait for the result."""

    async def react(self, handle: str, number: int, sign: str, words: str) -> TextOutcome:
        """Add a sign to a person's message. If the radio has no signs, send the sign with `words`,
        which explain the sign and name the message.
        """

    async def refuse(self, report: HandheldReport, reason: str) -> None:
        """Notify a person that their last message was refused, with a sign of the firmware or with
        `reason`, a text for people. `reason` is empty if a text is sent separately.
        """


@dataclass(frozen=True, slots=True)
class PeoplesRadio:
    """One kind of radio for handhelds."""

    name: str
    """Name in `mesh-protocol`."""
    means: str
    """Description for people."""
    open: Callable[
        [HandheldPlace, ChannelLink, Callable[[], float]],
        AbstractAsyncContextManager[PeopleRadio],
    ]
    """Opens the radio at a place, with a clock of Unix time. Raises RadioLost and PortLost, in
    groups."""
    is_handle: Callable[[str], bool]
    """Returns True if a handle is of this kind. A person may have radios of several kinds."""
    recognition: Callable[[], Recognition] | None = None
    """Loads the recognition of this kind at a port; None if this kind cannot be recognised."""
    caveat: str = ""
    """Warning that is shown with everything that comes over an unauthenticated radio. The sender
    can raise an SOS or cause costs only if a setting allows that. The hub shows the sender's
    position as a tracker's."""


SHORT_KEY = 12


def shorten_handle(handle: str) -> str:
    """Return a handle for texts to people. A public key is shortened to its start, as in MeshCore's
    apps.
    """
    return handle[:SHORT_KEY] if len(handle) == 64 else handle
