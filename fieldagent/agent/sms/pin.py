"""Which PIN a SIM has refused: three wrong ones lock it, and an agent starts again and again."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from fieldagent.system.folder import put_file
from fieldagent.system.lazy_dataclass import dataclass

WRONG = "the SIM has refused sms-pin: correct it; it is not tried again"
UNKNOWN = (
    "the SIM's answer to sms-pin was lost twice: switch its PIN off in a telephone, or set another;"
    " it is not tried again"
)
UNKNOWN_MAX = 2
"""Tries whose end nobody knows, as power failed or the modem went away: a third locks a SIM."""


@dataclass(frozen=True, slots=True)
class PinMemory:
    value: str
    """As the settings have it; empty where none is set."""
    file: Path

    def hindrance(self) -> str:
        """Return why this value is not tried any more, for people; empty where it may be."""
        tries = self._tries()
        if tries is None:
            return WRONG
        return UNKNOWN if tries >= UNKNOWN_MAX else ""

    def note_tried(self) -> None:
        """Count a try, on disk before the SIM hears it: what a power cut hides counts as a try.
        Raises OSError."""
        put_file(self.file, b"%s %d" % (self._print(), (self._tries() or 0) + 1))

    def note_refused(self) -> None:
        """Write down that the SIM has said that the PIN is wrong. Raises OSError."""
        put_file(self.file, self._print())

    def note_taken(self) -> None:
        """Note that the SIM took its PIN: the memory of trying it goes."""
        with suppress(OSError):
            self.file.unlink()

    def _tries(self) -> int | None:
        """Return how often it was tried with an unknown end; None where it was refused."""
        kept = b""
        with suppress(OSError):
            kept = self.file.read_bytes()
        mine, _, tries = kept.partition(b" ")
        if mine != self._print():
            return 0
        return int(tries) if tries.isdigit() else None

    def _print(self) -> bytes:
        """No secret to who reads the file: ten thousand PINs are soon tried, but it says no more
        than the settings beside it."""
        return hashlib.sha256(f"fieldagent PIN {self.value}".encode()).hexdigest().encode()
