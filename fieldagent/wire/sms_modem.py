"""The conversation with a GSM modem about text messages: the host's side, without I/O.

Commands are those of 3GPP TS 27.005 (PDU mode) and 27.007. One command is under way at a time. The
rules, with what the caller does:

1. `command` returns bytes to write; `next_event` then yields its `GsmReply`, and NEED_DATA before.
2. `submit` asks for the prompt; at `Prompt` the caller writes what `pdu` returns, which ends in
   Ctrl-Z. From then on the message may have left, whatever is answered or not: a time-out, a reply
   that cannot be read and an error that says nothing are DOUBTFUL (`judge`).
3. `LEAVE_PROMPT` is written where a prompt must be left before its PDU, and ahead of the set-up:
   whoever was here before may have left one.
4. Lines that nobody asked for (`PlaceFilled`) come between; inside a reply they are told from it.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import sms_pdu
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Deliver, StatusReport, Submit

AT = "AT"
FIRST = ("ATE0", "AT+CMEE=1")
"""No echo, and errors as numbers: what works without a SIM, too."""
PIN = "AT+CPIN?"
PDU_MODE = "AT+CMGF=0"
TELLS = "AT+CNMI=2,1,0,1,0"
"""A line for each arrival, which goes to the store."""
STORES = ("ME", "SM", "MT")
"""Where messages may be kept, as `store_in` takes them: not every modem has the first."""
NETWORK = "AT+CREG?"
SIGNAL = "AT+CSQ"
SERIAL_NUMBER = "AT+CGSN"
LIST_ALL = "AT+CMGL=4"
STORE = "AT+CPMS?"
LINE_BYTES = 1_024
"""A longer line is noise: a PDU has at most 176 octets."""
LEAVE_PROMPT = b"\x1b"
SEND_SECONDS = 120.0
"""That the network may take for one message (TS 27.005, 3.5.1)."""

_REFERENCE = re.compile(r"\+CMGS: ?([0-9]{1,3})(?:,.*)?")
_LISTED = re.compile(r"\+CMGL: ?([0-9]{1,5}),([0-9]),[^,]*,([0-9]{1,3})")
_FILLED = re.compile(r'\+CPMS: ?"[A-Z]+",([0-9]{1,5}),([0-9]{1,5})')
_ERROR = re.compile(r"\+CM[SE] ERROR: ?([0-9]{1,4})")
_ARRIVED = re.compile(r'\+C(?:MT|DS)I: ?"[A-Z]+",([0-9]{1,5})')
_NETWORK = re.compile(r"\+CREG: ?[0-9],([0-9]{1,2})(?:,.*)?")
_SIGNAL = re.compile(r"\+CSQ: ?([0-9]{1,2}),[0-9]{1,2}")
_PIN = re.compile(r"\+CPIN: ?(.+)")
_FINAL = ("OK", "ERROR")


def store_in(name: str) -> str:
    """Return the command that keeps all messages in this store."""
    return f'AT+CPMS="{name}","{name}","{name}"'


def unlock(pin: str) -> str:
    """Return the command that gives the SIM its PIN; wrong ones lock it (TS 27.007, 8.3)."""
    return f'AT+CPIN="{pin}"'


def delete(place: int) -> str:
    """Return the command that deletes the message at a place (TS 27.005, 3.5.4)."""
    return f"AT+CMGD={place}"


class GsmReply(NamedTuple):
    ok: bool
    lines: tuple[str, ...] = ()
    error: int | None = None
    """The number of a +CMS or +CME ERROR."""


class Prompt(NamedTuple):
    """The modem waits for the PDU."""


class PlaceFilled(NamedTuple):
    """A message, or a report, lies at this place."""

    place: int


class NeedMore(Enum):
    NEED_MORE = auto()


NEED_MORE = NeedMore.NEED_MORE
GsmEvent = GsmReply | Prompt | PlaceFilled


class GsmConversation:
    """`receive_data` takes the modem's bytes, `next_event` yields what they say."""

    def __init__(self) -> None:
        self._input = bytearray()
        self._lines: list[str] = []
        self._under_way = ""
        self._prompts = False

    def command(self, text: str) -> bytes:
        """Return the bytes of a command. Raises LocalProtocolError while another is under way."""
        if self._under_way:
            raise LocalProtocolError(f"{self._under_way} is under way")
        self._under_way, self._lines = text, []
        return text.encode("ascii") + b"\r"

    def submit(self, message: Submit) -> bytes:
        """Ask for the prompt. Raises LocalProtocolError."""
        asked = self.command(f"AT+CMGS={len(sms_pdu.encode(message)) - 1}")
        self._prompts = True
        return asked

    def pdu(self, message: Submit) -> bytes:
        """Return what is written at the prompt. Raises LocalProtocolError where there is none."""
        if not self._under_way.startswith("AT+CMGS=") or self._prompts:
            raise LocalProtocolError("there is no prompt")
        return sms_pdu.encode(message).hex().upper().encode() + b"\x1a"

    def give_up(self) -> None:
        """Give up: no reply came in time, and whatever comes of it later is noise."""
        self._under_way, self._prompts, self._lines = "", False, []

    def receive_data(self, data: bytes) -> None:
        """Take in the modem's bytes, cut anywhere; `next_event` yields what they say."""
        self._input += data

    def next_event(self) -> GsmEvent | NeedMore:
        """Return the next thing that the modem said, or NEED_MORE. A line without end, longer than
        `LINE_BYTES`, is thrown away."""
        while True:
            if self._prompts and self._input.lstrip(b"\r\n").startswith(b">"):
                del self._input[: self._input.index(b">") + 1]
                self._prompts = False
                return Prompt()
            end = self._input.find(b"\n")
            if end < 0:
                if len(self._input) > LINE_BYTES:
                    self._input.clear()
                return NEED_MORE
            line = bytes(self._input[:end]).decode("ascii", "replace").strip()
            del self._input[: end + 1]
            if line and (event := self._take_line(line)) is not None:
                return event

    def _take_line(self, line: str) -> GsmEvent | None:
        if arrived := _ARRIVED.fullmatch(line):
            return PlaceFilled(int(arrived[1]))
        if not self._under_way or line == self._under_way:
            return None  # noise, or its echo
        failed = _ERROR.fullmatch(line)
        if line not in _FINAL and failed is None:
            self._lines.append(line)
            return None
        reply = GsmReply(line == "OK", tuple(self._lines), int(failed[1]) if failed else None)
        self.give_up()
        return reply


