"""Real Dire Wolf TNCs that hear each other, in a separate network namespace.

All TNCs hear the sound that one of them plays. Sounds at the same time are mixed, as on the air.
The KISS ports listen on all interfaces, so the namespace must not be shared.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from tests.machine import tool
from tests.own_network import own_network
from tests.processes import started, until

PORTS = (8001, 8002, 8003)

ASOUND = """
pcm.tx_{number} {{
    type file
    slave.pcm "null"
    file "{fifo}"
    format "raw"
}}
pcm.null {{ type null }}
"""

CONFIG = """
ADEVICE stdin tx_{number}
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


SAMPLE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Wolves:
    """Running TNCs. `inside` is the command prefix that runs a program in their namespace."""

    inside: list[str]


@contextmanager
def wolves(
    folder: Path, count: int = 2, beacons: Mapping[int, str] = MappingProxyType({})
) -> Iterator[Wolves]:
    """Yield `count` TNCs, whose KISS ports in the namespace are the first of `PORTS`. `beacons`
    maps the index of a TNC to configuration lines for frames that it sends by itself.
    """
    tool("direwolf", "direwolf")
    with ExitStack() as ends:
        inside = ends.enter_context(own_network())
        ears = {
            ends.enter_context(_fifo(folder / f"mouth-{number}")): ends.enter_context(
                _fifo(folder / f"ear-{number}")
            )
            for number in range(1, count + 1)
        }
        for number, ear in enumerate(ears.values(), 1):
            _write_config(folder, number, beacons.get(number, ""))
            ends.enter_context(_wolf(folder, number, ear, inside))
        ends.enter_context(_air(ears))
        _wait_until_they_listen(inside, PORTS[:count])
        yield Wolves(inside)


@contextmanager
def _fifo(path: Path) -> Iterator[int]:
    os.mkfifo(path)
    # Opened for reading and writing, so that neither end waits for the other.
    opened = os.open(path, os.O_RDWR)
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def _air(ears: Mapping[int, int]) -> Iterator[None]:
    """Carry the sound from each key to the ears of all others."""
    over, end = os.pipe()

    def carry() -> None:
        halves = dict.fromkeys(ears, b"")
        while over not in (ready := select.select([over, *ears], [], [])[0]):
            for mouth in ready:
                sound = halves[mouth] + os.read(mouth, 4096)
                whole = len(sound) // SAMPLE_BYTES * SAMPLE_BYTES
                halves[mouth] = sound[whole:]
                for other, ear in ears.items():
                    if other != mouth:
                        os.write(ear, sound[:whole])

    carrier = threading.Thread(target=carry)
    carrier.start()
    try:
        yield
    finally:
        os.write(end, b"x")
        carrier.join()
        os.close(over)
        os.close(end)


def _write_config(folder: Path, number: int, beacon: str) -> None:
    config = CONFIG.format(number=number, port=PORTS[number - 1])
    (folder / f"{number}.conf").write_text(f"{config}{beacon}\n")


@contextmanager
def _wolf(folder: Path, number: int, ear: int, inside: list[str]) -> Iterator[None]:
    config, alsa = folder / f"{number}.conf", folder / f"{number}.asound"
    alsa.write_text(ASOUND.format(number=number, fifo=folder / f"mouth-{number}"))
    with (folder / f"{number}.log").open("w") as log:
        command = [*inside, "direwolf", "-t", "0", "-q", "hd", "-c", str(config)]
        environment = {**os.environ, "ALSA_CONFIG_PATH": str(alsa)}
        output = {"stdout": log, "stderr": log}
        with started(command, stdin=ear, cwd=folder, env=environment, **output):
            yield


def _wait_until_they_listen(inside: list[str], ports: tuple[int, ...]) -> None:
    for port in ports:
        probe = [*inside, "bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{port}"]
        until(partial(_succeeds, probe))


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
