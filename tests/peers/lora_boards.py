"""LoRa boards on ptys with any firmware. These modules were written only from the firmwares'
documents, and share no code with the product.

Boards are FOLDER/board-1 …. Each packet reaches all boards with the same settings. Commands on the
input:

    reset N            it forgets everything and sends its start message
    hang N, wake N     it stops working, and works again
    refuse N COUNT     its queue is full that many times
    mute N COUNT       it does not report a sent packet
    noise N            it sends garbage and half a frame
    told N             it prints its settings
    break N WHAT       a fault of the firmware's module
"""

from __future__ import annotations

import os
import selectors
import sys
import tty
from collections.abc import Callable
from pathlib import Path

FEND, FESC = b"\xc0", b"\xdb"


def framed(kind: int, content: bytes) -> bytes:
    inside = bytes([kind]) + content
    inside = inside.replace(FESC, FESC + b"\xdd").replace(FEND, FESC + b"\xdc")
    return FEND + inside + FEND


def frames(raw: bytearray) -> list[bytes]:
    """Remove the complete KISS frames from `raw`, and return them."""
    packets = []
    while FEND in raw:
        at = raw.index(FEND)
        inside, raw[: at + 1] = bytes(raw[:at]), b""
        if inside:
            packets.append(inside.replace(FESC + b"\xdc", FEND).replace(FESC + b"\xdd", FESC))
    return packets


class Board:
    """Base class of a simulated board. A subclass implements the firmware."""

    def __init__(self, place: Path) -> None:
        self.host, theirs = os.openpty()
        tty.setraw(theirs)
        # Held open: a board exists even if no program listens.
        self.theirs = theirs
        place.unlink(missing_ok=True)
        place.symlink_to(os.ttyname(theirs))
        self.hung = False
        self.broken = ""
        self.refused = self.muted = 0
        self.raw = bytearray()
        self.reset()

    def write(self, kind: int, content: bytes) -> None:
        os.write(self.host, framed(kind, content))

    def reset(self) -> None:
        raise NotImplementedError

    def receive_message(self, frame: bytes) -> bytes | None:
        """Handle one frame from the host. Return a packet that must be transmitted."""
        raise NotImplementedError

    def refuse(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Report that a packet was sent."""
        raise NotImplementedError

    def hear(self, packet: bytes) -> None:
        raise NotImplementedError

    def tuned(self) -> object:
        """Return the settings that two boards must share to hear each other, or None while it is
        off.
        """
        raise NotImplementedError

    def told(self) -> str:
        raise NotImplementedError


class Boards:
    def __init__(self, kind: Callable[[Path], Board], folder: Path, count: int) -> None:
        self.all = [kind(folder / f"board-{number}") for number in range(1, count + 1)]

    def line(self, board: Board) -> None:
        board.raw += os.read(board.host, 4096)
        for frame in frames(board.raw):
            packet = None if board.hung else board.receive_message(frame)
            if packet is not None:
                self.transmit(board, packet)

    def transmit(self, board: Board, packet: bytes) -> None:
        if board.refused:
            board.refused -= 1
            board.refuse()
            return
        for other in self.all:
            alike = other.tuned() == board.tuned() is not None
            if other is not board and not other.hung and alike:
                other.hear(packet)
        if board.muted:
            board.muted -= 1
        else:
            board.end()

    def obey(self, line: str) -> None:
        word, number, *rest = line.split()
        board = self.all[int(number) - 1]
        if word == "reset":
            board.raw.clear()
            board.reset()
        elif word in ("hang", "wake"):
            board.hung = word == "hang"
        elif word == "break":
            (board.broken,) = rest
        elif word == "refuse":
            board.refused = int(rest[0])
        elif word == "mute":
            board.muted = int(rest[0])
        elif word == "noise":
            os.write(board.host, b"boot v1.2\r\n\xc0\x06\xc0\xc0\x06\xdb\x01\xc0\xc0\x00half")
        elif word == "told":
            print(board.told(), flush=True)
            return
        print("done", flush=True)


def main(kind: Callable[[Path], Board]) -> None:
    boards = Boards(kind, Path(sys.argv[1]), int(sys.argv[2]))
    wait = selectors.DefaultSelector()
    wait.register(0, selectors.EVENT_READ)
    for board in boards.all:
        wait.register(board.host, selectors.EVENT_READ, board)
    print("ready", flush=True)
    while True:
        for key, _ in wait.select():
            if key.data is not None:
                boards.line(key.data)
            elif not (typed := os.read(0, 4096)):
                return
            else:
                for line in typed.decode().splitlines():
                    boards.obey(line)
