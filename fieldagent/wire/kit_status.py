"""Condition of a kit in 32 bytes, which is the answer to the command `status`:
`docs/reference/on-air.md`, "Commands".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import RemoteProtocolError

FORM = 1
LINKS = ("satellite", "radio", "cellular")
STATES = ("not configured", "starting", "absent", "ready", "no service", "busy", "fault")
"""States of a link, by their number."""
CLOCKS = ("nobody", "satellite", "hub", "GPS", "network", "somebody else")
"""Sources of the kit's time, by their number. The first means no trusted source, and the last any
source that is not listed."""
_BODY = struct.Struct(">B3BHHBbH3s3sH3BHHHBBB")
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:\.dev(\d{1,9})|\+(\d{1,9})\b)?")
_NO_BYTE, _NO_SHORT = 0xFF, 0xFFFF
_UNKNOWN_DEGREES = -128
DISK_UNIT = 10_000_000
"""Unit of free disk space in bytes."""
BARS_MAX = 5
"""Maximum number of signal bars."""
_NO_BARS = 15


class KitStatus(NamedTuple):
    version: tuple[int, int, int]
    since: int
    """Number of commits in the program since the release `version`; 0 for the release itself."""
    disk_free: int
    """Free bytes on the journal's disk."""
    disk_used: int
    """Used share of the disk in per cent."""
    degrees: int | None
    """Temperature of the processor in degrees Celsius. None if unknown."""
    millivolts: int | None
    """Supply voltage in mV. None if the machine cannot measure it."""
    uptime: int
    """Seconds that the agent has run, rounded to minutes."""
    machine_uptime: int
    starts: int
    """Number of starts of the agent since the journal was created."""
    links: tuple[str, str, str]
    """States of the links, in the order of `LINKS`."""
    signals: tuple[int | None, int | None, int | None]
    """Signals of the links in bars, 0 to 5. None if unknown."""
    queued: int
    """Largest number of Packages that wait for one of the links."""
    credits_today: int
    credits_left: int | None
    """Today's remaining credits. None if there is no budget."""
    clock: str
    """Source of the time, one of `CLOCKS`."""
    dead_letters: int
    faults: int
    """Number of parts of the agent that are down."""
    trouble: bool
    """True if the disk cannot be written, or a part does not run."""


