"""Two real Dire Wolf TNCs that hear each other, in a network namespace of their own.

Their audio is joined by FIFOs. The KISS ports listen on every interface, so that they must not be
where anybody else is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.machine import tool
from tests.own_network import own_network
from tests.processes import started, until

PORTS = (8001, 8002)

ASOUND = """
pcm.tx_{name} {{
    type file
    slave.pcm "null"
    file "{fifo}"
    format "raw"
}}
pcm.null {{ type null }}
"""

CONFIG = """
ADEVICE stdin tx_{name}
ARATE 44100
CHANNEL 0
MYCALL N0CALL-{number}
MODEM 1200
FULLDUP ON
TXDELAY 20
TXTAIL 5
AGWPORT 0
KISSPORT {port}
"""


@dataclass(frozen=True, slots=True)
class Wolves:
    """`inside` is what to put before a command so that it runs where the TNCs are."""

    inside: list[str]


@contextmanager
def wolves(folder: Path) -> Iterator[Wolves]:
    """Both TNCs listen once this is entered, on 127.0.0.1 and `PORTS` of the namespace."""
    tool("direwolf", "direwolf")
    with ExitStack() as ends:
        inside = ends.enter_context(own_network())
        for name, hears, number in (("a", "b", 1), ("b", "a", 2)):
            ends.enter_context(_wolf(folder, name, hears, number, inside))
        _wait_until_they_listen(inside)
        yield Wolves(inside)


@contextmanager
def _wolf(folder: Path, name: str, hears: str, number: int, inside: list[str]) -> Iterator[None]:
    for each in (name, hears):
        if not (folder / each).exists():
            os.mkfifo(folder / each)
    config, alsa = folder / f"{name}.conf", folder / f"{name}.asound"
    config.write_text(CONFIG.format(name=name, number=number, port=PORTS[number - 1]))
    alsa.write_text(ASOUND.format(name=name, fifo=folder / name))
    # Opened both ways, so that neither waits for the other to begin.
    ear = os.open(folder / hears, os.O_RDWR)
    try:
        with (folder / f"{name}.log").open("w") as log:
            command = [*inside, "direwolf", "-t", "0", "-q", "hd", "-c", str(config)]
            environment = {**os.environ, "ALSA_CONFIG_PATH": str(alsa)}
            output = {"stdout": log, "stderr": log}
            with started(command, stdin=ear, cwd=folder, env=environment, **output):
                yield
    finally:
        os.close(ear)


def _wait_until_they_listen(inside: list[str]) -> None:
    for port in PORTS:
        probe = [*inside, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"]
        until(partial(_succeeds, probe))


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
