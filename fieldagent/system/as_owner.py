"""Works as the user whose folder it is, where root is asked to do something in it.

What lies in another user's folder can be anything that they have laid there: a link, a FIFO, a
rollback journal by which SQLite deletes a file elsewhere. So root opens nothing in it. It finds out
whose the folder is, on a way that this user cannot have changed, and goes on as them:
`become_owner_of` for good, `as_owner` in a child that hands a result back.
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

DEADLINE = 900.0
"""Seconds in which a child is to have ended: it may copy a long journal on a slow card."""
GRACE = 5.0
"""Seconds beyond it until a child that holds its alarm back is left to itself."""
MOST_BYTES = 1 << 20
"""Of what a child hands back: root reads what another user may have made."""
LINKS_MAX = 40
"""As the kernel has it (path_resolution(7))."""
SERIAL_PORTS = "dialout"
"""The group that the agent's unit adds (fieldagent.service): it opens modems by it."""
_ONLY_NAME = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFolder(OSError):
    """Root does nothing there; the text says why, and what to do."""


class Owner(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def become_owner_of(folder: Path) -> None:
    """Be from here on whoever `folder` belongs to, where root has started this program; without
    effect for everybody else, and in a folder of root's. Raises OSError."""
    if os.geteuid() == 0 and (owner := owner_of(folder)).uid:
        _become(owner)


def as_owner(folder: Path, work: Callable[[], T], *, within: float = DEADLINE) -> T:
    """Return what `work` does, which is something that JSON knows, done as the owner of `folder`.

    Raises OSError, and what `work` raises is one.
    """
    if os.geteuid() != 0 or not (owner := owner_of(folder)).uid:
        return work()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        _work_and_exit(owner, work, writes, within)
    os.close(writes)
    try:
        answer = _read(reads, time.monotonic() + within + GRACE)
    finally:
        os.close(reads)
        with suppress(OSError):  # a unit's root may not, and the child's own alarm does
            os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    result: T = _result(answer, folder)
    return result


def _read(pipe: int, until: float) -> bytes:
    answer = b""
    while len(answer) <= MOST_BYTES:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise OSError("what was to be done as the owner of a folder has not ended in time")
        if not (piece := os.read(pipe, 65_536)):
            break
        answer += piece
    return answer


def _result(answer: bytes, folder: Path) -> Any:
    try:
        outcome = json.loads(answer)
        if "error" in outcome:
            raise OSError(*outcome["error"])
        return outcome["result"]
    except (ValueError, TypeError, KeyError):
        raise OSError(f"{folder}: what was to be done there as its owner has failed") from None


def _work_and_exit(owner: Owner, work: Callable[[], Any], pipe: int, within: float) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, within)
        _close_all_but(pipe)
        try:
            _become(owner)
            outcome = {"result": work()}
        except OSError as error:
            arguments = (error.errno, error.strerror) if error.errno else (str(error),)
            named = (str(error.filename),) if error.errno and error.filename else ()
            outcome = {"error": [*arguments, *named]}
        with open(pipe, "wb", closefd=False) as stream:
            stream.write(json.dumps(outcome).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _close_all_but(pipe: int) -> None:
    """Nothing else that root has opened goes along, but the program itself: a zipapp holds itself
    open, to import what it has not yet (`build/program.py`)."""
    program = (re.match(r"/proc/self/fd/(\d+)", each) for each in sys.path)
    begin = 3
    for kept in sorted({pipe, *(int(match[1]) for match in program if match)}):
        os.closerange(begin, kept)
        begin = kept + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))


def _become(owner: Owner) -> None:
    os.setgroups(owner.groups)
    os.setresgid(owner.gid, owner.gid, owner.gid)
    os.setresuid(owner.uid, owner.uid, owner.uid)


def owner_of(folder: Path) -> Owner:
    """Return whose `folder` is; of one that is not there, whose the last on the way to it is.

    Every folder on the way is root's or the owner's, none of root's can be changed by others, and
    no link is followed that root has not laid. Raises UnsafeFolder, OSError.
    """
    way = [*reversed(folder.absolute().parts[1:])]
    links = 0
    here, place = os.open("/", _ONLY_NAME), Path("/")
    try:
        status = os.fstat(here)
        while way:
            name = way.pop()
            _require_ours(status, place, last=False)
            try:
                there = os.open(name, _ONLY_NAME, dir_fd=here)
            except FileNotFoundError:
                break
            before, entry = status, os.fstat(there)
            _require_one_owner(before, entry, place / name)
            if stat.S_ISLNK(entry.st_mode):
                os.close(there)
                if (links := links + 1) > LINKS_MAX:
                    raise UnsafeFolder(f"{folder}: there are too many links on the way to it")
                target = Path(os.readlink(name, dir_fd=here))
                way += reversed(target.parts[target.is_absolute() :])
                if not target.is_absolute():
                    continue
                there, place = os.open("/", _ONLY_NAME), Path()
                name = "/"
                entry = os.fstat(there)
            os.close(here)
            here, place, status = there, place / name, entry
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(f"{place} is no folder")
        _require_ours(status, place, last=True)
    finally:
        os.close(here)
    return _owner(status, place)


def _require_ours(status: os.stat_result, place: Path, *, last: bool) -> None:
    """A folder of root's holds what root has put there: nobody else can. On the way to another one
    that may be so by its sticky bit."""
    mode = status.st_mode
    writable = mode & stat.S_IWOTH or (mode & stat.S_IWGRP and status.st_gid)
    if status.st_uid == 0 and writable and (last or not mode & stat.S_ISVTX):
        raise UnsafeFolder(
            f"{place} is root's and can be written by others: root works in no such folder;"
            f" `chmod go-w {place}`, or name another one"
        )


def _require_one_owner(before: os.stat_result, entry: os.stat_result, place: Path) -> None:
    if before.st_uid not in (0, entry.st_uid):
        raise UnsafeFolder(
            f"{place} belongs to user {entry.st_uid}, in a folder of user {before.st_uid}: give it"
            " to that user (chown), or name another place"
        )
    if stat.S_ISLNK(entry.st_mode) and entry.st_uid:
        raise UnsafeFolder(
            f"{place} is a link that user {entry.st_uid} has laid, which root does not follow:"
            " name the place that it leads to"
        )


def _owner(status: os.stat_result, place: Path) -> Owner:
    uid = status.st_uid
    if uid == 0:
        return Owner(0, 0)
    try:
        known = pwd.getpwuid(uid)
    except KeyError:
        if status.st_gid == 0:
            raise UnsafeFolder(
                f"{place} belongs to user {uid}, whom this system does not know, and to root's"
                f" group: `chown {uid}:{uid} {place}`"
            ) from None
        return Owner(uid, status.st_gid)
    groups = os.getgrouplist(known.pw_name, known.pw_gid)
    with suppress(KeyError):
        groups.append(grp.getgrnam(SERIAL_PORTS).gr_gid)
    return Owner(uid, known.pw_gid, tuple(sorted({*groups} - {0})))