# What replies say.


class Sent(NamedTuple):
    """How a message that was written at the prompt ended."""

    outcome: Outcome
    reference: int | None = None
    """By which a report names it: the mobile network has it."""
    reason: str = ""
    final: bool = False
    """The same message is refused again."""


_REFUSED_FOR_GOOD = {
    1: "the number is assigned to nobody",
    8: "the operator bars SMS",
    10: "the SIM may not send SMS",
    21: "the network refuses the SMS",
    28: "the number is unknown",
    29: "the SIM is not registered",
    30: "the network does not know the SIM",
    50: "the SIM has no SMS subscribed",
    304: "the modem refuses the PDU",
    305: "the modem refuses the text",
}
_SIM = {
    310: "no SIM is inserted",
    311: "the SIM wants its PIN",
    312: "the telephone wants its PIN",
    313: "the SIM failed",
    314: "the SIM is busy",
    315: "the SIM is wrong",
    316: "the SIM wants its PUK",
    317: "the SIM wants its PIN 2",
    318: "the SIM wants its PUK 2",
}
_NOT_NOW = {
    38: "the network is out of order",
    41: "the network has a fault for a moment",
    42: "the network is congested",
    47: "the network has no resources",
    302: "the modem does not allow it now",
    322: "the memory of the SIM is full",
    331: "there is no network",
    332: "the network does not answer",
    512: "the modem could not send it",
}
"""+CMS ERROR by number (TS 27.005, 3.2.5; 24.011, E.2). 500 says nothing."""


