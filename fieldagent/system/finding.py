"""A finding of `fieldagent check`."""

from __future__ import annotations

from fieldagent.system.lazy_named_tuple import NamedTuple


class Finding(NamedTuple):
    good: bool
    text: str
    """Text for people: the state and, if it is bad, the fix."""
