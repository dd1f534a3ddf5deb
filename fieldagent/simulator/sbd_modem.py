"""An Iridium 9602 as seen from its serial line, without I/O: the modem's side of `wire.sbd`.

It keeps to the ISU AT Command Reference where a driver could trip: it echoes until told not to,
forgets volatile settings at a reset, keeps what it has sent in its MO buffer, and counts its MOMSN
in memory that survives. What can go wrong in the field goes wrong by command.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from fieldagent.wire import sbd


class Gateway(Protocol):
    """The operator's gateway, and whoever is behind it."""

    def mobile_originated(self, imei: str, momsn: int, body: bytes) -> None: ...

    def next_mobile_terminated(self) -> bytes | None:
        """What waits first; it stays until `taken`."""

    def taken(self) -> None: ...

    def waiting(self) -> int: ...


@dataclass(slots=True)
class Volatile:
    """What a reset sets back."""

    echo: bool = True
    verbose: bool = True
    quiet: bool = False
    flow_control: bool = True
    ring_indications: bool = True
    session_timeout: int = 0
    indications: bool = False
    mo_buffer: bytes = b""
    mt_buffer: bytes = b""
    mo_flag: bool = False
    mt_flag: bool = False


@dataclass(frozen=True, slots=True)
class NextStatus:
    """How a coming session shall end."""

    mo_status: int
    delivered: bool
    """Whether the gateway gets the message whatever the modem says."""
    counted: bool
    """Whether the modem counts the session as completed."""


