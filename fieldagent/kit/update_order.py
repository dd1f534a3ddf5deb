"""What somebody asks for who wants another program, or system, on this kit."""

from __future__ import annotations

from pathlib import Path

from fieldagent.system.lazy_named_tuple import NamedTuple


class UpdateOrder(NamedTuple):
    what: str
    """A file, an address, or a version of Debian packages; empty for what the settings, or apt,
    name."""
    program: Path
    """Which is replaced."""
    settings: Path
    key: Path
    """File of the keys that are trusted with programs."""
    older: bool
    """Also one that is no newer."""
    minutes: float
    """In which all must work again."""
    steady: float
    """Seconds that the agent must have run in one piece."""
