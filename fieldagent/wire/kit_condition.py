"""Note with a kit's condition, which the kit sends to the hub over its IP link:
`docs/reference/ip-link.md`, "Condition".

The note contains the 32 bytes of the answer to `status`, and other facts that are too long for
satellite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cbor2

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import kit_status
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_status import BARS_MAX, KitStatus

KIND = 11
"""Number that identifies this kind of note."""
REPORTED_HOURS = 24
"""Hours of signal in a report."""
REPORTED_CHANNELS = ("satellite", "cellular")
"""Channels whose signal is reported."""
SYSTEM_TEXT_MAX = 60
"""Maximum characters of the name of the operating system."""
CLOCK_ERROR_MAX_S = 2**40
"""Maximum plausible error of a clock in seconds."""
STARTS_MAX = 1_000

UNKNOWN, COMMAND, POWER, RESET, WATCHDOG, SHUTDOWN, CUT_OFF = range(7)
CAUSES = ("unknown", "command", "power", "reset", "watchdog", "shutdown", "cut-off")
"""Causes of a machine's last start, by number. `docs/reference/ip-link.md` describes the evidence
for each."""

UNDER_VOLTAGE, CAPPED, THROTTLED, SOFT_LIMIT = (1 << bit for bit in range(4))
"""Bits of the Raspberry Pi's `get_throttled` for the present state."""
SINCE_BOOT = 16
"""Number of bits by which the flags that were set since the boot are shifted to the left of the
present flags."""
THROTTLING = {
    UNDER_VOLTAGE: "under-voltage",
    CAPPED: "frequency-capped",
    THROTTLED: "throttled",
    SOFT_LIMIT: "temperature-limit",
}
_KNOWN_BITS = sum(THROTTLING) | sum(THROTTLING) << SINCE_BOOT
_NO_VALUE = 15


@dataclass(frozen=True, slots=True)
class KitCondition:
    """Condition of a kit: the facts of its status, and facts about its machine and its signal."""

    status: KitStatus
    system: str = ""
    """Name and version of the operating system, in one line. Empty if unknown."""
    cause: int = UNKNOWN
    """Cause of the machine's last start: an index of CAUSES."""
    starts: int = 0
    """Number of starts of the agent in the last 24 hours."""
    throttled: int | None = None
    """Bits of THROTTLING, for the present and since the boot. None if unknown."""
    clock: int | None = None
    """Seconds by which the system's clock is ahead of the known time. None if the time is
    unknown."""
    signals: Mapping[str, Sequence[int | None]] | None = None
    """For each of REPORTED_CHANNELS with a known signal, the median of the signal bars in each of
    the last REPORTED_HOURS, the oldest first."""

    def encode(self) -> bytes:
        """Return the note as CBOR. A value beyond a limit is replaced by the limit."""
        signals = [[name, _encode_nibbles(hours)] for name, hours in (self.signals or {}).items()]
        clock = self.clock
        return cbor2.dumps(
            [
                KIND,
                kit_status.encode(self.status),
                self.system[:SYSTEM_TEXT_MAX],
                self.cause,
                min(self.starts, STARTS_MAX),
                None if self.throttled is None else self.throttled & _KNOWN_BITS,
                None if clock is None else max(-CLOCK_ERROR_MAX_S, min(clock, CLOCK_ERROR_MAX_S)),
                signals,
            ]
        )


def decode_note(items: list[Any]) -> KitCondition:
    """Parse a note with a kit's condition. Raises RemoteProtocolError if a value is out of
    range.
    """
    match items[1:8]:
        case [bytes(status), str(system), cause, starts, throttled, clock, list(signals)] if (
            len(system) <= SYSTEM_TEXT_MAX
            and (system.isprintable() or not system)
            and _is_within(cause, 0, 255)
            and _is_within(starts, 0, STARTS_MAX)
            and (throttled is None or _is_within(throttled, 0, 2**32 - 1))
            and (clock is None or _is_within(clock, -CLOCK_ERROR_MAX_S, CLOCK_ERROR_MAX_S))
            and len(signals) <= len(REPORTED_CHANNELS)
        ):
            return KitCondition(
                kit_status.decode(status),
                system,
                cause if cause < len(CAUSES) else UNKNOWN,
                starts,
                None if throttled is None else throttled & _KNOWN_BITS,
                clock,
                dict(map(_read_signal, signals)),
            )
    raise RemoteProtocolError("a kit's condition is damaged, or beyond its bounds")


def describe_throttling(bits: int) -> tuple[list[str], list[str]]:
    """Return two lists of texts from THROTTLING: for the flags that are set now, and for the flags
    that were set at any time since the boot.
    """
    now = [throttling_words for bit, throttling_words in THROTTLING.items() if bits & bit]
    before = [
        throttling_words for bit, throttling_words in THROTTLING.items() if bits >> SINCE_BOOT & bit
    ]
    return now, before


def _is_within(value: Any, minimum: int, maximum: int) -> bool:
    return type(value) is int and minimum <= value <= maximum


def _read_signal(row: Any) -> tuple[str, list[int | None]]:
    match row:
        case [str(channel), bytes(nibbles)] if (
            channel in REPORTED_CHANNELS and 2 * len(nibbles) == REPORTED_HOURS
        ):
            hours = list(_read_bars(nibbles))
            if all(bars is None or bars <= BARS_MAX for bars in hours):
                return channel, hours
    raise RemoteProtocolError("a kit's signal by the hour is damaged")


def _encode_nibbles(hours: Sequence[int | None]) -> bytes:
    nibbles = [_NO_VALUE if bars is None else min(bars, BARS_MAX) for bars in hours]
    return bytes(high << 4 | low for high, low in zip(nibbles[::2], nibbles[1::2], strict=True))


def _read_bars(nibbles: bytes) -> Iterator[int | None]:
    for byte in nibbles:
        for bars in (byte >> 4, byte & 15):
            yield None if bars == _NO_VALUE else bars