@dataclass(slots=True)
class SimulatedModem:
    """`receive_data` takes the host's bytes, `data_to_send` yields the modem's.

    A session begins with a command and ends when its owner calls `finish_session`.
    """

    gateway: Gateway
    imei: str = "300234010000001"
    momsn: int = 0
    mtmsn: int = 0
    ring_flag: bool = False
    signal: int = 4
    service: bool = True
    session: bool = False
    """A session is under way."""
    clock: Callable[[], float] | None = None
    """The network's, in Unix time; without one it has not told the time yet."""
    statuses: deque[NextStatus] = field(default_factory=deque)
    lose_replies: int = 0
    wrong_sums: int = 0
    deaf: bool = False
    """It hangs: nothing is answered."""
    odd_spacing: bool = False
    stuck_mail: int | None = None
    """A message waits at the gateway and does not come: each session ends with this MO status, and
    an error while checking."""
    reset_before_session: int = 0
    """How many coming sessions begin with a reset, and so with an empty buffer."""
    clears_what_it_sent: bool = False
    swallow: int = 0
    """How many coming payloads lose a byte on the line."""
    stubborn_echo: bool = False
    unknown_commands: frozenset[str] = frozenset()
    """Optional commands that an older firmware answers with ERROR, such as `+CIER`."""
    stored: Volatile = field(default_factory=Volatile)
    """The profile that a reset goes back to (&W, &Y)."""
    volatile: Volatile = field(default_factory=Volatile)
    _input: bytearray = field(default_factory=bytearray)
    _output: bytearray = field(default_factory=bytearray)
    _expected: int | None = None
    """Bytes of a payload and its sum that +SBDWB still waits for."""

    # The serial line.

    def receive_data(self, data: bytes) -> None:
        self._input += data
        if self.deaf or self.session:
            # Characters during a session are thrown away, as the real one does.
            self._input.clear()
            return
        while self._input and not self.session:
            if self._expected is not None:
                if self.swallow and self._input:
                    self.swallow -= 1
                    del self._input[0]
                if len(self._input) < self._expected:
                    return
                self._store(self._expected)
                continue
            end = self._input.find(b"\r")
            if end < 0:
                return
            line = bytes(self._input[:end])
            del self._input[: end + 1]
            self._command(line)

    def data_to_send(self) -> bytes:
        data = bytes(self._output)
        self._output.clear()
        return data

    @property
    def awaits_payload(self) -> bool:
        return self._expected is not None

    def payload_timeout(self) -> None:
        """+SBDWB got fewer bytes than announced within 60 s."""
        self._expected = None
        self._input.clear()
        self._say("1")

    def _say(self, line: str) -> None:
        if line in _RESULTS and self.volatile.quiet:
            return
        if line in _RESULTS and not self.volatile.verbose:
            self._output += f"{_RESULTS[line]}\r".encode("ascii")
            return
        self._output += f"\r\n{line}\r\n".encode("ascii")

    def _command(self, raw: bytes) -> None:
        if self.volatile.echo or self.stubborn_echo:
            self._output += raw + b"\r"
        command = raw.decode("ascii", "replace").strip().upper()
        if not command:
            return
        if not command.startswith("AT"):
            self._say("ERROR")
            return
        for pattern, answer in _COMMANDS:
            match = re.fullmatch(pattern, command[2:])
            if match and not any(name in command for name in self.unknown_commands):
                answer(self, match)
                return
        self._say("ERROR")

    # The commands, in the order of the reference.

    def _ok(self, match: re.Match[str]) -> None:
        self._say("OK")

    def _set_line(self, match: re.Match[str]) -> None:
        """Several may stand in one line."""
        for name, value in re.findall(_LINE_SETTING, match[0]):
            if name == "E":
                self.volatile.echo = value == "1"
            elif name == "V":
                self.volatile.verbose = value == "1"
            elif name == "Q":
                self.volatile.quiet = value == "1"
            elif name == "&K":
                self.volatile.flow_control = value == "3"
        self._say("OK")

    def _tell_time(self, match: re.Match[str]) -> None:
        if self.clock is None or not self.service:
            self._say("-MSSTM: no network service")
        else:
            ticks = (self.clock() - sbd.SYSTEM_EPOCH) / sbd.SYSTEM_TICK
            self._say(f"-MSSTM: {int(ticks) % 2**32:08x}")
        self._say("OK")

    def _tell_imei(self, match: re.Match[str]) -> None:
        self._say(self.imei)
        self._say("OK")

    def _tell_revision(self, match: re.Match[str]) -> None:
        self._say("Call Processor Version: TA16005")
        self._say("OK")

    def _set_indications(self, match: re.Match[str]) -> None:
        self.volatile.indications = match[1] == "1"
        self._say("OK")
        self._indicate()

    def _tell_signal(self, match: re.Match[str]) -> None:
        self._say(f"+CSQ:{self.signal}")
        self._say("OK")

    def _set_ring_indications(self, match: re.Match[str]) -> None:
        self.volatile.ring_indications = match[1] == "1"
        self._say("OK")

    def _set_session_timeout(self, match: re.Match[str]) -> None:
        self.volatile.session_timeout = int(match[1])
        self._say("OK")

    def _begin_write(self, match: re.Match[str]) -> None:
        size = int(match[1])
        if not 1 <= size <= sbd.MO_BYTES:
            self._say(str(sbd.WriteResult.WRONG_SIZE.value))
            self._say("OK")
            return
        self._expected = size + 2
        self._say("READY")

    def _store(self, expected: int) -> None:
        body, guard = bytes(self._input[: expected - 2]), self._input[expected - 2 : expected]
        del self._input[:expected]
        self._expected = None
        result = sbd.WriteResult.STORED
        if sbd.checksum(body) == guard:
            self.volatile.mo_buffer, self.volatile.mo_flag = body, True
        else:
            result = sbd.WriteResult.WRONG_SUM
        self._say(str(result.value))
        self._say("OK")

    def _read(self, match: re.Match[str]) -> None:
        body = self.volatile.mt_buffer
        guard = sbd.checksum(body)
        if self.wrong_sums:
            self.wrong_sums -= 1
            guard = bytes([guard[0] ^ 0x55, guard[1]])
        self._output += len(body).to_bytes(2) + body + guard
        self._say("OK")

    def _status(self, match: re.Match[str]) -> None:
        v = self.volatile
        shown = [int(v.mo_flag), self.momsn, int(v.mt_flag), self.mtmsn if v.mt_flag else -1]
        if match[1]:
            shown += [int(self.ring_flag), self.gateway.waiting()]
        self._say(f"+SBDS{match[1]}: {', '.join(map(str, shown))}")
        self._say("OK")

    def _clear(self, match: re.Match[str]) -> None:
        v = self.volatile
        if match[1] in "02":
            v.mo_buffer, v.mo_flag = b"", False
        if match[1] in "12":
            v.mt_buffer, v.mt_flag = b"", False
        self._say("0")
        self._say("OK")

    def _begin_session(self, match: re.Match[str]) -> None:
        if self.reset_before_session:
            self.reset_before_session -= 1
            self.brown_out()
        self.session = True
        if match[1]:
            self.ring_flag = False

    # Sessions with the gateway.

    def finish_session(self) -> None:
        if not self.session:
            return
        self.session = False
        planned = self.statuses.popleft() if self.statuses else self._by_coverage()
        shown = [planned.mo_status, self.momsn, 2, -1, 0, 0]
        if planned.delivered and self.volatile.mo_flag:
            self.gateway.mobile_originated(self.imei, self.momsn, self.volatile.mo_buffer)
            self.volatile.mo_flag = not self.clears_what_it_sent
        if planned.counted:
            self.momsn = (self.momsn + 1) % sbd.MOMSN_MODULUS
        if planned.mo_status <= 4 and self.stuck_mail is not None:
            shown[0], shown[5] = self.stuck_mail, 1
        elif planned.mo_status <= 4:
            shown[2:] = self._take_mail()
        if self.lose_replies:
            self.lose_replies -= 1
            return
        comma = " ,  " if self.odd_spacing else ", "
        self._say(f"+SBDIX{':' if self.odd_spacing else ': '}{comma.join(map(str, shown))}")
        self._say("OK")

    def _by_coverage(self) -> NextStatus:
        reached = self.service and self.signal > 0
        return NextStatus(0 if reached else 32, delivered=reached, counted=reached)

    def _take_mail(self) -> list[int]:
        body = self.gateway.next_mobile_terminated()
        if body is None:
            return [0, -1, 0, 0]
        self.gateway.taken()
        self.volatile.mt_buffer, self.volatile.mt_flag = body, True
        number, self.mtmsn = self.mtmsn, (self.mtmsn + 1) % sbd.MOMSN_MODULUS
        return [1, number, len(body), self.gateway.waiting()]

    # What happens to it.

    def ring(self) -> None:
        self.ring_flag = True
        if self.volatile.ring_indications and not self.deaf:
            self._say("SBDRING")

    def set_signal(self, bars: int) -> None:
        self.signal = bars
        self._indicate()

    def set_service(self, available: bool) -> None:
        self.service = available
        self._indicate()

    def _indicate(self) -> None:
        if self.volatile.indications and not self.deaf:
            self._say(f"+CIEV:0,{self.signal}")
            self._say(f"+CIEV:1,{int(self.service)}")

    def brown_out(self) -> None:
        """Power fails for a moment: a session is gone, and so is everything volatile."""
        self.volatile = replace(self.stored)
        self.session = False
        self._expected = None
        self._input.clear()
        self._output.clear()


