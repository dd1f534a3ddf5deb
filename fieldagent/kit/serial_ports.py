"""Lists the serial ports of this machine, each with a name that is the same after a restart."""

from __future__ import annotations

from pathlib import Path

DEV, TTY = Path("/dev"), Path("/sys/class/tty")
PATTERNS = ("serial/by-id/*", "ttyUSB*", "ttyACM*", "ttyAMA*", "ttyS*", "rfcomm*")
"""Patterns of names. A name of the first pattern contains the device's maker and number; the other
names depend on the order in which devices were plugged in."""


def list_serial_ports(dev: Path = DEV, tty: Path = TTY) -> list[str]:
    """Return one path for each serial port with hardware, a lasting one if possible."""
    names: dict[Path, str] = {}
    for pattern in PATTERNS:
        for path in sorted(dev.glob(pattern)):
            if _has_hardware(path, tty):
                names.setdefault(path.resolve(), str(path))
    return list(names.values())


def _has_hardware(path: Path, tty: Path) -> bool:
    """Return True if the port has hardware. Linux creates PC ports even without a chip; these have
    type 0.
    """
    if not path.name.startswith("ttyS"):
        return True
    try:
        return (tty / path.name / "type").read_text().strip() != "0"
    except OSError:
        return False


def find_lasting_name(place: str, dev: Path = DEV) -> str:
    """Return a name of the port that is the same after a restart, or `place` itself if there is
    none.
    """
    if "://" in place or Path(place).is_symlink():
        return place
    real = Path(place).resolve()
    better = [each for each in sorted(dev.glob(PATTERNS[0])) if each.resolve() == real]
    return str(better[0]) if better else place


def is_same_port(first_port: str, second_port: str) -> bool:
    """Return True if both names mean the same port, also through a symbolic link. Network addresses
    must be equal as text.
    """
    if "://" in first_port or "://" in second_port:
        return first_port == second_port
    return Path(first_port).resolve() == Path(second_port).resolve()
