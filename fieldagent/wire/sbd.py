"""The conversation with an Iridium 9602/9603: the host's side, byte by byte, without I/O.

Names and sections are those of the ISU AT Command Reference. Two rules: every byte from the modem
enters through `receive_data`, and every event leaves through `next_event`. Unsolicited lines are
recognised outside binary windows only: a payload may hold anything, `OK` on a line included.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError

MO_BYTES = 340
"""Longest MO message of the 9602/9603 (+SBDWB)."""
MT_BYTES = 270
"""Longest MT message of the 9602/9603 (+SBDRB)."""
READ_BYTES = 1_890
"""Longest MT message of the 9522/9523, which is read too."""
LINE_BYTES = 256
"""A longer line is noise."""
MOMSN_MODULUS = 65_536

AT = "AT"
SET_UP = "ATE0V1Q0&D0&K0"
"""No echo, results in words and not held back, DTR and flow control ignored: whatever is stored."""
SYSTEM_TIME = "AT-MSSTM"
SYSTEM_EPOCH = 1_739_556_857
"""2025-02-14T18:14:17Z, in Unix time: the zero of the network's clock since January 2026."""
SYSTEM_TICK = 0.09
"""Seconds."""
SERIAL_NUMBERS = ("AT+CGSN", "AT+GSN")
"""Where the first is refused the second is asked."""
REVISION = "AT+CGMR"
SIGNAL = "AT+CSQF"
"""The bars seen last, at once; AT+CSQ looks for them anew, for up to a minute."""
LOCK = "AT+CULK?"
"""Whether the modem is locked to all service: a 9602 has no SIM that could be."""
STATUS = "AT+SBDSX"
STATUS_SHORT = "AT+SBDS"
"""Without rings and what waits, for firmware that does not know the other."""
READ_BINARY = "AT+SBDRB"
SESSION = "AT+SBDIX"
SESSION_ANSWERING_RING = "AT+SBDIXA"
CLEAR_MO = "AT+SBDD0"
CLEAR_MT = "AT+SBDD1"
TRAFFIC = "AT+SBDLOE"
"""After how many seconds the network takes a session again, where it manages its traffic."""


class LineSetting(NamedTuple):
    """A setting that must stand, and that a modem whose power dips may lose without a sign."""

    command: str
    query: str
    shows: tuple[int, ...]
    """How the answer to the query begins while it stands."""


RINGS = LineSetting("AT+SBDMTA=1", "AT+SBDMTA?", (1,))
SIGNAL_AND_SERVICE = LineSetting("AT+CIER=1,1,1", "AT+CIER?", (1, 1, 1))
REGISTRATION = LineSetting("AT+SBDAREG=1", "AT+SBDAREG?", (1,))
"""The modem registers anew where it was carried far: otherwise rings go to where it was."""


def session_timeout(seconds: int) -> str:
    """Return the command that sets the modem's own bound on a session (+SBDST), in seconds; a
    session that hits it ends with 17."""
    return f"AT+SBDST={seconds}"


def write_binary(size: int) -> str:
    """Return the command that announces an MO message of `size` bytes, its checksum not counted."""
    return f"AT+SBDWB={size}"


class WriteResult(Enum):
    """What +SBDWB answers after the payload."""

    STORED = 0
    TIMEOUT = 1
    """Fewer bytes than announced came within 60 s; no OK follows."""
    WRONG_SUM = 2
    WRONG_SIZE = 3


@dataclass(frozen=True, slots=True)
class ModemReply:
    """A command's final result, with the lines before it."""

    ok: bool
    lines: tuple[str, ...] = ()
    echoed: bool = False
    """The modem echoed the command: it does so after a reset, until told not to."""


@dataclass(frozen=True, slots=True)
class Ready:
    """+SBDWB waits for the payload and its sum."""


@dataclass(frozen=True, slots=True)
class MobileTerminated:
    """What +SBDRB read; `intact` is False when the sum is wrong. A Reply follows."""

    body: bytes
    intact: bool
    guard: int | None = None
    """Of one that is not intact: the sum that stood behind it; None where its end lacks."""


@dataclass(frozen=True, slots=True)
class Ring:
    """SBDRING: a message waits for this modem."""


@dataclass(frozen=True, slots=True)
class Signal:
    bars: int


@dataclass(frozen=True, slots=True)
class Service:
    available: bool


class NeedData(Enum):
    NEED_DATA = auto()


NEED_DATA = NeedData.NEED_DATA
SbdEvent = ModemReply | Ready | MobileTerminated | Ring | Signal | Service

_INDICATION = re.compile(r"\+CIEV\s*:\s*([01])\s*,\s*([0-5])")
_UNSOLICITED = re.compile(r"SBDRING|\+CIEV\s*:.*|\+AREG\s*:.*|\+CREG\s*:.*")
_AFTER_BINARY = b"\r\nOK"
_LONGEST_HEAD = 0x09
"""A payload's length starts with a byte below this; a line's first character lies above."""


