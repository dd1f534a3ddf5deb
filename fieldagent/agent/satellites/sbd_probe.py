"""What an SBD modem is asked, so that its answer shows that it is there."""

from __future__ import annotations

from fieldagent.agent.channels.line_speed import Probe


def _answers_at(said: bytes) -> bool:
    # In words, or as V0 has it: its settings may be stored.
    return b"OK" in said or said.replace(b"AT\r", b"").strip(b"\r\n\0") == b"0"


SBD = Probe(
    "sbd", (19_200, 115_200, 9_600, 38_400, 57_600, 4_800, 2_400, 1_200), b"AT\r", _answers_at
)
"""Those that +IPR sets, the likelier first."""
