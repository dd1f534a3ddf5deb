"""Runs our programs as real processes: agents, hubs, and the simulated sky."""

from __future__ import annotations

import inspect
import io
import itertools
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, Self

import trio

from fieldagent.cli.arguments import dispatch
from tests import fork_server

ZIPAPP = Path(__file__).parents[1] / "dist" / "fieldagent.pyz"
MODULE = fork_server.MODULE
PATIENCE = 120.0
"""Seconds after which an expected event counts as missing, even on a busy machine. All waits of
tests in real time use it."""


_PORTS = range(12000, 32000)
"""Ports below those that the kernel assigns (from 32768, ip(7)). Otherwise, a foreign connection
could take the port between its check and its use."""
_tried = itertools.count(random.SystemRandom().randrange(len(_PORTS)))
"""Start of the search, which is random so that test processes do not collide."""


def free_port() -> int:
    for number in itertools.islice(_tried, len(_PORTS)):
        port = _PORTS[number * 7 % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("each of them is taken")


@contextmanager
def frozen(running: Running) -> Iterator[None]:
    """Freeze a process. The kernel still accepts connections for it."""
    running.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        running.process.send_signal(signal.SIGCONT)


def until(condition: Callable[[], object], within: float = PATIENCE) -> None:
    """Poll until the condition is true. Fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not in {within:.0f} s: {_written(condition)}"
        time.sleep(0.1)


def _written(condition: Callable[[], object]) -> str:
    """Return the source text of a condition, for the message of a failed wait."""
    try:
        return inspect.getsource(condition).strip()
    except OSError:
        return repr(condition)


async def until_async(condition: Callable[[], object]) -> None:
    """Poll under trio, in real time, until the condition is true. Fails after `PATIENCE`
    seconds.
    """
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.01)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class NeverReady(AssertionError):
    """Error: the process ended before it was ready."""

    def __init__(self, why: object, code: int) -> None:
        super().__init__(why)
        self.code = code


class Running:
    """A process whose output a test can await line by line. It ends with the block."""

    def __init__(self, command: list[str], ready: str = "", **environment: str) -> None:
        """Start the process. If `ready` is not empty, wait until a printed line contains this text.
        Raises NeverReady.
        """
        self.process = fork_server.begin(
            command,
            {**os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[str] = []
        self._news: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.ready = ""
        """The line that contained `ready`."""
        if ready:
            try:
                self.ready = self.expect(ready)
            except AssertionError as error:
                raise NeverReady(error, self.kill()) from None
            except BaseException:
                self.kill()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._news.put(line.rstrip("\n"))
        self._news.put(None)

    def expect(self, text: str) -> str:
        """Return the next line that contains `text`."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                line = self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"no {text!r} in:\n" + "\n".join(self.lines))
            self.lines.append(line)
            if text in line:
                return line

    def output(self) -> list[str]:
        """Return the output so far."""
        with suppress(queue.Empty):
            while True:
                self.lines.append(self._news.get_nowait() or "")
        return self.lines

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> int:
        """Kill the process and return its exit code, which may be from an earlier end."""
        self.process.kill()
        return self._end()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self._end()

    def wait(self) -> int:
        return self._end()

    def _end(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # The process may not have read all of its input.
                with suppress(BrokenPipeError):
                    pipe.close()
        self.output()
        return code


def ended(process: Running) -> int:
    """Stop a process and return its exit code. If it has already ended by itself, code 0 is an
    error.
    """
    if process.process.poll() is None:
        return process.stop()
    code = process.wait()
    assert code != 0, "\n".join(process.lines)
    return code


@contextmanager
def started(command: Sequence[str | Path], **how: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start any process, which ends at the latest with the block."""
    with subprocess.Popen(command, **how) as process:
        try:
            yield process
        finally:
            process.kill()


class Agent(Running):
    """An agent in a separate process, after its API has begun to listen."""

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str | None] = {},
        command: list[str] = MODULE,
        **environment: str,
    ) -> None:
        """Start the agent with default settings and these `settings`. A value of None removes a
        default setting.
        """
        self.home = home
        properties = home / "agent.properties"
        values: dict[str, str | None] = {
            "api-port": "0",
            "state-directory": str(home / "state"),
            "satellite-port": str(home / "modem"),
            **settings,
        }
        lines = [f"{key}={value}\n" for key, value in values.items() if value is not None]
        properties.write_text("".join(lines))
        command = [*command, "run", "--config", str(properties)]
        super().__init__(command, "the local API answers at", **environment)
        self.port = int(self.ready.rpartition(":")[2])

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if content is not None:
            headers = {"Content-Type": "application/json", **headers}
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        known = {name.lower(): value for name, value in response.getheaders()}
        is_json = "json" in known.get("content-type", "")
        return Answer(
            response.status, known, json.loads(text) if is_json else text.decode("utf-8", "replace")
        )

    def post(self, content: str, **members: Any) -> Answer:
        return self.call("POST", "/api/package", {"message": {"content": content}, **members})


@contextmanager
def sky(home: Path, latency: float = 0.2) -> Iterator[Running]:
    """Run `fieldagent simulate satellite` with its modem at `home`/modem."""
    arguments = ["--link", str(home / "modem"), "--latency", str(latency)]
    with Running([*MODULE, "simulate", "satellite", *arguments], "satellite-port=") as running:
        yield running


@contextmanager
def imt_sky(home: Path, latency: float = 0.2, **environment: str) -> Iterator[Running]:
    """Run a simulated 9704 with its gateway, like `sky`."""
    arguments = ["--kind", "imt", "--link", str(home / "modem"), "--latency", str(latency)]
    command = [*MODULE, "simulate", "satellite", *arguments]
    with Running(command, "type `help`", **environment) as running:
        yield running


@contextmanager
def agent(
    home: Path,
    settings: Mapping[str, str | None] = {},
    command: list[str] = MODULE,
    **environment: str,
) -> Iterator[Agent]:
    with Agent(home, settings, command, **environment) as running:
        yield running


class Hub(Running):
    """A hub in a separate process, after it has begun to listen."""

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str],
        command: list[str] = MODULE,
        **environment: str,
    ) -> None:
        properties = home / "hub.properties"
        values = {"port": "0", "listen": "127.0.0.1", **settings}
        properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self.arguments = ["--config", str(properties)]
        command = [*command, "hub", "run", *self.arguments]
        super().__init__(command, "the hub answers at", **environment)
        self.address = self.ready.rpartition(" ")[2]
        self.port = int(self.address.rpartition(":")[2])


@contextmanager
def hub(
    home: Path, settings: Mapping[str, str], command: list[str] = MODULE, **environment: str
) -> Iterator[Hub]:
    with Hub(home, settings, command, **environment) as running:
        yield running


def administer(database: str, *arguments: str, secret: str = "") -> Any:
    """Run `fieldagent hub ARGUMENTS` and return its JSON output. It runs in this process, because
    the start of a process takes most of the time, and tests set up hundreds of hubs.
    """
    words = ["hub", *arguments, "--database", database, "--json"]
    output, complained = io.StringIO(), io.StringIO()
    with _STREAMS, redirect_stdout(output), redirect_stderr(complained):
        before, sys.stdin = sys.stdin, io.StringIO(secret)
        try:
            code: object = dispatch(words)
        except SystemExit as ended:
            code = ended.code
        finally:
            sys.stdin = before
    return _printed(code, output.getvalue(), complained.getvalue())


_STREAMS = threading.Lock()


def administer_from_shell(database: str, *arguments: str, secret: str = "") -> Any:
    """Run a command of the hub in a process, as people do."""
    done = subprocess.run(
        [*MODULE, "hub", *arguments, "--database", database, "--json"],
        input=secret,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return _printed(done.returncode, done.stdout, done.stderr)


def _printed(code: object, output: str, complained: str) -> Any:
    if code:
        raise AssertionError(complained)
    return json.loads(output)
