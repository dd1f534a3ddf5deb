"""The LoRa boards of `tests/peers` in a separate process, and kits that use them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.radio_modem import RadioModem
from fieldagent.agent.settings import parse
from fieldagent.extensions.radio.contract import RadioPlace
from fieldagent.extensions.radio.registry import load_radio
from fieldagent.extensions.radio.settings import get_radio_place
from tests.extensions.lab.simulator.test_simulate_node import kit
from tests.processes import PATIENCE, Agent, started


class Boards:
    def __init__(
        self, folder: Path, lora: Mapping[str, str], process: subprocess.Popen[str]
    ) -> None:
        self.folder, self.lora, self._process = folder, lora, process

    def type(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def place(self, number: int, **more: str) -> RadioPlace:
        port = self.folder / f"board-{number}"
        pairs = {**self.lora, "radio-port": str(port), "radio-station": str(number), **more}
        text = "".join(f"{name}={value}\n" for name, value in pairs.items())
        return get_radio_place(parse(text, self.folder / "agent.properties").parts["radio"])


@contextmanager
def boards_of(peer: str, lora: Mapping[str, str], folder: Path, count: int = 2) -> Iterator[Boards]:
    """Yield boards. `peer` is the firmware's module, and `lora` contains the settings of
    each kit.
    """
    command = [sys.executable, "-m", f"tests.peers.{peer}", str(folder), str(count)]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with started(command, **pipe) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield Boards(folder, lora, process)


@asynccontextmanager
async def opened(
    boards: Boards, number: int, link: ChannelLink | None = None, more: Mapping[str, str] = {}
) -> AsyncIterator[RadioModem]:
    """Yield the product's driver on one of them."""
    place = boards.place(number, **more)
    with trio.fail_after(4 * PATIENCE):
        async with load_radio(boards.lora["radio-protocol"]).open(
            place, link or ChannelLink()
        ) as modem:
            yield modem


@contextmanager
def kits(boards: Boards, *numbers: int) -> Iterator[list[Agent]]:
    """Yield real agents, each with its board."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                kit(
                    boards.folder,
                    number,
                    {},
                    **{**boards.lora, "radio-port": str(boards.folder / f"board-{number}")},
                )
            )
            for number in numbers
        ]
