"""SBD modems on ptys and the operator's gateway behind them, independent of the project's code.

    sbd.py FOLDER HUB_PORT MT_PORT NAME:IMEI:TRAIT+TRAIT ...

It was written from the ISU AT Command Reference, the SBD Developers Guide, the DirectIP description
and reports from the field. Each modem has the traits in its argument (`TRAITS`), in the sessions
that are listed there. FOLDER/NAME is its serial line. MO messages go to HUB_PORT until the hub
confirms them, and MT messages are accepted at MT_PORT. Events at the gateway are printed.
"""

from __future__ import annotations

import os
import queue
import re
import selectors
import socket
import sys
import threading
import time
import tty
from pathlib import Path

TRAITS = {
    "echo": "echoes every command whatever it is told",
    "spacing": "blank lines before replies, and spaces where nobody expects them",
    "old": "knows neither +CIER, +SBDIXA, +CGSN, +SBDSX nor -MSSTM",
    "failure": "says HARDWARE FAILURE between its replies",
    "noise": "NUL bytes and a broken character before replies",
    "cut": "the reply of its second session ends in the middle",
    "zero": "its MOMSN is 0 again after the third session",
    "lies": "its first session says 32 though the gateway has the message, then 13 though not",
    "brownout": "loses power before its second session, which sends nothing and ends with 0",
    "mute": "begins with V0 and Q1, as someone has stored it",
    "ringless": "never says SBDRING",
    "unheard": "hears no ring but those that are rung alone, and knows of no message without",
    "five": "+SBDIX without the number that is queued",
    "twice": "its gateway brings each MO message twice, and the first is late",
    "wrong-sum": "reads each second MT with a wrong sum first",
    "garbles": "reads its first MT with a wrong sum, however often it is asked",
    "slow": "answers in pieces of three bytes",
}
SESSION = 0.3
"""Seconds of a session."""


class Gateway:
    def __init__(self, hub_port: int) -> None:
        self.hub_port = hub_port
        self.waiting: dict[str, list[bytes]] = {}
        self.reference = 0
        self.brought: queue.Queue[tuple[float, bytes]] = queue.Queue()
        threading.Thread(target=self.bring, daemon=True).start()

    def receive_message(
        self, imei: str, momsn: int, mtmsn: int, body: bytes, *, twice: bool
    ) -> None:
        self.reference += 1
        header = self.reference.to_bytes(4, "big") + imei.encode() + b"\0"
        header += (
            momsn.to_bytes(2, "big")
            + mtmsn.to_bytes(2, "big")
            + int(time.time()).to_bytes(4, "big")
        )
        elements = element(0x01, header) + element(0x02, body)
        message = b"\x01" + len(elements).to_bytes(2, "big") + elements
        now = time.monotonic()
        if twice:
            self.brought.put((now + 2, message))
        self.brought.put((now, message))

    def bring(self) -> None:
        """Send MO messages to the hub forever. Repeat each message until the hub confirms it."""
        while True:
            due, message = self.brought.get()
            try:
                if due > time.monotonic():
                    raise OSError("not yet")
                with socket.create_connection(("127.0.0.1", self.hub_port), timeout=20) as line:
                    line.sendall(message)
                    answer = line.recv(7, socket.MSG_WAITALL)
                if answer != bytes([1, 0, 4, 5, 0, 1, 1]):
                    raise OSError(f"the hub answers {answer!r}")
            except OSError as error:
                if due <= time.monotonic():
                    print(f"gateway: {error}", flush=True)
                time.sleep(0.2)
                self.brought.put((due, message))


def element(number: int, content: bytes) -> bytes:
    return bytes([number]) + len(content).to_bytes(2, "big") + content


