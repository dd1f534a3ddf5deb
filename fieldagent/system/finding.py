"""What `fieldagent check` finds."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    good: bool
    text: str
    """For people: what is so; where it is bad, what to do about it."""
