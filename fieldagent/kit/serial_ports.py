"""The serial ports of this machine, each by the name that stays the same after a restart."""

from __future__ import annotations

from pathlib import Path

DEV, TTY = Path("/dev"), Path("/sys/class/tty")
PATTERNS = ("serial/by-id/*", "ttyUSB*", "ttyACM*", "ttyAMA*", "ttyS*", "rfcomm*")
"""The first names a device by who made it and its number; the others by the order of plugging."""


def serial_ports(dev: Path = DEV, tty: Path = TTY) -> list[str]:
    """Return one name of each port that has hardware behind it."""
    names: dict[Path, str] = {}
    for pattern in PATTERNS:
        for path in sorted(dev.glob(pattern)):
            if _has_hardware(path, tty):
                names.setdefault(path.resolve(), str(path))
    return list(names.values())


def _has_hardware(path: Path, tty: Path) -> bool:
    """Linux makes ports of the PC's kind whether or not there is a chip for them: type 0."""
    if not path.name.startswith("ttyS"):
        return True
    try:
        return (tty / path.name / "type").read_text().strip() != "0"
    except OSError:
        return False


def lasting_name(place: str, dev: Path = DEV) -> str:
    """Return the name by which a port that somebody names is found after a restart, too: what they
    named, where it has no better one."""
    if "://" in place or Path(place).is_symlink():
        return place
    real = Path(place).resolve()
    better = [each for each in sorted(dev.glob(PATTERNS[0])) if each.resolve() == real]
    return str(better[0]) if better else place


def is_same_port(one: str, other: str) -> bool:
    """Return whether both name one port, also by a symbolic link; of addresses, whether they are
    written alike."""
    if "://" in one or "://" in other:
        return one == other
    return Path(one).resolve() == Path(other).resolve()
