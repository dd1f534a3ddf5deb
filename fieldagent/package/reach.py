"""How far a Package has come with one person: the stages of "who has it".

The words are the same on every screen, and none says more than is known.
"""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """By their number on air. A higher number is not always a later stage."""

    STORED = 0
    """Their kit has it on its disk."""
    PROGRAMS = 1
    """A program of theirs has taken it: the kit's hook, or its page."""
    READ = 2
    """A person says that they have read it."""
    HANDED_OVER = 3
    """A service that brings mail or SMS has taken it: nobody is known to have it by that."""
    NOBODY = 4
    """Nobody there has that name or address, or can be reached at it; the text says why."""
    RADIO = 5
    """Their own radio has confirmed it: no person has, by that."""


LADDER = (Stage.NOBODY, Stage.STORED, Stage.RADIO, Stage.PROGRAMS, Stage.HANDED_OVER, Stage.READ)
"""From the lowest: clocks of kits differ, and their times alone are no order."""


def in_words(stage: Stage, who: str, text: str = "") -> str:
    """Return the stage as a step for people; `who` has it, and `text` is a person's name, a service
    or a reason."""
    if stage is Stage.READ and not text:
        # Whoever has the kit in hand: nobody said who that is.
        return f"read at {who}'s kit"
    if stage is Stage.READ:
        return f"read by {text}" if text == who else f"read by {text}, at {who}'s kit"
    words = {
        Stage.STORED: f"on {who}'s kit",
        Stage.PROGRAMS: f"with {who}'s programs",
        Stage.HANDED_OVER: f"handed over to {text}, for {who}",
        Stage.NOBODY: f"{who} cannot be reached: {text}",
        Stage.RADIO: f"on {who}'s radio",
    }
    return words[stage]
