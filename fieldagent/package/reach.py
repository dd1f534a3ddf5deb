"""Stages of a Package at one addressee, with the same words on every screen. No stage says more
than is known."""

from __future__ import annotations

import re
from enum import IntEnum


class Stage(IntEnum):
    """Stages by their number on air. A higher number is not always a later stage."""

    STORED = 0
    """The person's kit has it on its disk."""
    PROGRAMS = 1
    """A program of the person has accepted it: the kit's hook, or its page."""
    READ = 2
    """A person has confirmed reading it."""
    HANDED_OVER = 3
    """A mail or SMS service has accepted it, which does not prove its arrival."""
    NOBODY = 4
    """The name or address is unknown or cannot be reached; the text contains the reason."""
    RADIO = 5
    """Their own radio has confirmed it: no person has, by that. If a text is longer than a radio
    takes, this begins with the part that is there, such as `1/4`."""


LADDER = (Stage.NOBODY, Stage.STORED, Stage.RADIO, Stage.PROGRAMS, Stage.HANDED_OVER, Stage.READ)
"""Stages in order, the lowest first. Times alone give no order, because kits' clocks differ."""


def in_words(stage: Stage, who: str, text: str = "") -> str:
    """Return the stage as a text for people. `who` is the addressee, `text` is a person's name, a
    service or a reason.
    """
    if stage is Stage.READ and not text:
        # The kit's current user has read it, and has given no name.
        return f"read at {who}'s kit"
    if stage is Stage.READ:
        return f"read by {text}" if text == who else f"read by {text}, at {who}'s kit"
    words = {
        Stage.STORED: f"on {who}'s kit",
        Stage.PROGRAMS: f"with {who}'s programs",
        Stage.HANDED_OVER: f"handed over to {text}, for {who}",
        Stage.NOBODY: f"{who} cannot be reached: {text}",
        Stage.RADIO: f"{_part_of(text)}on {who}'s radio",
    }
    return words[stage]


def _part_of(text: str) -> str:
    match = re.match(r"([0-9]{1,3})/([0-9]{1,3})(?: |$)", text)
    return f"part {match[1]} of {match[2]} " if match else ""
