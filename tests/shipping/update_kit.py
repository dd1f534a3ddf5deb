"""A kit whose program is updated. A script replaces systemctl and runs the units' commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import fieldagent
from tests import offline
from tests.processes import PATIENCE, administer, hub, until
from tests.shipping.conftest import ROOT, built_version
from tests.signer import Signer

SYSTEMCTL = """\
#!{python}
import os, pathlib, signal, subprocess, sys, time
home = pathlib.Path({home!r})
words = [word for word in sys.argv[1:] if not word.startswith("--")]
pids = home / (words[1] + ".pid")
commands = {{
    "fieldagent.service": [str(home / "fieldagent.pyz"), "run", "--config", {settings!r}],
    "fieldagent-update.service": [
        str(home / "state-update/previous.pyz"), "update", "--go-on",
        "--state", str(home / "state-update"),
    ],
    "fieldagent-update-offer.service": [
        str(home / "fieldagent.pyz"), "update", "--offered", "--program",
        str(home / "fieldagent.pyz"), "--state", str(home / "state-update"), "--config",
        {settings!r}, "--key", str(home / "update.pub"),
        "--within", os.environ.get("WITHIN", "3"), "--steady", "1",
    ],
    "fieldagent-settings.service": [
        str(home / "fieldagent.pyz"), "settings", "--go-on", "--state",
        str(home / "state-update"), "--config", {settings!r}, "--key", str(home / "update.pub"),
        "--within", os.environ.get("WITHIN", "3"), "--steady", "1",
    ],
}}
def alive():
    try:
        pid = int(pids.read_text())
        return pid if pathlib.Path(f"/proc/{{pid}}/stat").read_text().split()[2] != "Z" else 0
    except (OSError, ValueError):
        return 0
if words[0] == "stop" and (pid := alive()):
    os.kill(pid, signal.SIGTERM)
    while alive():
        time.sleep(0.05)
if words[0] == "start" and not alive():
    log = open(home / (words[1] + ".log"), "ab")
    made = subprocess.Popen(
        [sys.executable, *commands[words[1]]], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True, env={{**os.environ, "PATH": {path!r}}},
    )
    pids.write_text(str(made.pid))
"""


def rebuilt(
    zipapp: Path,
    target: Path,
    changes: Mapping[str, tuple[str, str]],
    python: str = sys.executable,
) -> Path:
    """Write the program with changed lines in some modules: (old text, new text). It is compiled
    for `python`.
    """
    compiled = f"{_tag(python)}/"
    with zipfile.ZipFile(zipapp) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if change := changes.get(name.removeprefix(compiled).removesuffix("c")):
                source = name.removeprefix(compiled).removesuffix("c")
                # The archive's own sources have fewer blanks.
                text = (ROOT / source).read_text().replace(fieldagent.__version__, built_version())
                assert change[0] in text, (source, change[0])
                content = text.replace(*change).encode()
                if name.startswith(compiled):
                    content = _compiled(content, source, python)
            after.writestr(name, content, zipfile.ZIP_DEFLATED)
    return target


COMPILE = """
import sys
from bytecode import compile_one
sys.stdout.buffer.write(compile_one(sys.stdin.buffer.read(), sys.argv[1]))
"""


def _tag(python: str) -> str:
    ask = [python, "-c", "import sys; print(sys.implementation.cache_tag)"]
    return subprocess.check_output(ask, text=True).strip()


def _compiled(source: bytes, name: str, python: str) -> bytes:
    run = [python, "-c", COMPILE, name]
    where = {**os.environ, "PYTHONPATH": offline.path(str(ROOT / "build"))}
    return subprocess.run(run, input=source, env=where, check=True, capture_output=True).stdout


def version(number: str) -> dict[str, tuple[str, str]]:
    """Return the changes for `rebuilt`."""
    return {"fieldagent/__init__.py": (built_version(), number)}


class Kit:
    def __init__(
        self,
        home: Path,
        program: Path,
        settings: Mapping[str, str],
        signer: Signer | None = None,
    ) -> None:
        """`signer` signs its programs. By default the kit has its own signer."""
        self.home = home
        self.signer = signer or Signer(home / "keys")
        (home / "update.pub").write_text(self.signer.public)
        self.program = home / "fieldagent.pyz"
        self.program.write_bytes(program.read_bytes())
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.settings = home / "agent.properties"
        properties = {
            "api-port": str(self.port),
            "state-directory": str(home / "state"),
            **settings,
        }
        self.settings.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        tools = home / "bin"
        tools.mkdir()
        self.path = f"{tools}:{os.environ['PATH']}"
        script = SYSTEMCTL.format(
            python=sys.executable, home=str(home), settings=str(self.settings), path=self.path
        )
        (tools / "systemctl").write_text(script)
        (tools / "systemctl").chmod(0o755)

    def systemctl(self, *words: str, **environment: str) -> None:
        command = [str(self.home / "bin/systemctl"), *words]
        subprocess.run(command, check=True, env={**os.environ, **environment})

    def call(self, method: str, path: str, body: Any = None) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def version(self) -> str:
        """Return the version of the running agent, or "" if none answers."""
        try:
            number: str = self.call("GET", "/api/status")["version"]
        except OSError:
            return ""
        return number

    def state_of(self, channel: str) -> str:
        with suppress(OSError):
            state: str = self.call("GET", "/api/status")["channels"][channel]["state"]
            return state
        return ""

    def update(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        with self.begin_update(*arguments) as process:
            output, complained = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, output, complained)

    def begin_update(self, *arguments: str | Path) -> subprocess.Popen[str]:
        places = {
            "--program": self.program,
            "--config": self.settings,
            "--key": self.home / "update.pub",
            "--state": self.home / "state-update",
        }
        named = [str(each) for pair in places.items() for each in pair]
        return subprocess.Popen(
            [sys.executable, self.program, "update", *named, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": self.path},
        )

    def take_settings(self, within: str = "3") -> None:
        """Do the work of fieldagent-settings.path after the agent has left the hub's settings. They
        have that many minutes.
        """
        until((self.home / "state/settings.offer").exists)
        self.systemctl("start", "fieldagent-settings.service", WITHIN=within)

    def take_program(self, within: str = "3") -> None:
        """Do the work of fieldagent-update-offer.path."""
        until((self.home / "state/program.offer").exists)
        self.systemctl("start", "fieldagent-update-offer.service", WITHIN=within)

    def end(self) -> None:
        for pids in self.home.glob("*.pid"):
            pid = int(pids.read_text())
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            until(partial(_has_ended, pid))


def _has_ended(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    return True


@contextmanager
def kit(
    home: Path, program: Path, settings: Mapping[str, str], signer: Signer | None = None
) -> Iterator[Kit]:
    made = Kit(home, program, settings, signer)
    try:
        yield made
    finally:
        made.end()


@contextmanager
def linked_kit(folder: Path, program: Path) -> Iterator[tuple[Kit, str]]:
    """Yield the running `kit-ada` with its hub, and the hub's database."""
    database = str(folder / "hub.sqlite3")
    administer(database, "init", "Alps")
    administer(database, "user", "add", "ada")
    token = administer(database, "device", "add", "kit-ada", "--user", "ada")["hub-token"]
    (folder / "kit").mkdir()
    with hub(folder, {"database": database}) as cloud:
        settings = {"hub-address": cloud.address, "hub-token": token}
        with kit(folder / "kit", program, settings) as made:
            made.systemctl("start", "fieldagent.service")
            until(lambda: made.state_of("Cellular") == "ready")
            yield made, database
