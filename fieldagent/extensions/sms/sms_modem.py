"""Conversation with a GSM modem about text messages: the host's side, without I/O.

Commands are those of 3GPP TS 27.005 (PDU mode) and 27.007. Only one command is active at a time.
Rules for the caller:

1. `make_command` returns bytes to write. `next_event` then returns NEED_MORE until the `GsmReply`.
2. `submit` asks for the prompt. At `Prompt` the caller writes the result of `encode_pdu`, which
   ends with Ctrl-Z. From then on the message may have left, with or without an answer. A timeout,
   an unreadable reply and an error without a meaning are DOUBTFUL (`find_result`).
3. Write `LEAVE_PROMPT` to leave a prompt before its PDU, and before the set-up, because an
   earlier program may have left a prompt.
4. Unsolicited lines (`MessageStored`, `StoredMessage`) can arrive at any time, even inside a reply.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from fieldagent.system.lazy_named_tuple import NamedTuple
from fieldagent.wire import sms_pdu
from fieldagent.wire.errors import LocalProtocolError, RemoteProtocolError
from fieldagent.wire.outcome import Outcome
from fieldagent.wire.sms_pdu import Deliver, StatusReport, Submit

AT_PREFIX = "AT"
FIRST_COMMANDS = ("ATE0", "AT+CMEE=1")
"""Commands that turn off the echo and select numeric errors. They also work without a SIM."""
PIN = "AT+CPIN?"
PDU_MODE = "AT+CMGF=0"
NO_ACKNOWLEDGEMENT = "AT+CSMS=0"
"""Command that selects a service in which the host need not acknowledge messages that the modem
passes on (TS 27.005, section 3.2.1). In the other service, the modem would stop after the first
message."""
NOTIFICATIONS = "AT+CNMI=?"
"""Command that queries the possible values of +CNMI, for `make_notify_command`."""
STORES = ("ME", "SM", "MT")
"""Stores for messages, as arguments of `make_store_command`. Some modems do not have the first
store."""
NETWORK = "AT+CREG?"
SIGNAL = "AT+CSQ"
SERIAL_NUMBER = "AT+CGSN"
LIST_ALL = "AT+CMGL=4"
STORE = "AT+CPMS?"
LINE_BYTES = 1_024
"""Largest number of bytes of a line. A longer line is noise, because a PDU has at most 176
octets."""
LEAVE_PROMPT = b"\x1b"
SEND_SECONDS = 120.0
"""Largest number of seconds that the network may need for one message (TS 27.005, section
3.5.1)."""

_REFERENCE = re.compile(r"\+CMGS: ?([0-9]{1,3})(?:,.*)?")
_LISTED = re.compile(r"\+CMGL: ?([0-9]{1,5}),([0-9]),[^,]*,([0-9]{1,3})")
_FILL_LEVEL = re.compile(r'\+CPMS: ?"[A-Z]+",([0-9]{1,5}),([0-9]{1,5})')
_ERROR = re.compile(r"\+CM[SE] ERROR: ?([0-9]{1,4})")
_ARRIVAL_LINE = re.compile(r'\+C(?:MT|DS)I: ?"[A-Z]+",([0-9]{1,5})')
_PASSED_ON = re.compile(r"\+C(?:MT: ?(?:.*,)?|DS: ?)[0-9]{1,3}")
"""Line before the PDU of a message that the modem passes on without storing it (TS 27.005, section
3.4.1)."""
_OFFERED_VALUES = re.compile(r"\+CNMI: ?(.+)")
_VALUES = re.compile(r"\(([0-9,-]*)\)|([0-9])")
_NETWORK = re.compile(r"\+CREG: ?[0-9],([0-9]{1,2})(?:,.*)?")
_SIGNAL = re.compile(r"\+CSQ: ?([0-9]{1,2}),[0-9]{1,2}")
_PIN = re.compile(r"\+CPIN: ?(.+)")
_FINAL = ("OK", "ERROR")


def make_store_command(name: str) -> str:
    """Return the command that selects a store for all messages."""
    return f'AT+CPMS="{name}","{name}","{name}"'


def make_unlock_command(pin: str) -> str:
    """Return the command that enters the SIM's PIN. Wrong PINs lock the SIM (TS 27.007, section
    8.3).
    """
    return f'AT+CPIN="{pin}"'


def make_delete_command(place: int) -> str:
    """Return the command that deletes the message at a place (TS 27.005, section 3.5.4)."""
    return f"AT+CMGD={place}"


_WANTED_VALUES = ("21", "10", "0", "210", "01")
"""Wanted values of +CNMI, the best first. A message should go to the store (<mt> 1, otherwise 0),
where a restart does not lose it. A report should go to the store (<ds> 2), otherwise to the line
(1)."""


def make_notify_command(reply: GsmReply) -> str:
    """Return the command after which the modem writes a line about each message and report that
    arrives. `reply` is the modem's reply to `NOTIFICATIONS`.
    """
    matches = (each for line in reply.lines if (each := _OFFERED_VALUES.fullmatch(line)))
    offered_values = next((_VALUES.findall(each[1]) for each in matches), [])
    if len(offered_values) != len(_WANTED_VALUES):
        return "AT+CNMI=2,1,0,1,0"
    chosen = [
        next(
            (value for value in wanted_value if _is_offered(value, values or single)),
            wanted_value[-1],
        )
        for wanted_value, (values, single) in zip(_WANTED_VALUES, offered_values, strict=True)
    ]
    return f"AT+CNMI={','.join(chosen)}"


def _is_offered(value: str, values: str) -> bool:
    """Return True if a list such as "0,2-3" contains the value."""
    for each in values.split(","):
        first, _, last = each.partition("-")
        if first <= value <= (last or first):
            return True
    return False


class GsmReply(NamedTuple):
    ok: bool
    lines: tuple[str, ...] = ()
    error: int | None = None
    """Number of a +CMS or +CME ERROR."""


class Prompt(NamedTuple):
    """Event: the modem waits for the PDU."""


class MessageStored(NamedTuple):
    """Event: a message or a report was stored at a place."""

    place: int


class NeedMore(Enum):
    NEED_MORE = auto()


NEED_MORE = NeedMore.NEED_MORE


class StoredMessage(NamedTuple):
    """A message in the modem's store, or a message that the modem passed on without storing it."""

    place: int
    """Index in the modem's message storage. A unique negative number if the modem delivered the
    message directly, without storing it."""
    message: Submit | Deliver | StatusReport | None
    """Content of the message; None if the message cannot be decoded."""
    fault: str = ""
    text: str = ""
    """Text in which the modem lists an unreadable message."""


