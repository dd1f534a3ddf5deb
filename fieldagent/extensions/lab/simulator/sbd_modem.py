"""An Iridium 9602, as its host sees it on the serial line: the modem's side of `wire.sbd`. No I/O.

The simulated modem follows the ISU AT Command Reference in all points that can cause trouble for a
driver. The modem echoes until the host turns off the echo. A reset clears volatile settings. Its MO
buffer keeps a sent message, and its MOMSN survives a reset. Commands cause failures that happen in
the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from fieldagent.extensions.lab.simulator.sbd_commands import (
    AtAnswer,
    answer_command,
    list_indications,
    store,
)
from fieldagent.extensions.lab.simulator.sbd_session import Gateway, run_session
from fieldagent.extensions.lab.simulator.sbd_state import ModemFaults, ModemState

_RESULTS = {"OK": "0", "ERROR": "4"}
"""Final results in numeric form (V0; ISU AT Command Reference, Vn)."""


class SimulatedModem:
    """A simulated modem. `receive_data` accepts the host's bytes, and `data_to_send` returns the
    modem's bytes.

    A command begins a session. The owner ends the session with `finish_session`.
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
        """True while a session with the gateway runs."""
        self._gateway = gateway
        self._input = bytearray()
        self._output = bytearray()
        self._expected = 0
        """Number of bytes of the payload and its checksum for which +SBDWB still waits."""

    def receive_data(self, data: bytes) -> None:
        """Process the host's bytes, which are commands or the payload of +SBDWB. During a session,
        or if the modem is deaf, all bytes are discarded.
        """
        self._input += data
        if self.faults.deaf or self.session:
            # The real modem also discards bytes during a session.
            self._input.clear()
        while self._input and not self.session:
            if not (self._store_payload() if self._expected else self._process_command()):
                return

    def data_to_send(self) -> bytes:
        """Return the bytes for the host, and remove them."""
        data = bytes(self._output)
        self._output.clear()
        return data

    @property
    def awaits_payload(self) -> bool:
        """Return True if +SBDWB waits for bytes. `end_payload_wait` ends the wait."""
        return self._expected > 0

    def end_payload_wait(self) -> None:
        """End a +SBDWB that received too few bytes within 60 s."""
        self._expected = 0
        self._input.clear()
        self._send_to_host(["1"])

    def _store_payload(self) -> bool:
        """Store the received payload of +SBDWB in the MO buffer. Return False if bytes are still
        missing.
        """
        if self.faults.swallow:
            self.faults.swallow -= 1
            del self._input[0]
        if len(self._input) < self._expected:
            return False
        payload = bytes(self._input[: self._expected])
        del self._input[: self._expected]
        self._expected = 0
        self._run_answer(store(payload, self.state))
        return True

    def _process_command(self) -> bool:
        """Run one command. Return False if the line with the command is not complete."""
        end = self._input.find(b"\r")
        if end < 0:
            return False
        line = bytes(self._input[:end])
        del self._input[: end + 1]
        if self.state.volatile.echo or self.faults.stubborn_echo:
            self._output += line + b"\r"
        if command := line.decode("ascii", "replace").strip().upper():
            self._run_answer(
                answer_command(command, self.state, self.faults, self._gateway.count_waiting())
            )
        return True

    def _run_answer(self, answer: AtAnswer) -> None:
        self._output += answer.before
        self._send_to_host(answer.lines)
        self._expected = answer.payload
        if answer.session:
            if self.faults.reset_before_session:
                self.faults.reset_before_session -= 1
                self.start_brown_out()
            self.session = True

    def _send_to_host(self, lines: Iterable[str]) -> None:
        volatile = self.state.volatile
        for line in lines:
            if line not in _RESULTS or (volatile.verbose and not volatile.quiet):
                self._output += f"\r\n{line}\r\n".encode("ascii")
            elif not volatile.quiet:
                self._output += f"{_RESULTS[line]}\r".encode("ascii")

    def finish_session(self) -> None:
        """Exchange messages with the gateway and report the result. If there is no session, do
        nothing.
        """
        if self.session:
            self.session = False
            self._send_to_host(run_session(self.state, self.faults, self._gateway))

    def ring(self) -> None:
        """Set the ring flag. Send SBDRING if the host has enabled this line with +SBDMTA."""
        self.state.ring_flag = True
        if self.state.volatile.ring_indications and not self.faults.deaf:
            self._send_to_host(["SBDRING"])

    def set_signal(self, bars: int) -> None:
        """Set the signal to 0 to 5 bars. Report it if the host has enabled this report with
        +CIER.
        """
        self.state.signal = bars
        self._indicate()

    def set_service(self, available: bool) -> None:
        """Set whether the network is available. Report it if the host has enabled this report with
        +CIER.
        """
        self.state.service = available
        self._indicate()

    def _indicate(self) -> None:
        if not self.faults.deaf:
            self._send_to_host(list_indications(self.state))

    def start_brown_out(self) -> None:
        """Simulate a short power failure, in which a session and all volatile state are lost."""
        self.state.volatile = replace(self.state.stored)
        self.session = False
        self._expected = 0
        self._input.clear()
        self._output.clear()
