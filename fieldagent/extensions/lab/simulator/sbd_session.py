"""A session of the simulated modem with the operator's gateway. It transports one message in each
direction.
"""

from __future__ import annotations

from typing import Protocol

from fieldagent.extensions.lab.simulator.sbd_state import ModemFaults, ModemState, PlannedStatus
from fieldagent.wire import sbd


class Gateway(Protocol):
    """The operator's gateway, and the systems behind it."""

    def receive_mobile_originated(self, imei: str, momsn: int, body: bytes) -> None:
        """Process an MO message from a session."""

    def get_mobile_terminated(self) -> bytes | None:
        """Return the first waiting MT message, or None if there is none. The message remains until
        `remove_mobile_terminated` is called.
        """

    def remove_mobile_terminated(self) -> None:
        """Remove the first waiting message. Called when the modem has the message."""

    def count_waiting(self) -> int:
        """Return the number of waiting MT messages."""


def run_session(state: ModemState, faults: ModemFaults, gateway: Gateway) -> tuple[str, ...]:
    """Send the message in the MO buffer, receive one waiting MT message, and return the result
    lines.
    """
    # A new session discards an MT message that the host has not read (ISU AT Command Reference,
    # +SBDD).
    state.volatile.mt_buffer, state.volatile.mt_flag = b"", False
    planned = faults.statuses.popleft() if faults.statuses else _choose_by_coverage(state)
    columns = [planned.mo_status, state.momsn, 2, -1, 0, 0]
    if planned.delivered and state.volatile.mo_flag:
        gateway.receive_mobile_originated(state.imei, state.momsn, state.volatile.mo_buffer)
        state.volatile.mo_flag = not faults.clears_what_it_sent
    if planned.counted:
        state.momsn = (state.momsn + 1) % sbd.MOMSN_MODULUS
    if planned.mo_status <= 4 and faults.stuck_mail is not None:
        columns[0], columns[5] = faults.stuck_mail, 1
    elif planned.mo_status <= 4:
        columns[2:] = _fetch_message(state, gateway)
    if faults.lose_replies:
        faults.lose_replies -= 1
        return ()
    comma = " ,  " if faults.odd_spacing else ", "
    return f"+SBDIX{':' if faults.odd_spacing else ': '}{comma.join(map(str, columns))}", "OK"


def _choose_by_coverage(state: ModemState) -> PlannedStatus:
    reached = state.service and state.signal > 0
    return PlannedStatus(0 if reached else 32, delivered=reached, counted=reached)


def _fetch_message(state: ModemState, gateway: Gateway) -> list[int]:
    """Return the MT status, the MTMSN, the length, and the number of waiting messages, as in
    +SBDIX.
    """
    body = gateway.get_mobile_terminated()
    if body is None:
        return [0, -1, 0, 0]
    gateway.remove_mobile_terminated()
    state.volatile.mt_buffer, state.volatile.mt_flag = body, True
    number, state.mtmsn = state.mtmsn, (state.mtmsn + 1) % sbd.MOMSN_MODULUS
    return [1, number, len(body), gateway.count_waiting()]
