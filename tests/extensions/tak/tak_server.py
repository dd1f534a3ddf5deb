"""taky, a third-party TAK server, and telephones at it: all are processes."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.processes import PATIENCE, Running, until

BIN = Path(sys.executable).parent
PHONE = Path(__file__).with_name("tak_phone.py")


class Identity(NamedTuple):
    certificate: Path
    key: Path
    authority: Path


class Taky(Running):
    """A taky server. `home` contains its authority and certificates, so it is the same server after
    a restart.
    """

    def __init__(self, folder: Path, port: int, *, tls: bool) -> None:
        self.port = port
        self.url = f"{'tls' if tls else 'tcp'}://localhost:{port}"
        self.home = folder / "taky"
        config = self.home / "taky.conf"
        if not self.home.exists():
            if tls:
                _takyctl(
                    *("setup", "--public-ip", "127.0.0.1", "--bind-ip", "127.0.0.1"),
                    *("--host", "localhost", str(self.home)),
                )
            else:
                self.home.mkdir()
                config.write_text("[taky]\nbind_ip=127.0.0.1\n[cot_server]\n[ssl]\nenabled=false\n")
            text = re.sub(r"(?m)^port\s*=.*\n|^mon_.*\n", "", config.read_text())
            config.write_text(text.replace("[cot_server]", f"[cot_server]\nport={port}\n"))
        super().__init__([str(BIN / "taky"), "-c", str(config), "-l", "debug"], "Listening for")
        until(self._answers)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def identity(self, name: str) -> Identity:
        """Return a client certificate of this server's authority."""
        config = str(self.home / "taky.conf")
        if not [*self.home.glob(f"{name}-*")]:
            _takyctl("-c", config, "build_client", "--dump_pem", name, cwd=self.home)
        files = {each.suffix: each for each in self.home.glob(f"{name}-*")}
        return Identity(files[".crt"], files[".key"], self.home / "ssl/ca.crt")


def _takyctl(*arguments: str, cwd: Path | None = None) -> None:
    done = subprocess.run(
        [str(BIN / "takyctl"), *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Phone(Running):
    """A phone at a TAK server, in a separate process. `got` contains the events that it has
    received.
    """

    def __init__(
        self,
        url: str,
        uid: str,
        callsign: str,
        identity: Identity | None = None,
        **environment: str,
    ) -> None:
        files = [] if identity is None else [str(each) for each in identity]
        self.uid, self.callsign = uid, callsign
        command = [sys.executable, str(PHONE), url, uid, callsign, *files]
        super().__init__(command, "at the server", **environment)

    @property
    def got(self) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.output() if each.startswith("{")]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.got if each["type"] == kind]

    def await_one(
        self, kind: str, wanted: Callable[[dict[str, Any]], object] = lambda event: True
    ) -> dict[str, Any]:
        until(lambda: any(map(wanted, self.of(kind))))
        return next(each for each in self.of(kind) if wanted(each))

    def say(self, words: str, to: tuple[str, str], message_id: str) -> None:
        self.command(say=words, to=list(to), id=message_id)

    def command(self, **command: Any) -> None:
        self.type(json.dumps(command))
