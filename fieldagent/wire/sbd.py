"""The host's side of the conversation with an Iridium 9602/9603, without I/O.

Names and sections are those of the ISU AT Command Reference. `receive_data` gets every byte from
the modem, and `next_event` returns the events. Unsolicited lines are recognised only outside binary
data, because a payload can contain anything, even a line `OK`.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError


class SessionVerdict(Enum):
    SENT = "sent"
    DOUBTFUL = "doubtful"
    """The message may have been sent. The next MOMSN shows whether it was."""
    NOT_SENT = "not sent"
    REFUSED = "refused"
    """This message can never be sent."""
    FAULT = "fault"
    """The modem or the account refuses to work."""


class MoStatus(NamedTuple):
    verdict: SessionVerdict
    description: str
    wait_s: float | None = None
    """Minimum seconds to wait if the network or the account needs a longer wait than the usual
    schedule; otherwise None."""
    bars_sos: bool = False
    """True if the wait also applies to an SOS, because the network itself requests it."""
    network_waits: bool = False
    """True if the modem can report the waiting time (+SBDLOE)."""


OPERATOR_BUSY = 900.0
FAULT_WAIT = 600.0
BARRED_WAIT_S = 180.0

MO_STATUS: dict[int, MoStatus] = {
    0: MoStatus(SessionVerdict.SENT, "sent"),
    1: MoStatus(SessionVerdict.SENT, "sent; the waiting MT message is too large for this modem"),
    2: MoStatus(SessionVerdict.SENT, "sent; the location update was not accepted"),
    3: MoStatus(SessionVerdict.SENT, "sent"),
    4: MoStatus(SessionVerdict.SENT, "sent"),
    10: MoStatus(SessionVerdict.DOUBTFUL, "the gateway did not end the call in time"),
    11: MoStatus(
        SessionVerdict.NOT_SENT, "the gateway's queue for this modem is full", OPERATOR_BUSY
    ),
    12: MoStatus(SessionVerdict.REFUSED, "the message has too many segments for the gateway"),
    13: MoStatus(SessionVerdict.DOUBTFUL, "the session did not complete"),
    14: MoStatus(SessionVerdict.REFUSED, "the gateway refused the segment size"),
    15: MoStatus(SessionVerdict.FAULT, "access is denied: is the account active?", FAULT_WAIT),
    16: MoStatus(SessionVerdict.FAULT, "the modem is locked: ask the operator", FAULT_WAIT),
    17: MoStatus(SessionVerdict.DOUBTFUL, "the gateway did not answer within the session's time"),
    18: MoStatus(SessionVerdict.DOUBTFUL, "the connection was lost"),
    19: MoStatus(SessionVerdict.DOUBTFUL, "the link failed"),
    32: MoStatus(SessionVerdict.NOT_SENT, "no network service"),
    33: MoStatus(SessionVerdict.FAULT, "the antenna fails: check its cable"),
    34: MoStatus(SessionVerdict.FAULT, "the radio is switched off"),
    35: MoStatus(SessionVerdict.NOT_SENT, "the modem is busy", network_waits=True),
    36: MoStatus(
        SessionVerdict.NOT_SENT, "the network asks to wait three minutes", BARRED_WAIT_S, True
    ),
    37: MoStatus(SessionVerdict.NOT_SENT, "the SBD service is temporarily disabled"),
    38: MoStatus(
        SessionVerdict.NOT_SENT, "the network is managing its traffic", network_waits=True
    ),
    64: MoStatus(SessionVerdict.FAULT, "a band violation: the modem is faulty"),
    65: MoStatus(SessionVerdict.FAULT, "the PLL is not locked: power or modem is faulty"),
}


def find_mo_status(status_number: int) -> MoStatus:
    """Return the meaning of an MO status number. A reserved number means that the message was not
    sent.
    """
    return MO_STATUS.get(status_number) or MoStatus(
        SessionVerdict.NOT_SENT, f"reserved MO status {status_number}"
    )


URGENT_WAIT_MAX_S = 60.0
_RETRY_SPREADS_S = (0.0, 5.0, 5.0, 30.0, 30.0)
"""Maximum random delay in seconds before each of the first five retries, as the maker recommends.
Each later retry follows after about five minutes."""
_STEADY_WAIT_S = 300.0


def compute_retry_wait(status: MoStatus, tries: int, random_share: float, *, urgent: bool) -> float:
    """Return the seconds until the next attempt after `tries` earlier attempts. `random_share` is a
    random number from 0 to 1, which spreads the attempts of many kits.

    An SOS waits at most a minute, because a fault of the kit, account or gateway may have been
    fixed by then. It waits longer only if the network itself requests this.
    """
    steady = _STEADY_WAIT_S * (0.75 + 0.5 * random_share)
    wait = _RETRY_SPREADS_S[tries] * random_share if tries < len(_RETRY_SPREADS_S) else steady
    least = status.wait_s
    if least is None and status.verdict is SessionVerdict.FAULT:
        least = FAULT_WAIT
    if urgent:
        wait = min(wait, URGENT_WAIT_MAX_S * (0.5 + 0.5 * random_share))
        least = least if status.bars_sos else None
    return wait if least is None else max(wait, least * (1 + 0.1 * random_share))


def compute_early_retry_wait(status: MoStatus, random_share: float) -> float:
    """Return the seconds until the next attempt if the network is available again, or if a person
    requests an attempt.
    """
    soon = _RETRY_SPREADS_S[1] * random_share
    return max(soon, status.wait_s or 0.0) if status.bars_sos else soon


MT_STATUS = {
    0: "no message waits",
    1: "a message came in",
    2: "the gateway could not tell whether a message waits",
}
"""Texts for people by the MT status of a session: the result of the mailbox check."""


MO_BYTES = 340
"""Maximum bytes of an MO message of the 9602/9603 (+SBDWB)."""
MT_BYTES = 270
"""Maximum bytes of an MT message of the 9602/9603 (+SBDRB)."""
READ_BYTES = 1_890
"""Maximum bytes of an MT message of the 9522/9523, whose messages can also be read."""
LINE_BYTES = 256
"""Maximum length of a line in bytes. A longer line is noise."""
MOMSN_MODULUS = 65_536

AT_PREFIX = "AT"
SETUP_COMMAND = "ATE0V1Q0&D0&K0"
"""Command that turns off the echo, makes the modem show results as text, and turns off DTR and flow
control, whatever the stored profile contains."""
SYSTEM_TIME = "AT-MSSTM"
SYSTEM_EPOCH = 1_739_556_857
"""Unix time of 2025-02-14T18:14:17Z, the epoch of the network's clock since January 2026."""
SYSTEM_TICK = 0.09
"""Unit of the network's clock in seconds."""
SERIAL_NUMBERS = ("AT+CGSN", "AT+GSN")
"""Queries for the IMEI. If the modem refuses the first command, the second command is sent."""
REVISION = "AT+CGMR"
SIGNAL = "AT+CSQF"
"""Query for the last measured bars, without a delay. AT+CSQ measures again, for up to a minute."""
LOCK = "AT+CULK?"
"""Query for a lock of all service. A 9602 has no SIM that could be locked."""
STATUS = "AT+SBDSX"
STATUS_SHORT = "AT+SBDS"
"""Status without rings and waiting messages, for firmware that does not know `STATUS`."""
READ_BINARY = "AT+SBDRB"
SESSION = "AT+SBDIX"
SESSION_ANSWERING_RING = "AT+SBDIXA"
CLEAR_MO = "AT+SBDD0"
CLEAR_MT = "AT+SBDD1"
TRAFFIC = "AT+SBDLOE"
"""Query for the seconds until the network accepts a session. Only a network that limits its traffic
has such a time."""


