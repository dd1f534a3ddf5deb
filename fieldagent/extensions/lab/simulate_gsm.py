"""`fieldagent simulate gsm`: a simulated GSM modem for SMS on a pty, which is controlled by typed
commands.
"""

from __future__ import annotations

import argparse
import re
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

import trio

from fieldagent.extensions.lab.simulate import link_to, read_typed_lines, run_until_stopped
from fieldagent.extensions.lab.simulator.commands import BadCommand, read_number
from fieldagent.extensions.lab.simulator.gsm_modem import DS, SimulatedGsmModem, format_sent
from fieldagent.extensions.lab.simulator.pty_port import open_pty
from fieldagent.system.terminal import escape_line
from fieldagent.wire.errors import LocalProtocolError
from fieldagent.wire.sms_pdu import Part

HELP = """\
sms NUMBER TEXT     an SMS comes
data NUMBER HEX     one of octets comes
part NUMBER REFERENCE I/N TEXT
                    the part I of N of one comes
report N WHAT       what became of the Nth SMS that left: delivered, unconfirmed, trying, failed
later HOURS         the network's clock goes on by so many
refuse NUMBER       the network refuses the next SMS: +CMS ERROR: NUMBER
lose                the next SMS leaves, and its reply is lost
garble              the same with a reply that nobody can read
noise [N]           the next message that is read comes garbled over the line, N times
stuck               the next Ctrl-Z is not heard
full                the SIM is full
sim                 how many are on it, and how many of them were read
undelivered         the network says later that the next SMS was not delivered
network on|off      whether there is one
pin PIN             the SIM wants it, from now on at each start
deaf / hears        the modem hears nothing / hears again
reports on|off      whether the network says what became of an SMS
offers DS           the modem offers these values of <ds> in +CNMI: 0, 01, 02 or 012
unasked on|off      whether the modem passes on SMS with +CMT although +CNMI asks for +CMTI
unplug / plug       the line is gone / is there again"""


FULL_SIM_TEXT = "the SIM is full: nothing is stored"


def print_line(line: str) -> None:
    """Print a line of the simulation immediately, with control characters escaped."""
    print(f"[gsm] {escape_line(line)}", flush=True)


def simulate_gsm(arguments: argparse.Namespace) -> int:
    """Simulate a modem until stopped. If `--link` is not given, the port is in a temporary
    folder.
    """
    with link_to(arguments.link, "gsm") as link:
        return run_until_stopped(partial(_run, GsmPort(link)))


class GsmPort:
    """A modem on a serial line that can be unplugged."""

    def __init__(self, link: Path) -> None:
        self.link = link
        self.ahead = 0
        """Seconds by which the network's clock is fast compared with this machine's clock."""
        self.modem = SimulatedGsmModem(
            lambda message: print_line(format_sent(message)), clock=lambda: time.time() + self.ahead
        )
        self._plugged = trio.Event()
        self._plugged.set()
        self._unplugged = trio.CancelScope()
        self._poked = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> NoReturn:
        """Serve the line while it is plugged in. When the line is unplugged, the modem loses
        power.
        """
        while True:
            await self._plugged.wait()
            with trio.CancelScope() as self._unplugged:
                async with open_pty(self.link) as line, trio.open_nursery() as nursery:
                    nursery.start_soon(self._write_output, line)
                    task_status.started()
                    task_status = trio.TASK_STATUS_IGNORED
                    while True:
                        stuck = self.modem.faults.stuck
                        self.modem.receive_data(await line.receive_some(4096))
                        if self.modem.faults.stuck < stuck:
                            print_line("a Ctrl-Z is ignored")
                        self.check_output()
            self.modem.power_off()

    def check_output(self) -> None:
        """Make the port check whether the modem has data to send."""
        self._poked.set()

    async def _write_output(self, line: trio.lowlevel.FdStream) -> NoReturn:
        # Only this task writes, because typed commands and requests on the line can arrive at the
        # same time.
        while True:
            self._poked = trio.Event()
            while data := self.modem.data_to_send():
                await line.send_all(data)
            await self._poked.wait()

    def unplug(self) -> None:
        """Remove the line and switch off the modem."""
        if self._plugged.is_set():
            self._plugged = trio.Event()
            self._unplugged.cancel()

    def plug(self) -> None:
        """Restore the line with the same name."""
        self._plugged.set()