GsmEvent = GsmReply | Prompt | MessageStored | StoredMessage


class GsmConversation:
    """Conversation with a modem. `receive_data` accepts the modem's bytes. `next_event` returns the
    events in them.
    """

    def __init__(self) -> None:
        self._input = bytearray()
        self._lines: list[str] = []
        self._command = ""
        self._prompts = False
        self._is_pdu_next = False
        self._passed_on = 0
        """Number of messages that the modem passed on without storing them."""

    def make_command(self, text: str) -> bytes:
        """Return the bytes of a command. Raises LocalProtocolError while another command is
        active.
        """
        if self._command:
            raise LocalProtocolError(f"{self._command} is under way")
        self._command, self._lines = text, []
        return text.encode("ascii") + b"\r"

    def submit(self, message: Submit) -> bytes:
        """Return the bytes that request the prompt. Raises LocalProtocolError if another command is
        active, or if the message cannot be encoded.
        """
        command = self.make_command(f"AT+CMGS={len(sms_pdu.encode(message)) - 1}")
        self._prompts = True
        return command

    def encode_pdu(self, message: Submit) -> bytes:
        """Return the bytes to write at the prompt. Raises LocalProtocolError if there is no
        prompt.
        """
        if not self._command.startswith("AT+CMGS=") or self._prompts:
            raise LocalProtocolError("there is no prompt")
        return sms_pdu.encode(message).hex().upper().encode() + b"\x1a"

    def abandon_reply(self) -> None:
        """Stop waiting for a reply. If the reply arrives later, it is ignored as noise."""
        self._command, self._prompts, self._lines = "", False, []

    def receive_data(self, data: bytes) -> None:
        """Add bytes from the modem. `next_event` returns the events in them."""
        self._input += data

    def next_event(self) -> GsmEvent | NeedMore:
        """Return the next event from the modem, or NEED_MORE. An incomplete line that is longer
        than `LINE_BYTES` is discarded.
        """
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
            if line and (event := self._process_line(line)) is not None:
                return event

    def _process_line(self, line: str) -> GsmEvent | None:
        is_pdu, self._is_pdu_next = self._is_pdu_next, _PASSED_ON.fullmatch(line) is not None
        if self._is_pdu_next:
            return None
        if is_pdu and line not in _FINAL and not line.startswith("+"):
            self._passed_on += 1
            return _read_stored(-self._passed_on, line)
        if arrival := _ARRIVAL_LINE.fullmatch(line):
            return MessageStored(int(arrival[1]))
        if not self._command or line == self._command:
            return None  # The line is noise, or the echo of the command.
        failed = _ERROR.fullmatch(line)
        if line not in _FINAL and failed is None:
            self._lines.append(line)
            return None
        reply = GsmReply(line == "OK", tuple(self._lines), int(failed[1]) if failed else None)
        self.abandon_reply()
        return reply


class SendResult(NamedTuple):
    """Result of sending one message to the mobile network."""

    outcome: Outcome
    reference: int | None = None
    """Reference in the network's report, if the mobile network has accepted the message."""
    reason: str = ""
    final: bool = False
    """True if the network would refuse the same message again."""


