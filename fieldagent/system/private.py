"""Makes files and folders that only their owner can access, because they contain keys and messages.
The umask has no effect.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fieldagent.system.folder import sync_folder

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
