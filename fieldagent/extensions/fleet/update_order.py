"""Request to install another program or system on this kit."""

from __future__ import annotations

from pathlib import Path

from fieldagent.system.lazy_named_tuple import NamedTuple


class UpdateOrder(NamedTuple):
    what: str
    """File, URL, or version of Debian packages. If it is empty, the settings or apt determine the
    program."""
    program: Path
    """Program file to replace."""
    settings: Path
    key: Path
    """File with the keys that are trusted for programs."""
    older: bool
    """True if an older or equal version is allowed."""
    minutes: float
    """Minutes within which all channels must work again."""
    steady: float
    """Seconds for which the agent must have run without a restart."""