_RESULTS = {"OK": "0", "ERROR": "4"}
"""Final results as V0 has them (ISU AT Command Reference, Vn)."""
_LINE_SETTING = r"([EVQ]|&D|&K)([0-4])"


def _tell_lock(modem: SimulatedModem, match: re.Match[str]) -> None:
    modem._say("+CULK:0")
    modem._say("OK")


_COMMANDS: tuple[tuple[str, Callable[[SimulatedModem, re.Match[str]], None]], ...] = (
    (r"", SimulatedModem._ok),
    (rf"(?:{_LINE_SETTING})+", SimulatedModem._set_line),
    (r"-MSSTM", SimulatedModem._tell_time),
    (r"\+CGSN|\+GSN|I4", SimulatedModem._tell_imei),
    (r"\+CGMR|\+GMR", SimulatedModem._tell_revision),
    (r"\+CIER=([01]).*", SimulatedModem._set_indications),
    (r"\+CSQF?", SimulatedModem._tell_signal),
    (r"\+CULK\?", _tell_lock),
    (r"\+SBDMTA=([01])", SimulatedModem._set_ring_indications),
    (r"\+SBDST=([0-9]{1,3})", SimulatedModem._set_session_timeout),
    (r"\+SBDWB=([0-9]{1,4})", SimulatedModem._begin_write),
    (r"\+SBDRB", SimulatedModem._read),
    (r"\+SBDS(X?)", SimulatedModem._status),
    (r"\+SBDD([012])", SimulatedModem._clear),
    (r"\+SBDIX(A?)", SimulatedModem._begin_session),
)
