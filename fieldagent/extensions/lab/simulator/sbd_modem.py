"""An Iridium 9602 as seen from its serial line, without I/O: the modem's side of `wire.sbd`.

It keeps to the ISU AT Command Reference where a driver could trip: it echoes until told not to,
forgets volatile settings at a reset, keeps what it has sent in its MO buffer, and counts its MOMSN
in memory that survives. What can go wrong in the field goes wrong by command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fieldagent.extensions.lab.simulator.sbd_commands import AtAnswer, answer, indications, store
from fieldagent.extensions.lab.simulator.sbd_session import Gateway, hold_session
from fieldagent.extensions.lab.simulator.sbd_state import ModemFaults, ModemState

_RESULTS = {"OK": "0", "ERROR": "4"}
"""Final results as V0 has them (ISU AT Command Reference, Vn)."""


class SimulatedModem:
    """`receive_data` takes the host's bytes, `data_to_send` yields the modem's.

    A session begins with a command and ends when its owner calls `finish_session`.
    """

    __slots__ = ("_expected", "_gateway", "_input", "_output", "faults", "session", "state")

    def __init__(
        self,
        gateway: Gateway,
        *,
        imei: str = "300234010000001",
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.state = ModemState(imei, clock)
        self.faults = ModemFaults()
        self.session = False
        """A session is under way."""
        self._gateway = gateway
        self._input = bytearray()
        self._output = bytearray()
        self._expected = 0
        """Bytes of a payload and its checksum that +SBDWB still waits for."""

    # The serial line.

    def receive_data(self, data: bytes) -> None:
        """Take in the host's bytes: commands, and the payload that one asked for. During a session,
        or deaf, all is thrown away."""
        self._input += data
        if self.faults.deaf or self.session:
            # Characters during a session are thrown away, as the real one does.
            self._input.clear()
        while self._input and not self.session:
            if not (self._take_payload() if self._expected else self._take_command()):
                return

    def data_to_send(self) -> bytes:
        """Return the bytes for the host, each once."""
        data = bytes(self._output)
        self._output.clear()
        return data

    @property
    def awaits_payload(self) -> bool:
        """Return whether +SBDWB waits for bytes; `payload_timeout` ends that."""
        return self._expected > 0

    def payload_timeout(self) -> None:
        """End a +SBDWB that got fewer bytes than announced within 60 s."""
        self._expected = 0
        self._input.clear()
        self._say(["1"])

    def _take_payload(self) -> bool:
        """False where it has not come whole."""
        if self.faults.swallow:
            self.faults.swallow -= 1
            del self._input[0]
        if len(self._input) < self._expected:
            return False
        payload = bytes(self._input[: self._expected])
        del self._input[: self._expected]
        self._expected = 0
        self._do(store(payload, self.state))
        return True

    def _take_command(self) -> bool:
        """False where its line has not ended."""
        end = self._input.find(b"\r")
        if end < 0:
            return False
        line = bytes(self._input[:end])
        del self._input[: end + 1]
        if self.state.volatile.echo or self.faults.stubborn_echo:
            self._output += line + b"\r"
        if command := line.decode("ascii", "replace").strip().upper():
            self._do(answer(command, self.state, self.faults, self._gateway.waiting()))
        return True

    def _do(self, answered: AtAnswer) -> None:
        self._output += answered.before
        self._say(answered.lines)
        self._expected = answered.payload
        if answered.session:
            if self.faults.reset_before_session:
                self.faults.reset_before_session -= 1
                self.brown_out()
            self.session = True

    def _say(self, lines: Iterable[str]) -> None:
        volatile = self.state.volatile
        for line in lines:
            if line not in _RESULTS or (volatile.verbose and not volatile.quiet):
                self._output += f"\r\n{line}\r\n".encode("ascii")
            elif not volatile.quiet:
                self._output += f"{_RESULTS[line]}\r".encode("ascii")

    # What happens to it.

    def finish_session(self) -> None:
        """Exchange messages with the gateway and say the result; nothing without a session."""
        if self.session:
            self.session = False
            self._say(hold_session(self.state, self.faults, self._gateway))

    def ring(self) -> None:
        """Set the ring flag, and say SBDRING where the host has asked for it by +SBDMTA."""
        self.state.ring_flag = True
        if self.state.volatile.ring_indications and not self.faults.deaf:
            self._say(["SBDRING"])

    def set_signal(self, bars: int) -> None:
        """Set the signal, 0 to 5 bars, and tell it where the host has asked by +CIER."""
        self.state.signal = bars
        self._indicate()

    def set_service(self, available: bool) -> None:
        """Set whether a network is there, and tell it where the host has asked by +CIER."""
        self.state.service = available
        self._indicate()

    def _indicate(self) -> None:
        if not self.faults.deaf:
            self._say(indications(self.state))

    def brown_out(self) -> None:
        """Let power fail for a moment: a session is gone, and so is everything volatile."""
        self.state.volatile = replace(self.state.stored)
        self.session = False
        self._expected = 0
        self._input.clear()
        self._output.clear()
