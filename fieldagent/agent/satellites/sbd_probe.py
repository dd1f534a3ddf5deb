"""Question that shows if an SBD modem is present."""

from __future__ import annotations

from fieldagent.agent.channels.line_speed import Probe


def _answers_at(said: bytes) -> bool:
    # The modem may answer with a word or, with a stored V0 setting, with a digit.
    return b"OK" in said or said.replace(b"AT\r", b"").strip(b"\r\n\0") == b"0"


SBD = Probe(
    "sbd", (19_200, 115_200, 9_600, 38_400, 57_600, 4_800, 2_400, 1_200), b"AT\r", _answers_at
)
"""The rates that +IPR can set, the most likely first."""