class LineSetting(NamedTuple):
    """A required setting. A modem may lose it without a report when its power fails for a
    moment.
    """

    command: str
    query: str
    answer_start: tuple[int, ...]
    """First numbers of the answer to the query while the setting is active."""


RING_ALERT_SETTING = LineSetting("AT+SBDMTA=1", "AT+SBDMTA?", (1,))
INDICATOR_SETTING = LineSetting("AT+CIER=1,1,1", "AT+CIER?", (1, 1, 1))
REGISTRATION = LineSetting("AT+SBDAREG=1", "AT+SBDAREG?", (1,))
"""Setting with which the modem registers again after it was moved far. Without this setting, the
network sends ring alerts to the old position."""


def make_session_timeout(seconds: int) -> str:
    """Return the command that sets the modem's own limit of a session (+SBDST), in seconds. A
    session that exceeds it ends with MO status 17.
    """
    return f"AT+SBDST={seconds}"


def make_write_command(size: int) -> str:
    """Return the command that announces an MO message of `size` bytes, without its checksum."""
    return f"AT+SBDWB={size}"


class WriteResult(Enum):
    """Result of +SBDWB after the payload."""

    STORED = 0
    TIMEOUT = 1
    """Within 60 s, fewer bytes arrived than announced. No OK follows."""
    WRONG_SUM = 2
    WRONG_SIZE = 3


