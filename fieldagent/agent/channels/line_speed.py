"""Finds the baud rate of a satellite modem. If a rate is configured, it is used. Otherwise the
usual rate of this kind of modem is used. If the modem is then silent, the other rates are tried,
because a user may have stored another rate with +IPR.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

import trio

from fieldagent.agent.channels.recognition import RECEIVED_BYTES_MAX, answer_to
from fieldagent.agent.channels.serial_port import open_serial
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 1.0
"""Longest time in seconds for an answer. The query is sent twice, because the modem may interpret
the first query as the end of a broken line."""
ATTEMPTS = 2
SEARCH_INTERVAL_S = 600.0
"""Seconds between two searches, because a modem without power answers at no rate."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Query that shows whether a modem of one kind is present. It changes no setting and costs
    nothing.
    """

    kind: str
    speeds: tuple[int, ...]
    """Possible baud rates. The usual rate of this kind comes first."""
    question: bytes
    is_answered_by: Callable[[bytes], bool]
    """Returns True if the received bytes contain the modem's answer."""


async def can_answer_at(port: str, baud: int, probe: Probe) -> bool:
    """Return True if a modem answers `probe` at this baud rate. Raises PortLost."""

    def is_there(data: bytes) -> bool | None:
        return probe.is_answered_by(data[-RECEIVED_BYTES_MAX:]) or None

    async with open_serial(port, baud) as line:
        for _ in range(ATTEMPTS):
            if await answer_to(line, probe.question, is_there, ANSWER_TIMEOUT_S):
                return True
    return False


class LineSpeed:
    """Baud rate of one modem. The rate is remembered when the port is opened again."""

    def __init__(self, baud: int | None, probe: Probe) -> None:
        """Use `baud` if it is configured. If it is None, start with the usual rate, and search for
        the correct rate if the modem is silent.
        """
        self.baud = baud or probe.speeds[0]
        self._probe = probe
        self._is_set = baud is not None
        self._silent = False
        self._next = -inf

    def record_silence(self) -> None:
        """Record that no modem answered at the port, so that `find_speed` searches for the rate."""
        self._silent = True

    async def find_speed(self, port: str) -> int:
        """Return the baud rate. If the modem was silent, search for the rate at which it answers,
        at most every SEARCH_INTERVAL_S. Raises PortLost.
        """
        if not self._is_set and self._silent and trio.current_time() >= self._next:
            await self._search(port)
        return self.baud

    async def _search(self, port: str) -> None:
        self._silent, self._next = False, trio.current_time() + SEARCH_INTERVAL_S
        for baud in self._probe.speeds:
            if await can_answer_at(port, baud, self._probe) and (
                # Ask twice at an unusual rate: noise may look like an answer once, but not twice.
                baud == self._probe.speeds[0] or await can_answer_at(port, baud, self._probe)
            ):
                self.baud = baud
                if report := self.describe_unusual_speed():
                    log.warning("%s: the modem %s", port, report)
                return
        self.baud = self._probe.speeds[0]

    def describe_unusual_speed(self) -> str:
        """Return a notice that the modem uses an unusual baud rate, or '' if the rate is usual."""
        usual = self._probe.speeds[0]
        if self._is_set or self.baud == usual:
            return ""
        return (
            f"talks at {self.baud} baud, not {usual}: satellite-baud={self.baud} spares the search"
        )
