"""A satellite modem of your own: a 9602 with a label as its own setting.

In `agent.properties`:

    extensions=own_modem:EXTENSION
    satellite-modem=mymodem
    mymodem-label=roof
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fieldagent.agent.satellites import sbd
from fieldagent.agent.satellites.contract import SatelliteModem, SatelliteSeat
from fieldagent.system.extension import Extension
from fieldagent.system.finding import Finding
from fieldagent.system.properties import Key, read_text


def driver(seat: SatelliteSeat) -> Callable[[], Awaitable[None]]:
    """Return the function that runs the modem's driver until cancelled."""
    serve = sbd.make_driver(seat)

    async def run() -> None:
        seat.link.facts["label"] = seat.own_settings["mymodem-label"]
        await serve()

    return run


def check(port: str, baud: int | None, own: Mapping[str, Any]) -> list[Finding]:
    """Return findings about the modem and its label."""
    label = Finding(True, f"{port}: the label is {own['mymodem-label']}")
    return [label, *sbd.check(port, baud, own)]


MODEM = SatelliteModem(
    "mymodem",
    "a 9602 with a label",
    driver,
    check,
    keys=(Key("mymodem-label", read_text, None, "label of the modem, which `status` shows"),),
    facts={"imei": "IMEI of the modem", "label": "value of `mymodem-label`"},
)
EXTENSION = Extension(
    "my modem",
    satellite_modems={"mymodem": f"{__name__}:MODEM"},
)
