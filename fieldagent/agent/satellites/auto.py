"""Finds the kind of satellite modem at a port, and runs the driver for this kind. Each known kind
has a question, which is sent to the modem.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NoReturn

import trio

from fieldagent.agent.channels.contract import LinkState
from fieldagent.agent.channels.line_speed import SEARCH_INTERVAL_S, Probe, can_answer_at
from fieldagent.agent.channels.reopening import run_and_reopen
from fieldagent.agent.channels.serial_port import PortLost
from fieldagent.agent.satellites.contract import SatelliteModem, SatelliteSeat
from fieldagent.agent.satellites.registry import AUTO, get_modems, load_modem
from fieldagent.system.error_groups import get_first_error
from fieldagent.system.finding import Finding
from fieldagent.system.signals import run_breakable

log = logging.getLogger(__name__)

AWAY_MIN_S = 300.0
"""Seconds for which a modem must be absent before the agent searches for another kind."""


class NoModemFound(Exception):
    """No satellite modem of a known kind answers at the port."""


def list_probes() -> Sequence[Probe]:
    """Return the question of each kind of modem, in the order in which the questions are sent."""
    kinds = [load_modem(name).probe for name in get_modems() if name != AUTO]
    return [probe() for probe in kinds if probe is not None]


async def find_kind(port: str, baud: int | None, *, is_searching: bool = True) -> tuple[str, int]:
    """Return the kind and the baud rate of the modem at the port. Try the configured rate, or the
    first rate of each kind. If `is_searching`, also try the other rates of each kind. Raises
    NoModemFound, PortLost.
    """
    probes = list_probes()
    attempts = [(probe, baud or probe.speeds[0]) for probe in probes]
    if is_searching and baud is None:
        attempts += [(probe, speed) for probe in probes for speed in probe.speeds[1:]]
    for probe, speed in attempts:
        if await can_answer_at(port, speed, probe):
            return probe.kind, speed
    kinds = ", ".join(probe.kind for probe in probes)
    raise NoModemFound(
        f"no satellite modem ({kinds}) answers at {port}: is this the modem's port, and does the"
        " modem have power?"
    )


def make_driver(seat: SatelliteSeat) -> Callable[[], Awaitable[None]]:
    """Return the task that serves a modem of any kind at the port of `seat`."""
    return partial(_run, seat)


async def _run(seat: SatelliteSeat) -> NoReturn:
    drivers: dict[tuple[str, int], Callable[[], Awaitable[None]]] = {}
    search = -inf

    async def work() -> None:
        nonlocal search
        searches = trio.current_time() >= search
        if searches:
            search = trio.current_time() + SEARCH_INTERVAL_S
        key = kind, baud = await find_kind(seat.port, seat.baud, is_searching=searches)
        log.info("the satellite modem at %s is of kind %s, at %d baud", seat.port, kind, baud)
        seat.link.facts["modem"] = kind
        if key not in drivers:
            drivers[key] = load_modem(kind).driver(seat._replace(baud=baud))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drivers[key])
            await _wait_until_away(seat)
            nursery.cancel_scope.cancel()

    def report(error: BaseException) -> None:
        if seat.link.reason != str(error):
            log.warning("%s; looking for it again", error)
        seat.link.state, seat.link.reason = LinkState.ABSENT, str(error)

    losses = (PortLost, NoModemFound)
    await run_and_reopen(work, losses, report, seat.progress, seat.link, seat.heal)


async def _wait_until_away(seat: SatelliteSeat) -> None:
    """Wait until the modem has been absent for AWAY_MIN_S. Then another kind of modem may have
    replaced it.
    """
    while True:
        await trio.sleep(AWAY_MIN_S / 5)
        away_since = seat.link.away_since
        if away_since is not None and trio.current_time() - away_since >= AWAY_MIN_S:
            return


def check(port: str, baud: int | None, own_settings: Mapping[str, Any]) -> list[Finding]:
    """Return findings about the modem at the port."""
    kind, speed = "", 0

    async def ask() -> None:
        nonlocal kind, speed
        kind, speed = await find_kind(port, baud)

    try:
        run_breakable(ask)
    except* (PortLost, NoModemFound) as trouble:
        findings = [Finding(False, f"{port}: {get_first_error(trouble)}")]
    else:
        findings = [
            Finding(True, f"{port}: a modem of kind {kind}, at {speed} baud"),
            *load_modem(kind).check(port, speed, own_settings),
        ]
    return findings


MODEM = SatelliteModem(
    AUTO,
    "whichever of these answers at the port",
    make_driver,
    check,
    facts={"imei": "IMEI of the modem", "modem": "kind that answers"},
)
