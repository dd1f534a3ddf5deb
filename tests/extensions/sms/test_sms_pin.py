"""A SIM's PIN, for which three wrong tries are too many, when power or the modem fails during the
entry.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.extensions.lab.simulator.gsm_modem import SimulatedGsmModem
from fieldagent.extensions.sms.agent.contract import MODEM_LOST_ERRORS, GsmRefuses, GsmSilent
from fieldagent.extensions.sms.agent.gsm_modem import GsmModem
from fieldagent.extensions.sms.agent.pin import PinMemory
from fieldagent.system.error_groups import get_first_error

RIGHT, WRONG = "1234", "9999"


class Sim:
    """The state that outlives its modem."""

    def __init__(self) -> None:
        self.wrong = 0
        self.said: list[str] = []


class Line:
    """A modem with the SIM directly after its power came. `fate` is the modem's answer to the PIN,
    or `lost` if it disappears before that.
    """

    def __init__(self, sim: Sim, fate: str = "") -> None:
        self._sim, self._fate = sim, fate
        self._modem = SimulatedGsmModem(lambda submit: None, clock=lambda: 0.0)
        self._modem.pin, self._modem.wrong_pins = RIGHT, sim.wrong
        self._there = trio.Event()
        self._answers: list[bytes] = []

    async def write(self, data: bytes) -> None:
        match = re.search(rb'AT\+CPIN="(.*)"', data)
        if match and self._fate.startswith("+CME"):
            self._answers.append(f"\r\n{self._fate}\r\n".encode())
        else:
            self._modem.receive_data(data)
            self._answers.append(bytes(self._modem.data_to_send()))
        if match:
            self._sim.said.append(match[1].decode())
            self._sim.wrong = self._modem.wrong_pins
            if self._fate == "lost":
                raise PortLost("it went away")
        self._there.set()

    async def read(self) -> bytes:
        while not (said := b"".join(self._answers)):
            await self._there.wait()
            self._there = trio.Event()
        self._answers.clear()
        return said


async def open_modem(sim: Sim, pin: PinMemory, fate: str = "") -> None:
    modem = GsmModem(Line(sim, fate), ChannelLink())  # type: ignore[arg-type]
    trouble: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(modem.listen)
            await modem.set_up(pin)
            nursery.cancel_scope.cancel()
    except* MODEM_LOST_ERRORS as lost:
        trouble = get_first_error(lost)
    if trouble is not None:
        raise trouble


async def test_right_pin_is_tried_again_after_a_lost_answer(tmp_path: Path) -> None:
    """A modem that registers draws the most current, so power fails at that moment."""
    sim, pin = Sim(), PinMemory(RIGHT, tmp_path / "pin")
    with pytest.raises(PortLost):
        await open_modem(sim, pin, "lost")
    await open_modem(sim, pin)
    assert sim.said == [RIGHT, RIGHT]
    await open_modem(sim, pin)
    assert not pin.file.exists()


async def test_busy_sim_does_not_count_as_a_refusal(tmp_path: Path) -> None:
    sim, pin = Sim(), PinMemory(RIGHT, tmp_path / "pin")
    with pytest.raises(GsmSilent, match="does not accept a PIN yet"):
        await open_modem(sim, pin, "+CME ERROR: 14")
    await open_modem(sim, pin)


async def test_pin_is_not_tried_a_third_time(tmp_path: Path) -> None:
    sim, pin = Sim(), PinMemory(WRONG, tmp_path / "pin")
    for _ in range(2):
        with pytest.raises(PortLost):
            await open_modem(sim, pin, "lost")
    for _ in range(3):
        with pytest.raises(GsmRefuses, match="lost twice"):
            await open_modem(sim, pin)
    assert sim.said == [WRONG, WRONG]
    await open_modem(sim, PinMemory(RIGHT, pin.file))


async def test_refused_pin_is_not_tried_again(tmp_path: Path) -> None:
    sim, pin = Sim(), PinMemory(WRONG, tmp_path / "pin")
    with pytest.raises(PortLost):
        await open_modem(sim, pin, "lost")
    for _ in range(3):
        with pytest.raises(GsmRefuses, match="refuse"):
            await open_modem(sim, pin)
    assert sim.said == [WRONG, WRONG]