@dataclass(frozen=True, slots=True)
class ModemReply:
    """Final result of a command, and the lines before the result."""

    ok: bool
    lines: tuple[str, ...] = ()
    is_echoed: bool = False
    """True if the modem echoed the command. A modem echoes commands after each reset, until the
    host turns the echo off."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The modem waits for the payload of +SBDWB and its checksum."""


@dataclass(frozen=True, slots=True)
class MobileTerminatedMessage:
    """Result of +SBDRB. `intact` is False if the checksum is wrong. A ModemReply follows."""

    body: bytes
    intact: bool
    guard: int | None = None
    """Checksum that followed a damaged message. None if the end of the message is missing."""


@dataclass(frozen=True, slots=True)
class RingAlert:
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
SbdEvent = ModemReply | Ready | MobileTerminatedMessage | RingAlert | Signal | Service

_INDICATION = re.compile(r"\+CIEV\s*:\s*([01])\s*,\s*([0-5])")
_UNSOLICITED = re.compile(r"SBDRING|\+CIEV\s*:.*|\+AREG\s*:.*|\+CREG\s*:.*")
_AFTER_BINARY = b"\r\nOK"
_LONGEST_HEAD = 0x09
"""The first byte of a payload's length is always below this value, and the first byte of a line
never is."""


class _State(Enum):
    IDLE = auto()
    AWAITING_RESULT = auto()
    AWAITING_PAYLOAD = auto()
    """The modem has answered +SBDWB with READY, but the payload has not been sent yet."""
    AWAITING_WRITE_RESULT = auto()
    AWAITING_BINARY = auto()
    """+SBDRB was sent. Lines may arrive before the binary data."""


