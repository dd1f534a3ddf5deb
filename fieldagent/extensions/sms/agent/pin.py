"""Stores that a SIM has refused a PIN. Three wrong PINs lock the SIM, and the agent can restart
often.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from fieldagent.system.folder import replace_file
from fieldagent.system.lazy_dataclass import dataclass

WRONG_PIN_REASON = "the SIM has refused sms-pin: correct it; it is not tried again"
UNKNOWN = (
    "the SIM's answer to sms-pin was lost twice: switch its PIN off in a telephone, or set another;"
    " it is not tried again"
)
UNKNOWN_MAX = 2
"""Largest number of attempts with an unknown result, for example after a power failure or the loss
of the modem. A third wrong attempt would lock the SIM."""


@dataclass(frozen=True, slots=True)
class PinMemory:
    value: str
    """PIN in the settings; empty if no PIN is set."""
    file: Path

    def describe_hindrance(self) -> str:
        """Return the reason, for people, why the agent does not try this PIN any more. The text is
        empty if the agent may try it.
        """
        tries = self._count_tries()
        if tries is None:
            return WRONG_PIN_REASON
        return UNKNOWN if tries >= UNKNOWN_MAX else ""

    def record_attempt(self) -> None:
        """Record an attempt on disk before the SIM receives the PIN. So the attempt is counted even
        if power fails. Raises OSError.
        """
        replace_file(self.file, b"%s %d" % (self._compute_digest(), (self._count_tries() or 0) + 1))

    def record_refusal(self) -> None:
        """Record on disk that the SIM has refused the PIN. Raises OSError."""
        replace_file(self.file, self._compute_digest())

    def clear_attempts(self) -> None:
        """Delete the record of attempts, because the SIM has accepted the PIN."""
        with suppress(OSError):
            self.file.unlink()

    def _count_tries(self) -> int | None:
        """Return the number of attempts with an unknown result, or None if the SIM has refused the
        PIN.
        """
        stored = b""
        with suppress(OSError):
            stored = self.file.read_bytes()
        stored_pin, _, tries = stored.partition(b" ")
        if stored_pin != self._compute_digest():
            return 0
        return int(tries) if tries.isdigit() else None

    def _compute_digest(self) -> bytes:
        """Return a digest of the PIN. It does not hide the PIN, because there are few possible
        PINs. This is acceptable, because the settings file in the same folder contains the PIN
        anyway.
        """
        return hashlib.sha256(f"fieldagent PIN {self.value}".encode()).hexdigest().encode()
