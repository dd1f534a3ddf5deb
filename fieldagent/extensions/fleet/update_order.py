"""Request for another program or system on this kit."""

from __future__ import annotations

from pathlib import Path

from fieldagent.system.lazy_named_tuple import NamedTuple


class UpdateOrder(NamedTuple):
    what: str
    """File, address, or version of Debian packages. If empty, the settings or apt decide."""
    program: Path
    """Program file to replace."""
    settings: Path
    key: Path
    """File of the keys that are trusted for programs."""
    older: bool
    """True: an older or equal version is allowed."""
    minutes: float
    """Minutes within which everything must work again."""
    steady: float
    """Seconds that the agent must have run without a restart."""