class Conversation:
    """State of the conversation with one modem. After the port is reopened, a new object is
    needed.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._state = _State.IDLE
        self._command = ""
        self._lines: list[str] = []
        self._echoed = False
        self._drop_line = False

    def send(self, command: str) -> bytes:
        """Begin a command, and return its bytes. A ModemReply or a Ready ends the command. Raises
        LocalProtocolError if another command has not ended.
        """
        if self._state is not _State.IDLE:
            raise LocalProtocolError(f"{command} while {self._command} has not ended")
        self._command = command
        self._lines = []
        self._echoed = False
        reads = command == READ_BINARY
        self._state = _State.AWAITING_BINARY if reads else _State.AWAITING_RESULT
        return command.encode("ascii") + b"\r"

    def send_payload(self, body: bytes) -> bytes:
        """Return the MO message and its checksum, after +SBDWB is Ready. Raises LocalProtocolError
        if the modem does not wait for a payload.
        """
        if self._state is not _State.AWAITING_PAYLOAD:
            raise LocalProtocolError("the modem has not asked for a payload")
        self._state = _State.AWAITING_WRITE_RESULT
        return body + compute_checksum(body)

    def abandon_command(self) -> MobileTerminatedMessage | None:
        """Stop waiting for an incomplete or missing reply. Bytes that arrive later belong to no
        command. If a message was being read, return its incomplete content.
        """
        has_begun = self._state is _State.AWAITING_BINARY and self._buffer[:1] < bytes(
            [_LONGEST_HEAD]
        )
        cut = bytes(self._buffer[2:]) if has_begun else b""
        if has_begun:
            self._buffer.clear()
        self._state = _State.IDLE
        self._lines = []
        return MobileTerminatedMessage(cut, intact=False) if cut else None

    def receive_data(self, data: bytes) -> None:
        """Add bytes from the modem, which may be split anywhere. `next_event` returns their
        events.
        """
        self._buffer += data

    @property
    def unread(self) -> int:
        """Return the number of received bytes that are not yet part of an event."""
        return len(self._buffer)

    def next_event(self) -> SbdEvent | NeedData:
        """Return the next event from the modem, or NEED_DATA until more bytes arrive."""
        while self._buffer:
            if self._state is _State.AWAITING_BINARY:
                self._skip_line_ends()
                if self._buffer and self._buffer[0] < _LONGEST_HEAD:
                    return self._read_binary()
            line = self._read_next_line()
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
        """Read a message. NUL bytes may precede the message on the line, so its checksum shows
        where the message starts. An empty message is recognised by the bytes after it.
        """
        buffer = self._buffer
        payload, binary_end, intact, guard = b"", 2, False, None
        for frame_start in range(len(buffer)):
            size = int.from_bytes(buffer[frame_start : frame_start + 2])
            if (
                size > (MT_BYTES if frame_start else READ_BYTES)
                or intact
                or any(buffer[:frame_start])
            ):
                break
            end = frame_start + 2 + size + 2
            follows = b"" if size else _AFTER_BINARY
            if len(buffer) < end + len(follows):
                return NEED_DATA
            payload, binary_end = bytes(buffer[frame_start + 2 : end - 2]), end
            guard = int.from_bytes(buffer[end - 2 : end])
            intact = buffer.startswith(compute_checksum(payload) + follows, end - 2)
        del buffer[:binary_end]
        self._state = _State.AWAITING_RESULT
        return MobileTerminatedMessage(payload, intact, None if intact else guard)

    def _read_next_line(self) -> str | None:
        """Return the next line without its end. A line that is too long is dropped."""
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
            return _read_unsolicited(line)
        if self._state is _State.IDLE:
            return None
        if line == self._command:
            self._echoed = True
            return None
        asks_to_write = self._state is _State.AWAITING_RESULT and "+SBDWB=" in self._command
        # Treat a repeated READY as an ordinary line, because the payload is sent only once.
        if line == "READY" and asks_to_write:
            self._state = _State.AWAITING_PAYLOAD
            return Ready()
        if self._state is _State.AWAITING_WRITE_RESULT and line == "1":
            return self._end(False, line)
        if line in ("OK", "ERROR"):
            return self._end(line == "OK")
        self._lines.append(line)
        return None

    def _end(self, is_ok: bool, *last: str) -> ModemReply:
        self._state = _State.IDLE
        return ModemReply(is_ok, (*self._lines, *last), self._echoed)


def _read_unsolicited(line: str) -> SbdEvent | None:
    if line == "SBDRING":
        return RingAlert()
    match = _INDICATION.fullmatch(line)
    if match is None:
        return None
    indicator, value = match[1], int(match[2])
    return Signal(value) if indicator == "0" else Service(value == 1)


def compute_checksum(body: bytes) -> bytes:
    """Return the least significant two bytes of the sum of all bytes, big-endian (+SBDWB)."""
    return (sum(body) & 0xFFFF).to_bytes(2)


def check_mo(body: bytes) -> None:
    """Check an MO message. Raises LocalProtocolError if the modem must not send it."""
    if not 1 <= len(body) <= MO_BYTES:
        raise LocalProtocolError(f"an MO message has 1 to {MO_BYTES} bytes, this one {len(body)}")
    if re.match(rb"RB[0-9]{7}", body):
        raise LocalProtocolError("RB and seven digits would route it to another RockBLOCK")


@dataclass(frozen=True, slots=True)
class SessionResult:
    """Result of a session with the gateway, the six numbers of the answer to +SBDIX."""

    mo_status: int
    momsn: int
    mt_status: int
    """0 if no message waits, 1 if a message was received, 2 if an error occurred during the
    check."""
    mtmsn: int
    mt_length: int
    queued: int
    """Number of further messages that wait at the gateway."""


@dataclass(frozen=True, slots=True)
class BufferStatus:
    """Status of the modem's two message buffers, from the answer to +SBDSX."""

    mo_flag: int
    momsn: int
    """Number of the next MO message."""
    mt_flag: int
    """1 while a message in the modem has not been cleared."""
    mtmsn: int
    ring_flag: int
    """1 while a ring alert has not been answered. The flag survives power cycles."""
    waiting: int