def encode(status: KitStatus) -> bytes:
    """Encode the status. A value that is too large is replaced by the largest possible value."""
    states = [
        STATES.index(state) << 4 | (_NO_BARS if bars is None else min(bars, BARS_MAX))
        for state, bars in zip(status.links, status.signals, strict=True)
    ]
    return _BODY.pack(
        FORM,
        *(min(each, 255) for each in status.version),
        min(status.since, _NO_SHORT),
        min(status.disk_free // DISK_UNIT, _NO_SHORT),
        min(status.disk_used, 100),
        _UNKNOWN_DEGREES if status.degrees is None else max(-127, min(status.degrees, 127)),
        _NO_SHORT if status.millivolts is None else min(status.millivolts, _NO_SHORT - 1),
        _encode_minutes(status.uptime),
        _encode_minutes(status.machine_uptime),
        min(status.starts, _NO_SHORT),
        *states,
        min(status.queued, _NO_SHORT),
        min(status.credits_today, _NO_SHORT),
        _NO_SHORT if status.credits_left is None else min(status.credits_left, _NO_SHORT - 1),
        CLOCKS.index(status.clock),
        min(status.dead_letters, 255),
        min(status.faults, 127) | int(status.trouble) << 7,
    )


def format_lines(status: KitStatus) -> list[str]:
    """Return the status as lines of English text for people."""
    version = format_version(status)
    disk = f"disk {status.disk_used} % used, {status.disk_free / 1e9:.1f} GB free"
    warmth = [] if status.degrees is None else [f"{status.degrees} °C"]
    supply = [] if status.millivolts is None else [f"{status.millivolts / 1000:.2f} V"]
    links = [
        f"{name} {state}" + ("" if bars is None else f" ({bars} bars)")
        for name, state, bars in zip(LINKS, status.links, status.signals, strict=True)
        if state != STATES[0]
    ]
    credits_text = "" if status.credits_left is None else f", {status.credits_left} left"
    return [
        "; ".join([f"version {version}", disk, *warmth, *supply]),
        f"agent up {format_span(status.uptime)}, machine up {format_span(status.machine_uptime)},"
        f" {status.starts} starts of the agent",
        f"{'; '.join(links) or 'no link is configured'}; {status.queued} Packages wait",
        f"credits today {status.credits_today}{credits_text}; clock set by {status.clock}",
        f"{status.dead_letters} dead letters, {status.faults} parts down"
        + ("; IN TROUBLE: see its log" if status.trouble else ""),
    ]


def read_version_numbers(version: str) -> tuple[tuple[int, int, int], int]:
    """Return the numbers of a program's version, and the number of commits since this version.
    Return zeros if the text is not a version.
    """
    if (match := _VERSION.match(version)) is None:
        return (0, 0, 0), 0
    major, minor, patch, *since = match.groups()
    return (int(major), int(minor), int(patch)), int(next(filter(None, since), 0))


def format_version(status: KitStatus) -> str:
    """Return the version for people, such as 0.1.0+12."""
    return _format_numbers(status.version, status.since)


def _format_numbers(numbers: Sequence[int], commit_count: int) -> str:
    return ".".join(map(str, numbers)) + (f"+{commit_count}" if commit_count else "")


def encode_version(version: str) -> bytes:
    """Encode a program's version in 3 bytes, or in 5 bytes if there are commits since the
    version.
    """
    numbers, since = read_version_numbers(version)
    return bytes(min(each, 255) for each in numbers) + (
        min(since, 0xFFFF).to_bytes(2, "big") if since else b""
    )


def decode_version(content: bytes) -> str:
    """Decode a program's version, and return it as text. Raises ValueError for malformed data."""
    if len(content) not in (3, 5):
        raise ValueError("a version has 3 or 5 bytes")
    return _format_numbers(content[:3], int.from_bytes(content[3:], "big"))


def decode(body: bytes) -> KitStatus:
    """Decode a kit's status. Raises RemoteProtocolError for malformed data."""
    if len(body) < _BODY.size or body[0] != FORM:
        raise RemoteProtocolError("a kit's status has an unknown format")
    _, a, b, c, since, free, used_share, degrees, volts, up, machine, starts, *rest = _BODY.unpack(
        body[: _BODY.size]
    )
    *links, queued, credit, credits_left, clock, letters, faults = rest
    if clock >= len(CLOCKS) or any(each >> 4 >= len(STATES) for each in links):
        raise RemoteProtocolError("a kit's status has an unknown value")
    bars = [None if each & 15 == _NO_BARS else each & 15 for each in links]
    if used_share > 100 or any(each is not None and each > BARS_MAX for each in bars):
        raise RemoteProtocolError("a kit's status has more than 100 %, or more than 5 bars")
    states = [STATES[each >> 4] for each in links]
    return KitStatus(
        (a, b, c),
        since,
        free * DISK_UNIT,
        used_share,
        None if degrees == _UNKNOWN_DEGREES else degrees,
        None if volts == _NO_SHORT else volts,
        int.from_bytes(up) * 60,
        int.from_bytes(machine) * 60,
        starts,
        (states[0], states[1], states[2]),
        (bars[0], bars[1], bars[2]),
        queued,
        credit,
        None if credits_left == _NO_SHORT else credits_left,
        CLOCKS[clock],
        letters,
        faults & 127,
        bool(faults >> 7),
    )


def format_span(seconds: int) -> str:
    """Return a duration as text with at most two units."""
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes // 60 % 24} h"


def _encode_minutes(seconds: int) -> bytes:
    return min(max(0, seconds) // 60, 0xFFFFFF).to_bytes(3)
