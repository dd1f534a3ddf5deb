"""Files and names in a folder that outlive a power cut."""

from __future__ import annotations

import grp
import os
import struct
from contextlib import suppress
from pathlib import Path
from zlib import crc32

SLOT = 4096
"""Bytes of each of the two slots of a file: a page, which is written alone."""
_SLOT_HEAD = struct.Struct(">QII")
"""Number of the write, bytes of the content, CRC of both and the content."""
SLOT_MAX = SLOT - _SLOT_HEAD.size


def put_file(path: Path, content: bytes, *, mode: int = 0o600, group: str = "") -> None:
    """Put the file there so that there is what was before, or all of this. Raises OSError.

    `group` gets it where there is such a group, and who calls may give it away.
    """
    made = path.with_name(f"{path.name}.new")
    # What a power cut or somebody else has left there: it is removed, and never opened.
    with suppress(FileNotFoundError):
        made.unlink()
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
        if group:
            with suppress(KeyError, PermissionError):
                os.fchown(stream.fileno(), -1, grp.getgrnam(group).gr_gid)
        if mode != 0o600 or os.fstat(stream.fileno()).st_mode & mode != mode:
            # Not asked for in vain: a boot partition knows no modes, and refuses others. The umask
            # may have taken some away.
            os.fchmod(stream.fileno(), mode)
        stream.flush()
        os.fsync(stream.fileno())
        _rename(made, path, stream.fileno())


def rename_file(path: Path, target: Path) -> None:
    """Rename a file: it is found under its new name, whole, also after a power cut. Raises
    OSError."""
    with path.open("rb") as file:
        _rename(path, target, file.fileno())


def _rename(path: Path, target: Path, file: int) -> None:
    path.rename(target)
    # FAT keeps with the name where the content lies, and writes that for the file and not for the
    # folder: without this the new name may be on the disk, of an empty file (fs/fat/namei_vfat.c).
    os.fsync(file)
    sync_folder(target.parent)


def sync_folder(path: Path) -> None:
    """See that what was made, renamed or removed in it is on its disk. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def put_in_slots(path: Path, content: bytes) -> None:
    """Write it into the older of the two slots of a file, on disk once this returns: a power cut
    leaves it or what was before. Nothing is made or renamed, so it writes a fifth of what
    `put_file` does: that is for what is written by the hour. Raises OSError, and ValueError for
    more than SLOT_MAX bytes."""
    if len(content) > SLOT_MAX:
        raise ValueError(f"{len(content)} bytes are more than the {SLOT_MAX} of a slot")
    try:
        slots = path.read_bytes()
    except FileNotFoundError:
        slots = b""
    newest = max((number for number, _ in _whole(slots)), default=-1)
    slot, place = _slot(newest + 1, content), (newest + 1) % 2 * SLOT
    if len(slots) != 2 * SLOT:
        put_file(path, bytes(place) + slot + bytes(SLOT - place))
        return
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), slot, place)
        os.fdatasync(file.fileno())


def read_slots(path: Path) -> bytes:
    """Return what was put in last, and is whole. Raises OSError, and ValueError where nothing
    is."""
    return max(_whole(path.read_bytes()))[1]


def _slot(number: int, content: bytes) -> bytes:
    check = crc32(content, crc32(_SLOT_HEAD.pack(number, len(content), 0)))
    return (_SLOT_HEAD.pack(number, len(content), check) + content).ljust(SLOT, b"\0")


def _whole(slots: bytes) -> list[tuple[int, bytes]]:
    """The slots that are, with their numbers."""
    entries = []
    for begin in (0, SLOT):
        slot = slots[begin : begin + SLOT]
        if len(slot) == SLOT:
            number, size, _ = _SLOT_HEAD.unpack_from(slot)
            content = slot[_SLOT_HEAD.size :][:size]
            if slot == _slot(number, content):
                entries.append((number, content))
    return entries
