"""Interface between the agent and the kit's radio for handhelds.

A kind of radio is a module with a `PeoplesRadio`, which `settings.RADIOS` names. The radio
exchanges messages with people's handhelds, which have their usual firmware and need no settings for
the kit. A handheld is identified by its *handle*, a permanent name that depends on the firmware.
Meshtastic: `!a1b2c3d4`. MeshCore: the public key in 64 hexadecimal digits. APRS: the callsign in
lower case.
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
    """Reception quality of a packet. A value is None if the radio does not report it."""

    rssi: int | None = None
    snr: float | None = None
    hops: int | None = None
    """Number of radios that repeated the packet."""


class HandheldText(NamedTuple):
    """A text or a reaction that a person sent with a handheld."""

    text: str
    direct: bool
    """True if the text was sent only to the kit, not on a channel."""
    channel: str = ""
    alert: bool = False
    key: bytes = b""
    """Public key that authenticates the sender; empty if the sender is not authenticated."""
    answers: int | None = None
    """Number of the kit's packet to which the text is an answer."""
    reaction: bool = False
    """True if this is a reaction to the packet `answers`, not a text."""


class HandheldName(NamedTuple):
    """Name and key that a handheld announces for its owner. They are not authenticated."""

    name: str
    key: bytes


class HandheldPosition(NamedTuple):
    where: Location
    precision: int = PRECISE
    """Number of valid bits of the position. It is less than `PRECISE` if the position is blurred on
    purpose."""


def make_located(location: Location, precision: int = PRECISE) -> HandheldPosition | None:
    """Return a position, or None for the null position, which a handheld without a fix sends."""
    blur = 2 ** (PRECISE - precision) * 1e-7
    nowhere = is_zero_position(location.latitude, location.longitude, blur)
    return None if nowhere else HandheldPosition(location, precision)


class HandheldMarker(NamedTuple):
    """A point that a person has marked. A later point with the same number replaces it."""

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
    """A report that the radio received from a handheld."""

    handle: str
    number: int
    """Number of the packet; 0 if the radio reports something that it knew before."""
    what: HandheldText | HandheldName | HandheldPosition | HandheldMarker | HandheldBattery | None
    """Content of the report. None if the report is not for the kit and only shows that the handheld
    is in range."""
    signal: HandheldSignal = HandheldSignal()
    over_internet: bool = False
    """True if the report arrived through an MQTT server. In this case, the sender may be far
    away."""


class TextOutcome(NamedTuple):
    """Result of a text that the kit passed to the radio."""

    is_confirmed: bool
    """True if the person's radio has confirmed the text. The person may not have read it yet."""
    reason: str
    """Reason why the text was not confirmed, as a text for people; empty if it was confirmed."""
    too_early: bool = False
    """True if the kit's own radio refused the text because it came too soon after another text. In
    this case, the person's radio has no fault."""


class HandheldPlace(NamedTuple):
    """Port and settings of the kit's radio for handhelds."""

    port: str
    """A serial port, or `tcp://host`."""
    callsign: str = ""
    """The kit's own callsign, for a radio that uses callsigns."""
    baud: int = 9600
    """Baud rate of a serial port whose firmware does not prescribe one."""
    admits: Callable[[str], bool] = lambda handle: True
    """Returns True if the kit accepts the handle. It is called only if the kit's radio hears all
    stations on a frequency."""
    note: Callable[[str], None] = lambda became: None
    """Counts a received frame by the decision about it."""


class PeopleRadio(Protocol):
    """Radio for messages to people. Its methods raise RadioLost and PortLost if the radio is
    lost.
    """

    text_bytes: int
    """Largest number of UTF-8 bytes of a text."""
    has_signs: bool
    """True if the firmware has reactions. If it has none, the kit sends a text instead of a
    sign."""

    async def receive(self) -> HandheldReport:
        """Wait for the next report and return it."""

    def make_number(self) -> int:
        """Return a number for a new packet. Answers refer to the packet by this number."""

    async def send_text(self, handle: str, text: str, number: int, answers: int = 0) -> TextOutcome:
        """Send a direct message, and wait for the result."""

    async def react(self, handle: str, number: int, sign: str, words: str) -> TextOutcome:
        """Add a sign to a person's message. If the radio has no signs, send the sign with `words`,
        which explain the sign and quote the message.
        """

    async def refuse(self, report: HandheldReport, reason: str) -> None:
        """Notify a person that their last message was refused, by a sign of the firmware or by the
        text `reason`. `reason` is empty if the caller sends a text separately.
        """


@dataclass(frozen=True, slots=True)
class PeoplesRadio:
    """One kind of radio for handhelds, and the functions that open and recognise it."""

    name: str
    """Name in `mesh-protocol`."""
    means: str
    """Description of the radio for people."""
    open: Callable[
        [HandheldPlace, ChannelLink, Callable[[], float]],
        AbstractAsyncContextManager[PeopleRadio],
    ]
    """Opens the radio. The callable is a clock that returns Unix time. Raises RadioLost and
    PortLost, in exception groups."""
    is_handle: Callable[[str], bool]
    """Returns True if a handle belongs to this kind of radio. A person may have radios of several
    kinds."""
    recognition: Callable[[], Recognition] | None = None
    """Loads the recognition of this kind of radio. None if this kind cannot be recognised."""
    caveat: str = ""
    """Warning that the kit shows with everything that arrives over an unauthenticated radio. The
    sender can raise an SOS or cause costs only if a setting allows it. The hub shows the sender's
    position as the position of a tracker."""


SHORT_KEY = 12


def shorten_handle(handle: str) -> str:
    """Return a handle in a form for texts to people. A public key is shortened to its beginning, as
    in MeshCore's apps.
    """
    return handle[:SHORT_KEY] if len(handle) == 64 else handle