class _State(Enum):
    IDLE = auto()
    AWAITING_RESULT = auto()
    AWAITING_PAYLOAD = auto()
    """+SBDWB said READY; the payload has not been given yet."""
    AWAITING_WRITE_RESULT = auto()
    AWAITING_BINARY = auto()
    """+SBDRB was asked; lines may come before the binary window opens."""


class Conversation:
    """One modem's lines. A new one is needed after the port was opened anew."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._state = _State.IDLE
        self._command = ""
        self._lines: list[str] = []
        self._echoed = False
        self._drop_line = False

    def send(self, command: str) -> bytes:
        """Return the bytes that ask this; a Reply (or Ready) ends it."""
        if self._state is not _State.IDLE:
            raise LocalProtocolError(f"{command} while {self._command} has not ended")
        self._command = command
        self._lines = []
        self._echoed = False
        reads = command == READ_BINARY
        self._state = _State.AWAITING_BINARY if reads else _State.AWAITING_RESULT
        return command.encode("ascii") + b"\r"

    def send_payload(self, body: bytes) -> bytes:
        """Return the MO message and its sum, once +SBDWB is Ready."""
        if self._state is not _State.AWAITING_PAYLOAD:
            raise LocalProtocolError("the modem has not asked for a payload")
        self._state = _State.AWAITING_WRITE_RESULT
        return body + checksum(body)

    def give_up(self) -> MobileTerminated | None:
        """Give up waiting: no answer came, or not all of it, and whatever comes late belongs to no
        command. Return what there is of a message that was read."""
        begun = self._state is _State.AWAITING_BINARY and self._buffer[:1] < bytes([_LONGEST_HEAD])
        cut = bytes(self._buffer[2:]) if begun else b""
        if begun:
            self._buffer.clear()
        self._state = _State.IDLE
        self._lines = []
        return MobileTerminated(cut, intact=False) if cut else None

    def receive_data(self, data: bytes) -> None:
        """Take in the modem's bytes, cut anywhere; `next_event` yields what they say."""
        self._buffer += data

    @property
    def unread(self) -> int:
        """Return how many bytes have come that are no event yet."""
        return len(self._buffer)

    def next_event(self) -> SbdEvent | NeedData:
        """Return the next thing that the modem said, or NEED_DATA until more has been received."""
        while self._buffer:
            if self._state is _State.AWAITING_BINARY:
                self._skip_line_ends()
                if self._buffer and self._buffer[0] < _LONGEST_HEAD:
                    return self._read_binary()
            line = self._next_line()
            if line is None:
                return NEED_DATA
            event = self._read_line(line)
            if event is not None:
                return event
        return NEED_DATA

    def _skip_line_ends(self) -> None:
        while self._buffer and self._buffer[0] in b"\r\n":
            del self._buffer[0]

    def _read_binary(self) -> SbdEvent | NeedData:
        """NULs that stand on the line before a message are no part of its length: its sum shows
        where it begins. Of an empty one the sum shows nothing, and what follows it does."""
        buffer = self._buffer
        payload, ended, intact, guard = b"", 2, False, None
        for begins in range(len(buffer)):
            size = int.from_bytes(buffer[begins : begins + 2])
            if size > (MT_BYTES if begins else READ_BYTES) or intact or any(buffer[:begins]):
                break
            end = begins + 2 + size + 2
            follows = b"" if size else _AFTER_BINARY
            if len(buffer) < end + len(follows):
                return NEED_DATA
            payload, ended = bytes(buffer[begins + 2 : end - 2]), end
            guard = int.from_bytes(buffer[end - 2 : end])
            intact = buffer.startswith(checksum(payload) + follows, end - 2)
        del buffer[:ended]
        self._state = _State.AWAITING_RESULT
        return MobileTerminated(payload, intact, None if intact else guard)

    def _next_line(self) -> str | None:
        """The next line without its end; an overlong one is dropped up to its end."""
        for end, byte in enumerate(self._buffer):
            if byte in b"\r\n":
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                dropped, self._drop_line = self._drop_line, False
                return "" if dropped else line.decode("ascii", "replace").strip(" \0")
        if len(self._buffer) > LINE_BYTES:
            self._buffer.clear()
            self._drop_line = True
        return None

    def _read_line(self, line: str) -> SbdEvent | None:
        if not line:
            return None
        if _UNSOLICITED.fullmatch(line):
            return _unsolicited(line)
        if self._state is _State.IDLE:
            return None
        if line == self._command:
            self._echoed = True
            return None
        asks_to_write = self._state is _State.AWAITING_RESULT and "+SBDWB=" in self._command
        # Said twice, it is a line like others: the payload goes once.
        if line == "READY" and asks_to_write:
            self._state = _State.AWAITING_PAYLOAD
            return Ready()
        if self._state is _State.AWAITING_WRITE_RESULT and line == "1":
            return self._end(False, line)
        if line in ("OK", "ERROR"):
            return self._end(line == "OK")
        self._lines.append(line)
        return None

    def _end(self, ok: bool, *last: str) -> ModemReply:
        self._state = _State.IDLE
        return ModemReply(ok, (*self._lines, *last), self._echoed)


