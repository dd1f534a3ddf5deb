"""GSM modem as seen from its serial line, without I/O: SMS in PDU mode (3GPP TS 27.005).

The modem has the properties that cause trouble for programs. It echoes until the host turns that
off. It asks for a PDU with a prompt that ends only at Ctrl-Z or ESC. Its SIM is small and receives
nothing when it is full. It numbers sent messages with 8 bits. Commands cause failures that happen
in the field.

Sources in TS 27.005: routing of arriving messages 3.4.1 (+CNMI), acknowledgement 3.4.4 (+CNMA) and
3.2.1 (+CSMS), errors 3.2.5. If <ds> is 0, the modem stores reports, which TS 27.005 leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field

from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import sms_alphabet, sms_pdu
from fieldagent.wire.errors import RemoteProtocolError
from fieldagent.wire.sms_pdu import Coding, Content, Deliver, Part, StatusReport, Submit

WRONG_PINS_MAX = 3
"""Number of wrong PINs after which the SIM requires the PUK."""
CTRL_Z, ESCAPE = 0x1A, 0x1B
SIM_MESSAGES_MAX = 20
"""Largest number of messages on the SIM."""
_SEND = re.compile(r"AT\+CMGS=([0-9]{1,3})")
_READ_COMMAND = re.compile(r"AT\+CMG([RD])=([0-9]{1,3})(?:,([0-4]))?")
_PIN = re.compile(r'AT\+CPIN="?([0-9]{4,8})"?')
_LIST = re.compile(r"AT\+CMGL=([0-4])")
_SET = re.compile(r"AT\+(CMEE|CMGF|CPMS|CSCS|CREG|CLIP|CSDH|CFUN|COPS)=([^?]+)")
_NOTIFY = re.compile(r"AT\+CNMI=([0-9](?:,[0-9]?){0,4})")
_SERVICE = re.compile(r"AT\+CSMS=([01])")
_ACKNOWLEDGE = re.compile(r"AT\+CNMA(?:=[012])?")
MODE, MT, DS = 0, 1, 3
"""Indexes of <mode>, <mt> and <ds> in the parameters of +CNMI."""
CNMI_VALUES = ("0123", "0123", "02", "012", "01")
"""Values that the modem allows for each parameter of +CNMI. <mt> 3 has the same effect as 1. <bm>
has no effect, because the network sends neither class 3 messages nor broadcasts. gammu needs <mt>
3."""
_PLAIN = {
    "AT": [],
    "ATV1": [],
    "ATX4": [],
    "AT&C1": [],
    "ATH": [],
    "ATI": ["simulated GSM modem"],
    "AT+GCAP": ["+GCAP: +CGSM"],
    "AT+CFUN?": ["+CFUN: 1"],
    "AT+CGMI": ["fieldagent"],
    "AT+CGMM": ["simulated GSM modem"],
    "AT+CGMR": ["1"],
    "AT+CGSN": ["490154203237518"],
    "AT+CIMI": ["228010000000001"],
    "AT+CSQ": ["+CSQ: 20,99"],
    "AT+CSCS?": ['+CSCS: "GSM"'],
    "AT+CSCS=?": ['+CSCS: ("GSM","HEX","UCS2")'],
    "AT+CSCA?": ['+CSCA: "+41794999000",145'],
    "AT+CSMS=?": ["+CSMS: (0,1)"],
    "AT+CMGF=?": ["+CMGF: (0)"],
    "AT+CNMA=?": ["+CNMA: (0-2)"],
    "AT+CPMS=?": ['+CPMS: ("ME"),("ME"),("ME")'],
}
"""Commands that always have the same answer."""


@dataclass(slots=True)
class GsmFaults:
    """Planned failures. A number is the number of times that the failure will still happen."""

    lose_reply: int = 0
    """Number of messages that are sent although the host gets no reply."""
    garble_reply: int = 0
    garble_listed: int = 0
    """Number of lists in which noise cuts off the end of the first message."""
    stuck: int = 0
    """Number of Ctrl-Z that are lost. After each of them, the prompt remains."""
    refuse: list[int] = field(default_factory=list)
    """+CMS ERROR numbers with which the next messages are refused."""
    undelivered: int = 0
    """Number of next messages that are sent, and that the network later reports as expired."""
    deaf: bool = False


@dataclass(slots=True)
class _Place:
    pdu: bytes
    read: bool = False


class SimulatedGsmModem:
    """A simulated modem. `receive_data` accepts the host's bytes, and `data_to_send` returns the
    modem's bytes. `submitted` is called with each sent message. `clock` returns Unix time.
    """

    def __init__(self, on_submit: Callable[[Submit], None], *, clock: Callable[[], float]) -> None:
        self.faults = GsmFaults()
        self.network = True
        self.pin = ""
        """PIN of the SIM; empty if no PIN is needed."""
        self.wrong_pins = 0
        self.reports = True
        """True if the network sends status reports."""
        self.offered = list(CNMI_VALUES)
        """Values that the modem allows for each parameter of +CNMI."""
        self.unasked = False
        """True if the modem passes on SMS with +CMT even if <mt> of +CNMI is 1. Some real modems do
        this."""
        self.store: dict[int, _Place] = {}
        """Stored messages by their place on the SIM, from 1."""
        self._submitted = on_submit
        self._clock = clock
        self._echo = True
        self._notify = [0] * len(CNMI_VALUES)
        """Current parameters of +CNMI."""
        self._held_lines: list[tuple[str, ...]] = []
        """Unsolicited lines that wait until <mode> is not 0."""
        self._acknowledges = False
        """True if service 1 of +CSMS is selected, in which the host acknowledges messages that are
        passed on."""
        self._unacknowledged: Deliver | StatusReport | None = None
        self._unlocked = False
        self.sent_to: list[str] = []
        """Telephone number to which each message was sent."""
        self._input = bytearray()
        self._output = bytearray()
        self._expected: int | None = None
        """Number of octets of the PDU for which the prompt waits."""

    @property
    def _reference(self) -> int:
        """Return the reference of the last message that was sent."""
        return len(self.sent_to) % 256

    def receive_data(self, data: bytes) -> None:
        """Process the host's bytes, which are commands or the PDU at a prompt. A deaf modem
        discards all bytes.
        """
        if self.faults.deaf:
            return
        self._input += data
        while self._input and (
            self._process_command() if self._expected is None else self._prompt()
        ):
            pass

    def data_to_send(self) -> bytes:
        """Return the bytes for the host, and remove them."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def power_off(self) -> None:
        """Switch off the modem. Messages on the SIM remain."""
        self._echo, self._unlocked, self._expected = True, False, None
        self._notify = [0] * len(CNMI_VALUES)
        self._held_lines.clear()
        self._acknowledges, self._unacknowledged = False, None
        self._input.clear()
        self._output.clear()

    def _process_command(self) -> bool:
        end = self._input.find(b"\r")
        if end < 0:
            return False
        line = bytes(self._input[:end])
        del self._input[: end + 1]
        if self._echo:
            self._output += line + b"\r"
        # ESC has a meaning only at a prompt. A line feed has no meaning.
        if command := line.decode("ascii", "replace").strip("\x1b\n ").upper():
            self._run_command(command)
        return True

    def _prompt(self) -> bool:
        """Process the PDU up to Ctrl-Z or ESC. Return False if neither has arrived."""
        end = next((at for at, each in enumerate(self._input) if each in (CTRL_Z, ESCAPE)), None)
        if end is None:
            return False
        text, ending = bytes(self._input[:end]), self._input[end]
        del self._input[: end + 1]
        if ending == ESCAPE:
            self._expected = None
            self._send_to_host("OK")
        elif self.faults.stuck:
            self.faults.stuck -= 1
        else:
            expected, self._expected = self._expected or 0, None
            self._send(text, expected)
        return True

    def _send_to_host(self, *lines: str) -> None:
        for line in lines:
            self._output += f"\r\n{line}\r\n".encode("ascii")

    def _run_command(self, command: str) -> None:
        if command in ("ATE0", "ATE1"):
            self._echo = command == "ATE1"
            self._send_to_host("OK")
        elif command == "AT+CPIN?":
            self._send_to_host(f"+CPIN: {self._find_prompt() or 'READY'}", "OK")
        elif match := _PIN.fullmatch(command):
            self._unlock(match[1])
        elif self._find_prompt() and command.startswith(("AT+CMG", "AT+CPMS", "AT+CNMI")):
            self._send_to_host("+CMS ERROR: 311")  # The SIM needs its PIN.
        elif command == "AT+CREG?":
            self._send_to_host(f"+CREG: 0,{1 if self.network else 2}", "OK")
        elif command in _PLAIN:
            self._send_to_host(*_PLAIN[command], "OK")
        elif command == "AT+CPMS?":
            self._send_to_host(f"+CPMS: {', '.join([self._fill_in()] * 3)}", "OK")
        elif command == "AT+CNMI?":
            self._send_to_host(f"+CNMI: {','.join(map(str, self._notify))}", "OK")
        elif command == "AT+CNMI=?":
            offered_options = ",".join(f"({','.join(each)})" for each in self.offered)
            self._send_to_host(f"+CNMI: {offered_options}", "OK")
        elif match := _NOTIFY.fullmatch(command):
            self._set_notify(match[1].split(","))
        elif command == "AT+CSMS?":
            self._send_to_host(f"+CSMS: {int(self._acknowledges)},1,1,1", "OK")
        elif match := _SERVICE.fullmatch(command):
            self._acknowledges = match[1] == "1"
            self._send_to_host("+CSMS: 1,1,1", "OK")
        elif _ACKNOWLEDGE.fullmatch(command):
            self._send_to_host(
                "OK" if self._unacknowledged else "+CMS ERROR: 340"
            )  # No acknowledgement is expected.
            self._unacknowledged = None
        elif match := _SET.fullmatch(command):
            self._set(match[1], match[2])
        elif match := _SEND.fullmatch(command):
            self._expected = int(match[1])
            self._output += b"\r\n> "
        elif match := _LIST.fullmatch(command):
            self._list(int(match[1]))
        elif match := _READ_COMMAND.fullmatch(command):
            self._read(match[1], int(match[2]), match[3] or "0")
        else:
            self._send_to_host("ERROR")

    def _find_prompt(self) -> str:
        if not self.pin or self._unlocked:
            return ""
        return "SIM PUK" if self.wrong_pins >= WRONG_PINS_MAX else "SIM PIN"

    def _unlock(self, pin: str) -> None:
        if self._find_prompt() == "SIM PIN" and pin == self.pin:
            self._unlocked, self.wrong_pins = True, 0
            self._send_to_host("OK")
        else:
            self.wrong_pins += 1
            self._send_to_host("+CME ERROR: 16")  # Incorrect password.

    def _fill_in(self) -> str:
        return f'"ME",{len(self.store)},{SIM_MESSAGES_MAX}'

    def _set(self, name: str, value: str) -> None:
        if name == "CMGF" and value != "0":
            self._send_to_host("+CMS ERROR: 302")  # No text mode, like some modems.
            return
        if name == "CPMS" and '"SM"' in value:
            self._send_to_host("+CMS ERROR: 302")  # The modem has only one message store.
            return
        if name == "CPMS":
            counts = f"{len(self.store)},{SIM_MESSAGES_MAX}"
            self._send_to_host(f"+CPMS: {','.join([counts] * 3)}")
        self._send_to_host("OK")

    def _set_notify(self, values: list[str]) -> None:
        """Set the parameters of +CNMI. Parameters that are not given remain unchanged."""
        if any(value not in self.offered[at] for at, value in enumerate(values)):
            self._send_to_host("ERROR")
            return
        for at, value in enumerate(values):
            self._notify[at] = int(value or self._notify[at])
        self._send_to_host("OK")
        if self._notify[MODE]:
            held_lines, self._held_lines = self._held_lines, []
            for lines in held_lines if self._notify[-1] == 0 else ():
                self._output += _encode_unsolicited(*lines)

    def _list(self, which: int) -> None:
        for place, each in sorted(self.store.items()):
            if which == 4 or which == int(each.read):
                self._send_to_host(f"+CMGL: {place},{int(each.read)},,{len(each.pdu) - 1}")
                noise = self.faults.garble_listed > 0
                self.faults.garble_listed -= noise
                shown_pdu = each.pdu.hex().upper().encode()
                self._output += (b"?" + shown_pdu[1:-9] if noise else shown_pdu) + b"\r\n"
                each.read = True
        self._send_to_host("OK")

    def _read(self, verb: str, place: int, flag: str) -> None:
        if verb == "D" and flag == "4":
            self.store.clear()
        elif place not in self.store:
            self._send_to_host("+CMS ERROR: 321")  # Invalid memory index.
            return
        elif verb == "D":
            del self.store[place]
        else:
            each = self.store[place]
            self._send_to_host(f"+CMGR: {int(each.read)},,{len(each.pdu) - 1}")
            self._output += each.pdu.hex().upper().encode() + b"\r\n"
            each.read = True
        self._send_to_host("OK")

    def _send(self, text: bytes, expected: int) -> None:
        try:
            pdu = bytes.fromhex(text.decode("ascii"))
            if len(pdu) - 1 - (pdu[0] if pdu else 0) != expected:
                raise ValueError(f"it should have {expected} octets")
            message = sms_pdu.decode(pdu, is_sent=True)
        except (ValueError, RemoteProtocolError):
            self._send_to_host("+CMS ERROR: 304")  # Invalid PDU mode parameter.
            return
        assert isinstance(message, Submit), "it was asked for nothing else"
        if not self.network:
            self._send_to_host("+CMS ERROR: 331")
            return
        if self.faults.refuse:
            self._send_to_host(f"+CMS ERROR: {self.faults.refuse.pop(0)}")
            return
        self.sent_to.append(message.number)
        self._submitted(message)
        self._answer_sent()
        if message.report and self.reports:
            now, status = self._clock(), 0x46 if self.faults.undelivered else 0
            self.faults.undelivered = max(0, self.faults.undelivered - 1)
            self.receive_from_network(
                StatusReport(self._reference, message.number, now, now, status)
            )

    def _answer_sent(self) -> None:
        if self.faults.lose_reply:
            self.faults.lose_reply -= 1
        elif self.faults.garble_reply:
            self.faults.garble_reply -= 1
            self._output += b"\r\n+CM\xffS: \x00\r\nO"
        else:
            self._send_to_host(f"+CMGS: {self._reference}", "OK")

    def receive_text(self, number: str, content: str | bytes) -> int:
        """Receive an SMS from the network, in as many parts as necessary. Return the number of
        parts that were stored or passed on. Raises LocalProtocolError if `number` is not valid.
        """
        parts = sms_pdu.split(content, self._reference)
        return sum(
            self.receive_from_network(Deliver(number, each, self._clock())) for each in parts
        )

    def report(self, reference: int, status: int) -> bool:
        """Receive a status report for the sent SMS with the number `reference`, from 1. The network
        may send a report late and several times. Return False if the SIM is full. Raises IndexError
        if there is no such SMS.
        """
        number, now = self.sent_to[reference - 1], self._clock()
        return self.receive_from_network(StatusReport(reference % 256, number, now, now, status))

    def receive_part(self, number: str, part: Part, text: str) -> bool:
        """Receive one part of an SMS from the network. Return False if the SIM is full. Raises
        LocalProtocolError if `number` is not valid.
        """
        body = sms_alphabet.encode_septets(text)
        return self.receive_from_network(
            Deliver(number, Content(Coding.GSM7, body, part), self._clock())
        )

    def receive_from_network(self, message: Deliver | StatusReport) -> bool:
        """Receive a message from the network, and pass it on or store it according to +CNMI. If the
        SIM is full, return False without a notification. The network then keeps the message.
        """
        if self._unacknowledged is not None:
            # The network got no acknowledgement in time. It sends the message again, and the modem
            # passes on no further messages.
            again, self._unacknowledged = self._unacknowledged, None
            self._notify[MT] = self._notify[DS] = 0
            self.receive_from_network(again)
        pdu, is_sms = sms_pdu.encode(message), isinstance(message, Deliver)
        if not self.faults.deaf and self._is_passed_on(is_sms=is_sms):
            if self._acknowledges:
                self._unacknowledged = message
            octets = len(pdu) - 1
            head = f"+CMT: ,{octets}" if is_sms else f"+CDS: {octets}"
            self._report(head, pdu.hex().upper())
            return True
        place = next((at for at in range(1, SIM_MESSAGES_MAX + 1) if at not in self.store), None)
        if place is None:
            return False
        self.store[place] = _Place(pdu)
        if self._notify[MT] in (1, 3) if is_sms else self._notify[DS] == 2:
            self._report(f'{"+CMTI" if is_sms else "+CDSI"}: "ME",{place}')
        return True

    def _is_passed_on(self, *, is_sms: bool) -> bool:
        if is_sms:
            return self._notify[MT] == 2 or (self.unasked and self._notify[MT] in (1, 3))
        return self._notify[DS] == 1

    def _report(self, *lines: str) -> None:
        """Send the lines of an unsolicited report. While <mode> is 0, the lines wait."""
        if self._notify[MODE] == 0:
            self._held_lines.append(lines)
        elif not self.faults.deaf:
            self._output += _encode_unsolicited(*lines)

    def fill(self) -> None:
        """Fill all places on the SIM."""
        while self.receive_text("+41790000000", "spring offers"):
            pass


def _encode_unsolicited(*lines: str) -> bytes:
    return ("\r\n" + "\r\n".join(lines) + "\r\n").encode("ascii")


def format_sent(message: Submit) -> str:
    """Return a sent message as one line of text."""
    content = message.content
    part = "" if content.part is None else f" (part {content.part.number} of {content.part.total})"
    content_text = content.body.hex() if content.coding is Coding.DATA else repr(content.text)
    return f"SMS to {message.number}{part}: {content_text}"
