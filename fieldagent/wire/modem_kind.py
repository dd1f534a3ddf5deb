"""Properties of a kind of satellite modem. The hub needs them for its MT messages."""

from __future__ import annotations

from collections.abc import Callable

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.sbd import MT_BYTES


def _compute_sum(body: bytes) -> int:
    return sum(body) & 0xFFFF


class ModemKind(NamedTuple):
    """Kind of satellite modem. The default values are those of SBD."""

    mt_bytes: int = MT_BYTES
    """Maximum bytes of one message to the modem."""
    by_bytes: bool = False
    """True if the operator bills bytes instead of credits."""
    keeps_copies: bool = True
    """True if the modem repeats a message that its host has not read."""
    guard: Callable[[bytes], int] = _compute_sum
    """Returns the 16-bit checksum that the modem appends to a message for its host."""


SBD = ModemKind()
