"""Writes and renames files so that the changes survive a power cut, and makes files and folders
that only their owner can access, because they contain keys and messages. The umask has no effect.
"""

from __future__ import annotations

import grp
import os
import struct
from contextlib import suppress
from pathlib import Path
from zlib import crc32

SLOT_BYTES = 4096
"""Size of each of a file's two slots in bytes. The size is one page, so that each slot is written
separately."""
_SLOT_HEAD = struct.Struct(">QII")
"""Number of the write, bytes of the content, CRC of both and the content."""
SLOT_MAX = SLOT_BYTES - _SLOT_HEAD.size


def replace_file(path: Path, content: bytes, *, mode: int = 0o600, group: str = "") -> None:
    """Write the file atomically: after a power cut, the folder has either the old file or the
    complete new file. Raises OSError.

    The file gets the group `group` if this group exists and the process is allowed to set it.
    """
    temporary = path.with_name(f"{path.name}.new")
    # Remove an old temporary file without opening it. A power cut or another user may have left it.
    with suppress(FileNotFoundError):
        temporary.unlink()
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(content)
        if group:
            with suppress(KeyError, PermissionError):
                os.fchown(stream.fileno(), -1, grp.getgrnam(group).gr_gid)
        if mode != 0o600 or os.fstat(stream.fileno()).st_mode & mode != mode:
            # The umask may have removed bits. Set the mode only then, because a boot partition has
            # no modes and refuses to set them.
            os.fchmod(stream.fileno(), mode)
        stream.flush()
        os.fsync(stream.fileno())
        _rename(temporary, path, stream.fileno())


def rename_file(path: Path, target: Path) -> None:
    """Rename a file. Even after a power cut, it has its new name and its complete content. Raises
    OSError.
    """
    with path.open("rb") as file:
        _rename(path, target, file.fileno())


def _rename(path: Path, target: Path, file: int) -> None:
    path.rename(target)
    # In FAT, the entry with the name also contains the place of the contents. Syncing the file
    # writes this entry, syncing the folder does not. Without this sync, the new name on disk may
    # belong to an empty file (fs/fat/namei_vfat.c).
    os.fsync(file)
    sync_folder(target.parent)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that created, renamed or removed names are on disk. Raises OSError."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_in_slots(path: Path, content: bytes) -> None:
    """Write the content into the older of a file's two slots. The content is on disk when the
    function returns. After an earlier power cut, the file has either the new or the old content.
    Usually no file is created or renamed, so that the function writes only a fifth of the data that
    `replace_file` writes. It is meant for hourly writes. If the file is missing or has another
    size, it is created. Raises OSError, or ValueError for more than SLOT_MAX bytes.
    """
    if len(content) > SLOT_MAX:
        raise ValueError(f"{len(content)} bytes are more than the {SLOT_MAX} of a slot")
    try:
        slots = path.read_bytes()
    except FileNotFoundError:
        slots = b""
    newest = max((number for number, _ in _read_complete_slots(slots)), default=-1)
    slot, slot_offset = _make_slot(newest + 1, content), (newest + 1) % 2 * SLOT_BYTES
    if len(slots) != 2 * SLOT_BYTES:
        replace_file(path, bytes(slot_offset) + slot + bytes(SLOT_BYTES - slot_offset))
        return
    with path.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), slot, slot_offset)
        os.fdatasync(file.fileno())


def read_slots(path: Path) -> bytes:
    """Return the newest complete content. Raises OSError, or ValueError if there is none."""
    return max(_read_complete_slots(path.read_bytes()))[1]


def _make_slot(number: int, content: bytes) -> bytes:
    check = crc32(content, crc32(_SLOT_HEAD.pack(number, len(content), 0)))
    return (_SLOT_HEAD.pack(number, len(content), check) + content).ljust(SLOT_BYTES, b"\0")


def _read_complete_slots(slots: bytes) -> list[tuple[int, bytes]]:
    """Return the number of the write and the content of each complete slot."""
    entries = []
    for start in (0, SLOT_BYTES):
        slot = slots[start : start + SLOT_BYTES]
        if len(slot) == SLOT_BYTES:
            number, size, _ = _SLOT_HEAD.unpack_from(slot)
            content = slot[_SLOT_HEAD.size :][:size]
            if slot == _make_slot(number, content):
                entries.append((number, content))
    return entries


_FILE, _FOLDER = 0o600, 0o700
_OTHERS_MODE = 0o007


def make_private_folder(path: Path) -> None:
    """Make the folder and its missing parents, with access for their owner only. Existing folders
    stay unchanged. Raises OSError, also if `path` is not a folder.
    """
    for each in (*reversed(path.parents), path):
        if not each.exists():
            with suppress(FileExistsError):
                each.mkdir(_FOLDER)
                each.chmod(_FOLDER)
                sync_folder(each.parent)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a folder")


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner can access. If the file already exists, remove the
    access of all users except its owner and group.
    """
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _FILE)
    except FileExistsError:
        _close_to_others(path)
        return
    try:
        os.fchmod(file, _FILE)
    finally:
        os.close(file)


def _close_to_others(path: Path) -> None:
    mode = path.stat().st_mode & 0o777
    if mode & _OTHERS_MODE:
        with suppress(PermissionError):  # Another user owns the file and decides about its mode.
            path.chmod(mode & ~_OTHERS_MODE)
