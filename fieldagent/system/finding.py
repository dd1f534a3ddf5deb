"""What `fieldagent check` finds."""

from __future__ import annotations

from fieldagent.system.lazy_named_tuple import NamedTuple


class Finding(NamedTuple):
    good: bool
    text: str
    """For people: what is so; where it is bad, what to do about it."""
