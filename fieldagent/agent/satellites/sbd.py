"""Modems of Iridium's Short Burst Data over AT commands: 9602, 9603 and 9523."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

from fieldagent.agent.channels import satellite
from fieldagent.agent.channels.contract import ChannelLink
from fieldagent.agent.channels.line_speed import LineSpeed, Probe
from fieldagent.agent.channels.recognition import Recognition
from fieldagent.agent.channels.sbd_modem import Modem, ModemSilent, open_modem
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.satellites.contract import SatelliteModem, SatelliteSeat
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.finding import Finding
from fieldagent.system.signals import run_breakable
from fieldagent.wire import sbd
from fieldagent.wire.errors import RemoteProtocolError

CHECK_TIMEOUT_S = 60.0
"""Longest time in seconds for the modem's answers to all queries of `fieldagent check`."""


def _is_answer(data: bytes) -> bool:
    # The modem usually answers with a word, but with a digit if the setting V0 is stored.
    return b"OK" in data or data.replace(b"AT\r", b"").strip(b"\r\n\0") == b"0"


SBD = Probe(
    "sbd", (19_200, 115_200, 9_600, 38_400, 57_600, 4_800, 2_400, 1_200), b"AT\r", _is_answer
)
"""Query that shows whether an SBD modem is present. The rates are those that +IPR can set, the most
likely first."""


def make_driver(seat: SatelliteSeat) -> Callable[[], Awaitable[None]]:
    """Return the task that serves the modem of `seat`, and starts again after failures."""
    return partial(
        satellite.run,
        seat.port,
        seat.outbox,
        seat.reception,
        seat.link,
        satellite.Pace(random.Random(), seat.mailbox_check),
        speed=LineSpeed(seat.baud, SBD),
        registers=seat.registers,
        heal=seat.heal,
        progress=seat.progress,
    )


def check(port: str, baud: int | None, own_settings: Mapping[str, Any]) -> list[Finding]:
    """Return findings about the modem. The check sends and reads no message, and has no cost."""
    link = ChannelLink()
    speed = LineSpeed(baud, SBD)
    speed.record_silence()

    async def make_findings(modem: Modem) -> list[Finding]:
        firmware = link.facts.get("firmware")
        report = f"modem {modem.imei} answers" + (f", {firmware}" if firmware else "")
        findings = [Finding(True, f"{port}: {report}")]
        if speed_report := speed.describe_unusual_speed():
            findings.append(Finding(True, f"{port}: it {speed_report}"))
        bars = sbd.parse_number(await modem.ask(sbd.SIGNAL))
        findings.append(_make_signal_finding(port, link.signal if bars is None else bars))
        findings.append(_check_lock(port, sbd.parse_number(await modem.ask(sbd.LOCK))))
        return findings

    async def ask() -> list[Finding]:
        with trio.move_on_after(CHECK_TIMEOUT_S):
            async with open_modem(port, await speed.find_speed(port), link) as modem:
                return await make_findings(modem)
        return [Finding(False, f"{port}: the modem does not answer within {CHECK_TIMEOUT_S:g} s")]

    findings: list[Finding] = []
    try:
        findings = run_breakable(ask)
    except* (PortLost, ModemSilent, RemoteProtocolError) as trouble:
        findings = [Finding(False, f"{port}: {get_first_error(trouble)}")]
    return findings


def _make_signal_finding(port: str, bars: int | None) -> Finding:
    if bars is None:
        return Finding(True, f"{port}: the modem does not report its signal")
    hint = "; under the open sky it should see more" if bars == 0 else ""
    return Finding(True, f"{port}: signal {bars} of 5{hint}")


def _check_lock(port: str, state: int | None) -> Finding:
    """Return a Finding about the modem's lock. `state` is the answer to +CULK, or None if there is
    none. A lock prevents service. (A 9602 or 9603 has no SIM.)
    """
    if state is None:
        return Finding(True, f"{port}: the modem does not report its lock")
    if state == 0:
        return Finding(True, f"{port}: the modem is not locked (it has no SIM)")
    mend = "return it to its seller" if state == 2 else "have its seller give the key for AT+CULK"
    return Finding(False, f"{port}: the modem is locked and makes no sessions: {mend}")


def _make_recognition() -> Recognition:
    from fieldagent.agent.satellites.sbd_recognition import RECOGNITION

    return RECOGNITION


MODEM = SatelliteModem(
    "sbd",
    "Iridium 9602, 9603 and 9523",
    make_driver,
    check,
    facts={"imei": "IMEI of the modem", "firmware": "firmware of the modem"},
    probe=lambda: SBD,
    recognition=_make_recognition,
)
