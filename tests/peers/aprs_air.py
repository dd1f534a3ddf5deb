"""An amateur radio frequency with a KISS TNC at each station: the kit's on a pty, the others on
TCP. All stations hear each frame, and the program does not interpret frames.

Arguments: a folder, in which the kit's TNC is `node-1`, and the number of the other stations,
which are nodes 2 and higher. Commands on the input:
    away N      move it out of range of all others
    near N      move it back
    unplug 1    remove the kit's TNC
    plug 1      connect it again
"""

from __future__ import annotations

import asyncio
import os
import sys
import tty
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FEND = b"\xc0"


class Air:
    def __init__(self) -> None:
        self.ears: dict[int, Callable[[bytes], None]] = {}
        self.halves: dict[int, bytes] = {}
        self.away: set[int] = set()

    def receive_message(self, node: int, data: bytes) -> None:
        *frames, self.halves[node] = (self.halves.get(node, b"") + data).split(FEND)
        for frame in frames:
            # The low half of the first byte is the command: 0 is data for the air.
            if not frame or frame[0] & 15 or node in self.away:
                continue
            for other, hear in self.ears.items():
                if other != node and other not in self.away:
                    hear(FEND + frame + FEND)


class KitsTnc:
    """A TNC at a pty, which can be unplugged."""

    def __init__(self, air: Air, link: Path) -> None:
        self.air, self.link = air, link
        self.ends: tuple[int, int] | None = None
        air.ears[1] = self.say

    def plug(self) -> None:
        self.ends = ours, theirs = os.openpty()
        tty.setraw(theirs)
        os.set_blocking(ours, False)
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(os.ttyname(theirs))
        asyncio.get_running_loop().add_reader(ours, self.hear)

    def unplug(self) -> None:
        assert self.ends is not None
        asyncio.get_running_loop().remove_reader(self.ends[0])
        self.link.unlink()
        for end in self.ends:
            os.close(end)
        self.ends = None

    def hear(self) -> None:
        assert self.ends is not None
        self.air.receive_message(1, os.read(self.ends[0], 4096))

    def say(self, data: bytes) -> None:
        # Unread bytes are lost, as on a wire.
        with suppress(BlockingIOError):
            if self.ends is not None:
                os.write(self.ends[0], data)


async def serve(air: Air, node: int) -> int:
    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        air.ears[node] = writer.write
        while data := await reader.read(4096):
            air.receive_message(node, data)
        del air.ears[node]

    server = await asyncio.start_server(attend, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


async def live(folder: Path, people: int) -> None:
    air = Air()
    kit = KitsTnc(air, folder / "node-1")
    kit.plug()
    for node in range(2, people + 2):
        print(f"node {node} is at tcp://127.0.0.1:{await serve(air, node)}", flush=True)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        word, number = line.split()
        if word == "away":
            air.away.add(int(number))
            print(f"node {number} is out of range of all nodes", flush=True)
        elif word == "near":
            air.away.discard(int(number))
        elif word == "unplug":
            kit.unplug()
        elif word == "plug":
            kit.plug()


if __name__ == "__main__":
    there = Path(sys.argv[1])
    there.mkdir(exist_ok=True)
    asyncio.run(live(there, int(sys.argv[2])))