async def _run(port: GsmPort) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(port.run)
        print_line(f"modem on {port.link}")
        print_line("type `help` for what can come and what can go wrong")
        async for line in read_typed_lines():
            try:
                answer = run_command(port, line)
            except (BadCommand, LocalProtocolError) as bad:
                answer = str(bad)
            port.check_output()
            for part in answer.splitlines():
                print_line(part)
        # Standard input has ended, for example because the program runs in the background. The
        # simulation continues.
        await trio.sleep_forever()


def run_command(port: GsmPort, line: str) -> str:
    """Run one command and return its output. Raises BadCommand if the command is invalid, and
    LocalProtocolError if a number in it is invalid.
    """
    command, _, rest = line.strip().partition(" ")
    faults = port.modem.faults
    # The commands in HELP. Most need one line of code, which lambdas in a table would make harder
    # to read.
    match command:
        case "":
            return ""
        case "help":
            return HELP
        case "sms" | "data":
            number, _, text = rest.partition(" ")
            stored = port.modem.receive_text(
                number, _read_octets(text) if command == "data" else text
            )
            return f"{stored} stored" if stored else FULL_SIM_TEXT
        case "part":
            return _make_part(port.modem, rest)
        case "report":
            return _report(port.modem, rest)
        case "later":
            port.ahead += 3_600 * read_number(rest, 0, 100_000, "hours")
        case "refuse":
            faults.refuse.append(read_number(rest, 0, 65_535, "an error"))
        case "lose":
            faults.lose_reply += 1
        case "garble":
            faults.garble_reply += 1
        case "noise":
            faults.garble_listed += read_number(rest or "1", 1, 100, "times")
        case "stuck":
            faults.stuck += 1
        case "undelivered":
            faults.undelivered += 1
        case "network" if rest in ("on", "off"):
            port.modem.network = rest == "on"
        case "pin" if rest.isdecimal():
            port.modem.pin = rest
        case "full":
            port.modem.fill()
        case "sim":
            read_count = sum(each.read for each in port.modem.store.values())
            return f"{len(port.modem.store)} on the SIM, {read_count} of them read"
        case "deaf" | "hears":
            faults.deaf = command == "deaf"
        case "reports" if rest in ("on", "off"):
            port.modem.reports = rest == "on"
        case "offers" if rest in ("0", "01", "02", "012"):
            port.modem.offered[DS] = rest
        case "unasked" if rest in ("on", "off"):
            port.modem.unasked = rest == "on"
        case "unplug":
            port.unplug()
        case "plug":
            port.plug()
        case _:
            raise BadCommand(f"{line.strip()!r} is not a command; `help` lists all")
    return "done"


_PART = re.compile(r"(\S+) ([0-9]{1,3}) ([0-9]{1,3})/([0-9]{1,3}) (.+)", re.ASCII)
_REPORT = re.compile(r"([0-9]{1,3}) (delivered|unconfirmed|trying|failed)", re.ASCII)
_STATUS = {"delivered": 0x00, "unconfirmed": 0x01, "trying": 0x20, "failed": 0x46}
"""Values of TP-ST (3GPP TS 23.040, 9.2.3.15)."""


def _make_part(modem: SimulatedGsmModem, text: str) -> str:
    match = _PART.fullmatch(text)
    if match is None or max(map(int, match.groups()[1:4])) > 255:
        raise BadCommand("write it like this: part +41791234567 7 1/2 first half of the text")
    reference, number, total = map(int, match.groups()[1:4])
    stored = modem.receive_part(match[1], Part(reference, total, number), match[5])
    return "1 stored" if stored else FULL_SIM_TEXT


def _report(modem: SimulatedGsmModem, text: str) -> str:
    match = _REPORT.fullmatch(text)
    if match is None:
        raise BadCommand("write it like this: report 1 delivered")
    if not 1 <= int(match[1]) <= len(modem.sent_to):
        return f"{len(modem.sent_to)} SMS have left"
    return "done" if modem.report(int(match[1]), _STATUS[match[2]]) else FULL_SIM_TEXT


def _read_octets(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise BadCommand("octets are pairs of hexadecimal digits") from None
