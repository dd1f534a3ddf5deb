"""Runs work in a folder as the folder's owner, if the program was started by root.

A file in another user's folder can be a link, a FIFO, or a rollback journal that makes SQLite
delete a file elsewhere. So root opens no file in such a folder. Instead, root finds the folder's
owner over a path that this owner cannot have changed, and continues as the owner.
`switch_to_owner_of` does this until the program ends, and `run_as_owner` in a child process that
returns a result.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import select
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fieldagent.system.lazy_named_tuple import NamedTuple

T = TypeVar("T")

DEADLINE_S = 900.0
"""Longest time in seconds for a child process, which may copy a long journal on a slow memory
card."""
GRACE_S = 5.0
"""Additional seconds after which a child process that blocks its alarm is abandoned."""
MOST_BYTES = 1 << 20
"""Maximum bytes of a child's result, because another user may have made the data that root
reads."""
LINKS_MAX = 40
"""Maximum number of links, as in the kernel (path_resolution(7))."""
SERIAL_PORTS = "dialout"
"""Group that the agent's unit adds (fieldagent.service), for access to modems."""
_ONLY_NAME = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFolder(OSError):
    """Root refuses to work in the folder. The message contains the reason and the fix."""


class Owner(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def switch_to_owner_of(folder: Path) -> None:
    """Continue as the owner of `folder`, if root has started this program. Do nothing if another
    user has started the program, or if the folder belongs to root. Raises OSError.
    """
    if os.geteuid() == 0 and (owner := find_owner(folder)).uid:
        _switch_to_owner(owner)


def run_as_owner(folder: Path, work: Callable[[], T], *, limit_s: float = DEADLINE_S) -> T:
    """Run `work` as the owner of `folder`, and return its result. The result must be
    JSON-serialisable.

    Raises OSError if the child process fails, or if `work` raises it.
    """
    if os.geteuid() != 0 or not (owner := find_owner(folder)).uid:
        return work()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        _run_and_exit(owner, work, writes, limit_s)
    os.close(writes)
    try:
        answer = _read(reads, time.monotonic() + limit_s + GRACE_S)
    finally:
        os.close(reads)
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    result: T = _read_result(answer, folder)
    return result


def _read(pipe: int, deadline: float) -> bytes:
    answer = b""
    while len(answer) <= MOST_BYTES:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise OSError("an action as the owner of a folder has not ended in time")
        if not (piece := os.read(pipe, 65_536)):
            break
        answer += piece
    return answer


def _read_result(answer: bytes, folder: Path) -> Any:
    try:
        outcome = json.loads(answer)
        if "error" in outcome:
            raise OSError(*outcome["error"])
        return outcome["result"]
    except (ValueError, TypeError, KeyError):
        raise OSError(f"{folder}: an action as its owner has failed") from None


def _run_and_exit(owner: Owner, work: Callable[[], Any], pipe: int, limit_s: float) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        _close_all_but(pipe)
        try:
            _switch_to_owner(owner)
            outcome = {"result": work()}
        except OSError as error:
            arguments = (error.errno, error.strerror) if error.errno else (str(error),)
            file_names = (str(error.filename),) if error.errno and error.filename else ()
            outcome = {"error": [*arguments, *file_names]}
        with open(pipe, "wb", closefd=False) as stream:
            stream.write(json.dumps(outcome).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _close_all_but(pipe: int) -> None:
    """Close all files that root has opened, except the pipe and the program itself, which a zipapp
    keeps open for later imports (`build/program.py`).
    """
    program = (re.match(r"/proc/self/fd/(\d+)", each) for each in sys.path)
    first = 3
    for kept_descriptor in sorted({pipe, *(int(match[1]) for match in program if match)}):
        os.closerange(first, kept_descriptor)
        first = kept_descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _switch_to_owner(owner: Owner) -> None:
    os.setgroups(owner.groups)
    os.setresgid(owner.gid, owner.gid, owner.gid)
    os.setresuid(owner.uid, owner.uid, owner.uid)


def find_owner(folder: Path) -> Owner:
    """Return the owner of `folder`. If the folder is missing, return the owner of its last existing
    parent.

    Each folder on the path must belong to root or the owner, and root's folders must not be
    writable by other users. Only links that root made are followed. Raises UnsafeFolder, OSError.
    """
    remaining_names = [*reversed(folder.absolute().parts[1:])]
    links = 0
    here, path = os.open("/", _ONLY_NAME), Path("/")
    try:
        status = os.fstat(here)
        while remaining_names:
            name = remaining_names.pop()
            _require_ours(status, path, last=False)
            try:
                next_folder = os.open(name, _ONLY_NAME, dir_fd=here)
            except FileNotFoundError:
                break
            before, entry = status, os.fstat(next_folder)
            _require_one_owner(before, entry, path / name)
            if stat.S_ISLNK(entry.st_mode):
                os.close(next_folder)
                if (links := links + 1) > LINKS_MAX:
                    raise UnsafeFolder(f"{folder}: there are too many links on the way to it")
                target = Path(os.readlink(name, dir_fd=here))
                remaining_names += reversed(target.parts[target.is_absolute() :])
                if not target.is_absolute():
                    continue
                next_folder, path = os.open("/", _ONLY_NAME), Path()
                name = "/"
                entry = os.fstat(next_folder)
            os.close(here)
            here, path, status = next_folder, path / name, entry
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(f"{path} is not a folder")
        _require_ours(status, path, last=True)
    finally:
        os.close(here)
    return _get_owner(status, path)


def _require_ours(status: os.stat_result, place: Path, *, last: bool) -> None:
    """Check that only root can write to a folder of root. A folder within the path (not `last`) may
    instead have a sticky bit.
    """
    mode = status.st_mode
    writable = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and status.st_gid)
    if status.st_uid == 0 and writable and (last or not mode & stat.S_ISVTX):
        # A folder with a sticky bit, such as /tmp, is meant for all users.
        fix = "" if mode & stat.S_ISVTX else f"`chmod go-w {place}`, or "
        raise UnsafeFolder(
            f"{place} belongs to root, but others can write to it, so root does not use it;"
            f" {fix}name another one"
        )


def _require_one_owner(status: os.stat_result, entry: os.stat_result, place: Path) -> None:
    if status.st_uid not in (0, entry.st_uid):
        raise UnsafeFolder(
            f"{place} belongs to user {entry.st_uid}, in a folder of user {status.st_uid}: give it"
            " to that user (chown), or name another place"
        )
    if stat.S_ISLNK(entry.st_mode) and entry.st_uid:
        raise UnsafeFolder(
            f"{place} is a symbolic link of user {entry.st_uid}, which root does not follow: name"
            " its target"
        )


def _get_owner(status: os.stat_result, place: Path) -> Owner:
    uid = status.st_uid
    if uid == 0:
        return Owner(0, 0)
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        if status.st_gid == 0:
            raise UnsafeFolder(
                f"{place} belongs to user {uid}, whom this system does not know, and to root's"
                f" group: `chown {uid}:{uid} {place}`"
            ) from None
        return Owner(uid, status.st_gid)
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    with suppress(KeyError):
        groups.append(grp.getgrnam(SERIAL_PORTS).gr_gid)
    return Owner(uid, account.pw_gid, tuple(sorted({*groups} - {0})))
