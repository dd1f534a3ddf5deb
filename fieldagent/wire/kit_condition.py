"""How a kit is, as it tells the hub by itself over its IP link: `docs/reference/ip-link.md`,
"Condition".

It holds the 32 bytes that answer `status`, and beside them what a kit knows of itself that is not
worth a satellite's bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cbor2

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import kit_status
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.kit_status import BARS, KitStatus

KIND = 11
"""Of the note."""
HOURS = 24
"""Of signal that are told."""
CHANNELS = ("satellite", "cellular")
"""Whose signal is told."""
SYSTEM_MAX = 60
"""Characters."""
CLOCK_MAX = 2**40
"""Seconds that a clock may be wrong by; what is more is no clock's."""
STARTS_MAX = 1_000

UNKNOWN, COMMAND, POWER, RESET, WATCHDOG, SHUTDOWN, CUT_OFF = range(7)
CAUSES = ("unknown", "command", "power", "reset", "watchdog", "shutdown", "cut-off")
"""Why a machine was started last, by their number; `docs/reference/ip-link.md` says what each
proves."""

UNDER_VOLTAGE, CAPPED, THROTTLED, SOFT_LIMIT = (1 << bit for bit in range(4))
"""Of the Raspberry Pi's `get_throttled`: how it is now."""
SINCE_BOOT = 16
"""By so many bits further up stands whether it was so since the start."""
THROTTLING = {
    UNDER_VOLTAGE: "under-voltage",
    CAPPED: "frequency-capped",
    THROTTLED: "throttled",
    SOFT_LIMIT: "temperature-limit",
}
_KNOWN_BITS = sum(THROTTLING) | sum(THROTTLING) << SINCE_BOOT
_NOTHING = 15


@dataclass(frozen=True, slots=True)
class KitCondition:
    """What a kit tells of itself by itself."""

    status: KitStatus
    system: str = ""
    """Of the machine, in a line; empty where it does not tell."""
    cause: int = UNKNOWN
    """One of CAUSES."""
    starts: int = 0
    """How often the agent has begun in the last 24 hours."""
    throttled: int | None = None
    """The bits of THROTTLING, now and since the start; None where nobody tells."""
    clock: int | None = None
    """Seconds by which the system's clock is ahead of what the kit was told; None where nobody has
    told it."""
    signals: Mapping[str, Sequence[int | None]] | None = None
    """Of CHANNELS: median bars of each of the last HOURS, the oldest first."""

    def encode(self) -> bytes:
        """Return the note; what is beyond a limit is told as the limit."""
        signals = [[name, _nibbles(hours)] for name, hours in (self.signals or {}).items()]
        clock = self.clock
        return cbor2.dumps(
            [
                KIND,
                kit_status.encode(self.status),
                self.system[:SYSTEM_MAX],
                self.cause,
                min(self.starts, STARTS_MAX),
                None if self.throttled is None else self.throttled & _KNOWN_BITS,
                None if clock is None else max(-CLOCK_MAX, min(clock, CLOCK_MAX)),
                signals,
            ]
        )


def read(items: list[Any]) -> KitCondition:
    """Read a note of that kind. Raises RemoteProtocolError where a figure is beyond its bounds."""
    match items[1:8]:
        case [bytes(status), str(system), cause, starts, throttled, clock, list(signals)] if (
            len(system) <= SYSTEM_MAX
            and (system.isprintable() or not system)
            and _is_within(cause, 0, 255)
            and _is_within(starts, 0, STARTS_MAX)
            and (throttled is None or _is_within(throttled, 0, 2**32 - 1))
            and (clock is None or _is_within(clock, -CLOCK_MAX, CLOCK_MAX))
            and len(signals) <= len(CHANNELS)
        ):
            return KitCondition(
                kit_status.decode(status),
                system,
                cause if cause < len(CAUSES) else UNKNOWN,
                starts,
                None if throttled is None else throttled & _KNOWN_BITS,
                clock,
                dict(map(_signal, signals)),
            )
    raise RemoteProtocolError("a kit's condition is damaged, or beyond its bounds")


def throttling(bits: int) -> tuple[list[str], list[str]]:
    """Return what holds now, and what held since the start, in the words of THROTTLING."""
    now = [words for bit, words in THROTTLING.items() if bits & bit]
    before = [words for bit, words in THROTTLING.items() if bits >> SINCE_BOOT & bit]
    return now, before


def _is_within(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _signal(row: Any) -> tuple[str, list[int | None]]:
    match row:
        case [str(channel), bytes(nibbles)] if channel in CHANNELS and 2 * len(nibbles) == HOURS:
            hours = list(_bars(nibbles))
            if all(bars is None or bars <= BARS for bars in hours):
                return channel, hours
    raise RemoteProtocolError("a kit's signal by the hour is damaged")


def _nibbles(hours: Sequence[int | None]) -> bytes:
    nibbles = [_NOTHING if bars is None else min(bars, BARS) for bars in hours]
    return bytes(high << 4 | low for high, low in zip(nibbles[::2], nibbles[1::2], strict=True))


def _bars(nibbles: bytes) -> Iterator[int | None]:
    for byte in nibbles:
        for bars in (byte >> 4, byte & 15):
            yield None if bars == _NOTHING else bars