def parse_session(reply: ModemReply) -> SessionResult:
    """Parse the result of a session. If the firmware leaves out the number of waiting messages, the
    result contains 0. Raises RemoteProtocolError if the reply contains no result.
    """
    numbers = _read_numbers(reply, "+SBDIX", r"\+SBDIXA?", 5)
    return SessionResult(*numbers, *[0] * (6 - len(numbers)))


def parse_status(reply: ModemReply) -> BufferStatus:
    """Parse the answer to +SBDSX, or to +SBDS, which does not contain rings. Raises
    RemoteProtocolError if the reply has another form.
    """
    numbers = _read_numbers(reply, "+SBDSX", r"\+SBDSX?", 4)
    return BufferStatus(*numbers, *[0] * (6 - len(numbers)))


def parse_write(reply: ModemReply) -> WriteResult:
    """Parse the result of a +SBDWB after its payload. Raises RemoteProtocolError if the reply
    contains no result.
    """
    for line in reversed(reply.lines):
        if line in ("0", "1", "2", "3"):
            return WriteResult(int(line))
    raise RemoteProtocolError(f"+SBDWB was answered {_show_answer(reply)}")


def parse_serial_number(reply: ModemReply) -> str:
    """Return the IMEI, 15 digits. Raises RemoteProtocolError if there is none."""
    for line in reply.lines:
        if re.fullmatch(r"[0-9]{15}", line):
            return line
    raise RemoteProtocolError(f"+CGSN was answered {_show_answer(reply)}, which is not an IMEI")


def parse_system_time(reply: ModemReply) -> float | None:
    """Return the network's time as Unix time, or None if the modem has not received it yet."""
    for line in reply.lines:
        if match := re.fullmatch(r"-MSSTM: ?([0-9a-fA-F]{1,8})", line):
            return SYSTEM_EPOCH + int(match[1], 16) * SYSTEM_TICK
    return None


def parse_numbers(reply: ModemReply) -> tuple[int, ...]:
    """Return the numbers of the first line of the form `+CIER:1,1,0`, or an empty tuple if there is
    no such line.
    """
    for line in reply.lines:
        if re.fullmatch(r"\+[A-Z]+\s*:\s*[0-9]{1,5}(?:\s*,\s*[0-9]{1,5})*", line):
            return tuple(int(digits) for digits in re.findall(r"[0-9]+", line))
    return ()


def parse_number(reply: ModemReply) -> int | None:
    """Return the first number of a line such as `+CSQF:4`, or None if there is none."""
    return next(iter(parse_numbers(reply)), None)


def parse_traffic(reply: ModemReply) -> int | None:
    """Return the seconds after which a session may be tried (+SBDLOE), or None if the modem does
    not report them.
    """
    numbers = parse_numbers(reply)
    return numbers[1] if len(numbers) == 2 and numbers[0] == 0 else None


def _read_numbers(reply: ModemReply, name: str, pattern: str, minimum: int) -> list[int]:
    """Return `minimum` to six numbers of the answer. Raises RemoteProtocolError if the answer has
    another form.
    """
    number = r"\s*(-?[0-9]{1,9})\s*"
    shape = re.compile(rf"{pattern}\s*:{number}(?:,{number}){{{minimum - 1},5}}")
    for line in reply.lines:
        if shape.fullmatch(line):
            return [int(digits) for digits in re.findall(r"-?[0-9]+", line.partition(":")[2])]
    raise RemoteProtocolError(f"{name} was answered {_show_answer(reply)}")


def _show_answer(reply: ModemReply) -> str:
    """Return the modem's reply as a text for people."""
    return " ".join(repr(line) for line in (*reply.lines, "OK" if reply.ok else "ERROR"))