def _unsolicited(line: str) -> SbdEvent | None:
    if line == "SBDRING":
        return Ring()
    match = _INDICATION.fullmatch(line)
    if match is None:
        return None
    which, value = match[1], int(match[2])
    return Signal(value) if which == "0" else Service(value == 1)


def checksum(body: bytes) -> bytes:
    """Return the least significant two bytes of the sum of all bytes, the higher first (+SBDWB)."""
    return (sum(body) & 0xFFFF).to_bytes(2)


def check_mo(body: bytes) -> None:
    """Check an MO message. Raises LocalProtocolError for what must not be given to the modem."""
    if not 1 <= len(body) <= MO_BYTES:
        raise LocalProtocolError(f"an MO message has 1 to {MO_BYTES} bytes, this one {len(body)}")
    if re.match(rb"RB[0-9]{7}", body):
        raise LocalProtocolError("RB and seven digits would route it to another RockBLOCK")


@dataclass(frozen=True, slots=True)
class SessionResult:
    """+SBDIX: how a session ended."""

    mo_status: int
    momsn: int
    mt_status: int
    """0 no message, 1 one was received, 2 an error while checking."""
    mtmsn: int
    mt_length: int
    queued: int
    """How many more wait at the gateway."""


@dataclass(frozen=True, slots=True)
class BufferStatus:
    """+SBDSX."""

    mo_flag: int
    momsn: int
    """The number that the next MO message will get."""
    mt_flag: int
    """1 while a message in the modem has not been cleared."""
    mtmsn: int
    ring_flag: int
    """1 while a ring has not been answered; survives power cycles."""
    waiting: int


def parse_session(reply: ModemReply) -> SessionResult:
    """Parse the result of a session; 0 wait where the firmware leaves out how many, as some
    does."""
    numbers = _numbers(reply, "+SBDIX", r"\+SBDIXA?", 5)
    return SessionResult(*numbers, *[0] * (6 - len(numbers)))


def parse_status(reply: ModemReply) -> BufferStatus:
    """Read the answer to +SBDSX, or to +SBDS, which tells of no ring."""
    numbers = _numbers(reply, "+SBDSX", r"\+SBDSX?", 4)
    return BufferStatus(*numbers, *[0] * (6 - len(numbers)))


def parse_write(reply: ModemReply) -> WriteResult:
    """Return what the modem says of a payload that it was given by +SBDWB. Raises
    RemoteProtocolError."""
    for line in reversed(reply.lines):
        if line in ("0", "1", "2", "3"):
            return WriteResult(int(line))
    raise RemoteProtocolError(f"+SBDWB was answered {_shown(reply)}")


def parse_serial_number(reply: ModemReply) -> str:
    """Return the IMEI: 15 digits. Raises RemoteProtocolError where there is none."""
    for line in reply.lines:
        if re.fullmatch(r"[0-9]{15}", line):
            return line
    raise RemoteProtocolError(f"+CGSN was answered {_shown(reply)}, which is no IMEI")


def parse_system_time(reply: ModemReply) -> float | None:
    """Return Unix time; None where the modem has not heard the network yet."""
    for line in reply.lines:
        if match := re.fullmatch(r"-MSSTM: ?([0-9a-fA-F]{1,8})", line):
            return SYSTEM_EPOCH + int(match[1], 16) * SYSTEM_TICK
    return None


def parse_numbers(reply: ModemReply) -> tuple[int, ...]:
    """Return the numbers of the first line of the form `+CIER:1,1,0`; none where none is."""
    for line in reply.lines:
        if re.fullmatch(r"\+[A-Z]+\s*:\s*[0-9]{1,5}(?:\s*,\s*[0-9]{1,5})*", line):
            return tuple(int(digits) for digits in re.findall(r"[0-9]+", line))
    return ()


def parse_number(reply: ModemReply) -> int | None:
    """Return the number that a line of the form `+CSQF:4` tells; None where none does."""
    return next(iter(parse_numbers(reply)), None)


def parse_traffic(reply: ModemReply) -> int | None:
    """Return after how many seconds a session may be tried (+SBDLOE); None where it tells none."""
    numbers = parse_numbers(reply)
    return numbers[1] if len(numbers) == 2 and numbers[0] == 0 else None


def _numbers(reply: ModemReply, name: str, pattern: str, least: int) -> list[int]:
    """From `least` to six of them."""
    number = r"\s*(-?[0-9]{1,9})\s*"
    shape = re.compile(rf"{pattern}\s*:{number}(?:,{number}){{{least - 1},5}}")
    for line in reply.lines:
        if shape.fullmatch(line):
            return [int(digits) for digits in re.findall(r"-?[0-9]+", line.partition(":")[2])]
    raise RemoteProtocolError(f"{name} was answered {_shown(reply)}")


def _shown(reply: ModemReply) -> str:
    """Return what the modem answered, for people."""
    return " ".join(repr(line) for line in (*reply.lines, "OK" if reply.ok else "ERROR"))
