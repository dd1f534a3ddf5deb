"""AT commands of a simulated Iridium 9602, in the order of the ISU AT Command Reference.

`answer_command` applies a command to the modem's state. It returns the output and the next action
of the modem.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from fieldagent.extensions.lab.simulator.sbd_state import ModemFaults, ModemState
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import sbd

SUM_BYTES = 2
"""Number of bytes of the checksum after a message, in both directions (+SBDWB, +SBDRB)."""


@dataclass(frozen=True, slots=True)
class AtCommand:
    """A recognised command, and the state to which it applies."""

    match: re.Match[str]
    state: ModemState
    faults: ModemFaults
    waiting: int
    """Number of MT messages at the gateway that the network reports to the modem."""


@dataclass(frozen=True, slots=True)
class AtAnswer:
    lines: tuple[str, ...] = ("OK",)
    before: bytes = b""
    """Bytes of a message that are sent before the lines."""
    payload: int = 0
    """Number of bytes that the modem now reads instead of a command."""
    session: bool = False
    """True if a session begins. The answer is then the result of the session."""


def answer_command(line: str, state: ModemState, faults: ModemFaults, waiting: int) -> AtAnswer:
    """Return the modem's answer to one command line. If the modem does not know the command, the
    answer is ERROR. `waiting` is the number of messages at the gateway.
    """
    unknown = any(name in line for name in faults.unknown_commands)
    if unknown or not line.startswith("AT"):
        return AtAnswer(("ERROR",))
    for pattern, command in _COMMANDS:
        if match := re.fullmatch(pattern, line[2:]):
            return command(AtCommand(match, state, faults, waiting))
    return AtAnswer(("ERROR",))


def list_indications(state: ModemState) -> tuple[str, ...]:
    """Return the unsolicited lines that +CIER enables."""
    if not state.volatile.indications:
        return ()
    return (f"+CIEV:0,{state.signal}", f"+CIEV:1,{int(state.service)}")


def _answer_ok(command: AtCommand) -> AtAnswer:
    return AtAnswer()


def _set_line(command: AtCommand) -> AtAnswer:
    """Apply line settings. A command line may contain several settings."""
    volatile = command.state.volatile
    for name, value in re.findall(_LINE_SETTING, command.match[0]):
        if name == "E":
            volatile.echo = value == "1"
        elif name == "V":
            volatile.verbose = value == "1"
        elif name == "Q":
            volatile.quiet = value == "1"
        elif name == "&K":
            volatile.flow_control = value == "3"
    return AtAnswer()


def _answer_time(command: AtCommand) -> AtAnswer:
    state = command.state
    if state.clock is None or not state.service:
        return AtAnswer(("-MSSTM: no network service", "OK"))
    ticks = int((state.clock() - sbd.SYSTEM_EPOCH) / sbd.SYSTEM_TICK)
    return AtAnswer((f"-MSSTM: {ticks % 2**32:08x}", "OK"))


def _answer_imei(command: AtCommand) -> AtAnswer:
    return AtAnswer((command.state.imei, "OK"))


def _answer_model(command: AtCommand) -> AtAnswer:
    return AtAnswer(("IRIDIUM 9600 Family SBD Transceiver", "OK"))


def _answer_revision(command: AtCommand) -> AtAnswer:
    return AtAnswer(("Call Processor Version: TA16005", "OK"))


def _set_indications(command: AtCommand) -> AtAnswer:
    command.state.volatile.indications = command.match[1] == "1"
    return AtAnswer(("OK", *list_indications(command.state)))


def _answer_indications(command: AtCommand) -> AtAnswer:
    flag = int(command.state.volatile.indications)
    return AtAnswer((f"+CIER:{flag},{flag},{flag},0,0", "OK"))


def _answer_signal(command: AtCommand) -> AtAnswer:
    return AtAnswer((f"+CSQ:{command.state.signal}", "OK"))


def _answer_lock(command: AtCommand) -> AtAnswer:
    return AtAnswer(("+CULK:0", "OK"))


def _set_ring_indications(command: AtCommand) -> AtAnswer:
    command.state.volatile.ring_indications = command.match[1] == "1"
    return AtAnswer()


def _answer_ring_indications(command: AtCommand) -> AtAnswer:
    return AtAnswer((f"+SBDMTA:{int(command.state.volatile.ring_indications)}", "OK"))


def _set_registration(command: AtCommand) -> AtAnswer:
    command.state.volatile.registration = command.match[1] == "1"
    return AtAnswer()


def _answer_registration(command: AtCommand) -> AtAnswer:
    return AtAnswer((f"+SBDAREG:{int(command.state.volatile.registration)}", "OK"))


def _answer_traffic(command: AtCommand) -> AtAnswer:
    return AtAnswer((f"+SBDLOE:0,{command.faults.traffic}", "OK"))


def _set_session_timeout(command: AtCommand) -> AtAnswer:
    command.state.volatile.session_timeout = int(command.match[1])
    return AtAnswer()


def _begin_write(command: AtCommand) -> AtAnswer:
    size = int(command.match[1])
    if not 1 <= size <= sbd.MO_BYTES:
        return AtAnswer((str(sbd.WriteResult.WRONG_SIZE.value), "OK"))
    return AtAnswer(("READY",), payload=size + SUM_BYTES)


def store(payload: bytes, state: ModemState) -> AtAnswer:
    """Store the message of +SBDWB. Called when the message and its checksum have arrived."""
    body, guard = payload[:-SUM_BYTES], payload[-SUM_BYTES:]
    if sbd.compute_checksum(body) != guard:
        return AtAnswer((str(sbd.WriteResult.WRONG_SUM.value), "OK"))
    state.volatile.mo_buffer, state.volatile.mo_flag = body, True
    return AtAnswer((str(sbd.WriteResult.STORED.value), "OK"))


def _read(command: AtCommand) -> AtAnswer:
    body = command.state.volatile.mt_buffer
    guard = sbd.compute_checksum(body)
    if command.faults.wrong_sums:
        command.faults.wrong_sums -= 1
        guard = bytes([guard[0] ^ 0x55, guard[1]])
    return AtAnswer(before=len(body).to_bytes(2) + body + guard)


def _answer_status(command: AtCommand) -> AtAnswer:
    state, volatile = command.state, command.state.volatile
    # Report the MTMSN of the session that delivered the message. The state contains the next
    # number, so subtract one.
    mtmsn = (state.mtmsn - 1) % sbd.MOMSN_MODULUS if volatile.mt_flag else -1
    columns = [int(volatile.mo_flag), state.momsn, int(volatile.mt_flag), mtmsn]
    extended = command.match[1]
    if extended:
        columns += [int(state.ring_flag), command.waiting]
    return AtAnswer((f"+SBDS{extended}: {', '.join(map(str, columns))}", "OK"))


def _clear(command: AtCommand) -> AtAnswer:
    volatile = command.state.volatile
    if command.match[1] in "02":
        volatile.mo_buffer, volatile.mo_flag = b"", False
    if command.match[1] in "12":
        volatile.mt_buffer, volatile.mt_flag = b"", False
    return AtAnswer(("0", "OK"))


def _begin_session(command: AtCommand) -> AtAnswer:
    """Begin a session. +SBDIXA answers a ring alert and clears the ring flag."""
    if command.match[1]:
        command.state.ring_flag = False
    return AtAnswer((), session=True)


_LINE_SETTING = r"([EVQ]|&D|&K)([0-4])"
_COMMANDS: tuple[tuple[str, Callable[[AtCommand], AtAnswer]], ...] = (
    (r"|\*F", _answer_ok),
    (rf"(?:{_LINE_SETTING})+", _set_line),
    (r"-MSSTM", _answer_time),
    (r"\+CGSN|\+GSN|I4", _answer_imei),
    (r"\+CGMM|\+GMM", _answer_model),
    (r"\+CGMR|\+GMR", _answer_revision),
    (r"\+CIER=([01]).*", _set_indications),
    (r"\+CIER\?", _answer_indications),
    (r"\+CSQF?", _answer_signal),
    (r"\+CULK\?", _answer_lock),
    (r"\+SBDMTA=([01])", _set_ring_indications),
    (r"\+SBDMTA\?", _answer_ring_indications),
    (r"\+SBDAREG=([01])", _set_registration),
    (r"\+SBDAREG\?", _answer_registration),
    (r"\+SBDLOE", _answer_traffic),
    (r"\+SBDST=([0-9]{1,3})", _set_session_timeout),
    (r"\+SBDWB=([0-9]{1,4})", _begin_write),
    (r"\+SBDRB", _read),
    (r"\+SBDS(X?)", _answer_status),
    (r"\+SBDD([012])", _clear),
    (r"\+SBDIX(A?)", _begin_session),
)