def judge(reply: GsmReply | None) -> Sent:
    """Return how a submission ended by its reply; None is that none came in time."""
    if reply is None:
        return Sent(Outcome.DOUBTFUL, reason="the modem answered nothing to an SMS that it had")
    if reply.ok:
        match = next((each for line in reply.lines if (each := _REFERENCE.fullmatch(line))), None)
        if match is None:
            said = " ".join(reply.lines)[:60]
            return Sent(Outcome.DOUBTFUL, reason=f"the modem's answer cannot be read: {said!r}")
        return Sent(Outcome.SENT, int(match[1]) % 256)
    code = reply.error
    if code is not None and code in _REFUSED_FOR_GOOD:
        return Sent(Outcome.NOT_SENT, None, f"{_REFUSED_FOR_GOOD[code]} ({code})", True)
    if code is not None and (known := _SIM.get(code) or _NOT_NOW.get(code)):
        return Sent(Outcome.NOT_SENT, None, f"{known} ({code})")
    shown = "ERROR" if code is None else f"error {code}"
    return Sent(Outcome.DOUBTFUL, reason=f"the modem says {shown}, which may be after it left")


class Stored(NamedTuple):
    """A message at a place of the store."""

    place: int
    message: Submit | Deliver | StatusReport | None
    """None where it cannot be read."""
    fault: str = ""
    text: str = ""
    """What the modem shows in its stead."""


def listed(reply: GsmReply) -> list[Stored]:
    """Return what +CMGL listed, in its order."""
    messages, lines = [], iter(reply.lines)
    for line in lines:
        head = _LISTED.fullmatch(line)
        if head is not None:
            messages.append(_stored(int(head[1]), next(lines, "")))
    return messages


def _stored(place: int, text: str) -> Stored:
    try:
        return Stored(place, sms_pdu.decode(bytes.fromhex(text)))
    except ValueError:
        return Stored(place, None, "the modem shows no PDU", text)
    except RemoteProtocolError as error:
        return Stored(place, None, str(error), text)


def filled(reply: GsmReply) -> tuple[int, int] | None:
    """Return how many places of the store are taken, and how many there are: one that is full
    receives nothing more, and says nothing of it."""
    for line in reply.lines:
        if match := _FILLED.match(line):
            return int(match[1]), int(match[2])
    return None


def locked(reply: GsmReply) -> str:
    """Return what the SIM wants before it works, for people: empty where it wants nothing. Raises
    RemoteProtocolError where the reply says nothing of it."""
    for line in reply.lines:
        if match := _PIN.fullmatch(line):
            return "" if match[1] == "READY" else match[1]
    known = _ME_SIM.get(reply.error or 0)
    if known is None:
        raise RemoteProtocolError("the modem does not say whether its SIM wants a PIN")
    return known


_ME_SIM = {
    10: "no SIM is inserted",
    11: "SIM PIN",
    12: "SIM PUK",
    13: "the SIM failed",
    15: "the SIM is wrong",
}
"""+CME ERROR by number (TS 27.007, 9.2.1)."""
SIM_BUSY = (14,)
"""The same of a SIM that has not looked at what it was told."""


def registered(reply: GsmReply) -> bool:
    """Return whether a network takes SMS of this SIM: at home, roaming, or for SMS alone (TS
    27.007, 7.2)."""
    match = next((each for line in reply.lines if (each := _NETWORK.fullmatch(line))), None)
    return match is not None and match[1] in ("1", "5", "6", "7")


def bars(reply: GsmReply) -> int | None:
    """Return the signal, 0 to 5 bars; None while the modem knows none (TS 27.007, 8.5)."""
    match = next((each for line in reply.lines if (each := _SIGNAL.fullmatch(line))), None)
    if match is None or int(match[1]) > 31:
        return None
    return min(5, -(-int(match[1]) // 6))
