"""AX.25 2.2: UI frames without flags and frame check, as a KISS TNC exchanges them."""

from __future__ import annotations

import re

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

UI = 0x03
NO_LAYER_3 = 0xF0
INFO_BYTES = 256
"""Maximum bytes of the information field, unless both ends have agreed on more (AX.25 2.2, section
6.8)."""
DIGIPEATERS = 8
_ADDRESS = 7


class Callsign(NamedTuple):
    """A station's address (section 3.12): up to six capital letters and digits, and an SSID from 0
    to 15.
    """

    name: str
    ssid: int = 0

    def __str__(self) -> str:
        return f"{self.name}-{self.ssid}" if self.ssid else self.name


@dataclass(frozen=True, slots=True)
class Frame:
    source: Callsign
    destination: Callsign
    info: bytes
    digipeaters: tuple[Callsign, ...] = ()
    """Digipeaters in the frame's path."""


def parse_callsign(text: str) -> Callsign:
    """Parse a callsign such as `N0CALL-7`. Raises LocalProtocolError for any other text."""
    match = re.fullmatch(r"([A-Z0-9]{1,6})(?:-([0-9]|1[0-5]))?", text)
    if match is None:
        raise LocalProtocolError(f"{text!r} is not a call sign such as N0CALL-7")
    return Callsign(match[1], int(match[2] or 0))


def encode(frame: Frame) -> bytes:
    """Encode a command frame, with the C bits of a command (section 6.1.2). Raises
    LocalProtocolError if the frame has more than INFO_BYTES bytes or DIGIPEATERS digipeaters.
    """
    if len(frame.info) > INFO_BYTES:
        raise LocalProtocolError(f"a UI frame holds at most {INFO_BYTES} bytes")
    if len(frame.digipeaters) > DIGIPEATERS:
        raise LocalProtocolError(f"a frame can have at most {DIGIPEATERS} digipeaters")
    calls = [
        (frame.destination, 0x80),
        (frame.source, 0),
        *((call, 0) for call in frame.digipeaters),
    ]
    addresses = bytearray().join(_encode_address(call, bit) for call, bit in calls)
    addresses[-1] |= 1
    return bytes(addresses) + bytes([UI, NO_LAYER_3]) + frame.info


def decode(data: bytes) -> Frame | None:
    """Decode a UI frame without layer 3 (PID F0). Return None for any other frame. Raises
    RemoteProtocolError for malformed data.
    """
    calls: list[Callsign] = []
    at = 0
    last = False
    while not last:
        address = data[at : at + _ADDRESS]
        if len(address) < _ADDRESS or len(calls) == 2 + DIGIPEATERS:
            raise RemoteProtocolError("an AX.25 address field without an end")
        calls.append(_decode_address(address))
        last = bool(address[-1] & 1)
        at += _ADDRESS
    if len(calls) < 2:
        raise RemoteProtocolError("an AX.25 frame without a source")
    # Ignore the poll bit, which has no meaning in a UI frame.
    if len(data) < at + 2 or data[at] & ~0x10 != UI or data[at + 1] != NO_LAYER_3:
        return None
    return Frame(calls[1], calls[0], data[at + 2 :], tuple(calls[2:]))


def _encode_address(call: Callsign, bit: int) -> bytes:
    name = parse_callsign(str(call)).name.ljust(6).encode("ascii")
    return bytes(character << 1 for character in name) + bytes([bit | 0x60 | call.ssid << 1])


def _decode_address(address: bytes) -> Callsign:
    name = bytes(character >> 1 for character in address[:6]).decode("ascii").rstrip(" ")
    if any(character & 1 for character in address[:6]) or not re.fullmatch("[A-Z0-9]{1,6}", name):
        raise RemoteProtocolError("an AX.25 address of other characters than capitals and digits")
    return Callsign(name, address[6] >> 1 & 0x0F)
