"""Starts our programs from a process that has already imported their modules.

A start takes half a second of processor time, almost all of it for imports, and tests start agents,
hubs and simulators thousands of times. The server of each test process has imported everything. A
fork of it is a normal program with its own arguments, environment, folder, memory and signals. It
becomes a child of the test process, which is the next subreaper (prctl(2)) after the process
between the two has ended.

Programs whose start differs (another interpreter or command, a preloaded library, a variable that
Python reads) start in the usual way. So do commands that end by themselves, and all programs with
`--cold`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import BufferedReader, FileIO, TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn, TextIO

import fieldagent
from tests import leftovers

MODULE = [sys.executable, "-m", "fieldagent"]
COLD = ["env", *MODULE]
"""A command that runs the program but is never forked."""
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC_")
"""Prefixes of variables that the interpreter, its libraries and the linker read before the program
can."""
MOST = 1 << 20
"""Maximum bytes of one request to the fork server."""
LONGEST = 4096
"""Maximum bytes of the command line that other processes see for a forked program."""


class Server:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self._environment = _read_at_start(environment)
        leftovers.adopt_orphans()
        with theirs:
            name = str(theirs.fileno())
            command = [sys.executable, "-m", "tests.fork_server", name, " " * LONGEST]
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        leftovers.SPARED.add(self._process.pid)
        self._call = ours
        self._turn = threading.Lock()

    def starts(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Return True if a fork has the same effect as a normal process."""
        return command[:3] == MODULE and _read_at_start(environment) == self._environment

    def fork(
        self, words: Sequence[str], folder: str, environment: Mapping[str, str], files: list[int]
    ) -> int:
        """Fork a program and return its process id. `files` are its standard input, output and
        error.
        """
        call = json.dumps([words, folder, dict(environment)]).encode()
        with self._turn:
            socket.send_fds(self._call, [call], files)
            return int(self._call.recv(MOST))

    def close(self) -> None:
        self._call.close()
        self._process.kill()
        self._process.wait()
        leftovers.SPARED.discard(self._process.pid)


class Forked(subprocess.Popen[str]):
    """A Popen object for a process that `server` forks. `how` contains options of Popen, of which
    stdin, stdout and stderr are required.
    """

    def __init__(self, server: Server, command: list[str], **how: Any) -> None:
        self._server = server
        super().__init__(command, **how)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        """Replace fork and exec. Python 3.11 to 3.13 call this method with the same arguments."""
        folder, environment = rest[4:6]
        pipes = rest[9:15]
        read, _, _, write, _, complain = pipes
        words = args[len(MODULE) :]
        try:
            self.pid = self._server.fork(
                words, os.fspath(folder or Path.cwd()), environment, [read, write, complain]
            )
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def begin(command: list[str], environment: Mapping[str, str], **how: Any) -> subprocess.Popen[str]:
    """Start a process with text streams. Fork it if the fork server is in use and a fork has the
    same effect.
    """
    how |= {"env": environment, "text": True}
    if _used and not _servers and command[:3] == MODULE:
        _servers.append(Server())
    for server in _servers:
        if server.starts(command, environment):
            return Forked(server, command, **how)
    return subprocess.Popen(command, **how)


_used: list[bool] = []
_servers: list[Server] = []
"""Fork server of this process, started at its first use. Empty until then."""


def use() -> None:
    """Use the fork server from now on."""
    _used.append(True)


def close() -> None:
    """Stop the server. Its forked programs continue."""
    _used.clear()
    while _servers:
        _servers.pop().close()


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}


def serve(calls: socket.socket) -> list[str] | None:
    """Serve fork requests. Return the arguments in each forked process, which must then run the
    program. Return None in the server after the last request.
    """
    while True:
        call, files, _, _ = socket.recv_fds(calls, MOST, 3)
        if not call:
            return None
        words, folder, environment = json.loads(call)
        reader, tell = os.pipe()
        if between := os.fork():
            os.close(tell)
            os.waitpid(between, 0)
            for file in files:
                os.close(file)
            calls.send(os.read(reader, MOST))
            os.close(reader)
            continue
        if pid := os.fork():
            os.write(tell, str(pid).encode())
            os._exit(0)
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = map(_again, (sys.stdin, sys.stdout, sys.stderr))
        os.closerange(3, max(*files, reader, tell, calls.fileno()) + 1)
        os.chdir(folder)
        sys.path[0] = folder
        os.environ.clear()
        os.environ.update(environment)
        return list(words)


def _again(stream: TextIO) -> TextIO:
    """Open the stream again as at a start: a stream checks its file only when it is opened."""
    raw = FileIO(stream.fileno(), stream.mode, closefd=False)
    buffer = BufferedReader(raw) if raw.readable() else raw
    unbuffered = raw.writable()
    return TextIOWrapper(buffer, stream.encoding, stream.errors, write_through=unbuffered)


def _be_called(command: Sequence[str]) -> None:
    """Set the command line that `ps` shows, and that an agent reads if its port is taken. It is in
    the memory that contained the process's arguments (arg_start and arg_end, proc_pid_stat(5)).
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begins, ends = (int(field) for field in fields[45:47])
    words = b"".join(word.encode() + b"\0" for word in command)[: ends - begins - 1]
    ctypes.memmove(begins, words.ljust(ends - begins, b"\0"), ends - begins)


def _import_all() -> None:
    for module in pkgutil.walk_packages(fieldagent.__path__, "fieldagent."):
        if not module.name.endswith("__main__"):
            # A module that needs a missing library reports that when it is used.
            with suppress(ImportError):
                import_module(module.name)
    gc.collect()
    # A search for cycles in all these objects would copy their pages.
    gc.freeze()


def _run(words: list[str]) -> NoReturn:
    sys.argv = ["fieldagent", *words]
    sys.orig_argv = [*MODULE, *words]
    _be_called(sys.orig_argv)
    code: object = None
    try:
        runpy.run_module("fieldagent", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    # End as the interpreter does, but without clearing all imported modules.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    os._exit(code or 0)


if __name__ == "__main__":
    _import_all()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        _run(asked)
