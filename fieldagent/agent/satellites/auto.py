"""Whichever satellite modem answers at the port: asked by AT, then by JSPR."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NoReturn

import trio

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.reopening import keep_open
from fieldagent.agent.channels.serial_port import PortLost, SerialPort, open_serial
from fieldagent.agent.satellites.contract import SatelliteModem, SatelliteSeat
from fieldagent.system import waits
from fieldagent.system.error_groups import first_error
from fieldagent.system.finding import Finding
from fieldagent.system.lazy_dataclass import dataclass
from fieldagent.wire import imt, jspr

log = logging.getLogger(__name__)

ANSWER_MAX = 2.0
"""Seconds for an answer; each is asked twice, as the first may meet the rest of a line."""
TRIES = 2
AWAY = 300.0
"""Seconds that a modem must have been away before another kind is looked for in its place."""


class NobodyAnswers(Exception):
    """Neither kind of modem answers at the port."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """How one kind of modem is asked whether it is there."""

    kind: str
    baud: int
    question: bytes
    answers: Callable[[bytes], bool]


def _answers_at(said: bytes) -> bool:
    # In words, or as V0 has it: its settings may be stored.
    return b"OK" in said or said.replace(b"AT\r", b"").strip(b"\r\n\0") == b"0"


def _answers_jspr(said: bytes) -> bool:
    lines = jspr.LineReader()
    lines.receive_data(said)
    return lines.next_line() is not None


PROBES = (
    _Probe("sbd", 19_200, b"AT\r", _answers_at),
    _Probe("imt", imt.BAUD, b"\r" + jspr.get("apiVersion"), _answers_jspr),
)


async def kind_at(port: str, baud: int | None) -> str:
    """Return which kind of modem answers there. Raises NobodyAnswers, PortLost."""
    for probe in PROBES:
        async with open_serial(port, baud or probe.baud) as line:
            for _ in range(TRIES):
                if await _is_there(line, probe):
                    return probe.kind
    raise NobodyAnswers(
        f"nothing answers at {port}, neither to AT nor to JSPR: is it the modem's port, and has the"
        " modem power?"
    )


async def _is_there(line: SerialPort, probe: _Probe) -> bool:
    said = bytearray()
    with waits.move_on_after(ANSWER_MAX):
        await line.write(probe.question)
        while not probe.answers(bytes(said)):
            said += await line.read()
            del said[: -jspr.LINE_BYTES]
        return True
    return False


def driver(seat: SatelliteSeat) -> Callable[[], Awaitable[None]]:
    """Return what serves whichever modem is at this seat."""
    return partial(_run, seat)


async def _run(seat: SatelliteSeat) -> NoReturn:
    drivers: dict[str, Callable[[], Awaitable[None]]] = {}

    async def work() -> None:
        kind = await kind_at(seat.port, seat.baud)
        log.info("the satellite modem at %s is of kind %s", seat.port, kind)
        seat.link.facts["modem"] = kind
        if kind not in drivers:
            drivers[kind] = _modem(kind).driver(seat)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drivers[kind])
            await _until_away(seat)
            nursery.cancel_scope.cancel()

    def tell(error: BaseException) -> None:
        if seat.link.reason != str(error):
            log.warning("%s; looking for it again", error)
        seat.link.state, seat.link.reason = LinkState.ABSENT, str(error)

    lost = (PortLost, NobodyAnswers)
    await keep_open(work, lost, tell, seat.progress, seat.link, seat.heal)


async def _until_away(seat: SatelliteSeat) -> None:
    """Wait until the modem has been away for long: another may have been put in its place."""
    while True:
        await trio.sleep(AWAY / 5)
        away = seat.link.away_since
        if away is not None and trio.current_time() - away >= AWAY:
            return


def _modem(kind: str) -> SatelliteModem:
    """Load one of the two kinds; only the one that is there."""
    if kind == "sbd":
        from fieldagent.agent.satellites import sbd as module

        return module.MODEM
    from fieldagent.agent.satellites.imt import kind as imt_module

    return imt_module.MODEM


def check(port: str, baud: int | None) -> list[Finding]:
    """Return which modem answers, and what it says."""
    kind = ""

    async def ask() -> None:
        nonlocal kind
        kind = await kind_at(port, baud)

    try:
        trio.run(ask)
    except* (PortLost, NobodyAnswers) as trouble:
        found = [Finding(False, f"{port}: {first_error(trouble)}")]
    else:
        found = [
            Finding(True, f"{port}: a modem of kind {kind}"),
            *_modem(kind).check(port, baud),
        ]
    return found


MODEM = SatelliteModem(
    "auto",
    "whichever of these answers at the port",
    driver,
    check,
    facts={"imei": "the modem's", "modem": "which kind answers"},
)