class Modem:
    def __init__(
        self, name: str, imei: str, traits: set[str], gateway: Gateway, path: Path
    ) -> None:
        self.name, self.imei, self.traits, self.gateway = name, imei, traits, gateway
        self.ours, self.theirs = os.openpty()
        tty.setraw(self.theirs)
        path.symlink_to(os.ttyname(self.theirs))
        self.out = bytearray()
        self.line = bytearray()
        self.payload: bytearray | None = None
        self.wanted = 0
        self.momsn, self.mtmsn = 7, 1
        self.sessions, self.replies, self.reads = 0, 0, 0
        self.until: float | None = None
        self.rings = False
        self.reset()
        if "mute" in traits:
            self.verbose, self.quiet = False, True

    def reset(self) -> None:
        self.echo, self.verbose, self.quiet = True, True, False
        self.mo, self.mt = b"", b""
        self.has_mo = self.has_mt = False

    # Data from the host.

    def feed(self, data: bytes) -> None:
        for byte in data:
            if self.until is not None:
                return  # During a session, the modem does not listen.
            if self.payload is not None:
                self.payload.append(byte)
                if len(self.payload) == self.wanted:
                    self.store()
            elif byte == 13:
                line, self.line = bytes(self.line), bytearray()
                self.command(line)
            elif byte != 10:
                self.line.append(byte)

    def store(self) -> None:
        assert self.payload is not None
        body, guard = bytes(self.payload[:-2]), int.from_bytes(self.payload[-2:], "big")
        self.payload = None
        right = sum(body) % 65536 == guard
        if right:
            self.mo, self.has_mo = body, True
        self.say("0" if right else "2")
        self.done()

    def command(self, line: bytes) -> None:
        if self.echo or "echo" in self.traits:
            self.out += line + b"\r"
        text = line.decode("latin-1").strip().upper()
        if not text.startswith("AT"):
            if text:
                self.done("ERROR")
            return
        rest = text[2:]
        while setting := re.match(r"(E|V|Q|&D|&K)([0-9])", rest):
            name, value = setting[1], setting[2]
            self.echo = value != "0" if name == "E" else self.echo
            self.verbose = value != "0" if name == "V" else self.verbose
            self.quiet = value != "0" if name == "Q" else self.quiet
            rest = rest[setting.end() :]
        unknown = ("+CIER", "+SBDIXA", "+CGSN", "+SBDSX", "-MSSTM")
        if not rest:
            self.done()
        elif "old" in self.traits and any(rest.startswith(each) for each in unknown):
            self.done("ERROR")
        else:
            self.carry_out(rest)

    def carry_out(self, rest: str) -> None:
        if rest in ("+CGSN", "+GSN"):
            self.say(self.imei)
        elif rest == "-MSSTM":
            self.say("-MSSTM: 1a2b3c4d")
        elif rest in ("+CGMR", "+GMR"):
            self.say("Call Processor Version: TA12003")
        elif rest.startswith("+CSQ"):
            self.say("+CSQ:3")
        elif rest.startswith("+CIER="):
            self.done()
            self.say("+CIEV:1,1")
            return
        elif re.fullmatch(r"\+SBD(MTA|ST|AREG)=[0-9]+", rest):
            pass
        elif size := re.fullmatch(r"\+SBDWB=([0-9]+)", rest):
            if not 1 <= int(size[1]) <= 340:
                self.say("3")
                self.done()
                return
            self.payload, self.wanted = bytearray(), int(size[1]) + 2
            self.say("READY")
            return
        elif rest == "+SBDRB":
            self.hand_out()
        elif rest in ("+SBDS", "+SBDSX"):
            self.tell(rest)
        elif rest in ("+SBDD0", "+SBDD1", "+SBDD2"):
            if rest[-1] in "02":
                self.mo, self.has_mo = b"", False
            if rest[-1] in "12":
                self.mt, self.has_mt = b"", False
            self.say("0")
        elif rest in ("+SBDIX", "+SBDIXA"):
            self.begin()
            return
        elif rest.startswith(("+SBDLOE", "+CREG", "*", "&")):
            pass
        else:
            self.done("ERROR")
            return
        self.done()

    def hand_out(self) -> None:
        self.reads += 1
        guard = sum(self.mt) % 65536
        if "wrong-sum" in self.traits and self.reads % 2:
            guard ^= 0x0101
        if "garbles" in self.traits and self.mtmsn == 2:
            # Noise in the message: its checksum stays.
            garbled = bytes([self.mt[0] ^ 0x20]) + self.mt[1:]
            self.out += len(garbled).to_bytes(2, "big") + garbled + guard.to_bytes(2, "big")
            return
        self.out += len(self.mt).to_bytes(2, "big") + self.mt + guard.to_bytes(2, "big")

    def tell(self, command: str) -> None:
        fields = [int(self.has_mo), self.momsn, int(self.has_mt), self.mtmsn if self.has_mt else -1]
        if command == "+SBDSX":
            knows = self.rings or "unheard" not in self.traits
            waiting = self.gateway.waiting.get(self.imei, []) if knows else []
            fields += [int(self.rings), len(waiting)]
        self.say(f"{command}: {self.separator.join(map(str, fields))}")

    # Data for the host.

    @property
    def separator(self) -> str:
        return " ,  " if "spacing" in self.traits else ", "

    def say(self, line: str) -> None:
        self.replies += 1
        if "spacing" in self.traits:
            self.out += b"\r\n\r\n"
        if "failure" in self.traits and self.replies % 4 == 0:
            self.out += b"\r\nHARDWARE FAILURE: DS 5,  8\r\n"
        if "noise" in self.traits and self.replies % 3 == 0:
            self.out += b"\0\0\xfe"
        self.out += f"\r\n{line}\r\n".encode()

    def done(self, result: str = "OK") -> None:
        if self.quiet:
            return
        if self.verbose:
            self.out += f"\r\n{result}\r\n".encode()
        else:
            self.out += b"0\r" if result == "OK" else b"4\r"

    def ring(self) -> None:
        self.rings = True
        if "ringless" not in self.traits and self.until is None and self.payload is None:
            self.out += b"\r\nSBDRING\r\n"

    # Sessions.

    def begin(self) -> None:
        self.sessions += 1
        if "brownout" in self.traits and self.sessions == 2:
            self.reset()
        self.until = time.monotonic() + SESSION

    def end(self) -> None:
        self.until = None
        status, reached, counted = 0, True, True
        if "lies" in self.traits and self.sessions == 1:
            status, counted = 32, False
        elif "lies" in self.traits and self.sessions == 2:
            status, reached, counted = 13, False, False
        waiting = self.gateway.waiting.get(self.imei, [])
        if reached and self.has_mo:
            print(f"{self.name}: MO {self.momsn} of {len(self.mo)} bytes", flush=True)
            twice = "twice" in self.traits
            number = self.mtmsn if status == 0 and waiting else 0
            self.gateway.receive_message(self.imei, self.momsn, number, self.mo, twice=twice)
        fields = [status, self.momsn, 0, 0, 0, 0]
        if counted:
            self.momsn = (self.momsn + 1) % 65536
        if "zero" in self.traits and self.sessions == 3:
            self.momsn = 0
        if status == 0 and waiting:
            self.mt, self.has_mt, self.rings = waiting.pop(0), True, False
            fields[2:] = [1, self.mtmsn, len(self.mt), len(waiting)]
            self.mtmsn += 1
            print(f"{self.name}: MT of {len(self.mt)} bytes", flush=True)
        if "five" in self.traits:
            fields.pop()
        whole = f"+SBDIX: {self.separator.join(map(str, fields))}"
        if "cut" in self.traits and self.sessions == 2:
            self.out += f"\r\n{whole[:9]}".encode()
            return
        self.say(whole)
        self.done()