_REFUSED_FOR_GOOD = {
    1: "the number is not assigned",
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
    311: "the SIM needs its PIN",
    312: "the telephone needs its PIN",
    313: "the SIM failed",
    314: "the SIM is busy",
    315: "the SIM is wrong",
    316: "the SIM needs its PUK",
    317: "the SIM needs its PIN 2",
    318: "the SIM needs its PUK 2",
}
_NOT_NOW = {
    38: "the network is out of order",
    41: "the network has a temporary fault",
    42: "the network is congested",
    47: "the network has no resources",
    302: "the modem does not allow it now",
    322: "the memory of the SIM is full",
    331: "no network",
    332: "the network does not answer",
    512: "the modem could not send the message",
}
"""Texts of +CMS ERROR by number (TS 27.005, section 3.2.5; TS 24.011, annex E.2). Number 500
(unknown error) has no text."""


def find_result(reply: GsmReply | None) -> SendResult:
    """Return the result of sending a message. `reply` is None if there was no reply in time."""
    if reply is None:
        return SendResult(Outcome.DOUBTFUL, reason="the modem did not answer to an SMS that it had")
    if reply.ok:
        match = next((each for line in reply.lines if (each := _REFERENCE.fullmatch(line))), None)
        if match is None:
            reply_text = " ".join(reply.lines)[:60]
            return SendResult(
                Outcome.DOUBTFUL, reason=f"the modem's answer cannot be read: {reply_text!r}"
            )
        return SendResult(Outcome.SENT, int(match[1]) % 256)
    code = reply.error
    if code is not None and code in _REFUSED_FOR_GOOD:
        return SendResult(Outcome.NOT_SENT, None, f"{_REFUSED_FOR_GOOD[code]} ({code})", True)
    if code is not None and (explanation := _SIM.get(code) or _NOT_NOW.get(code)):
        return SendResult(Outcome.NOT_SENT, None, f"{explanation} ({code})")
    shown_error = "ERROR" if code is None else f"error {code}"
    return SendResult(
        Outcome.DOUBTFUL, reason=f"the modem reports {shown_error}, possibly after it was sent"
    )


def parse_listed(reply: GsmReply) -> list[StoredMessage]:
    """Return the messages that +CMGL listed, in their order."""
    messages, lines = [], iter(reply.lines)
    for line in lines:
        head = _LISTED.fullmatch(line)
        if head is not None:
            messages.append(_read_stored(int(head[1]), next(lines, "")))
    return messages


def _read_stored(place: int, text: str) -> StoredMessage:
    try:
        return StoredMessage(place, sms_pdu.decode(bytes.fromhex(text)))
    except ValueError:
        return StoredMessage(place, None, "the modem shows no PDU", text)
    except RemoteProtocolError as error:
        return StoredMessage(place, None, str(error), text)


def parse_used_places(reply: GsmReply) -> tuple[int, int] | None:
    """Return the number of used places and the number of all places in the store. A full store
    receives no messages, and the modem does not report this.
    """
    for line in reply.lines:
        if match := _FILL_LEVEL.match(line):
            return int(match[1]), int(match[2])
    return None


def parse_lock(reply: GsmReply) -> str:
    """Return the kind of unlock that the SIM needs, for people. The text is empty if it needs none.
    Raises RemoteProtocolError if the reply does not contain the state of the SIM.
    """
    for line in reply.lines:
        if match := _PIN.fullmatch(line):
            return "" if match[1] == "READY" else match[1]
    lock = _ME_SIM.get(reply.error or 0)
    if lock is None:
        raise RemoteProtocolError("the modem does not report whether its SIM needs a PIN")
    return lock


_ME_SIM = {
    10: "no SIM is inserted",
    11: "SIM PIN",
    12: "SIM PUK",
    13: "the SIM failed",
    15: "the SIM is wrong",
}
"""Texts of +CME ERROR by number (TS 27.007, section 9.2.1)."""
SIM_BUSY = (14,)
"""+CME ERROR numbers of a SIM that has not checked the PIN."""


def is_registered(reply: GsmReply) -> bool:
    """Return True if a network accepts SMS from this SIM: at home, roaming, or for SMS only (TS
    27.007, section 7.2).
    """
    match = next((each for line in reply.lines if (each := _NETWORK.fullmatch(line))), None)
    return match is not None and match[1] in ("1", "5", "6", "7")


def parse_bars(reply: GsmReply) -> int | None:
    """Return the signal as 0 to 5 bars, or None if it is unknown (TS 27.007, section 8.5)."""
    match = next((each for line in reply.lines if (each := _SIGNAL.fullmatch(line))), None)
    if match is None or int(match[1]) > 31:
        return None
    return min(5, -(-int(match[1]) // 6))
