"""Which PIN a SIM has refused: three wrong ones lock it, and an agent starts again and again."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from fieldagent.system.folder import put_file
from fieldagent.system.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PinMemory:
    value: str
    """As the settings have it; empty where none is set."""
    file: Path

    def was_refused(self) -> bool:
        """Return whether this value was tried before and not taken."""
        with suppress(OSError):
            return self.file.read_bytes() == self._print()
        return False

    def note_tried(self) -> None:
        """On disk before the SIM hears it: a power cut does not make a second try. Raises
        OSError."""
        put_file(self.file, self._print())

    def note_taken(self) -> None:
        with suppress(OSError):
            self.file.unlink()

    def _print(self) -> bytes:
        """No secret to who reads the file: ten thousand PINs are soon tried, but it says no more
        than the settings beside it."""
        return hashlib.sha256(f"fieldagent PIN {self.value}".encode()).hexdigest().encode()
