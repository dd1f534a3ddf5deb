"""A person with an APRS handheld: a KISS TNC on TCP and an independent program at it. aprslib reads
the received frames.

Arguments: the TNC's port and the person's call. Prints `ready CALL` first, and then a JSON line for
each news. Commands on the input:
    text CALL WORDS …   send a message, and report if that station acknowledges it
    channel N WORDS …   send bulletin N to all
    position LAT LON [ALT …]    send a position
    frame INFO …        send any information
    from CALL DEST INFO …       the same with another call and destination
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

import aprslib

AGAIN, TRIES = 8.0, 4
"""Seconds after which an unacknowledged message goes again, and the number of tries."""
BEACON = 5.0


def tell(**what: Any) -> None:
    print(json.dumps(what, ensure_ascii=False), flush=True)


def address(call: str, last: bool) -> bytes:
    name, _, number = call.partition("-")
    shifted = bytes(ord(each) << 1 for each in f"{name:<6}")
    return shifted + bytes([0x60 | int(number or 0) << 1 | last])


def to_kiss(source: str, destination: str, info: bytes) -> bytes:
    calls = (destination, source, "WIDE1-1")
    body = b"".join(address(each, each == calls[-1]) for each in calls) + b"\x03\xf0" + info
    return b"\xc0\x00" + body.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc") + b"\xc0"


def call_of(raw: bytes) -> str:
    name = "".join(chr(each >> 1) for each in raw[:6]).strip()
    number = raw[6] >> 1 & 15
    return f"{name}-{number}" if number else name


def line_of(frame: bytes) -> tuple[str, str]:
    """Return the sender, and the line for aprslib."""
    frame = frame[1:].replace(b"\xdb\xdc", b"\xc0").replace(b"\xdb\xdd", b"\xdb")
    end = next(at for at in range(6, len(frame), 7) if frame[at] & 1) + 1
    calls = [call_of(frame[at : at + 7]) for at in range(0, end, 7)]
    info = frame[end + 2 :].decode()
    return calls[1], f"{calls[1]}>{','.join([calls[0], *calls[2:]])}:{info}"


def minutes(degrees: float, whole: int, signs: str) -> str:
    hundredths = round(abs(degrees) * 6000)
    sign = signs[degrees < 0]
    return f"{hundredths // 6000:0{whole}}{hundredths % 6000 / 100:05.2f}{sign}"


class Person:
    def __init__(self, call: str, writer: asyncio.StreamWriter) -> None:
        self.call, self.writer = call, writer
        self.numbers = itertools.count(1)
        self.acks: dict[str, asyncio.Future[bool]] = {}
        self.seen: set[tuple[str, str]] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def send(self, info: str, source: str = "", destination: str = "APRS") -> None:
        self.writer.write(to_kiss(source or self.call, destination, info.encode()))

    def start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def beacon(self) -> None:
        while True:
            self.send(">on the air")
            await asyncio.sleep(BEACON)

    async def text(self, to: str, words: str, number: int) -> None:
        self.acks[str(number)] = ack = asyncio.get_running_loop().create_future()
        for _ in range(TRIES):
            self.send(f":{to:<9}:{words}{{{number}")
            done, _ = await asyncio.wait([ack], timeout=AGAIN)
            if done:
                tell(ack=number, there=ack.result())
                return
        tell(ack=number, there=False)

    def hear(self, frame: bytes) -> None:
        source, line = line_of(frame)
        try:
            said = aprslib.parse(line)
        except aprslib.ParseError:
            return
        if said.get("addresse") != self.call:
            return
        number = said.get("msgNo", "")
        if "response" in said:
            waiting = self.acks.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_result(said["response"] == "ack")
            return
        if number:
            self.send(f":{source:<9}:ack{number}")
        if (source, number) not in self.seen:
            self.seen.add((source, number))
            tell(heard="direct", **{"from": source}, text=said["message_text"], id=number)

    def obey(self, line: str) -> None:
        word, *rest = line.split()
        if word == "text":
            number = next(self.numbers)
            tell(sent=number)
            self.start(self.text(rest[0].upper(), " ".join(rest[1:]), number))
        elif word == "channel":
            self.send(f":BLN{rest[0]:<6}:{' '.join(rest[1:])}")
        elif word == "position":
            north, east = minutes(float(rest[0]), 2, "NS"), minutes(float(rest[1]), 3, "EW")
            height = f"/A={round(float(rest[2]) / 0.3048):06}" if rest[2:] else ""
            self.send(f"!{north}/{east}>{height}")
        elif word == "frame":
            self.send(line.partition(" ")[2])
        elif word == "from":
            source, destination, info = line.split(" ", 3)[1:]
            self.send(info, source, destination)


async def live(port: int, call: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    person = Person(call, writer)
    print(f"ready {call}", flush=True)
    person.start(person.beacon())

    async def listen() -> None:
        rest = b""
        while data := await reader.read(4096):
            *frames, rest = (rest + data).split(b"\xc0")
            for frame in filter(None, frames):
                person.hear(frame)

    person.start(listen())
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        person.obey(line.rstrip("\n"))
    writer.close()


if __name__ == "__main__":
    asyncio.run(live(int(sys.argv[1]), sys.argv[2]))
