"""Files and names in a folder that outlive a power cut."""

from __future__ import annotations

import grp
import os
from contextlib import suppress
from pathlib import Path


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
