"""At which speed a satellite modem talks: the one that is set, or else its kind's, or else another
that it answers at, as somebody may have stored it there (+IPR)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf

import trio

from fieldagent.agent.channels.serial_port import SerialPort, open_serial
from fieldagent.system import waits
from fieldagent.system.lazy_dataclass import dataclass

log = logging.getLogger(__name__)

ANSWER_MAX = 1.0
"""Seconds for an answer; each is asked twice, as the first may meet the rest of a line."""
TRIES = 2
SEARCH_EVERY = 600.0
"""Seconds between two searches: a modem without power answers at none."""
SAID_MAX = 8_192


@dataclass(frozen=True, slots=True)
class Probe:
    """How one kind of modem is asked whether it is there; nothing is set, nothing costs."""

    kind: str
    speeds: tuple[int, ...]
    """In baud; the kind's own first."""
    question: bytes
    answers: Callable[[bytes], bool]
    """Whether its answer is in what was said so far."""


async def answers_at(port: str, baud: int, probe: Probe) -> bool:
    """Return whether such a modem answers at this speed. Raises PortLost."""
    async with open_serial(port, baud) as line:
        for _ in range(TRIES):
            if await _is_there(line, probe):
                return True
    return False


async def _is_there(line: SerialPort, probe: Probe) -> bool:
    said = bytearray()
    with waits.move_on_after(ANSWER_MAX):
        await line.write(probe.question)
        while not probe.answers(bytes(said)):
            said += await line.read()
            del said[:-SAID_MAX]
        return True
    return False


class LineSpeed:
    """The speed of one modem; it outlives the opening of its port."""

    def __init__(self, baud: int | None, probe: Probe) -> None:
        """With `baud`, that is what is set: no other is tried."""
        self.baud = baud or probe.speeds[0]
        self._probe = probe
        self._is_set = baud is not None
        self._silent = False
        self._next = -inf

    def note_silent(self) -> None:
        """Nothing answered at the port: the next `look` searches."""
        self._silent = True

    async def look(self, port: str) -> None:
        """Ask at each speed where the modem was silent, now and then. Raises PortLost."""
        if self._is_set or not self._silent or trio.current_time() < self._next:
            return
        self._silent, self._next = False, trio.current_time() + SEARCH_EVERY
        for baud in self._probe.speeds:
            if await answers_at(port, baud, self._probe) and (
                # Noise at a wrong speed may look like an answer, and not twice.
                baud == self._probe.speeds[0] or await answers_at(port, baud, self._probe)
            ):
                self.baud = baud
                if words := self.in_words():
                    log.warning("%s: the modem %s", port, words)
                return
        self.baud = self._probe.speeds[0]

    def in_words(self) -> str:
        """Return that the modem talks at another speed than its kind does; empty otherwise."""
        usual = self._probe.speeds[0]
        if self._is_set or self.baud == usual:
            return ""
        return (
            f"talks at {self.baud} baud, not {usual}: satellite-baud={self.baud} spares the search"
        )
