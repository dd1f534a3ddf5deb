"""Real processes of the product: the simulated sky, and the agent beneath it."""

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
"""Seconds after which something that should happen has not, also where the machine is busy with
much else. Every test that waits in real time waits so long."""


_PORTS = range(12000, 32000)
"""Below those that the kernel hands out (from 32768, ip(7)): between the look and the use of one of
them somebody else's connection may have it."""
_tried = itertools.count(random.SystemRandom().randrange(len(_PORTS)))
"""Where each process of tests begins: no two of them go the same way."""


def free_port() -> int:
    for number in itertools.islice(_tried, len(_PORTS)):
        port = _PORTS[number * 7 % len(_PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("each of them is taken")


@contextmanager
def frozen(running: Running) -> Iterator[None]:
    """A process that hangs: the kernel still takes connections for it."""
    running.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        running.process.send_signal(signal.SIGCONT)


def until(condition: Callable[[], object]) -> None:
    """Look again and again whether it has come to that."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not in {PATIENCE:.0f} s: {_written(condition)}"
        time.sleep(0.1)


def _written(condition: Callable[[], object]) -> str:
    """As its source has it: what a failed run's last lines show."""
    try:
        return inspect.getsource(condition).strip()
    except OSError:
        return repr(condition)


async def until_async(condition: Callable[[], object]) -> None:
    """The same under trio, in real time."""
    with trio.fail_after(PATIENCE):
        while not condition():
            await trio.sleep(0.01)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class NeverReady(AssertionError):
    """It has ended before, or was ended."""

    def __init__(self, why: object, code: int) -> None:
        super().__init__(why)
        self.code = code


class Running:
    """A process whose output can be waited for, line by line. It ends with the block."""

    def __init__(self, command: list[str], ready: str = "", **environment: str) -> None:
        """With `ready`, it has started when it prints a line that holds that."""
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
        """The line."""
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
        """The next line that holds `text`."""
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
        """What it has printed so far."""
        with suppress(queue.Empty):
            while True:
                self.lines.append(self._news.get_nowait() or "")
        return self.lines

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> int:
        """The exit code, which may be its own."""
        self.process.kill()
        return self._end()

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self._end()

    def wait(self) -> int:
        return self._end()

    def _end(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # It may not have read all that was typed.
                with suppress(BrokenPipeError):
                    pipe.close()
        self.output()
        return code


def ended(process: Running) -> int:
    """The exit code of a process that is stopped, unless it has ended by itself, which is not to
    look as if all were well."""
    if process.process.poll() is None:
        return process.stop()
    code = process.wait()
    assert code != 0, "\n".join(process.lines)
    return code


@contextmanager
def started(command: Sequence[str | Path], **how: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process like any other, which ends with the block at the latest."""
    with subprocess.Popen(command, **how) as process:
        try:
            yield process
        finally:
            process.kill()


class Agent(Running):
    """`fieldagent run`, listening."""

    def __init__(
        self,
        home: Path,
        settings: Mapping[str, str | None] = {},
        command: list[str] = MODULE,
        **environment: str,
    ) -> None:
        """None takes away what would be set."""
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
    """`fieldagent simulate satellite`, its modem at `home`/modem."""
    arguments = ["--link", str(home / "modem"), "--latency", str(latency)]
    with Running([*MODULE, "simulate", "satellite", *arguments], "satellite-port=") as running:
        yield running


@contextmanager
def imt_sky(home: Path, latency: float = 0.2, **environment: str) -> Iterator[Running]:
    """The same with a 9704."""
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
    """`fieldagent hub run`, listening."""

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
    """`fieldagent hub ARGUMENTS`: what it printed as JSON. In this process, since most of what one
    of its own takes is its start, and tests set hubs up by hundreds of these."""
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
    """The same as people do it."""
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