def take_mt(line: socket.socket, gateway: Gateway, modems: dict[str, Modem]) -> None:
    head = line.recv(3, socket.MSG_WAITALL)
    rest = line.recv(int.from_bytes(head[1:], "big"), socket.MSG_WAITALL)
    elements: dict[int, bytes] = {}
    while rest:
        size = int.from_bytes(rest[1:3], "big")
        elements[rest[0]], rest = rest[3 : 3 + size], rest[3 + size :]
    client, imei = elements[0x41][:4], elements[0x41][4:19].decode()
    flags = int.from_bytes(elements[0x41][19:21], "big")
    place = -2
    if imei in modems:
        waiting = gateway.waiting.setdefault(imei, [])
        if flags & 1:
            waiting.clear()
        if flags & 2:
            place = 0
            print(f"{modems[imei].name}: rung alone", flush=True)
        else:
            waiting.append(elements[0x42])
            place = len(waiting)
        if flags & 2 or "unheard" not in modems[imei].traits:
            modems[imei].ring()
    answer = element(
        0x44, client + imei.encode() + bytes(4) + place.to_bytes(2, "big", signed=True)
    )
    line.sendall(b"\x01" + len(answer).to_bytes(2, "big") + answer)


def main() -> None:
    folder, hub_port, mt_port, *described = sys.argv[1:]
    gateway = Gateway(int(hub_port))
    modems: dict[str, Modem] = {}
    for each in described:
        name, imei, traits = each.split(":")
        chosen = set(filter(None, traits.split("+")))
        assert chosen <= TRAITS.keys(), chosen
        modems[imei] = Modem(name, imei, chosen, gateway, Path(folder) / name)
    look = selectors.DefaultSelector()
    listener = socket.create_server(("127.0.0.1", int(mt_port)))
    look.register(listener, selectors.EVENT_READ)
    for modem in modems.values():
        look.register(modem.ours, selectors.EVENT_READ, modem)
    print("ready", flush=True)
    while True:
        for key, _ in look.select(0.02):
            if key.data is None:
                line, _ = listener.accept()
                with line:
                    line.settimeout(20)
                    take_mt(line, gateway, modems)
            else:
                key.data.feed(os.read(key.fd, 4096))
        for modem in modems.values():
            if modem.until is not None and time.monotonic() >= modem.until:
                modem.end()
            piece = 3 if "slow" in modem.traits else 4096
            os.write(modem.ours, modem.out[:piece])
            del modem.out[:piece]


if __name__ == "__main__":
    main()
